/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Argument checks. Each kind of call is described once, as the side that this rank sends and the
 * side that it receives (call/call_sides.h). The checks of counts, buffers and overlaps are the
 * same for all kinds.
 */
#include "api/arguments.h"

#include "api/sides.h"

#include "base/names.h"
#include "base/status.h"

#include <string.h>

/* Limit of a count, and of the sum of all ranks' counts. No memory has so many elements.
   Computations with smaller counts do not overflow, for any type. */
#define MOST_ELEMENTS ((size_t)1 << 48)

/* ---- types and operations ---- */

static tutti_status_t check_op(tutti_dtype_t dtype, tutti_op_t op, tutti_call_kind_t kind)
{
    tutti__reducer_t reducer;

    if (TUTTI__UNLIKELY(op == TUTTI_AVG) && tutti_dtype_bytes(dtype) != 0 &&
        (kind == TUTTI_CALL_SCAN || kind == TUTTI_CALL_EXSCAN))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "there is no %s with avg",
                           tutti__call_name(kind) + (kind == TUTTI_CALL_SCAN ? 2 : 3));
    if (TUTTI__LIKELY(tutti__reduce_find(dtype, op) != NULL))
        return TUTTI_OK;
    if (tutti_dtype_bytes(dtype) == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "dtype %d is no element type", (int)dtype);
    if (tutti__reducer_find(dtype, op, &reducer))
        return TUTTI_OK;
    if (op < TUTTI_SUM || op > TUTTI_MAXLOC)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "op %d is no operation", (int)op);
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s with %s is not supported",
                       tutti__dtype_name(dtype), tutti__op_name(op));
}

static tutti_status_t check_types(const tutti__call_t *call)
{
    if (call->kind == TUTTI_CALL_BARRIER)
        return TUTTI_OK;
    if (!tutti__call_reduces(call->kind)) {
        if (tutti_dtype_bytes(call->dtype) == 0)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "dtype %d is no element type",
                               (int)call->dtype);
        return TUTTI_OK;
    }
    if (TUTTI__UNLIKELY(call->prescale != 1 || call->postscale != 1) &&
        tutti_dtype_bytes(call->dtype) != 0 && !tutti__reduce_scales(call->dtype))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s cannot be scaled: it is no floating point "
                           "type",
                           tutti__dtype_name(call->dtype));
    return check_op(call->dtype, call->op, call->kind);
}

/* ---- roots and peers ---- */

static tutti_status_t check_rank(const tutti__comm_t *comm, const char *name, uint32_t rank,
                                 int is_peer)
{
    if (rank >= comm->topo->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s %d is no rank: there are %u", name,
                           (int)rank, comm->topo->size);
    if (is_peer && rank == comm->topo->rank)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s %d is this rank itself", name,
                           (int)rank);
    return TUTTI_OK;
}

static tutti_status_t check_ranks(const tutti__comm_t *comm, const tutti__call_t *call)
{
    tutti_status_t status;

    switch (call->kind) {
    case TUTTI_CALL_REDUCE:
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_GATHERV:
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_SCATTERV:
        return check_rank(comm, "root", call->root, 0);
    case TUTTI_CALL_SEND:
        return check_rank(comm, "dest", call->root, 1);
    case TUTTI_CALL_RECV:
        return check_rank(comm, "source", call->root, 1);
    case TUTTI_CALL_SENDRECV:
        status = check_rank(comm, "dest", call->root, 1);
        return status != TUTTI_OK ? status : check_rank(comm, "source", call->source, 1);
    default:
        return TUTTI_OK;
    }
}

/* ---- counts and buffers ---- */

static tutti_status_t too_large(const char *name, size_t value)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s %zu is larger than any memory", name, value);
}

/* Neither a count nor the sum of all counts may exceed the limit. */
static tutti_status_t check_parts(const tutti__side_t *side, uint32_t size)
{
    size_t count = 0;

    if (side->count == SIZE_MAX)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is NULL", side->count_name);
    for (uint32_t r = 0; r < size; r++) {
        if (side->counts[r] > MOST_ELEMENTS - count)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "the sum of %s up to rank %u is larger than any memory",
                               side->count_name, r);
        count += side->counts[r];
        if (side->displs != NULL && side->displs[r] > MOST_ELEMENTS)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s[%u], %zu, is larger than any memory",
                               side->displs_name, r, side->displs[r]);
    }
    return TUTTI_OK;
}

