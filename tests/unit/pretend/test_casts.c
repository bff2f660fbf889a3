/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device's conversions are compared with numbers computed by hand. All narrow values
 * also make a round trip.
 */
#include "pretend/inside.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static unsigned narrow(double x, tutti_dtype_t to)
{
    uint16_t bits;

    cast(&bits, to, &x, TUTTI_FLOAT64, 1, 1);
    return bits;
}

static void test_float16(void **state)
{
    (void)state;
    assert_int_equal(narrow(1, TUTTI_FLOAT16), 0x3c00);
    assert_int_equal(narrow(-2, TUTTI_FLOAT16), 0xc000);
    assert_int_equal(narrow(-0.0, TUTTI_FLOAT16), 0x8000);
    assert_int_equal(narrow(65504, TUTTI_FLOAT16), 0x7bff);
    assert_int_equal(narrow(65519, TUTTI_FLOAT16), 0x7bff);
    assert_int_equal(narrow(65520, TUTTI_FLOAT16), 0x7c00); /* a tie, to the even infinity */
    assert_int_equal(narrow(1e6, TUTTI_FLOAT16), 0x7c00);
    assert_int_equal(narrow(0x1p-24, TUTTI_FLOAT16), 0x0001);
    assert_int_equal(narrow(0x1p-25, TUTTI_FLOAT16), 0x0000);
    assert_int_equal(narrow(0x1.8p-24, TUTTI_FLOAT16), 0x0002);
    assert_int_equal(narrow(1 + 0x1p-11, TUTTI_FLOAT16), 0x3c00);
    assert_int_equal(narrow(1 + 0x3p-11, TUTTI_FLOAT16), 0x3c02);
    assert_int_equal(narrow(2 - 0x1p-12, TUTTI_FLOAT16), 0x4000);
    assert_int_equal(narrow((double)NAN, TUTTI_FLOAT16), 0x7e00);
    /* The value is rounded once, from float64. If it were converted to float32 first, it would be a
       tie. */
    assert_int_equal(narrow(1 + 0x1p-11 + 0x1p-40, TUTTI_FLOAT16), 0x3c01);
}

static void test_bfloat16(void **state)
{
    (void)state;
    assert_int_equal(narrow(1, TUTTI_BFLOAT16), 0x3f80);
    assert_int_equal(narrow(0x1.fep127, TUTTI_BFLOAT16), 0x7f7f);
    assert_int_equal(narrow(-0x1.ffp127, TUTTI_BFLOAT16), 0xff80);
    assert_int_equal(narrow(0x1p-133, TUTTI_BFLOAT16), 0x0001);
    assert_int_equal(narrow(1 + 0x1p-8, TUTTI_BFLOAT16), 0x3f80);
    assert_int_equal(narrow(1 + 0x3p-8, TUTTI_BFLOAT16), 0x3f82);
}

static void test_there_and_back(void **state)
{
    static const tutti_dtype_t types[] = { TUTTI_FLOAT16, TUTTI_BFLOAT16 };

    (void)state;
    for (int t = 0; t < 2; t++) {
        for (unsigned code = 0; code < 65536; code++) {
            uint16_t bits = (uint16_t)code, back;
            float f;
            double d;

            cast(&f, TUTTI_FLOAT32, &bits, types[t], 1, 1);
            cast(&d, TUTTI_FLOAT64, &bits, types[t], 1, 1);
            if (isnan(d)) {
                assert_true(isnan(f));
                continue;
            }
            assert_true((double)f == d);
            cast(&back, types[t], &f, TUTTI_FLOAT32, 1, 1);
            assert_int_equal(back, bits);
            cast(&back, types[t], &d, TUTTI_FLOAT64, 1, 1);
            assert_int_equal(back, bits);
        }
    }
}

static void test_scale_is_in_float32(void **state)
{
    float third = 1.0f / 3, f = 3;
    uint16_t one = 0x3c00;
    double d;

    (void)state;
    cast(&f, TUTTI_FLOAT32, &one, TUTTI_FLOAT16, 1, 1.0 / 3);
    assert_true(f == third);
    cast(&d, TUTTI_FLOAT64, &one, TUTTI_FLOAT16, 1, 1.0 / 3);
    assert_true(d == 1.0 / 3);
    /* If the product of two float32 is infinity in float32, it is infinity in float16 as well. */
    f = FLT_MAX;
    cast(&one, TUTTI_FLOAT16, &f, TUTTI_FLOAT32, 1, 2);
    assert_int_equal(one, 0x7c00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float16),
        cmocka_unit_test(test_bfloat16),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_scale_is_in_float32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
