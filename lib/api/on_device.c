/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls on device memory. All ranks take the same of two paths:
 *
 *   by NCCL   a schedule for device memory, if there is one and NCCL serves type and operation
 *   staged    copy the data to host memory, make the call there, and copy the result back
 *             (call/staged.h). Always for scaled calls, messages, and calls whose ranks know only
 *             their own counts; for allreduces of several hosts if that is cheaper
 *             (coll/device_cost.h)
 *
 * A call in a stream (tutti/cuda.h) begins behind the work in the stream. Otherwise the data must
 * be complete before the call, as in host memory. If NCCL does the whole call, and no step follows,
 * the call returns when the work is queued, and the stream waits for it. Otherwise it returns when
 * the result is complete. With TUTTI_STREAM_WAIT=device, several hosts make it as a request
 * (api/cuda.c).
 *
 * During the call, the communicator's device is the calling thread's current device.
 */
#include "api/device.h"
#include "api/direct.h"

#include "base/compiler.h"
#include "base/status.h"
#include "node/nccl/nccl.h"

unsigned tutti__comm_device_tag(const tutti__call_t *call)
{
    int is_common = tutti__call_collective(call->kind) != TUTTI__COLLECTIVES &&
                    !tutti__call_by_pair(call->kind);

    return call->on_device && is_common ? TUTTI__TAG_ON_DEVICE : 0;
}

/* The event behind the work in the call's stream; NULL: the call has no stream. */
static tutti__devent_t *ready_of(const tutti__comm_t *comm, const tutti__call_t *call)
{
    return call->has_stream ? comm->device.lane[0].ready : NULL;
}

/* ---- a reduce_scatter in place as in MPI ---- */

/*
 * The result must go to the beginning of the buffer, which holds operands for other ranks, and no
 * other device memory is available. So reduce in place as in NCCL, into this rank's own part, move
 * the result to the beginning, and restore the own part:
 *
 *      sendbuf == recvbuf  | 0 ....... | own part |     own part to host memory; reduce_scatter;
 *                            ^--- result ---'           result to the begin; own part back
 */
typedef struct {
    char *own; /* NULL: the call is not of this kind */
    size_t begin, bytes;
} moved_t;

static moved_t aim_at_own(const tutti__comm_t *comm, tutti__call_t *call)
{
    size_t esize = tutti_dtype_bytes(call->dtype), begin = call->count * comm->topo->rank;
    size_t count = call->count;
    moved_t moved = { NULL, 0, 0 };

    if (tutti__call_collective(call->kind) != TUTTI__REDUCE_SCATTER ||
        call->sendbuf != call->recvbuf)
        return moved;
    if (call->kind == TUTTI_CALL_REDUCE_SCATTERV) {
        count = call->recvcounts[comm->topo->rank];
        for (uint32_t r = 0; r < comm->topo->rank; r++)
            begin += call->recvcounts[r];
    }
    if (begin == 0 || count == 0)
        return moved;
    moved = (moved_t){ (char *)call->recvbuf + begin * esize, begin * esize, count * esize };
    call->recvbuf = moved.own;
    return moved;
}

static tutti_status_t keep_own(tutti__comm_t *comm, const moved_t *moved, tutti__devent_t *ready)
{
    tutti_status_t status;

    if (moved->own == NULL)
        return TUTTI_OK;
    status = tutti__staged_keep(&comm->device, 0, moved->own, moved->bytes, ready, &comm->staged);
    return tutti__comm_wait_for_copies(comm, status);
}

/* Move the result through the stage piece by piece: each piece is read before it is written, since
   source and destination may overlap. Restore only the part of `own` outside recvbuf. */
static tutti_status_t put_back_own(tutti__comm_t *comm, const moved_t *moved)
{
    const tutti__device_ops_t *ops = comm->device.ops;
    const tutti__device_lane_t *lane = &comm->device.lane[0];
    size_t skip = moved->bytes > moved->begin ? moved->bytes - moved->begin : 0;
    tutti_status_t status = TUTTI_OK;

    if (moved->own == NULL)
        return TUTTI_OK;
    for (size_t at = 0; at < moved->bytes && status == TUTTI_OK;) {
        size_t piece = TUTTI__MIN(moved->bytes - at, comm->device.stage_bytes);

        status = ops->copy(lane->stage, moved->own + at, piece, lane->up);
        if (status == TUTTI_OK)
            status = ops->copy(moved->own - moved->begin + at, lane->stage, piece, lane->up);
        at += piece;
    }
    if (status == TUTTI_OK)
        status = ops->record(lane->done, lane->up);
    /* staged_put_back uses the stage as well. */
    status = tutti__comm_wait_for_copies(comm, status);
    if (status != TUTTI_OK)
        return status;
    status = tutti__staged_put_back(&comm->device, 0, moved->own + skip, skip, moved->bytes - skip,
                                    &comm->staged);
    return tutti__comm_wait_for_copies(comm, status);
}

