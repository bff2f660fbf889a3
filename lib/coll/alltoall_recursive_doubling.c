/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling alltoall, the hypercube exchange (Johnsson, Ho: "Optimum broadcasting and
 * personalized communication in hypercubes", IEEE Transactions on Computers 38(9), 1989). The
 * number of ranks must be a power of two.
 *
 * In step k a rank exchanges blocks with a peer: the rank whose number differs in bit k. The peer
 * gets all blocks whose destinations have the peer's bit k. The received blocks take the places of
 * the sent ones. In the end the block from rank s is at place s, without a rotation.
 *
 *      rank 0 of 4, places      0     1     2     3
 *      at first                 0>0   0>1   0>2   0>3
 *      with 1, places 1 and 3   0>0   1>0   0>2   1>2
 *      with 2, places 2 and 3   0>0   1>0   2>0   3>0
 *
 * The blocks of a step are not contiguous, so they are packed in SCRATCH, except in the last step.
 *
 * Cost: lg p (alpha + n/2 beta), and copies that pack and unpack each message. The algorithm is for
 * small blocks.
 */
#include "coll/algorithms.h"

/* Pack every second run of `bit` blocks, from block `first` on, into SCRATCH; or unpack them. */
static void put_pack(tutti__build_t *b, uint32_t n, uint32_t bit, uint32_t first, int is_unpack)
{
    uint32_t packed = 0;

    for (uint32_t i = first; i < n; i += 2 * bit) {
        tutti__at_t place = tutti__at(TUTTI__OUT, i), together = tutti__at(TUTTI__SCRATCH, packed);

        tutti__build_copy(b, is_unpack ? together : place, is_unpack ? place : together, bit);
        packed += bit;
    }
}

static void put_step(tutti__build_t *b, uint32_t n, uint32_t me, uint32_t bit)
{
    uint32_t peer = me ^ bit, first = (me & bit) != 0 ? 0 : bit;
    int is_one_run = 2 * bit == n;
    tutti__at_t at = is_one_run ? tutti__at(TUTTI__OUT, first) : tutti__at(TUTTI__SCRATCH, 0);

    if (!is_one_run)
        put_pack(b, n, bit, first, 0);
    tutti__build_send(b, peer, at, n / 2);
    tutti__build_recv(b, peer, 0, at, n / 2);
    if (!is_one_run)
        put_pack(b, n, bit, first, 1);
}

tutti_status_t tutti__coll_alltoall_recursive_doubling(const tutti__shape_t *shape,
                                                       const tutti__coll_args_t *args,
                                                       tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, half = n > 1 ? n / 2 : 1;
    tutti__build_t *b = tutti__build_begin("recursive_doubling", me, n, n, half, half);

    tutti__build_sizes(b, TUTTI__ALL_EQUAL);
    tutti__build_loop(b);
    if (!args->in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), n);
    for (uint32_t bit = 1; bit < n; bit *= 2)
        put_step(b, n, me, bit);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
