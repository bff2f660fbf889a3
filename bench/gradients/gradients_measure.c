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

static void step(const gradients_run_t *run, int who, uint64_t start_ns)
{
    const bench_contestant_t *contestant = run->bench->contestants[who];

    if (gradients_step(contestant, run->bench->world.device != NULL)(run, start_ns) == 0)
        return;
    fprintf(stderr, "rank %d: %s failed with %s\n", run->bench->world.rank, contestant->name,
            run->gradients.model);
    bench_stop(&run->bench->world);
}

/* The order of the backward pass. */
static void order_by_list(const gradients_run_t *run)
{
    for (size_t i = 0; i < run->gradients.n; i++)
        run->order[i] = (int)i;
}

static void push(const gradients_run_t *run)
{
    if (run->mirror != run->region)
        bench_device_copy(&run->bench->world, run->region, run->mirror,
                          run->gradients.region_bytes);
}

static void pull(const gradients_run_t *run)
{
    if (run->mirror != run->region)
        bench_device_copy(&run->bench->world, run->mirror, run->region,
                          run->gradients.region_bytes);
}

static void fill(const gradients_run_t *run, bench_put_t put)
{
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];

        put(run->mirror + gradient->offset, run->bench->options.type, gradient->first,
            gradient->count, run->bench->world.rank);
    }
    push(run);
}

/* --spoil: damage the last gradient of rank 0. */
static void spoil(const gradients_run_t *run)
{
    size_t last = run->gradients.all[run->gradients.n - 1].offset;

    if (run->bench->options.spoil && run->bench->world.rank == 0)
        run->mirror[last] ^= 0x40;
}

/* One untimed iteration. 1 if all gradients of all ranks are right. */
static int result_right(const gradients_run_t *run, int who)
{
    const bench_world_t *world = &run->bench->world;
    size_t wrong = 0;
    double all;

    fill(run, bench_fill);
    order_by_list(run);
    bench_barrier(world);
    step(run, who, 0);
    pull(run);
    spoil(run);
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];

        wrong += bench_wrong_sum(run->mirror + gradient->offset, run->bench->options.type,
                                 gradient->first, gradient->count, world->size);
    }
    if (wrong > 0)
        fprintf(stderr, "rank %d: %s: %zu elements of %s are wrong\n", world->rank,
                run->bench->names[who], wrong, run->gradients.model);
    all = (double)wrong;
    bench_sum(world, &all, 1);
    return all == 0.0;
}

/* The hash of all gradients, without the gaps between them. */
static uint64_t hash_all(const gradients_run_t *run)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];

        hash = hash * 31 + bench_hash(run->mirror + gradient->offset,
                                      gradient->count * run->bench->options.type->bytes);
    }
    return hash;
}

/* Reduce data whose sums need rounding, several times in different orders of submission. Tutti's
   orders also differ between ranks, which MPI does not allow. 1 if all ranks have the same bits in
   all orders. */
static int result_same(const gradients_run_t *run, int who)
{
    const bench_world_t *world = &run->bench->world;
    uint64_t random = bench_draw(&run->bench->random, UINT64_MAX) | 1;
    uint64_t first = 0;
    int same = 1;

    for (int i = 0; who == 0 && i <= world->rank; i++)
        random = bench_draw(&random, UINT64_MAX) | 1;
    for (uint64_t i = 0; i < run->options->orders; i++) {
        uint64_t hash;

        fill(run, bench_fill_rough);
        bench_shuffle(&random, run->order, (int)run->gradients.n);
        bench_barrier(world);
        step(run, who, 0);
        pull(run);
        spoil(run);
        hash = hash_all(run);
        first = i == 0 ? hash : first;
        same = bench_agree(world, hash) && hash == first && same;
    }
    return same;
}

static void check_all(const gradients_run_t *run, bench_trip_t *trip)
{
    for (int who = 0; who < run->bench->count && run->bench->options.validate; who++)
        trip->samples[who].right = result_right(run, who) && trip->samples[who].right;
}

static void time_block(const gradients_run_t *run, int who, const bench_trip_t *trip,
                       double *ret_us)
{
    const bench_world_t *world = &run->bench->world;

    for (long i = -trip->skip; i < trip->block; i++) {
        uint64_t start;

        bench_barrier(world);
        start = bench_now_ns();
        step(run, who, start);
        if (i >= 0)
            ret_us[i] = (double)(bench_now_ns() - start) * 1e-3;
    }
}

static void measure(const gradients_run_t *run, bench_trip_t *trip)
{
    bench_t *bench = run->bench;
    size_t rounds = (size_t)bench->options.rounds;
    size_t total = rounds * (size_t)trip->block;
    int order[BENCH_ENTRIES];

    for (int who = 0; who < bench->count && run->options->orders > 0; who++)
        trip->samples[who].same_bits = result_same(run, who);
    check_all(run, trip);
    order_by_list(run);
    memset(run->mirror, 0, run->gradients.region_bytes); /* other sums in place would overflow */
    push(run);
    for (size_t round = 0; round < rounds; round++) {
        bench_shuffle(&bench->random, order, bench->count);
        for (int i = 0; i < bench->count; i++)
            time_block(run, order[i], trip,
                       trip->samples[order[i]].own + round * (size_t)trip->block);
    }
    check_all(run, trip);
    for (int who = 0; who < bench->count; who++) {
        memcpy(trip->samples[who].slowest, trip->samples[who].own, total * sizeof(double));
        bench_max(&bench->world, trip->samples[who].slowest, total);
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
    measure(&run, &trip);
    row = bench_row_make(bench, &trip);
    bench_barrier(&bench->world); /* other ranks may still read this memory */
    free_memory(&run);
    bench_trip_close(bench, &trip);
    gradients_free(&run.gradients);
    return row;
}
