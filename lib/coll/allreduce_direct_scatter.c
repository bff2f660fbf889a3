/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct reduce-scatter, then direct allgather, for any number of ranks (both in Chan, Heimlich,
 * Purkayastha, van de Geijn: "Collective communication: theory, practice, and experience",
 * Concurrency and Computation 19(13), 2007).
 *
 * The buffer is cut into n blocks. Each rank sends block i to rank i, for all i at once. Rank i
 * reduces the messages, and sends the result to all other ranks.
 *
 *      rank 0 --block 1--> rank 1        rank 1 --sum of block 1--> rank 0
 *             --block 2--> rank 2               --sum of block 1--> rank 2
 *
 * Each rank sends 2 (n-1)/n of the buffer, the minimum, in two steps. The price is that n - 1
 * messages are under way to each rank at once. A rank begins with its right neighbour, so the
 * ranks do not all send to the same rank first.
 *
 * Every element is summed by the tree of recursive doubling. So direct_scatter and recursive
 * doubling give the same bits, also if n is no power of two. SCRATCH has one partial result for
 * each level of the tree.
 *
 * Cost: 2 alpha (the p-1 messages of a step overlap) + 2 (p-1)/p n beta + (p-1)/p n gamma.
 */
#include "coll/algorithms.h"

/* The arguments for appending the sum of all members' operands for this rank's block. */
typedef struct {
    tutti__build_t *b;
    const tutti__party_t *party;
    tutti__pairs_t pairs;
    unsigned stream;
    tutti__at_t own, dst;
    tutti__levels_t levels;
} sum_t;

uint32_t tutti__coll_direct_scatter_levels(uint32_t n)
{
    uint32_t power = tutti__power_upto(n), levels = 1;

    while (power > 2) {
        power /= 2;
        levels++;
    }
    return levels;
}

static tutti__at_t level(const sum_t *s, uint32_t depth)
{
    return tutti__at(TUTTI__SCRATCH, s->levels.blk + depth * s->levels.stride + s->party->me);
}

/* Add a member's operand to the sum at `at`. is_last: the result is also written to dst. Returns a
   place of the result. If the member is this rank, `at` must be a level, which gets the result. */
static tutti__at_t add_member(const sum_t *s, tutti__at_t at, uint32_t member, uint32_t depth,
                              int is_last)
{
    tutti__at_t into = is_last ? s->dst : level(s, depth);

    if (is_last)
        tutti__build_finish(s->b);
    if (member != s->party->me) {
        tutti__build_recv_reduce(s->b, tutti__party_rank(s->party, member), s->stream, at, into, 1);
        return into;
    }
    tutti__build_reduce(s->b, s->own, at, 1);
    if (is_last)
        tutti__build_copy(s->b, at, s->dst, 1);
    return at;
}

/* Append the operand of a single member, or the sum of a pair. Returns its place. */
static tutti__at_t put_number(const sum_t *s, uint32_t number, uint32_t depth)
{
    uint32_t member = tutti__pairs_first(s->pairs, number);
    tutti__at_t at = s->own;

    if (member != s->party->me) {
        at = level(s, depth);
        tutti__build_recv(s->b, tutti__party_rank(s->party, member), s->stream, at, 1);
    }
    if (tutti__pairs_first(s->pairs, number + 1) - member == 2)
        at = add_member(s, at, member + 1, depth, 0);
    return at;
}

/* Append the sum of the operands of n numbers (tutti__pairs_t); n is a power of two. The sum uses
   the levels from `depth` on. is_last: dst also gets the sum. Returns a place of the sum. If the
   right one of two numbers is a single member, its operand is added to the left sum without a
   level. (Pairs have the lowest numbers, so a single left number has no pair on its right.) */
static tutti__at_t put_sum(const sum_t *s, uint32_t number, uint32_t n, uint32_t depth, int is_last)
{
    uint32_t middle = number + n / 2, member = tutti__pairs_first(s->pairs, middle);
    tutti__at_t left, right;

    if (n == 1)
        return put_number(s, number, depth);
    left = put_sum(s, number, n / 2, depth, 0);
    if (n == 2 && tutti__pairs_first(s->pairs, middle + 1) - member == 1)
        return add_member(s, left, member, depth, is_last);
    right = put_sum(s, middle, n / 2, depth + 1, 0);
    if (is_last)
        tutti__build_finish(s->b);
    tutti__build_reduce(s->b, right, left, 1);
    if (is_last)
        tutti__build_copy(s->b, left, s->dst, 1);
    return left;
}

void tutti__coll_put_direct_scatter(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                                    tutti__at_t dst, tutti__levels_t levels, unsigned stream)
{
    uint32_t n = party->n, me = party->me;
    sum_t sum = { .b = b,
                  .party = party,
                  .pairs = tutti__pairs_of(n),
                  .stream = stream,
                  .own = tutti__beyond(src, me),
                  .dst = tutti__beyond(dst, me),
                  .levels = levels };

    for (uint32_t k = 1; k < n; k++) {
        uint32_t to = (uint32_t)(((uint64_t)me + k) % n);

        tutti__build_send(b, tutti__party_rank(party, to), tutti__beyond(src, to), 1);
    }
    put_sum(&sum, 0, sum.pairs.power, 0, 1);
    for (uint32_t k = 1; k < n; k++)
        tutti__build_send(b, tutti__party_rank(party, (uint32_t)(((uint64_t)me + k) % n)), sum.dst,
                          1);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t from = (uint32_t)(((uint64_t)me + n - k) % n);

        tutti__build_recv(b, tutti__party_rank(party, from), stream, tutti__beyond(dst, from), 1);
    }
}

tutti_status_t tutti__coll_allreduce_direct_scatter(const tutti__shape_t *shape,
                                                    const tutti__coll_args_t *args,
                                                    tutti__sched_t **ret_sched)
{
    return tutti__coll_build_between("direct_scatter", 1, shape, args, ret_sched);
}
