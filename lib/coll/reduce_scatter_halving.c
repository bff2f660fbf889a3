/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter by recursive halving, for any number of ranks and any lengths of blocks (Thakur,
 * Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH", IJHPCA
 * 19(1), 2005).
 *
 * This works like the first half of allreduce_halving_doubling.c: neighbours exchange data first,
 * each step halves a rank's remaining work, and members form pairs if n is no power of two. Here
 * each rank has its own block, so a number (algorithms.h) has the blocks of its one or two ranks.
 *
 *      5 ranks    number     0        1        2        3
 *                 ranks      0 1      2        3        4
 *                 has all, then 0-2   3-4      0-2      3-4
 *                 then       0-1      3        2        4
 *
 * In the end each number has the blocks of the bit-reversed number, and sends these blocks to their
 * ranks. In the drawing, numbers 1 and 2 exchange blocks. Halving with the far ranks first would
 * save this step, but would not keep operands in the order of ranks. This algorithm keeps the
 * order, with the tree of recursive doubling.
 *
 * Partial results are in SCRATCH.
 *
 * Cost: (lg p + 1) alpha + n beta + (p-1)/p n gamma; alpha + n (beta + gamma) more if p is no
 * power of two.
 */
#include "coll/algorithms.h"

typedef struct {
    tutti__build_t *b;
    uint32_t n, me, most; /* most: largest number of blocks in a message */
    tutti__pairs_t pairs;
} halving_t;

static void put_send(const halving_t *h, uint32_t peer, tutti__buf_t buf, uint32_t begin,
                     uint32_t end)
{
    tutti__coll_put_send(h->b, peer, tutti__at(buf, begin), end - begin, h->most);
}

static void put_add(const halving_t *h, uint32_t peer, int left, tutti__buf_t buf, uint32_t begin,
                    uint32_t end)
{
    tutti__coll_put_recv_reduce(h->b, peer, 0, left, tutti__at(buf, begin),
                                tutti__at(TUTTI__SCRATCH, begin), end - begin, h->most);
}

static void put_halve(const halving_t *h, uint32_t number)
{
    tutti__pairs_t pairs = h->pairs;
    uint32_t low = 0, len = pairs.power;
    tutti__buf_t have = TUTTI__IN;

    if (h->me < 2 * pairs.extra) {
        put_add(h, h->me - 1, 1, have, 0, h->n);
        have = TUTTI__SCRATCH;
    }
    for (uint32_t bit = 1; bit < pairs.power; bit *= 2) {
        uint32_t peer = tutti__pairs_proxy(pairs, number ^ bit), give;
        int is_upper = (number & bit) != 0;

        len /= 2;
        give = is_upper ? low : low + len;
        low += is_upper ? len : 0;
        put_send(h, peer, have, tutti__pairs_first(pairs, give),
                 tutti__pairs_first(pairs, give + len));
        if (len == 1)
            tutti__build_finish(h->b);
        put_add(h, peer, is_upper, have, tutti__pairs_first(pairs, low),
                tutti__pairs_first(pairs, low + len));
        have = TUTTI__SCRATCH;
    }
}

/* Send the blocks that `number` has in the end to their ranks. */
static void put_home(const halving_t *h, uint32_t number)
{
    uint32_t owner = tutti__coll_reversed(number, h->pairs.power);

    for (uint32_t r = tutti__pairs_first(h->pairs, owner);
         r < tutti__pairs_first(h->pairs, owner + 1); r++) {
        if (r == h->me)
            tutti__build_copy(h->b, tutti__at(TUTTI__SCRATCH, r), tutti__at(TUTTI__OUT, r), 1);
        else
            tutti__build_send(h->b, r, tutti__at(TUTTI__SCRATCH, r), 1);
    }
}

tutti_status_t tutti__coll_reduce_scatter_halving(const tutti__shape_t *shape,
                                                  const tutti__coll_args_t *args,
                                                  tutti__sched_t **ret_sched)
{
    uint32_t n = shape->size, me = args->rank;
    tutti__pairs_t pairs = tutti__pairs_of(n);
    uint32_t number = tutti__pairs_number(pairs, me), source;
    halving_t h = { .n = n, .me = me, .pairs = pairs };

    h.most = n > 1 ? tutti__pairs_first(pairs, pairs.power / 2) : 1;
    h.b = tutti__build_begin("halving", me, n, n, n, h.most);
    tutti__build_loop(h.b);
    if (n == 1) {
        tutti__build_finish(h.b);
        tutti__build_copy(h.b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
        tutti__build_end_loop(h.b);
        return tutti__build_end(h.b, ret_sched);
    }
    if (tutti__pairs_is_aside(pairs, me)) {
        put_send(&h, me + 1, TUTTI__IN, 0, n);
    } else {
        put_halve(&h, number);
        put_home(&h, number);
    }
    source = tutti__pairs_proxy(pairs, tutti__coll_reversed(number, pairs.power));
    if (source != me)
        tutti__build_recv(h.b, source, 0, tutti__at(TUTTI__OUT, me), 1);
    tutti__build_end_loop(h.b);
    return tutti__build_end(h.b, ret_sched);
}
