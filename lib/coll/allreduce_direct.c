/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct allreduce: each rank sends all its data to all other ranks, and reduces all ranks' data in
 * the order of ranks ("all-to-all broadcast" in Chan, Heimlich, Purkayastha, van de Geijn:
 * "Collective communication: theory, practice, and experience", Concurrency and Computation 19(13),
 * 2007).
 *
 *      0 --> 1, 2, 3     1 --> 2, 3, 0     2 --> 3, 0, 1     3 --> 0, 1, 2
 *
 * There is one step, so the latency is the lowest if messages are small, ranks are few, and the
 * network takes several messages at once. Each rank begins with its right neighbour, so the ranks
 * do not all send to the same rank.
 *
 * Cost: (p-1) (alpha + n beta + n gamma), of which the alphas overlap.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_allreduce_direct(const tutti__shape_t *shape,
                                            const tutti__coll_args_t *args,
                                            tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("direct", me, n, 1, 1, 1);
    tutti__collect_t collect = { .b = b,
                                 .n = n,
                                 .me = me,
                                 .own = tutti__at(TUTTI__IN, 0),
                                 .dst = tutti__at(TUTTI__OUT, 0),
                                 .tmp = tutti__at(TUTTI__SCRATCH, 0),
                                 .blocks = 1,
                                 .finish = 1 };

    tutti__build_loop(b);
    for (uint32_t k = 1; k < n; k++)
        tutti__build_send(b, (uint32_t)(((uint64_t)me + k) % n), collect.own, 1);
    for (uint32_t r = 0; r < n; r++)
        tutti__coll_collect(&collect, r);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
