/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: operations and streams. See exec.h, and sched.h for the meaning of the operations.
 * The other files of this room:
 *
 *      start.c, ends.c             the steps before the first operation
 *      place.c                     receives without a slot
 *      sends.c                     SENDs that are not complete
 *      framed.c                    messages with the identity of the call
 *      wire.c                      messages in a wire format
 *      on_device.c, gpu_direct.c   operations on device memory
 *      use_device.c                the thread's device; the device's end after an error
 *      progress.c                  reports
 *
 * The start of a run has looked up the place of each block, in bytes, and this rank's end of each
 * channel. So an operation is a table look-up, a clamp, and the work of the transport or the
 * kernel. Divisions, comparisons of names and allocations belong in start.c.
 */
#include "exec/exec_inside.h"

#include "base/compiler.h"
#include "base/status.h"

#include <assert.h>
#include <string.h>

/* ---- blocks ---- */

/* Several contiguous blocks as one span. */
static tutti__span_t join(const tutti__run_t *run, unsigned buf, uint32_t blk, uint32_t nblk)
{
    const tutti__place_t *place = &run->place[buf];
    const tutti__block_t *first = &place->block[blk], *last = first + nblk - 1;

    return (tutti__span_t){ place->base + first->begin, last->begin + last->bytes - first->begin };
}

/* All blocks of an operation in one buffer, as one span. Several blocks must be contiguous. */
static inline tutti__span_t span(const tutti__run_t *run, const tutti__stream_t *st,
                                 const tutti__op_t *op, unsigned buf, uint32_t blk)
{
    return op->nblk == 1 ? tutti__run_chunk(run, st, op, buf, blk) : join(run, buf, blk, op->nblk);
}

static size_t sum_bytes(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                        unsigned buf, uint32_t blk, uint32_t nblk)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < nblk; i++)
        bytes += tutti__run_chunk(run, st, op, buf, blk + i).bytes;
    return bytes;
}

/* Pack a message of several blocks. */
static tutti__span_t gather(const tutti__run_t *run, const tutti__stream_t *st,
                            const tutti__op_t *op)
{
    char *to = st->gather;

    for (uint32_t i = 0; i < op->nblk; i++) {
        tutti__span_t from = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);

        if (from.bytes == 0)
            continue;
        memcpy(to, from.ptr, from.bytes);
        to += from.bytes;
    }
    return (tutti__span_t){ st->gather, (size_t)(to - st->gather) };
}

/* ---- operations; each returns OK when it is complete ---- */

static uint32_t divisor(const tutti__run_t *run, const tutti__op_t *op)
{
    return op->flags & TUTTI__FINISH ? run->divisor : 0;
}

/* dst = there (op) arrives; LEFT: arrives (op) there. */
static inline void fold(const tutti__run_t *run, const tutti__op_t *op, tutti__span_t dst,
                        const char *there, const char *arrives)
{
    const void *srcs[2] = { there, arrives };

    if (op->flags & TUTTI__LEFT) {
        srcs[0] = arrives;
        srcs[1] = there;
    }
    tutti__reduce(&run->reducer, dst.ptr, srcs, 2, dst.bytes >> run->eshift, divisor(run, op));
}

/* Poll the SENDs that must be complete before this SEND can start. */
static tutti_status_t end_sends_before(tutti__run_t *run, const tutti__stream_t *st,
                                       const tutti__op_t *op, int packs, tutti__hint_t *hint)
{
    tutti_status_t status = TUTTI_OK;

    if (run->ends[op->chan].sent_bytes > 0)
        status = tutti__run_end_send_of(run, op->chan, hint);
    if (status == TUTTI_OK && packs)
        status = tutti__run_end_sends(run, (tutti__span_t){ st->gather, run->slot_bytes }, hint);
    return status;
}

static inline tutti_status_t do_send(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                     tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    int packs = op->nblk > 1 && !run->place[op->sbuf].joint, pending = 0;
    tutti_status_t status = TUTTI_OK;
    tutti__span_t from;

    if (st->started)
        return run->device != NULL ? end->ops->flush(end->chan, hint)
                                   : tutti__run_end_sends_of(run, st, hint);
    if (TUTTI__UNLIKELY(run->sending != TUTTI__NO_SEND))
        status = end_sends_before(run, st, op, packs, hint);
    if (status != TUTTI_OK)
        return status;
    from = packs ? gather(run, st, op) : span(run, st, op, op->sbuf, op->sblk);
    if (from.bytes == 0)
        return TUTTI_OK;
    status = end->ops->send(end->chan, from.ptr, from.bytes, run->signature, &pending, hint);
    if (status != TUTTI_OK || (!pending && run->sending == TUTTI__NO_SEND))
        return status;
    if (run->device == NULL)
        return tutti__run_sent(run, st, op->chan, from, pending, hint);
    st->started = 1;
    return end->ops->flush(end->chan, hint);
}

