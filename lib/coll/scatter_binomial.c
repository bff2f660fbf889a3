/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree scatter: gather_binomial.c in reverse.
 *
 * Ranks are numbered from the root on, around the circle. Rank v receives as many blocks as the
 * value of its lowest set bit, from block v on. It sends the upper half to a child, then the upper
 * half of the rest to the next child, and so on, the largest subtree first. Its own block remains.
 *
 *      0 ---> 4 ---> 6 ---> 7
 *      |      +----> 5
 *      +----> 2 ---> 3
 *      +----> 1
 *
 * Blocks on their way are in SCRATCH, each at its own number. A run of blocks that crosses the
 * circle's end takes two messages.
 *
 * Cost: ceil(lg p) alpha + (p-1)/p n beta.
 */
#include "base/compiler.h"
#include "coll/algorithms.h"

tutti_status_t tutti__coll_scatter_binomial(const tutti__shape_t *shape,
                                            const tutti__coll_args_t *args,
                                            tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, root = args->root;
    uint32_t v = (uint32_t)(((uint64_t)me + n - root) % n);
    int is_leaf = v % 2 == 1 || v + 1 == n;
    tutti__buf_t buf = v == 0 ? TUTTI__IN : is_leaf ? TUTTI__OUT : TUTTI__SCRATCH;
    tutti__build_t *b = tutti__build_begin("binomial", me, n, n, n, tutti__coll_arc_blocks(n));
    uint64_t bit = 1;

    tutti__build_loop(b);
    while (bit < n && !(v & bit))
        bit *= 2;
    if (v != 0)
        tutti__coll_put_recv_arc(b, (uint32_t)((me + n - bit) % n), buf, me,
                                 (uint32_t)TUTTI__MIN(bit, (uint64_t)(n - v)), n);
    for (bit /= 2; bit > 0; bit /= 2) {
        uint32_t child = (uint32_t)((me + bit) % n);

        if (v + bit < n)
            tutti__coll_put_send_arc(b, child, buf, child, (uint32_t)TUTTI__MIN(bit, n - v - bit),
                                     n);
    }
    if (buf == TUTTI__SCRATCH || (v == 0 && !args->in_place))
        tutti__build_copy(b, tutti__at(buf, me), tutti__at(TUTTI__OUT, me), 1);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
