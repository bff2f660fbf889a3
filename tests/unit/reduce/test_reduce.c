/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of every instruction set this machine has, against element-wise arithmetic written
 * down once more, bit by bit.
 *
 * Elements are handled as raw bits in a uint64_t, so that NaNs and zeros are told apart.
 */
#include "reduce/reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SRCS 17
#define MAX_COUNT 1100
#define GUARD 64 /* bytes around dst that must stay as they are */

static const char *const isas[] = { "base", "avx2", "avx512" };
static const tutti_dtype_t dtypes[] = { TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_BFLOAT16,
                                        TUTTI_INT32,   TUTTI_INT64,   TUTTI_UINT8 };
static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_MIN, TUTTI_MAX };

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* A small generator of our own: rand() differs between systems. */
static uint64_t next_random(void)
{
    static uint64_t x = 88172645463325252u;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static float f32_of(uint64_t raw)
{
    uint32_t bits = (uint32_t)raw;
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t f32_raw(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return isnan(x) ? 0x7fc00000u : bits;
}

static double f64_of(uint64_t raw)
{
    double x;

    memcpy(&x, &raw, sizeof(x));
    return x;
}

static uint64_t f64_raw(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return isnan(x) ? 0x7ff8000000000000u : bits;
}

/* The nearer of the two bfloat16 around a float, found by distance; of equal ones the even one.
   What would follow the largest finite number counts as 2^128. */
static uint64_t bf16_raw(float x)
{
    uint64_t below = f32_raw(x) & 0xffff0000u, above = below + 0x10000u;
    double low, high;

    if (!isfinite(x))
        return f32_raw(x) >> 16;
    low = fabs((double)x - (double)f32_of(below));
    high = isinf(f32_of(above)) ? ldexp(1, 128) - fabs((double)x)
                                : fabs((double)x - (double)f32_of(above));
    if (low < high || (low == high && (below >> 16) % 2 == 0))
        return below >> 16;
    return above >> 16;
}

static double pick(double a, double b, tutti_op_t op)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return op == TUTTI_MIN ? (signbit(a) ? a : b) : (signbit(a) ? b : a);
    return (op == TUTTI_MIN) == (a < b) ? a : b;
}

static int64_t pick_int(int64_t a, int64_t b, tutti_op_t op)
{
    return (op == TUTTI_MIN) == (a < b) ? a : b;
}

static uint64_t fold_f32(const uint64_t *raw, size_t n, tutti_op_t op, uint32_t divisor, int narrow)
{
    int shift = narrow ? 16 : 0;
    volatile float x = f32_of(raw[0] << shift);

    for (size_t i = 1; i < n; i++) {
        float y = f32_of(raw[i] << shift);

        x = op == TUTTI_SUM ? x + y : (float)pick((double)x, (double)y, op);
    }
    if (divisor > 0)
        x = x / (float)divisor;
    return narrow ? bf16_raw(x) : f32_raw(x);
}

static uint64_t fold_f64(const uint64_t *raw, size_t n, tutti_op_t op, uint32_t divisor)
{
    volatile double x = f64_of(raw[0]);

    for (size_t i = 1; i < n; i++)
        x = op == TUTTI_SUM ? x + f64_of(raw[i]) : pick(x, f64_of(raw[i]), op);
    if (divisor > 0)
        x = x / divisor;
    return f64_raw(x);
}

/* Sign-extend the low `bits` bits, or keep them if the type has no sign. */
static int64_t as_int(uint64_t raw, tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_INT32:
        return (int32_t)(uint32_t)raw;
    case TUTTI_UINT8:
        return (uint8_t)raw;
    default:
        return (int64_t)raw;
    }
}

static uint64_t fold_int(const uint64_t *raw, size_t n, tutti_op_t op, uint32_t divisor,
                         tutti_dtype_t dtype)
{
    int64_t x = as_int(raw[0], dtype);

    for (size_t i = 1; i < n; i++) {
        int64_t y = as_int(raw[i], dtype);

        x = op == TUTTI_SUM ? as_int((uint64_t)x + (uint64_t)y, dtype) : pick_int(x, y, op);
    }
    return (uint64_t)(divisor > 0 ? x / (int64_t)divisor : x);
}

