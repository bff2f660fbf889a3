/* SPDX-License-Identifier: BSD-3-Clause */
/* Folding with a function of two blocks; see fold_pairs.c. */
#ifndef TUTTI__REDUCE_FOLD_PAIRS_H
#define TUTTI__REDUCE_FOLD_PAIRS_H

#include <tutti/tutti.h>

/* Fold like a kernel of reduce.h without divisor: from left to right; dst may be any of the
   sources. The function receives dtype and context. */
void tutti__fold_pairs(tutti_op_function_t function, void *context, void *dst,
                       const void *const *srcs, size_t nsrcs, size_t count, tutti_dtype_t dtype,
                       size_t esize);

#endif