/* ---- the two paths ---- */

/* May NCCL make the call? The result is equal on all ranks, so it cannot depend on the place of
   this rank's buffers. */
static int suits_nccl(const tutti__comm_t *comm, const tutti__call_t *call)
{
    return comm->device.node != NULL && tutti__comm_device_tag(call) != 0 && call->prescale == 1 &&
           call->postscale == 1 &&
           tutti__nccl_node_serves(comm->device.node, tutti__call_reduces(call->kind), call->dtype,
                                   call->op, call->op == TUTTI_AVG ? comm->shape.size : 0);
}

/* call: after tutti__call_prepare. *ret_made: 0 if NCCL does not serve it. */
static tutti_status_t run_by_nccl(tutti__comm_t *comm, const tutti__call_t *call,
                                  const tutti__sched_t *sched, tutti__exec_call_t *exec, int meets,
                                  const moved_t *moved, int *ret_made)
{
    tutti_status_t status = keep_own(comm, moved, ready_of(comm, call));

    if (status != TUTTI_OK)
        return status;
    exec->tag |= tutti__comm_device_tag(call);
    exec->on_device = 1;
    exec->ready = ready_of(comm, call);
    exec->queued = call->has_stream && moved->own == NULL;
    exec->then = call->stream;
    if (sched->nchans > 0)
        exec->signature = tutti__call_signature(call, exec, comm->shape.size);
    status = sched->flat ? tutti__flat_run(comm, call, sched, exec)
                         : tutti__comm_run(comm, sched, exec, meets);
    *ret_made = status != TUTTI_ERR_UNSUPPORTED;
    if (status == TUTTI_OK)
        status = put_back_own(comm, moved);
    return *ret_made ? status : TUTTI_OK;
}

/* *ret_made: 0 without a schedule, or if NCCL does not serve the call; equal on all ranks. */
static tutti_status_t make_by_nccl(tutti__comm_t *comm, const tutti__call_t *call, int agreed,
                                   int *ret_made)
{
    tutti__call_t own = *call;
    const moved_t moved = aim_at_own(comm, &own);
    const tutti__sched_t *sched;
    tutti__exec_call_t exec;
    tutti__want_t want;
    tutti_status_t status;
    int in_place, empty;

    *ret_made = 0;
    status = tutti__call_prepare(&own, comm->topo->rank, comm->shape.size, &comm->room, &want,
                                 &exec, &in_place, &empty);
    if (status != TUTTI_OK)
        return tutti__comm_end_badly(comm, status);
    if (empty)
        return TUTTI_OK;
    status = tutti__comm_find_on_device(comm, &want, in_place, &sched);
    if (status != TUTTI_OK || !sched->on_device)
        return status;
    return run_by_nccl(comm, &own, sched, &exec, !agreed, &moved, ret_made);
}

/* After a mismatch in host memory, the device memory is unchanged. */
static tutti_status_t make_staged(tutti__comm_t *comm, const tutti__call_t *call, int agreed)
{
    tutti_status_t status;

    status = tutti__staged_begin(&comm->device, 0, call, comm->topo->rank, comm->shape.size,
                                 ready_of(comm, call), &comm->staged);
    status = tutti__comm_wait_for_copies(comm, status);
    if (status == TUTTI_OK)
        status = tutti__comm_make_in_host(comm, &comm->staged.call, agreed,
                                          tutti__comm_device_tag(call));
    if (status != TUTTI_OK)
        return status;
    status = tutti__staged_finish(&comm->device, 0, &comm->staged);
    return tutti__comm_wait_for_copies(comm, status);
}

static tutti_status_t make(tutti__comm_t *comm, const tutti__call_t *call)
{
    int is_message = tutti__call_collective(call->kind) == TUTTI__COLLECTIVES;
    int agreed = !is_message && tutti__counts_needed(comm, call);
    tutti_status_t status = TUTTI_OK;
    int made = 0;

    if (call->has_stream)
        status = comm->device.ops->record(comm->device.lane[0].ready, call->stream);
    if (status != TUTTI_OK)
        return tutti__comm_end_badly(comm, status);
    if (agreed)
        status = tutti__counts_agree(comm, call);
    if (status == TUTTI_OK && suits_nccl(comm, call))
        status = make_by_nccl(comm, call, agreed, &made);
    return status == TUTTI_OK && !made ? make_staged(comm, call, agreed) : status;
}

tutti_status_t tutti__comm_make_on_device(tutti__comm_t *comm, const tutti__call_t *call)
{
    int before = tutti__device_enter(&comm->device);
    tutti_status_t status = make(comm, call);

    if (status != TUTTI_OK && tutti__watch_alive(comm->watch) != TUTTI_OK) {
        tutti__device_quiesce(&comm->device, 0, 1);
        (void)tutti__watch_alive(comm->watch); /* restores its error text */
    }
    tutti__device_leave(&comm->device, before);
    return status;
}