static tutti_status_t check_side(tutti__side_t *side, uint32_t size)
{
    tutti_status_t status = TUTTI_OK;

    if (side->name == NULL)
        return TUTTI_OK;
    if (side->counts != NULL)
        status = check_parts(side, size);
    if (status != TUTTI_OK)
        return status;
    tutti__side_measure(side, size);
    if (side->count > 0 && side->ptr == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s is NULL, but must have %zu elements: see %s", side->name,
                           side->count, side->count_name);
    return status;
}

/* Check the part that this rank sends to itself. Only this rank can find a mismatch of its two
   counts. */
static tutti_status_t check_own(const tutti__call_t *call, uint32_t rank, int is_root)
{
    size_t gives = 0, gets = 0;

    if (call->kind == TUTTI_CALL_ALLGATHERV || (call->kind == TUTTI_CALL_GATHERV && is_root)) {
        gives = call->count;
        gets = call->recvcounts[rank];
    } else if (call->kind == TUTTI_CALL_SCATTERV && is_root) {
        gives = call->sendcounts[rank];
        gets = call->count;
    } else if (call->kind == TUTTI_CALL_ALLTOALLV) {
        gives = call->sendcounts[rank];
        gets = call->recvcounts[rank];
    }
    if (gives == gets)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "rank %u sends itself %zu elements, but receives %zu from itself", rank,
                       gives, gets);
}

/* ---- a whole call ---- */

static tutti_status_t check_buffers(const tutti__call_t *call, uint32_t rank, uint32_t size,
                                    int counts_later)
{
    int is_root = rank == call->root, whole;
    tutti__side_t send, recv;
    tutti_status_t status;

    if (call->count > MOST_ELEMENTS / size)
        return too_large("count", call->count);
    if (call->recvcount > MOST_ELEMENTS / size)
        return too_large("recvcount", call->recvcount);
    whole = !(counts_later && call->recvcounts == NULL);
    tutti__call_sends(call, rank, size, &send);
    status = check_side(&send, size);
    if (!whole)
        recv = (tutti__side_t){ 0 };
    if (status == TUTTI_OK && whole) {
        tutti__call_receives(call, rank, size, &recv);
        status = check_side(&recv, size);
    }
    if (status == TUTTI_OK && whole)
        status = check_own(call, rank, is_root);
    if (status == TUTTI_OK)
        status = tutti__sides_check(call, &send, &recv, rank, size);
    return status;
}

/* A fast check: is the call a valid allreduce in its usual form? */
static int is_plain(const tutti__comm_t *comm, const tutti__call_t *call)
{
    const char *send = call->sendbuf, *recv = call->recvbuf;
    size_t bytes = call->count * tutti_dtype_bytes(call->dtype);

    return call->kind == TUTTI_CALL_ALLREDUCE && call->count <= MOST_ELEMENTS / comm->topo->size &&
           send != NULL && recv != NULL &&
           (send == recv || send + bytes <= recv || recv + bytes <= send) &&
           tutti__reduce_find(call->dtype, call->op) != NULL && call->prescale == 1 &&
           call->postscale == 1;
}

static tutti_status_t check_all(const tutti__comm_t *comm, const tutti__call_t *call,
                                int counts_later)
{
    tutti_status_t status = check_types(call);

    if (status == TUTTI_OK)
        status = check_ranks(comm, call);
    if (status == TUTTI_OK)
        status = check_buffers(call, comm->topo->rank, comm->topo->size, counts_later);
    return status;
}

/* ---- wire formats ---- */

static int is_wire(tutti_dtype_t dtype)
{
    return dtype == TUTTI_FLOAT32 || dtype == TUTTI_BFLOAT16 || dtype == TUTTI_FLOAT16 ||
           dtype == TUTTI_FLOAT8_E4M3;
}

