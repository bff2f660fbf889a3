/* SPDX-License-Identifier: BSD-3-Clause */
/* TUTTI_TEST_ISA, as tutti_init reads it. */
#include "base/log.h"
#include "reduce/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A world of one. */
static int alone(void **state)
{
    (void)state;
    return setenv("TUTTI_BOOT", "self", 1) || setenv("TUTTI_LOG", "none", 1);
}

static void test_forced(void **state)
{
    static const char *const isas[] = { "scalar", "sse2", "neon", "avx2", "avx512" };

    (void)state;
    for (size_t i = 0; i < sizeof(isas) / sizeof(*isas); i++) {
        int here = tutti__reduce_force(isas[i]);

        tutti__reduce_force("auto");
        setenv("TUTTI_TEST_ISA", isas[i], 1);
        if (!here) {
            assert_int_equal(tutti_init(NULL), TUTTI_ERR_UNSUPPORTED);
            assert_non_null(strstr(tutti_last_error(), isas[i]));
            assert_null(tutti_world());
            continue;
        }
        assert_int_equal(tutti_init(NULL), TUTTI_OK);
        assert_string_equal(tutti__reduce_isa(), isas[i]);
        assert_int_equal(tutti_finalize(), TUTTI_OK);
    }
}

static void test_not_forced(void **state)
{
    char best[16];

    (void)state;
    tutti__reduce_force("auto");
    strncpy(best, tutti__reduce_isa(), sizeof(best) - 1);
    best[sizeof(best) - 1] = '\0';
    tutti__reduce_force("scalar");
    setenv("TUTTI_TEST_ISA", "", 1);
    assert_int_equal(tutti_init(NULL), TUTTI_OK);
    assert_string_equal(tutti__reduce_isa(), best);
    assert_int_equal(tutti_finalize(), TUTTI_OK);
}

static void test_nonsense(void **state)
{
    (void)state;
    setenv("TUTTI_TEST_ISA", "mmx", 1);
    assert_int_equal(tutti_init(NULL), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_TEST_ISA=mmx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_not_forced),
        cmocka_unit_test(test_nonsense),
    };

    return cmocka_run_group_tests(tests, alone, NULL);
}
