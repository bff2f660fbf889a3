/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Folds any number of sources with a function of two sources. For user-defined operations, and for
 * operations of kernels.c whose intermediate results need no rounding to the type.
 */
#include "reduce/fold_pairs.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "reduce/reduce.h"

#include <string.h>

/* Would the first result overwrite a source that is read later? */
static int overwrites(const void *dst, const void *const *srcs, size_t nsrcs)
{
    for (size_t s = 2; s < nsrcs; s++)
        if (srcs[s] == dst)
            return 1;
    return 0;
}

void tutti__fold_pairs(tutti_op_function_t function, void *context, void *dst,
                       const void *const *srcs, size_t nsrcs, size_t count, tutti_dtype_t dtype,
                       size_t esize)
{
    char aside[TUTTI__REDUCE_PAIRS_BYTES] TUTTI__ALIGNED(TUTTI__LINE_BYTES);
    size_t n;
    int apart = overwrites(dst, srcs, nsrcs);

    if (count == 0)
        return; /* memmove does not accept NULL */
    if (nsrcs == 1) {
        memmove(dst, srcs[0], count * esize);
        return;
    }
    for (size_t begin = 0; begin < count; begin += n) {
        size_t skip = begin * esize;
        char *to = (char *)dst + skip, *acc = apart ? aside : to;
        const char *left = (const char *)srcs[0] + skip;

        n = count - begin;
        if (nsrcs > 2)
            n = TUTTI__MIN(n, tutti__reduce_block(to, TUTTI__REDUCE_PAIRS_BYTES / esize, esize));
        for (size_t s = 1; s < nsrcs; s++) {
            char *result = s == nsrcs - 1 ? to : acc;

            function(result, left, (const char *)srcs[s] + skip, n, dtype, context);
            left = result;
        }
    }
}
