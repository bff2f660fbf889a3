/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise alltoall (Thakur, Rabenseifner, Gropp: "Optimization of collective communication
 * operations in MPICH", IJHPCA 19(1), 2005). This also serves alltoallv, because only the two ranks
 * of an exchange need the lengths of its blocks.
 *
 * In round k rank r exchanges blocks with rank k - r (modulo n). This is a pairing for any n. At
 * most two ranks, those with r = k - r (modulo n), keep their own block.
 *
 *      4 ranks    round 0: 1-3, 0 and 2 with themselves     round 2: 0-2, 1 and 3 with themselves
 *                 round 1: 0-1, 2-3                         round 3: 0-3, 1-2
 *
 * In a round each rank first sends a block to its partner, and then receives the partner's block.
 * In place, the received block replaces the sent block. So a call in place has the same messages
 * and no additional cost.
 *
 * Cost: (p-1) alpha + (p-1)/p n beta.
 */
#include "coll/algorithms.h"

static tutti_status_t build(tutti__sizes_t sizes, const tutti__shape_t *shape,
                            const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("pairwise", me, n, n, 0, 1);

    tutti__build_sizes(b, sizes);
    tutti__build_loop(b);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t peer = (uint32_t)(((uint64_t)k + n - me) % n);
        tutti__at_t in = tutti__at(TUTTI__IN, peer), out = tutti__at(TUTTI__OUT, peer);

        if (peer != me) {
            tutti__build_send(b, peer, in, 1);
            tutti__build_recv(b, peer, 0, out, 1);
        } else if (!args->in_place) {
            tutti__build_copy(b, in, out, 1);
        }
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_alltoall_pairwise(const tutti__shape_t *shape,
                                             const tutti__coll_args_t *args,
                                             tutti__sched_t **ret_sched)
{
    return build(TUTTI__ALL_EQUAL, shape, args, ret_sched);
}

tutti_status_t tutti__coll_alltoallv_pairwise(const tutti__shape_t *shape,
                                              const tutti__coll_args_t *args,
                                              tutti__sched_t **ret_sched)
{
    return build(TUTTI__BY_PAIR, shape, args, ret_sched);
}
