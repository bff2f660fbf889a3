/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the executor with all ways of giving the lengths of blocks: tables, separate places, maps
 * that only one rank has, renumbered blocks. The schedules are hand-written. They run in
 * adversarial orders, over slots so small that there are many trips.
 *
 * The test defines element k of block b; each rank places the block anywhere. Everything between
 * the blocks must stay unchanged.
 */
#include "sched/build.h"
#include "unit/exec/data.h"
#include "unit/exec/hand.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ROOM = 6000,
    BLOCKS = 16,
    UNTOUCHED = 0x5a
};

/* A buffer of one rank, as its block map sees it. */
typedef struct {
    size_t table[BLOCKS + 1], begins[BLOCKS];
    int64_t data[ROOM];
} side_t;

typedef struct {
    side_t in[WORLD_RANKS], out[WORLD_RANKS];
    tutti__exec_call_t call[WORLD_RANKS];
    tutti__sched_t *scheds[WORLD_RANKS];
    uint32_t n, nblocks, seed;
} maps_t;

static uint32_t draw(maps_t *maps, uint32_t limit)
{
    maps->seed = maps->seed * 1664525u + 1013904223u;
    return (maps->seed >> 8) % limit;
}

static tutti__at_t at(tutti__buf_t buf, uint32_t blk)
{
    return (tutti__at_t){ buf, blk };
}

/* Blocks in any order, with gaps between. */
static void scatter_blocks(maps_t *maps, side_t *side)
{
    uint32_t order[BLOCKS];
    size_t place = 0;

    for (uint32_t b = 0; b < maps->nblocks; b++) {
        uint32_t other = draw(maps, b + 1);

        order[b] = order[other];
        order[other] = b;
    }
    for (uint32_t i = 0; i < maps->nblocks; i++) {
        place += draw(maps, 4);
        side->begins[order[i]] = place;
        place += side->table[order[i] + 1] - side->table[order[i]];
    }
    assert_true(place < ROOM);
}

/* The position of element `i` of a buffer: its block, or UINT32_MAX if it is between blocks. */
static uint32_t block_at(const maps_t *maps, const side_t *side, size_t i, size_t *ret_k)
{
    for (uint32_t b = 0; b < maps->nblocks; b++) {
        if (i >= side->begins[b] && i - side->begins[b] < side->table[b + 1] - side->table[b]) {
            *ret_k = i - side->begins[b];
            return b;
        }
    }
    return UINT32_MAX;
}

static void wipe(side_t *side)
{
    memset(side->data, UNTOUCHED, sizeof(side->data));
}

static void run_all(maps_t *maps, crew_t *crew, order_t order, const char *what)
{
    crew_set(crew, maps->scheds, maps->call);
    crew_finish(crew, order, maps->seed, what);
}

static void free_scheds(maps_t *maps)
{
    for (uint32_t r = 0; r < maps->n; r++)
        tutti__sched_free(maps->scheds[r]);
}

/* ---- BY_NUMBER: any allreduce works with any table ---- */

static void number_fill(maps_t *maps, data_t *data, int has_places)
{
    side_t *first = &maps->in[0];

    first->table[0] = 0;
    for (uint32_t b = 0; b < maps->nblocks; b++)
        first->table[b + 1] = first->table[b] + (draw(maps, 3) == 0 ? 0 : draw(maps, 60));
    for (uint32_t r = 0; r < maps->n; r++) {
        side_t *in = &maps->in[r], *out = &maps->out[r];

        memcpy(in->table, first->table, sizeof(in->table));
        memcpy(in->begins, in->table, sizeof(in->begins));
        if (has_places)
            scatter_blocks(maps, in);
        memcpy(out, in, offsetof(side_t, data));
        wipe(in);
        wipe(out);
        for (uint32_t b = 0; b < maps->nblocks; b++)
            for (size_t k = 0; k < in->table[b + 1] - in->table[b]; k++) {
                /* data_put uses the same index for the array and the drawn number */
                int64_t *to = in->data + in->begins[b] - in->table[b];

                data_put(data, to, r, in->table[b] + k);
            }
        maps->call[r] = (tutti__exec_call_t){ .in = in->data,
                                              .out = out->data,
                                              .count = in->table[maps->nblocks],
                                              .dtype = data->dtype,
                                              .op = data->op,
                                              .signature = 5,
                                              .table = in->table,
                                              .begins = has_places ? in->begins : NULL };
    }
}

static void number_check(const maps_t *maps, const data_t *data, const char *what)
{
    for (uint32_t r = 0; r < maps->n; r++) {
        const side_t *out = &maps->out[r];

        for (size_t i = 0; i < ROOM; i++) {
            size_t k;
            uint32_t b = block_at(maps, out, i, &k);

            if (b == UINT32_MAX)
                assert_memory_equal(&out->data[i], "ZZZZZZZZ", 8);
            else if (!data_is_fold(data, out->data + out->begins[b] - out->table[b],
                                   out->table[b] + k))
                fail_msg("%s: element %zu of block %u of rank %u", what, k, b, r);
        }
    }
}

