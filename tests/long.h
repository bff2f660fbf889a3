/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quick and long forms of a test. `make check` runs each test in its quick form, which takes some
 * seconds; `make check-long` sets TUTTI_TEST_LONG=1, and each test runs in its long form.
 */
#ifndef TUTTI_TESTS_LONG_H
#define TUTTI_TESTS_LONG_H

#include <stdio.h>
#include <stdlib.h>

/*
 * 1 if the test must run in its long form. Otherwise prints in one line what the quick form leaves
 * out. A test calls this function once, before it starts ranks.
 */
static inline int test_is_long(const char *left_out)
{
    const char *text = getenv("TUTTI_TEST_LONG");

    if (text != NULL && *text != '\0')
        return 1;
    printf("quick form: without %s\n", left_out);
    fflush(stdout);
    return 0;
}

#endif
