/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's alltoall (Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8(11), 1997).
 *
 * The distance that a block travels around the circle of ranks is a sum of powers of two. In step k
 * a rank sends all blocks whose distance has bit k, in one message, to the rank 2^k places further
 * on. So there are lg n steps with half of the blocks each, instead of n - 1 steps with one block
 * each.
 *
 *      distance  0    1    2    3    4      5 ranks
 *      step 0         x         x           one further
 *      step 1              x    x           two further
 *      step 2                        x      four further
 *
 * The first n blocks of SCRATCH are the data, ordered by distance. The blocks of a step are not
 * contiguous there, so they are packed into SCRATCH behind these n blocks. At the end the block
 * with distance i is from the rank i places before.
 *
 * Cost: ceil(lg p) (alpha + n/2 beta), and copies that pack and unpack each message. The algorithm
 * is for small blocks.
 */
#include "base/compiler.h"
#include "coll/algorithms.h"

typedef struct {
    tutti__build_t *b;
    uint32_t n, me;
} bruck_t;

/* Pack or unpack the blocks of the step over distance `bit`. Returns their number. */
static uint32_t put_pack(const bruck_t *bruck, uint32_t bit, int is_unpack)
{
    uint32_t packed = 0;

    for (uint64_t i = bit; i < bruck->n; i += 2 * (uint64_t)bit) {
        uint32_t run = (uint32_t)TUTTI__MIN(bit, bruck->n - i);
        tutti__at_t place = tutti__at(TUTTI__SCRATCH, (uint32_t)i);
        tutti__at_t together = tutti__at(TUTTI__SCRATCH, bruck->n + packed);

        tutti__build_copy(bruck->b, is_unpack ? together : place, is_unpack ? place : together,
                          run);
        packed += run;
    }
    return packed;
}

static void put_step(const bruck_t *bruck, uint32_t bit)
{
    uint32_t n = bruck->n, me = bruck->me, packed = put_pack(bruck, bit, 0);
    tutti__at_t together = tutti__at(TUTTI__SCRATCH, n);

    tutti__build_send(bruck->b, (uint32_t)(((uint64_t)me + bit) % n), together, packed);
    tutti__build_recv(bruck->b, (uint32_t)(((uint64_t)me + n - bit) % n), 0, together, packed);
    put_pack(bruck, bit, 1);
}

tutti_status_t tutti__coll_alltoall_bruck(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank, half = n > 1 ? n / 2 : 1;
    bruck_t bruck = { .n = n, .me = me };

    bruck.b = tutti__build_begin("bruck", me, n, n, n + half, half);
    tutti__build_sizes(bruck.b, TUTTI__ALL_EQUAL);
    tutti__build_loop(bruck.b);
    tutti__build_copy(bruck.b, tutti__at(TUTTI__IN, me), tutti__at(TUTTI__SCRATCH, 0), n - me);
    if (me > 0)
        tutti__build_copy(bruck.b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__SCRATCH, n - me), me);
    for (uint64_t bit = 1; bit < n; bit *= 2)
        put_step(&bruck, (uint32_t)bit);
    for (uint32_t i = 0; i < n; i++)
        tutti__build_copy(bruck.b, tutti__at(TUTTI__SCRATCH, i),
                          tutti__at(TUTTI__OUT, (uint32_t)(((uint64_t)me + n - i) % n)), 1);
    tutti__build_end_loop(bruck.b);
    return tutti__build_end(bruck.b, ret_sched);
}
