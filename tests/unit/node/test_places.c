/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where bulk slots and shares begin: a slot has the offset of the caller's buffer in a cache line
 * and differs from it by half a page; shares of zero-copy begin at pages. Results must be correct
 * for all offsets of buffers, which differ between ranks, in operations without a pause between
 * them.
 */
#include "node/shm/shm.h"
#include "unit/node/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 2,
    COUNT = 40000, /* shares of more than 16 pages, and many chunks */
    BYTES = COUNT * 4,
    PAGE = 4096,
    LINE = 64,
    ROUNDS = 12
};

/* Offset in a page. */
static const size_t offsets[] = { 0, 16, 4, 60, 2064, 4080, 1, 2048 };
#define OFFSETS (sizeof(offsets) / sizeof(*offsets))

typedef struct {
    world_t w;
    tutti__node_t *node[RANKS];
    tutti__node_call_t call[RANKS];
    char *src[RANKS], *dst[RANKS]; /* each a page longer than BYTES */
    tutti__reducer_t reducer;
    int round[RANKS]; /* each rank's current round */
} pair_t;

static float value(size_t i, uint32_t rank, int round)
{
    return (float)(i % 1009 + 3 * rank + (size_t)round);
}

static void open_pair(pair_t *p, int in_arena)
{
    memset(p, 0, sizeof(*p));
    world_open(&p->w, RANKS, NULL);
    assert_true(tutti__reducer_find(TUTTI_FLOAT32, TUTTI_SUM, &p->reducer));
    for (uint32_t r = 0; r < RANKS; r++) {
        void *src = NULL, *dst = NULL;

        p->node[r] = world_node(&p->w, r);
        if (in_arena) {
            assert_int_equal(tutti__arena_alloc(p->w.arena[r], BYTES + PAGE, &src), TUTTI_OK);
            assert_int_equal(tutti__arena_alloc(p->w.arena[r], BYTES + PAGE, &dst), TUTTI_OK);
        } else {
            assert_int_equal(posix_memalign(&src, PAGE, BYTES + PAGE), 0);
            assert_int_equal(posix_memalign(&dst, PAGE, BYTES + PAGE), 0);
        }
        p->src[r] = src;
        p->dst[r] = dst;
    }
}

static void close_pair(pair_t *p, int in_arena)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        p->node[r]->ops->close(p->node[r]);
        if (!in_arena) {
            free(p->src[r]);
            free(p->dst[r]);
        }
    }
    world_close(&p->w);
}

/* One rank's next allreduce, from and to these offsets. */
static void start(pair_t *p, uint32_t r, size_t src, size_t dst)
{
    for (size_t i = 0; i < COUNT; i++) {
        float x = value(i, r, p->round[r]);

        memcpy(p->src[r] + src + 4 * i, &x, sizeof(x));
    }
    memset(p->dst[r], 0xa5, BYTES + PAGE);
    p->call[r] = (tutti__node_call_t){ .kind = TUTTI__NODE_ALLREDUCE,
                                       .dtype = TUTTI_FLOAT32,
                                       .op = TUTTI_SUM,
                                       .reducer = &p->reducer,
                                       .src = p->src[r] + src,
                                       .dst = p->dst[r] + dst,
                                       .map = { COUNT, 1, COUNT, NULL, NULL },
                                       .whole = 1,
                                       .nblk = 1,
                                       .nparts = 1 };
    p->node[r]->ops->start(p->node[r], 0, &p->call[r]);
}

static void check(const pair_t *p, uint32_t r)
{
    const char *dst = p->call[r].dst;
    size_t at = (size_t)(dst - p->dst[r]);

    for (size_t i = 0; i < COUNT; i++) {
        float x, wanted = value(i, 0, p->round[r]) + value(i, 1, p->round[r]);

        memcpy(&x, dst + 4 * i, sizeof(x));
        if (x != wanted)
            fail_msg("rank %u, round %d, at %zu: element %zu is %g instead of %g", r, p->round[r],
                     at, i, (double)x, (double)wanted);
    }
    for (size_t i = 0; i < at; i++)
        assert_int_equal((unsigned char)p->dst[r][i], 0xa5);
    for (size_t i = at + BYTES; i < BYTES + PAGE; i++)
        assert_int_equal((unsigned char)p->dst[r][i], 0xa5);
}

