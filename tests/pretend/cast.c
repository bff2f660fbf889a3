/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conversions between floating point types. The arithmetic is exact, simple and slow.
 *
 * The product with the scale is rounded to float32, or to float64 if either type is FLOAT64,
 * and then once more to the target type, to nearest even. A NaN becomes the positive NaN
 * without payload.
 */
#include "pretend/inside.h"

#include "reduce/reduce.h"

#include <math.h>
#include <string.h>

/* A narrow type: the number of explicit bits of the mantissa, the exponent of the smallest normal
   number, and the largest value. */
typedef struct {
    int mantissa, least;
    double largest;
} narrow_t;

static const narrow_t f16 = { 10, -14, 65504.0 };
static const narrow_t bf16 = { 7, -126, 0x1.fep127 };

int cast_serves(tutti_dtype_t dtype)
{
    return dtype == TUTTI_FLOAT16 || dtype == TUTTI_BFLOAT16 || dtype == TUTTI_FLOAT32 ||
           dtype == TUTTI_FLOAT64;
}

static double widen(uint16_t bits, const narrow_t *type)
{
    unsigned code = (bits & 0x7fffu) >> type->mantissa, top = 0x7fffu >> type->mantissa;
    double fraction = bits & ((1u << type->mantissa) - 1);
    double x;

    if (code == top)
        x = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (code == 0)
        x = ldexp(fraction, type->least - type->mantissa);
    else
        x = ldexp(fraction + (1 << type->mantissa), (int)code - 1 + type->least - type->mantissa);
    return bits & 0x8000u ? -x : x;
}

static uint16_t narrow(double x, const narrow_t *type)
{
    unsigned sign = signbit(x) ? 0x8000u : 0, top = 0x7fffu >> type->mantissa;
    unsigned infinity = top << type->mantissa;
    int exponent = type->least;
    double steps;

    if (isnan(x))
        return (uint16_t)(infinity | 1u << (type->mantissa - 1));
    x = fabs(x);
    if (isinf(x))
        return (uint16_t)(sign | infinity);
    if (x >= ldexp(1, type->least))
        exponent = ilogb(x);
    /* In units of the last bit; rint rounds to even. A carry increments the exponent by itself. */
    steps = rint(ldexp(x, type->mantissa - exponent));
    if (ldexp(steps, exponent - type->mantissa) > type->largest)
        return (uint16_t)(sign | infinity);
    return (uint16_t)(sign |
                      (((unsigned)(exponent - type->least) << type->mantissa) + (unsigned)steps));
}

static double get(const char *src, tutti_dtype_t dtype)
{
    uint16_t bits;
    float f;
    double d;

    switch (dtype) {
    case TUTTI_FLOAT64:
        memcpy(&d, src, sizeof(d));
        return d;
    case TUTTI_FLOAT32:
        memcpy(&f, src, sizeof(f));
        return f;
    default:
        memcpy(&bits, src, sizeof(bits));
        return widen(bits, dtype == TUTTI_FLOAT16 ? &f16 : &bf16);
    }
}

static void put(char *dst, tutti_dtype_t dtype, double d)
{
    float f = (float)d;
    uint16_t bits;

    if (isnan(d))
        d = f = (float)fabs((double)NAN);
    switch (dtype) {
    case TUTTI_FLOAT64:
        memcpy(dst, &d, sizeof(d));
        break;
    case TUTTI_FLOAT32:
        memcpy(dst, &f, sizeof(f));
        break;
    default:
        bits = narrow(d, dtype == TUTTI_FLOAT16 ? &f16 : &bf16);
        memcpy(dst, &bits, sizeof(bits));
    }
}

void cast(void *dst, tutti_dtype_t to, const void *src, tutti_dtype_t from, size_t count,
          double scale)
{
    size_t wide = tutti_dtype_bytes(from), step = tutti_dtype_bytes(to);
    int in_double = from == TUTTI_FLOAT64 || to == TUTTI_FLOAT64;

    if (from == to && scale == 1) {
        memmove(dst, src, count * wide);
        return;
    }
    if (from == to) {
        tutti__reduce_scale(dst, src, count, to, scale);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double x = get((const char *)src + i * wide, from);

        x = in_double ? x * scale : (double)((float)x * (float)scale);
        put((char *)dst + i * step, to, x);
    }
}
