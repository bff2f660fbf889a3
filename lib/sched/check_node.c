/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations in the checker: the symbolic values that the ranks of a host compute together.
 *
 * A node operation is executed when all ranks of the host have reached it, with the same arguments.
 * Its reductions are one fused pass over the ranks' blocks, in the order of local ranks. With two
 * ranks the result equals any other reduction of two values. With more ranks the result may differ
 * from that of separate additions: narrow floats are rounded once per pass.
 */
#include "sched/check_run.h"

#include <string.h>

static tutti__check_stream_t *member(const tutti__check_run_t *run, const tutti__check_host_t *host,
                                     uint32_t local)
{
    return &run->streams[run->members[host->first + local] * TUTTI__SCHED_STREAMS];
}

static int same_op(const tutti__check_stream_t *a, const tutti__check_stream_t *b)
{
    const tutti__op_t *x = tutti__check_op(a), *y = tutti__check_op(b);

    return x->kind == y->kind && (x->flags & TUTTI__FINISH) == (y->flags & TUTTI__FINISH) &&
           x->sbuf == y->sbuf && x->dbuf == y->dbuf && x->sblk == y->sblk && x->dblk == y->dblk &&
           x->nblk == y->nblk && x->nparts == y->nparts && x->arg == y->arg &&
           a->begin == b->begin && a->upto == b->upto;
}

static int arguments_agree(tutti__check_run_t *run, const tutti__check_host_t *host)
{
    const tutti__check_stream_t *first = member(run, host, 0);
    const tutti__op_t *op = tutti__check_op(first);

    for (uint32_t i = 1; i < host->nranks; i++) {
        const tutti__check_stream_t *other = member(run, host, i);
        char text[160];

        if (same_op(first, other))
            continue;
        tutti__sched_op_text(first->sched, op, text, sizeof(text));
        return tutti__check_blame(run, other, "but rank %u of its host executes %s, chunk %u",
                                  first->rank, text, first->begin);
    }
    if (op->nparts > host->nranks)
        return tutti__check_blame(run, first, "only %u ranks for its parts", host->nranks);
    if (op->kind == TUTTI__NODE_ALLTOALL && op->nparts < host->nranks)
        return tutti__check_blame(run, first, "its parts are for %u of %u ranks", op->nparts,
                                  host->nranks);
    if (tutti__sched_has_root(op->kind) && (uint32_t)op->arg >= host->nranks)
        return tutti__check_blame(run, first, "there is no local rank %d", op->arg);
    return 1;
}

/* Reduce the source blocks of all ranks in one pass. With a single rank, the result is a copy. */
static int fold(tutti__check_run_t *run, const tutti__check_host_t *host, uint32_t blk,
                uint32_t trip, tutti__value_t *ret_value)
{
    const tutti__op_t *op = tutti__check_op(member(run, host, 0));

    for (uint32_t i = 0; i < host->nranks; i++) {
        const tutti__check_stream_t *stream = member(run, host, i);
        tutti__value_t value;
        int ok = 1;

        if (!tutti__cells_read(run, stream, op->sbuf, blk, 1, trip, &value))
            return 0;
        tutti__value_unrounded(&value);
        if (i == 0)
            *ret_value = value;
        else if (i == 1)
            ok = tutti__value_reduce(run, stream, ret_value, &value);
        else
            ok = tutti__value_fuse(run, stream, ret_value, &value);
        if (!ok)
            return 0;
    }
    if (!(op->flags & TUTTI__FINISH))
        return 1;
    if (run->check->wire)
        return tutti__check_blame(run, member(run, host, 0),
                                  "finishes a sum, and does not round it to the wire format");
    return tutti__value_finish(run, member(run, host, 0), ret_value, host->nranks > 1);
}

static int write_all(tutti__check_run_t *run, const tutti__check_host_t *host, uint32_t blk,
                     uint32_t trip, const tutti__value_t *value)
{
    for (uint32_t i = 0; i < host->nranks; i++) {
        const tutti__check_stream_t *stream = member(run, host, i);

        if (!tutti__cells_write(run, stream, tutti__check_op(stream)->dbuf, blk, 1, trip, value))
            return 0;
    }
    return 1;
}

