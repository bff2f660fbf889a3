/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * float16, bfloat16 and float8, exhaustively, on every instruction set of this machine: all codes,
 * all pairs of float8, and rounding of the float32 around every midpoint, against reference.c.
 *
 * Conversions of float32 are reached through tutti__reduce_scale: 1.0 times a factor.
 *
 * All four conversions, and sums, products, minima and maxima of pairs, were also compared
 * once with ml_dtypes 0.6.0 and numpy, on half a million float32 for each type. All bits were
 * equal, except the sign and payload of NaNs (this library has only one NaN), and the order of the
 * two zeros.
 */
#include "reduce/reduce.h"

#include "unit/reduce/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

static const tutti_dtype_t narrow[] = { TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT8_E4M3,
                                        TUTTI_FLOAT8_E5M2 };

static uint64_t codes_of(tutti_dtype_t dtype)
{
    return 1ull << 8 * tutti_dtype_bytes(dtype);
}

static void put(void *array, size_t i, tutti_dtype_t dtype, uint64_t code)
{
    raw_store((char *)array + i * tutti_dtype_bytes(dtype), dtype, (raw_t){ code, 0 });
}

static uint64_t get(const void *array, size_t i, tutti_dtype_t dtype)
{
    return raw_load((const char *)array + i * tutti_dtype_bytes(dtype), dtype).value;
}

/* Codes from the OCP specification and IEEE 754; the reference agrees with them. */
static void test_known_codes(void **state)
{
    static const struct {
        tutti_dtype_t dtype;
        uint64_t code;
        double x;
    } known[] = {
        { TUTTI_FLOAT8_E4M3, 0x7e, 448 },       { TUTTI_FLOAT8_E4M3, 0xfe, -448 },
        { TUTTI_FLOAT8_E4M3, 0x08, 0x1p-6 },    { TUTTI_FLOAT8_E4M3, 0x07, 0x1.cp-7 },
        { TUTTI_FLOAT8_E4M3, 0x01, 0x1p-9 },    { TUTTI_FLOAT8_E4M3, 0x38, 1 },
        { TUTTI_FLOAT8_E5M2, 0x7b, 57344 },     { TUTTI_FLOAT8_E5M2, 0x7c, INFINITY },
        { TUTTI_FLOAT8_E5M2, 0xfc, -INFINITY }, { TUTTI_FLOAT8_E5M2, 0x04, 0x1p-14 },
        { TUTTI_FLOAT8_E5M2, 0x03, 0x1.8p-15 }, { TUTTI_FLOAT8_E5M2, 0x01, 0x1p-16 },
        { TUTTI_FLOAT16, 0x7bff, 65504 },       { TUTTI_FLOAT16, 0x0001, 0x1p-24 },
        { TUTTI_FLOAT16, 0x0400, 0x1p-14 },     { TUTTI_FLOAT16, 0x7c00, INFINITY },
        { TUTTI_BFLOAT16, 0x3f80, 1 },          { TUTTI_BFLOAT16, 0x0001, 0x1p-133 },
        { TUTTI_BFLOAT16, 0x7f7f, 0x1.fep127 },
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(known); i++) {
        assert_true(decode(known[i].code, known[i].dtype) == known[i].x);
        assert_int_equal(encode(known[i].x, known[i].dtype), known[i].code);
    }
    assert_true(isnan(decode(0x7f, TUTTI_FLOAT8_E4M3)) && isnan(decode(0xff, TUTTI_FLOAT8_E4M3)));
    for (uint64_t code = 0x7d; code <= 0x7f; code++)
        assert_true(isnan(decode(code, TUTTI_FLOAT8_E5M2)));
    /* A number half way beyond the largest one is rounded down if the largest one is even.
       Otherwise it overflows. */
    assert_int_equal(encode(464, TUTTI_FLOAT8_E4M3), 0x7e);
    assert_int_equal(encode(464.001, TUTTI_FLOAT8_E4M3), 0x7f);
    assert_int_equal(encode(-1000, TUTTI_FLOAT8_E4M3), 0x7f);
    assert_int_equal(encode(61440, TUTTI_FLOAT8_E5M2), 0x7c);
    assert_int_equal(encode(61439.9, TUTTI_FLOAT8_E5M2), 0x7b);
    assert_int_equal(encode(-65520, TUTTI_FLOAT16), 0xfc00);
}