static uint64_t expected(const uint64_t *raw, size_t n, tutti_op_t op, uint32_t divisor,
                         tutti_dtype_t dtype)
{
    uint64_t bits;

    if (n == 1 && divisor <= 1)
        return raw[0]; /* a copy, whatever it is */
    switch (dtype) {
    case TUTTI_FLOAT32:
        bits = fold_f32(raw, n, op, divisor, 0);
        break;
    case TUTTI_BFLOAT16:
        bits = fold_f32(raw, n, op, divisor, 1);
        break;
    case TUTTI_FLOAT64:
        bits = fold_f64(raw, n, op, divisor);
        break;
    default:
        bits = fold_int(raw, n, op, divisor, dtype);
        break;
    }
    return tutti_dtype_bytes(dtype) == 8 ? bits
                                         : bits & ((1ull << 8 * tutti_dtype_bytes(dtype)) - 1);
}

/* Zeros, ones, smallest and largest, infinities, quiet and signaling NaNs of both signs. */
static uint64_t special(tutti_dtype_t dtype)
{
    static const uint64_t f32[] = { 0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001,
                                    0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                                    0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffa00000 };
    static const uint64_t f64[] = { 0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000,
                                    0xbff0000000000000, 0x0000000000000001, 0x800fffffffffffff,
                                    0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000,
                                    0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000001,
                                    0x7ff0000000000001, 0xfff4000000000000 };
    static const uint64_t ints[] = { 0,
                                     1,
                                     UINT64_MAX,
                                     0x7f,
                                     0x80,
                                     0x7fffffff,
                                     0x80000000,
                                     0x7fffffffffffffff,
                                     0x80000000ull << 32 };
    uint64_t r = next_random();

    switch (dtype) {
    case TUTTI_FLOAT32:
        return f32[r % LENGTH(f32)];
    case TUTTI_BFLOAT16:
        /* The signaling NaN whose mark is in the lower half would become an infinity. */
        return f32[r % LENGTH(f32)] >> 16;
    case TUTTI_FLOAT64:
        return f64[r % LENGTH(f64)];
    default:
        return ints[r % LENGTH(ints)];
    }
}

/* Half of the floats are near each other, so that sums round and cancel. */
static uint64_t any_value(tutti_dtype_t dtype)
{
    uint64_t r = next_random();
    double near = (double)(int64_t)(r >> 20 & 0xfffff) / 1024 - 512;

    if (r % 8 == 0)
        return special(dtype);
    if (r % 8 < 4) {
        if (dtype == TUTTI_FLOAT32)
            return f32_raw((float)near);
        if (dtype == TUTTI_BFLOAT16)
            return f32_raw((float)near) >> 16;
        if (dtype == TUTTI_FLOAT64)
            return f64_raw(near);
    }
    return next_random();
}

/* Room for one array, anywhere within a line, and guards on both sides. */
typedef struct {
    unsigned char room[GUARD + MAX_COUNT * 8 + 64 + GUARD];
    unsigned char *at;
} array_t;

static array_t srcs[MAX_SRCS], result;
static uint64_t values[MAX_SRCS][MAX_COUNT];

static void place(array_t *array)
{
    array->at = array->room + GUARD + next_random() % 64;
}

/* Little endian, as everything this runs on. */
static void fill(array_t *array, const uint64_t *raw, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        memcpy(array->at + i * bytes, &raw[i], bytes);
}

