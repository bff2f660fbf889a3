/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise reduce-scatter (Thakur, Rabenseifner, Gropp: "Optimization of collective communication
 * operations in MPICH", IJHPCA 19(1), 2005).
 *
 * In step k each rank sends one block to the rank k places further on: the block that this peer
 * reduces. Each rank receives its own block from the rank k places before it. No rank passes data
 * on, and no temporary memory is needed: there is one message at a time in each direction, to a new
 * peer in each step.
 *
 * A rank adds the messages to its own data, beginning with that of its left neighbour. So blocks
 * have different associations.
 *
 * Cost: (p-1) alpha + (p-1)/p n (beta + gamma).
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_reduce_scatter_pairwise(const tutti__shape_t *shape,
                                                   const tutti__coll_args_t *args,
                                                   tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("pairwise", me, n, n, 0, 1);
    tutti__at_t have = tutti__at(TUTTI__IN, me), out = tutti__at(TUTTI__OUT, me);

    tutti__build_loop(b);
    if (n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, have, out, 1);
    }
    for (uint32_t k = 1; k < n; k++) {
        uint32_t to = (uint32_t)(((uint64_t)me + k) % n);
        uint32_t from = (uint32_t)(((uint64_t)me + n - k) % n);

        tutti__build_send(b, to, tutti__at(TUTTI__IN, to), 1);
        if (k == n - 1)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, from, 0, have, out, 1);
        have = out;
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
