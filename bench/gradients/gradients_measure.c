/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measuring loop, as in measure.c: in each round every contestant has one block of iterations,
 * in a random order that is the same on all ranks. All contestants use the same memory, so each
 * rank has a model's gradients once.
 */
#include "harness/device.h"
#include "gradients/gradients.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 4096
};

void gradients_run(gradients_run_t *run, int who, uint64_t start_ns)
{
    const bench_contestant_t *contestant = run->bench->contestants[who];

    if (gradients_step(contestant, run->bench->world.device != NULL)(run, start_ns) == 0)
        return;
    fprintf(stderr, "rank %d: %s failed with %s\n", run->bench->world.rank, contestant->name,
            run->gradients.model);
    bench_stop(&run->bench->world);
}

/* Fill in the order of submission: that of the backward pass; with --random, a new random order of
   this rank, if the contestant allows it. */
void gradients_order(gradients_run_t *run, int who)
{
    if (run->options->random && gradients_way(run->bench->contestants[who])->takes_any_order) {
        bench_shuffle(&run->random, run->order, (int)run->gradients.n);
        return;
    }
    for (size_t i = 0; i < run->gradients.n; i++)
        run->order[i] = (int)i;
}

void gradients_ready(gradients_run_t *run, int who)
{
    const gradients_way_t *way = gradients_way(run->bench->contestants[who]);

    if (way->ready != NULL)
        way->ready(run);
    bench_barrier(&run->bench->world);
}

static void check_all(gradients_run_t *run, bench_trip_t *trip)
{
    for (int who = 0; who < run->bench->count && run->bench->options.validate; who++)
        trip->samples[who].right = gradients_right(run, who) && trip->samples[who].right;
}

/* Returns microseconds. */
static double time_one(gradients_run_t *run, int who)
{
    uint64_t start;

    gradients_order(run, who);
    gradients_ready(run, who);
    start = bench_now_ns();
    gradients_run(run, who, start);
    return (double)(bench_now_ns() - start) * 1e-3;
}

static void time_block(gradients_run_t *run, int who, const bench_trip_t *trip, double *ret_us)
{
    for (long i = 0; i < trip->skip; i++)
        time_one(run, who);
    for (long i = 0; i < trip->block; i++)
        ret_us[i] = time_one(run, who);
}

/* All rounds. The data are zeros, because sums of other data, repeated in place, would overflow. */
static void time_rounds(gradients_run_t *run, bench_trip_t *trip)
{
    bench_t *bench = run->bench;
    size_t rounds = (size_t)bench->options.rounds;
    int order[BENCH_ENTRIES];

    gradients_clear(run);
    for (int who = 0; who < bench->count; who++)
        for (uint64_t i = 0; i < run->options->warm; i++)
            time_one(run, who);
    for (size_t round = 0; round < rounds; round++) {
        bench_shuffle(&bench->random, order, bench->count);
        for (int i = 0; i < bench->count; i++)
            time_block(run, order[i], trip,
                       trip->samples[order[i]].own + round * (size_t)trip->block);
    }
}

static void measure(gradients_run_t *run, bench_trip_t *trip)
{
    bench_t *bench = run->bench;
    size_t total = (size_t)bench->options.rounds * (size_t)trip->block;

    for (int who = 0; who < bench->count && run->options->orders > 0; who++)
        trip->samples[who].same_bits = gradients_same(run, who);
    check_all(run, trip);
    time_rounds(run, trip);
    check_all(run, trip);
    for (int who = 0; who < bench->count; who++) {
        memcpy(trip->samples[who].slowest, trip->samples[who].own, total * sizeof(double));
        bench_max(&bench->world, trip->samples[who].slowest, total);
    }
}

/* Open all contestants in the order of the list. They are closed in the reverse order. */
static void open_contestants(gradients_run_t *run)
{
    for (int who = 0; who < run->bench->count; who++) {
        const gradients_way_t *way = gradients_way(run->bench->contestants[who]);

        if (way->open != NULL)
            way->open(run);
    }
}