static void check_slot(const pair_t *p, uint32_t r)
{
    const tutti__shm_lane_t *lane = &((const tutti__shm_t *)p->node[r])->lane[0];
    size_t room = 2 * tutti__shm_slot_bytes((const tutti__shm_t *)p->node[r]);
    size_t apart = (uintptr_t)lane->bulk - (uintptr_t)p->call[r].dst;

    assert_int_equal(apart % LINE, 0);
    assert_int_equal(apart % PAGE, PAGE / 2);
    assert_true(lane->bulk >= lane->bulk_memory);
    assert_true(lane->bulk - lane->bulk_memory < PAGE && room >= 2 * (4096 + PAGE));
}

/* Each rank makes as much progress as possible, one after another, for ROUNDS operations. */
static void run(pair_t *p, int in_arena)
{
    tutti__hint_t hint;

    for (uint32_t r = 0; r < RANKS; r++) {
        p->round[r] = 0;
        start(p, r, 16, 16);
    }
    for (int steps = 0; p->round[0] < ROUNDS || p->round[1] < ROUNDS; steps++) {
        uint32_t r = (uint32_t)steps % RANKS;

        assert_true(steps < 100000);
        if (p->round[r] == ROUNDS || p->node[r]->ops->step(p->node[r], 0, &hint) == TUTTI__AGAIN)
            continue;
        check(p, r);
        if (!in_arena)
            check_slot(p, r);
        if (++p->round[r] < ROUNDS)
            start(p, r, offsets[(size_t)p->round[r] % OFFSETS],
                  offsets[((size_t)p->round[r] * 3 + r) % OFFSETS]);
    }
}

static void test_private(void **state)
{
    pair_t p;

    (void)state;
    open_pair(&p, 0);
    run(&p, 0);
    close_pair(&p, 0);
}

static void test_zero_copy(void **state)
{
    pair_t p;

    (void)state;
    open_pair(&p, 1);
    run(&p, 1);
    close_pair(&p, 1);
}

/* A rank gives up its call at two moments: before the peer has read the rank's announcement, and
   after the rank has done its own share. Afterwards the peer neither reads nor writes the buffers
   of this rank. */
static void test_given_up(void **state)
{
    (void)state;
    for (int steps = 0; steps < 2; steps++) {
        tutti__hint_t hint;
        pair_t p;

        open_pair(&p, 1);
        for (uint32_t r = 0; r < RANKS; r++)
            start(&p, r, 0, 0);
        if (steps == 1)
            assert_int_equal(p.node[0]->ops->step(p.node[0], 0, &hint), TUTTI__AGAIN);
        p.node[0]->ops->cancel(p.node[0], 0);
        memset(p.dst[0], 0x55, BYTES);
        for (int i = 0; i < 3; i++)
            assert_int_equal(p.node[1]->ops->step(p.node[1], 0, &hint), TUTTI__AGAIN);
        assert_int_equal(hint.peer, 0);
        for (size_t i = 0; i < BYTES; i++)
            assert_int_equal(p.dst[0][i], 0x55);
        close_pair(&p, 1);
    }
}

/* The result of run_table on rank r: other elements of dst are unchanged. */
static void check_table(const pair_t *p, uint32_t r, const size_t *table, const size_t *begins)
{
    const tutti__node_call_t *call = &p->call[r];
    int gets = call->kind != TUTTI__NODE_REDUCE || r == call->root;
    size_t left = gets ? COUNT / 2 : 0;

    for (size_t at = 0; at < (BYTES + PAGE) / 4; at++) {
        uint32_t b = at - begins[0] < table[1] - table[0] ? 0 : 1;
        size_t i = at - begins[b];
        float x, wanted = value(i, call->root, (int)b);

        memcpy(&x, p->dst[r] + 4 * at, sizeof(x));
        if (!gets || i >= table[b + 1] - table[b]) {
            assert_memory_equal(p->dst[r] + 4 * at, "\xa5\xa5\xa5\xa5", 4);
            continue;
        }
        if (call->kind != TUTTI__NODE_BCAST)
            wanted = value(i, 0, (int)b) + value(i, 1, (int)b);
        if (x != wanted)
            fail_msg("kind %d, root %u, rank %u: element %zu is %g instead of %g", (int)call->kind,
                     call->root, r, at, (double)x, (double)wanted);
        left--;
    }
    assert_int_equal(left, 0);
}

/* An operation on two blocks of a table. On rank 0 they are contiguous. On rank 1 they are in
   reverse order, with a gap between them. Block b begins at begins[rank][b]. */
