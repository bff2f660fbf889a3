/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling allreduce (Thakur, Rabenseifner, Gropp: "Optimization of collective
 * communication operations in MPICH", IJHPCA 19(1), 2005).
 *
 * In step k every rank exchanges all it has with the rank whose number differs in bit k, and both
 * add the same two values. lg n steps, n lg n bytes: for small messages. Where n is no power of
 * two, the first ranks pair up: the even one hands its data to the odd one, steps aside, and is
 * given the result at the end.
 *
 *      0 -> 1   2   3   4       5 ranks: 0 steps aside
 *           1 - 2   3 - 4       bit 0
 *           1 - 3   2 - 4       bit 1
 *      0 <- 1
 *
 * Every element is summed by the same tree on every rank, whatever the size of the buffer and its
 * place in it. The two ranks of an exchange add a (op) b and b (op) a, which are the same bits.
 * Every rank divides its own last sum (FINISH), but for those that stepped aside: they get theirs
 * finished.
 */
#include "coll/algorithms.h"

/* What each rank has at the moment is read from `have`: src until something was added. */
static void exchange(tutti__build_t *b, uint32_t peer, tutti__at_t have, tutti__at_t dst,
                     unsigned stream, int is_last)
{
    tutti__build_send(b, peer, have, 1);
    if (is_last)
        tutti__build_finish(b);
    tutti__build_recv_reduce(b, peer, stream, have, dst, 1);
}

void tutti__coll_put_recursive_doubling(tutti__build_t *b, const tutti__party_t *party,
                                        tutti__at_t src, tutti__at_t dst, unsigned stream)
{
    uint32_t me = party->me, power = 1, extra, mine;
    tutti__at_t have = src;
    int is_pair;

    while (power <= party->n / 2)
        power *= 2;
    extra = party->n - power;
    is_pair = me < 2 * extra;

    if (is_pair && me % 2 == 0) {
        uint32_t odd = tutti__party_rank(party, me + 1);

        tutti__build_send(b, odd, src, 1);
        tutti__build_recv(b, odd, stream, dst, 1);
        return;
    }
    if (is_pair) {
        tutti__build_recv_reduce(b, tutti__party_rank(party, me - 1), stream, src, dst, 1);
        have = dst;
    }

    /* Numbers without those that stepped aside. */
    mine = is_pair ? me / 2 : me - extra;
    for (uint32_t bit = 1; bit < power; bit *= 2) {
        uint32_t other = mine ^ bit;
        uint32_t peer = other < extra ? 2 * other + 1 : other + extra;

        exchange(b, tutti__party_rank(party, peer), have, dst, stream, 2 * bit == power);
        have = dst;
    }
    if (is_pair)
        tutti__build_send(b, tutti__party_rank(party, me - 1), dst, 1);
}

tutti_status_t tutti__coll_build_recursive_doubling(const tutti__shape_t *shape,
                                                    const tutti__coll_args_t *args,
                                                    tutti__sched_t **ret_sched)
{
    return tutti__coll_build_flat("recursive_doubling", tutti__coll_put_recursive_doubling, 1,
                                  shape, args, ret_sched);
}
