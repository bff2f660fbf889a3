/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's allgather (Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8(11), 1997). Blocks may vary in
 * length.
 *
 * The ranks form a circle. At first a rank has only its own block, then 2, 4 ... blocks. A rank
 * with k blocks sends all of them to the rank k places before it, so in each step each rank's
 * number of blocks doubles.
 *
 *      5 ranks, rank 0:   0        0 1         0 1 2 3        0 1 2 3 4
 *                         gets 1   gets 2 3    gets 4
 *
 * The number of steps is the smallest for any number of ranks, and no byte is received twice. The
 * original algorithm keeps blocks in the order of the circle and rotates them at the end. Here each
 * block is in its place from the beginning. An arc (a run of blocks of the circle) that crosses the
 * circle's end takes two messages.
 *
 * Cost: ceil(lg p) alpha + (p-1)/p n beta; at most twice the alpha for ranks whose arcs cross the
 * circle's end.
 */
#include "base/compiler.h"
#include "coll/algorithms.h"

tutti_status_t tutti__coll_allgather_bruck(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("bruck", me, n, n, 0, tutti__coll_arc_blocks(n));

    tutti__build_loop(b);
    if (!args->in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, me), tutti__at(TUTTI__OUT, me), 1);
    for (uint64_t far = 1; far < n; far *= 2) {
        uint32_t count = (uint32_t)TUTTI__MIN(far, n - far);
        uint32_t before = (uint32_t)((me + n - far) % n), behind = (uint32_t)((me + far) % n);

        tutti__coll_put_send_arc(b, before, TUTTI__OUT, me, count, n);
        tutti__coll_put_recv_arc(b, behind, TUTTI__OUT, behind, count, n);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
