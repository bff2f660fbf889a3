/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: the order of operands, the meeting before the first operation, node operations on
 * SCRATCH, a schedule at the address of an earlier one, and the length of messages.
 */
#include "coll/coll.h"
#include "sched/build.h"
#include "unit/coll/shapes.h"
#include "unit/exec/lag.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 1500,
    N = 4
};

typedef struct {
    tutti__sched_t *scheds[WORLD_RANKS];
    tutti__exec_call_t call[WORLD_RANKS];
    int64_t in[WORLD_RANKS][MOST], out[WORLD_RANKS][MOST];
} bench_t;

static tutti__at_t at(tutti__buf_t buf, uint32_t blk)
{
    return (tutti__at_t){ buf, blk };
}

static bench_t *new_bench(void)
{
    bench_t *bench = calloc(1, sizeof(*bench));

    assert_non_null(bench);
    return bench;
}

/* Both halves of the element differ, as compose() needs it. */
static int64_t brought(uint32_t rank, size_t i)
{
    return (int64_t)((rank + 1) * 100003 + i * 7919 % 65521 + ((rank * 17 + i % 1000 + 1) << 32));
}

static void fill(bench_t *bench, uint32_t n, size_t count, tutti_op_t op)
{
    assert_true(count <= MOST);
    for (uint32_t r = 0; r < n; r++) {
        for (size_t i = 0; i < count; i++)
            bench->in[r][i] = brought(r, i);
        memset(bench->out[r], 0x5a, sizeof(bench->out[r]));
        bench->call[r] = (tutti__exec_call_t){ .in = bench->in[r],
                                               .out = bench->out[r],
                                               .count = count,
                                               .dtype = TUTTI_INT64,
                                               .op = op,
                                               .signature = 3,
                                               .tag = TUTTI__TAG_ALLREDUCE };
    }
}

static void free_scheds(bench_t *bench, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        tutti__sched_free(bench->scheds[r]);
}

static void expect_sums(const bench_t *bench, uint32_t n, size_t count, const char *what)
{
    for (uint32_t r = 0; r < n; r++) {
        for (size_t i = 0; i < count; i++) {
            int64_t sum = 0;

            for (uint32_t s = 0; s < n; s++)
                sum += brought(s, i);
            if (bench->out[r][i] != sum)
                fail_msg("%s, %zu elements: element %zu of rank %u is %lld, not %lld", what, count,
                         i, r, (long long)bench->out[r][i], (long long)sum);
        }
    }
}

/* ---- left and right ---- */

/* x -> a x + b and x -> c x + d, one after another: associative, but never commutative here. */
static void compose(void *dst, const void *left, const void *right, size_t count,
                    tutti_dtype_t dtype, void *context)
{
    (void)dtype;
    (void)context;
    for (size_t i = 0; i < count; i++) {
        uint32_t l[2], r[2], to[2];

        memcpy(l, (const int64_t *)left + i, sizeof(l));
        memcpy(r, (const int64_t *)right + i, sizeof(r));
        to[0] = l[0] * r[0];
        to[1] = l[0] * r[1] + l[1];
        memcpy((int64_t *)dst + i, to, sizeof(to));
    }
}

/* A chain from rank 0 upwards. Rank r gets the composition of the elements of ranks 0 to r, in this
   order or in reverse. Even ranks add with RECV_REDUCE, odd ranks with REDUCE from SCRATCH. */
