/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring allreduce (Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", JPDC 69(2), 2009).
 *
 * The buffer is cut into n blocks. In n - 1 steps the blocks travel around the ring and each rank
 * adds its own data. Rank i then has the whole sum of block i + 1, and in n - 1 further steps the
 * sums travel around.
 *
 *      rank 0 --block 0--> rank 1 --block 1--> rank 2
 *        ^                                       |
 *        +----------------block 2----------------+
 *
 * Each rank sends 2 (n-1)/n of the buffer, the minimum, to one neighbour only. The price is 2 (n-1)
 * sequential steps. Each block is summed once, in ring order from its first owner on, and then
 * copied, so all ranks have the same bits. But different blocks start at different ranks, so an
 * element's association depends on its place in the buffer.
 *
 * A call out of place needs no initial copy: a rank reads its own data from src when it adds them.
 *
 * Cost: 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma.
 */
#include "coll/algorithms.h"

void tutti__coll_put_ring(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                          tutti__at_t dst, tutti__levels_t levels, unsigned stream)
{
    uint32_t n = party->n, me = party->me;
    uint32_t right = tutti__party_rank(party, (me + 1) % n);
    uint32_t left = tutti__party_rank(party, (me + n - 1) % n);

    (void)levels;
    for (uint32_t step = 0; step < n - 1; step++) {
        uint32_t out = (me + n - step) % n;
        uint32_t in = (out + n - 1) % n;

        tutti__build_send(b, right, tutti__beyond(step == 0 ? src : dst, out), 1);
        if (step == n - 2)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, left, stream, tutti__beyond(src, in), tutti__beyond(dst, in),
                                 1);
    }
    for (uint32_t step = 0; step < n - 1; step++) {
        uint32_t out = (me + 1 + n - step) % n;
        uint32_t in = (out + n - 1) % n;

        tutti__build_send(b, right, tutti__beyond(dst, out), 1);
        tutti__build_recv(b, left, stream, tutti__beyond(dst, in), 1);
    }
}

tutti_status_t tutti__coll_allreduce_ring(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    return tutti__coll_build_between("ring", 0, shape, args, ret_sched);
}
