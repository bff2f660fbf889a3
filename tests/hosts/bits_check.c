/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Computes sums whose rounding shows the order of the additions. bits.sh runs it over each
 * transport. Rank 0 prints "bits: HASH" of the results of all ranks. The environment variable
 * BITS_MOST is the largest number of elements in a call.
 */
#include <tutti/tutti.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void check(tutti_status_t status)
{
    if (status == TUTTI_OK)
        return;
    fprintf(stderr, "bits_check: %s\n", tutti_last_error());
    _Exit(1);
}

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Fill with numbers of many magnitudes that differ between ranks. */
static void fill(float *x, size_t count, int rank)
{
    uint32_t state = 12345u + (uint32_t)rank * 777u;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / (float)(1u << (state & 15));
    }
}

int main(void)
{
    const char *text = getenv("BITS_MOST");
    size_t most = text != NULL ? strtoul(text, NULL, 10) : SIZE_MAX;
    static const size_t counts[] = { 1, 700, 2500, 7000, 15000, 16380, 40000, 150000, 700000 };
    uint64_t h = UINT64_C(0xcbf29ce484222325), *all;
    tutti_comm_t *world;
    int rank, size;

    check(tutti_init(NULL));
    world = tutti_world();
    rank = tutti_rank(world);
    size = tutti_size(world);
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts) && counts[c] <= most; c++) {
        size_t part = counts[c], count = part * (size_t)size;
        float *x = malloc(count * sizeof(*x)), *y = calloc(count, sizeof(*y));

        if (x == NULL || y == NULL)
            return 1;
        fill(x, count, rank);
        check(tutti_allreduce(x, y, part, TUTTI_FLOAT32, TUTTI_SUM, world));
        h = hash(h, y, part * sizeof(*y));
        check(tutti_reduce_scatter(x, y, part, TUTTI_FLOAT32, TUTTI_SUM, world));
        h = hash(h, y, part * sizeof(*y));
        check(tutti_reduce(x, y, part, TUTTI_FLOAT32, TUTTI_SUM, size - 1, world));
        if (rank == size - 1)
            h = hash(h, y, part * sizeof(*y));
        check(tutti_scan(x, y, part, TUTTI_FLOAT32, TUTTI_SUM, world));
        h = hash(h, y, part * sizeof(*y));
        free(x);
        free(y);
    }
    all = calloc((size_t)size, sizeof(*all));
    if (all == NULL)
        return 1;
    check(tutti_allgather(&h, all, 1, TUTTI_UINT64, world));
    check(tutti_finalize());
    if (rank == 0)
        printf("bits: %016llx\n", (unsigned long long)hash(0, all, (size_t)size * sizeof(*all)));
    free(all);
    return 0;
}
