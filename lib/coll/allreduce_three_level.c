/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce over three levels: in groups of cores, in the host, between hosts. It uses messages,
 * but no node operations. It is for hosts whose groups (sockets, chiplets) are far from each other,
 * and for comparison with hierarchical (after Graham et al.: "Cheetah: a framework for scalable
 * hierarchical collective operations", CCGrid 2011; slices are like the parts in
 * allreduce_hierarchical.c).
 *
 * The buffer is cut into G slices; G is the smallest number of ranks in a group. Slice i belongs to
 * place i, the i-th rank, of each group.
 *
 *      group of 3    0 1 2 | 3 4 5 || 6 7 8 | 9 10 11        | group  || host
 *
 *      1. in a group    all places send slice i to place i, which reduces it in the order of places
 *      2. in a host     places i of all groups reduce slice i up a tree, to the first group's
 *                       place i
 *      3. between hosts places i of the first groups of all hosts: an allreduce of slice i (the
 *                       inner algorithm)
 *      4. back          slice i goes down the tree; then place i sends it to all of its group
 *
 * Stream 0 runs steps 1 and 2, stream 1 step 3, stream 2 step 4. Each stream waits for the previous
 * one, chunk by chunk. Ranks at places G and above have no slice: they only send their data and
 * receive the result.
 *
 * Association: the places of a group in order, the groups of a host up a tree, then the inner
 * algorithm's association.
 *
 * Cost, with H hosts of g groups of G: 2 (G-1) (alpha + n/G beta) + 2 lg g (alpha + n/G beta) + the
 * inner algorithm's cost for H ranks and n/G bytes.
 */
#include "base/compiler.h"
#include "base/status.h"
#include "coll/algorithms.h"

#include <stddef.h>

typedef struct {
    tutti__build_t *b;
    uint32_t slices, blocks; /* G; blocks of a slice */
    uint32_t batch;          /* blocks of a message: steps 1, 2 and 4 process a batch at a time */
    tutti__party_t group;    /* this rank's group */
    tutti__party_t host;     /* the ranks at this rank's place in all groups of the host */
    tutti__party_t across;   /* the ranks at this rank's place in each host's first group */
    int has_slice, is_first; /* is_first: in the first group */
} levels_t;

static uint32_t local_size(const tutti__shape_t *shape, uint32_t host)
{
    return shape->host_first[host + 1] - shape->host_first[host];
}

/* The number of ranks in a group. shape->group_size 0: the whole host is one group. */
static uint32_t group_size(const tutti__shape_t *shape, uint32_t host)
{
    uint32_t local = local_size(shape, host);

    return shape->group_size == 0 ? local : TUTTI__MIN(shape->group_size, local);
}

/* The size of the smallest group. On each host only the last group may be smaller. */
static uint32_t count_slices(const tutti__shape_t *shape)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t h = 0; h < shape->nhosts; h++) {
        uint32_t size = group_size(shape, h), rest = local_size(shape, h) % size;

        least = TUTTI__MIN(least, rest != 0 ? rest : size);
    }
    return least;
}

static void find_levels(const tutti__shape_t *shape, uint32_t rank, levels_t *levels)
{
    uint32_t h = shape->host_of[rank], local = shape->local_of[rank], all = local_size(shape, h);
    uint32_t size = group_size(shape, h), group = local / size, place = local % size;
    uint32_t first = shape->host_first[h];

    levels->slices = count_slices(shape);
    levels->group = (tutti__party_t){ shape,
                                      TUTTI__MIN(size, all - group * size),
                                      place,
                                      TUTTI__PARTY_PLACED,
                                      first + group * size,
                                      1 };
    levels->host =
        (tutti__party_t){ shape, (all + size - 1) / size, group, TUTTI__PARTY_PLACED, first + place,
                          size };
    levels->across = (tutti__party_t){ shape, shape->nhosts, h, TUTTI__PARTY_ACROSS, place, 1 };
    levels->has_slice = place < levels->slices;
    levels->is_first = group == 0;
}

