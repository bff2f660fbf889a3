/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor. See exec.h, and sched.h for what the operations mean.
 */
#include "exec/exec.h"

#include "base/compiler.h"
#include "base/status.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_LOOP UINT32_MAX

void tutti__run_init(tutti__run_t *run, const tutti__exec_env_t *env, uint32_t lane)
{
    memset(run, 0, sizeof(*run));
    run->env = env;
    run->lane = lane;
}

void tutti__run_fini(tutti__run_t *run)
{
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++)
        free(run->stream[s].gather);
    free(run->scratch);
    free(run->chans);
}

/* ---- blocks ---- */

/* Chunk of one block, as the present trip of a stream sees it. */
typedef struct {
    char *ptr;
    size_t count; /* elements */
} span_t;

static span_t span(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                   unsigned buf, uint32_t blk)
{
    size_t begin, count;

    if (buf == TUTTI__SCRATCH) {
        /* One chunk of memory per block, as long as what it stands for in this trip. */
        tutti__block_chunk(&run->map, blk % run->map.nblocks, st->trip - op->shift, &begin, &count);
        return (span_t){ run->scratch + blk * run->map.chunk * run->esize, count };
    }
    if (st->loop == NO_LOOP) {
        begin = tutti__block_begin(&run->map, blk);
        count = tutti__block_begin(&run->map, blk + 1) - begin;
    } else {
        tutti__block_chunk(&run->map, blk, st->trip - op->shift, &begin, &count);
    }
    return (span_t){ run->base[buf] + begin * run->esize, count };
}

static size_t message_bytes(const tutti__run_t *run, const tutti__stream_t *st,
                            const tutti__op_t *op, unsigned buf, uint32_t blk)
{
    size_t elements = 0;

    for (uint32_t i = 0; i < op->nblk; i++)
        elements += span(run, st, op, buf, blk + i).count;
    return elements * run->esize;
}

/* ---- operations; each answers OK when it is complete ---- */

static const tutti__xport_ops_t *ops_of(const tutti__run_t *run, const tutti__op_t *op)
{
    return run->env->xport[run->sched->chans[op->chan].peer]->ops;
}

/* A message of several blocks is put together first. */
static const void *gather(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    char *to = st->gather;

    for (uint32_t i = 0; i < op->nblk; i++) {
        span_t s = span(run, st, op, op->sbuf, op->sblk + i);

        memcpy(to, s.ptr, s.count * run->esize);
        to += s.count * run->esize;
    }
    return st->gather;
}

static tutti_status_t do_send(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                              tutti__stuck_t *stuck)
{
    const tutti__xport_ops_t *x = ops_of(run, op);
    tutti__chan_t *chan = run->chans[op->chan];
    const void *data;
    size_t bytes;
    int pending = 0;
    tutti_status_t status;

    if (st->started)
        return x->flush(chan, stuck);
    bytes = message_bytes(run, st, op, op->sbuf, op->sblk);
    if (bytes == 0)
        return TUTTI_OK;
    data = op->nblk == 1 ? span(run, st, op, op->sbuf, op->sblk).ptr : gather(run, st, op);
    status = x->send(chan, data, bytes, run->call.signature, &pending, stuck);
    if (status != TUTTI_OK || !pending)
        return status;
    st->started = 1;
    return x->flush(chan, stuck);
}

/* Take a message apart into dst; with `reduce`, dst = src (op) message. */
static void take(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                 const char *data)
{
    uint32_t divisor = op->flags & TUTTI__FINISH ? run->divisor : 0;

    for (uint32_t i = 0; i < op->nblk; i++) {
        span_t dst = span(run, st, op, op->dbuf, op->dblk + i);

        if (op->kind == TUTTI__RECV_REDUCE) {
            span_t src = span(run, st, op, op->sbuf, op->sblk + i);

            run->reduce(dst.ptr, (const void *[]){ src.ptr, data }, 2, dst.count, divisor);
        } else {
            memcpy(dst.ptr, data, dst.count * run->esize);
        }
        data += dst.count * run->esize;
    }
}

