/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checks of tutti_gradients: exact sums, and equal bits in any order of submission. They fill
 * the gradients, run an untimed iteration, and read the results, with -d through the mirror.
 */
#include "harness/device.h"
#include "gradients/gradients.h"

#include <math.h>
#include <string.h>

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

void gradients_clear(gradients_run_t *run)
{
    memset(run->mirror, 0, run->gradients.region_bytes);
    push(run);
}

/* --spoil: damage the last gradient of rank 0. */
static void spoil(const gradients_run_t *run)
{
    size_t last = run->gradients.all[run->gradients.n - 1].offset;

    if (run->bench->options.spoil && run->bench->world.rank == 0)
        run->mirror[last] ^= 0x40;
}

/* The sum from which `average` was computed. Sums are whole numbers. An average is rounded twice:
   in the factor, and in the product. If these two roundings do not explain the difference between
   the sum and a whole number, the sum is wrong, and is returned unrounded. */
static double sum_of(double average, int ranks, double rounding)
{
    double sum = average * ranks;
    double whole = rint(sum);

    return fabs(sum - whole) <= 2.0 * rounding * fabs(whole) ? whole : sum;
}

/* --average: replace the averages in `data` by the sums from which they were computed. */
static void restore_sums(char *data, const bench_type_t *type, size_t count, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        char *at = data + i * type->bytes;
        float single;
        double twice;

        if (type->dtype == TUTTI_FLOAT32) {
            memcpy(&single, at, sizeof(single));
            single = (float)sum_of(single, ranks, 0x1p-23);
            memcpy(at, &single, sizeof(single));
        } else {
            memcpy(&twice, at, sizeof(twice));
            twice = sum_of(twice, ranks, 0x1p-52);
            memcpy(at, &twice, sizeof(twice));
        }
    }
}

static size_t count_wrong(const gradients_run_t *run)
{
    const bench_type_t *type = run->bench->options.type;
    int ranks = run->bench->world.size;
    size_t wrong = 0;

    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];
        char *data = run->mirror + gradient->offset;

        if (run->options->average)
            restore_sums(data, type, gradient->count, ranks);
        wrong += bench_wrong_sum(data, type, gradient->first, gradient->count, ranks);
    }
    return wrong;
}

int gradients_right(gradients_run_t *run, int who)
{
    const bench_world_t *world = &run->bench->world;
    size_t wrong;
    double all;

    fill(run, bench_fill);
    gradients_order(run, who);
    gradients_ready(run, who);
    gradients_run(run, who, 0);
    pull(run);
    spoil(run);
    wrong = count_wrong(run);
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

/* Uses data whose sums need rounding. The orders of submission also differ between ranks, if the
   contestant allows it. */
int gradients_same(gradients_run_t *run, int who)
{
    const bench_world_t *world = &run->bench->world;
    uint64_t random = bench_draw(&run->bench->random, UINT64_MAX) | 1;
    uint64_t first = 0;
    int same = 1;

    if (gradients_way(run->bench->contestants[who])->takes_any_order)
        for (int i = 0; i <= world->rank; i++)
            random = bench_draw(&random, UINT64_MAX) | 1;
    for (uint64_t i = 0; i < run->options->orders; i++) {
        uint64_t hash;

        fill(run, bench_fill_rough);
        bench_shuffle(&random, run->order, (int)run->gradients.n);
        gradients_ready(run, who);
        gradients_run(run, who, 0);
        pull(run);
        spoil(run);
        hash = hash_all(run);
        first = i == 0 ? hash : first;
        same = bench_agree(world, hash) && hash == first && same;
    }
    return same;
}