static inline void take(const tutti__run_t *run, const tutti__op_t *op, tutti__span_t dst,
                        tutti__span_t src, const char *data)
{
    if (op->kind == TUTTI__RECV_REDUCE)
        fold(run, op, dst, src.ptr, data);
    else if (data != dst.ptr)
        memcpy(dst.ptr, data, dst.bytes);
}

/* Unpack a message of several blocks. */
static void take_apart(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                       const char *data)
{
    for (uint32_t i = 0; i < op->nblk; i++) {
        tutti__span_t dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i), src = dst;

        if (dst.bytes == 0)
            continue;
        if (op->kind == TUTTI__RECV_REDUCE)
            src = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);
        take(run, op, dst, src, data);
        data += dst.bytes;
    }
}

/* Post the channel's next receives. The current operation must have received its message. */
static tutti_status_t post_next(const tutti__run_t *run, const tutti__stream_t *st,
                                const tutti__op_t *op)
{
    tutti__stream_t next = *st;

    next.pc++;
    run->ends[op->chan].ahead--;
    return tutti__run_post(run, &next, op->chan);
}

static inline tutti_status_t do_recv(tutti__run_t *run, const tutti__stream_t *st,
                                     const tutti__op_t *op, tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    int is_one = op->nblk == 1 || (run->place[op->dbuf].joint &&
                                   (op->kind == TUTTI__RECV || run->place[op->sbuf].joint));
    tutti__span_t dst = { NULL, 0 }, src = { NULL, 0 };
    const void *data;
    tutti_status_t status;

    if (is_one)
        dst = span(run, st, op, op->dbuf, op->dblk);
    else
        dst.bytes = sum_bytes(run, st, op, op->dbuf, op->dblk, op->nblk);
    if (dst.bytes == 0)
        return TUTTI_OK;
    status = end->ops->view(end->chan, dst.bytes, run->signature, &data, hint);
    if (status == TUTTI_OK && data != dst.ptr) /* if equal, place.c has checked this */
        status = tutti__run_may_write(run, st, op, hint);
    if (status != TUTTI_OK)
        return status;
    if (is_one && op->kind == TUTTI__RECV_REDUCE)
        src = span(run, st, op, op->sbuf, op->sblk);
    if (is_one)
        take(run, op, dst, src, data);
    else
        take_apart(run, st, op, data);
    end->ops->release(end->chan);
    return end->is_placing ? post_next(run, st, op) : TUTTI_OK;
}

static tutti_status_t do_local(tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                               tutti__hint_t *hint)
{
    int is_one = op->nblk == 1 || (run->place[op->dbuf].joint && run->place[op->sbuf].joint);
    uint32_t pieces = is_one ? 1 : op->nblk;
    tutti_status_t status = tutti__run_may_write(run, st, op, hint);

    if (status != TUTTI_OK)
        return status;
    for (uint32_t i = 0; i < pieces; i++) {
        tutti__span_t dst, src;

        if (is_one) {
            dst = span(run, st, op, op->dbuf, op->dblk);
            src = span(run, st, op, op->sbuf, op->sblk);
        } else {
            dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i);
            src = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);
        }
        if (dst.bytes == 0)
            continue;
        if (op->kind == TUTTI__REDUCE)
            fold(run, op, dst, dst.ptr, src.ptr);
        else if (divisor(run, op) != 0)
            tutti__reduce(&run->reducer, dst.ptr, (const void *[]){ src.ptr }, 1,
                          dst.bytes >> run->eshift, divisor(run, op));
        else if (dst.ptr != src.ptr)
            memcpy(dst.ptr, src.ptr, dst.bytes);
    }
    return TUTTI_OK;
}

static tutti_status_t do_wait(const tutti__run_t *run, const tutti__stream_t *st,
                              const tutti__op_t *op)
{
    int64_t target = op->arg;

    if (TUTTI__UNLIKELY(run->device != NULL))
        return tutti__run_wait(run, st, op);
    if (st->loop != TUTTI__NO_LOOP)
        target += (int64_t)(st->trip - op->shift) * run->sched->marks[op->stream];
    return (int64_t)run->stream[op->stream].marks >= target ? TUTTI_OK : TUTTI__AGAIN;
}

/* ---- node operations ---- */

/* The address from which a node operation counts offsets: element 0 of the map, or block blk of
   SCRATCH. */
