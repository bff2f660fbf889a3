/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measuring loop.
 *
 * Each size has R rounds. In each round every contestant has one block of iterations, in a random
 * order that is the same on all ranks. So drift of the machine affects all contestants equally. A
 * ratio is computed in each round; the spread of the ratios shows their accuracy.
 *
 *      round 1:  [Tutti block] [MPI block]      round 2:  [MPI block] [Tutti block]   ...
 *
 * The time of an iteration is that of the call alone; the barrier after it is not timed. Each rank
 * keeps its samples. After all rounds of a size, the slowest rank's time is taken for each
 * iteration.
 */
#include "harness/bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_BYTES = 8192 /* as in OSU: fewer iterations above */
};

static void run(const bench_t *bench, int who, const bench_call_t *call)
{
    if (bench->contestants[who]->run(call) == 0)
        return;
    fprintf(stderr, "rank %d: %s failed with %zu bytes\n", bench->world.rank, bench->names[who],
            call->count * call->type->bytes);
    bench_stop(&bench->world);
}

static void check_all(bench_t *bench, bench_trip_t *trip)
{
    for (int who = 0; who < bench->count && bench->options.validate; who++) {
        bench_samples_t *samples = &trip->samples[who];

        if (!bench_result_right(bench, who, trip->bytes))
            samples->right = 0;
        if (samples->same_bits != 0)
            samples->same_bits = bench_result_same(bench, who, trip->bytes);
    }
}

/* In place, a sum would grow with each iteration until it overflows, so use zeros. */
static void fill_for_timing(bench_t *bench, size_t bytes)
{
    const bench_collective_t *collective = bench->program->collective;

    if (collective->fill == NULL)
        return;
    for (size_t left = bench_pairs(bench, bytes); left > 0; left--) {
        bench_call_t call = bench_next_call(bench, bytes);
        bench_call_t host = bench_host_call(bench, &call);

        if (call.in_place && collective->sums)
            memset(host.recvbuf, 0, host.count * host.type->bytes);
        else
            collective->fill(&host, bench_fill);
        bench_push(bench, &call, &host);
    }
}

/* Use this contestant's buffers. With several places of --align, refill them: the memory has the
   data of another place. */
static void take_buffers(bench_t *bench, int who, size_t bytes)
{
    bench->buffers.align = bench->align[who];
    if (bench->options.naligns > 1)
        fill_for_timing(bench, bytes);
}

static void warm_up(bench_t *bench, int who, size_t bytes, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        bench_call_t call = bench_next_call(bench, bytes);

        run(bench, who, &call);
        bench_barrier(&bench->world);
    }
}

/* Calls without a barrier between them: the clock is read once for the whole block, because reading
   it takes a large part of a small call's time. Each iteration's sample is the block's mean. */
static void time_stream(bench_t *bench, int who, const bench_trip_t *trip, double *ret_us)
{
    uint64_t start = bench_now_ns();
    double mean_us;

    for (long i = 0; i < trip->block; i++) {
        bench_call_t call = bench_next_call(bench, trip->bytes);

        run(bench, who, &call);
    }
    mean_us = (double)(bench_now_ns() - start) * 1e-3 / (double)trip->block;
    for (long i = 0; i < trip->block; i++)
        ret_us[i] = mean_us;
}

/* With --skew, one rank starts late. All ranks draw the same rank. Each rank measures, by its own
   clock, from the moment at which the late rank starts: the delay after the last barrier. A rank
   that need not wait for the late rank may be done before that moment; its time is 0. */
static double time_once(bench_t *bench, int who, const bench_call_t *call)
{
    uint64_t skew_ns = (uint64_t)bench->options.skew_us * 1000;
    int late = -1;
    uint64_t start;
    uint64_t end;

    if (skew_ns > 0)
        late = (int)bench_draw(&bench->random, (uint64_t)bench->world.size);
    start = bench_now_ns() + skew_ns;
    if (late == bench->world.rank)
        bench_spin_until(start);
    run(bench, who, call);
    end = bench_now_ns();
    return end > start ? (double)(end - start) * 1e-3 : 0.0;
}

