/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of kernels.c, one for each instruction set for which kernels.c is compiled.
 */
#ifndef TUTTI__REDUCE_KERNELS_H
#define TUTTI__REDUCE_KERNELS_H

#include "reduce/reduce.h"

/* Sizes of a table, which is indexed by the public numbers of types and operations. */
#define TUTTI__KERNEL_DTYPES (TUTTI_INT64_INT64 + 1)
#define TUTTI__KERNEL_OPS (TUTTI_MAXLOC + 1)

typedef void (*tutti__scale_fn_t)(void *dst, const void *src, size_t count, double factor);
/* Conversion of `count` elements. widen: the elements of `from`, from `begin` on, become to[0],
   to[1], ... narrow: from[0], from[1], ... become the elements of `to`, from `begin` on. */
typedef void (*tutti__widen_fn_t)(float *to, const void *from, size_t begin, size_t count);
typedef void (*tutti__narrow_fn_t)(void *to, size_t begin, size_t count, const float *from);

typedef struct {
    const char *isa;
    tutti__reduce_fn_t fold[TUTTI__KERNEL_DTYPES][TUTTI__KERNEL_OPS]; /* NULL: no kernel */
    tutti__reduce_all_fn_t all_sum[TUTTI__KERNEL_DTYPES]; /* SUM, AVG; NULL: no kernel */
    tutti__scale_fn_t scale[TUTTI__KERNEL_DTYPES];
    tutti__widen_fn_t widen[TUTTI__KERNEL_DTYPES]; /* to float32; NULL: not a narrower type */
    tutti__narrow_fn_t narrow[TUTTI__KERNEL_DTYPES];
} tutti__kernels_t;

extern const tutti__kernels_t tutti__kernels_scalar;
extern const tutti__kernels_t tutti__kernels_sse2;
extern const tutti__kernels_t tutti__kernels_neon;
extern const tutti__kernels_t tutti__kernels_avx2;
extern const tutti__kernels_t tutti__kernels_avx512;

#endif
