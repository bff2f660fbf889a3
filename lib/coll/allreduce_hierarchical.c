/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hierarchical allreduce: a stage inside the hosts, a stage between them, a stage inside again
 * (after Bayatpour et al.: "Scalable reduction collectives with data partitioning-based
 * multi-leader design", SC'17).
 *
 * The buffer is cut into L parts; L is the smallest number of ranks on a host.
 *
 *      1. NODE_REDUCE_SCATTER   local rank i of each host gets the host's sum of part i
 *      2. an allreduce of part i between the local ranks i of all hosts (the inner algorithm)
 *      3. NODE_ALLGATHER        all ranks get all parts
 *
 * So every rank sends its own part over the network, and no rank is a leader. Each byte crosses the
 * network as seldom as the inner algorithm allows. Local ranks L and above have no part: they
 * contribute their data and get the result.
 *
 * Stream 0 has the two node operations (scatter and gather), stream 1 the messages between hosts,
 * one chunk after another:
 *
 *      stream 0   scatter 0 | scatter 1, gather 0 | scatter 2, gather 1 | ... | gather T-1
 *      stream 1               between 0             between 1             ...
 *
 * Streams 1 to 3 may each have a share of a chunk's blocks: see between.c. These streams wait for
 * the scatter of the chunk; the gather of the chunk waits until all these streams have completed
 * it. On every rank the gather of chunk k follows the scatter of chunk k + 1, so no rank waits in
 * the gather while another rank waits in the scatter.
 *
 * On device memory NCCL executes the node operations, and the part between hosts works on STAGE, in
 * host memory. Two more streams copy to STAGE and back:
 *
 *      stream 0   scatter t, gather t - 3
 *      stream 2                            OUT -> STAGE t - 1
 *      stream 1                                                between t - 2
 *      stream 3                                                               STAGE -> OUT t - 3
 *
 * So all four streams work at once. Four chunks in STAGE are enough: chunk t takes the place of
 * chunk t - 4. Gather t - 4 waits for the copy back of chunk t - 4, scatter t follows gather t - 4,
 * and the copy of chunk t to STAGE waits for scatter t. With one rank per host there are no node
 * operations: stream 2 copies chunk t from IN, after the copy back of chunk t - 4.
 *
 * Association: the order of local ranks inside a host, then the inner algorithm's association. With
 * recursive doubling or halving, every element has the same association.
 *
 * Cost, with H hosts of L ranks: two node operations and the inner algorithm's cost for H ranks and
 * n / L bytes.
 */
#include "base/compiler.h"
#include "base/constants.h"
#include "base/status.h"
#include "coll/algorithms.h"

#include <stddef.h>

/* Streams. */
#define NODE 0    /* node operations */
#define BETWEEN 1 /* between hosts */
#define DOWN 2    /* on device memory: to STAGE */
#define UP 3      /* on device memory: back */

typedef struct {
    const char *sub;
    tutti__coll_between_t between;
    uint32_t nparts;
    /* number of streams between hosts; each stream has between.blocks blocks of this rank's part */
    uint32_t streams;
    int has_part, is_node;      /* is_node: there are node operations */
    tutti__at_t in, out, stage; /* this rank's part */
} plan_t;

/*
 * Append the stream of node operations. These are the same on all ranks of a host; the other
 * streams exist only on ranks with a part. The gather is `lag` chunks behind the scatter, and waits
 * for `nlast` streams, from stream `last` on.
 */
static void put_node_stream(tutti__build_t *b, const plan_t *plan, unsigned lag, unsigned last,
                            unsigned nlast)
{
    uint32_t part_blocks = plan->streams * plan->between.blocks;

    tutti__build_stream(b, NODE);
    tutti__build_loop(b);
    if (plan->has_part)
        tutti__build_mark(b);
    tutti__build_node(b, TUTTI__NODE_REDUCE_SCATTER, tutti__at(TUTTI__IN, 0),
                      tutti__at(TUTTI__OUT, 0), part_blocks, plan->nparts, 0);
    for (unsigned s = 0; s < nlast && plan->has_part; s++) {
        tutti__build_shift(b, lag);
        tutti__build_wait(b, last + s, 1);
    }
    tutti__build_shift(b, lag);
    tutti__build_node(b, TUTTI__NODE_ALLGATHER, tutti__at(TUTTI__OUT, 0), tutti__at(TUTTI__OUT, 0),
                      part_blocks, plan->nparts, 0);
    tutti__build_end_loop(b);
}

/* before: the stream that must have completed a chunk before these streams work on it. */
static void put_between_streams(tutti__build_t *b, const plan_t *plan, const tutti__party_t *party,
                                unsigned before, tutti__at_t part)
{
    for (uint32_t s = 0; s < plan->streams; s++) {
        tutti__at_t share = tutti__beyond(part, s * plan->between.blocks);
        tutti__levels_t levels = { share.blk, plan->nparts * plan->streams * plan->between.blocks };

        tutti__build_stream(b, BETWEEN + s);
        tutti__build_loop(b);
        tutti__build_wait(b, before, 1);
        plan->between.put(b, party, share, share, levels, BETWEEN + s);
        tutti__build_mark_last(b);
        tutti__build_end_loop(b);
    }
}

static void put_copies(tutti__build_t *b, const plan_t *plan)
{
    tutti__build_stream(b, DOWN);
    tutti__build_loop(b);
    if (plan->is_node) {
        tutti__build_wait(b, NODE, 1);
    } else {
        tutti__build_shift(b, TUTTI__STAGE_TRIPS);
        tutti__build_wait(b, UP, 1);
    }
    tutti__build_mark(b);
    tutti__build_copy(b, plan->is_node ? plan->out : plan->in, plan->stage, plan->between.blocks);
    tutti__build_end_loop(b);

    tutti__build_stream(b, UP);
    tutti__build_loop(b);
    tutti__build_wait(b, BETWEEN, 1);
    tutti__build_mark(b);
    tutti__build_copy(b, plan->stage, plan->out, plan->between.blocks);
    tutti__build_end_loop(b);
}

static void put_on_host(tutti__build_t *b, const plan_t *plan, const tutti__party_t *party)
{
    tutti__build_on_host(b);
    put_node_stream(b, plan, 1, BETWEEN, plan->streams);
    if (plan->has_part)
        put_between_streams(b, plan, party, NODE, plan->out);
}

static void put_on_device(tutti__build_t *b, const plan_t *plan, const tutti__party_t *party)
{
    tutti__build_stage(b, plan->has_part ? plan->stage.blk : 0, plan->between.blocks,
                       TUTTI__STAGE_TRIPS);
    if (plan->is_node)
        put_node_stream(b, plan, TUTTI__STAGE_TRIPS - 1, UP, 1);
    if (!plan->has_part)
        return;
    put_between_streams(b, plan, party, DOWN, plan->stage);
    put_copies(b, plan);
}

/* For a single host; or for hosts of one rank each, where node operations would only copy. */
static tutti_status_t build_one_level(const char *sub, const tutti__shape_t *shape,
                                      const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    if (shape->nhosts == 1)
        return tutti__coll_node_allreduce(shape, args, ret_sched);
    return tutti__coll_build_between(sub, 0, shape, args, ret_sched);
}

tutti_status_t tutti__coll_allreduce_hierarchical(const tutti__shape_t *shape,
                                                  const tutti__coll_args_t *args,
                                                  tutti__sched_t **ret_sched)
{
    uint32_t local = shape->local_of[args->rank], part_blocks, first;
    tutti__party_t party = { .shape = NULL };
    plan_t plan = { .sub = args->sub != NULL ? args->sub : tutti__coll_between_names[0],
                    .nparts = shape->min_local,
                    .streams = args->on_device ? 1 : TUTTI__MAX(args->streams, 1u),
                    .has_part = local < shape->min_local,
                    .is_node = shape->nhosts < shape->size };
    tutti__build_t *b;

    if (!tutti__coll_between(plan.sub, shape->nhosts, &plan.between))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "allreduce:hierarchical has no algorithm %s between hosts", plan.sub);
    if (shape->nhosts == 1 || (!plan.is_node && !args->on_device))
        return build_one_level(plan.sub, shape, args, ret_sched);
    part_blocks = plan.streams * plan.between.blocks;
    if ((uint64_t)plan.nparts * part_blocks > UINT32_MAX)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "allreduce:hierarchical/%s needs %u x %u blocks",
                           plan.sub, plan.nparts, part_blocks);

    first = local * part_blocks;
    plan.in = tutti__at(TUTTI__IN, first);
    plan.out = tutti__at(TUTTI__OUT, first);
    plan.stage = tutti__at(TUTTI__STAGE, first);
    if (plan.has_part)
        party = tutti__party_across(shape, args->rank);
    b = tutti__build_begin("hierarchical", args->rank, shape->size, plan.nparts * part_blocks,
                           plan.between.levels * plan.nparts * part_blocks, plan.between.message);
    if (args->on_device)
        put_on_device(b, &plan, &party);
    else
        put_on_host(b, &plan, &party);
    return tutti__build_end(b, ret_sched);
}
