/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring allgather: the second half of the ring allreduce (see allreduce_ring.c). Blocks may vary in
 * length.
 *
 * In n - 1 steps each rank passes on the block that it has received last; in the first step, its
 * own block. Each link transfers n - 1 of the n blocks, which is the minimum. The ring goes host by
 * host, so only one rank of a host sends to the next host.
 *
 * A rank copies its own block while the first message is in flight.
 *
 * Cost: (p-1) alpha + (p-1)/p n beta.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_allgather_ring(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    uint32_t n = party.n, me = party.me;
    uint32_t right = tutti__party_rank(&party, (me + 1) % n);
    uint32_t left = tutti__party_rank(&party, (me + n - 1) % n);
    uint32_t out = args->rank; /* blocks are numbered by rank */
    tutti__build_t *b = tutti__build_begin("ring", args->rank, n, n, 0, 1);

    tutti__build_loop(b);
    if (n > 1)
        tutti__build_send(b, right, tutti__at(TUTTI__IN, out), 1);
    if (!args->in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, out), tutti__at(TUTTI__OUT, out), 1);
    for (uint32_t step = 1; step < n; step++) {
        uint32_t in = tutti__party_rank(&party, (me + n - step) % n);

        tutti__build_recv(b, left, 0, tutti__at(TUTTI__OUT, in), 1);
        if (step < n - 1)
            tutti__build_send(b, right, tutti__at(TUTTI__OUT, in), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
