/* SPDX-License-Identifier: BSD-3-Clause */
/* See reference.h. */
#include "unit/reduce/reference.h"

#include <math.h>
#include <string.h>

const char *const isas[ISAS] = { "scalar", "sse2", "neon", "avx2", "avx512" };

static size_t value_bytes(tutti_dtype_t dtype)
{
    return is_pair(dtype) ? tutti_dtype_bytes(dtype) / 2 : tutti_dtype_bytes(dtype);
}

static uint64_t mask_of(tutti_dtype_t dtype)
{
    return UINT64_MAX >> (64 - 8 * value_bytes(dtype));
}

/* The value is stored in little endian, as on all machines that run this test. */
raw_t raw_load(const void *at, tutti_dtype_t dtype)
{
    raw_t raw = { 0, 0 };

    memcpy(&raw.value, at, value_bytes(dtype));
    if (is_pair(dtype))
        memcpy(&raw.index, (const char *)at + value_bytes(dtype), value_bytes(dtype));
    return raw;
}

void raw_store(void *at, tutti_dtype_t dtype, raw_t raw)
{
    memcpy(at, &raw.value, value_bytes(dtype));
    if (is_pair(dtype))
        memcpy((char *)at + value_bytes(dtype), &raw.index, value_bytes(dtype));
}

/* ---- types ---- */

int is_pair(tutti_dtype_t dtype)
{
    return dtype >= TUTTI_FLOAT32_INT32;
}

int is_float(tutti_dtype_t dtype)
{
    return dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT8_E5M2;
}

int is_served(tutti_dtype_t dtype, tutti_op_t op)
{
    if (is_pair(dtype))
        return op == TUTTI_MINLOC || op == TUTTI_MAXLOC;
    if (is_float(dtype))
        return op <= TUTTI_PROD;
    if (dtype == TUTTI_BOOL && op == TUTTI_AVG)
        return 0;
    return op <= TUTTI_LXOR;
}

typedef struct {
    int mantissa_bits, bias;
    uint64_t sign, top, nan; /* top: the code of infinity, or of the NaN in its place */
} format_t;

static format_t format_of(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_FLOAT64:
        return (format_t){ 52, 1023, 1ull << 63, 0x7ffull << 52, 0x7ff8ull << 48 };
    case TUTTI_FLOAT16:
        return (format_t){ 10, 15, 0x8000, 0x7c00, 0x7e00 };
    case TUTTI_BFLOAT16:
        return (format_t){ 7, 127, 0x8000, 0x7f80, 0x7fc0 };
    case TUTTI_FLOAT8_E4M3:
        return (format_t){ 3, 7, 0x80, 0x7f, 0x7f };
    case TUTTI_FLOAT8_E5M2:
        return (format_t){ 2, 15, 0x80, 0x7c, 0x7e };
    default:
        return (format_t){ 23, 127, 0x80000000, 0x7f800000, 0x7fc00000 };
    }
}

double decode(uint64_t code, tutti_dtype_t dtype)
{
    format_t f = format_of(dtype);
    uint64_t magnitude = code & (f.sign - 1), one = 1ull << f.mantissa_bits;
    int exponent = (int)(magnitude >> f.mantissa_bits);
    double x;

    if (magnitude > f.top || (magnitude == f.top && dtype == TUTTI_FLOAT8_E4M3))
        return NAN;
    if (magnitude == f.top)
        x = INFINITY;
    else if (exponent == 0)
        x = ldexp((double)magnitude, 1 - f.bias - f.mantissa_bits);
    else
        x = ldexp((double)(magnitude % one + one), exponent - f.bias - f.mantissa_bits);
    return code & f.sign ? -x : x;
}

uint64_t encode(double x, tutti_dtype_t dtype)
{
    format_t f = format_of(dtype);
    uint64_t one = 1ull << f.mantissa_bits, sign = signbit(x) ? f.sign : 0, code;
    int exponent = 1 - f.bias;

    if (isnan(x))
        return f.nan;
    if (x == 0.0)
        return sign;
    x = fabs(x);
    if (isinf(x)) {
        code = f.top;
    } else {
        exponent = ilogb(x) > exponent ? ilogb(x) : exponent;
        code = (uint64_t)nearbyint(ldexp(x, f.mantissa_bits - exponent));
        /* At 2 * one the mantissa is 0 with the next exponent: the sum is correct. */
        if (code >= one)
            code += (uint64_t)(exponent + f.bias - 1) << f.mantissa_bits;
    }
    if (code >= f.top && dtype == TUTTI_FLOAT8_E4M3)
        return f.nan;
    return (code < f.top ? code : f.top) | sign;
}

