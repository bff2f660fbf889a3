/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling allgather, for any number of ranks and blocks of any lengths (Thakur,
 * Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH", IJHPCA
 * 19(1), 2005).
 *
 * In step k two ranks whose numbers differ in bit k exchange all their blocks. A rank's blocks are
 * contiguous, because neighbouring ranks exchange blocks in the first step. If n is no power of
 * two, the first ranks form pairs: the even rank sends its block to the odd rank, and receives all
 * other blocks at the end.
 *
 * All messages of a step are between two ranks, so the algorithm suits networks with bidirectional
 * links between few peers. Bruck's allgather needs no extra step if n is no power of two.
 *
 * Cost: lg p alpha + (p-1)/p n beta; 2 alpha + n beta more if p is no power of two.
 */
#include "coll/algorithms.h"

/* The even rank of a pair, whose block is `own`, receives all other blocks from the odd rank. */
static void put_rest(tutti__build_t *b, uint32_t peer, int is_send, uint32_t own, uint32_t n,
                     uint32_t most)
{
    tutti__at_t low = tutti__at(TUTTI__OUT, 0), high = tutti__at(TUTTI__OUT, own + 1);

    if (is_send) {
        tutti__coll_put_send(b, peer, low, own, most);
        tutti__coll_put_send(b, peer, high, n - own - 1, most);
    } else {
        tutti__coll_put_recv(b, peer, 0, low, own, most);
        tutti__coll_put_recv(b, peer, 0, high, n - own - 1, most);
    }
}

static void put_doubling(tutti__build_t *b, tutti__pairs_t pairs, uint32_t number)
{
    for (uint32_t bit = 1; bit < pairs.power; bit *= 2) {
        uint32_t peer = tutti__pairs_proxy(pairs, number ^ bit);
        uint32_t mine = number & ~(bit - 1), theirs = mine ^ bit;
        uint32_t begin = tutti__pairs_first(pairs, mine), other = tutti__pairs_first(pairs, theirs);

        tutti__build_send(b, peer, tutti__at(TUTTI__OUT, begin),
                          tutti__pairs_first(pairs, mine + bit) - begin);
        tutti__build_recv(b, peer, 0, tutti__at(TUTTI__OUT, other),
                          tutti__pairs_first(pairs, theirs + bit) - other);
    }
}

tutti_status_t tutti__coll_allgather_recursive_doubling(const tutti__shape_t *shape,
                                                        const tutti__coll_args_t *args,
                                                        tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__pairs_t pairs = tutti__pairs_of(n);
    uint32_t most = n > 1 ? tutti__pairs_first(pairs, pairs.power / 2) : 1;
    int is_aside = tutti__pairs_is_aside(pairs, me);
    tutti__build_t *b = tutti__build_begin("recursive_doubling", me, n, n, 0, most);

    tutti__build_loop(b);
    if (is_aside)
        tutti__build_send(b, me + 1, tutti__at(TUTTI__IN, me), 1);
    if (!args->in_place)
        tutti__build_copy(b, tutti__at(TUTTI__IN, me), tutti__at(TUTTI__OUT, me), 1);
    if (is_aside) {
        put_rest(b, me + 1, 0, me, n, most);
    } else {
        if (me < 2 * pairs.extra)
            tutti__build_recv(b, me - 1, 0, tutti__at(TUTTI__OUT, me - 1), 1);
        put_doubling(b, pairs, tutti__pairs_number(pairs, me));
        if (me < 2 * pairs.extra)
            put_rest(b, me - 1, 1, me - 1, n, most);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