static tutti_status_t do_recv(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                              tutti__stuck_t *stuck)
{
    const tutti__xport_ops_t *x = ops_of(run, op);
    tutti__chan_t *chan = run->chans[op->chan];
    size_t bytes = message_bytes(run, st, op, op->dbuf, op->dblk);
    const void *data;
    tutti_status_t status;

    if (bytes == 0)
        return TUTTI_OK;
    status = x->view(chan, bytes, run->call.signature, &data, stuck);
    if (status != TUTTI_OK)
        return status;
    take(run, st, op, data);
    x->release(chan);
    return TUTTI_OK;
}

static tutti_status_t do_local(tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    uint32_t divisor = op->flags & TUTTI__FINISH ? run->divisor : 0;

    for (uint32_t i = 0; i < op->nblk; i++) {
        span_t dst = span(run, st, op, op->dbuf, op->dblk + i);
        span_t src = span(run, st, op, op->sbuf, op->sblk + i);

        if (op->kind == TUTTI__REDUCE)
            run->reduce(dst.ptr, (const void *[]){ dst.ptr, src.ptr }, 2, dst.count, divisor);
        else if (divisor != 0)
            run->reduce(dst.ptr, (const void *[]){ src.ptr }, 1, dst.count, divisor);
        else if (dst.ptr != src.ptr)
            memcpy(dst.ptr, src.ptr, dst.count * run->esize);
    }
    return TUTTI_OK;
}

/*
 * What the node counts from, so that it finds the present chunk: element 0 of the block map. There
 * is one chunk of SCRATCH per block, so its element 0 is before it.
 */
static char *node_base(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                       unsigned buf, uint32_t blk)
{
    size_t begin, count;

    if (buf != TUTTI__SCRATCH)
        return run->base[buf];
    tutti__block_chunk(&run->map, blk % run->map.nblocks, st->trip - op->shift, &begin, &count);
    return (char *)((uintptr_t)span(run, st, op, buf, blk).ptr - begin * run->esize);
}

static void start_node(tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    tutti__node_call_t call = {
        .kind = (tutti__op_kind_t)op->kind,
        .dtype = run->call.dtype,
        .op = run->call.op,
        .tag = run->call.tag,
        .divisor = op->flags & TUTTI__FINISH ? run->divisor : 0,
        .root = op->kind == TUTTI__NODE_BCAST ? (uint32_t)op->arg : 0,
        .src = node_base(run, st, op, op->sbuf, op->sblk),
        .dst = node_base(run, st, op, op->dbuf, op->dblk),
        .map = run->map,
        .whole = st->loop == NO_LOOP,
        .trip = st->trip - (st->loop == NO_LOOP ? 0 : op->shift),
        .sblk = op->sblk % run->map.nblocks,
        .dblk = op->dblk % run->map.nblocks,
        .nblk = op->nblk,
        .nparts = op->nparts,
    };

    assert(call.sblk == call.dblk);
    run->env->node->ops->start(run->env->node, run->lane, &call);
}

static tutti_status_t do_node(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                              tutti__stuck_t *stuck)
{
    if (!st->started) {
        size_t elements = 0;

        for (uint32_t i = 0; i < op->nblk * op->nparts; i++)
            elements += span(run, st, op, op->sbuf, op->sblk + i).count;
        if (elements == 0)
            return TUTTI_OK;
        start_node(run, st, op);
        st->started = 1;
    }
    return run->env->node->ops->step(run->env->node, run->lane, stuck);
}

static tutti_status_t do_wait(const tutti__run_t *run, const tutti__stream_t *st,
                              const tutti__op_t *op)
{
    int64_t target = op->arg;

    if (st->loop != NO_LOOP)
        target += (int64_t)(st->trip - op->shift) * run->sched->marks[op->stream];
    return (int64_t)run->stream[op->stream].marks >= target ? TUTTI_OK : TUTTI__AGAIN;
}

/* ---- streams ---- */

static tutti_status_t do_op(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                            tutti__stuck_t *stuck)
{
    switch (op->kind) {
    case TUTTI__SEND:
        return do_send(run, st, op, stuck);
    case TUTTI__RECV:
    case TUTTI__RECV_REDUCE:
        return do_recv(run, st, op, stuck);
    case TUTTI__COPY:
    case TUTTI__REDUCE:
        return do_local(run, st, op);
    case TUTTI__WAIT:
        return do_wait(run, st, op);
    default:
        return do_node(run, st, op, stuck);
    }
}

