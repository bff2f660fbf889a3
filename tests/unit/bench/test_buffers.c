/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The buffers of the bench programs: the pairs of a rotating pool, and OSU's division.
 */
#include "harness/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const bench_type_t type = { "float32", "MPI_FLOAT", TUTTI_FLOAT32, 4, 1 << 24 };

static bench_t open_bench(const bench_program_t *program, size_t max_bytes, int rotate)
{
    bench_t bench = {
        .program = program,
        .options = { .type = &type,
                     .max_bytes = max_bytes,
                     .memory_bytes = 1 << 20,
                     .naligns = 1,
                     .aligns = { { .bytes = 4096 } },
                     .rotate = rotate },
        .world = { .size = 1 },
    };

    bench_buffers_open(&bench);
    return bench;
}

static const bench_collective_t gather = { .send = BENCH_COUNT,
                                           .recv = BENCH_ALL_RANKS,
                                           .in_place = BENCH_OWN_PART };
static const bench_program_t program = { .name = "test", .collective = &gather };

static void test_one_pair(void **state)
{
    bench_t bench = open_bench(&program, 4096, 0);
    bench_call_t first;
    bench_call_t second;

    (void)state;
    assert_int_equal(bench_pairs(&bench, 4096), 1);
    first = bench_next_call(&bench, 4096);
    second = bench_next_call(&bench, 4096);
    assert_int_equal(first.count, 1024);
    assert_ptr_equal(first.sendbuf, second.sendbuf);
    assert_ptr_equal(first.recvbuf, second.recvbuf);
    assert_ptr_not_equal(first.sendbuf, first.recvbuf);
    bench_buffers_close(&bench);
}

/* No pair overlaps the next one. The last pair ends inside the pool, and after it the first pair is
   used again. */
static void test_pool(void **state)
{
    bench_t bench = open_bench(&program, 16384, 1);
    size_t pairs = bench_pairs(&bench, 10000);
    bench_call_t before = bench_next_call(&bench, 10000);
    bench_call_t first = before;

    (void)state;
    assert_int_equal(bench.buffers.bytes[0], 1 << 20); /* -M */
    assert_in_range(pairs, 80, 100);
    for (size_t i = 1; i < pairs; i++) {
        bench_call_t call = bench_next_call(&bench, 10000);

        assert_true((const char *)call.sendbuf >= (const char *)before.sendbuf + 10000);
        assert_true((char *)call.recvbuf >= (char *)before.recvbuf + 10000);
        before = call;
    }
    assert_true((char *)before.recvbuf + 10000 <= (char *)bench.buffers.memory[1] + (1 << 20));
    before = bench_next_call(&bench, 10000);
    assert_ptr_equal(before.sendbuf, first.sendbuf);
    assert_ptr_equal(before.recvbuf, first.recvbuf);
    bench_buffers_close(&bench);
}

/* For each alignment the buffers begin where it requires, are large enough, and do not overlap. */
static void test_places(void **state)
{
    static const bench_align_t aligns[] = { { 4096, 0 }, { 4096, 16 }, { 64, 1 }, { 65536, 4100 } };
    bench_t bench = open_bench(&program, 4096, 0);

    (void)state;
    bench_buffers_close(&bench);
    bench.buffers = (bench_buffers_t){ 0 };
    bench.options.naligns = 4;
    memcpy(bench.options.aligns, aligns, sizeof(aligns));
    bench_buffers_open(&bench);
    for (int i = 0; i < 4; i++) {
        bench_call_t call;

        bench.buffers.align = i;
        call = bench_next_call(&bench, 4096);
        assert_int_equal((uintptr_t)call.sendbuf % aligns[i].bytes, aligns[i].offset);
        assert_int_equal((uintptr_t)call.recvbuf % aligns[i].bytes, aligns[i].offset);
        memset((void *)(uintptr_t)call.sendbuf, i, 4096); /* a sanitizer detects an overflow */
        memset(call.recvbuf, i + 1, 4096);
        assert_int_equal(*(const char *)call.sendbuf, i);
    }
    bench_buffers_close(&bench);
}

static void test_own_part(void **state)
{
    bench_t bench = open_bench(&program, 4096, 0);
    bench_call_t call;

    (void)state;
    bench_buffers_close(&bench);
    bench.options.in_place = 1;
    bench.world.size = 4;
    bench.world.rank = 2;
    bench.buffers = (bench_buffers_t){ 0 };
    bench_buffers_open(&bench);
    call = bench_next_call(&bench, 4096);
    assert_null(bench.buffers.memory[0]);
    assert_ptr_equal(call.sendbuf, (char *)call.recvbuf + 2 * 4096);
    assert_int_equal(bench.buffers.bytes[1], 4 * 4096);
    bench_buffers_close(&bench);
}

static void test_shares(void **state)
{
    (void)state;
    for (size_t count = 0; count < 20; count++) {
        for (int ranks = 1; ranks < 6; ranks++) {
            size_t sum = 0;

            for (int rank = 0; rank < ranks; rank++) {
                assert_int_equal(bench_share_begin(count, ranks, rank), sum);
                sum += bench_share(count, ranks, rank);
            }
            assert_int_equal(sum, count);
        }
    }
    assert_int_equal(bench_share(7, 3, 0), 3);
    assert_int_equal(bench_share(7, 3, 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_pair), cmocka_unit_test(test_pool),
        cmocka_unit_test(test_places),   cmocka_unit_test(test_own_part),
        cmocka_unit_test(test_shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
