/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions shared by many algorithms. See algorithms.h.
 */
#include "base/compiler.h"
#include "coll/algorithms.h"

#include <stddef.h>

void tutti__coll_put_send(tutti__build_t *b, uint32_t peer, tutti__at_t src, uint32_t n,
                          uint32_t max)
{
    for (uint32_t i = 0; i < n; i += max)
        tutti__build_send(b, peer, tutti__beyond(src, i), TUTTI__MIN(max, n - i));
}

void tutti__coll_put_recv(tutti__build_t *b, uint32_t peer, unsigned stream, tutti__at_t dst,
                          uint32_t n, uint32_t max)
{
    for (uint32_t i = 0; i < n; i += max)
        tutti__build_recv(b, peer, stream, tutti__beyond(dst, i), TUTTI__MIN(max, n - i));
}

void tutti__coll_put_recv_reduce(tutti__build_t *b, uint32_t peer, unsigned stream, int left,
                                 tutti__at_t src, tutti__at_t dst, uint32_t n, uint32_t max)
{
    for (uint32_t i = 0; i < n; i += max) {
        if (left)
            tutti__build_left(b);
        tutti__build_recv_reduce(b, peer, stream, tutti__beyond(src, i), tutti__beyond(dst, i),
                                 TUTTI__MIN(max, n - i));
    }
}

/* The number of blocks of an arc (a run of blocks of a circle) before the circle's end. */
static uint32_t before_end(uint32_t from, uint32_t n, uint32_t size)
{
    return TUTTI__MIN(n, size - from);
}

void tutti__coll_put_send_arc(tutti__build_t *b, uint32_t peer, tutti__buf_t buf, uint32_t from,
                              uint32_t n, uint32_t size)
{
    uint32_t head = before_end(from, n, size);

    tutti__build_send(b, peer, tutti__at(buf, from), head);
    if (head < n)
        tutti__build_send(b, peer, tutti__at(buf, 0), n - head);
}

void tutti__coll_put_recv_arc(tutti__build_t *b, uint32_t peer, tutti__buf_t buf, uint32_t from,
                              uint32_t n, uint32_t size)
{
    uint32_t head = before_end(from, n, size);

    tutti__build_recv(b, peer, 0, tutti__at(buf, from), head);
    if (head < n)
        tutti__build_recv(b, peer, 0, tutti__at(buf, 0), n - head);
}

/* Let P be the largest power of two below n: a message has n - P blocks in the last step, and P / 2
   in the step before it. */
uint32_t tutti__coll_arc_blocks(uint32_t n)
{
    uint32_t power = n > 1 ? tutti__power_upto(n - 1) : 1;

    return n > 1 ? TUTTI__MAX(n - power, TUTTI__MAX(power / 2, 1u)) : 1;
}

static void collect_copy(tutti__collect_t *c, tutti__at_t src)
{
    if (c->finish)
        tutti__build_finish(c->b);
    tutti__build_copy(c->b, src, c->dst, c->blocks);
}

/* Add the next member's message to src; dst gets the sum. left: the message is the left operand. */
static void collect_add(tutti__collect_t *c, uint32_t rank, int left, tutti__at_t src,
                        tutti__at_t dst, int is_last)
{
    if (left)
        tutti__build_left(c->b);
    if (is_last && c->finish)
        tutti__build_finish(c->b);
    tutti__build_recv_reduce(c->b, rank, c->stream, src, dst, c->blocks);
}

/* For me < 2: the member's own operand is one of the first two, and further messages are added to
   it. */
static void collect_at_own(tutti__collect_t *c, uint32_t rank, uint32_t i)
{
    int is_first = i == (c->me == 0), is_last = i == c->n - 1 - (c->me == c->n - 1);

    if (c->n == 1)
        collect_copy(c, c->own);
    else if (i != c->me)
        collect_add(c, rank, i < c->me, is_first ? c->own : c->dst, c->dst, is_last);
}

/*
 * For me >= 2: the operands of lower members must be combined first, in tmp. The last operation of
 * the last member is a copy from tmp to dst. If dst has this member's operand, this copy is
 * avoidable.
 */
static void collect_beside(tutti__collect_t *c, uint32_t rank, uint32_t i)
{
    int is_last = i == c->n - 1;

    if (i == 0)
        tutti__build_recv(c->b, rank, c->stream, c->tmp, c->blocks);
    else if (i != c->me)
        collect_add(c, rank, 0, c->tmp, is_last ? c->dst : c->tmp, is_last);
    if (i != c->me)
        return;
    /* Set FINISH (the division of an average) on the last addition, as the other ranks do. If the
       copy from tmp to dst divided instead, it would round the sum a second time. */
    if (is_last && c->finish)
        tutti__build_finish(c->b);
    tutti__build_reduce(c->b, c->own, c->tmp, c->blocks);
    if (is_last)
        tutti__build_copy(c->b, c->tmp, c->dst, c->blocks);
}

void tutti__coll_collect(tutti__collect_t *c, uint32_t rank)
{
    uint32_t i = c->i++;

    if (c->me < 2)
        collect_at_own(c, rank, i);
    else
        collect_beside(c, rank, i);
}

void tutti__coll_put_tree_up(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                             tutti__at_t dst, uint32_t blocks, unsigned stream, int finish)
{
    tutti__at_t have = src;

    for (uint64_t bit = 1; bit < party->n; bit *= 2) {
        uint64_t child = party->me + bit;

        if (party->me & bit) {
            tutti__build_send(b, tutti__party_rank(party, party->me - (uint32_t)bit), have, blocks);
            return;
        }
        if (child >= party->n)
            continue;
        if (finish && 2 * bit >= party->n)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, tutti__party_rank(party, (uint32_t)child), stream, have, dst,
                                 blocks);
        have = dst;
    }
}

void tutti__coll_put_tree_down(tutti__build_t *b, const tutti__party_t *party, uint32_t root,
                               tutti__at_t data, uint32_t blocks, unsigned stream)
{
    uint32_t n = party->n, v = (uint32_t)(((uint64_t)party->me + n - root) % n);
    uint64_t bit = 1;

    while (bit < n && !(v & bit))
        bit *= 2;
    if (v != 0)
        tutti__build_recv(b, tutti__party_rank(party, (uint32_t)((v - bit + root) % n)), stream,
                          data, blocks);
    for (bit /= 2; bit > 0; bit /= 2) {
        if (v + bit < n)
            tutti__build_send(b, tutti__party_rank(party, (uint32_t)((v + bit + root) % n)), data,
                              blocks);
    }
}

uint32_t tutti__coll_reversed(uint32_t number, uint32_t power)
{
    uint32_t reversed = 0;

    for (uint32_t bit = 1; bit < power; bit *= 2) {
        reversed = 2 * reversed + (number & 1);
        number /= 2;
    }
    return reversed;
}

const char *tutti__coll_power_refuses(const tutti__shape_t *shape)
{
    return (shape->size & (shape->size - 1)) == 0
               ? NULL
               : "it serves only numbers of ranks that are powers of two";
}
