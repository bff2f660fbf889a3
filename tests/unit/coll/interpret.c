/* SPDX-License-Identifier: BSD-3-Clause */
/* Executes schedules with numbers. See interpret.h. */
#include "unit/coll/interpret_world.h"

#include "coll/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- operations on one block's chunk ---- */

static uint32_t chunk_of(const stream_t *s, const tutti__op_t *op)
{
    return s->trip - op->shift;
}

static int read(world_t *w, uint32_t rank, unsigned buf, uint32_t blk, uint32_t trip, uint32_t e,
                number_t *ret_number)
{
    const number_t *at = world_element(w, rank, buf, blk, trip, e);

    if (at == NULL)
        return world_wrong(w, "reads beyond a buffer");
    *ret_number = *at;
    return 1;
}

static int write(world_t *w, uint32_t rank, unsigned buf, uint32_t blk, uint32_t trip, uint32_t e,
                 number_t number, const tutti__op_t *op)
{
    number_t *at = world_element(w, rank, buf, blk, trip, e);

    if (at == NULL || buf == TUTTI__IN)
        return world_wrong(w, "writes beyond a buffer or to IN");
    *at = op->flags & TUTTI__FINISH ? world_finished(w, number) : number;
    if (at->is == ADDED)
        at->is = ROUNDED;
    return 1;
}

static number_t meet(const world_t *w, const tutti__op_t *op, number_t have, number_t arrives)
{
    return op->flags & TUTTI__LEFT ? world_combine(w, arrives, have)
                                   : world_combine(w, have, arrives);
}

static int move(world_t *w, uint32_t rank, const tutti__op_t *op, uint32_t trip)
{
    for (uint32_t i = 0; i < op->nblk; i++) {
        for (uint32_t e = 0; e < world_length(w, rank, op->dbuf, op->dblk + i); e++) {
            number_t x, have;

            if (!read(w, rank, op->sbuf, op->sblk + i, trip, e, &x))
                return 0;
            if (op->kind == TUTTI__REDUCE) {
                if (!read(w, rank, op->dbuf, op->dblk + i, trip, e, &have))
                    return 0;
                x = meet(w, op, have, x);
            }
            if (!write(w, rank, op->dbuf, op->dblk + i, trip, e, x, op))
                return 0;
        }
    }
    return 1;
}

static uint32_t message_length(const world_t *w, uint32_t rank, unsigned buf, uint32_t blk,
                               uint32_t nblk)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < nblk; i++)
        n += world_length(w, rank, buf, blk + i);
    return n;
}

static chan_t *chan_of(const world_t *w, uint32_t rank, const tutti__op_t *op)
{
    const tutti__sched_chan_t *end = &w->set->scheds[rank]->chans[op->chan];
    uint32_t from = end->is_recv ? end->peer : rank, to = end->is_recv ? rank : end->peer;

    return &w->chans[((size_t)from * w->size + to) * STREAMS + end->stream % STREAMS];
}

/* Without credits a channel has room for one message, until the receiver takes the message. */
static int is_full(const world_t *w, const chan_t *chan)
{
    if (w->credits > 0)
        return chan->count == w->credits;
    return chan->count > 0 &&
           chan->slots[(chan->head + chan->count - 1) % w->slots].numbers == NULL;
}

/* Returns 1 if the operation is done, 0 if it must wait. */
static int send(world_t *w, uint32_t rank, const tutti__op_t *op, uint32_t trip)
{
    chan_t *chan = chan_of(w, rank, op);
    uint32_t n = message_length(w, rank, op->sbuf, op->sblk, op->nblk), k = 0;
    message_t *message;

    if (n == 0)
        return 1;
    if (is_full(w, chan))
        return 0;
    message = &chan->slots[(chan->head + chan->count++) % w->slots];
    free(message->numbers);
    *message = (message_t){ .count = n, .op = op, .rank = rank, .trip = trip };
    if (w->credits == 0)
        return 1;
    message->numbers = calloc(n, sizeof(number_t));
    assert_non_null(message->numbers);
    for (uint32_t i = 0; i < op->nblk; i++) {
        for (uint32_t e = 0; e < world_length(w, rank, op->sbuf, op->sblk + i); e++) {
            if (!read(w, rank, op->sbuf, op->sblk + i, trip, e, &message->numbers[k++]))
                return 1;
        }
    }
    return 1;
}

