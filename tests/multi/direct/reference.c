/* SPDX-License-Identifier: BSD-3-Clause */
/* See reference.h. */
#include "multi/direct/reference.h"

#include <math.h>
#include <string.h>

/* ---- types ---- */

typedef enum {
    SIGNED,
    UNSIGNED,
    FLOATING,
    BOOLEAN,
    PAIR
} class_t;

typedef struct {
    class_t class;
    int bytes;
    int exponent_bits, mantissa_bits; /* of narrow floating point types */
} type_t;

static const type_t types[REFERENCE_TYPES + 1] = {
    [TUTTI_INT8] = { SIGNED, 1, 0, 0 },          [TUTTI_UINT8] = { UNSIGNED, 1, 0, 0 },
    [TUTTI_INT16] = { SIGNED, 2, 0, 0 },         [TUTTI_UINT16] = { UNSIGNED, 2, 0, 0 },
    [TUTTI_INT32] = { SIGNED, 4, 0, 0 },         [TUTTI_UINT32] = { UNSIGNED, 4, 0, 0 },
    [TUTTI_INT64] = { SIGNED, 8, 0, 0 },         [TUTTI_UINT64] = { UNSIGNED, 8, 0, 0 },
    [TUTTI_FLOAT16] = { FLOATING, 2, 5, 10 },    [TUTTI_BFLOAT16] = { FLOATING, 2, 8, 7 },
    [TUTTI_FLOAT32] = { FLOATING, 4, 0, 0 },     [TUTTI_FLOAT64] = { FLOATING, 8, 0, 0 },
    [TUTTI_FLOAT8_E4M3] = { FLOATING, 1, 4, 3 }, [TUTTI_FLOAT8_E5M2] = { FLOATING, 1, 5, 2 },
    [TUTTI_BOOL] = { BOOLEAN, 1, 0, 0 },         [TUTTI_FLOAT32_INT32] = { PAIR, 8, 0, 0 },
    [TUTTI_FLOAT64_INT64] = { PAIR, 16, 0, 0 },  [TUTTI_INT32_INT32] = { PAIR, 8, 0, 0 },
    [TUTTI_INT64_INT64] = { PAIR, 16, 0, 0 },
};

int reference_serves(tutti_dtype_t dtype, tutti_op_t op)
{
    switch (types[dtype].class) {
    case SIGNED:
    case UNSIGNED:
        return op <= TUTTI_LXOR;
    case FLOATING:
        return op <= TUTTI_PROD;
    case BOOLEAN:
        return op <= TUTTI_LXOR && op != TUTTI_AVG;
    default:
        return op == TUTTI_MINLOC || op == TUTTI_MAXLOC;
    }
}

/* ---- conversion to and from numbers ---- */

/* Copies of constant sizes are not calls of memcpy, which would take half of the time. */
static void copy(void *to, const void *from, int bytes)
{
    switch (bytes) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memmove(to, from, (size_t)bytes);
        break;
    }
}

/* The bits of a narrow type, rounded to nearest even; for normal numbers and zero only. */
static uint64_t narrow_bits(double value, int exponent_bits, int mantissa_bits)
{
    int exponent, bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t sign = (uint64_t)(value < 0) << (exponent_bits + mantissa_bits), mantissa;

    if (value == 0)
        return 0;
    mantissa = (uint64_t)nearbyint(ldexp(frexp(fabs(value), &exponent), mantissa_bits + 1));
    /* The value is 1.m times 2^(exponent - 1). `mantissa` has the leading one, so a carry moves
       into the exponent. */
    return sign | (((uint64_t)(exponent - 2 + bias) << mantissa_bits) + mantissa);
}

