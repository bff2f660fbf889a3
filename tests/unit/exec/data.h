/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: each rank's input, and the required results.
 *
 * Element i of rank r is a number drawn from (seed, r, i). Fine numbers are small integers, whose
 * sums are exact in each type, so a sequential fold in C gives the required bits. Sums of rough
 * numbers are not exact. Their results must only be near the fold, with the same bits on all ranks.
 */
#ifndef TESTS_UNIT_EXEC_DATA_H
#define TESTS_UNIT_EXEC_DATA_H

#include <tutti/tutti.h>

#include <stdint.h>

/* Types: FLOAT32, INT64, UINT8, BFLOAT16. */
typedef struct {
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t nranks, seed;
    int rough; /* FLOAT32, BFLOAT16 */
    /* FLOAT32, rough: the number of times that a sum is rounded to a wire format. If it is not 0,
       numbers are at most 16. unit: the relative error of one rounding. least: the absolute error
       of a tiny number. */
    uint32_t roundings;
    double unit, least;
} data_t;

/* Element i of rank r's input, stored at element i of `array`. */
void data_put(const data_t *data, void *array, uint32_t rank, size_t i);

/* Is element i of `array` the fold over all ranks? Is it rank r's input? */
int data_is_fold(const data_t *data, const void *array, size_t i);
int data_is_from(const data_t *data, const void *array, uint32_t rank, size_t i);

/* Element i, for messages. */
double data_get(const data_t *data, const void *array, size_t i);
double data_fold(const data_t *data, size_t i);

#endif
