/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Argument checks. Each kind of call is described once, as what this rank sends and what it
 * receives; the checks of counts, buffers and overlaps are the same for all.
 */
#include "api/arguments.h"

#include "api/sides.h"

#include "base/names.h"
#include "base/status.h"

/* Counts are limited by memory: the elements of all ranks together. So nothing overflows, whatever
   the type. */
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
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s with %s is not served", tutti__dtype_name(dtype),
                       tutti__op_name(op));
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

static tutti_status_t check_rank(const tutti_comm_t *comm, const char *name, uint32_t rank,
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

static tutti_status_t check_ranks(const tutti_comm_t *comm, const tutti__call_t *call)
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

/* ---- what a rank sends and receives ---- */

static tutti__side_t one(const char *name, const char *count_name, const void *ptr, size_t count)
{
    return (tutti__side_t){ .name = name, .count_name = count_name, .ptr = ptr, .count = count };
}

static tutti__side_t many(const char *name, const char *count_name, const void *ptr,
                          const size_t *counts, const char *displs_name, const size_t *displs)
{
    static const size_t missing;

    /* NULL is found where counts are added up. */
    return (tutti__side_t){ .name = name,
                            .count_name = count_name,
                            .displs_name = displs_name,
                            .ptr = ptr,
                            .count = counts == NULL ? SIZE_MAX : 0,
                            .counts = counts == NULL ? &missing : counts,
                            .displs = displs };
}

static void find_send(const tutti__call_t *call, uint32_t size, int is_root, tutti__side_t *side)
{
    const void *p = call->sendbuf;

    switch (call->kind) {
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_BARRIER:
    case TUTTI_CALL_RECV:
        break;
    case TUTTI_CALL_REDUCE_SCATTER:
        *side = one("sendbuf", "recvcount", p, call->count * size);
        break;
    case TUTTI_CALL_REDUCE_SCATTERV:
        *side = many("sendbuf", "recvcounts", p, call->recvcounts, NULL, NULL);
        break;
    case TUTTI_CALL_SCATTER:
        if (is_root)
            *side = one("sendbuf", "recvcount", p, call->count * size);
        break;
    case TUTTI_CALL_SCATTERV:
        if (is_root)
            *side = many("sendbuf", "sendcounts", p, call->sendcounts, "displs", call->senddispls);
        break;
    case TUTTI_CALL_ALLTOALL:
        *side = one("sendbuf", "count", p, call->count * size);
        break;
    case TUTTI_CALL_ALLTOALLV:
        *side = many("sendbuf", "sendcounts", p, call->sendcounts, "senddispls", call->senddispls);
        break;
    case TUTTI_CALL_SEND:
        *side = one("buffer", "count", p, call->count);
        break;
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_ALLGATHERV:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_GATHERV:
    case TUTTI_CALL_SENDRECV:
        *side = one("sendbuf", "sendcount", p, call->count);
        break;
    default:
        *side = one("sendbuf", "count", p, call->count);
        break;
    }
}

static void find_recv(const tutti__call_t *call, uint32_t rank, uint32_t size, int is_root,
                      tutti__side_t *side)
{
    const void *p = call->recvbuf;

    switch (call->kind) {
    case TUTTI_CALL_BARRIER:
    case TUTTI_CALL_SEND:
        break;
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_RECV:
        *side = one("buffer", "count", p, call->count);
        break;
    case TUTTI_CALL_REDUCE_SCATTER:
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_SCATTERV:
        *side = one("recvbuf", "recvcount", p, call->count);
        break;
    case TUTTI_CALL_REDUCE_SCATTERV:
        *side = one("recvbuf", "recvcounts", p, call->recvcounts[rank]);
        break;
    case TUTTI_CALL_GATHER:
        if (!is_root)
            break;
        /* fall through */
    case TUTTI_CALL_ALLGATHER:
        *side = one("recvbuf", "sendcount", p, call->count * size);
        break;
    case TUTTI_CALL_GATHERV:
        if (!is_root)
            break;
        /* fall through */
    case TUTTI_CALL_ALLGATHERV:
        *side = many("recvbuf", "recvcounts", p, call->recvcounts, "displs", call->recvdispls);
        break;
    case TUTTI_CALL_ALLTOALL:
        *side = one("recvbuf", "count", p, call->count * size);
        break;
    case TUTTI_CALL_ALLTOALLV:
        *side = many("recvbuf", "recvcounts", p, call->recvcounts, "recvdispls", call->recvdispls);
        break;
    case TUTTI_CALL_SENDRECV:
        *side = one("recvbuf", "recvcount", p, call->recvcount);
        break;
    case TUTTI_CALL_REDUCE:
        if (is_root)
            *side = one("recvbuf", "count", p, call->count);
        break;
    default:
        if (call->kind != TUTTI_CALL_EXSCAN || rank > 0)
            *side = one("recvbuf", "count", p, call->count);
        break;
    }
}

/* ---- counts and buffers ---- */

static tutti_status_t too_large(const char *name, size_t value)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s %zu is larger than any memory", name, value);
}

