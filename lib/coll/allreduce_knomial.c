/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * k-nomial allreduce: recursive doubling with groups of k instead of pairs (Ruefenacht, Bull,
 * Booth: "Generalisation of recursive doubling for AllReduce: Now with simulation", Parallel
 * Computing 69, 2017).
 *
 * In each step, a group has the k ranks whose numbers in base k differ in one digit only. The ranks
 * of a group send each other their data, and each rank reduces all data in the order of this digit.
 * There are fewer steps than with pairs, but more messages at once. This is faster if several small
 * messages cost little more than one.
 *
 *      radix 3, 9 ranks:   {0 1 2} {3 4 5} {6 7 8}     last digit
 *                          {0 3 6} {1 4 7} {2 5 8}     first digit
 *
 * If n is no power of k, let m be the largest power of k below n. Neighbouring ranks form m sets of
 * at most k ranks. Only the first rank of a set takes part in the steps. Before the steps it adds
 * the data of its set, and at the end it sends the result to its set.
 *
 * A partial result always covers neighbouring ranks, so operands keep their order. Every element is
 * summed by the same tree.
 *
 * Cost: log_k(p) ((k-1) (alpha + n beta + n gamma)). The alphas of a step overlap. If p, the number
 * of ranks, is no power of k: 2 (k-1) alpha + 2 (k-1) n beta more. (In Cost, n is in bytes.)
 */
#include "coll/algorithms.h"

typedef struct {
    tutti__build_t *b;
    uint32_t n, k, power; /* power of k: number of sets */
    uint32_t group;       /* this rank's set */
} knomial_t;

/* The first rank of set `group`; for set `power`: n. */
static uint32_t first_of(const knomial_t *kn, uint32_t group)
{
    return (uint32_t)((uint64_t)group * kn->n / kn->power);
}

static uint32_t group_of(const knomial_t *kn, uint32_t rank)
{
    return (uint32_t)((((uint64_t)rank + 1) * kn->power - 1) / kn->n);
}

/* One step, for the digit of weight `unit`. */
static void exchange(const knomial_t *kn, uint32_t unit, tutti__at_t have, tutti__at_t dst)
{
    uint32_t digit = kn->group / unit % kn->k, zero = kn->group - digit * unit;
    tutti__collect_t collect = { .b = kn->b,
                                 .n = kn->k,
                                 .me = digit,
                                 .own = have,
                                 .dst = dst,
                                 .tmp = tutti__at(TUTTI__SCRATCH, 0),
                                 .blocks = 1,
                                 .finish = (uint64_t)unit * kn->k == kn->power };

    for (uint32_t i = 1; i < kn->k; i++)
        tutti__build_send(kn->b, first_of(kn, zero + (digit + i) % kn->k * unit), have, 1);
    for (uint32_t i = 0; i < kn->k; i++)
        tutti__coll_collect(&collect, first_of(kn, zero + i * unit));
}

/* For the first rank of a set, `me`, which works for the set. */
static void put_first(const knomial_t *kn, uint32_t me, tutti__at_t in, tutti__at_t out)
{
    uint32_t end = first_of(kn, kn->group + 1);
    tutti__at_t have = in;

    for (uint32_t r = me + 1; r < end; r++) {
        if (kn->power == 1 && r == end - 1)
            tutti__build_finish(kn->b);
        tutti__build_recv_reduce(kn->b, r, 0, have, out, 1);
        have = out;
    }
    for (uint64_t unit = 1; unit < kn->power; unit *= kn->k) {
        exchange(kn, (uint32_t)unit, have, out);
        have = out;
    }
    for (uint32_t r = me + 1; r < end; r++)
        tutti__build_send(kn->b, r, out, 1);
}

tutti_status_t tutti__coll_allreduce_knomial(const tutti__shape_t *shape,
                                             const tutti__coll_args_t *args,
                                             tutti__sched_t **ret_sched)
{
    tutti__at_t in = tutti__at(TUTTI__IN, 0), out = tutti__at(TUTTI__OUT, 0);
    knomial_t kn = { .n = shape->size, .k = args->radix != 0 ? args->radix : 4, .power = 1 };

    while (kn.power <= kn.n / kn.k)
        kn.power *= kn.k;
    kn.group = group_of(&kn, args->rank);
    kn.b = tutti__build_begin("knomial", args->rank, kn.n, 1, 1, 1);
    if (kn.n == 1) {
        tutti__build_finish(kn.b);
        tutti__build_copy(kn.b, in, out, 1);
        return tutti__build_end(kn.b, ret_sched);
    }
    tutti__build_loop(kn.b);
    if (args->rank == first_of(&kn, kn.group)) {
        put_first(&kn, args->rank, in, out);
    } else {
        tutti__build_send(kn.b, first_of(&kn, kn.group), in, 1);
        tutti__build_recv(kn.b, first_of(&kn, kn.group), 0, out, 1);
    }
    tutti__build_end_loop(kn.b);
    return tutti__build_end(kn.b, ret_sched);
}
