/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dissemination barrier (Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization",
 * International Journal of Parallel Programming 17(1), 1988).
 *
 * In step k every rank tells the rank 2^k further on that it has come, and hears from the one 2^k
 * before it. After step k a rank has heard, directly or not, from the 2^(k+1) ranks up to itself;
 * so after ceil(lg n) steps from all, for any n. No rank is special.
 *
 * What a message says does not matter, only that it came: one element of SCRATCH.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_build_dissemination(const tutti__shape_t *shape,
                                               const tutti__coll_args_t *args,
                                               tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, rank = args->rank;
    tutti__build_t *b = tutti__build_begin("dissemination", rank, n, 1, 1, 1);
    tutti__at_t token = tutti__at(TUTTI__SCRATCH, 0);

    tutti__build_loop(b);
    for (uint64_t far = 1; far < n; far *= 2) {
        tutti__build_send(b, (uint32_t)((rank + far) % n), token, 1);
        tutti__build_recv(b, (uint32_t)((rank + n - far) % n), 0, token, 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
