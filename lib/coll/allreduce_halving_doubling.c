/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce by recursive halving and doubling (Rabenseifner: "Optimization of collective reduction
 * operations", ICCS 2004), for any number of ranks.
 *
 * The number of blocks is the largest power of two up to n. In step k a rank exchanges data with
 * the rank whose number differs in bit k: each rank sends half of its remaining blocks and reduces
 * the other half. After the last step each rank has one block of the result. It receives the other
 * blocks by the same steps in reverse.
 *
 *      number    0      1      2      3
 *      blocks  0123   0123   0123   0123
 *      bit 0   01..   ..23   01..   ..23       halves, exchanged with the neighbour
 *      bit 1   0...   ..2.   .1..   ...3       quarters, exchanged with the rank two places away
 *
 * Here neighbours exchange data in the first step; in Rabenseifner's algorithm, in the last step.
 * So the largest messages are between ranks that usually share a host. A partial result
 * always covers neighbouring members, so operands keep their order. Every element is summed by the
 * tree of recursive doubling, so both algorithms give the same bits. Blocks end in bit-reversed
 * order, which does not matter for an allreduce.
 *
 * If n is no power of two, members form pairs as in recursive doubling.
 *
 * Cost: 2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; 4 alpha + 2 n beta + n gamma more if p
 * is no power of two.
 */
#include "coll/algorithms.h"

static uint32_t message_blocks(uint32_t power)
{
    return power > 1 ? power / 2 : 1;
}

uint32_t tutti__coll_put_halve(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                               tutti__at_t dst, unsigned stream)
{
    tutti__pairs_t pairs = tutti__pairs_of(party->n);
    uint32_t me = party->me, number = tutti__pairs_number(pairs, me);
    uint32_t most = message_blocks(pairs.power), low = 0, len = pairs.power;
    tutti__at_t have = src;

    if (tutti__pairs_is_aside(pairs, me)) {
        tutti__coll_put_send(b, tutti__party_rank(party, me + 1), src, len, most);
        return UINT32_MAX;
    }
    if (me < 2 * pairs.extra) {
        tutti__coll_put_recv_reduce(b, tutti__party_rank(party, me - 1), stream, 1, src, dst, len,
                                    most);
        have = dst;
    }
    for (uint32_t bit = 1; bit < pairs.power; bit *= 2) {
        uint32_t peer = tutti__party_rank(party, tutti__pairs_proxy(pairs, number ^ bit));
        uint32_t is_upper = (number & bit) != 0;

        len /= 2;
        tutti__build_send(b, peer, tutti__beyond(have, low + (is_upper ? 0 : len)), len);
        low += is_upper ? len : 0;
        if (len == 1)
            tutti__build_finish(b);
        tutti__coll_put_recv_reduce(b, peer, stream, (int)is_upper, tutti__beyond(have, low),
                                    tutti__beyond(dst, low), len, len);
        have = dst;
    }
    return number;
}

static void put_double(tutti__build_t *b, const tutti__party_t *party, tutti__at_t dst,
                       unsigned stream, uint32_t number)
{
    tutti__pairs_t pairs = tutti__pairs_of(party->n);
    uint32_t low = tutti__coll_reversed(number, pairs.power), len = 1;

    for (uint32_t bit = pairs.power / 2; bit > 0; bit /= 2) {
        uint32_t peer = tutti__party_rank(party, tutti__pairs_proxy(pairs, number ^ bit));
        uint32_t other = low ^ len;

        tutti__build_send(b, peer, tutti__beyond(dst, low), len);
        tutti__build_recv(b, peer, stream, tutti__beyond(dst, other), len);
        low &= ~len;
        len *= 2;
    }
}

void tutti__coll_put_halving_doubling(tutti__build_t *b, const tutti__party_t *party,
                                      tutti__at_t src, tutti__at_t dst, tutti__levels_t levels,
                                      unsigned stream)
{
    tutti__pairs_t pairs = tutti__pairs_of(party->n);
    uint32_t me = party->me, most = message_blocks(pairs.power);
    uint32_t number = tutti__coll_put_halve(b, party, src, dst, stream);

    (void)levels;
    if (number == UINT32_MAX) {
        tutti__coll_put_recv(b, tutti__party_rank(party, me + 1), stream, dst, pairs.power, most);
        return;
    }
    put_double(b, party, dst, stream, number);
    if (me < 2 * pairs.extra)
        tutti__coll_put_send(b, tutti__party_rank(party, me - 1), dst, pairs.power, most);
}

tutti_status_t tutti__coll_allreduce_halving_doubling(const tutti__shape_t *shape,
                                                      const tutti__coll_args_t *args,
                                                      tutti__sched_t **ret_sched)
{
    return tutti__coll_build_between("halving_doubling", 1, shape, args, ret_sched);
}
