/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of measurements: nothing here knows of ranks or of Tutti.
 */
#ifndef TUTTI_BENCH_STATS_H
#define TUTTI_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

/* A number and the 95 % interval around it. */
typedef struct {
    double middle, low, high;
} bench_interval_t;

/* xorshift64. `state` is not 0; below `below`. */
uint64_t bench_draw(uint64_t *state, uint64_t below);
/* 0 to count - 1 in a random order. */
void bench_shuffle(uint64_t *state, int *order, int count);

/* Memory or the end of the program. */
void *bench_allocate(size_t count, size_t bytes);

void bench_sort(double *values, size_t count);
/* The value that the share `at` (0 to 1) of a sorted list lies below, between neighbours. */
double bench_quantile(const double *sorted, size_t count, double at);
/* The same of a list in any order. */
double bench_median(const double *values, size_t count);
double bench_mean(const double *values, size_t count);
double bench_least(const double *values, size_t count);
/* OSU's percentile (1 to 100) of a sorted list: one of the values. */
double bench_percentile(const double *sorted, size_t count, int percent);

/*
 * The median, and its bootstrap interval: of 2000 samples drawn with replacement, the middle 95 %
 * of their medians. Deterministic. The second: of the quotient of two lists' medians, each drawn on
 * its own.
 */
bench_interval_t bench_bootstrap(const double *values, size_t count);
bench_interval_t bench_bootstrap_quotient(const double *above, size_t nabove, const double *below,
                                          size_t nbelow);

#endif
