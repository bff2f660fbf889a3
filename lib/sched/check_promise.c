/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's promises (check.h): the blocks that a rank has in the call's buffers, and the
 * content that these blocks must have at the end.
 *
 * A schedule must not touch blocks that its rank does not have. If only the root has a result, only
 * the root has OUT. If a rank has only its own block of IN, this rank has no other block of IN.
 *
 * In a barrier, and if the schedule carries frames, each rank's end must depend on all begins.
 */
#include "sched/check_run.h"

int tutti__check_has_root(tutti__expect_t expect)
{
    return expect == TUTTI__EXPECT_BROADCAST || expect == TUTTI__EXPECT_REDUCE ||
           expect == TUTTI__EXPECT_GATHER || expect == TUTTI__EXPECT_SCATTER;
}

int tutti__check_has_parts(tutti__expect_t expect)
{
    return expect == TUTTI__EXPECT_ALLGATHER || expect == TUTTI__EXPECT_REDUCE_SCATTER ||
           expect == TUTTI__EXPECT_GATHER || expect == TUTTI__EXPECT_SCATTER ||
           expect == TUTTI__EXPECT_ALLTOALL;
}

int tutti__check_is_scan(tutti__expect_t expect)
{
    return expect == TUTTI__EXPECT_SCAN || expect == TUTTI__EXPECT_EXSCAN;
}

static int is_reduction(tutti__expect_t expect)
{
    return expect == TUTTI__EXPECT_ALLREDUCE || expect == TUTTI__EXPECT_REDUCE ||
           expect == TUTTI__EXPECT_REDUCE_SCATTER || tutti__check_is_scan(expect);
}

/* A rank's blocks in a call that is not in place: no block of IN is a block of OUT. */
static tutti__check_place_t place_apart(const tutti__check_t *check, uint32_t nblocks,
                                        uint32_t rank)
{
    const tutti__blocks_t none = { 0, 0 }, all = { 0, nblocks }, own = { rank, rank + 1 };
    int is_root = rank == check->root;

    switch (check->expect) {
    case TUTTI__EXPECT_BROADCAST:
        return (tutti__check_place_t){ none, all, none, none };
    case TUTTI__EXPECT_BARRIER:
        return (tutti__check_place_t){ none, none, none, none };
    case TUTTI__EXPECT_ALLGATHER:
        return (tutti__check_place_t){ own, all, none, none };
    case TUTTI__EXPECT_REDUCE:
        return (tutti__check_place_t){ all, is_root ? all : none, none, none };
    case TUTTI__EXPECT_REDUCE_SCATTER:
        return (tutti__check_place_t){ all, own, none, none };
    case TUTTI__EXPECT_GATHER:
        return (tutti__check_place_t){ own, is_root ? all : none, none, none };
    case TUTTI__EXPECT_SCATTER:
        return (tutti__check_place_t){ is_root ? all : none, own, none, none };
    case TUTTI__EXPECT_EXSCAN:
        return (tutti__check_place_t){ all, rank > 0 ? all : none, none, none };
    default: /* ALLREDUCE, ALLTOALL, SCAN */
        return (tutti__check_place_t){ all, all, none, none };
    }
}

/* If a call is in place, a block that a rank has in IN and in OUT is the same memory in both. */
tutti__check_place_t tutti__check_place(const tutti__check_t *check, uint32_t nblocks,
                                        uint32_t rank)
{
    tutti__check_place_t place = place_apart(check, nblocks, rank);

    if (check->expect == TUTTI__EXPECT_BROADCAST) {
        place.alias = place.out;
        if (rank == check->root)
            place.given = place.out;
    } else if (check->in_place) {
        place.alias.from = TUTTI__MAX(place.in.from, place.out.from);
        place.alias.upto = TUTTI__MIN(place.in.upto, place.out.upto);
        place.given = place.alias;
    }
    return place;
}

/* BY_PAIR: the symbol of the length of the block that rank `from` has for rank `to`. */
static uint64_t pair(const tutti__check_run_t *run, uint32_t from, uint32_t to)
{
    return (uint64_t)from * run->check->size + to;
}

uint64_t tutti__check_length(const tutti__check_run_t *run, uint32_t rank, unsigned buf,
                             uint32_t blk)
{
    switch (run->sizes) {
    case TUTTI__ALL_EQUAL:
        return 0;
    case TUTTI__BY_PAIR:
        if (run->check->expect != TUTTI__EXPECT_ALLTOALL) /* GATHER, SCATTER: the peer is root */
            return blk;
        return buf == TUTTI__IN ? pair(run, rank, blk) : pair(run, blk, rank);
    default: /* BY_NUMBER. The comparison avoids divisions, which would take most of the time */
        return blk < run->nblocks ? blk : blk % run->nblocks;
    }
}

/* Does the end of each rank depend on the begin of all ranks? A rank ends when all its streams have
   ended. */