/* The value is sign-extended if the type has a sign. */
static int64_t as_int(uint64_t raw, tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_INT8:
        return (int8_t)(uint8_t)raw;
    case TUTTI_INT16:
        return (int16_t)(uint16_t)raw;
    case TUTTI_INT32:
    case TUTTI_INT32_INT32:
    case TUTTI_FLOAT32_INT32: /* the index */
        return (int32_t)(uint32_t)raw;
    default:
        return (int64_t)(raw & mask_of(dtype));
    }
}

/* ---- folds ---- */

/* Returns -1 if a is less than b, 1 if b is less than a, 0 if they are equal. */
static int order(double a, double b)
{
    if (a == b)
        return (int)(signbit(b) != 0) - (int)(signbit(a) != 0);
    return a < b ? -1 : 1;
}

static double fold_float(double x, double y, tutti_op_t op, int is_double)
{
    volatile float a = (float)x, b = (float)y;

    switch (op) {
    case TUTTI_PROD:
        return is_double ? x * y : (double)(float)(a * b);
    case TUTTI_MIN:
    case TUTTI_MAX:
        if (isnan(x) || isnan(y))
            return NAN;
        return (order(x, y) <= 0) == (op == TUTTI_MIN) ? x : y;
    default:
        return is_double ? x + y : (double)(float)(a + b);
    }
}

static uint64_t fold_floats(const raw_t *raw, size_t n, tutti_op_t op, uint32_t divisor,
                            tutti_dtype_t dtype)
{
    int is_double = dtype == TUTTI_FLOAT64;
    volatile double x = decode(raw[0].value, dtype);

    for (size_t i = 1; i < n; i++)
        x = fold_float(x, decode(raw[i].value, dtype), op, is_double);
    if (divisor > 0 && is_double)
        x = x / divisor;
    else if (divisor > 0)
        x = (double)((float)x / (float)divisor);
    return encode(x, dtype);
}

static uint64_t fold_bool(uint64_t x, uint64_t y, tutti_op_t op)
{
    switch (op) {
    case TUTTI_SUM:
    case TUTTI_MAX:
    case TUTTI_BOR:
    case TUTTI_LOR:
        return x != 0 || y != 0;
    case TUTTI_BXOR:
    case TUTTI_LXOR:
        return (x != 0) != (y != 0);
    default:
        return x != 0 && y != 0;
    }
}

static uint64_t fold_int(uint64_t x, uint64_t y, tutti_op_t op, tutti_dtype_t dtype)
{
    int less = dtype == TUTTI_UINT64 ? x < y : as_int(x, dtype) < as_int(y, dtype);

    switch (op) {
    case TUTTI_MIN:
        return less ? x : y;
    case TUTTI_MAX:
        return less ? y : x;
    case TUTTI_PROD:
        return x * y;
    case TUTTI_BAND:
        return x & y;
    case TUTTI_BOR:
        return x | y;
    case TUTTI_BXOR:
        return x ^ y;
    case TUTTI_LAND:
    case TUTTI_LOR:
    case TUTTI_LXOR:
        return fold_bool(x, y, op);
    default:
        return x + y;
    }
}

/* Is b the minimum or maximum, and not a? */
static int second_wins(raw_t a, raw_t b, tutti_op_t op, tutti_dtype_t dtype)
{
    int64_t first = (int64_t)a.index, second = (int64_t)b.index;
    int by_value;

    if (dtype == TUTTI_FLOAT32_INT32 || dtype == TUTTI_FLOAT64_INT64) {
        tutti_dtype_t real = dtype == TUTTI_FLOAT32_INT32 ? TUTTI_FLOAT32 : TUTTI_FLOAT64;
        double x = decode(a.value, real), y = decode(b.value, real);

        if (isnan(x) || isnan(y))
            by_value = (isnan(y) != 0) - (isnan(x) != 0);
        else
            by_value = order(x, y) * (op == TUTTI_MINLOC ? 1 : -1);
    } else {
        int64_t x = as_int(a.value, dtype), y = as_int(b.value, dtype);

        by_value = ((y < x) - (x < y)) * (op == TUTTI_MINLOC ? 1 : -1);
    }
    if (value_bytes(dtype) == 4) {
        first = (int32_t)(uint32_t)a.index;
        second = (int32_t)(uint32_t)b.index;
    }
    return by_value != 0 ? by_value > 0 : second < first;
}

static raw_t fold_pairs(const raw_t *raw, size_t n, tutti_op_t op, tutti_dtype_t dtype)
{
    raw_t best = raw[0];

    for (size_t i = 1; i < n; i++)
        if (second_wins(best, raw[i], op, dtype))
            best = raw[i];
    if (dtype == TUTTI_FLOAT32_INT32 && isnan(decode(best.value, TUTTI_FLOAT32)))
        best.value = format_of(TUTTI_FLOAT32).nan;
    if (dtype == TUTTI_FLOAT64_INT64 && isnan(decode(best.value, TUTTI_FLOAT64)))
        best.value = format_of(TUTTI_FLOAT64).nan;
    return best;
}