/* Exchange block i of the parts that local ranks a and b have for each other. */
static int exchange(tutti__check_run_t *run, const tutti__check_host_t *host, uint32_t a,
                    uint32_t b, uint32_t i, uint32_t trip)
{
    const tutti__check_stream_t *x = member(run, host, a), *y = member(run, host, b);
    const tutti__op_t *op = tutti__check_op(x);
    uint32_t to_a = a * op->nblk + i, to_b = b * op->nblk + i;
    tutti__value_t of_a, of_b;

    return tutti__cells_read(run, x, op->sbuf, op->sblk + to_b, 1, trip, &of_a) &&
           tutti__cells_read(run, y, op->sbuf, op->sblk + to_a, 1, trip, &of_b) &&
           tutti__cells_write(run, x, op->dbuf, op->dblk + to_b, 1, trip, &of_b) &&
           tutti__cells_write(run, y, op->dbuf, op->dblk + to_a, 1, trip, &of_a);
}

static int exchange_all(tutti__check_run_t *run, const tutti__check_host_t *host, uint32_t part,
                        uint32_t i, uint32_t trip)
{
    for (uint32_t local = 0; local <= part; local++) {
        if (!exchange(run, host, local, part, i, trip))
            return 0;
    }
    return 1;
}

/* Execute the operation on block i of part `part`. Its source blocks are read before its
   destination blocks are written, so a call in place works. */
static int do_block(tutti__check_run_t *run, const tutti__check_host_t *host, uint32_t part,
                    uint32_t i, uint32_t trip)
{
    const tutti__op_t *op = tutti__check_op(member(run, host, 0));
    uint32_t from = op->sblk + part * op->nblk + i, to = op->dblk + part * op->nblk + i;
    tutti__value_t value;

    switch (op->kind) {
    case TUTTI__NODE_ALLREDUCE:
        return fold(run, host, from, trip, &value) && write_all(run, host, to, trip, &value);
    case TUTTI__NODE_REDUCE_SCATTER:
        return fold(run, host, from, trip, &value) &&
               tutti__cells_write(run, member(run, host, part), op->dbuf, to, 1, trip, &value);
    case TUTTI__NODE_ALLGATHER:
        return tutti__cells_read(run, member(run, host, part), op->sbuf, from, 1, trip, &value) &&
               write_all(run, host, to, trip, &value);
    case TUTTI__NODE_REDUCE:
        return fold(run, host, from, trip, &value) &&
               tutti__cells_write(run, member(run, host, (uint32_t)op->arg), op->dbuf, to, 1, trip,
                                  &value);
    case TUTTI__NODE_ALLTOALL:
        return exchange_all(run, host, part, i, trip);
    default: /* NODE_BCAST */
        return tutti__cells_read(run, member(run, host, (uint32_t)op->arg), op->sbuf, from, 1, trip,
                                 &value) &&
               write_all(run, host, to, trip, &value);
    }
}

static int gives(const tutti__op_t *op, uint32_t local)
{
    if (op->kind == TUTTI__NODE_ALLGATHER)
        return local < op->nparts;
    return op->kind != TUTTI__NODE_BCAST || local == (uint32_t)op->arg;
}

static int gets(const tutti__op_t *op, uint32_t local)
{
    if (op->kind == TUTTI__NODE_REDUCE_SCATTER)
        return local < op->nparts;
    return op->kind != TUTTI__NODE_REDUCE || local == (uint32_t)op->arg;
}

/* Each rank that gets a result now depends on all ranks on which a contributing rank depends. */
static void spread_knowledge(tutti__check_run_t *run, const tutti__check_host_t *host)
{
    const tutti__op_t *op = tutti__check_op(member(run, host, 0));
    uint64_t *sum = run->knows + (size_t)run->check->size * TUTTI__SCHED_STREAMS * run->words;

    memset(sum, 0, run->words * sizeof(*sum));
    for (uint32_t i = 0; i < host->nranks; i++) {
        const uint64_t *knows = tutti__check_knows(run, member(run, host, i));

        for (uint32_t w = 0; w < run->words && gives(op, i); w++)
            sum[w] |= knows[w];
    }
    for (uint32_t i = 0; i < host->nranks; i++) {
        if (gets(op, i))
            tutti__check_learn(run, member(run, host, i), sum);
    }
}

int tutti__check_node(tutti__check_run_t *run, const tutti__check_host_t *host)
{
    const tutti__check_stream_t *first = member(run, host, 0);
    const tutti__op_t *op = tutti__check_op(first);

    if (!arguments_agree(run, host))
        return 0;
    for (uint32_t i = 0; i < host->nranks; i++)
        tutti__cells_meet(run, member(run, host, i), op->sbuf, op->sblk, op->nparts * op->nblk);
    for (uint32_t trip = first->begin; trip < first->upto; trip++) {
        for (uint32_t part = 0; part < op->nparts; part++) {
            for (uint32_t i = 0; i < op->nblk; i++) {
                if (!do_block(run, host, part, i, trip))
                    return 0;
            }
        }
    }
    if (run->words > 0)
        spread_knowledge(run, host);
    return 1;
}
