/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct gather: each rank sends its block to the root. The root receives the blocks in the order
 * of ranks, beginning with its right neighbour. The algorithm also serves gatherv, because only a
 * block's owner and the root need its length.
 *
 * No rank passes blocks on, so large blocks travel once. With small blocks and many ranks the root
 * is the bottleneck.
 *
 * Cost: (p+2)/4 alpha + (p-1)/p n beta at the root: only the first message takes all of alpha.
 */
#include "coll/algorithms.h"

static tutti_status_t build(tutti__sizes_t sizes, const tutti__shape_t *shape,
                            const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, root = args->root;
    tutti__build_t *b = tutti__build_begin("direct", me, n, n, 0, 1);

    tutti__build_sizes(b, sizes);
    tutti__build_loop(b);
    if (me != root)
        tutti__build_send(b, root, tutti__at(TUTTI__IN, me), 1);
    else if (!args->in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, me), tutti__at(TUTTI__OUT, me), 1);
    for (uint32_t k = 1; me == root && k < n; k++) {
        uint32_t from = (uint32_t)(((uint64_t)me + k) % n);

        tutti__build_recv(b, from, 0, tutti__at(TUTTI__OUT, from), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_gather_direct(const tutti__shape_t *shape,
                                         const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    return build(TUTTI__BY_NUMBER, shape, args, ret_sched);
}

tutti_status_t tutti__coll_gatherv_direct(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    return build(TUTTI__BY_PAIR, shape, args, ret_sched);
}