/* Enter, repeat or leave a loop. */
static void do_loop(const tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op)
{
    if (op->kind == TUTTI__LOOP) {
        st->loop = st->pc++;
        st->trip = 0;
        return;
    }
    st->trip++;
    if (st->trip < run->trips + (size_t)run->sched->ops[st->loop].arg) {
        st->pc = st->loop + 1;
        return;
    }
    st->loop = NO_LOOP;
    st->pc++;
}

static int skipped(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    return st->loop != NO_LOOP && (st->trip < op->shift || st->trip - op->shift >= run->trips);
}

/* Run one stream until it is done (OK) or blocked (AGAIN). *moved: it did something. */
static tutti_status_t run_stream(tutti__run_t *run, tutti__stream_t *st, tutti__stuck_t *stuck,
                                 int *moved)
{
    while (st->pc < st->end) {
        const tutti__op_t *op = &run->sched->ops[st->pc];
        tutti_status_t status;

        if (op->kind == TUTTI__LOOP || op->kind == TUTTI__END_LOOP) {
            do_loop(run, st, op);
            continue;
        }
        if (!skipped(run, st, op)) {
            status = do_op(run, st, op, stuck);
            if (status != TUTTI_OK)
                return status;
            st->started = 0;
            st->marks += (op->flags & TUTTI__MARK) != 0;
            *moved = 1;
        }
        st->pc++;
    }
    return TUTTI_OK;
}

tutti_status_t tutti__run_step(tutti__run_t *run, tutti__stuck_t *stuck)
{
    int moved, blocked, places;

    do {
        moved = blocked = places = 0;
        stuck->word = NULL;
        stuck->peer = -1;
        for (uint32_t s = 0; s < run->sched->nstreams; s++) {
            tutti__stuck_t here = { NULL, 0, -1 };
            tutti_status_t status = run_stream(run, &run->stream[s], &here, &moved);

            if (status == TUTTI_OK)
                continue;
            if (status != TUTTI__AGAIN)
                return status;
            blocked = 1;
            if (here.peer >= 0) {
                places++;
                *stuck = here;
            }
        }
    } while (blocked && moved && run->sched->nstreams > 1);
    if (!blocked) {
        run->sched = NULL;
        return TUTTI_OK;
    }
    /* Blocked in several places: no one word to sleep on. */
    if (places > 1)
        stuck->word = NULL;
    return TUTTI__AGAIN;
}

/* ---- starting ---- */

