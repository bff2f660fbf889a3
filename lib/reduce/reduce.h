/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element-wise kernels: type x operation x instruction set.
 *
 * One fused pass folds k sources, in the order given: dst = ((src0 op src1) op src2) ... Narrow
 * floats accumulate in float32 and are rounded once, to nearest even. All instruction sets give
 * the same bits. The set is chosen once, by what the processor has. Pure functions, any thread.
 *
 * A NaN result is always the positive quiet NaN without payload; MIN and MAX give it if any operand
 * is a NaN, and take -0 for less than +0. So exchanging two operands never changes a bit. Only a
 * single source without divisor is copied as it is.
 */
#ifndef TUTTI__REDUCE_REDUCE_H
#define TUTTI__REDUCE_REDUCE_H

#include <tutti/tutti.h>

/*
 * Fold `nsrcs` >= 1 arrays of `count` elements into dst.
 *
 * dst      may be one of the sources; other overlaps are not allowed. All arrays at any address
 * count    may be 0; pointers may be NULL then
 * divisor  0: none; else divide the fold by it before it is rounded and stored (AVG's last step;
 *          integers truncate toward zero)
 */
typedef void (*tutti__reduce_fn_t)(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                                   uint32_t divisor);

/*
 * The kernel of a type and operation (AVG: the kernel of SUM), or NULL if not served.
 */
tutti__reduce_fn_t tutti__reduce_find(tutti_dtype_t dtype, tutti_op_t op);

/* Force an instruction set for tests: "base", "avx2", "avx512". 0 if this machine has it not. */
int tutti__reduce_force(const char *isa);
/* The one in use. */
const char *tutti__reduce_isa(void);

#endif
