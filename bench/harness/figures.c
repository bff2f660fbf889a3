/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of the samples.
 */
#include "harness/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* OSU's three columns, from the ranks' own averages. All ranks call it. */
static void osu_figures(const bench_t *bench, const double *own, size_t total,
                        bench_figures_t *figures)
{
    double mean_us = bench_mean(own, total);
    double ends[2] = { -mean_us, mean_us };

    figures->avg_us = mean_us;
    bench_sum(&bench->world, &figures->avg_us, 1);
    figures->avg_us /= bench->world.size;
    bench_max(&bench->world, ends, 2);
    figures->min_us = -ends[0];
    figures->max_us = ends[1];
}

static double *sorted_copy(const double *values, size_t count)
{
    double *sorted = bench_allocate(count, sizeof(*sorted));

    memcpy(sorted, values, count * sizeof(*sorted));
    bench_sort(sorted, count);
    return sorted;
}

static void own_figures(const bench_t *bench, const bench_trip_t *trip, int who,
                        bench_figures_t *figures)
{
    const bench_samples_t *samples = &trip->samples[who];
    size_t rounds = (size_t)bench->options.rounds;
    size_t block = (size_t)trip->block;
    double *sorted = sorted_copy(samples->slowest, rounds * block);

    figures->median_us = bench_quantile(sorted, rounds * block, 0.5);
    figures->p10_us = bench_quantile(sorted, rounds * block, 0.1);
    figures->p90_us = bench_quantile(sorted, rounds * block, 0.9);
    figures->p99_us = bench_quantile(sorted, rounds * block, 0.99);
    free(sorted);
    if (figures->median_us > 0.0)
        figures->bus_gbs = bench->program->collective->bus_factor(bench->world.size) *
                           (double)trip->bytes / figures->median_us * 1e-3;
    figures->round_us = bench_allocate(rounds, sizeof(double));
    for (size_t i = 0; i < rounds; i++)
        figures->round_us[i] = bench_median(samples->slowest + i * block, block);
    if (samples->mean == NULL)
        return;
    sorted = sorted_copy(samples->mean, rounds * block);
    for (int i = 0; i < bench->options.ntails; i++)
        figures->tails_us[i] = bench_percentile(sorted, rounds * block, bench->options.tails[i]);
    free(sorted);
}

/*
 * Compare two contestants: quotient and difference are computed in each round, and their medians
 * over all rounds are the result. Tried: the quotient of the medians over all rounds; with a drift
 * during the run it was 0.91 for two identical contestants.
 */
static void compare(const bench_t *bench, const double *ours, const double *theirs,
                    bench_figures_t *figures)
{
    size_t rounds = (size_t)bench->options.rounds;
    double *ratios = bench_allocate(rounds, sizeof(double));
    double *extras = bench_allocate(rounds, sizeof(double));

    for (size_t i = 0; i < rounds; i++) {
        ratios[i] = ours[i] > 0.0 ? theirs[i] / ours[i] : 0.0;
        extras[i] = theirs[i] - ours[i];
    }
    figures->ratio = bench_bootstrap(ratios, rounds);
    figures->extra_us = bench_median(extras, rounds);
    free(extras);
    free(ratios);
}

bench_row_t bench_row_make(const bench_t *bench, const bench_trip_t *trip)
{
    size_t total = (size_t)bench->options.rounds * (size_t)trip->block;
    bench_row_t row = { .bytes = trip->bytes, .limit_us = -1.0 };

    for (int who = 0; who < bench->count; who++) {
        bench_figures_t *figures = &row.of[who];

        figures->name = bench->names[who];
        figures->iterations = (long)total;
        figures->right = trip->samples[who].right;
        figures->same_bits = trip->samples[who].same_bits;
        osu_figures(bench, trip->samples[who].own, total, figures);
        if (bench->world.rank != 0)
            continue;
        own_figures(bench, trip, who, figures);
        compare(bench, row.of[bench->against[who]].round_us, figures->round_us, figures);
    }
    if (trip->copy_us != NULL) {
        row.copy_us =
            bench_least(trip->copy_us, (size_t)bench->options.rounds) * (double)trip->bytes;
        if (bench->line_us >= 0.0 ||
            (bench->world.device != NULL && tutti_host_count(bench->world.comm) == 1))
            row.limit_us = fmax(bench->line_us, row.copy_us);
    }
    return row;
}

void bench_row_free(const bench_t *bench, bench_row_t *row)
{
    for (int who = 0; who < bench->count; who++)
        free(row->of[who].round_us);
}

double bench_of_limit(const bench_row_t *row, int who)
{
    if (row->limit_us < 0.0 || row->of[who].median_us <= 0.0)
        return -1.0;
    return row->limit_us / row->of[who].median_us;
}
