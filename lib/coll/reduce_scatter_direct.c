/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct reduce-scatter: each rank sends each block directly to the block's rank, which reduces
 * the received blocks in the order of ranks.
 *
 * The messages are the same as in the pairwise algorithm, but all are in flight at once. All blocks
 * have one association, in the order of ranks. Lower ranks' operands are combined in SCRATCH.
 *
 * Cost: (p-1) alpha, which overlap, + (p-1)/p n (beta + gamma).
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_reduce_scatter_direct(const tutti__shape_t *shape,
                                                 const tutti__coll_args_t *args,
                                                 tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("direct", me, n, n, n, 1);
    tutti__collect_t collect = { .b = b,
                                 .n = n,
                                 .me = me,
                                 .own = tutti__at(TUTTI__IN, me),
                                 .dst = tutti__at(TUTTI__OUT, me),
                                 .tmp = tutti__at(TUTTI__SCRATCH, me),
                                 .blocks = 1,
                                 .finish = 1 };

    tutti__build_loop(b);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t to = (uint32_t)(((uint64_t)me + k) % n);

        tutti__build_send(b, to, tutti__at(TUTTI__IN, to), 1);
    }
    for (uint32_t r = 0; r < n; r++)
        tutti__coll_collect(&collect, r);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
