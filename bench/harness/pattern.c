/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data that can be checked exactly.
 *
 * Element i of rank r is a small integer that depends on i mod 251 and on r. Sums over ranks are
 * integers that the type represents exactly, so any order of addition gives the same bits, and a
 * comparison needs no tolerance. 251 is a prime, and the sizes of blocks are usually powers of two
 * or equal shares. So two blocks have different data, and a check finds exchanged blocks.
 */
#include "harness/pattern.h"

#include <string.h>

enum {
    PERIOD = 251,
    LARGEST_ELEMENT = 8
};

static const bench_type_t types[] = {
    { "float32", "MPI_FLOAT", TUTTI_FLOAT32, 4, 1 << 24 },
    { "float64", "MPI_DOUBLE", TUTTI_FLOAT64, 8, 1 << 30 },
    { "int32", "MPI_INT", TUTTI_INT32, 4, 1 << 30 },
    { "int64", "MPI_INT64_T", TUTTI_INT64, 8, 1 << 30 },
    { "int8", "MPI_SIGNED_CHAR", TUTTI_INT8, 1, 0 },
    { "uint8", "MPI_UINT8_T", TUTTI_UINT8, 1, 0 },
    { "bfloat16", NULL, TUTTI_BFLOAT16, 2, 1 << 8 },
};

/* OSU's names of some types. */
static const struct {
    const char *osu;
    const char *name;
} aliases[] = {
    { "mpi_char", "int8" },      { "mpi_float", "float32" }, { "float", "float32" },
    { "mpi_double", "float64" }, { "mpi_int", "int32" },
};

const bench_type_t *bench_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (strcmp(aliases[i].osu, name) == 0)
            name = aliases[i].name;
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    }
    return NULL;
}

/* Pseudo-random bits that depend on place and rank. */
static uint64_t scramble(size_t i, int rank)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xbf58476d1ce4e5b9u + 1;

    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return x ^ x >> 29;
}

/* A value from -8 to 8. On higher ranks, where sums of values up to 8 would not be exact, it is
   from -1 to 1. If there are so many ranks that sums of values up to 1 are not exact, it is 0 on
   the last ranks. */
static int value(const bench_type_t *type, size_t i, int rank)
{
    int mixed = (int)(scramble(i, rank) % 17) - 8;
    int share = type->limit / (rank + 1) / 2;

    if (type->limit == 0 || share >= 8)
        return mixed;
    return rank < type->limit / 2 ? mixed % 2 : 0;
}

static void put(const bench_type_t *type, void *to, long long number)
{
    float single = (float)number;
    double twice = (double)number;
    int32_t int32 = (int32_t)number;
    int64_t int64 = number;
    uint8_t uint8 = (uint8_t)number;
    uint32_t bits;
    uint16_t upper;

    memcpy(&bits, &single, sizeof(bits));
    upper = (uint16_t)(bits >> 16); /* exact: the value has at most 8 significant bits */
    switch (type->dtype) {
    case TUTTI_FLOAT32:
        memcpy(to, &single, sizeof(single));
        break;
    case TUTTI_FLOAT64:
        memcpy(to, &twice, sizeof(twice));
        break;
    case TUTTI_INT32:
        memcpy(to, &int32, sizeof(int32));
        break;
    case TUTTI_INT64:
        memcpy(to, &int64, sizeof(int64));
        break;
    case TUTTI_BFLOAT16:
        memcpy(to, &upper, sizeof(upper));
        break;
    default:
        memcpy(to, &uint8, sizeof(uint8));
        break;
    }
}

/* One period of the sum over ranks `from` to `to - 1`. */
static void make_period(unsigned char *period, const bench_type_t *type, int from, int to)
{
    for (size_t i = 0; i < PERIOD; i++) {
        long long sum = 0;

        for (int rank = from; rank < to; rank++)
            sum += value(type, i, rank);
        put(type, period + i * type->bytes, sum);
    }
}

/* The number of elements from `place` to the end of the period, at most `left`. */
static size_t piece(size_t place, size_t left)
{
    size_t run = PERIOD - place % PERIOD;

    return run < left ? run : left;
}

void bench_fill(void *data, const bench_type_t *type, size_t first, size_t count, int rank)
{
    unsigned char period[PERIOD * LARGEST_ELEMENT];
    unsigned char *to = data;
    size_t run;

    make_period(period, type, rank, rank + 1);
    for (size_t done = 0; done < count; done += run) {
        run = piece(first + done, count - done);
        memcpy(to + done * type->bytes, period + (first + done) % PERIOD * type->bytes,
               run * type->bytes);
    }
}

void bench_fill_rough(void *data, const bench_type_t *type, size_t first, size_t count, int rank)
{
    unsigned char *to = data;

    if (type->dtype != TUTTI_FLOAT32 && type->dtype != TUTTI_FLOAT64 &&
        type->dtype != TUTTI_BFLOAT16) {
        bench_fill(data, type, first, count, rank);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double twice = (double)scramble(first + i, rank) / 18446744073709551616.0 - 0.5;
        float single = (float)twice;
        uint32_t bits;
        uint16_t upper;

        memcpy(&bits, &single, sizeof(bits));
        upper = (uint16_t)(bits >> 16);
        if (type->dtype == TUTTI_FLOAT32)
            memcpy(to + i * sizeof(single), &single, sizeof(single));
        else if (type->dtype == TUTTI_FLOAT64)
            memcpy(to + i * sizeof(twice), &twice, sizeof(twice));
        else
            memcpy(to + i * sizeof(upper), &upper, sizeof(upper));
    }
}

static size_t wrong(const void *data, const bench_type_t *type, size_t first, size_t count,
                    const unsigned char *period)
{
    const unsigned char *from = data;
    size_t bad = 0;
    size_t run;

    for (size_t done = 0; done < count; done += run) {
        const unsigned char *want = period + (first + done) % PERIOD * type->bytes;
        const unsigned char *have = from + done * type->bytes;

        run = piece(first + done, count - done);
        if (memcmp(have, want, run * type->bytes) == 0)
            continue;
        for (size_t i = 0; i < run; i++)
            bad += memcmp(have + i * type->bytes, want + i * type->bytes, type->bytes) != 0;
    }
    return bad;
}

size_t bench_wrong(const void *data, const bench_type_t *type, size_t first, size_t count, int rank)
{
    unsigned char period[PERIOD * LARGEST_ELEMENT];

    make_period(period, type, rank, rank + 1);
    return wrong(data, type, first, count, period);
}

size_t bench_wrong_sum(const void *data, const bench_type_t *type, size_t first, size_t count,
                       int size)
{
    unsigned char period[PERIOD * LARGEST_ELEMENT];

    make_period(period, type, 0, size);
    return wrong(data, type, first, count, period);
}

uint64_t bench_hash(const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
        size_t left = bytes - done;
        uint64_t word = 0;

        memcpy(&word, from + done, left < sizeof(word) ? left : sizeof(word));
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}
