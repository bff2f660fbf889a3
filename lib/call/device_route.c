/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory. There are two routes, and all ranks take the same route:
 *
 *   NCCL     a schedule for device memory, if there is one and NCCL serves type and operation
 *   staged   copy the data to host memory, make the call there, and copy the result back
 *            (staged.h). Messages, and calls whose ranks have only their own counts, always take
 *            this route. Allreduces of several hosts take it if it is cheaper (coll/device_cost.h)
 *
 * The choice depends only on properties that are equal on all ranks: kind, type, length, scales and
 * schedule, but never addresses. The copies that pack tensors also scale them. A tensor that is not
 * packed is scaled by a copy into recvbuf, if the result is as large as the operand.
 *
 * In phase INPUT the operation waits until the data are complete. This phase is used only if CUDA
 * streams may wait on semaphores; see engine/semaphore.c.
 *
 * A call in a CUDA stream (tutti/cuda.h) begins after the earlier work of this stream. If the work
 * of NCCL completes the call, the operation ends when this work is queued, and the CUDA stream
 * waits for the work. Operations of the engine end in the same way, with their work in the lane's
 * CUDA stream `up`. All other operations end when their result is complete.
 *
 * A schedule of scope ALL passes the launch sequencer before its run.
 */
#include "call/operation.h"

#include "base/compiler.h"
#include "base/own_thread.h"
#include "base/status.h"
#include "call/call_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const tutti__exec_device_t *device_of(const tutti__operation_t *op)
{
    return op->env->exec->device;
}

static const tutti__device_lane_t *lane_of(const tutti__operation_t *op)
{
    return &device_of(op)->lane[op->lane];
}

static int is_scaled(const tutti__call_t *call)
{
    return tutti__call_reduces(call->kind) && (call->prescale != 1 || call->postscale != 1);
}

/* ---- a reduce_scatter in place as in MPI ---- */

/*
 * The result belongs at the beginning of the buffer, but operands for other ranks are there, and no
 * other device memory is available. So reduce in place as in NCCL, into this rank's own part. Then
 * move the result to the beginning, and restore this rank's own part:
 *
 *      sendbuf == recvbuf  | 0 ....... | own part |     own part to host memory; reduce_scatter;
 *                            ^--- result ---'           result to the begin; own part back
 */
static void aim_at_own(tutti__operation_t *op)
{
    tutti__call_t *call = &op->own;
    uint32_t rank = op->env->exec->rank;
    size_t esize = tutti_dtype_bytes(call->dtype), begin = call->count * rank, count = call->count;

    op->moved = (tutti__moved_t){ NULL, 0, 0 };
    if (tutti__call_collective(call->kind) != TUTTI__REDUCE_SCATTER || op->with->packing != NULL ||
        call->sendbuf != call->recvbuf)
        return;
    if (call->kind == TUTTI_CALL_REDUCE_SCATTERV) {
        count = call->recvcounts[rank];
        begin = 0;
        for (uint32_t r = 0; r < rank; r++)
            begin += call->recvcounts[r];
    }
    if (begin == 0 || count == 0)
        return;
    op->moved =
        (tutti__moved_t){ (char *)call->recvbuf + begin * esize, begin * esize, count * esize };
    call->recvbuf = op->moved.own;
}

/* Move the result through STAGE piece by piece. Each piece is read before it is written, because
   source and destination may overlap. */
static tutti_status_t move_result(tutti__operation_t *op)
{
    const tutti__device_ops_t *ops = device_of(op)->ops;
    const tutti__device_lane_t *lane = lane_of(op);
    const tutti__moved_t *moved = &op->moved;
    tutti_status_t status = TUTTI_OK;

    for (size_t at = 0; at < moved->bytes && status == TUTTI_OK;) {
        size_t piece = TUTTI__MIN(moved->bytes - at, device_of(op)->stage_bytes);

        status = ops->copy(lane->stage, moved->own + at, piece, lane->up);
        if (status == TUTTI_OK)
            status = ops->copy(moved->own - moved->begin + at, lane->stage, piece, lane->up);
        at += piece;
    }
    op->at = TUTTI__AT_MOVE;
    return status == TUTTI_OK ? ops->record(lane->done, lane->up) : status;
}

/* After the result has been moved: restore the bytes of `own` that the result does not cover. */
static tutti_status_t restore_own(tutti__operation_t *op)
{
    const tutti__moved_t *moved = &op->moved;
    size_t skip = moved->bytes > moved->begin ? moved->bytes - moved->begin : 0;

    op->at = TUTTI__AT_RESTORE;
    return tutti__staged_put_back(device_of(op), op->lane, moved->own + skip, skip,
                                  moved->bytes - skip, &op->staged);
}