raw_t expected_fold(const raw_t *raw, size_t n, tutti_op_t op, uint32_t divisor,
                    tutti_dtype_t dtype)
{
    uint64_t x = raw[0].value;

    if ((op != TUTTI_SUM && op != TUTTI_AVG) || dtype == TUTTI_BOOL)
        divisor = 0;
    if (n == 1 && divisor <= 1)
        return raw[0]; /* a copy of any bits */
    if (is_pair(dtype))
        return fold_pairs(raw, n, op, dtype);
    if (is_float(dtype))
        return (raw_t){ fold_floats(raw, n, op, divisor, dtype), 0 };
    for (size_t i = 1; i < n; i++)
        x = (dtype == TUTTI_BOOL ? fold_bool(x, raw[i].value, op)
                                 : fold_int(x, raw[i].value, op, dtype)) &
            mask_of(dtype);
    if (divisor > 0)
        x = dtype == TUTTI_UINT64 ? x / divisor : (uint64_t)(as_int(x, dtype) / (int64_t)divisor);
    return (raw_t){ x & mask_of(dtype), 0 };
}

raw_t expected_scale(raw_t raw, tutti_dtype_t dtype, double factor)
{
    volatile double x = decode(raw.value, dtype);
    volatile float y = (float)x * (float)factor;

    return (raw_t){ encode(dtype == TUTTI_FLOAT64 ? x * factor : (double)y, dtype), 0 };
}

/* ---- values ---- */

uint64_t next_random(void)
{
    static uint64_t x = 88172645463325252u;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static uint64_t special_bits(tutti_dtype_t dtype)
{
    static const uint64_t f32[] = { 0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001,
                                    0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                                    0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffa00000 };
    static const uint64_t f64[] = { 0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000,
                                    0xbff0000000000000, 0x0000000000000001, 0x800fffffffffffff,
                                    0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000,
                                    0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000001,
                                    0x7ff0000000000001, 0xfff4000000000000 };
    static const uint64_t f16[] = { 0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x83ff, 0x0400,
                                    0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01 };
    static const uint64_t ints[] = { 0,
                                     1,
                                     UINT64_MAX,
                                     0x7f,
                                     0x80,
                                     0x7fff,
                                     0x8000,
                                     0x7fffffff,
                                     0x80000000,
                                     0x100,
                                     0x7fffffffffffffff,
                                     0x80000000ull << 32,
                                     2,
                                     0xffffff00 };
    uint64_t r = next_random();

    switch (dtype) {
    case TUTTI_FLOAT32:
    case TUTTI_FLOAT32_INT32:
        return f32[r % LENGTH(f32)];
    case TUTTI_BFLOAT16:
        return f32[r % LENGTH(f32)] >> 16;
    case TUTTI_FLOAT64:
    case TUTTI_FLOAT64_INT64:
        return f64[r % LENGTH(f64)];
    case TUTTI_FLOAT16:
        return f16[r % LENGTH(f16)];
    case TUTTI_FLOAT8_E5M2:
        return f16[r % LENGTH(f16)] >> 8;
    case TUTTI_FLOAT8_E4M3:
        return (r % 4 == 0 ? 0x7e : r % 4 == 1 ? 0x7f : r >> 2 & 1) | (r >> 8 & 0x80);
    default:
        return ints[r % LENGTH(ints)];
    }
}

/* Indices are close to each other, with both signs. */
static raw_t with_index(uint64_t value, tutti_dtype_t dtype)
{
    uint64_t index = is_pair(dtype) ? next_random() % 5 - 2 : 0;

    return (raw_t){ value & mask_of(dtype), index & mask_of(dtype) };
}

raw_t special_value(tutti_dtype_t dtype)
{
    return with_index(special_bits(dtype), dtype);
}

/* Half of the floats are close to each other, so that sums round and cancel. */
raw_t any_value(tutti_dtype_t dtype)
{
    uint64_t r = next_random();
    double near = (double)(int64_t)(r >> 20 & 0xfffff) / 1024 - 512;

    if (r % 8 == 0)
        return special_value(dtype);
    if (r % 8 < 4 && is_float(dtype))
        return with_index(encode(near, dtype), dtype);
    if (r % 8 < 4 && is_pair(dtype))
        return with_index(dtype == TUTTI_FLOAT32_INT32   ? encode(floor(near / 64), TUTTI_FLOAT32)
                          : dtype == TUTTI_FLOAT64_INT64 ? encode(floor(near / 64), TUTTI_FLOAT64)
                                                         : (uint64_t)(int64_t)(near / 64),
                          dtype);
    return with_index(next_random(), dtype);
}
