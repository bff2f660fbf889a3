/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce by leaders: the first rank of each host works for all ranks of the host.
 *
 *      1. the leader receives the operands of its host's ranks, in their order, and reduces them
 *      2. recursive doubling between the leaders
 *      3. the leader sends the result to its host's ranks
 *
 * The algorithm uses messages only. In each step one message leaves a host, however many ranks the
 * host has. So the algorithm is for hosts with few ranks, and for small data, where a message
 * costs more than its bytes. The comparison of calls uses this schedule: see call/ride.h.
 *
 * Association: the order of local ranks inside a host, then that of recursive doubling, for every
 * element.
 *
 * Cost, with H hosts of L ranks: 2 (L - 1) messages inside a host, and recursive doubling's cost
 * for H ranks.
 */
#include "coll/algorithms.h"

/* The rank with local number i. The leader has number 0. */
static uint32_t local_rank(const tutti__shape_t *shape, uint32_t host, uint32_t i)
{
    return shape->by_host[shape->host_first[host] + i];
}

static void put_leader(tutti__build_t *b, const tutti__shape_t *shape, uint32_t rank, uint32_t n)
{
    tutti__party_t leaders = tutti__party_across(shape, rank);
    tutti__at_t in = tutti__at(TUTTI__IN, 0), out = tutti__at(TUTTI__OUT, 0);
    tutti__collect_t c = {
        .b = b, .n = n, .own = in, .dst = out, .blocks = 1, .finish = shape->nhosts == 1
    };
    uint32_t host = shape->host_of[rank];

    for (uint32_t i = 0; i < n && n > 1; i++)
        tutti__coll_collect(&c, local_rank(shape, host, i));
    if (shape->nhosts > 1)
        tutti__coll_put_recursive_doubling(b, &leaders, n > 1 ? out : in, out,
                                           (tutti__levels_t){ 0, 0 }, 0);
    for (uint32_t i = 1; i < n; i++)
        tutti__build_send(b, local_rank(shape, host, i), out, 1);
}

tutti_status_t tutti__coll_allreduce_leaders(const tutti__shape_t *shape,
                                             const tutti__coll_args_t *args,
                                             tutti__sched_t **ret_sched)
{
    uint32_t host = shape->host_of[args->rank];
    uint32_t n = shape->host_first[host + 1] - shape->host_first[host];
    tutti__build_t *b = tutti__build_begin("leaders", args->rank, shape->size, 1, 0, 1);

    if (shape->size == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
        return tutti__build_end(b, ret_sched);
    }
    tutti__build_loop(b);
    if (shape->local_of[args->rank] == 0) {
        put_leader(b, shape, args->rank, n);
    } else {
        tutti__build_send(b, local_rank(shape, host, 0), tutti__at(TUTTI__IN, 0), 1);
        tutti__build_recv(b, local_rank(shape, host, 0), 0, tutti__at(TUTTI__OUT, 0), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
