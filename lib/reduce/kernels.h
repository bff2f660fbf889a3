/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of kernels.c, one for each instruction set it is compiled for.
 */
#ifndef TUTTI__REDUCE_KERNELS_H
#define TUTTI__REDUCE_KERNELS_H

#include "reduce/reduce.h"

/* Rows and columns of a table. */
typedef enum {
    TUTTI__KERNEL_FLOAT32,
    TUTTI__KERNEL_FLOAT64,
    TUTTI__KERNEL_BFLOAT16,
    TUTTI__KERNEL_INT32,
    TUTTI__KERNEL_INT64,
    TUTTI__KERNEL_UINT8,
    TUTTI__KERNEL_TYPES
} tutti__kernel_type_t;

typedef enum {
    TUTTI__KERNEL_SUM,
    TUTTI__KERNEL_MIN,
    TUTTI__KERNEL_MAX,
    TUTTI__KERNEL_OPS
} tutti__kernel_op_t;

typedef struct {
    const char *isa;
    tutti__reduce_fn_t fold[TUTTI__KERNEL_TYPES][TUTTI__KERNEL_OPS];
} tutti__kernels_t;

extern const tutti__kernels_t tutti__kernels_base;
extern const tutti__kernels_t tutti__kernels_avx2;
extern const tutti__kernels_t tutti__kernels_avx512;

#endif