static double narrow_value(uint64_t bits, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t mantissa = bits & ((1u << mantissa_bits) - 1);
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    double value;

    if (exponent == 0 && mantissa == 0)
        return 0;
    value =
        ldexp((double)mantissa + (double)(1u << mantissa_bits), exponent - bias - mantissa_bits);
    return bits >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

static double get_float(tutti_dtype_t dtype, const void *element)
{
    const type_t *type = &types[dtype];
    uint64_t bits = 0;
    float f;
    double d;

    if (dtype == TUTTI_FLOAT32) {
        memcpy(&f, element, sizeof(f));
        return f;
    }
    if (dtype == TUTTI_FLOAT64) {
        memcpy(&d, element, sizeof(d));
        return d;
    }
    copy(&bits, element, type->bytes);
    return narrow_value(bits, type->exponent_bits, type->mantissa_bits);
}

static void put_float(tutti_dtype_t dtype, double value, void *element)
{
    const type_t *type = &types[dtype];
    float f = (float)value;
    uint64_t bits;

    if (dtype == TUTTI_FLOAT32) {
        memcpy(element, &f, sizeof(f));
    } else if (dtype == TUTTI_FLOAT64) {
        memcpy(element, &value, sizeof(value));
    } else {
        bits = narrow_bits(value, type->exponent_bits, type->mantissa_bits);
        copy(element, &bits, type->bytes);
    }
}

/* An integer as 64 bits, with its sign extended. */
static uint64_t get_int(tutti_dtype_t dtype, const void *element)
{
    int unused = 64 - 8 * types[dtype].bytes;
    uint64_t bits = 0;

    copy(&bits, element, types[dtype].bytes);
    if (types[dtype].class == SIGNED)
        return (uint64_t)((int64_t)(bits << unused) >> unused);
    return bits;
}

static void put_int(tutti_dtype_t dtype, uint64_t value, void *element)
{
    copy(element, &value, types[dtype].bytes);
}

/* Value and index. */
typedef struct {
    double value;
    int64_t index;
} pair_t;

static pair_t get_pair(tutti_dtype_t dtype, const void *element)
{
    const char *at = element;
    float f;
    double d;
    int32_t i[2];
    int64_t l[2];

    switch (dtype) {
    case TUTTI_FLOAT32_INT32:
        memcpy(&f, at, sizeof(f));
        memcpy(i, at + 4, 4);
        return (pair_t){ f, i[0] };
    case TUTTI_FLOAT64_INT64:
        memcpy(&d, at, sizeof(d));
        memcpy(l, at + 8, 8);
        return (pair_t){ d, l[0] };
    case TUTTI_INT32_INT32:
        memcpy(i, at, sizeof(i));
        return (pair_t){ i[0], i[1] };
    default:
        memcpy(l, at, sizeof(l));
        return (pair_t){ (double)l[0], l[1] };
    }
}

static void put_pair(tutti_dtype_t dtype, pair_t p, void *element)
{
    char *at = element;
    float f = (float)p.value;
    int32_t i[2] = { (int32_t)p.value, (int32_t)p.index };
    int64_t l[2] = { (int64_t)p.value, p.index };

    switch (dtype) {
    case TUTTI_FLOAT32_INT32:
        memcpy(at, &f, sizeof(f));
        memcpy(at + 4, &i[1], 4);
        break;
    case TUTTI_FLOAT64_INT64:
        memcpy(at, &p.value, sizeof(p.value));
        memcpy(at + 8, &l[1], 8);
        break;
    case TUTTI_INT32_INT32:
        memcpy(at, i, sizeof(i));
        break;
    default:
        memcpy(at, l, sizeof(l));
    }
}

/* ---- values ---- */

static uint64_t random_bits(int rank, size_t i, unsigned salt)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)(rank + 1) * 0xd1b54a32d192ed03u +
                 (uint64_t)salt * 0x8cb92ba72f3d8dd7u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Values whose products and sums over 8 ranks are exact in FLOAT8_E5M2, which has three bits. */
static double float_value(tutti_dtype_t dtype, tutti_op_t op, uint64_t bits)
{
    switch (op) {
    case TUTTI_PROD:
        return (double)(1 + bits % 2);
    case TUTTI_MIN:
    case TUTTI_MAX:
        return (double)(int)(bits % 16) - 8;
    default:
        return (double)(int)(bits & (types[dtype].bytes == 1 ? 1 : 15));
    }
}

void reference_value(tutti_dtype_t dtype, tutti_op_t op, int rank, size_t i, unsigned salt,
                     void *ret_element)
{
    uint64_t bits = random_bits(rank, i, salt);
    char *at = ret_element;

    if ((int)op > REFERENCE_OPS) {
        copy(at, &bits, types[dtype].bytes < 8 ? types[dtype].bytes : 8);
        if (types[dtype].bytes == 16)
            memcpy(at + 8, &bits, 8);
    } else if (types[dtype].class == FLOATING) {
        put_float(dtype, float_value(dtype, op, bits), ret_element);
    } else if (types[dtype].class == PAIR) {
        put_pair(dtype, (pair_t){ (double)(bits % 3), (int64_t)(bits / 3 % 50) }, ret_element);
    } else if (types[dtype].class == BOOLEAN) {
        put_int(dtype, bits % 2, ret_element);
    } else if (op == TUTTI_LAND || op == TUTTI_LOR || op == TUTTI_LXOR) {
        put_int(dtype, bits % 3 == 0 ? 0 : bits % 3 == 1 ? 1 : bits | 4, ret_element);
    } else {
        put_int(dtype, bits, ret_element);
    }
}