static int recv(world_t *w, uint32_t rank, const tutti__op_t *op, uint32_t trip)
{
    chan_t *chan = chan_of(w, rank, op);
    uint32_t n = message_length(w, rank, op->dbuf, op->dblk, op->nblk), k = 0;
    message_t *message = &chan->slots[chan->head];

    if (n == 0)
        return 1;
    if (chan->count == 0)
        return 0;
    if (message->count != n) {
        world_wrong(w, "a message of another length");
        return 1;
    }
    message_take(w, message);
    if (op_must_wait(w, rank, op, trip, trip + 1))
        return 0;
    chan->head = (chan->head + 1) % w->slots;
    chan->count--;
    for (uint32_t i = 0; i < op->nblk; i++) {
        for (uint32_t e = 0; e < world_length(w, rank, op->dbuf, op->dblk + i); e++) {
            number_t x = message->numbers[k++], have;

            if (op->kind == TUTTI__RECV_REDUCE) {
                if (!read(w, rank, op->sbuf, op->sblk + i, trip, e, &have))
                    return 1;
                x = meet(w, op, have, x);
            }
            if (!write(w, rank, op->dbuf, op->dblk + i, trip, e, x, op))
                return 1;
        }
    }
    return 1;
}

static int wait(const world_t *w, uint32_t rank, const stream_t *s, const tutti__op_t *op)
{
    uint32_t need = (uint32_t)op->arg;

    if (s->trips > 0)
        need += chunk_of(s, op) * w->set->scheds[rank]->marks[op->stream % STREAMS];
    return w->streams[rank * STREAMS + op->stream % STREAMS].marks >= need;
}

/* ---- node operations ---- */

static uint32_t mate_of(const world_t *w, uint32_t host, uint32_t local)
{
    const tutti__shape_t *shape = &w->set->shape->shape;

    return shape->by_host[shape->host_first[host] + local];
}

/* Write the parts that all ranks have for local rank `part`. The sources are read from `before`, a
   copy made before the operation. */
static int exchange(world_t *w, const world_t *before, uint32_t host, uint32_t nlocal,
                    const tutti__op_t *op, uint32_t part, uint32_t i, uint32_t trip, uint32_t e)
{
    if (op->nparts != nlocal)
        return world_wrong(w, "not a part for each local rank");
    for (uint32_t from = 0; from < nlocal; from++) {
        uint32_t sblk = op->sblk + part * op->nblk + i, dblk = op->dblk + from * op->nblk + i;
        const number_t *x = world_element(before, mate_of(w, host, from), op->sbuf, sblk, trip, e);

        if (x == NULL)
            return world_wrong(w, "reads beyond a buffer");
        if (!write(w, mate_of(w, host, part), op->dbuf, dblk, trip, e, *x, op))
            return 0;
    }
    return 1;
}

static void exchange_all(world_t *w, uint32_t host, uint32_t nlocal, const tutti__op_t *op,
                         uint32_t trip)
{
    size_t n = (size_t)w->size * TUTTI__BUFS * w->trips * w->room;
    world_t before = *w;

    before.memory = calloc(n + 1, sizeof(*before.memory));
    assert_non_null(before.memory);
    memcpy(before.memory, w->memory, n * sizeof(*before.memory));
    for (uint32_t k = 0; k < op->nparts * op->nblk; k++) {
        for (uint32_t e = 0; e < world_length(w, 0, op->dbuf, op->dblk + k); e++)
            exchange(w, &before, host, nlocal, op, k / op->nblk, k % op->nblk, trip, e);
    }
    free(before.memory);
}

static int node_element(world_t *w, uint32_t host, uint32_t nlocal, const tutti__op_t *op,
                        uint32_t part, uint32_t blk, uint32_t trip, uint32_t e)
{
    uint32_t root = tutti__sched_has_root(op->kind) ? (uint32_t)op->arg : part;
    number_t x = { 0, 0, GIVEN }, next;

    if (root >= nlocal)
        return world_wrong(w, "no such local rank");
    if (op->kind == TUTTI__NODE_BCAST || op->kind == TUTTI__NODE_ALLGATHER) {
        if (!read(w, mate_of(w, host, root), op->sbuf, op->sblk + blk, trip, e, &x))
            return 0;
    } else {
        for (uint32_t i = 0; i < nlocal; i++) {
            if (!read(w, mate_of(w, host, i), op->sbuf, op->sblk + blk, trip, e, &next))
                return 0;
            x = i == 0 ? next : world_combine(w, x, next);
        }
    }
    for (uint32_t i = 0; i < nlocal; i++) {
        if ((op->kind == TUTTI__NODE_REDUCE_SCATTER || op->kind == TUTTI__NODE_REDUCE) && i != root)
            continue;
        if (!write(w, mate_of(w, host, i), op->dbuf, op->dblk + blk, trip, e, x, op))
            return 0;
    }
    return 1;
}

static int same_node_op(const tutti__op_t *x, const tutti__op_t *y)
{
    return x->kind == y->kind && x->sbuf == y->sbuf && x->dbuf == y->dbuf && x->sblk == y->sblk &&
           x->dblk == y->dblk && x->nblk == y->nblk && x->nparts == y->nparts && x->arg == y->arg &&
           (x->flags & TUTTI__FINISH) == (y->flags & TUTTI__FINISH);
}

