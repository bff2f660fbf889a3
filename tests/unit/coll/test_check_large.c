/* SPDX-License-Identifier: BSD-3-Clause */
/* All algorithms for many ranks; test_check_largest continues. See provings.h. */
#include "unit/coll/provings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MOST 200

static uint32_t few;

static void test_sizes(void **state)
{
    (void)state;
    provings_sizes(few + 1, MOST);
    provings_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sizes) };

    few = provings_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
