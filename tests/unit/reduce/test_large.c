/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More than 2^31 elements go through each kind of loop: sums, functions of two blocks, float8
 * through float32. Skipped if 12 GiB of memory are not available.
 */
#include "base/compiler.h"
#include "long.h"
#include "mem/avail.h"
#include "reduce/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT ((size_t)1 << 31)
#define ALL (COUNT + 5)

static unsigned char *a, *b;

/* Positions of elements that would be wrong if a count were an int. */
static const size_t places[] = { 0, COUNT - 2, COUNT - 1, COUNT, COUNT + 1, ALL - 1 };

/* All elements of a are x, and all of b are y, so the results are z. At `places`, where the
   elements differ, the results are w. */
static void check(tutti_dtype_t dtype, tutti_op_t op, int x, int y, int z, int w)
{
    const void *both[] = { a, b };

    memset(a, x, ALL);
    memset(b, y, ALL);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        b[places[i]] = (unsigned char)x;
    tutti__reduce_find(dtype, op)(a, both, 2, ALL, 0);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        assert_int_equal(a[places[i]], w);
        a[places[i]] = (unsigned char)z;
    }
    assert_int_equal(a[0], z);
    assert_int_equal(memcmp(a, a + 1, ALL - 1), 0);
}

static void test_sum(void **state)
{
    (void)state;
    check(TUTTI_UINT8, TUTTI_SUM, 2, 5, 7, 4);
}

static int whole; /* 0: the quick form */

/* With sanitizers, which check every access, a test takes a minute. So they run one test only, as
   does the quick form. */
static void skip_if_slow(void)
{
#ifdef TUTTI__SANITIZED
    skip();
#endif
    if (!whole)
        skip();
}

static void test_pairs(void **state)
{
    (void)state;
    skip_if_slow();
    check(TUTTI_INT8, TUTTI_MAX, 2, 5, 5, 2);
}

static void test_float8(void **state)
{
    (void)state;
    skip_if_slow();
    check(TUTTI_FLOAT8_E4M3, TUTTI_SUM, 0x38, 0x40, 0x44, 0x40); /* 1 + 2, 1 + 1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_float8),
    };
    const char *who;
    int failed;

    if (tutti__mem_available("", &who) < (uint64_t)12 << 30)
        return 77;
    a = malloc(ALL);
    b = malloc(ALL);
    if (a == NULL || b == NULL)
        return 77;
    whole = test_is_long("int8 and float8");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(a);
    free(b);
    return failed;
}
