/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of measurements, independent of ranks and of Tutti.
 */
#ifndef TUTTI_BENCH_STATS_H
#define TUTTI_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

/* A number and the 95 % interval around it. */
typedef struct {
    double middle, low, high;
} bench_interval_t;

/* A random number less than `below`, by xorshift64. `*state` must not be 0. */
uint64_t bench_draw(uint64_t *state, uint64_t below);
/* 0 to count - 1 in a random order. */
void bench_shuffle(uint64_t *state, int *order, int count);

/* Zeroed memory. If there is not enough memory, the program ends. */
void *bench_allocate(size_t count, size_t bytes);

void bench_sort(double *values, size_t count);
/* The quantile `at` (0 to 1) of a sorted list, interpolated between neighbours. */
double bench_quantile(const double *sorted, size_t count, double at);
/* The median of a list in any order. */
double bench_median(const double *values, size_t count);
double bench_mean(const double *values, size_t count);
double bench_least(const double *values, size_t count);
/* OSU's percentile (1 to 100) of a sorted list: one of the values. */
double bench_percentile(const double *sorted, size_t count, int percent);

/*
 * The median, and its bootstrap interval: the middle 95 % of the medians of 2000 samples that are
 * drawn with replacement. The same values always give the same interval. _quotient: the same for
 * median(above) / median(below); each list is resampled on its own.
 */
bench_interval_t bench_bootstrap(const double *values, size_t count);
bench_interval_t bench_bootstrap_quotient(const double *above, size_t nabove, const double *below,
                                          size_t nbelow);

#endif
