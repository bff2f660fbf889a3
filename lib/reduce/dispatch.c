/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selects the kernels: the best set that this processor and its operating system support.
 *
 * The first call selects the set. Tried: ifunc. Its resolver runs inside the dynamic linker, before
 * debuggers and sanitizers work. Also, musl has no ifunc.
 */
#include "config.h"

#include "reduce/kernels.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef TUTTI__HAVE_X86_KERNELS
#include <cpuid.h>
#endif

/* The largest number of sources that kernels process in one loop. */
enum {
    FEW = 4
};

static int always(void)
{
    return 1;
}

#ifdef TUTTI__HAVE_X86_KERNELS
/* Ask the processor, because not all compilers accept f16c in __builtin_cpu_supports. An operating
   system that supports avx2 also supports f16c. */
static int has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

/* The sets, the best first. The last set runs on every processor. */
static const struct {
    const tutti__kernels_t *kernels;
    int (*runs_here)(void);
} sets[] = {
#ifdef TUTTI__HAVE_X86_KERNELS
    { &tutti__kernels_avx512, has_avx512 }, { &tutti__kernels_avx2, has_avx2 },
    { &tutti__kernels_sse2, always },
#endif
#ifdef TUTTI__HAVE_NEON_KERNELS
    { &tutti__kernels_neon, always },
#endif
    { &tutti__kernels_scalar, always },
};

/* The selected table; NULL: none yet. Relaxed: all threads select the same constant table. */
static _Atomic(const tutti__kernels_t *) in_use;

static const tutti__kernels_t *kernels(void)
{
    const tutti__kernels_t *best = atomic_load_explicit(&in_use, memory_order_relaxed);

    if (best != NULL)
        return best;
    for (size_t i = 0; best == NULL; i++)
        if (sets[i].runs_here())
            best = sets[i].kernels;
    atomic_store_explicit(&in_use, best, memory_order_relaxed);
    return best;
}

tutti__reduce_fn_t tutti__reduce_find(tutti_dtype_t dtype, tutti_op_t op)
{
    if ((unsigned)dtype >= TUTTI__KERNEL_DTYPES || (unsigned)op >= TUTTI__KERNEL_OPS)
        return NULL;
    return kernels()->fold[dtype][op];
}

int tutti__reducer_find(tutti_dtype_t dtype, tutti_op_t op, tutti__reducer_t *ret_reducer)
{
    tutti__reducer_t reducer = { .fold = tutti__reduce_find(dtype, op), .dtype = dtype };

    if (reducer.fold != NULL && (op == TUTTI_SUM || op == TUTTI_AVG))
        reducer.all = kernels()->all_sum[dtype];
    if (reducer.fold == NULL && tutti_dtype_bytes(dtype) != 0)
        reducer.user = tutti__user_op_find(op);
    if (reducer.fold == NULL && reducer.user == NULL)
        return 0;
    *ret_reducer = reducer;
    return 1;
}

/*
 * The number of elements before the next cache line of dst; 0 if no element begins exactly where
 * this line begins. A store across lines costs two accesses: sums of 128 KiB take 1.2 times as long
 * as aligned sums, sums of 4 KiB in the first-level cache 1.5 times (Zen 5, vectors of 64 bytes).
 */
static size_t before_line(const void *dst, size_t esize)
{
    size_t bytes = -(uintptr_t)dst % TUTTI__LINE_BYTES;

    return bytes % esize == 0 ? bytes / esize : 0;
}

void tutti__reduce_lines(const tutti__reducer_t *reducer, void *dst, const void *const *srcs,
                         size_t nsrcs, size_t count, uint32_t divisor)
{
    size_t esize = tutti_dtype_bytes(reducer->dtype), head = before_line(dst, esize);
    const void *rest[FEW];

    /* With more than FEW sources, `fold` itself works in blocks. With one source, `fold` copies. */
    if (head == 0 || nsrcs > FEW || nsrcs == 1) {
        reducer->fold(dst, srcs, nsrcs, count, divisor);
        return;
    }
    reducer->fold(dst, srcs, nsrcs, head, divisor);
    for (size_t s = 0; s < nsrcs; s++)
        rest[s] = (const char *)srcs[s] + head * esize;
    reducer->fold((char *)dst + head * esize, rest, nsrcs, count - head, divisor);
}

void tutti__reduce_all_once(const tutti__reducer_t *reducer, void *const *dsts,
                            const void *const *srcs, size_t n, size_t count, uint32_t divisor)
{
    if (reducer->all != NULL && reducer->all(dsts, srcs, n, count, divisor))
        return;
    tutti__reduce(reducer, dsts[0], srcs, n, count, divisor);
    for (size_t i = 1; i < n; i++)
        memcpy(dsts[i], dsts[0], count * tutti_dtype_bytes(reducer->dtype));
}

void tutti__reduce_all_lines(const tutti__reducer_t *reducer, void *const *dsts,
                             const void *const *srcs, size_t n, size_t count, uint32_t divisor)
{
    size_t esize = tutti_dtype_bytes(reducer->dtype), head = before_line(dsts[0], esize);
    const void *from[FEW];
    void *to[FEW];

    if (head == 0 || n > FEW || reducer->all == NULL) {
        tutti__reduce_all_once(reducer, dsts, srcs, n, count, divisor);
        return;
    }
    tutti__reduce_all_once(reducer, dsts, srcs, n, head, divisor);
    for (size_t i = 0; i < n; i++) {
        from[i] = (const char *)srcs[i] + head * esize;
        to[i] = (char *)dsts[i] + head * esize;
    }
    tutti__reduce_all_once(reducer, to, from, n, count - head, divisor);
}

int tutti__reduce_scales(tutti_dtype_t dtype)
{
    return (unsigned)dtype < TUTTI__KERNEL_DTYPES && kernels()->scale[dtype] != NULL;
}

void tutti__reduce_scale(void *dst, const void *src, size_t count, tutti_dtype_t dtype,
                         double factor)
{
    kernels()->scale[dtype](dst, src, count, factor);
}

void tutti__reduce_widen(float *dst, const void *src, size_t count, tutti_dtype_t dtype)
{
    kernels()->widen[dtype](dst, src, 0, count);
}

void tutti__reduce_narrow(void *dst, const float *src, size_t count, tutti_dtype_t dtype)
{
    kernels()->narrow[dtype](dst, 0, count, src);
}

int tutti__reduce_force(const char *isa)
{
    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
        if ((strcmp(isa, "auto") == 0 || strcmp(sets[i].kernels->isa, isa) == 0) &&
            sets[i].runs_here()) {
            atomic_store_explicit(&in_use, sets[i].kernels, memory_order_relaxed);
            return 1;
        }
    return 0;
}

const char *tutti__reduce_isa(void)
{
    return kernels()->isa;
}
