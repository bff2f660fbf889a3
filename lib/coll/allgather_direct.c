/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct allgather: each rank sends its block to all other ranks and receives their blocks. Blocks
 * may vary in length.
 *
 * There is one step: all messages are in flight at once, which suits small blocks and few ranks.
 * Each rank begins with its right neighbour, so the ranks do not all send to the same rank.
 *
 * Cost: (p-1) alpha, which overlap, + (p-1)/p n beta.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_allgather_direct(const tutti__shape_t *shape,
                                            const tutti__coll_args_t *args,
                                            tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("direct", me, n, n, 0, 1);
    tutti__at_t own = tutti__at(TUTTI__IN, me);

    tutti__build_loop(b);
    for (uint32_t k = 1; k < n; k++)
        tutti__build_send(b, (uint32_t)(((uint64_t)me + k) % n), own, 1);
    if (!args->in_place)
        tutti__build_copy(b, own, tutti__at(TUTTI__OUT, me), 1);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t from = (uint32_t)(((uint64_t)me + n - k) % n);

        tutti__build_recv(b, from, 0, tutti__at(TUTTI__OUT, from), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
