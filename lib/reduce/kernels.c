/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All kernels for one instruction set. This file is compiled once for each set, with
 * TUTTI__ISA=scalar, sse2, neon, avx2, avx512.
 *
 * The functions for elements are plain C without intrinsics. sum.inc and PAIRWISE make loops of
 * these functions, and the compiler vectorises the loops. Only float16, and bfloat16 in sse2, need
 * intrinsics (kernels_f16c.inc, kernels_sse2.inc). All sets give the same bits because of
 *   - IEEE arithmetic without contraction (no product is an operand of an addition),
 *   - one order of operands, the order of the sources, in vector parts and in scalar parts,
 *   - one NaN: the compiler's order of operands decides which of two NaNs an addition returns, so
 *     every NaN result becomes the positive quiet NaN. So sums are commutative in every bit.
 *
 * Each type has: load and store, which convert between elements and accumulators; the operations;
 * and `scale`, which multiplies by the inverse of a divisor. `exact` returns 1 if `scale` gives the
 * same bits as a division.
 */
#include "reduce/kernels.h"

#include "base/compiler.h"
#include "reduce/fold_pairs.h"

#include <string.h>

#ifdef TUTTI__SCALAR
#undef TUTTI__INDEPENDENT /* this pragma makes clang vectorise even if the flags forbid it */
#define TUTTI__INDEPENDENT
#endif

/* For each type: the number of elements in an accumulator, and functions that load and store fewer
   elements. */