static void chain_build(bench_t *bench, uint32_t n, int is_left)
{
    for (uint32_t r = 0; r < n; r++) {
        tutti__build_t *b = tutti__build_begin("chain", r, n, 3, 3, 3);

        tutti__build_loop(b);
        if (r % 2 == 1) {
            tutti__build_recv(b, r - 1, 0, at(TUTTI__SCRATCH, 0), 3);
            tutti__build_copy(b, at(TUTTI__IN, 0), at(TUTTI__OUT, 0), 3);
            if (is_left)
                tutti__build_left(b);
            tutti__build_reduce(b, at(TUTTI__SCRATCH, 0), at(TUTTI__OUT, 0), 3);
        } else if (r > 0) {
            if (is_left)
                tutti__build_left(b);
            tutti__build_recv_reduce(b, r - 1, 0, at(TUTTI__IN, 0), at(TUTTI__OUT, 0), 3);
        } else {
            tutti__build_copy(b, at(TUTTI__IN, 0), at(TUTTI__OUT, 0), 3);
        }
        if (r + 1 < n)
            tutti__build_send(b, r + 1, at(TUTTI__OUT, 0), 3);
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &bench->scheds[r]), TUTTI_OK);
    }
}

static void chain_check(const bench_t *bench, uint32_t n, size_t count, int is_left)
{
    for (size_t i = 0; i < count; i++) {
        int64_t expected = brought(0, i);

        for (uint32_t r = 0; r < n; r++) {
            int64_t own = brought(r, i);

            if (r > 0)
                compose(&expected, is_left ? &expected : &own, is_left ? &own : &expected, 1,
                        TUTTI_INT64, NULL);
            if (bench->out[r][i] != expected)
                fail_msg("left %d: element %zu of rank %u", is_left, i, r);
        }
    }
}

static void test_left(void **state)
{
    static const size_t counts[] = { 1, 2, 3, 7, 30, 31, 400 };
    bench_t *bench = new_bench();
    tutti_op_t op;
    team_t team;
    crew_t crew;

    (void)state;
    assert_int_equal(tutti_op_create(compose, NULL, 0, &op), TUTTI_OK);
    for (int is_left = 0; is_left < 2; is_left++) {
        chain_build(bench, N, is_left);
        for (int slots = 0; slots < 2; slots++) {
            team_open(&team, N, NULL, slots ? 4096 : 64, 1, 0);
            crew_open(&crew, &team, 1);
            for (uint32_t i = 0; i < 7 * ORDERS; i++) {
                fill(bench, N, counts[i / ORDERS], op);
                crew_set(&crew, bench->scheds, bench->call);
                crew_finish(&crew, (order_t)(i % ORDERS), i, "left");
                chain_check(bench, N, counts[i / ORDERS], is_left);
            }
            crew_close(&crew);
            team_close(&team);
        }
        free_scheds(bench, N);
    }
    assert_int_equal(tutti_op_free(op), TUTTI_OK);
    free(bench);
}

/* ---- meeting ---- */

static void ring_build(bench_t *bench, const shape_t *shape)
{
    const tutti__algorithm_t *ring = tutti__algorithm_find(TUTTI__ALLREDUCE, "ring");

    assert_non_null(ring);
    for (uint32_t r = 0; r < shape->shape.size; r++) {
        tutti__coll_args_t args = { .rank = r };

        assert_int_equal(ring->build(&shape->shape, &args, &bench->scheds[r]), TUTTI_OK);
    }
}

/* The differing call of rank 2, and the error text on all ranks. */
typedef struct {
    tutti__exec_call_t usual, odd;
    const char *text;
} clash_t;

