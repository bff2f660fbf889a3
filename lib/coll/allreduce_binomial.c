/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree allreduce: reduce to rank 0, broadcast from it (as in Thakur, Rabenseifner, Gropp:
 * "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005).
 *
 *      0 <--- 4 <--- 6 <--- 7       up: a rank reduces a range of ranks that begins with itself. So
 *      |      +----- 5              each message is of higher ranks, and operands keep their order.
 *      +----- 2 <--- 3              Down: the same tree
 *      +----- 1
 *
 * Stream 0 goes up, stream 1 down, so chunk t goes down while chunk t + 1 goes up. Stream 1 writes
 * to the memory of stream 0's partial result. In place, this is also the memory of stream 0's
 * operand. So stream 1 waits until stream 0 has finished the chunk.
 *
 * The tree has 2 (n - 1) messages in total. Recursive doubling has n lg n, but half the steps.
 *
 * Cost: 2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma; with many chunks, lg p n
 * beta at rank 0.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_allreduce_binomial(const tutti__shape_t *shape,
                                              const tutti__coll_args_t *args,
                                              tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_ranked(shape, args->rank);
    tutti__at_t in = tutti__at(TUTTI__IN, 0), out = tutti__at(TUTTI__OUT, 0);
    tutti__build_t *b = tutti__build_begin("binomial", args->rank, party.n, 1, 0, 1);

    if (party.n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, in, out, 1);
        return tutti__build_end(b, ret_sched);
    }
    tutti__build_loop(b);
    tutti__coll_put_tree_up(b, &party, in, out, 1, 0, 1);
    tutti__build_mark_last(b);
    tutti__build_end_loop(b);

    tutti__build_stream(b, 1);
    tutti__build_loop(b);
    tutti__build_wait(b, 0, 1);
    tutti__coll_put_tree_down(b, &party, 0, out, 1, 1);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