/* ---- folding ---- */

/* NaNs are tested in the tests of the kernels. */
static double fold_float(tutti_op_t op, double a, double b)
{
    switch (op) {
    case TUTTI_PROD:
        return a * b;
    case TUTTI_MIN:
        return a < b ? a : b;
    case TUTTI_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

static uint64_t fold_int(tutti_dtype_t dtype, tutti_op_t op, uint64_t a, uint64_t b)
{
    int less = types[dtype].class == SIGNED ? (int64_t)a < (int64_t)b : a < b;

    switch (op) {
    case TUTTI_PROD:
        return a * b;
    case TUTTI_MIN:
        return less ? a : b;
    case TUTTI_MAX:
        return less ? b : a;
    case TUTTI_BAND:
        return a & b;
    case TUTTI_BOR:
        return a | b;
    case TUTTI_BXOR:
        return a ^ b;
    case TUTTI_LAND:
        return a && b;
    case TUTTI_LOR:
        return a || b;
    case TUTTI_LXOR:
        return !a != !b;
    default:
        return a + b;
    }
}

static uint64_t fold_bool(tutti_op_t op, uint64_t a, uint64_t b)
{
    static const tutti_op_t as[] = {
        [TUTTI_SUM] = TUTTI_LOR,   [TUTTI_PROD] = TUTTI_LAND, [TUTTI_MIN] = TUTTI_LAND,
        [TUTTI_MAX] = TUTTI_LOR,   [TUTTI_BAND] = TUTTI_LAND, [TUTTI_BOR] = TUTTI_LOR,
        [TUTTI_BXOR] = TUTTI_LXOR, [TUTTI_LAND] = TUTTI_LAND, [TUTTI_LOR] = TUTTI_LOR,
        [TUTTI_LXOR] = TUTTI_LXOR
    };

    return fold_int(TUTTI_BOOL, as[op], a, b);
}

static pair_t fold_pair(tutti_op_t op, pair_t a, pair_t b)
{
    if (a.value == b.value)
        return a.index < b.index ? a : b;
    return (op == TUTTI_MINLOC) == (a.value < b.value) ? a : b;
}

static void fold_user(tutti_dtype_t dtype, tutti_op_t op, const void *a, const void *b, void *to)
{
    if (op == reference_user_op(REFERENCE_AFFINE))
        reference_affine(to, a, b, 1, dtype, &reference_context);
    else if (op == reference_user_op(REFERENCE_SHIFTED_PRODUCT))
        reference_shifted_product(to, a, b, 1, dtype, &reference_context);
    else
        memmove(to, a, (size_t)types[dtype].bytes);
}

static void fold(tutti_dtype_t dtype, tutti_op_t op, const void *a, const void *b, void *to)
{
    if ((int)op > REFERENCE_OPS)
        fold_user(dtype, op, a, b, to);
    else if (types[dtype].class == FLOATING)
        put_float(dtype, fold_float(op, get_float(dtype, a), get_float(dtype, b)), to);
    else if (types[dtype].class == PAIR)
        put_pair(dtype, fold_pair(op, get_pair(dtype, a), get_pair(dtype, b)), to);
    else if (types[dtype].class == BOOLEAN)
        put_int(dtype, fold_bool(op, get_int(dtype, a), get_int(dtype, b)), to);
    else
        put_int(dtype, fold_int(dtype, op, get_int(dtype, a), get_int(dtype, b)), to);
}

/* Narrow types are divided in float32, and the quotient is rounded once more. */
static void divide(tutti_dtype_t dtype, int ranks, void *element)
{
    uint64_t bits;

    if (dtype == TUTTI_FLOAT64) {
        put_float(dtype, get_float(dtype, element) / ranks, element);
    } else if (types[dtype].class == FLOATING) {
        put_float(dtype, (float)get_float(dtype, element) / (float)ranks, element);
    } else {
        bits = get_int(dtype, element);
        put_int(dtype,
                types[dtype].class == SIGNED ? (uint64_t)((int64_t)bits / ranks)
                                             : bits / (uint64_t)ranks,
                element);
    }
}

void reference_fold(tutti_dtype_t dtype, tutti_op_t op, int first, int end, size_t i, unsigned salt,
                    void *ret_element)
{
    char next[REFERENCE_MOST_BYTES];

    reference_value(dtype, op, first, i, salt, ret_element);
    for (int r = first + 1; r < end; r++) {
        reference_value(dtype, op, r, i, salt, next);
        fold(dtype, op, ret_element, next, ret_element);
    }
    if (op == TUTTI_AVG && end - first > 1)
        divide(dtype, end - first, ret_element);
}
