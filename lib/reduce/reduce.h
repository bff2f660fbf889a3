/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element-wise kernels: type x operation x instruction set.
 *
 * One fused pass folds k sources, in the order given: dst = ((src0 op src1) op src2) ... Narrow
 * floats accumulate in float32 and are rounded once, to nearest even. All instruction sets give the
 * same bits. The set is selected once, by the processor's capabilities. Pure functions, any thread.
 *
 * A NaN result is always the positive quiet NaN without payload. MIN and MAX return it if any
 * operand is a NaN, and treat -0 as less than +0. So exchanging two operands never changes a bit.
 * Only a single source without divisor is copied unchanged.
 */
#ifndef TUTTI__REDUCE_REDUCE_H
#define TUTTI__REDUCE_REDUCE_H

#include <tutti/tutti.h>

#include "base/compiler.h"
#include "base/constants.h"

/*
 * Fold `nsrcs` >= 1 arrays of `count` elements into dst.
 *
 * dst      may be one of the sources; other overlaps are not allowed. All arrays at any address
 * count    may be 0; pointers may be NULL in this case
 * divisor  0: none; otherwise the fold is divided by it before it is rounded and stored (AVG's last
 *          step; integers truncate toward zero). For the kernels of SUM; the others ignore it
 */
typedef void (*tutti__reduce_fn_t)(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                                   uint32_t divisor);

/*
 * Each of `n` arrays dsts[k] becomes the fold of the n sources, in their order: the same bits as a
 * fold and copies of it. Any of dsts may be any one of srcs; other overlaps are not allowed.
 *
 * Returns 0, and does nothing, if it does not serve: for n other than 2 to 4, and divisors that
 * need a division.
 */
typedef int (*tutti__reduce_all_fn_t)(void *const *dsts, const void *const *srcs, size_t n,
                                      size_t count, uint32_t divisor);

/*
 * The built-in kernel of a type and operation (AVG: the kernel of SUM), or NULL if not served.
 *
 * MINLOC and MAXLOC: values as for MIN and MAX, -0 is less than +0; indices are signed.
 */
tutti__reduce_fn_t tutti__reduce_find(tutti_dtype_t dtype, tutti_op_t op);

/* ---- user-defined operations (tutti_op_create); user.c ---- */

typedef struct tutti__user_op tutti__user_op_t;

/* The lowest free number, or 0 if there is none. Any thread. */
tutti_op_t tutti__user_op_make(tutti_op_function_t function, void *context, int commutative);
/* 0 if there is no operation `op`. */
int tutti__user_op_drop(tutti_op_t op);
/* NULL: there is no operation `op`. Takes no lock. */
const tutti__user_op_t *tutti__user_op_find(tutti_op_t op);
int tutti__user_op_commutes(const tutti__user_op_t *user);
/* Like a kernel; divisor is ignored. Folds from left to right; dst may be any of the sources. */
void tutti__user_op_fold(const tutti__user_op_t *user, void *dst, const void *const *srcs,
                         size_t nsrcs, size_t count, tutti_dtype_t dtype);

/* ---- for calls: a kernel or a user-defined operation ---- */

typedef struct {
    tutti__reduce_fn_t fold;    /* NULL: user */
    tutti__reduce_all_fn_t all; /* NULL: none */
    const tutti__user_op_t *user;
    tutti_dtype_t dtype;
} tutti__reducer_t;

/* 0 if the type and operation are not served. */
int tutti__reducer_find(tutti_dtype_t dtype, tutti_op_t op, tutti__reducer_t *ret_reducer);

/* Is a single call the best choice? */
static inline int tutti__reduce_at_once(const void *dst, size_t count)
{
    return count < TUTTI__REDUCE_SHORT || (uintptr_t)dst % TUTTI__LINE_BYTES == 0;
}

/* A fold by a kernel, in two calls if the second one can then begin at a cache line of dst. */
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

/* For loops over blocks: the number of elements of the block at `at`, at most `most`, so that the
   next block begins at a cache line. `most` elements are a multiple of a line. */
static inline size_t tutti__reduce_block(const void *at, size_t most, size_t esize)
{
    size_t over = (uintptr_t)at % TUTTI__LINE_BYTES;

    return over == 0 ? most : most - over / esize;
}

/* The parts of tutti__reduce_all. */
void tutti__reduce_all_once(const tutti__reducer_t *reducer, void *const *dsts,
                            const void *const *srcs, size_t n, size_t count, uint32_t divisor);
void tutti__reduce_all_lines(const tutti__reducer_t *reducer, void *const *dsts,
                             const void *const *srcs, size_t n, size_t count, uint32_t divisor);

/*
 * A fold into several arrays, as many as there are sources: see tutti__reduce_all_fn_t.
 *
 * One loop, if there is a kernel for it. Measured, sums in place of 2 to 8 MiB: with 2 ranks the
 * loop takes 0.75 of the time of a fold and a copy in blocks of 8 KiB; with 4 ranks 0.57, in a
 * program outside of the library.
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

/* dst = src * factor, in float64 for FLOAT64, otherwise in float32, rounded once; dst may be src.
   Floating point types only: see tutti__reduce_scales. */
int tutti__reduce_scales(tutti_dtype_t dtype);
void tutti__reduce_scale(void *dst, const void *src, size_t count, tutti_dtype_t dtype,
                         double factor);

/* Force an instruction set: "scalar" (no vector instructions), "sse2" or "neon" (in every processor
   of the architecture), "avx2", "avx512", or "auto". 0 if this machine does not have it. */
int tutti__reduce_force(const char *isa);
/* The instruction set in use. */
const char *tutti__reduce_isa(void);

#endif
