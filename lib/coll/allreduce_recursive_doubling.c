/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling allreduce (Thakur, Rabenseifner, Gropp: "Optimization of collective
 * communication operations in MPICH", IJHPCA 19(1), 2005).
 *
 * In step k each rank exchanges its whole partial result with the rank whose number differs in bit
 * k, and both add the same two values. Each rank sends its whole buffer lg n times, so the
 * algorithm is for small messages. If n is no power of two, the first ranks form pairs: the even
 * rank sends its data to the odd rank, steps aside (takes no part in the steps), and receives the
 * result at the end.
 *
 *      0 -> 1   2   3   4       5 ranks: 0 steps aside
 *           1 - 2   3 - 4       bit 0
 *           1 - 3   2 - 4       bit 1
 *      0 <- 1
 *
 * Every element is summed by the same tree on every rank, whatever the size of the buffer and the
 * element's place in it. A partial result always covers neighbouring members, so operands keep
 * their order: a message from a lower number is the left operand.
 *
 * Cost: floor(lg p) (alpha + n beta + n gamma); 2 (alpha + n beta) + n gamma more if p is no
 * power of two.
 */
#include "coll/algorithms.h"

/* `have` is this rank's partial result: src until the first addition. */
static void exchange(tutti__build_t *b, uint32_t peer, int left, tutti__at_t have, tutti__at_t dst,
                     unsigned stream, int is_last)
{
    tutti__build_send(b, peer, have, 1);
    if (is_last)
        tutti__build_finish(b);
    tutti__coll_put_recv_reduce(b, peer, stream, left, have, dst, 1, 1);
}

void tutti__coll_put_recursive_doubling(tutti__build_t *b, const tutti__party_t *party,
                                        tutti__at_t src, tutti__at_t dst, tutti__levels_t levels,
                                        unsigned stream)
{
    tutti__pairs_t pairs = tutti__pairs_of(party->n);
    uint32_t me = party->me, number = tutti__pairs_number(pairs, me);
    int is_pair = me < 2 * pairs.extra;
    tutti__at_t have = src;

    (void)levels;
    if (tutti__pairs_is_aside(pairs, me)) {
        uint32_t odd = tutti__party_rank(party, me + 1);

        tutti__build_send(b, odd, src, 1);
        tutti__build_recv(b, odd, stream, dst, 1);
        return;
    }
    if (is_pair) {
        tutti__coll_put_recv_reduce(b, tutti__party_rank(party, me - 1), stream, 1, src, dst, 1, 1);
        have = dst;
    }
    for (uint32_t bit = 1; bit < pairs.power; bit *= 2) {
        uint32_t peer = tutti__pairs_proxy(pairs, number ^ bit);

        exchange(b, tutti__party_rank(party, peer), (number & bit) != 0, have, dst, stream,
                 2 * bit == pairs.power);
        have = dst;
    }
    if (is_pair)
        tutti__build_send(b, tutti__party_rank(party, me - 1), dst, 1);
}

tutti_status_t tutti__coll_allreduce_recursive_doubling(const tutti__shape_t *shape,
                                                        const tutti__coll_args_t *args,
                                                        tutti__sched_t **ret_sched)
{
    return tutti__coll_build_between("recursive_doubling", 1, shape, args, ret_sched);
}
