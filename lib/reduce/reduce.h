/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element-wise kernels: type x operation x instruction set.
 *
 * One fused pass folds k sources, in the order given: dst = ((src0 op src1) op src2) ... Sums of
 * narrow floats are computed in float32, and rounded once, to nearest even. All instruction sets
 * give the same bits. The first call selects this processor's best set. Pure functions, any thread.
 *
 * A NaN result is always the positive quiet NaN without payload. MIN and MAX return this NaN if any
 * operand is a NaN, and treat -0 as less than +0. So exchanging two operands never changes a bit.
 * A single source without divisor is copied unchanged, even NaNs.
 */
#ifndef TUTTI__REDUCE_REDUCE_H
#define TUTTI__REDUCE_REDUCE_H

#include <tutti/tutti.h>

#include "base/compiler.h"
#include "base/constants.h"

/*
 * Fold `nsrcs` >= 1 arrays of `count` elements into dst.
 *
 * dst      may be one of the sources; other overlaps are not allowed. Arrays need no alignment
 * count    may be 0; pointers may be NULL in this case
 * divisor  0: no division; otherwise SUM divides the fold by divisor, before rounding and storing
 *          (AVG's last step; integers truncate toward zero). Other operations ignore divisor
 */
typedef void (*tutti__reduce_fn_t)(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                                   uint32_t divisor);

/*
 * Each of `n` arrays dsts[k] becomes the fold of the n sources, in their order. The bits are those
 * of a single fold that is copied to all dsts. dsts[k] may be any one of srcs; other overlaps are
 * not allowed.
 *
 * Returns 0, and does nothing, if n is not 2 to 4, or if the divisor needs a real division.
 */
typedef int (*tutti__reduce_all_fn_t)(void *const *dsts, const void *const *srcs, size_t n,
                                      size_t count, uint32_t divisor);

/*
 * The built-in kernel of a type and operation, or NULL if there is none. AVG has the kernel of SUM.
 *
 * MINLOC and MAXLOC compare values as MIN and MAX do; indices are signed.
 */
tutti__reduce_fn_t tutti__reduce_find(tutti_dtype_t dtype, tutti_op_t op);

/* ---- user-defined operations (tutti_op_create); user.c ---- */

typedef struct tutti__user_op tutti__user_op_t;

/* Make an operation. Returns its number, the lowest that is free, or 0 if no number is free. Any
   thread. */
tutti_op_t tutti__user_op_make(tutti_op_function_t function, void *context, int commutative);
/* Remove an operation. Returns 0 if there is no operation `op`. */
int tutti__user_op_drop(tutti_op_t op);
/* Find an operation. Returns NULL if there is no operation `op`. Takes no lock. */
const tutti__user_op_t *tutti__user_op_find(tutti_op_t op);
int tutti__user_op_commutes(const tutti__user_op_t *user);
/* Fold like a kernel without divisor, from left to right. dst may be any of the sources. */
void tutti__user_op_fold(const tutti__user_op_t *user, void *dst, const void *const *srcs,
                         size_t nsrcs, size_t count, tutti_dtype_t dtype);

/* ---- for calls: a kernel or a user-defined operation ---- */

typedef struct {
    tutti__reduce_fn_t fold;    /* NULL: `user` is the operation */
    tutti__reduce_all_fn_t all; /* NULL: there is no such kernel */
    const tutti__user_op_t *user;
    tutti_dtype_t dtype;
} tutti__reducer_t;

/* Returns 0 if there is no kernel for the type and operation, and no user-defined operation. */
int tutti__reducer_find(tutti_dtype_t dtype, tutti_op_t op, tutti__reducer_t *ret_reducer);

/* Returns 1 if one call of the kernel is best. Otherwise call tutti__reduce_lines. */
static inline int tutti__reduce_at_once(const void *dst, size_t count)
{
    return count < TUTTI__REDUCE_SHORT || (uintptr_t)dst % TUTTI__LINE_BYTES == 0;
}

/* Fold by a kernel: if possible in two calls, of which the second begins at a cache line of dst. */
void tutti__reduce_lines(const tutti__reducer_t *reducer, void *dst, const void *const *srcs,
                         size_t nsrcs, size_t count, uint32_t divisor);

static inline void tutti__reduce(const tutti__reducer_t *reducer, void *dst,
                                 const void *const *srcs, size_t nsrcs, size_t count,
                                 uint32_t divisor)
{
    if (reducer->fold == NULL)
        tutti__user_op_fold(reducer->user, dst, srcs, nsrcs, count, reducer->dtype);
    else if (tutti__reduce_at_once(dst, count))
        reducer->fold(dst, srcs, nsrcs, count, divisor);
    else
        tutti__reduce_lines(reducer, dst, srcs, nsrcs, count, divisor);
}

/* For loops over blocks: the length, in elements, of a block that begins at `at`. The length is at
   most `most`, and the next block begins at a cache line. `most` elements fill whole lines. */
static inline size_t tutti__reduce_block(const void *at, size_t most, size_t esize)
{
    size_t over = (uintptr_t)at % TUTTI__LINE_BYTES;

    return over == 0 ? most : most - over / esize;
}

/* Helpers of tutti__reduce_all. */
void tutti__reduce_all_once(const tutti__reducer_t *reducer, void *const *dsts,
                            const void *const *srcs, size_t n, size_t count, uint32_t divisor);
void tutti__reduce_all_lines(const tutti__reducer_t *reducer, void *const *dsts,
                             const void *const *srcs, size_t n, size_t count, uint32_t divisor);

/*
 * Fold into several arrays, as many as there are sources: see tutti__reduce_all_fn_t.
 *
 * If there is a kernel for this, the fold takes one loop. Measured, sums in place of 2 to 8 MiB:
 * with 2 ranks the loop takes 0.75 of the time of a fold and a copy in blocks of 8 KiB; with 4
 * ranks 0.57, in a program outside of the library.
 */
static inline void tutti__reduce_all(const tutti__reducer_t *reducer, void *const *dsts,
                                     const void *const *srcs, size_t n, size_t count,
                                     uint32_t divisor)
{
    if (tutti__reduce_at_once(dsts[0], count))
        tutti__reduce_all_once(reducer, dsts, srcs, n, count, divisor);
    else
        tutti__reduce_all_lines(reducer, dsts, srcs, n, count, divisor);
}

/* dst = src * factor, computed in float64 for FLOAT64, otherwise in float32, and rounded once. dst
   may be src. Only for the types for which tutti__reduce_scales returns 1: floating point types. */
int tutti__reduce_scales(tutti_dtype_t dtype);
void tutti__reduce_scale(void *dst, const void *src, size_t count, tutti_dtype_t dtype,
                         double factor);

/* Conversions from and to float32, rounded to nearest even; arrays at any address, which do not
   overlap. dtype: FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2. A number that is too large becomes
   an infinity; in FLOAT8_E4M3, which has none, a NaN. */
void tutti__reduce_widen(float *dst, const void *src, size_t count, tutti_dtype_t dtype);
void tutti__reduce_narrow(void *dst, const float *src, size_t count, tutti_dtype_t dtype);

/* Force an instruction set: "scalar" (no vector instructions), "sse2" or "neon" (in every processor
   of the architecture), "avx2", "avx512", or "auto". Returns 0 if this machine does not have the
   set. */
int tutti__reduce_force(const char *isa);
/* The instruction set in use. */
const char *tutti__reduce_isa(void);

#endif
