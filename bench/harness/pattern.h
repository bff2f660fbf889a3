/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types, and data that can be checked exactly.
 */
#ifndef TUTTI_BENCH_PATTERN_H
#define TUTTI_BENCH_PATTERN_H

#include <tutti/tutti.h>

#include <stddef.h>
#include <stdint.h>

/* An element type of -T. */
typedef struct {
    const char *name;     /* "float32" */
    const char *mpi_name; /* "MPI_FLOAT", or NULL if MPI has none */
    tutti_dtype_t dtype;
    size_t bytes;
    int limit; /* largest integer that is exact, also as a sum; 0: sums wrap around */
} bench_type_t;

const bench_type_t *bench_type_find(const char *name);

/* Element i becomes element `first + i` of rank `rank`'s pattern. */
void bench_fill(void *data, const bench_type_t *type, size_t first, size_t count, int rank);
/* The same with floating point numbers whose sums are rounded, differently for each order. */
void bench_fill_rough(void *data, const bench_type_t *type, size_t first, size_t count, int rank);

/* The number of wrong elements. bench_wrong compares with the pattern of rank `rank`, and
   bench_wrong_sum with the sum of the patterns of ranks 0 to size-1. */
size_t bench_wrong(const void *data, const bench_type_t *type, size_t first, size_t count,
                   int rank);
size_t bench_wrong_sum(const void *data, const bench_type_t *type, size_t first, size_t count,
                       int size);

/* FNV-1a, eight bytes at a time. */
uint64_t bench_hash(const void *data, size_t bytes);

#endif