/* ---- copies of scaled and packed data ---- */

static tutti_status_t need_pieces(tutti__operation_t *op)
{
    size_t capacity = TUTTI__MAX(op->with->npieces, 1);
    tutti__piece_t *pieces;

    op->npieces = 0;
    if (op->pieces_capacity >= capacity)
        return TUTTI_OK;
    pieces = realloc(op->pieces, capacity * sizeof(*pieces));
    if (pieces == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu pieces of a bucket", capacity);
    op->pieces = pieces;
    op->pieces_capacity = capacity;
    return TUTTI_OK;
}

void tutti__operation_copy(tutti__operation_t *op, void *to, const void *from, size_t count)
{
    op->pieces[op->npieces++] = (tutti__piece_t){ from, to, count };
}

/* Queue the copies that were added. */
static tutti_status_t queue_pieces(const tutti__operation_t *op, double scale)
{
    tutti_dtype_t dtype = op->asked->dtype;

    if (op->npieces == 0)
        return TUTTI_OK;
    return device_of(op)->ops->pack(op->pieces, op->npieces, dtype, dtype, scale, lane_of(op)->up);
}

static double scale_of(const tutti__operation_t *op, int after)
{
    const tutti__call_t *call = op->with->packing != NULL ? op->with->scaled : op->asked;

    if (!tutti__call_reduces(call->kind))
        return 1;
    return after ? call->postscale : call->prescale;
}

/* The event after which the caller's data are complete, or NULL. */
static tutti__devent_t *ready_of(const tutti__operation_t *op)
{
    if (op->stream_ready != NULL)
        return op->stream_ready;
    return op->with->nready > 0 ? op->with->ready[0] : NULL;
}

/* Queue the packing, if there is any. *ret_ready: as ready_of, or the event after the packing. */
static tutti_status_t pack(tutti__operation_t *op, tutti__devent_t **ret_ready)
{
    const tutti__device_ops_t *ops = device_of(op)->ops;
    const tutti__device_lane_t *lane = lane_of(op);
    int scales = op->sched != NULL && scale_of(op, 0) != 1;
    tutti_status_t status = TUTTI_OK;

    *ret_ready = ready_of(op);
    if (op->with->packing == NULL && !scales)
        return TUTTI_OK;
    for (uint32_t i = 0; i < op->with->nready && status == TUTTI_OK; i++)
        if (op->with->ready[i] != NULL)
            status = ops->wait(lane->up, op->with->ready[i]);
    if (status == TUTTI_OK && op->stream_ready != NULL)
        status = ops->wait(lane->up, op->stream_ready);
    op->npieces = 0;
    if (status == TUTTI_OK && op->with->packing != NULL)
        status = op->with->packing->pack(op->with->owner, op);
    else
        tutti__operation_copy(op, (void *)(uintptr_t)op->call->sendbuf, op->asked->sendbuf,
                              op->exec.count);
    if (status == TUTTI_OK)
        status = queue_pieces(op, scale_of(op, 0));
    *ret_ready = lane->done;
    return status == TUTTI_OK ? ops->record(lane->done, lane->up) : status;
}

/* After the run or the copy back: queue the unpacking. is_queued: 1 if the device work is queued,
   but perhaps not yet complete. */
static tutti_status_t unpack(tutti__operation_t *op, int is_queued)
{
    tutti_status_t status;

    op->npieces = 0;
    if (op->with->packing != NULL)
        op->with->packing->unpack(op->with->owner, op);
    else if (op->unpacks && op->memory.result > 0)
        tutti__operation_copy(op, op->asked->recvbuf, op->asked->recvbuf, op->memory.result);
    op->is_queued = op->npieces > 0 || is_queued;
    status = queue_pieces(op, scale_of(op, 1));
    if (status != TUTTI_OK)
        return status;
    if (op->npieces == 0 || op->with->detaches) {
        op->at = TUTTI__AT_END;
        return TUTTI_OK;
    }
    op->at = TUTTI__AT_RESULT;
    return device_of(op)->ops->record(lane_of(op)->done, lane_of(op)->up);
}

/* ---- the choice ---- */

/* Can all ranks make the call on the device? */
static int suits(const tutti__operation_t *op, const tutti__node_t *node)
{
    const tutti__call_t *call = op->asked;

    return node != NULL && !op->with->stays_in_host && tutti__call_device_tag(call) != 0 &&
           (!is_scaled(call) || op->with->packing != NULL || call->kind == TUTTI_CALL_ALLREDUCE ||
            call->prescale == 1) &&
           node->device_ops->serves(node, tutti__call_reduces(call->kind), call->dtype, call->op,
                                    call->op == TUTTI_AVG ? op->env->exec->size : 0);
}

/* Choose the buffers of one tensor on the device: an allreduce puts its scaled data into
   recvbuf. */
static void place(tutti__operation_t *op)
{
    tutti__call_t *call = &op->own;

    *call = *op->asked;
    aim_at_own(op);
    if (!tutti__call_reduces(call->kind) || op->with->packing != NULL)
        return;
    op->unpacks = call->postscale != 1;
    if (call->prescale != 1)
        call->sendbuf = call->recvbuf;
    call->prescale = call->postscale = 1;
}

/* Find the schedule with which op->asked would run in host memory. Buffers have the same layout in
   host memory, and scales need no additional space. */
static tutti_status_t find_in_host(tutti__operation_t *op, const tutti__sched_t **ret_sched)
{
    tutti__call_t plain = *op->asked;
    tutti_status_t status;
    int empty;

    *ret_sched = NULL;
    plain.prescale = plain.postscale = 1;
    status = tutti__operation_prepare(op, &plain, &empty);
    return status == TUTTI_OK && !empty ? tutti__operation_find(op, &plain, ret_sched) : status;
}

/* May the library's own threads run the schedule? */
static int thread_may(const tutti__operation_t *op, const tutti__sched_t *sched)
{
    return !tutti__run_forbidden(op->env->exec, sched, 1);
}

/* Find the schedule on the device, op->sched. NULL: the call is staged. */
static tutti_status_t find_on_device(tutti__operation_t *op, int *ret_empty)
{
    const tutti__exec_device_t *device = device_of(op);
    const tutti__sched_t *sched;
    tutti_status_t status;
    int common;

    op->sched = NULL;
    op->unpacks = 0;
    op->moved.own = NULL;
    *ret_empty = 0;
    if (!suits(op, device->node))
        return TUTTI_OK;
    place(op);
    status = tutti__operation_prepare(op, &op->own, ret_empty);
    if (status != TUTTI_OK || *ret_empty)
        return status;
    status = tutti__own_find(op->env->device_cache, &op->want, op->in_place, &sched, &common);
    /* After a common error the call is staged. If there is no schedule in host memory either, the
       later search for a schedule in host memory reports the error. */
    if (status != TUTTI_OK)
        return common ? TUTTI_OK : status;
    if (sched->on_device && (sched->scope == TUTTI__SCOPE_HOST || suits(op, device->all_node)))
        op->sched = sched;
    return TUTTI_OK;
}

static tutti_status_t choose(tutti__operation_t *op)
{
    const tutti__sched_t *in_host = NULL;
    tutti_status_t status;
    int empty;

    op->is_common = 0;
    if (device_of(op) == NULL)
        return tutti__fail(TUTTI_ERR_INTERNAL, "device memory without a device");
    if (op->with->awaits_input)
        (void)find_in_host(op, &in_host); /* needed if NCCL does not serve the call */
    /* A failed find_in_host may have set is_common. */
    op->is_common = 0;
    status = need_pieces(op);
    if (status == TUTTI_OK)
        status = find_on_device(op, &empty);
    if (status != TUTTI_OK)
        return status;
    if (empty && op->env->is_agreed) {
        op->at = TUTTI__AT_END;
        return TUTTI_OK;
    }
    op->polls = 1;
    if (op->sched == NULL && op->env->is_agreed && in_host == NULL &&
        !tutti__call_is_message(op->asked->kind)) {
        status = find_in_host(op, &in_host);
        op->is_common = status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_INVALID_ARGUMENT;
        if (status != TUTTI_OK)
            return status;
    }
    if (op->sched != NULL) {
        status = tutti__own_allows(op->env, op->sched);
        op->is_common = status == TUTTI_ERR_UNSUPPORTED;
        if (status != TUTTI_OK)
            return status;
        op->call = &op->own;
    }
    op->is_certain = op->with->awaits_input && in_host != NULL && thread_may(op, in_host) &&
                     (op->sched == NULL || thread_may(op, op->sched));
    op->at = op->with->awaits_input ? TUTTI__AT_INPUT : TUTTI__AT_KEEP;
    return TUTTI_OK;
}

static tutti_status_t start_compare(tutti__operation_t *op)
{
    op->has_compared = 1;
    op->at = TUTTI__AT_COMPARE;
    return tutti__compare_start(&op->compare, op->env, &op->run, op->asked, 0, &op->is_common);
}

static tutti_status_t enter(tutti__operation_t *op)
{
    const tutti__call_t *call = op->asked;
    tutti_status_t status = TUTTI_OK;

    /* Record now: the caller may queue further work in the stream during the comparison. */
    if (op->stream_ready != NULL && !op->has_compared)
        status = device_of(op)->ops->record(op->stream_ready, call->stream);
    if (status != TUTTI_OK)
        return status;
    if (!op->has_compared && !tutti__call_is_message(call->kind) &&
        tutti__compare_needed(op->env, call))
        return start_compare(op);
    return choose(op);
}

/* ---- the runs ---- */

static tutti_status_t begin_staged(tutti__operation_t *op, tutti__devent_t *ready)
{
    const tutti__call_t *call = op->asked;

    /* If the run on the device could not start, recvbuf already has the prescaled data. So the
       staged call uses op->own, which does not prescale again. */
    if (op->sched != NULL && op->with->packing == NULL && scale_of(op, 0) != 1) {
        op->own.postscale = call->postscale;
        call = &op->own;
    }
    op->is_common = 0; /* other ranks do not find an error of these copies */
    op->is_staged = 1;
    op->at = TUTTI__AT_STAGED_IN;
    op->sched = NULL;
    op->call = op->asked;
    op->moved.own = NULL;
    op->unpacks = 0; /* the call in host memory scales the result */
    return tutti__staged_begin(device_of(op), op->lane, call, op->env->exec->rank,
                               op->env->exec->size, ready, &op->staged);
}

/* Save this rank's own part of a reduce_scatter in host memory. */
static tutti_status_t keep(tutti__operation_t *op)
{
    if (op->sched == NULL || op->moved.own == NULL) {
        op->at = TUTTI__AT_LAUNCH;
        return TUTTI_OK;
    }
    return tutti__staged_keep(device_of(op), op->lane, op->moved.own, op->moved.bytes, ready_of(op),
                              &op->staged);
}

static tutti_status_t start_run(tutti__operation_t *op)
{
    tutti_status_t status;

    op->at = TUTTI__AT_DEVICE_RUN;
    op->exec.meet = !op->env->is_agreed && !op->has_compared && op->sched->nchans > 0 &&
                    op->env->shape->nhosts == 1;
    status = tutti__operation_run(op, op->sched);
    /* STAGE is too small for the blocks, on all ranks. */
    if (status == TUTTI_ERR_UNSUPPORTED && op->sched->scope == TUTTI__SCOPE_HOST)
        return begin_staged(op, op->exec.ready);
    return status;
}

/* Queue the packing, and begin the run after it. */
static tutti_status_t launch(tutti__operation_t *op)
{
    tutti__devent_t *ready;
    tutti_status_t status = pack(op, &ready);

    if (status != TUTTI_OK)
        return status;
    if (op->sched == NULL)
        return begin_staged(op, ready);
    op->exec.tag |= (uint8_t)tutti__call_device_tag(op->asked);
    op->exec.on_device = 1;
    op->exec.ready = ready;
    if (op->with->detaches) {
        op->exec.queued = !op->with->uses_stage && op->moved.own == NULL;
        op->exec.then = lane_of(op)->up;
    } else {
        op->exec.queued = op->stream_ready != NULL && op->moved.own == NULL && !op->unpacks;
        op->exec.then = op->asked->stream;
    }
    op->run.sched = NULL;
    op->at = TUTTI__AT_COME;
    return op->sched->scope == TUTTI__SCOPE_ALL ? TUTTI_OK : start_run(op);
}

/* One step of the launch sequencer; after the second step the run starts. */
static tutti_status_t pass_sequencer(tutti__operation_t *op)
{
    const tutti__exec_env_t *exec = op->env->exec;
    int is_number = op->at == TUTTI__AT_NUMBER;
    unsigned step = is_number ? TUTTI__SEQUENCER_NUMBER : TUTTI__SEQUENCER_COME;
    tutti_status_t status = tutti__own_allows(op->env, exec->device->sequencer[step]);
    uint32_t signature = op->with->tag != 0
                             ? op->with->signature
                             : tutti__call_signature(op->call, &op->exec, exec->size);

    if (status == TUTTI_OK && op->run.sched == NULL)
        status =
            tutti__sequencer_start(&op->sequencer, step, exec, &op->run,
                                   op->with->tag != 0 ? op->with->tag : op->exec.tag, signature);
    if (status == TUTTI_OK)
        status = tutti__run_step(&op->run, &op->hint);
    if (status != TUTTI_OK)
        return status;
    op->run.sched = NULL;
    op->at = TUTTI__AT_NUMBER;
    if (!is_number)
        return TUTTI_OK;
    tutti__sequencer_pass(&op->sequencer, exec, op->lane);
    return start_run(op);
}

/* One step of the run on the device. */
static tutti_status_t step_run(tutti__operation_t *op)
{
    tutti__devent_t *ready = op->exec.ready;
    tutti_status_t status = tutti__own_allows(op->env, op->sched);

    if (status == TUTTI_OK)
        status = tutti__run_step(&op->run, &op->hint);
    if (status == TUTTI__AGAIN)
        return status;
    if (status == TUTTI_ERR_UNSUPPORTED && op->sched->scope == TUTTI__SCOPE_HOST) {
        /* No rank's NCCL serves the call. No data have moved. */
        if (!op->env->is_agreed)
            tutti__run_cancel(&op->run);
        op->run.sched = NULL;
        assert(op->with->packing != NULL || scale_of(op, 0) == 1);
        return begin_staged(op, ready);
    }
    if (status != TUTTI_OK) {
        /* Scope ALL: no error is common, because a sequence number without its launch blocks all
           later launches. */
        op->is_common = !op->env->is_agreed && op->sched->scope == TUTTI__SCOPE_HOST &&
                        status == TUTTI_ERR_MISMATCH && tutti__own_is_common(&op->run, status);
        return status;
    }
    return op->moved.own != NULL ? move_result(op) : unpack(op, op->run.node_call.queued);
}

/* INPUT: are the data of all tensors complete? */
static tutti_status_t look_at_input(tutti__operation_t *op)
{
    tutti_status_t status = TUTTI_OK;

    for (uint32_t i = 0; i < op->with->nready && status == TUTTI_OK; i++)
        if (op->with->ready[i] != NULL)
            status = device_of(op)->ops->query(op->with->ready[i]);
    if (status == TUTTI_OK)
        op->at = TUTTI__AT_KEEP;
    return status;
}

tutti_status_t tutti__device_route_put_back(tutti__operation_t *op)
{
    op->at = TUTTI__AT_STAGED_OUT;
    return tutti__staged_finish(device_of(op), op->lane, &op->staged);
}

/* A step of a phase that waits for the copies of op->staged, or of the lane. */
static tutti_status_t await_copies(tutti__operation_t *op)
{
    op->hint = (tutti__hint_t){ NULL, 0, -1 };
    return tutti__staged_step(device_of(op), op->lane, &op->staged);
}

static tutti_status_t end_copies(tutti__operation_t *op)
{
    tutti_status_t status = await_copies(op);

    if (status != TUTTI_OK)
        return status;
    switch (op->at) {
    case TUTTI__AT_STAGED_IN: /* the data are in host memory: make the call there */
        op->call = &op->staged.call;
        op->at = TUTTI__AT_CHOOSE;
        return TUTTI_OK;
    case TUTTI__AT_STAGED_OUT:
        status = tutti__operation_end_pairs(op);
        return status == TUTTI_OK ? unpack(op, 0) : status;
    case TUTTI__AT_MOVE:
        return restore_own(op);
    case TUTTI__AT_RESTORE:
        return unpack(op, 0);
    default: /* RESULT */
        op->at = TUTTI__AT_END;
        return TUTTI_OK;
    }
}

/* Save this rank's own part. The first step begins the copies; the later steps wait for them. */
static tutti_status_t step_keep(tutti__operation_t *op)
{
    tutti_status_t status;

    if (!op->is_keeping) {
        status = keep(op);
        op->is_keeping = status == TUTTI_OK && op->at == TUTTI__AT_KEEP;
        return status;
    }
    status = await_copies(op);
    if (status == TUTTI_OK) {
        op->is_keeping = 0;
        op->at = TUTTI__AT_LAUNCH;
    }
    return status;
}

tutti_status_t tutti__device_route_step(tutti__operation_t *op)
{
    switch (op->at) {
    case TUTTI__AT_DEVICE:
        return enter(op);
    case TUTTI__AT_INPUT:
        op->hint = (tutti__hint_t){ NULL, 0, -1 };
        return look_at_input(op);
    case TUTTI__AT_KEEP:
        return step_keep(op);
    case TUTTI__AT_LAUNCH:
        return launch(op);
    case TUTTI__AT_COME:
    case TUTTI__AT_NUMBER:
        return pass_sequencer(op);
    case TUTTI__AT_DEVICE_RUN:
        return step_run(op);
    default:
        return end_copies(op);
    }
}

int tutti__operation_awaits_data(const tutti__operation_t *op)
{
    return op->at == TUTTI__AT_INPUT || op->at == TUTTI__AT_STAGED_IN;
}
