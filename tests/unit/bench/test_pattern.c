/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of the bench programs: only correct data pass the check.
 */
#include "harness/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "float32", "float64", "int32",   "int64",
                                     "int8",    "uint8",   "bfloat16" };

enum {
    NAMES = sizeof(names) / sizeof(names[0]),
    COUNT = 1000
};

static void test_own_pattern(void **state)
{
    unsigned char data[COUNT * 8];

    (void)state;
    for (int n = 0; n < NAMES; n++) {
        const bench_type_t *type = bench_type_find(names[n]);

        bench_fill(data, type, 17, COUNT, 3); /* data of another rank or offset are wrong */
        assert_int_equal(bench_wrong(data, type, 17, COUNT, 3), 0);
        for (int rank = 0; rank < 40; rank++) {
            if (rank != 3)
                assert_true(bench_wrong(data, type, 17, COUNT, rank) > COUNT / 2);
        }
        assert_true(bench_wrong(data, type, 18, COUNT, 3) > COUNT / 2);
        data[COUNT / 2 * type->bytes + type->bytes - 1] ^= 0x40;
        assert_int_equal(bench_wrong(data, type, 17, COUNT, 3), 1);
        data[0] ^= 1;
        data[COUNT * type->bytes - 1] ^= 1;
        assert_int_equal(bench_wrong(data, type, 17, COUNT, 3), 3);
    }
}

static void test_sum(void **state)
{
    const bench_type_t *type = bench_type_find("float32");
    float sum[COUNT] = { 0 };
    float part[COUNT];

    (void)state;
    for (int rank = 0; rank < 5; rank++) {
        bench_fill(part, type, 100, COUNT, rank);
        for (int i = 0; i < COUNT; i++)
            sum[i] += part[i];
    }
    assert_int_equal(bench_wrong_sum(sum, type, 100, COUNT, 5), 0);
    assert_true(bench_wrong_sum(sum, type, 100, COUNT, 4) > COUNT / 2);
    sum[COUNT - 1] += 1.0f;
    assert_int_equal(bench_wrong_sum(sum, type, 100, COUNT, 5), 1);
}

/* Three numbers added in two orders give different bits. Without this, equal bits on all ranks
   would prove nothing. */
static void test_rough_sums_depend_on_order(void **state)
{
    const bench_type_t *type = bench_type_find("float32");
    float part[3][COUNT];
    int differ = 0;

    (void)state;
    for (int rank = 0; rank < 3; rank++)
        bench_fill_rough(part[rank], type, 0, COUNT, rank);
    for (int i = 0; i < COUNT; i++) {
        float left = (part[0][i] + part[1][i]) + part[2][i];
        float right = part[0][i] + (part[1][i] + part[2][i]);

        differ += left != right;
    }
    assert_in_range(differ, COUNT / 10, COUNT);
}

static void test_hash(void **state)
{
    unsigned char data[29];
    uint64_t hash;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 37);
    hash = bench_hash(data, sizeof(data));
    assert_true(bench_hash(data, sizeof(data)) == hash);
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(bench_hash(data, sizeof(data)) != hash);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_ptr_equal(bench_type_find("mpi_float"), bench_type_find("float32"));
    assert_ptr_equal(bench_type_find("mpi_char"), bench_type_find("int8"));
    assert_null(bench_type_find("char"));
    for (int n = 0; n < NAMES; n++)
        assert_string_equal(bench_type_find(names[n])->name, names[n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_pattern),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_rough_sums_depend_on_order),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