static char *node_base(const tutti__run_t *run, unsigned buf, uint32_t blk)
{
    const tutti__place_t *place = &run->place[buf];

    return buf == TUTTI__SCRATCH ? place->base + place->block[blk].begin : place->base;
}

static inline tutti__node_t *node_of(const tutti__run_t *run)
{
    if (TUTTI__LIKELY(run->device == NULL))
        return run->env->node;
    return run->sched->scope == TUTTI__SCOPE_ALL ? run->device->all_node : run->device->node;
}

/* start.c has filled in the fields that are equal for all operations of the call. */
static void start_node(tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    tutti__node_call_t *call = &run->node_call;
    uint32_t nblocks = call->map.nblocks;

    assert(run->sched->sizes != TUTTI__BY_PAIR);
    call->kind = (tutti__op_kind_t)op->kind;
    call->divisor = divisor(run, op);
    call->root = tutti__sched_has_root(op->kind) ? (uint32_t)op->arg : run->root;
    call->src = node_base(run, op->sbuf, op->sblk);
    call->dst = node_base(run, op->dbuf, op->dblk);
    call->src_step = op->sbuf == TUTTI__SCRATCH ? call->map.chunk : 0;
    call->dst_step = op->dbuf == TUTTI__SCRATCH ? call->map.chunk : 0;
    call->whole = st->loop == TUTTI__NO_LOOP;
    call->trip = st->trip - op->shift;
    call->sblk = op->sblk < nblocks ? op->sblk : op->sblk % nblocks;
    call->dblk = op->dblk < nblocks ? op->dblk : op->dblk % nblocks;
    call->nblk = op->nblk;
    call->nparts = op->nparts;
    if (run->device != NULL && run->ready != NULL) {
        node_of(run)->device_ops->ready(node_of(run), run->lane, run->ready);
        run->ready = NULL;
    }
    node_of(run)->ops->start(node_of(run), run->lane, call);
}

static tutti_status_t do_node(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                              tutti__hint_t *hint)
{
    tutti_status_t status;

    if (!st->started) {
        if (sum_bytes(run, st, op, op->sbuf, op->sblk, op->nblk * op->nparts) == 0)
            return TUTTI_OK;
        status = tutti__run_may_write(run, st, op, hint);
        if (status != TUTTI_OK)
            return status;
        start_node(run, st, op);
        st->started = 1;
    }
    status = node_of(run)->ops->step(node_of(run), run->lane, hint);
    return status == TUTTI_OK && tutti__run_untouched(run) ? tutti__run_live(run) : status;
}

/* The meeting before the first operation. */
static tutti_status_t do_meet(tutti__run_t *run, tutti__hint_t *hint)
{
    tutti_status_t status;

    hint->word = NULL;
    hint->peer = -1;
    status = run->env->node->ops->step(run->env->node, run->lane, hint);
    if (status != TUTTI_OK)
        return status;
    run->meeting = 0;
    return tutti__run_expect(run);
}

/* ---- streams ---- */

void tutti__run_loop(const tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op)
{
    if (op->kind == TUTTI__LOOP) {
        st->loop = st->pc++;
        st->trip = 0;
        st->trips = run->trips;
        st->chunk = run->chunk;
        if (run->device != NULL) {
            st->trips *= st->pieces;
            st->chunk /= st->pieces;
        }
        return;
    }
    st->trip++;
    if (st->trip < st->trips + (size_t)run->sched->ops[st->loop].arg) {
        st->pc = st->loop + 1;
        return;
    }
    st->loop = TUTTI__NO_LOOP;
    st->trip = 0;
    st->trips = 1;
    st->chunk = SIZE_MAX;
    st->pc++;
}

static tutti_status_t do_detour(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                tutti__hint_t *hint)
{
    if (run->frame != NULL)
        return tutti__run_framed(run, st, op, hint);
    return run->wire != 0 ? tutti__run_wired(run, st, op, hint)
                          : tutti__run_gpu_direct(run, st, op, hint);
}

static inline tutti_status_t do_op(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                   tutti__hint_t *hint)
{
    if (TUTTI__UNLIKELY(run->detours) && op->kind <= TUTTI__REDUCE)
        return do_detour(run, st, op, hint);
    switch (op->kind) {
    case TUTTI__SEND:
        return do_send(run, st, op, hint);
    case TUTTI__RECV:
    case TUTTI__RECV_REDUCE:
        return do_recv(run, st, op, hint);
    case TUTTI__COPY:
        if (run->device != NULL && (tutti__run_is_users(op->sbuf) || tutti__run_is_users(op->dbuf)))
            return tutti__run_copy(run, st, op);
        /* fall through */
    case TUTTI__REDUCE:
        return do_local(run, st, op, hint);
    case TUTTI__WAIT:
        return do_wait(run, st, op);
    default:
        return do_node(run, st, op, hint);
    }
}