static void test_tables(void **state)
{
    maps_t *maps = calloc(1, sizeof(*maps));

    (void)state;
    assert_non_null(maps);
    for (const hand_t *hand = hand_made; hand->name != NULL; hand++) {
        uint32_t n = TUTTI__MIN(hand->most_ranks, 4);
        team_t team;
        crew_t crew;

        maps->n = n;
        for (uint32_t r = 0; r < n; r++)
            assert_int_equal(hand->build(r, n, &maps->scheds[r]), TUTTI_OK);
        maps->nblocks = maps->scheds[0]->nblocks;
        /* With slots of 64 bytes most calls have several trips, with slots of 4096 bytes one. */
        for (int i = 0; i < 4; i++) {
            team_open(&team, n, NULL, i % 2 == 0 ? 64 : 4096, 2, i / 2);
            crew_open(&crew, &team, (uint32_t)i);
            for (uint32_t turn = 0; turn < 8 * ORDERS; turn++) {
                data_t data = { .dtype = TUTTI_INT64,
                                .op = turn % 3 == 0 ? TUTTI_AVG : TUTTI_SUM,
                                .nranks = n,
                                .seed = turn };

                number_fill(maps, &data, turn % 2);
                if (maps->call[0].count == 0)
                    continue;
                run_all(maps, &crew, (order_t)(turn % ORDERS), hand->name);
                number_check(maps, &data, hand->name);
            }
            crew_close(&crew);
            team_close(&team);
        }
        free_scheds(maps);
    }
    free(maps);
}

/* ---- BY_PAIR: each rank sends each other rank a block; only these two have its length ---- */

static void pair_build(maps_t *maps)
{
    for (uint32_t r = 0; r < maps->n; r++) {
        tutti__build_t *b = tutti__build_begin("pairs", r, maps->n, maps->n, 0, 1);

        tutti__build_sizes(b, TUTTI__BY_PAIR);
        tutti__build_copy(b, at(TUTTI__IN, r), at(TUTTI__OUT, r), 1);
        tutti__build_loop(b);
        for (uint32_t k = 1; k < maps->n; k++) {
            uint32_t to = (r + k) % maps->n, from = (r + maps->n - k) % maps->n;

            tutti__build_send(b, to, at(TUTTI__IN, to), 1);
            tutti__build_recv(b, from, 0, at(TUTTI__OUT, from), 1);
        }
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &maps->scheds[r]), TUTTI_OK);
    }
}

static int64_t pair_value(uint32_t from, uint32_t to, size_t k)
{
    return (int64_t)(from * 1000000 + to * 10000 + k);
}

static void pair_call(maps_t *maps, uint32_t r, int has_places)
{
    side_t *in = &maps->in[r], *out = &maps->out[r];

    maps->call[r] = (tutti__exec_call_t){ .in = in->table[maps->n] > 0 ? in->data : NULL,
                                          .out = out->table[maps->n] > 0 ? out->data : NULL,
                                          .count = out->table[maps->n],
                                          .dtype = TUTTI_INT64,
                                          .signature = 6,
                                          .table = out->table,
                                          .begins = has_places ? out->begins : NULL,
                                          .in_table = in->table,
                                          .in_begins = has_places ? in->begins : NULL,
                                          .in_count = in->table[maps->n] };
}

static void pair_fill(maps_t *maps, int has_places)
{
    uint32_t n = maps->n, quiet = draw(maps, 2 * n); /* possibly no rank */
    size_t counts[WORLD_RANKS][WORLD_RANKS];

    for (uint32_t r = 0; r < n; r++)
        for (uint32_t s = 0; s < n; s++)
            counts[r][s] = draw(maps, 3) == 0 || r == quiet ? 0 : draw(maps, 1u << draw(maps, 7));
    for (uint32_t r = 0; r < n; r++) {
        side_t *in = &maps->in[r], *out = &maps->out[r];

        in->table[0] = out->table[0] = 0;
        for (uint32_t s = 0; s < n; s++) {
            in->table[s + 1] = in->table[s] + counts[r][s];
            out->table[s + 1] = out->table[s] + counts[s][r];
        }
        memcpy(in->begins, in->table, sizeof(in->begins));
        memcpy(out->begins, out->table, sizeof(out->begins));
        if (has_places) {
            scatter_blocks(maps, in);
            scatter_blocks(maps, out);
        }
        wipe(in);
        wipe(out);
        for (uint32_t s = 0; s < n; s++)
            for (size_t k = 0; k < counts[r][s]; k++)
                in->data[in->begins[s] + k] = pair_value(r, s, k);
        pair_call(maps, r, has_places);
    }
}

static void pair_check(const maps_t *maps)
{
    for (uint32_t r = 0; r < maps->n; r++) {
        for (size_t i = 0; i < ROOM; i++) {
            size_t k = 0;
            uint32_t b = block_at(maps, &maps->out[r], i, &k);
            int64_t expected = pair_value(b, r, k);

            if (b == UINT32_MAX)
                memset(&expected, UNTOUCHED, sizeof(expected));
            if (maps->out[r].data[i] != expected)
                fail_msg("element %zu of rank %u is %lld, not %lld", i, r,
                         (long long)maps->out[r].data[i], (long long)expected);
        }
    }
}

