/* SPDX-License-Identifier: BSD-3-Clause */
/* User-defined operations: their numbers, and their folds from left to right. */
#include "base/names.h"
#include "reduce/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SRCS 17
#define MAX_COUNT 5000

/* A function whose result depends on the order and on the grouping of operands. */
static int32_t mixed(int32_t left, int32_t right)
{
    return (int32_t)((uint32_t)left * 31u + ((uint32_t)right ^ 0x55u));
}

static void mix(void *dst, const void *left, const void *right, size_t count, tutti_dtype_t dtype,
                void *context)
{
    const int32_t *a = left, *b = right;
    int32_t *to = dst;

    assert_int_equal(dtype, TUTTI_INT32);
    *(size_t *)context += count;
    for (size_t i = 0; i < count; i++)
        to[i] = mixed(a[i], b[i]);
}

static tutti_op_t create(tutti_op_function_t function, void *context, int commutative)
{
    tutti_op_t op;

    assert_int_equal(tutti_op_create(function, context, commutative, &op), TUTTI_OK);
    return op;
}

static void test_numbers(void **state)
{
    static tutti_op_t ops[TUTTI__USER_OPS];
    tutti_op_t more = TUTTI_SUM;
    size_t called = 0;

    (void)state;
    assert_null(tutti__user_op_find((tutti_op_t)TUTTI__USER_OP_FIRST));
    for (int i = 0; i < TUTTI__USER_OPS; i++) {
        ops[i] = create(mix, &called, i % 2);
        assert_int_equal(ops[i], TUTTI__USER_OP_FIRST + i);
    }
    assert_int_equal(tutti_op_create(mix, NULL, 1, &more), TUTTI_ERR_NO_MEMORY);
    assert_int_equal(more, TUTTI_SUM);
    for (int i = 0; i < TUTTI__USER_OPS; i++)
        assert_int_equal(tutti__user_op_commutes(tutti__user_op_find(ops[i])), i % 2);
    assert_int_equal(tutti_op_free(ops[700]), TUTTI_OK);
    assert_int_equal(tutti_op_free(ops[3]), TUTTI_OK);
    assert_int_equal(tutti_op_free(ops[3]), TUTTI_ERR_INVALID_ARGUMENT);
    assert_null(tutti__user_op_find(ops[3]));
    assert_int_equal(create(mix, NULL, 5), ops[3]);
    assert_int_equal(tutti__user_op_commutes(tutti__user_op_find(ops[3])), 1);
    assert_int_equal(create(mix, NULL, 0), ops[700]);
    for (int i = 0; i < TUTTI__USER_OPS; i++)
        assert_int_equal(tutti_op_free(ops[i]), TUTTI_OK);
}

static void test_wrong_arguments(void **state)
{
    static const int none[] = { -1,
                                0,
                                TUTTI_SUM,
                                TUTTI_MAXLOC,
                                TUTTI__USER_OP_FIRST,
                                TUTTI__USER_OP_FIRST + TUTTI__USER_OPS,
                                0x7fffffff };
    tutti_op_t op;

    (void)state;
    assert_int_equal(tutti_op_create(NULL, NULL, 1, &op), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_op_create(mix, NULL, 1, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        assert_int_equal(tutti_op_free((tutti_op_t)none[i]), TUTTI_ERR_INVALID_ARGUMENT);
        assert_null(tutti__user_op_find((tutti_op_t)none[i]));
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(tutti__op_name(TUTTI_MINLOC), "minloc");
    assert_string_equal(tutti__op_name(TUTTI_LXOR), "lxor");
    assert_string_equal(tutti__op_name((tutti_op_t)14), "unknown operation");
    assert_string_equal(tutti__op_name((tutti_op_t)-1), "unknown operation");
    assert_string_equal(tutti__op_name((tutti_op_t)63), "unknown operation");
    assert_string_equal(tutti__op_name((tutti_op_t)67), "user operation 3");
    assert_string_equal(tutti__op_name((tutti_op_t)(64 + 1023)), "user operation 1023");
    assert_string_equal(tutti__op_name((tutti_op_t)(64 + 1024)), "unknown operation");
    assert_string_equal(tutti__dtype_name(TUTTI_FLOAT8_E4M3), "float8_e4m3");
    assert_string_equal(tutti__dtype_name(TUTTI_INT64_INT64), "int64_int64");
    assert_string_equal(tutti__dtype_name((tutti_dtype_t)20), "unknown type");
}

static void test_find(void **state)
{
    size_t called = 0;
    tutti_op_t op = create(mix, &called, 0);
    tutti__reducer_t reducer;

    (void)state;
    for (tutti_dtype_t dtype = TUTTI_INT8; dtype <= TUTTI_INT64_INT64; dtype++) {
        assert_null(tutti__reduce_find(dtype, op));
        assert_true(tutti__reducer_find(dtype, op, &reducer));
        assert_null(reducer.fold);
        assert_ptr_equal(reducer.user, tutti__user_op_find(op));
        assert_int_equal(reducer.dtype, dtype);
        tutti__reduce(&reducer, NULL, (const void *[]){ NULL, NULL }, 2, 0, 0);
    }
    assert_false(tutti__reducer_find((tutti_dtype_t)99, op, &reducer));
    assert_int_equal(called, 0);
    assert_int_equal(tutti_op_free(op), TUTTI_OK);
    assert_false(tutti__reducer_find(TUTTI_INT32, op, &reducer));
}

static int32_t arrays[MAX_SRCS + 1][MAX_COUNT];

/* dst is the source with the number `alias`, or a separate array if alias is n. With `twice`, the
   last source is also this array. */
static void fold(tutti_op_t op, size_t n, size_t count, size_t alias, int twice)
{
    static int32_t want[MAX_COUNT];
    const void *srcs[MAX_SRCS];
    tutti__reducer_t reducer;

    for (size_t s = 0; s <= n; s++) {
        if (s < n)
            srcs[s] = arrays[s];
        for (size_t i = 0; i < MAX_COUNT; i++)
            arrays[s][i] = (int32_t)(s * 1000003 + i * 17);
    }
    if (twice && alias < n)
        srcs[n - 1] = arrays[alias];
    for (size_t i = 0; i < MAX_COUNT; i++) {
        want[i] = ((const int32_t *)srcs[0])[i];
        for (size_t s = 1; s < n; s++)
            want[i] = mixed(want[i], ((const int32_t *)srcs[s])[i]);
        if (i >= count)
            want[i] = arrays[alias][i];
    }
    assert_true(tutti__reducer_find(TUTTI_INT32, op, &reducer));
    tutti__reduce(&reducer, arrays[alias], srcs, n, count, 7);
    assert_memory_equal(arrays[alias], want, sizeof(want));
}

static void test_fold(void **state)
{
    static const size_t counts[] = { 0, 1, 7, 1023, 1024, 1025, 4097, MAX_COUNT };
    size_t called = 0;
    tutti_op_t op = create(mix, &called, 0);

    (void)state;
    for (size_t n = 1; n <= MAX_SRCS; n++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
            for (size_t alias = 0; alias <= n; alias++) {
                size_t before = called;

                fold(op, n, counts[c], alias, 0);
                assert_int_equal(called - before, (n - 1) * counts[c]);
                fold(op, n, counts[c], alias, 1);
            }
    assert_int_equal(tutti_op_free(op), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_names),   cmocka_unit_test(test_find),
        cmocka_unit_test(test_fold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
