/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast along a chain, pipelined (Pješivac-Grbović et al.: "Performance analysis of MPI
 * collective operations", Cluster Computing 10(2), 2007).
 *
 *      root --> next --> next --> ... --> last       host by host, from the root on
 *
 * Each rank passes on one chunk while it receives the next, and sends the buffer once. If there are
 * so many chunks that the time to fill the chain does not matter, the algorithm is as fast as a
 * link, for any number of ranks.
 *
 * Cost, with chunks of m: (p-2 + n/m) (alpha + m beta).
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_broadcast_chain(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    uint32_t n = party.n, me = party.me, root = tutti__party_all(shape, args->root).me;
    uint32_t next = (uint32_t)(((uint64_t)me + 1) % n);
    tutti__build_t *b = tutti__build_begin("chain", args->rank, n, 1, 0, 1);
    tutti__at_t data = tutti__at(TUTTI__OUT, 0);

    tutti__build_loop(b);
    if (me != root)
        tutti__build_recv(b, tutti__party_rank(&party, me > 0 ? me - 1 : n - 1), 0, data, 1);
    if (next != root)
        tutti__build_send(b, tutti__party_rank(&party, next), data, 1);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