/* Can the messages of this call have another type than the call's data? */
static int can_narrow(const tutti__call_t *call)
{
    return (call->kind == TUTTI_CALL_ALLREDUCE || call->kind == TUTTI_CALL_REDUCE ||
            call->kind == TUTTI_CALL_REDUCE_SCATTER || call->kind == TUTTI_CALL_REDUCE_SCATTERV) &&
           call->dtype == TUTTI_FLOAT32 && (call->op == TUTTI_SUM || call->op == TUTTI_AVG);
}

/* Is a call so small that it keeps its type between hosts, if it has no name? Ranks with equal
   calls get the same result. With TUTTI_DETERMINISTIC=strict no call is small, because the bits of
   a result must not depend on the size. */
static int is_small(const tutti__comm_t *comm, const tutti__call_t *call)
{
    uint32_t size = comm->topo->size;
    size_t count = call->kind == TUTTI_CALL_REDUCE_SCATTER    ? call->count * size
                   : call->kind == TUTTI_CALL_REDUCE_SCATTERV ? 0
                                                              : call->count;

    for (uint32_t r = 0; call->kind == TUTTI_CALL_REDUCE_SCATTERV && r < size; r++)
        count += call->recvcounts[r];
    return !comm->conf.shared.strict && count <= TUTTI__WIRE_LEAST_BYTES / sizeof(float);
}

/* Check the option `wire`, and set call->wire: see tutti__call_check. */
static tutti_status_t choose_wire(const tutti__comm_t *comm, tutti__call_t *call, int is_named)
{
    static const tutti_dtype_t set[] = { [TUTTI__CONF_WIRE_FLOAT32] = TUTTI_FLOAT32,
                                         [TUTTI__CONF_WIRE_BFLOAT16] = TUTTI_BFLOAT16,
                                         [TUTTI__CONF_WIRE_FLOAT16] = TUTTI_FLOAT16,
                                         [TUTTI__CONF_WIRE_FLOAT8_E4M3] = TUTTI_FLOAT8_E4M3 };

    if (TUTTI__UNLIKELY(call->wire != 0)) {
        if (!is_wire(call->wire))
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "options->wire is %s; it is float32, bfloat16, float16 or "
                               "float8_e4m3",
                               tutti__dtype_name(call->wire));
        if (!can_narrow(call))
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "options->wire is for sums and averages of float32, not for %s",
                               tutti__call_name(call->kind));
    } else if (can_narrow(call)) {
        call->wire = set[comm->conf.shared.wire];
    }
    if (call->on_device || call->wire == call->dtype ||
        (!is_named && call->wire != 0 && is_small(comm, call)))
        call->wire = (tutti_dtype_t)0;
    return TUTTI_OK;
}

/* Set call->on_device, and check the buffers' memory. receives: see tutti__device_check. */
static inline tutti_status_t check_memory(const tutti__comm_t *comm, tutti__call_t *call,
                                          int receives)
{
    if (TUTTI__LIKELY(comm->exec.device == NULL && comm->lone.ops == NULL))
        return TUTTI_OK;
    return tutti__device_check(comm, call, receives, &call->on_device);
}

tutti_status_t tutti__call_check_receive(const void *comm, tutti__call_t *call)
{
    const tutti__topo_t *topo = ((const tutti__comm_t *)comm)->topo;
    tutti_status_t status = check_buffers(call, topo->rank, topo->size, 0);

    return status == TUTTI_OK ? check_memory(comm, call, 1) : status;
}

tutti_status_t tutti__call_check(const tutti__comm_t *comm, tutti__call_t *call, int is_named,
                                 int counts_later)
{
    tutti_status_t status = TUTTI_OK;

    if (TUTTI__UNLIKELY(!is_plain(comm, call))) {
        status = check_all(comm, call, counts_later);
        /* Only reductions have an operation. */
        if (!tutti__call_reduces(call->kind))
            call->op = (tutti_op_t)0;
    }
    if (status == TUTTI_OK)
        status = check_memory(comm, call, !(counts_later && call->recvcounts == NULL));
    if (status == TUTTI_OK && TUTTI__UNLIKELY(call->wire != 0 || comm->conf.shared.wire != 0))
        status = choose_wire(comm, call, is_named);
    return status;
}
