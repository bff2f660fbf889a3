/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The candidates of a setting take turns, in a random order in each round. Since tutti_init reads
 * the settings, a candidate has a world of its own in its turn. In this world it runs a few blocks
 * of calls of each size. A block is timed as a whole; the slowest rank's time counts.
 *
 * The compared value is the quotient of the candidate's and the default's time in the same round,
 * so that drift of the machine cancels. The median over rounds is taken for each size, and the
 * geometric mean over sizes, so small and large messages have the same weight. The interval is a
 * bootstrap interval over rounds.
 * Tried: the median block instead of the fastest, and the rounds' means before the median: on a
 * busy machine the default then differed from itself by a fifth.
 *
 * The default runs a second time as one more candidate. Its quotient shows how much two identical
 * runs differ. A candidate wins only if its gain is larger than this difference.
 */
#include "tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS = 5,        /* timed, of each size in each world */
    MOST_CALLS = 4096, /* of a block */
    RESAMPLES = 1000,
    LEAST_ROUNDS = 5 /* also on a slow machine that uses up its time */
};

typedef struct {
    bench_world_t *world;
    const tune_setting_t *setting;
    const tune_effort_t *effort;
    tune_buffers_t buffers;
    size_t nsizes;
    long calls[TUNE_SIZES]; /* of a block */
    int count;              /* candidates, including the default twice */
    int64_t rounds;         /* that were measured in time */
    double *us;             /* [count x rounds x nsizes] */
} tune_t;

static double *place(const tune_t *t, int who, int64_t round)
{
    return t->us + ((size_t)who * (size_t)t->effort->rounds + (size_t)round) * t->nsizes;
}

static const char *value_of(const tune_t *t, int who)
{
    return who < 2 ? NULL : t->setting->values[who - 2];
}

/* ---- worlds ---- */

static void set_value(const tune_setting_t *setting, const char *value)
{
    if (setting->set != NULL)
        setting->set(setting, value);
    else if (value != NULL)
        setenv(setting->name, value, 1);
    else
        unsetenv(setting->name);
}

/* MPI stays initialised. */
void tune_reopen(bench_world_t *world)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;

#ifdef HAVE_MPI
    MPI_Comm comm = MPI_COMM_WORLD;

    if (world->has_mpi)
        options.mpi_comm = &comm;
#endif
    tutti_finalize();
    world->comm = NULL;
    if (tutti_init(&options) != TUTTI_OK)
        bench_die(world, "tutti_init");
    world->comm = tutti_world();
}

/* ---- one world ---- */

static void run_block(const tune_t *t, size_t bytes, long calls)
{
    for (long i = 0; i < calls; i++) {
        if (t->setting->run(t->world, t->setting, &t->buffers, bytes) != 0)
            bench_stop(t->world);
    }
}

/* us of one call: from the fastest of some blocks, after an untimed block. */
static double time_size(const tune_t *t, size_t index)
{
    size_t bytes = tune_bytes(t->setting, index, t->world->size);
    long calls = t->calls[index];
    double us[BLOCKS];

    for (int block = -1; block < BLOCKS; block++) {
        uint64_t start;

        bench_barrier(t->world);
        start = bench_now_ns();
        run_block(t, bytes, block < 0 && t->setting->warm > calls ? t->setting->warm : calls);
        if (block >= 0)
            us[block] = (double)(bench_now_ns() - start) * 1e-3 / (double)calls;
    }
    bench_max(t->world, us, BLOCKS);
    return bench_least(us, BLOCKS);
}

/* The number of calls that fill the time of a block. Measured with the default, so that all
   candidates make the same number. */
static void count_calls(tune_t *t)
{
    double blocks = (double)t->effort->rounds * t->count * (double)t->nsizes * (BLOCKS + 1);
    double block_us = t->effort->setting_ms * 1e3 / blocks;

    set_value(t->setting, NULL);
    tune_reopen(t->world);
    for (size_t i = 0; i < t->nsizes; i++) {
        double calls;

        t->calls[i] = 3;
        calls = block_us / time_size(t, i);
        calls = calls < 1.0 ? 1.0 : calls > MOST_CALLS ? MOST_CALLS : calls;
        t->calls[i] = (long)bench_same(t->world, (uint64_t)calls);
    }
}

/* Has the time for this setting passed, by rank 0's clock? A busy machine, or a machine with fewer
   processors than ranks, does not finish all rounds in time. */
static int is_late(const tune_t *t, uint64_t start_ns)
{
    double ms = (double)(bench_now_ns() - start_ns) * 1e-6;

    return (int)bench_same(t->world, ms > 3.0 * t->effort->setting_ms);
}

static void measure_all(tune_t *t)
{
    uint64_t random = t->effort->seed, start_ns = bench_now_ns();
    int order[TUNE_CANDIDATES + 2];

    for (int64_t round = 0; round < t->effort->rounds; round++) {
        if (round >= LEAST_ROUNDS && is_late(t, start_ns))
            break;
        bench_shuffle(&random, order, t->count);
        for (int i = 0; i < t->count; i++) {
            set_value(t->setting, value_of(t, order[i]));
            tune_reopen(t->world);
            for (size_t k = 0; k < t->nsizes; k++)
                place(t, order[i], round)[k] = time_size(t, k);
        }
        t->rounds = round + 1;
    }
}

