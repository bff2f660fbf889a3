/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes schedules. See plant.h. */
#include "unit/coll/plant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPARE 2 /* operations that a bug may add */

tutti__sched_t *sched_clone(const tutti__sched_t *sched)
{
    tutti__sched_t *copy = malloc(sizeof(*copy));

    assert_non_null(copy);
    *copy = *sched;
    copy->ops = calloc(sched->nops + SPARE, sizeof(*copy->ops));
    copy->chans = calloc(sched->nchans + 1, sizeof(*copy->chans));
    assert_true(copy->ops != NULL && copy->chans != NULL);
    memcpy(copy->ops, sched->ops, sched->nops * sizeof(*copy->ops));
    if (sched->nchans > 0)
        memcpy(copy->chans, sched->chans, sched->nchans * sizeof(*copy->chans));
    return copy;
}

uint32_t sched_stream_of(const tutti__sched_t *sched, uint32_t i)
{
    uint32_t s = 0;

    while (i >= sched->first[s + 1])
        s++;
    return s;
}

int op_is_loop(const tutti__op_t *op)
{
    return op->kind == TUTTI__LOOP || op->kind == TUTTI__END_LOOP;
}

int op_is_node(const tutti__op_t *op)
{
    return op->kind >= TUTTI__NODE_ALLREDUCE;
}

int op_has_channel(const tutti__op_t *op)
{
    return op->kind == TUTTI__SEND || op->kind == TUTTI__RECV || op->kind == TUTTI__RECV_REDUCE;
}

int op_reads(const tutti__op_t *op)
{
    return !op_is_loop(op) && op->kind != TUTTI__WAIT && op->kind != TUTTI__RECV;
}

int op_writes(const tutti__op_t *op)
{
    return !op_is_loop(op) && op->kind != TUTTI__WAIT && op->kind != TUTTI__SEND;
}

void sched_remove(tutti__sched_t *sched, uint32_t i)
{
    uint32_t s = sched_stream_of(sched, i);

    memmove(sched->ops + i, sched->ops + i + 1, (sched->nops - i - 1) * sizeof(*sched->ops));
    sched->nops--;
    while (s < TUTTI__SCHED_STREAMS)
        sched->first[++s]--;
}

/* Insert an operation into stream s, before operation i. */
void sched_insert(tutti__sched_t *sched, uint32_t s, uint32_t i, tutti__op_t op)
{
    memmove(sched->ops + i + 1, sched->ops + i, (sched->nops - i) * sizeof(*sched->ops));
    sched->ops[i] = op;
    sched->nops++;
    while (s < TUTTI__SCHED_STREAMS)
        sched->first[++s]++;
}

int sched_finish_late(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i], copy = *op;

    if ((op->kind != TUTTI__RECV_REDUCE && op->kind != TUTTI__REDUCE) ||
        !(op->flags & TUTTI__FINISH))
        return 0;
    copy.kind = TUTTI__COPY;
    copy.sbuf = copy.dbuf;
    copy.sblk = copy.dblk;
    copy.chan = 0;
    copy.flags &= (uint8_t)~TUTTI__LEFT;
    op->flags &= TUTTI__LEFT; /* the copy has the mark as well */
    sched_insert(sched, sched_stream_of(sched, i), i + 1, copy);
    return 1;
}

/* Recompute the builder's numbers. */
void sched_settle(tutti__sched_t *sched)
{
    for (uint32_t s = 0; s < sched->nstreams; s++) {
        uint32_t loop = 0;
        int in_loop = 0;

        sched->marks[s] = 0;
        for (uint32_t i = sched->first[s]; i < sched->first[s + 1]; i++) {
            tutti__op_t *op = &sched->ops[i];

            if (op->kind == TUTTI__LOOP) {
                loop = i;
                op->arg = 0;
                in_loop = 1;
            } else if (op->kind == TUTTI__END_LOOP) {
                op->arg = (int32_t)loop;
                in_loop = 0;
            } else if (in_loop) {
                if (op->shift > sched->ops[loop].arg)
                    sched->ops[loop].arg = op->shift;
                sched->marks[s] += (op->flags & TUTTI__MARK) != 0;
            }
        }
    }
}
