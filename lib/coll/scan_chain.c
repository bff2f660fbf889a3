/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scan and exscan along a chain, pipelined (see Sanders, Träff: "Parallel prefix (scan) algorithms
 * for MPI", EuroPVM/MPI 2006).
 *
 *      0 --a--> 1 --ab--> 2 --abc--> 3
 *
 * Each rank combines the message, as the left operand, with its own data and passes the result on,
 * chunk after chunk. A rank sends the buffer once. So for large messages the algorithm is as fast
 * as a link, for any number of ranks.
 *
 * The data passed on are not finished, and are not the result of exscan. So they are in SCRATCH.
 *
 * Cost, with chunks of m: (p-2 + n/m) (alpha + m beta + m gamma).
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_scan_chain(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                      tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__at_t have = tutti__at(TUTTI__IN, 0), out = tutti__at(TUTTI__OUT, 0);
    tutti__at_t tmp = tutti__at(TUTTI__SCRATCH, 0);
    int is_last = me == n - 1;
    tutti__build_t *b = tutti__build_begin("chain", me, n, 1, 1, 1);

    tutti__build_loop(b);
    if (me > 0) {
        if (is_last)
            tutti__build_finish(b);
        tutti__coll_put_recv_reduce(b, me - 1, 0, 1, have, is_last ? out : tmp, 1, 1);
        have = tmp;
    }
    if (!is_last)
        tutti__build_send(b, me + 1, have, 1);
    if (!is_last || me == 0) {
        tutti__build_finish(b);
        tutti__build_copy(b, have, out, 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_exscan_chain(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                        tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__at_t in = tutti__at(TUTTI__IN, 0);
    tutti__at_t before = tutti__at(TUTTI__SCRATCH, 0), with = tutti__at(TUTTI__SCRATCH, 1);
    tutti__build_t *b = tutti__build_begin("chain", me, n, 1, 2, 1);

    tutti__build_loop(b);
    if (me > 0)
        tutti__build_recv(b, me - 1, 0, before, 1);
    if (me > 0 && me < n - 1) {
        tutti__build_copy(b, before, with, 1);
        tutti__build_reduce(b, in, with, 1);
    }
    if (me < n - 1)
        tutti__build_send(b, me + 1, me > 0 ? with : in, 1);
    if (me > 0) {
        tutti__build_finish(b);
        tutti__build_copy(b, before, tutti__at(TUTTI__OUT, 0), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
