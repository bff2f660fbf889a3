/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flags of the bench programs that are numbers.
 */
#include "harness/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_number(void **state)
{
    static const char *const bad[] = { "", "K", "-1", " 1", "1x", "1KK", "1.5", "0x10" };
    uint64_t n = 9;

    (void)state;
    assert_true(bench_number("0", &n));
    assert_int_equal(n, 0);
    assert_true(bench_number("64K", &n));
    assert_int_equal(n, 65536);
    assert_true(bench_number("2g", &n));
    assert_int_equal(n, UINT64_C(2) << 30);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(bench_number(bad[i], &n));
    assert_false(bench_number("99999999999G", &n));
}

static void test_range(void **state)
{
    static const char *const bad[] = { "", ":", ":4", "4:", "4:8:16", "4-8", "4:99999999999G" };
    uint64_t first = 1;
    uint64_t last = 2;

    (void)state;
    assert_null(bench_range("64", &first, &last));
    assert_int_equal(first, 1);
    assert_int_equal(last, 64);
    assert_null(bench_range("8:1K", &first, &last));
    assert_int_equal(first, 8);
    assert_int_equal(last, 1024);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_string_equal(bench_range(bad[i], &first, &last), "want [MIN:]MAX");
    assert_string_equal(bench_range("16:4", &first, &last), "MIN is larger than MAX");
    assert_string_equal(bench_range("4:1Q", &first, &last), "unknown unit; there are K, M and G");
    assert_string_equal(bench_range("4KB", &first, &last), "unknown unit; there are K, M and G");
    assert_int_equal(first, 8);
    assert_int_equal(last, 1024);
}

static void test_percentiles(void **state)
{
    static const char *const bad[] = { "",    ",",   "50,", ",50", "0",
                                       "101", "5.5", "a",   "-5",  "1,2,3,4,5,6,7,8,9" };
    int percent[BENCH_TAILS];

    (void)state;
    assert_int_equal(bench_percentiles("50,90,99", percent), 3);
    assert_int_equal(percent[0], 50);
    assert_int_equal(percent[2], 99);
    assert_int_equal(bench_percentiles("100", percent), 1);
    assert_int_equal(bench_percentiles("1,2,3,4,5,6,7,8", percent), 8);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(bench_percentiles(bad[i], percent), 0);
}

static void test_aligns(void **state)
{
    static const char *const bad[] = {
        "",    "3",       "0",   "64+64", "64+", "+16", "64,",
        ",64", "64+16+1", "64 ", "64,65", "2G",  "-64", "1,2,4,8,16"
    };
    bench_align_t aligns[BENCH_ALIGNS];

    (void)state;
    assert_int_equal(bench_aligns("4096", aligns), 1);
    assert_int_equal(aligns[0].bytes, 4096);
    assert_int_equal(aligns[0].offset, 0);
    assert_int_equal(bench_aligns("4K,4K+16,1,2M+1K", aligns), 4);
    assert_int_equal(aligns[1].bytes, 4096);
    assert_int_equal(aligns[1].offset, 16);
    assert_int_equal(aligns[2].bytes, 1);
    assert_int_equal(aligns[3].bytes, 2 << 20);
    assert_int_equal(aligns[3].offset, 1024);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(bench_aligns(bad[i], aligns), 0);
}

static void test_module(void **state)
{
    (void)state;
    assert_true(bench_is_module("cuda"));
    assert_false(bench_is_module(""));
    assert_false(bench_is_module("../cuda"));
    assert_false(bench_is_module("cuda.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_number),      cmocka_unit_test(test_range),
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_aligns),
        cmocka_unit_test(test_module),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