static const clash_t clashes[] = {
    { { .count = 10, .tag = TUTTI__TAG_REDUCE_SCATTER, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM },
      { .count = 20, .tag = TUTTI__TAG_REDUCE_SCATTER, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM },
      "rank 0 has a reduce_scatter of 10 elements of float32 in all, sum; "
      "rank 2 has a reduce_scatter of 20 elements of float32 in all, sum" },
    { { .count = 10, .tag = TUTTI__TAG_SCAN, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM },
      { .count = 10, .tag = TUTTI__TAG_EXSCAN, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM },
      "rank 0 has a scan of 10 elements of float32, sum; rank 2 has an exscan of 10 elements of "
      "float32, sum" },
    { { .count = 10, .tag = TUTTI__TAG_REDUCE, .dtype = TUTTI_INT64, .op = TUTTI_MAX },
      { .count = 10, .tag = TUTTI__TAG_REDUCE, .dtype = TUTTI_INT64, .op = TUTTI_MIN },
      "rank 0 has a reduce of 10 elements of int64, max, root 0; "
      "rank 2 has a reduce of 10 elements of int64, min, root 0" },
    /* Roots that differ in their upper bits only. */
    { { .count = 8, .tag = TUTTI__TAG_BROADCAST, .dtype = TUTTI_INT64, .root = 3 },
      { .count = 8, .tag = TUTTI__TAG_BROADCAST, .dtype = TUTTI_INT64, .root = 65539 },
      "rank 0 has a broadcast of 8 elements of int64, root 3; "
      "rank 2 has a broadcast of 8 elements of int64, root 65539" },
    { { .count = 8, .tag = TUTTI__TAG_GATHER, .dtype = TUTTI_UINT8, .root = 1 },
      { .count = 8, .tag = TUTTI__TAG_SCATTER, .dtype = TUTTI_UINT8, .root = 1 },
      "rank 0 has a gather of 8 elements of uint8 in all, root 1; "
      "rank 2 has a scatter of 8 elements of uint8 in all, root 1" },
    { { .count = 1, .tag = TUTTI__TAG_BARRIER, .dtype = TUTTI_UINT8 },
      { .count = 8, .tag = TUTTI__TAG_ALLTOALL, .dtype = TUTTI_UINT8 },
      "rank 0 has a barrier; rank 2 has an alltoall of 8 elements of uint8 in all" },
    /* Operations whose numbers have the same lower 8 bits. */
    { { .count = 9, .tag = TUTTI__TAG_ALLREDUCE, .dtype = TUTTI_INT64, .op = TUTTI_SUM },
      { .count = 9, .tag = TUTTI__TAG_ALLREDUCE, .dtype = TUTTI_INT64, .op = (tutti_op_t)257 },
      "rank 0 has an allreduce of 9 elements of int64, sum; rank 2 has an allreduce" },
};

static void set_clash(bench_t *bench, const clash_t *clash)
{
    fill(bench, N, 40, TUTTI_SUM);
    for (uint32_t r = 0; r < N; r++) {
        const tutti__exec_call_t *from = r == 2 ? &clash->odd : &clash->usual;

        bench->call[r].count = from->count;
        bench->call[r].tag = from->tag;
        bench->call[r].dtype = from->dtype;
        bench->call[r].op = from->op == 0 ? TUTTI_MAX : from->op;
        bench->call[r].root = from->root;
        bench->call[r].meet = 1;
    }
}

static void expect_clash(const bench_t *bench, const crew_t *crew, const char *text)
{
    for (uint32_t r = 0; r < N; r++) {
        const member_t *m = &crew->member[r];

        if (m->state != MEMBER_FAILED || m->status != TUTTI_ERR_MISMATCH ||
            strstr(m->error, text) == NULL)
            fail_msg("rank %u: state %d, \"%s\", expected \"%s\"", r, (int)m->state, m->error,
                     text);
        for (size_t k = 0; k < sizeof(bench->out[r]); k++)
            assert_int_equal(((const char *)bench->out[r])[k], 0x5a);
    }
}

/* All ranks detect a differing call before any data move, and the lane continues. This is also true
   with transports to which the number of messages is passed, and which would otherwise wait for
   these messages. */
static void test_meeting(void **state)
{
    bench_t *bench = new_bench();
    shape_t *shape = shape_even(1, N);
    team_t team;
    crew_t crew;

    (void)state;
    ring_build(bench, shape);
    for (uint32_t i = 0; i < sizeof(clashes) / sizeof(*clashes); i++) {
        for (int order = 0; order < ORDERS; order++) {
            team_open(&team, N, NULL, 64, 2, order % 2);
            crew_open(&crew, &team, (uint32_t)order % TUTTI__LANES);
            crew.meets = 1;
            set_clash(bench, &clashes[i]);
            crew_set(&crew, bench->scheds, bench->call);
            assert_true(crew_drive(&crew, (order_t)order, i, 0));
            expect_clash(bench, &crew, clashes[i].text);
            for (uint32_t r = 0; r < N && order % 2; r++)
                assert_int_equal(lag_missing(team.lag[r]), 0);
            crew_cancel(&crew);

            for (uint32_t again = 0; again < 3; again++) {
                fill(bench, N, 40, TUTTI_SUM);
                for (uint32_t r = 0; r < N; r++)
                    bench->call[r].meet = again < 2;
                crew_set(&crew, bench->scheds, bench->call);
                crew_finish(&crew, (order_t)order, i, "met");
                expect_sums(bench, N, 40, "met");
            }
            crew_close(&crew);
            team_close(&team);
        }
    }
    free_scheds(bench, N);
    shape_free(shape);
    free(bench);
}