/* The last rank to arrive executes the node operation for all ranks of the host. Returns 1 if it is
   done, 0 if the rank must wait. */
static int node(world_t *w, uint32_t rank, const tutti__op_t *op, uint32_t begin, uint32_t upto)
{
    const tutti__shape_t *shape = &w->set->shape->shape;
    uint32_t host = shape->host_of[rank];
    uint32_t nlocal = shape->host_first[host + 1] - shape->host_first[host];

    w->streams[rank * STREAMS].at_node = 1;
    for (uint32_t i = 0; i < nlocal; i++) {
        if (!w->streams[mate_of(w, host, i) * STREAMS].at_node)
            return 0;
    }
    for (uint32_t i = 0; i < nlocal; i++) {
        uint32_t mate = mate_of(w, host, i);
        const stream_t *s = &w->streams[mate * STREAMS];
        const tutti__op_t *its = &w->set->scheds[mate]->ops[s->pc];

        if (!same_node_op(op, its) || (s->trips > 0 && chunk_of(s, its) != begin))
            return !world_wrong(w, "the host's ranks come with different operations");
    }
    for (uint32_t trip = begin; trip < upto; trip++) {
        if (op->kind == TUTTI__NODE_ALLTOALL) {
            exchange_all(w, host, nlocal, op, trip);
            continue;
        }
        for (uint32_t k = 0; k < op->nparts * op->nblk; k++) {
            for (uint32_t e = 0; e < world_length(w, rank, op->dbuf, op->dblk + k); e++)
                node_element(w, host, nlocal, op, k / op->nblk, k, trip, e);
        }
    }
    for (uint32_t i = 0; i < nlocal; i++) {
        uint32_t mate = mate_of(w, host, i);
        stream_t *s = &w->streams[mate * STREAMS];

        s->at_node = 0;
        if (mate != rank) {
            s->marks += w->set->scheds[mate]->ops[s->pc].flags & TUTTI__MARK;
            s->pc++;
            s->passed++;
        }
    }
    return 1;
}

/* ---- streams ---- */

static int do_op(world_t *w, uint32_t rank, stream_t *s, const tutti__op_t *op)
{
    uint32_t begin = s->trips > 0 ? chunk_of(s, op) : 0;
    uint32_t upto = s->trips > 0 ? begin + 1 : w->trips;

    if (op->kind > TUTTI__RECV_REDUCE && op_must_wait(w, rank, op, begin, upto))
        return 0;
    switch (op->kind) {
    case TUTTI__SEND:
        return send(w, rank, op, begin);
    case TUTTI__RECV:
    case TUTTI__RECV_REDUCE:
        return recv(w, rank, op, begin);
    case TUTTI__COPY:
    case TUTTI__REDUCE:
        for (uint32_t trip = begin; trip < upto; trip++)
            move(w, rank, op, trip);
        return 1;
    case TUTTI__WAIT:
        return wait(w, rank, s, op);
    default:
        return node(w, rank, op, begin, upto);
    }
}

/* Execute one operation of a stream. Returns 0 if it must wait, or if there is none left. */
static int step(world_t *w, uint32_t i)
{
    uint32_t rank = i / STREAMS;
    const tutti__sched_t *sched = w->set->scheds[rank];
    stream_t *s = &w->streams[i];

    while (s->pc < s->end) {
        const tutti__op_t *op = &sched->ops[s->pc];

        if (op->kind == TUTTI__LOOP) {
            s->trip = 0;
            s->trips = w->trips + (uint32_t)op->arg;
        } else if (op->kind == TUTTI__END_LOOP) {
            if (++s->trip < s->trips)
                s->pc = (uint32_t)op->arg;
            else
                s->trips = 0;
        } else if (s->trips == 0 || (s->trip >= op->shift && s->trip - op->shift < w->trips)) {
            if (s->at_node || !do_op(w, rank, s, op))
                return 0;
            s->marks += op->flags & TUTTI__MARK;
            s->pc++;
            s->passed++;
            return 1;
        }
        s->pc++;
    }
    return 0;
}

static int has_ended(const world_t *w, uint32_t rank)
{
    for (uint32_t s = 0; s < STREAMS; s++) {
        if (w->streams[rank * STREAMS + s].pc < w->streams[rank * STREAMS + s].end)
            return 0;
    }
    return 1;
}

/*
 * One round: let a stream that can continue do so. Returns 0 if no stream could continue.
 *      order 0   the first such stream continues as far as possible
 *      order 1   the last such stream continues as far as possible
 *      order 2   a random such stream executes one operation
 *      above     as order 2, but rank (order - INTERPRET_ORDERS) continues only if no other can
 */
