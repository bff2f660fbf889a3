/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree gather (as in Thakur, Rabenseifner, Gropp: "Optimization of collective
 * communication operations in MPICH", IJHPCA 19(1), 2005).
 *
 * Ranks are numbered from the root on, around the circle. Rank v collects the blocks of 1, 2, 4 ...
 * ranks, from v on, and sends all these blocks to v without its lowest set bit:
 *
 *      0 <--- 4 <--- 6 <--- 7       in order of time: 1 -> 0, 3 -> 2, 5 -> 4, 7 -> 6,
 *      |      +----- 5                                2 -> 0, 6 -> 4, and 4 -> 0
 *      +----- 2 <--- 3
 *      +----- 1
 *
 * Blocks on their way are in SCRATCH, each at its own number. A run of blocks that crosses the
 * circle's end takes two messages.
 *
 * Cost: ceil(lg p) alpha + (p-1)/p n beta.
 */
#include "base/compiler.h"
#include "coll/algorithms.h"

tutti_status_t tutti__coll_gather_binomial(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, root = args->root;
    uint32_t v = (uint32_t)(((uint64_t)me + n - root) % n);
    int is_leaf = v % 2 == 1 || v + 1 == n;
    tutti__buf_t buf = v == 0 ? TUTTI__OUT : is_leaf ? TUTTI__IN : TUTTI__SCRATCH;
    tutti__build_t *b = tutti__build_begin("binomial", me, n, n, n, tutti__coll_arc_blocks(n));
    uint64_t bit = 1;

    tutti__build_loop(b);
    if (buf == TUTTI__SCRATCH || (v == 0 && !args->in_place))
        tutti__build_copy(b, tutti__at(TUTTI__IN, me), tutti__at(buf, me), 1);
    for (; bit < n && !(v & bit); bit *= 2) {
        uint32_t child = (uint32_t)((me + bit) % n);

        if (v + bit < n)
            tutti__coll_put_recv_arc(b, child, buf, child, (uint32_t)TUTTI__MIN(bit, n - v - bit),
                                     n);
    }
    if (v != 0)
        tutti__coll_put_send_arc(b, (uint32_t)((me + n - bit) % n), buf, me,
                                 (uint32_t)TUTTI__MIN(bit, (uint64_t)(n - v)), n);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