/* Step 1, for a batch of each slice, from block j on. */
static void put_group_reduce(const levels_t *levels, uint32_t j, int finish)
{
    const tutti__party_t *group = &levels->group;
    uint32_t me = group->me, blk = me * levels->blocks + j;
    tutti__collect_t collect = { .b = levels->b,
                                 .n = group->n,
                                 .me = me,
                                 .own = tutti__at(TUTTI__IN, blk),
                                 .dst = tutti__at(TUTTI__OUT, blk),
                                 .tmp = tutti__at(TUTTI__SCRATCH, blk),
                                 .blocks = levels->batch,
                                 .finish = finish };

    for (uint32_t k = 1; k < group->n; k++) {
        uint32_t to = (me + k) % group->n;

        if (to < levels->slices)
            tutti__build_send(levels->b, tutti__party_rank(group, to),
                              tutti__at(TUTTI__IN, to * levels->blocks + j), levels->batch);
    }
    for (uint32_t i = 0; levels->has_slice && i < group->n; i++)
        tutti__coll_collect(&collect, tutti__party_rank(group, i));
}

static void put_up(const levels_t *levels, int is_one_host)
{
    tutti__build_stream(levels->b, 0);
    tutti__build_loop(levels->b);
    for (uint32_t j = 0; j < levels->blocks; j += levels->batch) {
        tutti__at_t at = tutti__at(TUTTI__OUT, levels->group.me * levels->blocks + j);

        put_group_reduce(levels, j, is_one_host && levels->host.n == 1);
        if (levels->has_slice)
            tutti__coll_put_tree_up(levels->b, &levels->host, at, at, levels->batch, 0,
                                    is_one_host);
    }
    tutti__build_mark_last(levels->b);
    tutti__build_end_loop(levels->b);
}

/* Step 3. Its levels begin after the blocks of SCRATCH that step 1 uses. */
static void put_between(const levels_t *levels, tutti__coll_put_t *put)
{
    uint32_t all = levels->slices * levels->blocks, first = levels->group.me * levels->blocks;
    tutti__at_t at = tutti__at(TUTTI__OUT, first);

    tutti__build_stream(levels->b, 1);
    tutti__build_loop(levels->b);
    tutti__build_wait(levels->b, 0, 1);
    put(levels->b, &levels->across, at, at, (tutti__levels_t){ all + first, all }, 1);
    tutti__build_mark_last(levels->b);
    tutti__build_end_loop(levels->b);
}

/* The second half of step 4, for a batch of each slice from block j on; in stream s. */
static void put_group_gather(const levels_t *levels, uint32_t j, unsigned s)
{
    const tutti__party_t *group = &levels->group;
    uint32_t me = group->me;

    for (uint32_t k = 1; levels->has_slice && k < group->n; k++)
        tutti__build_send(levels->b, tutti__party_rank(group, (me + k) % group->n),
                          tutti__at(TUTTI__OUT, me * levels->blocks + j), levels->batch);
    for (uint32_t i = 0; i < levels->slices; i++) {
        if (i != me)
            tutti__build_recv(levels->b, tutti__party_rank(group, i), s,
                              tutti__at(TUTTI__OUT, i * levels->blocks + j), levels->batch);
    }
}

static void put_down(const levels_t *levels, unsigned after)
{
    tutti__build_stream(levels->b, 2);
    tutti__build_loop(levels->b);
    tutti__build_wait(levels->b, after, 1);
    for (uint32_t j = 0; j < levels->blocks; j += levels->batch) {
        if (levels->has_slice)
            tutti__coll_put_tree_down(levels->b, &levels->host, 0,
                                      tutti__at(TUTTI__OUT, levels->group.me * levels->blocks + j),
                                      levels->batch, 2);
        put_group_gather(levels, j, 2);
    }
    tutti__build_end_loop(levels->b);
}

tutti_status_t tutti__coll_allreduce_three_level(const tutti__shape_t *shape,
                                                 const tutti__coll_args_t *args,
                                                 tutti__sched_t **ret_sched)
{
    tutti__coll_between_t between;
    levels_t levels;
    int goes_across;

    if (!tutti__coll_between(args->sub, shape->nhosts, &between))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "allreduce:three_level has no algorithm %s between hosts", args->sub);
    find_levels(shape, args->rank, &levels);
    levels.blocks = between.blocks;
    levels.batch = between.message; /* divides levels.blocks */
    if ((uint64_t)levels.slices * levels.blocks > UINT32_MAX)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "allreduce:three_level needs %u x %u blocks",
                           levels.slices, levels.blocks);
    levels.b =
        tutti__build_begin("three_level", args->rank, shape->size, levels.slices * levels.blocks,
                           (1 + between.levels) * levels.slices * levels.blocks, between.message);
    goes_across = levels.has_slice && levels.is_first && shape->nhosts > 1;
    put_up(&levels, shape->nhosts == 1);
    if (goes_across)
        put_between(&levels, between.put);
    put_down(&levels, goes_across ? 1 : 0);
    return tutti__build_end(levels.b, ret_sched);
}
