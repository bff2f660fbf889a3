/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with GPU-direct messages: between hosts, messages go from and to device memory, over
 * transports that accept this memory. The schedule does not change, so all proofs about schedules
 * hold. Only STAGE and the slots of messages are in the lane's device memory.
 *
 *      SEND         from STAGE, after all earlier work of the stream; several blocks are first
 *                   packed into a slot
 *      RECV         the device copies from the slot in which the message arrived
 *      RECV_REDUCE  the device adds the slot to the destination
 *
 * An operation ends when an event shows that the device has done the operation's work. So when a
 * slot is released or a message is sent, no queued work touches that memory any more. Work that
 * reads a message is queued after the message has arrived.
 *
 * STAGE and messages are in host memory if the device cannot compute the sum, or if the schedule
 * has SCRATCH. The choice depends only on values that are equal on all ranks: the call, the
 * schedule and settings.
 *
 * Receiving channels use the lane's slots from the first slot on. Streams that pack messages use
 * the lane's slots from the last slot downwards.
 */
#include "exec/exec_inside.h"

#include "base/constants.h"
#include "base/status.h"

#include <assert.h>

/* Values of st->started. */
enum {
    WORKING = 1, /* the device works; the stream's event follows that work */
    SENDING
};

/* ---- choosing ---- */

static int is_summed(tutti_dtype_t dtype, tutti_op_t op)
{
    return (op == TUTTI_SUM || op == TUTTI_AVG) && dtype >= TUTTI_INT8 && dtype <= TUTTI_FLOAT64;
}

tutti_status_t tutti__run_choose_gpu_direct(const tutti__run_t *run, const tutti__sched_t *sched,
                                            const tutti__exec_call_t *call, uint32_t *ret_credits)
{
    const tutti__exec_device_t *device = run->device;
    uint32_t receivers = 0;

    *ret_credits = 0;
    if (device->gpu_direct_bytes / sched->max_nblk < TUTTI__LEAST_CHUNK ||
        sched->stage_trips == 0 || sched->scratch_blocks > 0 || sched->is_read ||
        !is_summed(call->dtype, call->op))
        return TUTTI_OK;
    for (uint32_t i = 0; i < sched->nchans; i++)
        receivers += sched->chans[i].is_recv;
    if (receivers + sched->nstreams > device->gpu_direct_slots)
        return tutti__fail(TUTTI_ERR_INTERNAL, "%s receives from %u channels, with %u slots",
                           sched->name, receivers, device->gpu_direct_slots);
    *ret_credits = (device->gpu_direct_slots - sched->nstreams) / TUTTI__MAX(receivers, 1);
    *ret_credits = TUTTI__MIN(*ret_credits, TUTTI__GPU_DIRECT_CREDITS);
    return TUTTI_OK;
}

static char *slot(const tutti__run_t *run, uint32_t index)
{
    const tutti__exec_device_t *device = run->device;

    assert(index < device->gpu_direct_slots);
    return device->lane[run->lane].gpu_direct + device->stage_bytes +
           index * device->gpu_direct_bytes;
}

void tutti__run_gpu_direct_key(tutti__run_t *run, const tutti__sched_chan_t *chan,
                               tutti__chan_key_t *key)
{
    key->stream += TUTTI__XPORT_GPU_DIRECT;
    key->slot_bytes = run->device->gpu_direct_bytes;
    if (!chan->is_recv)
        return;
    key->credits = run->gpu_direct;
    key->slots = slot(run, run->slots_used);
    run->slots_used += run->gpu_direct;
}

/* ---- the device's work ---- */

static tutti__dstream_t *between(const tutti__run_t *run)
{
    return run->device->lane[run->lane].between;
}

static tutti__devent_t *event_of(const tutti__run_t *run, const tutti__stream_t *st)
{
    return run->device->lane[run->lane].copied[st - run->stream];
}

static tutti_status_t record(const tutti__run_t *run, tutti__stream_t *st, tutti_status_t status)
{
    if (status == TUTTI_OK)
        status = run->device->ops->record(event_of(run, st), between(run));
    if (status == TUTTI_OK)
        st->started = WORKING;
    return status;
}

static size_t sum_bytes(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                        unsigned buf, uint32_t blk)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < op->nblk; i++)
        bytes += tutti__run_chunk(run, st, op, buf, blk + i).bytes;
    return bytes;
}

