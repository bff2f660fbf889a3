/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring reduce-scatter: the first half of the ring allreduce (see allreduce_ring.c), rotated so that
 * each rank's own block is complete on this rank.
 *
 *      block 0: rank 1 sends its data to rank 2, which adds its own, and so on until rank 0
 *
 * Partial results are in SCRATCH. Each rank sends (n-1)/n of the buffer, the minimum, to one
 * neighbour only. The ring goes host by host. Different blocks begin at different ranks, so an
 * element's association depends on its place in the buffer.
 *
 * Cost: (p-1) alpha + (p-1)/p n (beta + gamma).
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_reduce_scatter_ring(const tutti__shape_t *shape,
                                               const tutti__coll_args_t *args,
                                               tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    uint32_t n = party.n, me = party.me;
    uint32_t right = tutti__party_rank(&party, (me + 1) % n);
    uint32_t left = tutti__party_rank(&party, (me + n - 1) % n);
    tutti__build_t *b = tutti__build_begin("ring", args->rank, n, n, n, 1);

    tutti__build_loop(b);
    if (n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
    }
    for (uint32_t step = 0; step < n - 1; step++) {
        /* Blocks are numbered by rank. */
        uint32_t out = tutti__party_rank(&party, (me + n - 1 - step) % n);
        uint32_t in = tutti__party_rank(&party, (me + 2 * n - 2 - step) % n);
        int is_last = step == n - 2;

        tutti__build_send(b, right, tutti__at(step == 0 ? TUTTI__IN : TUTTI__SCRATCH, out), 1);
        if (is_last)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, left, 0, tutti__at(TUTTI__IN, in),
                                 tutti__at(is_last ? TUTTI__OUT : TUTTI__SCRATCH, in), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