static void check(const array_t *dst, size_t n, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                  uint32_t divisor)
{
    size_t bytes = tutti_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t raw[MAX_SRCS], seen = 0, want;

        for (size_t s = 0; s < n; s++)
            raw[s] = bytes == 8 ? values[s][i] : values[s][i] & ((1ull << 8 * bytes) - 1);
        want = expected(raw, n, op, divisor, dtype);
        memcpy(&seen, dst->at + i * bytes, bytes);
        if (seen != want)
            fail_msg("%s: type %d op %d, %zu sources, divisor %u, element %zu of %zu: "
                     "%#llx instead of %#llx; first two sources %#llx %#llx",
                     tutti__reduce_isa(), (int)dtype, (int)op, n, divisor, i, count,
                     (unsigned long long)seen, (unsigned long long)want, (unsigned long long)raw[0],
                     (unsigned long long)raw[n > 1]);
    }
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(dst->at[(ptrdiff_t)i - GUARD], 0xa5);
        assert_int_equal(dst->at[count * bytes + i], 0xa5);
    }
}

/* One call with random data, places and alias: dst is source `alias`, or apart if that is n. */
static void one_call(size_t n, size_t count, tutti_dtype_t dtype, tutti_op_t op, uint32_t divisor,
                     size_t alias)
{
    array_t *dst = alias < n ? &srcs[alias] : &result;
    const void *pointers[MAX_SRCS];
    size_t bytes = tutti_dtype_bytes(dtype);

    place(&result);
    memset(dst->room, 0xa5, sizeof(dst->room));
    for (size_t s = 0; s < n; s++) {
        place(&srcs[s]);
        for (size_t i = 0; i < count; i++)
            values[s][i] = any_value(dtype);
        fill(&srcs[s], values[s], count, bytes);
        pointers[s] = srcs[s].at;
    }
    tutti__reduce_find(dtype, op)(dst->at, pointers, n, count, divisor);
    check(dst, n, count, dtype, op, divisor);
}

static void all_calls(void)
{
    static const size_t long_counts[] = { 127, 511, 512, 513, 1025, MAX_COUNT };
    static const size_t many[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, MAX_SRCS };
    static const uint32_t divisors[] = { 0, 1, 2, 3, 5, 8, 100, 1u << 31, UINT32_MAX };
    uint64_t turn = 0;

    for (size_t t = 0; t < LENGTH(dtypes); t++)
        for (size_t o = 0; o < LENGTH(ops); o++)
            for (size_t m = 0; m < LENGTH(many); m++) {
                for (size_t count = 0; count <= 70; count++, turn++)
                    one_call(many[m], count, dtypes[t], ops[o], divisors[turn % LENGTH(divisors)],
                             turn % (many[m] + 1));
                for (size_t c = 0; c < LENGTH(long_counts); c++, turn++)
                    one_call(many[m], long_counts[c], dtypes[t], ops[o],
                             divisors[turn % LENGTH(divisors)], turn % (many[m] + 1));
            }
}

static void on_isa(const char *isa)
{
    if (!tutti__reduce_force(isa)) {
        print_message("this machine has no %s kernels\n", isa);
        skip();
    }
    assert_string_equal(tutti__reduce_isa(), isa);
    all_calls();
}

static void test_base(void **state)
{
    (void)state;
    on_isa("base");
}

static void test_avx2(void **state)
{
    (void)state;
    on_isa("avx2");
}

static void test_avx512(void **state)
{
    (void)state;
    on_isa("avx512");
}

/* Sums of two: any order of operands gives the same bits, NaNs too. MIN and MAX: of any number. */
static void test_order_does_not_matter(void **state)
{
    (void)state;
    for (size_t k = 0; k < LENGTH(isas); k++) {
        if (!tutti__reduce_force(isas[k]))
            continue;
        for (int round = 0; round < 2000; round++) {
            tutti_dtype_t dtype = dtypes[round % LENGTH(dtypes)];
            tutti_op_t op = ops[round / 7 % LENGTH(ops)];
            size_t n = op == TUTTI_SUM ? 2 : 3, bytes = tutti_dtype_bytes(dtype);
            uint64_t raw[3][33], one[33] = { 0 }, two[33] = { 0 };
            const void *forward[3], *backward[3];

            for (size_t s = 0; s < n; s++) {
                unsigned char *at = (unsigned char *)raw[s];

                for (size_t i = 0; i < 33; i++) {
                    uint64_t value = special(dtype);

                    memcpy(at + i * bytes, &value, bytes);
                }
                forward[s] = backward[n - 1 - s] = at;
            }
            tutti__reduce_find(dtype, op)(one, forward, n, 33, 0);
            tutti__reduce_find(dtype, op)(two, backward, n, 33, 0);
            assert_memory_equal(one, two, 33 * bytes);
        }
    }
}

