/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hierarchical allreduce: inside the hosts, between them, inside again (after Bayatpour et al.:
 * "Scalable reduction collectives with data partitioning-based multi-leader design", SC'17).
 *
 * The buffer is cut into L parts, L being the smallest number of ranks on a host.
 *
 *      1. NODE_REDUCE_SCATTER   local rank i of each host gets the host's sum of part i
 *      2. an allreduce of part i between the local ranks i of all hosts
 *      3. NODE_ALLGATHER        everyone gets all parts
 *
 * So every rank drives its own share through the network, none is a leader for the others, and each
 * byte crosses it as few times as the inner algorithm allows. Local ranks from L on have no part:
 * they only add theirs and get the result.
 *
 * Stream 0 does what the host does, stream 1 what goes between hosts, one chunk behind each other:
 *
 *      stream 0   scatter 0 | scatter 1, gather 0 | scatter 2, gather 1 | ... | gather T-1
 *      stream 1               between 0             between 1             ...
 *
 * stream 1 waits for its chunk's scatter, a gather for its chunk's stream 1. The gather of chunk k
 * stands behind the scatter of chunk k + 1 on every rank, so no rank waits in one while another
 * waits in the other.
 *
 * Association: host order inside a host, then that of the inner algorithm; for recursive doubling
 * and halving the same for every element.
 *
 * Cost, with H hosts of L ranks: two node operations and the inner algorithm's cost for H ranks and
 * n / L bytes.
 */
#include "base/status.h"
#include "coll/algorithms.h"

#include <stddef.h>

#define NODE 0    /* the stream of node operations */
#define BETWEEN 1 /* the stream of what goes between hosts */

/* The host's share: the same on all its ranks, but only those with a part have a stream 1. */
static void put_node_stream(tutti__build_t *b, uint32_t part_blocks, uint32_t nparts, int has_part)
{
    tutti__build_stream(b, NODE);
    tutti__build_loop(b);
    if (has_part)
        tutti__build_mark(b);
    tutti__build_node(b, TUTTI__NODE_REDUCE_SCATTER, tutti__at(TUTTI__IN, 0),
                      tutti__at(TUTTI__OUT, 0), part_blocks, nparts, 0);
    if (has_part) {
        tutti__build_shift(b, 1);
        tutti__build_wait(b, BETWEEN, 1);
    }
    tutti__build_shift(b, 1);
    tutti__build_node(b, TUTTI__NODE_ALLGATHER, tutti__at(TUTTI__OUT, 0), tutti__at(TUTTI__OUT, 0),
                      part_blocks, nparts, 0);
    tutti__build_end_loop(b);
}

static void put_between_stream(tutti__build_t *b, tutti__coll_put_t *put,
                               const tutti__party_t *party, tutti__at_t part)
{
    tutti__build_stream(b, BETWEEN);
    tutti__build_loop(b);
    tutti__build_wait(b, NODE, 1);
    put(b, party, part, part, BETWEEN);
    tutti__build_mark_last(b);
    tutti__build_end_loop(b);
}

/* Where node operations would only copy, or where there is nothing between hosts. */
static tutti_status_t build_one_level(const char *sub, const tutti__shape_t *shape,
                                      const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    if (shape->nhosts == 1)
        return tutti__coll_node_allreduce(shape, args, ret_sched);
    return tutti__coll_build_flat(sub, 0, shape, args, ret_sched);
}

tutti_status_t tutti__coll_allreduce_hierarchical(const tutti__shape_t *shape,
                                                  const tutti__coll_args_t *args,
                                                  tutti__sched_t **ret_sched)
{
    const char *sub = args->sub != NULL ? args->sub : tutti__coll_between_names[0];
    uint32_t local = shape->local_of[args->rank], nparts = shape->min_local;
    tutti__coll_between_t between;
    tutti__build_t *b;

    if (!tutti__coll_between(sub, shape->nhosts, &between))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "allreduce:hierarchical has no algorithm %s between hosts", sub);
    if (shape->nhosts == 1 || shape->nhosts == shape->size)
        return build_one_level(sub, shape, args, ret_sched);
    if ((uint64_t)nparts * between.blocks > UINT32_MAX)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "allreduce:hierarchical/%s needs %u x %u blocks",
                           sub, nparts, between.blocks);

    b = tutti__build_begin("hierarchical", args->rank, shape->size, nparts * between.blocks, 0,
                           between.message);
    put_node_stream(b, between.blocks, nparts, local < nparts);
    if (local < nparts) {
        tutti__party_t party = tutti__party_across(shape, args->rank);

        put_between_stream(b, between.put, &party, tutti__at(TUTTI__OUT, local * between.blocks));
    }
    return tutti__build_end(b, ret_sched);
}
