/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring alltoall: each rank sends all blocks for other ranks to its right neighbour. The neighbour
 * takes its own block and passes on the rest.
 *
 *      rank 0 of 4:   1 2 3 -->  rank 1: keeps 1, passes 2 3 --> rank 2: keeps 2, passes 3 -->
 *
 * In step j a message has n - j blocks, all from one rank, in the order of their destinations on
 * the ring. Each byte crosses n/2 links on average, so in a network with many links the pairwise
 * algorithm is better. But here a rank needs slots and connections for two neighbours only.
 *
 * Blocks on their way are in SCRATCH. In the first step the blocks to send begin after the rank's
 * own block and cross the end of IN, so they take two messages. A rank receives each message before
 * it sends the next; otherwise all ranks would wait for each other.
 *
 * Cost: (p-1) alpha + (p-1)/2 n beta.
 */
#include "coll/algorithms.h"

typedef struct {
    tutti__build_t *b;
    uint32_t n, me, left, right;
} ring_t;

/* One message of the first step: send a piece of this rank's blocks to the right, and receive a
   piece from the left into SCRATCH, from `at` on. */
static void put_piece(const ring_t *ring, uint32_t begin, uint32_t n, uint32_t at, uint32_t n_left)
{
    if (n > 0)
        tutti__build_send(ring->b, ring->right, tutti__at(TUTTI__IN, begin), n);
    if (n_left > 0)
        tutti__build_recv(ring->b, ring->left, 0, tutti__at(TUTTI__SCRATCH, at), n_left);
}

static void put(const ring_t *ring, int in_place)
{
    tutti__build_t *b = ring->b;
    uint32_t n = ring->n, me = ring->me;

    if (!in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, me), tutti__at(TUTTI__OUT, me), 1);
    put_piece(ring, me + 1, n - 1 - me, 0, n - 1 - ring->left);
    put_piece(ring, 0, me, n - 1 - ring->left, ring->left);
    for (uint32_t step = 1; step < n; step++) {
        uint32_t from = (uint32_t)(((uint64_t)me + n - step) % n), rest = n - 1 - step;

        tutti__build_copy(b, tutti__at(TUTTI__SCRATCH, 0), tutti__at(TUTTI__OUT, from), 1);
        if (rest == 0)
            break;
        tutti__build_send(b, ring->right, tutti__at(TUTTI__SCRATCH, 1), rest);
        tutti__build_recv(b, ring->left, 0, tutti__at(TUTTI__SCRATCH, 0), rest);
    }
}

tutti_status_t tutti__coll_alltoall_ring(const tutti__shape_t *shape,
                                         const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, most = n > 1 ? n - 1 : 1;
    ring_t ring = { .n = n, .me = me, .left = (me + n - 1) % n, .right = (me + 1) % n };

    ring.b = tutti__build_begin("ring", me, n, n, most, most);
    tutti__build_sizes(ring.b, TUTTI__ALL_EQUAL);
    tutti__build_loop(ring.b);
    put(&ring, args->in_place);
    tutti__build_end_loop(ring.b);
    return tutti__build_end(ring.b, ret_sched);
}
