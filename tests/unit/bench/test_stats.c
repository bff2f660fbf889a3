/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The statistics of the bench programs: quantiles, OSU's percentile, bootstrap intervals.
 */
#include "harness/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void check(double have, double want)
{
    double off = have - want;

    if (off > 1e-9 || off < -1e-9)
        fail_msg("have %.12g, want %.12g", have, want);
}

static void test_quantiles(void **state)
{
    double values[] = { 5, 1, 4, 2, 3 };
    double even[] = { 4, 1, 3, 2 };

    (void)state;
    check(bench_median(values, 5), 3.0);
    check(values[0], 5.0); /* unchanged */
    check(bench_median(even, 4), 2.5);
    check(bench_median(values, 1), 5.0);
    check(bench_mean(values, 5), 3.0);
    check(bench_least(values, 5), 1.0);
    bench_sort(values, 5);
    check(bench_quantile(values, 5, 0.0), 1.0);
    check(bench_quantile(values, 5, 0.1), 1.4);
    check(bench_quantile(values, 5, 0.99), 4.96);
    check(bench_quantile(values, 5, 1.0), 5.0);
}

static void test_percentile_is_osus(void **state)
{
    double values[10];

    (void)state;
    for (int i = 0; i < 10; i++)
        values[i] = i + 1;
    check(bench_percentile(values, 10, 50), 5.0);
    check(bench_percentile(values, 10, 90), 9.0);
    check(bench_percentile(values, 10, 99), 10.0);
    check(bench_percentile(values, 10, 100), 10.0);
    check(bench_percentile(values, 10, 1), 1.0); /* here OSU's own code reads before the array */
}

/*
 * Ten values, two of them 0, the others 1. A resample's median is 0.5 if five are 0, and 0 if more
 * are: by the binomial distribution in 2.6 % and 0.6 % of them. So the quantile of 2.5 % of all
 * medians is 0.5, and the interval begins at 0.5. An interval of 90 % or 99 % would begin
 * elsewhere.
 */
static void test_bootstrap_encloses_95_percent(void **state)
{
    double values[10] = { 1, 1, 0, 1, 1, 1, 1, 0, 1, 1 };
    bench_interval_t interval = bench_bootstrap(values, 10);

    (void)state;
    check(interval.middle, 1.0);
    check(interval.low, 0.5);
    check(interval.high, 1.0);
    for (int i = 0; i < 10; i++)
        values[i] = 1.0 - values[i];
    interval = bench_bootstrap(values, 10);
    check(interval.middle, 0.0);
    check(interval.low, 0.0);
    check(interval.high, 0.5);
}

static void test_bootstrap_is_the_same_each_time(void **state)
{
    double values[25];
    bench_interval_t first;
    bench_interval_t again;

    (void)state;
    for (int i = 0; i < 25; i++)
        values[i] = (i * 7 % 25) * 0.1 + 1.0;
    first = bench_bootstrap(values, 25);
    again = bench_bootstrap(values, 25);
    assert_memory_equal(&first, &again, sizeof(first));
    assert_true(first.low < first.middle && first.middle < first.high);
    check(first.middle, 2.2);
    /* One value has no spread. */
    first = bench_bootstrap(values, 1);
    check(first.low, values[0]);
    check(first.high, values[0]);
}

static void test_quotient(void **state)
{
    double twice[12];
    double once[10];
    double noisy[10];
    bench_interval_t interval;

    (void)state;
    for (int i = 0; i < 12; i++)
        twice[i] = 2.0;
    for (int i = 0; i < 10; i++) {
        once[i] = 1.0;
        noisy[i] = 0.5 + 0.1 * i;
    }
    interval = bench_bootstrap_quotient(twice, 12, once, 10);
    check(interval.low, 2.0);
    check(interval.middle, 2.0);
    check(interval.high, 2.0);
    /* The denominator is drawn as well. */
    interval = bench_bootstrap_quotient(twice, 12, noisy, 10);
    assert_true(interval.low < interval.middle && interval.middle < interval.high);
    check(interval.middle, 2.0 / 0.95);
}

static void test_shuffle(void **state)
{
    uint64_t random = 7;
    uint64_t other = 7;
    int firsts[4] = { 0, 0, 0, 0 };
    int order[4];
    int again[4];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int seen = 0;

        bench_shuffle(&random, order, 4);
        bench_shuffle(&other, again, 4);
        assert_memory_equal(order, again, sizeof(order));
        for (int j = 0; j < 4; j++)
            seen |= 1 << order[j];
        assert_int_equal(seen, 15);
        firsts[order[0]]++;
    }
    for (int j = 0; j < 4; j++)
        assert_in_range(firsts[j], 180, 320);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_percentile_is_osus),
        cmocka_unit_test(test_bootstrap_encloses_95_percent),
        cmocka_unit_test(test_bootstrap_is_the_same_each_time),
        cmocka_unit_test(test_quotient),
        cmocka_unit_test(test_shuffle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
