/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scan and exscan by recursive doubling: the binomial trees of all ranks at the same time
 * (Hillis, Steele: "Data parallel algorithms", CACM 29(12), 1986).
 *
 * Before step k each rank has the result of the 2^k ranks that end with itself. It sends this
 * result to the rank 2^k places further on, which adds it as the left operand.
 *
 *      rank     0     1     2     3     4
 *      step 0   0     01    12    23    34
 *      step 1   0     01    012   0123  1234
 *      step 2   0     01    012   0123  01234
 *
 * A rank may still have to send its result after the last addition, and a result that is sent must
 * not be finished. So results are in SCRATCH, and are finished on their way to OUT.
 *
 * Exscan first moves each operand to the right neighbour. The rest is the scan of the ranks from 1
 * on. Rejected: two partial results in each rank. That saves a message, but costs two reductions in
 * each step.
 *
 * Cost: ceil(lg p) (alpha + n beta + n gamma); alpha + n beta more for exscan.
 */
#include "coll/algorithms.h"

/* Append the scan of the ranks from `first` on. This rank's operand is in `have`. */
static void put_scan(tutti__build_t *b, uint32_t n, uint32_t me, uint32_t first, tutti__at_t have)
{
    tutti__at_t out = tutti__at(TUTTI__OUT, 0), tmp = tutti__at(TUTTI__SCRATCH, 0);
    uint32_t i = me - first;

    for (uint64_t far = 1; far < n - first; far *= 2) {
        int is_last = far <= i && 2 * far > i && me + far >= n; /* the result is not sent later */

        if (me + far < n)
            tutti__build_send(b, (uint32_t)(me + far), have, 1);
        if (far > i)
            continue;
        if (is_last)
            tutti__build_finish(b);
        tutti__coll_put_recv_reduce(b, (uint32_t)(me - far), 0, 1, have, is_last ? out : tmp, 1, 1);
        if (is_last)
            return;
        have = tmp;
    }
    tutti__build_finish(b);
    tutti__build_copy(b, have, out, 1);
}

tutti_status_t tutti__coll_scan_recursive_doubling(const tutti__shape_t *shape,
                                                   const tutti__coll_args_t *args,
                                                   tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("recursive_doubling", me, n, 1, 1, 1);

    tutti__build_loop(b);
    put_scan(b, n, me, 0, tutti__at(TUTTI__IN, 0));
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_exscan_recursive_doubling(const tutti__shape_t *shape,
                                                     const tutti__coll_args_t *args,
                                                     tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("recursive_doubling", me, n, 1, 1, 1);
    tutti__at_t tmp = tutti__at(TUTTI__SCRATCH, 0);

    tutti__build_loop(b);
    if (me + 1 < n)
        tutti__build_send(b, me + 1, tutti__at(TUTTI__IN, 0), 1);
    if (me > 0) {
        tutti__build_recv(b, me - 1, 0, tmp, 1);
        put_scan(b, n, me, 1, tmp);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