/* The channel ends of this schedule; kept while the same schedule is run again. */
static tutti_status_t bind_chans(tutti__run_t *run, const tutti__sched_t *sched)
{
    if (run->bound == sched)
        return TUTTI_OK;
    run->bound = NULL;
    if (run->chans_room < sched->nchans) {
        tutti__chan_t **chans = realloc(run->chans, sched->nchans * sizeof(*chans));

        if (chans == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%u channels", sched->nchans);
        run->chans = chans;
        run->chans_room = sched->nchans;
    }
    for (uint32_t i = 0; i < sched->nchans; i++) {
        const tutti__sched_chan_t *c = &sched->chans[i];
        tutti__xport_t *x = run->env->xport[c->peer];
        tutti__chan_key_t key = { run->lane, c->peer, c->stream };
        tutti_status_t status = c->is_recv ? x->ops->open_recv(x, &key, &run->chans[i])
                                           : x->ops->open_send(x, &key, &run->chans[i]);

        if (status != TUTTI_OK)
            return status;
    }
    run->bound = sched;
    return TUTTI_OK;
}

static tutti_status_t get_memory(tutti__run_t *run, const tutti__sched_t *sched)
{
    size_t scratch = (size_t)sched->scratch_blocks * run->map.chunk * run->esize;

    if (run->scratch_bytes < scratch) {
        free(run->scratch);
        /* Zeroed: a barrier sends what nobody ever wrote. */
        run->scratch = calloc(1, scratch);
        run->scratch_bytes = run->scratch == NULL ? 0 : scratch;
        if (run->scratch == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes of scratch", scratch);
    }
    for (uint32_t s = 0; sched->max_nblk > 1 && s < sched->nstreams; s++) {
        if (run->stream[s].gather == NULL)
            run->stream[s].gather = malloc(run->env->slot_bytes);
        if (run->stream[s].gather == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes to gather", run->env->slot_bytes);
    }
    return TUTTI_OK;
}

/* Messages that one operation receives in the whole run: trips in which it is not empty. */
static size_t messages_of(const tutti__run_t *run, const tutti__op_t *op)
{
    size_t largest = 0;

    for (uint32_t i = 0; i < op->nblk; i++) {
        uint32_t blk = (op->dblk + i) % run->map.nblocks;
        size_t count = tutti__block_begin(&run->map, blk + 1) - tutti__block_begin(&run->map, blk);

        largest = TUTTI__MAX(largest, count);
    }
    return (largest + run->map.chunk - 1) / run->map.chunk;
}

/* Tell each receiving end how many messages this run brings. */
static tutti_status_t expect_messages(tutti__run_t *run, const tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nops; i++) {
        const tutti__op_t *op = &sched->ops[i];
        tutti_status_t status;

        if (op->kind != TUTTI__RECV && op->kind != TUTTI__RECV_REDUCE)
            continue;
        status = run->env->xport[sched->chans[op->chan].peer]->ops->expect(run->chans[op->chan],
                                                                           messages_of(run, op));
        if (status != TUTTI_OK)
            return status;
    }
    return TUTTI_OK;
}

tutti_status_t tutti__run_start(tutti__run_t *run, const tutti__sched_t *sched,
                                const tutti__exec_call_t *call)
{
    tutti_status_t status;

    run->call = *call;
    run->esize = tutti_dtype_bytes(call->dtype);
    run->reduce = tutti__reduce_find(call->dtype, call->op);
    run->divisor = call->op == TUTTI_AVG ? run->env->size : 0;
    run->map.count = call->count;
    run->map.nblocks = sched->nblocks;
    run->map.chunk = run->env->slot_bytes / sched->max_nblk / run->esize;
    if (run->map.chunk == 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "messages of %u blocks do not fit %zu bytes",
                           sched->max_nblk, run->env->slot_bytes);
    run->map.table = NULL;
    /* A scratch block is one chunk; there is no use in one that is longer than the call. */
    run->map.chunk = TUTTI__MIN(run->map.chunk, call->count);
    run->trips = tutti__blockmap_trips(&run->map);
    run->base[TUTTI__IN] = (char *)(uintptr_t)call->in;
    run->base[TUTTI__OUT] = call->out;
    run->base[TUTTI__STAGE] = call->out;
    status = get_memory(run, sched);
    if (status == TUTTI_OK)
        status = bind_chans(run, sched);
    if (status == TUTTI_OK)
        status = expect_messages(run, sched);
    if (status != TUTTI_OK)
        return status;
    run->base[TUTTI__SCRATCH] = run->scratch;
    for (uint32_t s = 0; s < sched->nstreams; s++) {
        tutti__stream_t *st = &run->stream[s];

        st->pc = sched->first[s];
        st->end = sched->first[s + 1];
        st->loop = NO_LOOP;
        st->trip = 0;
        st->marks = 0;
        st->started = 0;
    }
    run->sched = sched;
    return TUTTI_OK;
}

void tutti__run_cancel(tutti__run_t *run)
{
    for (uint32_t r = 0; r < run->env->size; r++)
        if (r != run->env->rank)
            run->env->xport[r]->ops->cancel(run->env->xport[r], run->lane);
    run->sched = NULL;
}

int tutti__run_forbidden(const tutti__exec_env_t *env, const tutti__sched_t *sched, int is_engine)
{
    for (uint32_t i = 0; i < sched->nchans; i++) {
        tutti__xport_t *x = env->xport[sched->chans[i].peer];

        if (!x->ops->may_progress(x, is_engine))
            return 1;
    }
    return 0;
}