/* Every code x: x + -0 = x, and max(x, x) = x. A NaN becomes the one NaN. */
static void check_all_codes(tutti_dtype_t dtype)
{
    static unsigned char all[65536 * 2], minus[65536 * 2], seen[65536 * 2];
    const void *sum[] = { all, minus }, *twice[] = { all, all };
    uint64_t codes = codes_of(dtype);

    for (uint64_t c = 0; c < codes; c++) {
        put(all, c, dtype, c);
        put(minus, c, dtype, codes / 2);
    }
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 0)
            tutti__reduce_find(dtype, TUTTI_SUM)(seen, sum, 2, codes, 0);
        else if (turn == 1)
            tutti__reduce_find(dtype, TUTTI_MAX)(seen, twice, 2, codes, 0);
        else
            tutti__reduce_scale(seen, all, codes, dtype, 1.0);
        for (uint64_t c = 0; c < codes; c++)
            if (get(seen, c, dtype) != encode(decode(c, dtype), dtype))
                fail_msg("%s: type %d, code %#llx became %#llx", tutti__reduce_isa(), (int)dtype,
                         (unsigned long long)c, (unsigned long long)get(seen, c, dtype));
    }
}

static void test_all_codes(void **state)
{
    (void)state;
    for (size_t k = 0; k < ISAS; k++)
        for (size_t t = 0; tutti__reduce_force(isas[k]) && t < LENGTH(narrow); t++)
            check_all_codes(narrow[t]);
}

/* Convert each code to float32, and float32 with any bits to a code. */
static void check_conversions(tutti_dtype_t dtype)
{
    static unsigned char all[65536 * 2], seen[65536 * 2];
    static float wide[65536];
    uint64_t codes = codes_of(dtype);

    for (uint64_t c = 0; c < codes; c++)
        put(all, c, dtype, c);
    tutti__reduce_widen(wide, all, codes, dtype);
    for (uint64_t c = 0; c < codes; c++)
        if (isnan(wide[c]) ? !isnan(decode(c, dtype)) : (double)wide[c] != decode(c, dtype))
            fail_msg("%s: type %d, code %#llx became %g", tutti__reduce_isa(), (int)dtype,
                     (unsigned long long)c, (double)wide[c]);
    for (uint32_t i = 0; i < 65535; i++) {
        uint32_t bits = i << 16 | i * 40503u % 65536;

        memcpy(&wide[i], &bits, sizeof(bits));
    }
    tutti__reduce_narrow(seen, wide, 65535, dtype); /* no multiple of a vector */
    for (size_t i = 0; i < 65535; i++)
        if (get(seen, i, dtype) != encode((double)wide[i], dtype))
            fail_msg("%s: type %d, %a became %#llx", tutti__reduce_isa(), (int)dtype,
                     (double)wide[i], (unsigned long long)get(seen, i, dtype));
}

static void test_conversions(void **state)
{
    (void)state;
    for (size_t k = 0; k < ISAS; k++)
        for (size_t t = 0; tutti__reduce_force(isas[k]) && t < LENGTH(narrow); t++)
            check_conversions(narrow[t]);
}

/*
 * The result for a pair of float8, in double. A sum or product is exact in double, or the operands
 * are so far apart that the nearest code of the sum is the larger operand. So only the conversion
 * to float8 rounds. AVG is divided in float32.
 */
static double in_double(double a, double b, tutti_op_t op)
{
    switch (op) {
    case TUTTI_SUM:
        return a + b;
    case TUTTI_AVG:
        return (double)((float)(a + b) / 3.0f);
    case TUTTI_PROD:
        return a * b;
    default:
        if (isnan(a) || isnan(b))
            return NAN;
        if (a == b)
            return (signbit(a) != 0) == (op == TUTTI_MIN) ? a : b;
        return (a < b) == (op == TUTTI_MIN) ? a : b;
    }
}

