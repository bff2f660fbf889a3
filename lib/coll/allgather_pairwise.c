/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise allgather: in step k each rank sends its block to the rank k places further on, and
 * receives the block of the rank k places before it. Blocks may vary in length.
 *
 * Each block is sent directly by its owner. In each step a rank has one message in each direction,
 * with new peers. No rank waits for a block that another rank passes on.
 *
 * Cost: (p-1) alpha + (p-1)/p n beta.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_allgather_pairwise(const tutti__shape_t *shape,
                                              const tutti__coll_args_t *args,
                                              tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("pairwise", me, n, n, 0, 1);
    tutti__at_t own = tutti__at(TUTTI__IN, me);

    tutti__build_loop(b);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t from = (uint32_t)(((uint64_t)me + n - k) % n);

        tutti__build_send(b, (uint32_t)(((uint64_t)me + k) % n), own, 1);
        tutti__build_recv(b, from, 0, tutti__at(TUTTI__OUT, from), 1);
    }
    if (!args->in_place)
        tutti__build_copy(b, own, tutti__at(TUTTI__OUT, me), 1);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
