/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A second implementation of the types and operations of include/tutti/types.h, element by element.
 * It uses libm and integers where the kernels manipulate bits.
 *
 * Elements are handled as raw bits, so that NaNs and zeros can be distinguished.
 */
#ifndef TUTTI_TESTS_REFERENCE_H
#define TUTTI_TESTS_REFERENCE_H

#include <tutti/tutti.h>

#define FIRST_DTYPE TUTTI_INT8
#define LAST_DTYPE TUTTI_INT64_INT64
#define FIRST_OP TUTTI_SUM
#define LAST_OP TUTTI_MAXLOC
#define ISAS 5

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Instruction sets, the best one last. This machine may not have all of them. */
extern const char *const isas[ISAS];

typedef struct {
    uint64_t value;
    uint64_t index; /* of pairs; for other types 0 */
} raw_t;

raw_t raw_load(const void *at, tutti_dtype_t dtype);
void raw_store(void *at, tutti_dtype_t dtype, raw_t raw);

/* A small generator, because rand() differs between systems. */
uint64_t next_random(void);
/* Any value: many zeros, ones, limits, infinities and NaNs, and numbers close to each other. */
raw_t any_value(tutti_dtype_t dtype);
/* A zero, one, limit, infinity or NaN. */
raw_t special_value(tutti_dtype_t dtype);

int is_float(tutti_dtype_t dtype);
int is_pair(tutti_dtype_t dtype);
int is_served(tutti_dtype_t dtype, tutti_op_t op);

/* decode: the value of a floating point code. encode: the nearest code of a number; if two are
   equally near, the even one. */
double decode(uint64_t code, tutti_dtype_t dtype);
uint64_t encode(double x, tutti_dtype_t dtype);

/* The expected element of a fold of n >= 1 sources. */
raw_t expected_fold(const raw_t *raw, size_t n, tutti_op_t op, uint32_t divisor,
                    tutti_dtype_t dtype);
/* The expected element times `factor`. */
raw_t expected_scale(raw_t raw, tutti_dtype_t dtype, double factor);

#endif