static int all_depend(tutti__check_run_t *run)
{
    uint32_t size = run->check->size;

    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t other = 0; other < size; other++) {
            uint64_t known = 0;

            for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
                const tutti__check_stream_t *stream = &run->streams[r * TUTTI__SCHED_STREAMS + s];

                known |= tutti__check_knows(run, stream)[other / 64];
            }
            if (!(known >> other % 64 & 1))
                return tutti__check_blame(run, NULL, "rank %u does not wait for rank %u", r, other);
        }
    }
    return 1;
}

/* The sum of the contributions of ranks below `upto` to a block's chunk. */
static uint64_t sum_before(uint32_t upto, uint32_t b, uint32_t t)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < upto; r++)
        sum += tutti__value_leaf(r, b, t).sum;
    return sum;
}

/*
 * The tree that a result must have. An allreduce has rank 0's tree. With `fixed`, all blocks and
 * chunks have the first one's tree (in a reduce_scatter, rank 0's). Other results may have any
 * tree.
 */
static uint64_t promised_tree(const tutti__check_run_t *run, uint32_t r, uint32_t b, uint32_t t)
{
    tutti__expect_t expect = run->check->expect;

    if (expect == TUTTI__EXPECT_ALLREDUCE ||
        (expect == TUTTI__EXPECT_REDUCE_SCATTER && run->check->fixed))
        r = 0;
    if (run->check->fixed) {
        b = run->places[r].out.from;
        t = 0;
    }
    return run->cells[tutti__cell_index(run, r, TUTTI__OUT, b, t)].tree;
}

/*
 * The promised content of chunk t of block b of rank r's OUT. sum: for reductions, the sum of all
 * required contributions.
 */
static tutti__value_t promised(const tutti__check_run_t *run, uint32_t r, uint32_t b, uint32_t t,
                               uint64_t sum)
{
    const tutti__check_t *check = run->check;

    switch (check->expect) {
    case TUTTI__EXPECT_BROADCAST:
    case TUTTI__EXPECT_SCATTER:
        return tutti__value_leaf(check->root, b, t);
    case TUTTI__EXPECT_ALLGATHER:
    case TUTTI__EXPECT_GATHER:
        return tutti__value_leaf(b, b, t);
    case TUTTI__EXPECT_ALLTOALL:
        return tutti__value_leaf(b, r, t);
    default:
        return (tutti__value_t){ .sum = sum,
                                 .tree = promised_tree(run, r, b, t),
                                 .state = TUTTI__VALUE_WRITTEN | TUTTI__VALUE_FINISHED };
    }
}

static int value_holds(tutti__check_run_t *run, uint32_t r, uint32_t b, uint32_t t, uint64_t sum)
{
    const tutti__value_t *have = &run->cells[tutti__cell_index(run, r, TUTTI__OUT, b, t)];
    tutti__value_t want = promised(run, r, b, t, sum);
    const char *what;

    if (!(have->state & TUTTI__VALUE_WRITTEN))
        what = "nothing";
    else if (have->sum != want.sum)
        what = is_reduction(run->check->expect) ? "not each contribution exactly once"
                                                : "something else than it should";
    else if ((have->state ^ want.state) & TUTTI__VALUE_FINISHED)
        what = have->state & TUTTI__VALUE_FINISHED ? "a finished value"
                                                   : "a value that is not finished";
    else if (have->tree != want.tree)
        what = run->check->fixed ? "another association than the first block"
                                 : "another association than on rank 0";
    else
        return 1;
    return tutti__check_blame(run, NULL, "in the end OUT[%u] of rank %u, chunk %u, has %s", b, r, t,
                              what);
}

static int block_holds(tutti__check_run_t *run, uint32_t b, uint32_t t)
{
    tutti__expect_t expect = run->check->expect;
    uint64_t sum = 0;

    if (is_reduction(expect) && !tutti__check_is_scan(expect))
        sum = sum_before(run->check->size, b, t);
    for (uint32_t r = 0; r < run->check->size; r++) {
        uint64_t own = tutti__check_is_scan(expect) ? tutti__value_leaf(r, b, t).sum : 0;

        if (expect == TUTTI__EXPECT_SCAN)
            sum += own;
        if (tutti__blocks_hold(run->places[r].out, b) && !value_holds(run, r, b, t, sum))
            return 0;
        if (expect == TUTTI__EXPECT_EXSCAN)
            sum += own;
    }
    return 1;
}

int tutti__check_promise_holds(tutti__check_run_t *run)
{
    if (run->words > 0 && !all_depend(run))
        return 0;
    if (run->check->expect == TUTTI__EXPECT_BARRIER)
        return 1;
    for (uint32_t t = 0; t < run->check->trips; t++) {
        for (uint32_t b = 0; b < run->nblocks; b++) {
            if (!block_holds(run, b, t))
                return 0;
        }
    }
    return 1;
}
