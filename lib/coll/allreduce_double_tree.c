/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Double binary tree allreduce (Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", Parallel Computing 35(12), 2009).
 *
 * In a binary tree the leaves, half of the ranks, do little, while an inner rank sends and receives
 * up to three times the buffer. So there are two trees, each for half of the buffer. A rank is an
 * inner node of at most one tree. So all ranks do equal work, and the depth is that of one tree.
 *
 *               3                  n even: the second tree is the first one's mirror image
 *          1         5             n odd: the second tree is the first one, shifted by one
 *        0   2     4   6
 *
 * The places of a tree are numbered in order, from left to right. If places are counted from 1, the
 * lowest set bit of a place shows its height; the odd places are leaves.
 *
 * There are four streams: tree 0 up, tree 1 up, tree 0 down, tree 1 down. So chunk t goes down
 * while later chunks go up, and neither tree waits for the other. In each tree, the down stream
 * writes to the memory of the up stream's partial result. In place, this is also the memory of the
 * up stream's operand. So the down stream waits until the up stream has finished the chunk.
 *
 * Cost: 4 lg p alpha for the first chunk, then 2 n beta + n gamma in all.
 */
#include "coll/algorithms.h"

#define NONE UINT32_MAX

/* A rank's neighbours in one tree, as ranks. */
typedef struct {
    uint32_t up, left, right;
} node_t;

/* Places are counted from 1. */
static uint32_t parent_of(uint32_t place, uint32_t n)
{
    uint32_t bit = place & -place;

    if (bit == tutti__power_upto(n))
        return NONE;
    do {
        place = (place & ~bit) | 2 * bit;
        bit *= 2;
    } while (place > n);
    return place;
}

/* The right child: the root of the right subtree, which may have less than full height. */
static uint32_t right_of(uint32_t place, uint32_t n)
{
    uint32_t half = (place & -place) / 2;

    while (half > 0 && place + half > n)
        half /= 2;
    return half > 0 ? place + half : NONE;
}

static uint32_t left_of(uint32_t place)
{
    uint32_t half = (place & -place) / 2;

    return half > 0 ? place - half : NONE;
}

/* The place of a rank in a tree; rank_of is the inverse. */
static uint32_t place_of(uint32_t rank, uint32_t n, int tree)
{
    if (tree == 0)
        return rank + 1;
    return n % 2 == 0 ? n - rank : (rank + 1) % n + 1;
}

static uint32_t rank_of(uint32_t place, uint32_t n, int tree)
{
    if (place == NONE)
        return NONE;
    if (tree == 0)
        return place - 1;
    return n % 2 == 0 ? n - place : (place - 1 + n - 1) % n;
}

static node_t node_of(const tutti__party_t *party, int tree)
{
    uint32_t n = party->n, place = place_of(party->me, n, tree);
    uint32_t near[] = { parent_of(place, n), left_of(place), right_of(place, n) };

    for (int i = 0; i < 3; i++) {
        near[i] = rank_of(near[i], n, tree);
        if (near[i] != NONE)
            near[i] = tutti__party_rank(party, near[i]);
    }
    return (node_t){ near[0], near[1], near[2] };
}

static void put_up(tutti__build_t *b, const node_t *node, uint32_t tree)
{
    tutti__at_t have = tutti__at(TUTTI__IN, tree), out = tutti__at(TUTTI__OUT, tree);

    tutti__build_stream(b, tree);
    tutti__build_loop(b);
    if (node->left != NONE) {
        if (node->up == NONE && node->right == NONE)
            tutti__build_finish(b);
        tutti__coll_put_recv_reduce(b, node->left, tree, 1, have, out, 1, 1);
        have = out;
    }
    if (node->right != NONE) {
        if (node->up == NONE)
            tutti__build_finish(b);
        tutti__coll_put_recv_reduce(b, node->right, tree, 0, have, out, 1, 1);
        have = out;
    }
    if (node->up != NONE)
        tutti__build_send(b, node->up, have, 1);
    tutti__build_mark_last(b);
    tutti__build_end_loop(b);
}

static void put_down(tutti__build_t *b, const node_t *node, uint32_t tree)
{
    tutti__at_t out = tutti__at(TUTTI__OUT, tree);
    unsigned stream = 2 + tree;

    tutti__build_stream(b, stream);
    tutti__build_loop(b);
    tutti__build_wait(b, tree, 1);
    if (node->up != NONE)
        tutti__build_recv(b, node->up, stream, out, 1);
    if (node->left != NONE)
        tutti__build_send(b, node->left, out, 1);
    if (node->right != NONE)
        tutti__build_send(b, node->right, out, 1);
    tutti__build_end_loop(b);
}

tutti_status_t tutti__coll_allreduce_double_tree(const tutti__shape_t *shape,
                                                 const tutti__coll_args_t *args,
                                                 tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    tutti__build_t *b = tutti__build_begin("double_tree", args->rank, party.n, 2, 0, 1);

    if (party.n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 2);
        return tutti__build_end(b, ret_sched);
    }
    for (uint32_t tree = 0; tree < 2; tree++) {
        node_t node = node_of(&party, (int)tree);

        put_up(b, &node, tree);
        put_down(b, &node, tree);
    }
    return tutti__build_end(b, ret_sched);
}