#define TAILS(type, n)                                                                             \
    enum {                                                                                         \
        type##_lanes = n                                                                           \
    };                                                                                             \
    TUTTI__ALWAYS_INLINE type##_acc_t type##_load(const type##_elem_t *from);                      \
    TUTTI__ALWAYS_INLINE void type##_store(type##_elem_t *to, type##_acc_t acc);                   \
    TUTTI__ALWAYS_INLINE type##_acc_t type##_load_some(const type##_elem_t *from, size_t count)    \
    {                                                                                              \
        type##_elem_t padded[n];                                                                   \
                                                                                                   \
        memset(padded, 0, sizeof(padded));                                                         \
        memcpy(padded, from, count * sizeof(*padded));                                             \
        return type##_load(padded);                                                                \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE void type##_store_some(type##_elem_t *to, type##_acc_t acc, size_t count) \
    {                                                                                              \
        type##_elem_t padded[n];                                                                   \
                                                                                                   \
        type##_store(padded, acc);                                                                 \
        memcpy(to, padded, count * sizeof(*padded));                                               \
    }

/*
 * Make a kernel from a function of two blocks. For operations whose intermediate results can be
 * stored as elements without rounding.
 */
#define PAIRWISE(type, op)                                                                         \
    static void type##_pair_##op(void *dst, const void *left, const void *right, size_t count,     \
                                 tutti_dtype_t dtype, void *context)                               \
    {                                                                                              \
        const type##_elem_t *a = left, *b = right;                                                 \
        type##_elem_t *to = dst;                                                                   \
        size_t rest = count % type##_lanes, last = count - rest;                                   \
                                                                                                   \
        (void)dtype, (void)context;                                                                \
        TUTTI__INDEPENDENT                                                                         \
        for (size_t g = 0; g < count / type##_lanes; g++) {                                        \
            size_t i = g * type##_lanes;                                                           \
                                                                                                   \
            type##_store(to + i, type##_##op(type##_load(a + i), type##_load(b + i)));             \
        }                                                                                          \
        if (rest > 0)                                                                              \
            type##_store_some(                                                                     \
                to + last,                                                                         \
                type##_##op(type##_load_some(a + last, rest), type##_load_some(b + last, rest)),   \
                rest);                                                                             \
    }                                                                                              \
    static void type##_fold_##op(void *dst, const void *const *srcs, size_t nsrcs, size_t count,   \
                                 uint32_t divisor)                                                 \
    {                                                                                              \
        (void)divisor;                                                                             \
        tutti__fold_pairs(type##_pair_##op, NULL, dst, srcs, nsrcs, count, (tutti_dtype_t)0,       \
                          sizeof(type##_elem_t));                                                  \
    }
#define ORDER(type) PAIRWISE(type, min) PAIRWISE(type, max)

/* The function of a floating point type for tutti__reduce_scale. */
#define SCALING(type)                                                                              \
    static void type##_scale_all(void *dst, const void *src, size_t count, double factor)          \
    {                                                                                              \
        const type##_elem_t *from = src;                                                           \
        type##_elem_t *to = dst;                                                                   \
        type##_factor_t by = (type##_factor_t)factor;                                              \
        size_t rest = count % type##_lanes, last = count - rest;                                   \
                                                                                                   \
        TUTTI__INDEPENDENT                                                                         \
        for (size_t g = 0; g < count / type##_lanes; g++) {                                        \
            size_t i = g * type##_lanes;                                                           \
                                                                                                   \
            type##_store(to + i, type##_scale(type##_load(from + i), by));                         \
        }                                                                                          \
        if (rest > 0)                                                                              \
            type##_store_some(to + last, type##_scale(type##_load_some(from + last, rest), by),    \
                              rest);                                                               \
    }

#include "reduce/kernels_int.inc"
#include "reduce/kernels_float.inc"
#include "reduce/kernels_narrow.inc"
#include "reduce/kernels_loc.inc"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

/* type: for SUM, AVG, MIN and MAX; bits: the unsigned type of the same size, for the others. */
#define INTEGERS(type, bits)                                                                       \
    {                                                                                              \
        [TUTTI_SUM] = type##_fold_sum, [TUTTI_AVG] = type##_fold_sum,                              \
        [TUTTI_MIN] = type##_fold_min, [TUTTI_MAX] = type##_fold_max,                              \
        [TUTTI_PROD] = bits##_fold_prod, [TUTTI_BAND] = bits##_fold_band,                          \
        [TUTTI_BOR] = bits##_fold_bor, [TUTTI_BXOR] = bits##_fold_bxor,                            \
        [TUTTI_LAND] = bits##_fold_land, [TUTTI_LOR] = bits##_fold_lor,                            \
        [TUTTI_LXOR] = bits##_fold_lxor,                                                           \
    }
#define FLOATS(type)                                                                               \
    {                                                                                              \
        [TUTTI_SUM] = type##_fold_sum, [TUTTI_AVG] = type##_fold_sum,                              \
        [TUTTI_MIN] = type##_fold_min, [TUTTI_MAX] = type##_fold_max,                              \
        [TUTTI_PROD] = type##_fold_prod,                                                           \
    }
#define PAIRS(type)                                                                                \
    {                                                                                              \
        [TUTTI_MINLOC] = type##_fold_minloc, [TUTTI_MAXLOC] = type##_fold_maxloc,                  \
    }

const tutti__kernels_t PASTE(tutti__kernels_, TUTTI__ISA) = {
    .isa = TEXT(TUTTI__ISA),
    .fold = {
        [TUTTI_INT8] = INTEGERS(i8, u8),
        [TUTTI_UINT8] = INTEGERS(u8, u8),
        [TUTTI_INT16] = INTEGERS(i16, u16),
        [TUTTI_UINT16] = INTEGERS(u16, u16),
        [TUTTI_INT32] = INTEGERS(i32, u32),
        [TUTTI_UINT32] = INTEGERS(u32, u32),
        [TUTTI_INT64] = INTEGERS(i64, u64),
        [TUTTI_UINT64] = INTEGERS(u64, u64),
        [TUTTI_FLOAT16] = FLOATS(f16),
        [TUTTI_BFLOAT16] = FLOATS(bf16),
        [TUTTI_FLOAT32] = FLOATS(f32),
        [TUTTI_FLOAT64] = FLOATS(f64),
        [TUTTI_FLOAT8_E4M3] = FLOATS(e4m3),
        [TUTTI_FLOAT8_E5M2] = FLOATS(e5m2),
        [TUTTI_BOOL] = {
            [TUTTI_SUM] = u8_fold_lor, [TUTTI_MAX] = u8_fold_lor, [TUTTI_BOR] = u8_fold_lor,
            [TUTTI_LOR] = u8_fold_lor, [TUTTI_PROD] = u8_fold_land, [TUTTI_MIN] = u8_fold_land,
            [TUTTI_BAND] = u8_fold_land, [TUTTI_LAND] = u8_fold_land, [TUTTI_BXOR] = u8_fold_lxor,
            [TUTTI_LXOR] = u8_fold_lxor,
        },
        [TUTTI_FLOAT32_INT32] = PAIRS(f32i32),
        [TUTTI_FLOAT64_INT64] = PAIRS(f64i64),
        [TUTTI_INT32_INT32] = PAIRS(i32i32),
        [TUTTI_INT64_INT64] = PAIRS(i64i64),
    },
    .all_sum = {
        [TUTTI_FLOAT16] = F16_ALL_SUM,
        [TUTTI_BFLOAT16] = bf16_all_sum,
        [TUTTI_FLOAT32] = f32_all_sum,
        [TUTTI_FLOAT64] = f64_all_sum,
    },
    .scale = {
        [TUTTI_FLOAT16] = f16_scale_all,
        [TUTTI_BFLOAT16] = bf16_scale_all,
        [TUTTI_FLOAT32] = f32_scale_all,
        [TUTTI_FLOAT64] = f64_scale_all,
        [TUTTI_FLOAT8_E4M3] = e4m3_scale_all,
        [TUTTI_FLOAT8_E5M2] = e5m2_scale_all,
    },
    .widen = {
        [TUTTI_FLOAT16] = f16_widen,
        [TUTTI_BFLOAT16] = bf16_widen,
        [TUTTI_FLOAT8_E4M3] = e4m3_widen,
        [TUTTI_FLOAT8_E5M2] = e5m2_widen,
    },
    .narrow = {
        [TUTTI_FLOAT16] = f16_round,
        [TUTTI_BFLOAT16] = bf16_round,
        [TUTTI_FLOAT8_E4M3] = e4m3_round,
        [TUTTI_FLOAT8_E5M2] = e5m2_round,
    },
};
