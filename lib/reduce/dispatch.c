/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which kernels to use: the best set that this processor and its operating system have.
 *
 * Chosen at the first call. Tried: ifunc; it runs while the program is being linked, when neither
 * a debugger nor a sanitizer is ready, and musl does not have it.
 */
#include "config.h"

#include "reduce/kernels.h"

#include <stdatomic.h>
#include <string.h>

static int always(void)
{
    return 1;
}

#ifdef TUTTI__HAVE_X86_KERNELS
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}

static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

/* Best first; the last one runs everywhere. */
static const struct {
    const tutti__kernels_t *kernels;
    int (*runs_here)(void);
} sets[] = {
#ifdef TUTTI__HAVE_X86_KERNELS
    { &tutti__kernels_avx512, has_avx512 },
    { &tutti__kernels_avx2, has_avx2 },
#endif
    { &tutti__kernels_base, always },
};

/* NULL: not chosen yet. Relaxed: the tables are constant, and two threads choose alike. */
static _Atomic(const tutti__kernels_t *) in_use;

static const tutti__kernels_t *kernels(void)
{
    const tutti__kernels_t *best = atomic_load_explicit(&in_use, memory_order_relaxed);

    for (size_t i = 0; best == NULL; i++)
        if (sets[i].runs_here())
            best = sets[i].kernels;
    atomic_store_explicit(&in_use, best, memory_order_relaxed);
    return best;
}

static int row_of(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_FLOAT32:
        return TUTTI__KERNEL_FLOAT32;
    case TUTTI_FLOAT64:
        return TUTTI__KERNEL_FLOAT64;
    case TUTTI_BFLOAT16:
        return TUTTI__KERNEL_BFLOAT16;
    case TUTTI_INT32:
        return TUTTI__KERNEL_INT32;
    case TUTTI_INT64:
        return TUTTI__KERNEL_INT64;
    case TUTTI_UINT8:
        return TUTTI__KERNEL_UINT8;
    default:
        return -1;
    }
}

static int column_of(tutti_op_t op)
{
    switch (op) {
    case TUTTI_SUM:
    case TUTTI_AVG:
        return TUTTI__KERNEL_SUM;
    case TUTTI_MIN:
        return TUTTI__KERNEL_MIN;
    case TUTTI_MAX:
        return TUTTI__KERNEL_MAX;
    default:
        return -1;
    }
}

tutti__reduce_fn_t tutti__reduce_find(tutti_dtype_t dtype, tutti_op_t op)
{
    int row = row_of(dtype), column = column_of(op);

    return row < 0 || column < 0 ? NULL : kernels()->fold[row][column];
}

int tutti__reduce_force(const char *isa)
{
    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
        if (strcmp(sets[i].kernels->isa, isa) == 0 && sets[i].runs_here()) {
            atomic_store_explicit(&in_use, sets[i].kernels, memory_order_relaxed);
            return 1;
        }
    return 0;
}

const char *tutti__reduce_isa(void)
{
    return kernels()->isa;
}