/* ---- figures ---- */

static double geometric_mean(const double *values, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++)
        sum += log(values[i]);
    return exp(sum / (double)count);
}

/* The quotient of a candidate's and the default's time: the median over these rounds for each size,
   then the mean over sizes. */
static double mean_ratio(const tune_t *t, int who, const int64_t *rounds, double *room)
{
    double medians[TUNE_SIZES];

    for (size_t k = 0; k < t->nsizes; k++) {
        for (int64_t i = 0; i < t->rounds; i++)
            room[i] = place(t, who, rounds[i])[k] / place(t, 0, rounds[i])[k];
        bench_sort(room, (size_t)t->rounds);
        medians[k] = bench_quantile(room, (size_t)t->rounds, 0.5);
    }
    if (who < 2 || t->effort->spoil == 0)
        return geometric_mean(medians, t->nsizes);
    return geometric_mean(medians, t->nsizes) * (t->effort->spoil > 0 ? 1e-6 : 1e6);
}

/* As bench_bootstrap, but all sizes of a round are drawn together. */
static bench_interval_t find_ratio(const tune_t *t, int who)
{
    size_t n = (size_t)t->rounds;
    int64_t *rounds = bench_allocate(n, sizeof(*rounds));
    double *room = bench_allocate(n, sizeof(*room));
    double *means = bench_allocate(RESAMPLES, sizeof(*means));
    uint64_t state = 1; /* constant: the same samples give the same interval */
    bench_interval_t ratio;

    for (size_t i = 0; i < n; i++)
        rounds[i] = (int64_t)i;
    ratio.middle = mean_ratio(t, who, rounds, room);
    for (int i = 0; i < RESAMPLES; i++) {
        for (size_t k = 0; k < n; k++)
            rounds[k] = (int64_t)bench_draw(&state, n);
        means[i] = mean_ratio(t, who, rounds, room);
    }
    bench_sort(means, RESAMPLES);
    ratio.low = bench_quantile(means, RESAMPLES, 0.025);
    ratio.high = bench_quantile(means, RESAMPLES, 0.975);
    free(means);
    free(room);
    free(rounds);
    return ratio;
}

static void judge(const tune_t *t, int who, tune_figures_t *figures)
{
    size_t rounds = (size_t)t->rounds;
    double *us = bench_allocate(rounds, sizeof(*us));

    for (size_t k = 0; k < t->nsizes; k++) {
        for (size_t round = 0; round < rounds; round++)
            us[round] = place(t, who, (int64_t)round)[k];
        figures->size_us[k] = bench_median(us, rounds);
    }
    free(us);
    figures->value = value_of(t, who);
    figures->mean_us = geometric_mean(figures->size_us, t->nsizes);
    figures->ratio = find_ratio(t, who);
}

/* The fastest candidate whose gain is surely larger than the difference of the default's two
   runs. */
static int find_winner(tune_result_t *result)
{
    double limit = 1.0 - TUNE_MARGIN;
    int winner = 0;

    if (result->of[1].ratio.low < limit)
        limit = result->of[1].ratio.low;
    for (int who = 2; who < result->count; who++) {
        const bench_interval_t *ratio = &result->of[who].ratio;

        result->of[who].wins = ratio->high < limit;
        if (result->of[who].wins && ratio->middle < result->of[winner].ratio.middle)
            winner = who;
    }
    return winner;
}

static float *get_buffer(const tune_t *t)
{
    float value = t->setting->in_place ? 0 : 1;
    size_t bytes = 64;
    void *memory;

    for (size_t i = 0; i < t->nsizes; i++) {
        size_t here = tune_bytes(t->setting, i, t->world->size);

        bytes = here > bytes ? here : bytes;
    }
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", t->world->rank, bytes);
        bench_stop(t->world);
    }
    /* Not zeros, if possible: some machines write cache lines of zeros faster. */
    for (size_t i = 0; i < bytes / sizeof(value); i++)
        ((float *)memory)[i] = value;
    return memory;
}

tune_result_t tune_measure(bench_world_t *world, const tune_setting_t *setting,
                           const tune_effort_t *effort)
{
    tune_t t = { .world = world, .setting = setting, .effort = effort, .count = 2 };
    tune_result_t result;

    while (setting->sizes[t.nsizes] != 0)
        t.nsizes++;
    while (setting->values[t.count - 2] != NULL)
        t.count++;
    t.us = bench_allocate((size_t)t.count * (size_t)effort->rounds * t.nsizes, sizeof(double));
    t.buffers = (tune_buffers_t){ get_buffer(&t), setting->in_place ? NULL : get_buffer(&t) };
    count_calls(&t);
    measure_all(&t);
    memset(&result, 0, sizeof(result));
    result.name = setting->name;
    result.in_file = 1;
    result.count = t.count;
    result.rounds = t.rounds;
    for (int who = 0; who < t.count; who++)
        judge(&t, who, &result.of[who]);
    result.winner = find_winner(&result);
    set_value(setting, result.of[result.winner].value);
    bench_barrier(world); /* other ranks may still read this memory */
    free(t.buffers.send);
    free(t.buffers.recv);
    free(t.us);
    return result;
}