/* Some ranks are in a meeting while another rank is in a node operation. Their announcements have
   different layouts, but all ranks report the same two ranks. */
static void test_meeting_or_node(void **state)
{
    static const size_t counts[] = { 1, 100 };
    const tutti__algorithm_t *node = tutti__algorithm_find(TUTTI__ALLREDUCE, "node");
    bench_t *bench = new_bench();
    shape_t *shape = shape_even(1, N);
    tutti__coll_args_t args = { .rank = 2 };
    team_t team;
    crew_t crew;

    (void)state;
    ring_build(bench, shape);
    tutti__sched_free(bench->scheds[2]);
    assert_int_equal(node->build(&shape->shape, &args, &bench->scheds[2]), TUTTI_OK);
    team_open(&team, N, NULL, 64, 2, 0);
    crew_open(&crew, &team, 0);
    for (uint32_t i = 0; i < 2 * ORDERS; i++) {
        fill(bench, N, counts[i % 2], TUTTI_SUM);
        for (uint32_t r = 0; r < N; r++)
            bench->call[r].meet = r != 2;
        bench->call[2].tag = TUTTI__TAG_BUCKET;
        bench->call[1].root = i / 2 % 2 ? 9 : 0;
        crew_set(&crew, bench->scheds, bench->call);
        assert_true(crew_drive(&crew, (order_t)(i / 2), i, 0));
        expect_clash(bench, &crew,
                     i / 2 % 2 ? " of int64, sum; rank 1 has an allreduce of "
                               : " of int64, sum; rank 2 has a bucket of ");
        crew_cancel(&crew);
    }
    crew_close(&crew);
    team_close(&team);
    free_scheds(bench, N);
    shape_free(shape);
    free(bench);
}

/* ---- node operations on SCRATCH ---- */

/* Parts of `part` blocks each, through SCRATCH blocks that are not the first. */
static void scratch_build(bench_t *bench, uint32_t n, uint32_t part)
{
    for (uint32_t r = 0; r < n; r++) {
        uint32_t nblocks = n * part;
        tutti__build_t *b = tutti__build_begin("scratch", r, n, nblocks, 2 * nblocks, 1);
        tutti__at_t middle = at(TUTTI__SCRATCH, nblocks), copy = at(TUTTI__SCRATCH, 0);

        tutti__build_loop(b);
        for (uint32_t i = 0; i < nblocks; i++)
            tutti__build_copy(b, at(TUTTI__IN, i), at(TUTTI__SCRATCH, i), 1);
        tutti__build_node(b, TUTTI__NODE_REDUCE_SCATTER, r % 2 ? at(TUTTI__IN, 0) : copy, middle,
                          part, n, 0);
        tutti__build_node(b, TUTTI__NODE_ALLGATHER, middle,
                          r % 2 ? at(TUTTI__SCRATCH, 0) : at(TUTTI__OUT, 0), part, n, 0);
        if (r % 2)
            tutti__build_copy(b, at(TUTTI__SCRATCH, 0), at(TUTTI__OUT, 0), nblocks);
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &bench->scheds[r]), TUTTI_OK);
    }
}