static void run_table(tutti__op_kind_t kind, uint32_t root)
{
    static const size_t table[] = { 0, COUNT / 8, COUNT / 2 };
    static const size_t begins[RANKS][2] = { { 0, COUNT / 8 }, { COUNT / 2 - 9, 5 } };
    tutti__hint_t hint;
    uint32_t done = 0;
    pair_t p;

    open_pair(&p, 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        float *src = (float *)(void *)p.src[r];

        memset(p.dst[r], 0xa5, BYTES + PAGE);
        for (int b = 0; b < 2; b++)
            for (size_t i = 0; i < table[b + 1] - table[b]; i++)
                src[begins[r][b] + i] = value(i, r, b);
        p.call[r] =
            (tutti__node_call_t){ .kind = kind,
                                  .dtype = TUTTI_FLOAT32,
                                  .op = TUTTI_SUM,
                                  .reducer = &p.reducer,
                                  .root = root,
                                  .src = src,
                                  .dst = p.dst[r],
                                  .map = { COUNT / 2, 2, COUNT, table, r == 0 ? NULL : begins[r] },
                                  .whole = 1,
                                  .nblk = 2,
                                  .nparts = 1 };
        p.node[r]->ops->start(p.node[r], 0, &p.call[r]);
    }
    for (int steps = 0; done != (1 << RANKS) - 1; steps++) {
        uint32_t r = (uint32_t)steps % RANKS;

        assert_true(steps < 100000);
        if (!(done >> r & 1) && p.node[r]->ops->step(p.node[r], 0, &hint) == TUTTI_OK)
            done |= 1u << r;
    }
    for (uint32_t r = 0; r < RANKS; r++)
        check_table(&p, r, table, begins[r]);
    close_pair(&p, 0);
}

static void test_table(void **state)
{
    (void)state;
    for (uint32_t root = 0; root < RANKS; root++) {
        run_table(TUTTI__NODE_BCAST, root);
        run_table(TUTTI__NODE_REDUCE, root);
    }
    run_table(TUTTI__NODE_ALLREDUCE, 0);
}

/* Shares of zero-copy: each element belongs to one share, and large shares meet at a page. */
static void test_shares(void **state)
{
    static const uint32_t ranks[] = { 2, 3, 8 };
    static const size_t counts[] = { 1, 17, 1000, 40000, 300001 };
    tutti__shm_t shm = { 0 };

    (void)state;
    for (size_t n = 0; n < sizeof(ranks) / sizeof(*ranks); n++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
            for (size_t o = 0; o < OFFSETS; o++) {
                tutti__node_call_t call = { .kind = TUTTI__NODE_ALLREDUCE };
                tutti__shm_lane_t lane = { .call = &call, .esize = 4, .count = counts[c] };
                size_t next = 0, grain;

                shm.nlocal = ranks[n];
                tutti__shm_cut_for_all(&shm, &lane);
                tutti__shm_cut_at_pages(&lane, 7 * PAGE + offsets[o]);
                grain = lane.largest * 4 < (size_t)16 * PAGE ? LINE : PAGE;
                for (uint32_t j = 0; j < ranks[n]; j++) {
                    tutti__shm_part_t part = tutti__shm_extent(&lane, j);

                    assert_int_equal(part.src, next);
                    assert_int_equal(part.dst, next);
                    if (j > 0 && next < counts[c] && offsets[o] % 4 == 0)
                        assert_int_equal((offsets[o] + 4 * next) % grain, 0);
                    next += part.count;
                }
                assert_int_equal(next, counts[c]);
            }
}

/* The blocks of a slot begin at cache lines, even if the slot has only a few lines of each. */
static void test_pieces(void **state)
{
    tutti__node_call_t call = { .kind = TUTTI__NODE_ALLREDUCE, .nblk = 1, .nparts = 1 };
    tutti__shm_t shm = { .bulk_bytes = PAGE };

    (void)state;
    for (shm.nlocal = 2; shm.nlocal <= PAGE / LINE; shm.nlocal++)
        for (size_t esize = 1; esize <= 16; esize *= 2) {
            tutti__shm_lane_t lane = { .call = &call, .esize = esize, .count = COUNT };

            tutti__shm_cut(&shm, &lane);
            assert_true(lane.piece > 0);
            assert_int_equal(lane.piece * esize % LINE, 0);
            assert_true(lane.nblocks * lane.piece * esize <= PAGE);
            assert_true(lane.nchunks * lane.piece >= lane.largest);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private),  cmocka_unit_test(test_zero_copy),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_table),
        cmocka_unit_test(test_shares),   cmocka_unit_test(test_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
