/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dissemination barrier (Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization",
 * International Journal of Parallel Programming 17(1), 1988), with any radix (Hoefler, Mehlan,
 * Mietke, Rehm: "Fast barrier synchronization for InfiniBand", IPDPS 2006).
 *
 * With radix k, in step i each rank sends a message to the ranks k^i, 2 k^i, ... (k-1) k^i places
 * further on, and receives a message from each of the ranks at the same distances before it. After
 * step i a rank has been told, directly or not, of the arrival of k^(i+1) ranks: itself and the
 * ranks before it. So after ceil(log_k n) steps a rank has been told of the arrival of all ranks,
 * for any n. No rank is special.
 *
 * The content of a message does not matter: it is one element of SCRATCH. Messages are received
 * into another element. Otherwise, over a transport without slots, each receive would wait until
 * all receivers have taken this rank's messages. With radix 3 or more, a receiver takes its second
 * message only after its first receive has ended, so all ranks would wait for each other (found by
 * the checker).
 *
 * Cost: ceil(log_k p) steps of (k-1) alpha, which overlap.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_barrier_dissemination(const tutti__shape_t *shape,
                                                 const tutti__coll_args_t *args,
                                                 tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, rank = args->rank, radix = args->radix != 0 ? args->radix : 2;
    tutti__build_t *b = tutti__build_begin("dissemination", rank, n, 1, 2, 1);
    tutti__at_t token = tutti__at(TUTTI__SCRATCH, 0), taken = tutti__at(TUTTI__SCRATCH, 1);

    tutti__build_loop(b);
    for (uint64_t unit = 1; unit < n; unit *= radix) {
        for (uint64_t far = unit; far < unit * radix && far < n; far += unit)
            tutti__build_send(b, (uint32_t)((rank + far) % n), token, 1);
        for (uint64_t far = unit; far < unit * radix && far < n; far += unit)
            tutti__build_recv(b, (uint32_t)((rank + n - far) % n), 0, taken, 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
