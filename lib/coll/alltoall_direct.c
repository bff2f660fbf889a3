/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct alltoall: each rank first sends every other rank its block, and then receives. The
 * algorithm also serves alltoallv, because only the two ranks of a message need its length.
 *
 * All messages are in flight at once, which suits small blocks; the pairwise algorithm has one
 * message in flight. The k-th peer of rank r is k - r (modulo n), so the ranks do not all send to
 * the same rank. A call in place needs no SCRATCH: the peer's block replaces the block that was
 * sent to this peer.
 *
 * The k-th peer of a rank's k-th peer is the rank itself. So if a call is in place and the
 * transport has no slots, two ranks take each other's blocks at the same time. If each rank
 * received from its left neighbour first, it would wait until this neighbour has taken the block
 * that the received block replaces. But the neighbour would wait for its own left neighbour in the
 * same way: a deadlock in a ring, which the checker finds. The order of peers is the same out of
 * place, because a call may be in place on some ranks only.
 *
 * Cost: (p+2)/4 alpha + (p-1)/p n beta: only the first message takes all of alpha.
 */
#include "coll/algorithms.h"

static tutti_status_t build(tutti__sizes_t sizes, const tutti__shape_t *shape,
                            const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__build_t *b = tutti__build_begin("direct", me, n, n, 0, 1);

    tutti__build_sizes(b, sizes);
    tutti__build_loop(b);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t peer = (uint32_t)(((uint64_t)k + n - me) % n);

        if (peer != me)
            tutti__build_send(b, peer, tutti__at(TUTTI__IN, peer), 1);
    }
    if (!args->in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, me), tutti__at(TUTTI__OUT, me), 1);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t peer = (uint32_t)(((uint64_t)k + n - me) % n);

        if (peer != me)
            tutti__build_recv(b, peer, 0, tutti__at(TUTTI__OUT, peer), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_alltoall_direct(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched)
{
    return build(TUTTI__ALL_EQUAL, shape, args, ret_sched);
}

tutti_status_t tutti__coll_alltoallv_direct(const tutti__shape_t *shape,
                                            const tutti__coll_args_t *args,
                                            tutti__sched_t **ret_sched)
{
    return build(TUTTI__BY_PAIR, shape, args, ret_sched);
}