static void close_contestants(gradients_run_t *run)
{
    for (int who = run->bench->count - 1; who >= 0; who--) {
        const gradients_way_t *way = gradients_way(run->bench->contestants[who]);

        if (way->close != NULL)
            way->close(run);
    }
}

static void *get_memory(const bench_t *bench, size_t bytes, int shared)
{
    void *memory = NULL;

    if (bench->world.device != NULL)
        return bench_device_alloc(&bench->world, bytes);
    if (shared) {
        if (tutti_mem_alloc(bench->world.comm, bytes, &memory) != TUTTI_OK)
            bench_die(&bench->world, "tutti_mem_alloc");
    } else if (posix_memalign(&memory, PAGE, bytes) != 0) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", bench->world.rank, bytes);
        bench_stop(&bench->world);
    }
    memset(memory, 0, bytes); /* allocates the pages */
    return memory;
}

static void free_memory(gradients_run_t *run)
{
    const bench_world_t *world = &run->bench->world;

    if (world->device != NULL) {
        bench_device_free(world, run->region);
        bench_device_free(world, run->fusion);
        free(run->mirror);
    } else {
        if (run->bench->options.shared)
            tutti_mem_free(world->comm, run->region);
        else
            free(run->region);
        free(run->fusion);
    }
    free(run->pieces);
    free(run->requests);
    free(run->order);
}

static bench_trip_t open_trip(const gradients_run_t *run)
{
    const bench_options_t *options = &run->bench->options;
    int64_t iterations = options->iterations > 0 ? options->iterations : options->rounds;
    bench_trip_t trip = { .bytes = run->gradients.count * options->type->bytes };
    size_t total;

    trip.skip = (long)options->skip;
    trip.block = (long)((iterations + options->rounds - 1) / options->rounds);
    total = (size_t)options->rounds * (size_t)trip.block;
    for (int who = 0; who < run->bench->count; who++) {
        trip.samples[who].own = bench_allocate(total, sizeof(double));
        trip.samples[who].slowest = bench_allocate(total, sizeof(double));
        trip.samples[who].right = 1;
        trip.samples[who].same_bits = -1;
    }
    return trip;
}

/* A state for bench_draw that differs between ranks. */
static uint64_t own_random(const bench_t *bench)
{
    uint64_t random = bench->options.seed;

    for (int i = 0; i <= bench->world.rank; i++)
        random = (random + 1) * 0x9e3779b97f4a7c15u | 1;
    return random;
}

bench_row_t gradients_measure(bench_t *bench, const gradients_options_t *options, const char *model)
{
    gradients_run_t run = {
        .bench = bench,
        .options = options,
        .gradients = gradients_make(model, bench->options.type->bytes, options->scale,
                                    bench->options.aligns[0]),
    };
    bench_trip_t trip = open_trip(&run);
    bench_row_t row;

    run.region = run.mirror = get_memory(bench, run.gradients.region_bytes, bench->options.shared);
    if (bench->world.device != NULL)
        run.mirror = bench_allocate(run.gradients.region_bytes, 1);
    if (bench->count > 1)
        run.fusion = get_memory(bench, options->fusion_bytes, 0);
    run.pieces = bench_allocate(run.gradients.n, sizeof(tutti__piece_t));
    run.requests = bench_allocate(run.gradients.n, sizeof(tutti_request_t *));
    run.order = bench_allocate(run.gradients.n, sizeof(int));
    run.random = own_random(bench);
    open_contestants(&run);
    measure(&run, &trip);
    close_contestants(&run);
    row = bench_row_make(bench, &trip);
    bench_barrier(&bench->world); /* other ranks may still read this memory */
    free_memory(&run);
    bench_trip_close(bench, &trip);
    gradients_free(&run.gradients);
    return row;
}
