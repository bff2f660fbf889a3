/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce along a chain, pipelined (Pješivac-Grbović et al.: "Performance analysis of MPI
 * collective operations", Cluster Computing 10(2), 2007).
 *
 *      0 --> 1 --> root <-- 3 <-- 4 <-- 5
 *
 * Two chains meet at the root; each rank adds its own data and passes the result on, chunk after
 * chunk. No rank sends more than the buffer once. If there are so many chunks that the time to fill
 * the chain does not matter, the algorithm is as fast as a link, for any number of ranks. A message
 * from a lower rank is the left operand, so operands keep their order.
 *
 * Cost, with chunks of m: (p-2 + n/m) (alpha + m beta + m gamma).
 */
#include "coll/algorithms.h"

/* If is_there: add the message of `peer` to the data in `have`. Returns the result's place. */
static tutti__at_t put_take(tutti__build_t *b, int is_there, uint32_t peer, int left,
                            tutti__at_t have, tutti__at_t dst, int finish)
{
    if (!is_there)
        return have;
    if (finish)
        tutti__build_finish(b);
    tutti__coll_put_recv_reduce(b, peer, 0, left, have, dst, 1, 1);
    return dst;
}

tutti_status_t tutti__coll_reduce_chain(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                        tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, root = args->root;
    tutti__at_t have = tutti__at(TUTTI__IN, 0);
    tutti__at_t dst = tutti__at(me == root ? TUTTI__OUT : TUTTI__SCRATCH, 0);
    int has_below = me > 0 && me <= root, has_above = me < n - 1 && me >= root;
    tutti__build_t *b = tutti__build_begin("chain", me, n, 1, 1, 1);

    if (n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, have, dst, 1);
        return tutti__build_end(b, ret_sched);
    }
    tutti__build_loop(b);
    have = put_take(b, has_below, me - 1, 1, have, dst, me == root && !has_above);
    have = put_take(b, has_above, me + 1, 0, have, dst, me == root);
    if (me != root)
        tutti__build_send(b, me < root ? me + 1 : me - 1, have, 1);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