static void time_block(bench_t *bench, int who, const bench_trip_t *trip, double *ret_us)
{
    take_buffers(bench, who, trip->bytes);
    bench_barrier(&bench->world);
    warm_up(bench, who, trip->bytes, trip->skip);
    if (bench->options.back_to_back) {
        time_stream(bench, who, trip, ret_us);
        return;
    }
    for (long i = 0; i < trip->block; i++) {
        bench_call_t call = bench_next_call(bench, trip->bytes);

        ret_us[i] = time_once(bench, who, &call);
        bench_barrier(&bench->world);
    }
}

/* Combine the samples of all ranks, on all ranks. */
static void join(const bench_t *bench, bench_trip_t *trip)
{
    size_t total = (size_t)bench->options.rounds * (size_t)trip->block;

    for (int who = 0; who < bench->count; who++) {
        bench_samples_t *samples = &trip->samples[who];

        memcpy(samples->slowest, samples->own, total * sizeof(double));
        bench_max(&bench->world, samples->slowest, total);
        if (samples->mean == NULL)
            continue;
        for (size_t i = 0; i < total; i++)
            samples->mean[i] = samples->own[i] / bench->world.size;
        bench_sum(&bench->world, samples->mean, total);
    }
}

void bench_measure(bench_t *bench, bench_trip_t *trip)
{
    int order[BENCH_ENTRIES];
    long warm = trip->skip;

    bench_pairs(bench, trip->bytes);
    check_all(bench, trip);
    bench->buffers.align = 0;
    fill_for_timing(bench, trip->bytes);
    for (int who = 0; who < bench->count; who++) {
        take_buffers(bench, who, trip->bytes);
        warm_up(bench, who, trip->bytes, warm);
    }
    trip->skip = 1 + warm / bench->options.rounds;
    for (long round = 0; round < bench->options.rounds; round++) {
        bench->buffers.align = 0;
        if (trip->copy_us != NULL)
            trip->copy_us[round] = bench_copy_us(bench, trip->bytes);
        bench_shuffle(&bench->random, order, bench->count);
        for (int i = 0; i < bench->count; i++)
            time_block(bench, order[i], trip, trip->samples[order[i]].own + round * trip->block);
    }
    check_all(bench, trip);
    join(bench, trip);
}

bench_trip_t bench_trip_open(const bench_t *bench, size_t bytes)
{
    const bench_options_t *options = &bench->options;
    long iterations = bytes <= SMALL_BYTES ? 1000 : 100;
    long skip = bytes <= SMALL_BYTES ? 100 : 10;
    bench_trip_t trip = { .bytes = bytes };
    size_t total;

    if (options->iterations >= 0)
        iterations = options->iterations;
    trip.skip = options->skip >= 0 ? options->skip : skip;
    trip.block = (iterations + options->rounds - 1) / options->rounds;
    total = (size_t)options->rounds * (size_t)trip.block;
    if (bench_is_long(bench))
        trip.copy_us = bench_allocate((size_t)options->rounds, sizeof(double));
    for (int who = 0; who < bench->count; who++) {
        trip.samples[who].own = bench_allocate(total, sizeof(double));
        trip.samples[who].slowest = bench_allocate(total, sizeof(double));
        if (options->ntails > 0)
            trip.samples[who].mean = bench_allocate(total, sizeof(double));
        trip.samples[who].right = 1;
        trip.samples[who].same_bits = -1;
    }
    return trip;
}

void bench_trip_close(const bench_t *bench, bench_trip_t *trip)
{
    for (int who = 0; who < bench->count; who++) {
        free(trip->samples[who].own);
        free(trip->samples[who].slowest);
        free(trip->samples[who].mean);
    }
    free(trip->copy_us);
}
