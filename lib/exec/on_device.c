/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor on device memory: chunks and STAGE, copies by the device, beginning a run and giving
 * it up. See exec.h. exec.c has the parts that are the same for host memory.
 *
 * Until the first node operation is done, no other operation of the run executes, and no message is
 * expected. So if NCCL does not serve the call, or if the host's ranks have different calls, the
 * lane is in the same state as before the run.
 */
#include "exec/exec_inside.h"

#include "base/status.h"
#include "base/time.h"

#include <assert.h>
#include <sched.h>

/* ---- blocks ---- */

static size_t power_upto(size_t n)
{
    return (size_t)1 << (8 * sizeof(n) - 1 - (unsigned)__builtin_clzl(n));
}

tutti_status_t tutti__run_lay_out_device(tutti__run_t *run, const tutti__sched_t *sched,
                                         size_t largest, size_t message, tutti__block_t *stage)
{
    const tutti__exec_device_t *device = run->device;
    size_t most = device->chunk_bytes, ring;

    if (sched->stage_trips > 0)
        most = TUTTI__MIN(most, device->stage_bytes / sched->stage_trips / sched->stage_blocks);
    if (most < TUTTI__LEAST_CHUNK || message < TUTTI__LEAST_CHUNK)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%u blocks do not fit %zu bytes of stage",
                           sched->stage_blocks, device->stage_bytes);
    /* Chunks need not be longer than the largest block. */
    run->chunk = TUTTI__MAX(power_upto(largest), TUTTI__LEAST_CHUNK);
    run->chunk = TUTTI__MIN(largest > run->chunk ? 2 * run->chunk : run->chunk, power_upto(most));
    run->message = TUTTI__MIN(run->chunk, power_upto(message));
    ring = run->chunk * sched->stage_trips;
    for (uint32_t i = 0; i < sched->stage_blocks; i++) {
        const tutti__block_t *out = &run->place[TUTTI__OUT].block[sched->stage_first + i];

        stage[sched->stage_first + i] = (tutti__block_t){ i * ring, out->bytes };
    }
    run->place[TUTTI__STAGE] = (tutti__place_t){ NULL, stage, ring - 1, 0 };
    return TUTTI_OK;
}

/* ---- begin and give up ---- */

static int has_nodes_only(const tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nops; i++)
        if (sched->ops[i].kind < TUTTI__LOOP)
            return 0;
    return 1;
}

void tutti__run_start_device(tutti__run_t *run, const tutti__exec_call_t *call)
{
    const tutti__sched_t *sched = run->sched;

    assert(sched->on_device);
    run->layout.count = 0;
    run->ready = call->ready;
    run->untouched = 0;
    run->node_call.queued = call->queued && has_nodes_only(sched);
    run->node_call.then = call->then;
    run->place[TUTTI__STAGE].base = run->gpu_direct ? run->device->lane[run->lane].gpu_direct
                                                    : run->device->lane[run->lane].stage;
    for (uint32_t s = 0; s < sched->nstreams; s++) {
        size_t pieces = 1;

        for (uint32_t i = sched->first[s]; i < sched->first[s + 1]; i++) {
            unsigned kind = sched->ops[i].kind;

            if (kind == TUTTI__SEND || kind == TUTTI__RECV || kind == TUTTI__RECV_REDUCE)
                pieces = run->chunk / run->message;
            run->untouched |= kind >= TUTTI__NODE_ALLREDUCE;
        }
        run->stream[s].pieces = pieces;
    }
    for (uint32_t s = 1; s < sched->nstreams && run->untouched; s++)
        run->stream[s].end = run->stream[s].pc;
}

tutti_status_t tutti__run_live(tutti__run_t *run)
{
    run->untouched = 0;
    for (uint32_t s = 1; s < run->sched->nstreams; s++)
        run->stream[s].end = run->sched->first[s + 1];
    return tutti__run_expect(run);
}

void tutti__run_end_copies(const tutti__run_t *run)
{
    const tutti__device_ops_t *ops = run->device->ops;
    uint64_t deadline = tutti__now_ns() + TUTTI__QUIESCE_NS;

    for (uint32_t s = 0; s < run->sched->nstreams; s++) {
        const tutti__stream_t *st = &run->stream[s];

        if (!st->started || st->pc >= st->end ||
            (run->sched->ops[st->pc].kind != TUTTI__COPY && !run->gpu_direct))
            continue;
        while (ops->query(run->device->lane[run->lane].copied[s]) == TUTTI__AGAIN &&
               tutti__now_ns() < deadline)
            sched_yield();
    }
}

/* ---- operations ---- */

tutti_status_t tutti__run_wait(const tutti__run_t *run, const tutti__stream_t *st,
                               const tutti__op_t *op)
{
    const tutti__stream_t *of = &run->stream[op->stream];
    size_t chunk = (st->trip - op->shift) / st->pieces;
    uint64_t target = (uint64_t)op->arg;

    /* Wait for the last trip in which the other stream processes this chunk. */
    if (st->loop != TUTTI__NO_LOOP)
        target += ((chunk + 1) * of->pieces - 1) * run->sched->marks[op->stream];
    return of->marks >= target ? TUTTI_OK : TUTTI__AGAIN;
}

static tutti_status_t queue_copies(tutti__run_t *run, const tutti__stream_t *st,
                                   const tutti__op_t *op, tutti__dstream_t *stream, int *ret_queued)
{
    const tutti__device_ops_t *ops = run->device->ops;
    tutti_status_t status = TUTTI_OK;

    /* All later copies in the CUDA stream follow this wait. A copy in place needs only the wait. */
    if (op->sbuf == TUTTI__IN && st->trip == op->shift && run->ready != NULL) {
        status = ops->wait(stream, run->ready);
        *ret_queued = 1;
    }
    for (uint32_t i = 0; i < op->nblk && status == TUTTI_OK; i++) {
        tutti__span_t dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i);
        tutti__span_t src = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);

        if (dst.bytes == 0 || dst.ptr == src.ptr)
            continue;
        status = ops->copy(dst.ptr, src.ptr, dst.bytes, stream);
        *ret_queued = 1;
    }
    return status;
}

tutti_status_t tutti__run_copy(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op)
{
    const tutti__device_lane_t *lane = &run->device->lane[run->lane];
    tutti__dstream_t *stream = op->dbuf == TUTTI__STAGE ? lane->down : lane->up;
    tutti__devent_t *copied = lane->copied[st - run->stream];
    int queued = 0;
    tutti_status_t status;

    assert(!(op->flags & TUTTI__FINISH) || run->divisor <= 1); /* a copy does not divide */
    if (!st->started) {
        status = queue_copies(run, st, op, stream, &queued);
        if (status == TUTTI_OK && queued)
            status = run->device->ops->record(copied, stream);
        if (status != TUTTI_OK || !queued)
            return status;
        st->started = 1;
    }
    return run->device->ops->query(copied);
}