/* Pack an operation's blocks into `packed`. If takes is 1: unpack the blocks from `packed`. */
static tutti_status_t pack(const tutti__run_t *run, const tutti__stream_t *st,
                           const tutti__op_t *op, unsigned buf, uint32_t blk, char *packed,
                           int takes)
{
    const tutti__device_ops_t *ops = run->device->ops;
    tutti_status_t status = TUTTI_OK;
    tutti__piece_t piece[TUTTI__GPU_DIRECT_PIECES];
    size_t n = 0;

    for (uint32_t i = 0; i < op->nblk && status == TUTTI_OK; i++) {
        tutti__span_t at = tutti__run_chunk(run, st, op, buf, blk + i);

        if (at.bytes > 0)
            piece[n++] = takes ? (tutti__piece_t){ packed, at.ptr, at.bytes }
                               : (tutti__piece_t){ at.ptr, packed, at.bytes };
        packed += at.bytes;
        if (n < TUTTI__GPU_DIRECT_PIECES && i + 1 < op->nblk)
            continue;
        status = ops->pack(piece, n, TUTTI_UINT8, TUTTI_UINT8, 1, between(run));
        n = 0;
    }
    return status;
}

/* dst = there + arrives; LEFT: arrives + there. */
static tutti_status_t add(const tutti__run_t *run, const tutti__op_t *op, tutti__span_t dst,
                          const char *there, const char *arrives)
{
    int left = (op->flags & TUTTI__LEFT) != 0;
    const void *srcs[2] = { left ? arrives : there, left ? there : arrives };

    if (dst.bytes == 0)
        return TUTTI_OK;
    return run->device->ops->sum(dst.ptr, srcs, 2, dst.bytes >> run->eshift, run->node_call.dtype,
                                 op->flags & TUTTI__FINISH ? run->divisor : 0, between(run));
}

/* Queue the device's work for a RECV or RECV_REDUCE of the message `data`, or for a REDUCE. */
static tutti_status_t take(const tutti__run_t *run, const tutti__stream_t *st,
                           const tutti__op_t *op, const char *data)
{
    tutti__span_t dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk);
    tutti_status_t status = TUTTI_OK;

    if (op->kind == TUTTI__RECV && op->nblk > 1)
        return pack(run, st, op, op->dbuf, op->dblk, (char *)(uintptr_t)data, 1);
    if (op->kind == TUTTI__RECV)
        return run->device->ops->copy(dst.ptr, data, dst.bytes, between(run));
    for (uint32_t i = 0; i < op->nblk && status == TUTTI_OK; i++) {
        tutti__span_t src = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);

        dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i);
        if (op->kind == TUTTI__REDUCE) {
            status = add(run, op, dst, dst.ptr, src.ptr);
        } else {
            status = add(run, op, dst, src.ptr, data);
            data += dst.bytes;
        }
    }
    return status;
}

/* ---- operations; each returns OK when it is complete ---- */

static tutti_status_t do_send(const tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                              tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    size_t bytes = sum_bytes(run, st, op, op->sbuf, op->sblk);
    char *from = op->nblk == 1
                     ? tutti__run_chunk(run, st, op, op->sbuf, op->sblk).ptr
                     : slot(run, run->device->gpu_direct_slots - 1 - (uint32_t)(st - run->stream));
    tutti_status_t status = TUTTI_OK;
    int pending = 0;

    if (bytes == 0)
        return TUTTI_OK;
    if (st->started == SENDING)
        return end->ops->flush(end->chan, hint);
    if (op->nblk > 1 && !st->started)
        status = record(run, st, pack(run, st, op, op->sbuf, op->sblk, from, 0));
    if (status == TUTTI_OK && st->started)
        status = run->device->ops->query(event_of(run, st));
    if (status == TUTTI_OK)
        status = end->ops->send(end->chan, from, bytes, run->signature, &pending, hint);
    if (status != TUTTI_OK || !pending)
        return status;
    st->started = SENDING;
    return end->ops->flush(end->chan, hint);
}

static tutti_status_t do_recv(const tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                              tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    size_t bytes = sum_bytes(run, st, op, op->dbuf, op->dblk);
    tutti_status_t status = TUTTI_OK;
    const void *data;

    if (bytes == 0)
        return TUTTI_OK;
    if (!st->started) {
        status = end->ops->view(end->chan, bytes, run->signature, &data, hint);
        if (status == TUTTI_OK)
            status = record(run, st, take(run, st, op, data));
    }
    if (status == TUTTI_OK)
        status = run->device->ops->query(event_of(run, st));
    if (status == TUTTI_OK)
        end->ops->release(end->chan);
    return status;
}

tutti_status_t tutti__run_gpu_direct(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                     tutti__hint_t *hint)
{
    tutti_status_t status = TUTTI_OK;

    switch (op->kind) {
    case TUTTI__SEND:
        return do_send(run, st, op, hint);
    case TUTTI__RECV:
    case TUTTI__RECV_REDUCE:
        return do_recv(run, st, op, hint);
    case TUTTI__COPY:
        return tutti__run_copy(run, st, op);
    default: /* REDUCE */
        if (!st->started)
            status = record(run, st, take(run, st, op, NULL));
        return status == TUTTI_OK ? run->device->ops->query(event_of(run, st)) : status;
    }
}
