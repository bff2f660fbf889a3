/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions for all users of a schedule: free it, count the trips of its chunk loops, and find out
 * whether it suits device memory.
 */
#include "sched/sched.h"

#include <stdlib.h>

void tutti__sched_free(tutti__sched_t *sched)
{
    if (sched == NULL)
        return;
    free(sched->chans);
    free(sched->ops);
    free(sched);
}

static size_t divide_up(size_t n, size_t by)
{
    return n / by + (n % by != 0);
}

size_t tutti__blockmap_trips(const tutti__blockmap_t *map)
{
    size_t largest = 0;

    if (map->table == NULL) /* the largest share is the average, rounded up */
        return divide_up(divide_up(map->count, map->nblocks), map->chunk);

    for (uint32_t b = 0; b < map->nblocks; b++) {
        size_t n = tutti__block_count(map, b);

        if (n > largest)
            largest = n;
    }
    return divide_up(largest, map->chunk);
}

/* ---- device memory ---- */

static int is_node(const tutti__op_t *op)
{
    return op->kind >= TUTTI__NODE_ALLREDUCE && op->kind <= TUTTI__NODE_ALLTOALL;
}

static int is_channel(const tutti__op_t *op)
{
    return op->kind == TUTTI__SEND || op->kind == TUTTI__RECV || op->kind == TUTTI__RECV_REDUCE;
}

static int is_users(unsigned buf)
{
    return buf == TUTTI__IN || buf == TUTTI__OUT;
}

/* Does this COPY or REDUCE suit device memory? */
static int local_suits(const tutti__sched_t *sched, const tutti__op_t *op, int has_channels)
{
    if (!is_users(op->sbuf) && !is_users(op->dbuf))
        return 1;
    return op->kind == TUTTI__COPY && op->sbuf != TUTTI__SCRATCH && op->dbuf != TUTTI__SCRATCH &&
           !has_channels && (!(op->flags & TUTTI__FINISH) || sched->size == 1);
}

static int op_suits(const tutti__sched_t *sched, const tutti__op_t *op, int has_channels)
{
    switch (op->kind) {
    case TUTTI__SEND:
        return !is_users(op->sbuf);
    case TUTTI__RECV:
        return !is_users(op->dbuf);
    case TUTTI__RECV_REDUCE:
        return !is_users(op->sbuf) && !is_users(op->dbuf);
    case TUTTI__COPY:
    case TUTTI__REDUCE:
        return local_suits(sched, op, has_channels);
    case TUTTI__WAIT:
    case TUTTI__LOOP:
    case TUTTI__END_LOOP:
        return 1;
    default:
        return is_users(op->sbuf) && is_users(op->dbuf) && !has_channels;
    }
}

static int stream_suits(const tutti__sched_t *sched, uint32_t s)
{
    const tutti__op_t *first = &sched->ops[sched->first[s]],
                      *end = &sched->ops[sched->first[s + 1]];
    int has_channels = 0, is_in_loop = 0, has_node = 0;

    for (const tutti__op_t *op = first; op < end; op++)
        has_channels |= is_channel(op);
    for (const tutti__op_t *op = first; op < end; op++) {
        int has_operands = op->kind != TUTTI__WAIT && op->kind != TUTTI__LOOP;

        is_in_loop = op->kind == TUTTI__LOOP || (is_in_loop && op->kind != TUTTI__END_LOOP);
        if (has_operands && (op->sbuf == TUTTI__STAGE || op->dbuf == TUTTI__STAGE) &&
            (!is_in_loop || sched->stage_trips == 0))
            return 0;
        if (!op_suits(sched, op, has_channels) || (has_channels && op->shift != 0))
            return 0;
        if (is_node(op) && !has_node && op - first > is_in_loop)
            return 0;
        has_node |= is_node(op);
    }
    return 1;
}

int tutti__sched_suits_device(const tutti__sched_t *sched)
{
    for (uint32_t s = 0; s < sched->nstreams; s++) {
        if (!stream_suits(sched, s))
            return 0;
    }
    return 1;
}