static void test_pairs(void **state)
{
    maps_t *maps = calloc(1, sizeof(*maps));

    (void)state;
    assert_non_null(maps);
    for (uint32_t n = 2; n <= 7; n += n < 4 ? 1 : 3) {
        maps->n = maps->nblocks = n;
        pair_build(maps);
        for (int i = 0; i < 4; i++) {
            team_t team;
            crew_t crew;

            team_open(&team, n, NULL, i < 2 ? 64 : 8192, 1 + (uint32_t)i % 2, i % 2);
            crew_open(&crew, &team, (uint32_t)i);
            for (uint32_t turn = 0; turn < 6 * ORDERS; turn++) {
                pair_fill(maps, turn % 2);
                run_all(maps, &crew, (order_t)(turn % ORDERS), "pairs");
                pair_check(maps);
            }
            crew_close(&crew);
            team_close(&team);
        }
        free_scheds(maps);
    }
    free(maps);
}

/* ---- ALL_EQUAL: renumbered during the call ---- */

/*
 * Two ranks, 5 blocks. SCRATCH has more blocks than the block map. Each rank copies its blocks into
 * SCRATCH, rotated by two. It sends 3 blocks from the middle of SCRATCH to the other rank, and puts
 * the 3 received blocks at the end of OUT. The first two blocks of OUT are the rank's own block 4,
 * and the sum of its own block 0 and the peer's block 1.
 */
static void equal_build(maps_t *maps)
{
    for (uint32_t r = 0; r < 2; r++) {
        tutti__build_t *b = tutti__build_begin("turned", r, 2, 5, 9, 3);

        tutti__build_sizes(b, TUTTI__ALL_EQUAL);
        tutti__build_loop(b);
        tutti__build_copy(b, at(TUTTI__IN, 2), at(TUTTI__SCRATCH, 0), 3);
        tutti__build_copy(b, at(TUTTI__IN, 0), at(TUTTI__SCRATCH, 3), 2);
        tutti__build_send(b, 1 - r, at(TUTTI__SCRATCH, 1), 3);
        tutti__build_send(b, 1 - r, at(TUTTI__IN, 1), 1);
        tutti__build_recv(b, 1 - r, 0, at(TUTTI__SCRATCH, 5), 3);
        tutti__build_copy(b, at(TUTTI__SCRATCH, 5), at(TUTTI__OUT, 2), 3);
        tutti__build_copy(b, at(TUTTI__SCRATCH, 2), at(TUTTI__OUT, 0), 1);
        tutti__build_recv_reduce(b, 1 - r, 0, at(TUTTI__SCRATCH, 3), at(TUTTI__OUT, 1), 1);
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &maps->scheds[r]), TUTTI_OK);
    }
}

static void equal_check(const maps_t *maps, size_t each)
{
    static const struct {
        uint32_t peers, blk;
    } expected[5] = { { 0, 4 }, { 0, 0 }, { 1, 3 }, { 1, 4 }, { 1, 0 } };

    for (uint32_t r = 0; r < 2; r++) {
        const int64_t *out = maps->out[r].data;

        for (size_t i = 0; i < 5 * each; i++) {
            uint32_t from = expected[i / each].peers ? 1 - r : r;
            int64_t value = pair_value(from, expected[i / each].blk, i % each);

            if (i / each == 1)
                value += pair_value(1 - r, 1, i % each);
            if (out[i] != value)
                fail_msg("blocks of %zu: element %zu of rank %u", each, i, r);
        }
        assert_memory_equal(&out[5 * each], "ZZZZZZZZ", 8);
    }
}

static void test_equal(void **state)
{
    maps_t *maps = calloc(1, sizeof(*maps));

    (void)state;
    assert_non_null(maps);
    maps->n = 2;
    equal_build(maps);
    for (int i = 0; i < 4; i++) {
        team_t team;
        crew_t crew;

        team_open(&team, 2, NULL, i < 2 ? 64 : 8192, 2, i % 2);
        crew_open(&crew, &team, (uint32_t)i);
        for (uint32_t turn = 0; turn < 8 * ORDERS; turn++) {
            size_t each = 1 + turn;

            for (uint32_t r = 0; r < 2; r++) {
                wipe(&maps->out[r]);
                for (size_t k = 0; k < 5 * each; k++)
                    maps->in[r].data[k] = pair_value(r, (uint32_t)(k / each), k % each);
                maps->call[r] = (tutti__exec_call_t){ .in = maps->in[r].data,
                                                      .out = maps->out[r].data,
                                                      .count = 5 * each,
                                                      .dtype = TUTTI_INT64,
                                                      .op = TUTTI_SUM,
                                                      .signature = 7 };
            }
            run_all(maps, &crew, (order_t)(turn % ORDERS), "turned");
            equal_check(maps, each);
        }
        crew_close(&crew);
        team_close(&team);
    }
    free_scheds(maps);
    free(maps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_equal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