/* Add a complete operation to the trace, if it has moved a chunk to or from another host. */
static void trace_op(const tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op)
{
    int is_chunk = op->kind <= TUTTI__RECV_REDUCE && run->env->record != NULL;
    const tutti__end_t *end = is_chunk ? &run->ends[op->chan] : NULL;
    int sends = op->kind == TUTTI__SEND;

    if (is_chunk && run->env->host_of[end->key.peer] != run->env->host_of[run->env->rank])
        tutti__record_trace(
            run->env->record,
            (tutti__traced_t){ .kind = sends ? TUTTI__TRACE_SEND : TUTTI__TRACE_RECV,
                               .time_ns = st->traced_ns,
                               .end_ns = tutti__now_ns(),
                               .bucket = TUTTI__RECORD_NONE,
                               .lane = run->lane | (uint32_t)(st - run->stream) << 4,
                               .value = (uint64_t)end->key.peer << 40 |
                                        sum_bytes(run, st, op, sends ? op->sbuf : op->dbuf,
                                                  sends ? op->sblk : op->dblk, op->nblk) });
    st->traced_ns = 0;
}

/* Run one stream until it is done (OK) or blocked (AGAIN). *moved: set to 1 after any progress. */
static tutti_status_t run_stream(tutti__run_t *run, tutti__stream_t *st, tutti__hint_t *hint,
                                 int *moved)
{
    const tutti__op_t *ops = run->sched->ops;

    while (st->pc < st->end) {
        const tutti__op_t *op = &ops[st->pc];

        if (op->kind == TUTTI__LOOP || op->kind == TUTTI__END_LOOP) {
            tutti__run_loop(run, st, op);
            continue;
        }
        /* Skip an operation that has no chunk in this trip. In trips before its first chunk,
           the difference wraps to a very large number. */
        if (st->trip - op->shift < st->trips) {
            tutti_status_t status;

            if (TUTTI__UNLIKELY(tutti__trace_on()) && st->traced_ns == 0)
                st->traced_ns = tutti__now_ns();
            status = do_op(run, st, op, hint);
            if (status != TUTTI_OK)
                return status;
            if (TUTTI__UNLIKELY(st->traced_ns != 0))
                trace_op(run, st, op);
            st->started = 0;
            st->marks += (op->flags & TUTTI__MARK) != 0;
            *moved = 1;
        }
        st->pc++;
    }
    return TUTTI_OK;
}

static int is_at_wait(const tutti__run_t *run, uint32_t s)
{
    return run->sched->ops[run->stream[s].pc].kind == TUTTI__WAIT;
}

#define DEVICE 16 /* added to `places` for a stream that waits for the device */

tutti_status_t tutti__run_step(tutti__run_t *run, tutti__hint_t *hint)
{
    int moved, blocked, places, polled;

    if (run->meeting) {
        tutti_status_t status = do_meet(run, hint);

        if (status != TUTTI_OK)
            return status;
    }
    do {
        moved = blocked = places = polled = 0;
        hint->word = NULL;
        hint->peer = -1;
        for (uint32_t s = 0; s < run->sched->nstreams; s++) {
            tutti__hint_t here = { NULL, 0, -1 };
            tutti_status_t status = run_stream(run, &run->stream[s], &here, &moved);

            run->moves += (uint32_t)moved;
            if (status == TUTTI_OK)
                continue;
            if (status != TUTTI__AGAIN)
                return status;
            blocked = 1;
            polled |= tutti__run_polls_sends(run, &run->stream[s], here.peer);
            if (here.peer >= 0) {
                places++;
                /* Prefer a hint with a word: its peer uses shared memory (step.h). */
                if (places == 1 || here.word != NULL)
                    *hint = here;
            } else if (run->device != NULL && !is_at_wait(run, s)) {
                places += DEVICE;
            }
        }
    } while (blocked && moved && run->sched->nstreams > 1);
    if (!blocked) {
        tutti_status_t status = tutti__run_end_all_sends(run, hint);

        if (status == TUTTI_OK)
            run->sched = NULL;
        return status;
    }
    /* The streams wait in several places, so there is no single word to sleep on. */
    if (places > 1)
        hint->word = NULL;
    /* The device rings no doorbell (boot/machine.h), so the caller must poll. Name no rank. */
    if (places >= DEVICE)
        hint->peer = -1;
    if (TUTTI__UNLIKELY(run->sending != TUTTI__NO_SEND || run->sched->is_read))
        return tutti__run_poll_blocked(run, polled, hint);
    return TUTTI__AGAIN;
}
