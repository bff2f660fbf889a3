/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce by reduce-scatter and gather (Rabenseifner: "Optimization of collective reduction
 * operations", ICCS 2004), for any number of ranks.
 *
 * The first half is the first half of allreduce_halving_doubling.c: at its end each rank that has
 * not stepped aside has one block of the result. The second half has the same steps in reverse, but
 * in each pair only one rank receives the other rank's blocks: the rank whose number equals the
 * root's number in the bit of this step.
 *
 *      number 2 is root:    0 -> 2    1 -> 3      the far bit first
 *                           3 -> 2                then the near bit
 *
 * If the root has stepped aside in the first half, it replaces its proxy in the second half.
 *
 * Partial results are in SCRATCH, because only the root has an OUT.
 *
 * Cost: 2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; 2 alpha + n beta + n gamma more if p is
 * no power of two.
 */
#include "coll/algorithms.h"

/* The rank that gathers for a number. */
static uint32_t holder(tutti__pairs_t pairs, uint32_t number, uint32_t root)
{
    return number == tutti__pairs_number(pairs, root) ? root : tutti__pairs_proxy(pairs, number);
}

/* The second half. The number's block is already in dst. */
static void put_gather(tutti__build_t *b, tutti__pairs_t pairs, uint32_t number, uint32_t root,
                       tutti__at_t dst)
{
    uint32_t low = tutti__coll_reversed(number, pairs.power), len = 1;
    uint32_t away = number ^ tutti__pairs_number(pairs, root);

    for (uint32_t bit = pairs.power / 2; bit > 0; bit /= 2) {
        uint32_t peer = holder(pairs, number ^ bit, root);

        if (away & bit) {
            tutti__build_send(b, peer, tutti__beyond(dst, low), len);
            return;
        }
        tutti__build_recv(b, peer, 0, tutti__beyond(dst, low ^ len), len);
        low &= ~len;
        len *= 2;
    }
}

static void put(tutti__build_t *b, const tutti__shape_t *shape, uint32_t me, uint32_t root)
{
    tutti__party_t party = tutti__party_ranked(shape, me);
    tutti__pairs_t pairs = tutti__pairs_of(party.n);
    tutti__at_t dst = tutti__at(me == root ? TUTTI__OUT : TUTTI__SCRATCH, 0);
    uint32_t number = tutti__coll_put_halve(b, &party, tutti__at(TUTTI__IN, 0), dst, 0), block;

    if (number == UINT32_MAX && me != root)
        return;
    if (number == UINT32_MAX)
        number = tutti__pairs_number(pairs, root);
    block = tutti__coll_reversed(number, pairs.power);
    if (tutti__pairs_is_aside(pairs, root) && me == root) {
        tutti__build_recv(b, me + 1, 0, tutti__beyond(dst, block), 1);
    } else if (tutti__pairs_is_aside(pairs, root) && me == root + 1) {
        tutti__build_send(b, root, tutti__beyond(dst, block), 1);
        return;
    }
    put_gather(b, pairs, number, root, dst);
}

tutti_status_t tutti__coll_reduce_scatter_gather(const tutti__shape_t *shape,
                                                 const tutti__coll_args_t *args,
                                                 tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, power = tutti__power_upto(n);
    tutti__build_t *b = tutti__build_begin("scatter_gather", args->rank, n, power, power,
                                           power > 1 ? power / 2 : 1);

    if (n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
        return tutti__build_end(b, ret_sched);
    }
    tutti__build_loop(b);
    put(b, shape, args->rank, args->root);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