static void test_all_pairs_of_float8(void **state)
{
    static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_AVG, TUTTI_MIN, TUTTI_MAX, TUTTI_PROD };
    static uint8_t left[65536], right[65536], seen[65536];
    const void *both[] = { left, right };

    (void)state;
    for (size_t i = 0; i < 65536; i++) {
        left[i] = (uint8_t)(i >> 8);
        right[i] = (uint8_t)i;
    }
    for (size_t t = 2; t < LENGTH(narrow); t++)
        for (size_t o = 0; o < LENGTH(ops); o++)
            for (size_t k = 0; k < ISAS; k++) {
                if (!tutti__reduce_force(isas[k]))
                    continue;
                tutti__reduce_find(narrow[t], ops[o])(seen, both, 2, 65536,
                                                      ops[o] == TUTTI_AVG ? 3 : 0);
                for (size_t i = 0; i < 65536; i++) {
                    double a = decode(left[i], narrow[t]), b = decode(right[i], narrow[t]);

                    if (seen[i] != encode(in_double(a, b, ops[o]), narrow[t]))
                        fail_msg("%s: type %d op %d: %#x and %#x give %#x", isas[k], (int)narrow[t],
                                 (int)ops[o], left[i], right[i], seen[i]);
                }
            }
}

/* Round x in each element of an array that has a vector and some remaining elements. */
static void check_rounding(float x, tutti_dtype_t dtype)
{
    unsigned char ones[17 * 2], want[17 * 2], seen[17 * 2];
    uint64_t one = encode(1, dtype), code = encode((double)x, dtype);

    for (size_t i = 0; i < 17; i++) {
        put(ones, i, dtype, one);
        put(want, i, dtype, code);
    }
    tutti__reduce_scale(seen, ones, 17, dtype, (double)x);
    if (memcmp(seen, want, 17 * tutti_dtype_bytes(dtype)) != 0)
        fail_msg("%s: type %d: %a became %#llx or %#llx, not %#llx", tutti__reduce_isa(),
                 (int)dtype, (double)x, (unsigned long long)get(seen, 0, dtype),
                 (unsigned long long)get(seen, 16, dtype), (unsigned long long)code);
}

/* Check the rounding around each code, and around the midpoint between the code and the next one.
   After the last code comes the number that would follow the largest one. */
static void check_all_rounding(tutti_dtype_t dtype)
{
    static const float far[] = { 0x1p-149f, 0x1p-126f, 1e30f, 0x1.fffffep127f, INFINITY };

    for (uint64_t code = 0; isfinite(decode(code, dtype)); code++) {
        double here = decode(code, dtype), next = decode(code + 1, dtype);
        float x = (float)here;

        check_rounding(x, dtype);
        check_rounding(nextafterf(x, INFINITY), dtype);
        if (!isfinite(next))
            next = 2 * here - decode(code - 1, dtype);
        x = (float)(here + (next - here) / 2);
        for (int sign = 0; sign < 2; sign++, x = -x) {
            check_rounding(x, dtype);
            check_rounding(nextafterf(x, INFINITY), dtype);
            check_rounding(nextafterf(x, -INFINITY), dtype);
        }
    }
    for (size_t i = 0; i < LENGTH(far); i++) {
        check_rounding(far[i], dtype);
        check_rounding(-far[i], dtype);
    }
    check_rounding(NAN, dtype);
}

static void test_rounding(void **state)
{
    (void)state;
    for (size_t k = 0; k < ISAS; k++)
        for (size_t t = 0; tutti__reduce_force(isas[k]) && t < LENGTH(narrow); t++)
            check_all_rounding(narrow[t]);
}

/* The caller's processor treats subnormal float32 as zeros; no code of these types is subnormal in
   float32. This test is the last one, because a failure leaves the mode set. */
static void test_flushing(void **state)
{
#ifdef __SSE2__
    unsigned before = _mm_getcsr();

    (void)state;
    for (size_t k = 0; k < ISAS; k++)
        for (size_t t = 0; tutti__reduce_force(isas[k]) && t < LENGTH(narrow); t++) {
            _mm_setcsr(before | 0x8040);
            if (narrow[t] != TUTTI_BFLOAT16)
                check_all_codes(narrow[t]);
            _mm_setcsr(before);
        }
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_codes), cmocka_unit_test(test_all_codes),
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_all_pairs_of_float8),
        cmocka_unit_test(test_rounding),    cmocka_unit_test(test_flushing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