/* Add up the parts. */
static tutti_status_t add_up(tutti__side_t *side, uint32_t size)
{
    if (side->count == SIZE_MAX)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is NULL", side->count_name);
    for (uint32_t r = 0; r < size; r++) {
        size_t begin = side->displs != NULL ? side->displs[r] : side->count;

        if (side->counts[r] > MOST_ELEMENTS - side->count)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s up to rank %u are more than any memory has", side->count_name,
                               r);
        side->count += side->counts[r];
        if (begin > MOST_ELEMENTS)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s[%u], %zu, is larger than any memory",
                               side->displs_name, r, begin);
        if (side->counts[r] > 0)
            side->end = TUTTI__MAX(side->end, begin + side->counts[r]);
    }
    return TUTTI_OK;
}

static tutti_status_t check_side(tutti__side_t *side, uint32_t size)
{
    tutti_status_t status = TUTTI_OK;

    if (side->name == NULL)
        return TUTTI_OK;
    if (side->counts != NULL)
        status = add_up(side, size);
    else
        side->end = side->count;
    if (status == TUTTI_OK && side->count > 0 && side->ptr == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s is NULL, but there are %zu elements by "
                           "%s",
                           side->name, side->count, side->count_name);
    return status;
}

/* What a rank gives itself is known here already. */
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

/* ---- the whole ---- */

tutti_status_t tutti__call_check_buffers(const tutti__call_t *call, uint32_t rank, uint32_t size,
                                         int counts_later)
{
    int is_root = rank == call->root, whole;
    tutti__side_t send = { 0 }, recv = { 0 };
    tutti_status_t status;

    if (call->count > MOST_ELEMENTS / size)
        return too_large("count", call->count);
    if (call->recvcount > MOST_ELEMENTS / size)
        return too_large("recvcount", call->recvcount);
    whole = !(counts_later && call->recvcounts == NULL);
    find_send(call, size, is_root, &send);
    status = check_side(&send, size);
    if (status == TUTTI_OK && whole) {
        find_recv(call, rank, size, is_root, &recv);
        status = check_side(&recv, size);
    }
    if (status == TUTTI_OK && whole)
        status = check_own(call, rank, is_root);
    if (status == TUTTI_OK)
        status = tutti__sides_check(call, &send, &recv, rank, size);
    return status;
}

/* The most frequent call in its usual form: nothing is wrong with it. */
static int is_plain(const tutti_comm_t *comm, const tutti__call_t *call)
{
    const char *send = call->sendbuf, *recv = call->recvbuf;
    size_t bytes = call->count * tutti_dtype_bytes(call->dtype);

    return call->kind == TUTTI_CALL_ALLREDUCE && call->count <= MOST_ELEMENTS / comm->topo->size &&
           send != NULL && recv != NULL &&
           (send == recv || send + bytes <= recv || recv + bytes <= send) &&
           tutti__reduce_find(call->dtype, call->op) != NULL && call->prescale == 1 &&
           call->postscale == 1;
}

tutti_status_t tutti__call_check(const tutti_comm_t *comm, const tutti__call_t *call,
                                 int counts_later)
{
    tutti_status_t status = tutti__comm_check(comm);

    if (status == TUTTI_OK && TUTTI__LIKELY(is_plain(comm, call)))
        return TUTTI_OK;
    if (status == TUTTI_OK)
        status = check_types(call);
    if (status == TUTTI_OK)
        status = check_ranks(comm, call);
    if (status == TUTTI_OK)
        status = tutti__call_check_buffers(call, comm->topo->rank, comm->topo->size, counts_later);
    return status;
}