static void test_node_on_scratch(void **state)
{
    static const size_t counts[] = { 1, 3, 8, 9, 100, 1000, 1500 };
    bench_t *bench = new_bench();

    (void)state;
    for (uint32_t part = 1; part <= 3; part += 2) {
        for (int slots = 0; slots < 3; slots++) {
            uint32_t n = 3;
            team_t team;
            crew_t crew;

            scratch_build(bench, n, part);
            team_open(&team, n, NULL, (size_t)64 << 4 * slots, 2, 0);
            crew_open(&crew, &team, 1);
            for (uint32_t i = 0; i < 7 * ORDERS; i++) {
                fill(bench, n, counts[i / ORDERS], TUTTI_SUM);
                crew_set(&crew, bench->scheds, bench->call);
                crew_finish(&crew, (order_t)(i % ORDERS), i, "scratch");
                expect_sums(bench, n, counts[i / ORDERS], "scratch");
            }
            crew_close(&crew);
            team_close(&team);
            free_scheds(bench, n);
        }
    }
    free(bench);
}

/* ---- at the same address ---- */

static void turn_build(bench_t *bench, uint32_t by)
{
    for (uint32_t r = 0; r < N; r++) {
        tutti__build_t *b = tutti__build_begin("turn", r, N, by, 0, 1);

        tutti__build_loop(b);
        for (uint32_t blk = 0; blk < by; blk++) {
            tutti__build_send(b, (r + by) % N, at(TUTTI__IN, blk), 1);
            tutti__build_recv(b, (r + N - by) % N, 0, at(TUTTI__OUT, blk), 1);
        }
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &bench->scheds[r]), TUTTI_OK);
    }
}

/* A run's cached values belong to a schedule's content, not to its address. */
static void test_same_address(void **state)
{
    bench_t *bench = new_bench();
    tutti__sched_t place[N], *scheds[N];
    team_t team;
    crew_t crew;

    (void)state;
    team_open(&team, N, NULL, 64, 2, 1);
    crew_open(&crew, &team, 0);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t by = 1 + i % 3;

        turn_build(bench, by);
        for (uint32_t r = 0; r < N; r++) {
            place[r] = *bench->scheds[r];
            scheds[r] = &place[r];
        }
        fill(bench, N, 100, TUTTI_SUM);
        crew_set(&crew, scheds, bench->call);
        crew_finish(&crew, (order_t)(i % ORDERS), i, "turn");
        for (uint32_t r = 0; r < N; r++)
            for (size_t k = 0; k < 100; k++)
                assert_int_equal(bench->out[r][k], brought((r + N - by) % N, k));
        free_scheds(bench, N);
    }
    crew_close(&crew);
    team_close(&team);
    free(bench);
}

/* A transport's messages may be longer than the communicator's slot_bytes. If the transport's
   most_bytes is 0, its messages have slot_bytes. */
static void test_longest(void **state)
{
    bench_t *bench = new_bench();
    shape_t *shape = shape_even(1, N);
    team_t team;
    crew_t crew;

    (void)state;
    ring_build(bench, shape);
    for (int is_lagging = 0; is_lagging < 2; is_lagging++) {
        size_t longest = is_lagging ? 64 : 256;
        uint64_t places = lag_places;

        team_open(&team, N, NULL, 256, 2, is_lagging);
        for (uint32_t r = 0; r < N; r++)
            team.env[r].slot_bytes = 64;
        crew_open(&crew, &team, 1);
        fill(bench, N, MOST, TUTTI_SUM);
        crew_set(&crew, bench->scheds, bench->call);
        crew_finish(&crew, ORDER_RANDOM, 1, "longer");
        expect_sums(bench, N, MOST, "longer");
        for (uint32_t r = 0; r < N; r++)
            assert_int_equal(crew.member[r].run.message, longest);
        assert_int_equal(lag_places > places, is_lagging);
        crew_close(&crew);
        team_close(&team);
    }
    free_scheds(bench, N);
    shape_free(shape);
    free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_meeting),
        cmocka_unit_test(test_meeting_or_node),
        cmocka_unit_test(test_node_on_scratch),
        cmocka_unit_test(test_same_address),
        cmocka_unit_test(test_longest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