static void test_bf16_rounds_once(void **state)
{
    /* 256 + 1 + 1: in bfloat16 each 256 + 1 would go back to 256. */
    uint16_t a = 0x4380, b = 0x3f80, c = 0x3f80, sum = 0;
    const void *pointers[] = { &a, &b, &c };

    (void)state;
    tutti__reduce_find(TUTTI_BFLOAT16, TUTTI_SUM)(&sum, pointers, 3, 1, 0);
    assert_int_equal(sum, 0x4381);
}

static void test_average_of_integers(void **state)
{
    int32_t a[] = { -7, 7, INT32_MIN, INT32_MAX }, b[] = { 0, 0, -1, 1 }, mean[4];
    uint8_t c[] = { 200, 255 }, d[] = { 100, 0 }, small[2];
    const void *wide[] = { a, b }, *narrow[] = { c, d };

    (void)state;
    tutti__reduce_find(TUTTI_INT32, TUTTI_AVG)(mean, wide, 2, 4, 2);
    assert_int_equal(mean[0], -3);
    assert_int_equal(mean[1], 3);
    assert_int_equal(mean[2], INT32_MAX / 2);
    assert_int_equal(mean[3], INT32_MIN / 2);
    tutti__reduce_find(TUTTI_UINT8, TUTTI_AVG)(small, narrow, 2, 2, 2);
    assert_int_equal(small[0], (300 - 256) / 2);
    assert_int_equal(small[1], 127);
}

/* The float quotients of small integers: all of them. */
static void test_every_quotient_of_bytes(void **state)
{
    uint8_t all[256], zero[256] = { 0 }, quotient[256];
    const void *pointers[] = { all, zero };

    (void)state;
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    for (uint32_t divisor = 1; divisor < 300; divisor++) {
        tutti__reduce_find(TUTTI_UINT8, TUTTI_AVG)(quotient, pointers, 2, 256, divisor);
        for (uint32_t i = 0; i < 256; i++)
            assert_int_equal(quotient[i], i / divisor);
    }
}

static void test_find(void **state)
{
    const void *nothing[] = { NULL };

    (void)state;
    tutti__reduce_find(TUTTI_FLOAT32, TUTTI_SUM)(NULL, nothing, 1, 0, 0);
    assert_ptr_equal(tutti__reduce_find(TUTTI_FLOAT32, TUTTI_AVG),
                     tutti__reduce_find(TUTTI_FLOAT32, TUTTI_SUM));
    assert_null(tutti__reduce_find(TUTTI_FLOAT16, TUTTI_SUM));
    assert_null(tutti__reduce_find(TUTTI_BOOL, TUTTI_SUM));
    assert_null(tutti__reduce_find((tutti_dtype_t)0, TUTTI_SUM));
    assert_null(tutti__reduce_find(TUTTI_FLOAT32, TUTTI_PROD));
    assert_null(tutti__reduce_find(TUTTI_INT32, (tutti_op_t)0));
    for (size_t t = 0; t < LENGTH(dtypes); t++)
        for (size_t o = 0; o < LENGTH(ops); o++)
            assert_non_null(tutti__reduce_find(dtypes[t], ops[o]));
    assert_int_equal(tutti__reduce_force("mmx"), 0);
    assert_int_equal(tutti__reduce_force("base"), 1);
    assert_string_equal(tutti__reduce_isa(), "base");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_bf16_rounds_once),
        cmocka_unit_test(test_average_of_integers),
        cmocka_unit_test(test_every_quotient_of_bytes),
        cmocka_unit_test(test_find),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
