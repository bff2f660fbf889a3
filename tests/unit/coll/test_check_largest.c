/* SPDX-License-Identifier: BSD-3-Clause */
/* All algorithms for the largest numbers of ranks. This program does half of the proofs. See
   provings.h. */
#include "unit/coll/provings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LEAST 201

static void test_sizes(void **state)
{
    (void)state;
    provings_sizes(LEAST, PROVINGS_MOST);
    provings_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sizes) };

    provings_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