static int go_round(world_t *w)
{
    uint32_t n = w->size * STREAMS, first = random_next(&w->seed) % n;
    uint32_t late = w->order - INTERPRET_ORDERS;

    w->has_taken = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = w->order == 0 ? k : w->order == 1 ? n - 1 - k : (first + k) % n;

        if (w->order >= INTERPRET_ORDERS && i / STREAMS == late)
            continue;
        if (step(w, i)) {
            while (w->order < 2 && step(w, i))
                ;
            return 1;
        }
    }
    if (w->order < INTERPRET_ORDERS || w->has_taken)
        return w->has_taken;
    for (uint32_t r = 0; r < w->size && w->streams[late * STREAMS].passed == 0; r++) {
        if (r != late && has_ended(w, r))
            return world_wrong(w, "a rank has left the barrier before another came");
    }
    for (uint32_t s = 0; s < STREAMS; s++) {
        if (step(w, late * STREAMS + s))
            return 1;
    }
    return w->has_taken;
}

/* ---- a whole call ---- */

static void look(world_t *w, const number_t *before)
{
    for (uint32_t r = 0; r < w->size; r++) {
        if (!has_ended(w, r))
            world_wrong(w, "hangs");
    }
    for (size_t i = 0; i < (size_t)w->size * w->size * STREAMS; i++) {
        if (w->chans[i].count > 0)
            world_wrong(w, "a message is left over");
    }
    for (uint32_t r = 0; r < w->size; r++) {
        for (uint32_t trip = 0; trip < w->trips; trip++) {
            for (uint32_t blk = 0; blk < w->nblocks; blk++)
                world_look(w, r, blk, trip, before);
        }
    }
}

static void *get(size_t n, size_t bytes)
{
    void *p = calloc(n + 1, bytes);

    assert_non_null(p);
    return p;
}

static void run(world_t *w)
{
    size_t n = (size_t)w->size * TUTTI__BUFS * w->trips * w->room, nchans, steps = 0;
    number_t *before = get(n, sizeof(*before));

    nchans = (size_t)w->size * w->size * STREAMS;
    w->memory = get(n, sizeof(*w->memory));
    w->streams = get((size_t)w->size * STREAMS, sizeof(*w->streams));
    w->chans = get(nchans, sizeof(*w->chans));
    for (size_t i = 0; i < nchans; i++)
        w->chans[i].slots = get(w->slots, sizeof(message_t));
    for (uint32_t i = 0; i < w->size * STREAMS; i++) {
        const tutti__sched_t *sched = w->set->scheds[i / STREAMS];

        w->streams[i].pc = sched->first[i % STREAMS];
        w->streams[i].end = sched->first[i % STREAMS + 1];
    }
    world_fill(w);
    memcpy(before, w->memory, n * sizeof(*before));
    while (w->wrong == NULL && go_round(w)) {
        if (++steps > MOST_STEPS)
            world_wrong(w, "does not end");
    }
    if (w->wrong == NULL)
        look(w, before);
    for (size_t i = 0; i < nchans; i++) {
        for (uint32_t k = 0; k < w->slots; k++)
            free(w->chans[i].slots[k].numbers);
        free(w->chans[i].slots);
    }
    free(w->chans);
    free(w->streams);
    free(w->memory);
    free(before);
}

const char *interpret(const set_t *set, int ordered, uint32_t credits, uint32_t trips,
                      uint32_t order)
{
    const tutti__sched_t *first = set->scheds[0];
    uint32_t blocks = first->nblocks;
    world_t w = { .set = set,
                  .ordered = ordered,
                  .size = set->shape->shape.size,
                  .nblocks = first->nblocks,
                  .credits = credits,
                  .slots = credits > 0 ? credits : 2,
                  .trips = trips,
                  .order = order,
                  .collective = set->algorithm->collective,
                  .seed = order + 1 };

    for (uint32_t r = 0; r < w.size; r++) {
        if (set->scheds[r]->scratch_blocks > blocks)
            blocks = set->scheds[r]->scratch_blocks;
    }
    w.room = (size_t)blocks * LONGEST;
    run(&w);
    return w.wrong;
}

static int is_ordered(const set_t *set)
{
    tutti__coll_args_t args = { .sub = set->sub };

    return tutti__coll_check(set->algorithm, &set->shape->shape, &args, NULL).ordered;
}

const char *interpret_all(const set_t *set, const uint32_t (*runs)[2], size_t nruns)
{
    uint32_t orders = INTERPRET_ORDERS;
    int ordered = is_ordered(set);

    if (set->algorithm->collective == TUTTI__BARRIER && set->shape->shape.size > 1)
        orders += set->shape->shape.size;
    for (size_t i = 0; i < nruns; i++) {
        for (uint32_t order = 0; order < orders; order++) {
            const char *wrong = interpret(set, ordered, runs[i][0], runs[i][1], order);

            if (wrong != NULL)
                return wrong;
        }
    }
    return NULL;
}
