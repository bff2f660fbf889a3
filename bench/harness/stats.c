/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of measurements.
 */
#include "harness/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESAMPLES = 2000
};

/* Any constant but 0, so that the same data always has the same interval. */
static const uint64_t bootstrap_seed = 0x9e3779b97f4a7c15u;

uint64_t bench_draw(uint64_t *state, uint64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % below;
}

void bench_shuffle(uint64_t *state, int *order, int count)
{
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)bench_draw(state, (uint64_t)i + 1);
        int kept = order[i];

        order[i] = order[j];
        order[j] = kept;
    }
}

void *bench_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);

    if (memory == NULL) {
        fprintf(stderr, "out of memory: %zu times %zu bytes\n", count, bytes);
        exit(1);
    }
    return memory;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
}

double bench_quantile(const double *sorted, size_t count, double at)
{
    double place = at * (double)(count - 1);
    size_t low = (size_t)place;
    size_t high = low + 1 < count ? low + 1 : low;

    return sorted[low] + (sorted[high] - sorted[low]) * (place - (double)low);
}

double bench_median(const double *values, size_t count)
{
    double *sorted = bench_allocate(count, sizeof(*sorted));
    double middle;

    memcpy(sorted, values, count * sizeof(*sorted));
    bench_sort(sorted, count);
    middle = bench_quantile(sorted, count, 0.5);
    free(sorted);
    return middle;
}

double bench_least(const double *values, size_t count)
{
    double least = values[0];

    for (size_t i = 1; i < count; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

double bench_mean(const double *values, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

double bench_percentile(const double *sorted, size_t count, int percent)
{
    size_t place = (size_t)round((double)count * percent / 100.0);

    return sorted[place > 0 ? place - 1 : 0];
}

/* The median of `count` values drawn with replacement. room: [count], scratch. */
static double draw_median(uint64_t *state, const double *values, size_t count, double *room)
{
    for (size_t i = 0; i < count; i++)
        room[i] = values[bench_draw(state, count)];
    bench_sort(room, count);
    return bench_quantile(room, count, 0.5);
}

static bench_interval_t enclose(double middle, double *medians)
{
    bench_sort(medians, RESAMPLES);
    return (bench_interval_t){
        .middle = middle,
        .low = bench_quantile(medians, RESAMPLES, 0.025),
        .high = bench_quantile(medians, RESAMPLES, 0.975),
    };
}

bench_interval_t bench_bootstrap(const double *values, size_t count)
{
    double *room = bench_allocate(count, sizeof(*room));
    double *medians = bench_allocate(RESAMPLES, sizeof(*medians));
    uint64_t state = bootstrap_seed;
    bench_interval_t interval;

    for (int i = 0; i < RESAMPLES; i++)
        medians[i] = draw_median(&state, values, count, room);
    interval = enclose(bench_median(values, count), medians);
    free(medians);
    free(room);
    return interval;
}

bench_interval_t bench_bootstrap_quotient(const double *above, size_t nabove, const double *below,
                                          size_t nbelow)
{
    double *room = bench_allocate(nabove > nbelow ? nabove : nbelow, sizeof(*room));
    double *quotients = bench_allocate(RESAMPLES, sizeof(*quotients));
    uint64_t state = bootstrap_seed;
    bench_interval_t interval;

    for (int i = 0; i < RESAMPLES; i++) {
        quotients[i] = draw_median(&state, above, nabove, room);
        quotients[i] /= draw_median(&state, below, nbelow, room);
    }
    interval = enclose(bench_median(above, nabove) / bench_median(below, nbelow), quotients);
    free(quotients);
    free(room);
    return interval;
}
