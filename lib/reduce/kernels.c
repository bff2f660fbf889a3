/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All kernels for one instruction set: compiled once for each, with TUTTI__ISA=base, avx2, avx512.
 *
 * Nothing here names an instruction: the element functions below are plain C, fold.inc makes loops
 * of them, and the compiler vectorises those for its set. Equal bits from all sets follow from
 *   - IEEE arithmetic without contraction (no product is ever added to anything),
 *   - one order of operands, that of the sources, in vector and scalar parts alike,
 *   - one NaN: which of two NaNs survives an addition depends on how the compiler places operands,
 *     so every NaN result becomes the positive quiet one. That makes sums commutative in every bit.
 *
 * MIN and MAX are exact whatever the order: NaN if any operand is a NaN, and -0 is less than +0.
 *
 * For each type: load and store, between an element and what is accumulated; sum, min, max; scale,
 * by the inverse of a divisor, where `exact` says that this is the same as to divide.
 */
#include "reduce/kernels.h"

#include "base/compiler.h"

#include <string.h>

/* float32 */

typedef float f32_elem_t TUTTI__UNALIGNED;
typedef float f32_acc_t;

TUTTI__ALWAYS_INLINE uint32_t f32_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

TUTTI__ALWAYS_INLINE float f32_from(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

TUTTI__ALWAYS_INLINE float f32_load(float x)
{
    return x;
}

TUTTI__ALWAYS_INLINE float f32_store(float x)
{
    return x == x ? x : f32_from(0x7fc00000u);
}

TUTTI__ALWAYS_INLINE float f32_sum(float a, float b)
{
    return a + b;
}

/*
 * The two choices differ only if a equals b or one is a NaN. Or-ing them then gives -0 of two
 * zeros, and a NaN of a NaN and anything.
 */
TUTTI__ALWAYS_INLINE float f32_min(float a, float b)
{
    float x = a < b ? a : b, y = b < a ? b : a;

    return f32_from(f32_bits(x) | f32_bits(y));
}

TUTTI__ALWAYS_INLINE float f32_max(float a, float b)
{
    return -f32_min(-a, -b);
}

/* Powers of two, 0 and 1: multiplying by the inverse gives the same bits, and is far cheaper. */
TUTTI__ALWAYS_INLINE int f32_exact(uint32_t divisor)
{
    return (divisor & (divisor - 1)) == 0;
}

TUTTI__ALWAYS_INLINE float f32_scale(float x, float inverse)
{
    return x * inverse;
}

TUTTI__ALWAYS_INLINE float f32_divide(float x, uint32_t divisor)
{
    return x / (float)divisor;
}

/* float64 */

typedef double f64_elem_t TUTTI__UNALIGNED;
typedef double f64_acc_t;

TUTTI__ALWAYS_INLINE uint64_t f64_bits(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

TUTTI__ALWAYS_INLINE double f64_from(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

TUTTI__ALWAYS_INLINE double f64_load(double x)
{
    return x;
}

TUTTI__ALWAYS_INLINE double f64_store(double x)
{
    return x == x ? x : f64_from(0x7ff8000000000000u);
}

TUTTI__ALWAYS_INLINE double f64_sum(double a, double b)
{
    return a + b;
}

TUTTI__ALWAYS_INLINE double f64_min(double a, double b)
{
    double x = a < b ? a : b, y = b < a ? b : a;

    return f64_from(f64_bits(x) | f64_bits(y));
}

TUTTI__ALWAYS_INLINE double f64_max(double a, double b)
{
    return -f64_min(-a, -b);
}

TUTTI__ALWAYS_INLINE int f64_exact(uint32_t divisor)
{
    return f32_exact(divisor);
}

TUTTI__ALWAYS_INLINE double f64_scale(double x, float inverse)
{
    return x * (double)inverse;
}

TUTTI__ALWAYS_INLINE double f64_divide(double x, uint32_t divisor)
{
    return x / (double)divisor;
}

/* bfloat16: the upper half of a float32, accumulated as one */

typedef uint16_t bf16_elem_t TUTTI__UNALIGNED;
typedef float bf16_acc_t;

TUTTI__ALWAYS_INLINE float bf16_load(uint16_t x)
{
    return f32_from((uint32_t)x << 16);
}

/* To nearest, ties to even. The one NaN has room for the carry, so it stays what it is. */
TUTTI__ALWAYS_INLINE uint16_t bf16_store(float x)
{
    uint32_t bits = f32_bits(f32_store(x));

    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#define bf16_sum f32_sum
#define bf16_min f32_min
#define bf16_max f32_max
#define bf16_exact f32_exact
#define bf16_scale f32_scale
#define bf16_divide f32_divide

/* Integers. Sums are unsigned, because signed overflow has no meaning in C. */

#define INTEGER(type, c_type, unsigned_type)                                                       \
    typedef c_type type##_elem_t TUTTI__UNALIGNED;                                                 \
    typedef c_type type##_acc_t;                                                                   \
    TUTTI__ALWAYS_INLINE c_type type##_load(c_type x)                                              \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE c_type type##_store(c_type x)                                             \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE c_type type##_sum(c_type a, c_type b)                                     \
    {                                                                                              \
        return (c_type)((unsigned_type)a + (unsigned_type)b);                                      \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE c_type type##_min(c_type a, c_type b)                                     \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE c_type type##_max(c_type a, c_type b)                                     \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE int type##_exact(uint32_t divisor)                                        \
    {                                                                                              \
        return divisor <= 1;                                                                       \
    }                                                                                              \
    TUTTI__ALWAYS_INLINE c_type type##_scale(c_type x, float inverse)                              \
    {                                                                                              \
        (void)inverse; /* 1 */                                                                     \
        return x;                                                                                  \
    }

INTEGER(i32, int32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
INTEGER(u8, uint8_t, uint8_t)

/*
 * Toward zero. Processors divide vectors of floating point numbers only, and the quotients here are
 * exact after truncation: they stay at least 1/divisor away from the next integer, far more than
 * is lost in rounding.
 */
TUTTI__ALWAYS_INLINE int32_t i32_divide(int32_t x, uint32_t divisor)
{
    return (int32_t)((double)x / (double)divisor);
}

TUTTI__ALWAYS_INLINE uint8_t u8_divide(uint8_t x, uint32_t divisor)
{
    return (uint8_t)(int32_t)((float)x / (float)divisor);
}

TUTTI__ALWAYS_INLINE int64_t i64_divide(int64_t x, uint32_t divisor)
{
    return x / (int64_t)divisor;
}

#define TYPE f32
#include "reduce/ops.inc"
#define TYPE f64
#include "reduce/ops.inc"
#define TYPE bf16
#include "reduce/ops.inc"
#define TYPE i32
#include "reduce/ops.inc"
#define TYPE i64
#include "reduce/ops.inc"
#define TYPE u8
#include "reduce/ops.inc"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
#define OPS(type)                                                                                  \
    {                                                                                              \
        type##_fold_sum, type##_fold_min, type##_fold_max                                          \
    }

const tutti__kernels_t PASTE(tutti__kernels_, TUTTI__ISA) = {
    .isa = TEXT(TUTTI__ISA),
    .fold = {
        [TUTTI__KERNEL_FLOAT32] = OPS(f32),
        [TUTTI__KERNEL_FLOAT64] = OPS(f64),
        [TUTTI__KERNEL_BFLOAT16] = OPS(bf16),
        [TUTTI__KERNEL_INT32] = OPS(i32),
        [TUTTI__KERNEL_INT64] = OPS(i64),
        [TUTTI__KERNEL_UINT8] = OPS(u8),
    },
};
