/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aliases that change while another thread searches. At each access of a search to shared words,
 * this test changes the entry that is being read, as another thread would.
 */
#define TUTTI_INTERLEAVE
#include "mem/aliases.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum {
    POINTS = 40 /* more than the number of accesses in a search that is repeated once */
};

static tutti__aliases_t aliases;
static int points_left; /* until the change; negative: none is wanted */

static void change(void)
{
    points_left = -1;
    tutti__aliases_remove(&aliases, 1000);
    assert_true(tutti__aliases_add(&aliases, 1010, 50, 701010));
}

void tutti__interleave_point(void)
{
    if (points_left >= 0 && points_left-- == 0)
        change();
}

/* Search, and let the change happen at the n-th access. Returns whether it has happened. */
static int search_with_change(uintptr_t begin, int n)
{
    uint64_t offset = 0;
    int found, was;

    memset(&aliases, 0, sizeof(aliases));
    points_left = -1;
    assert_true(tutti__aliases_add(&aliases, 1000, 100, 501000));
    assert_true(tutti__aliases_add(&aliases, 5000, 100, 905000));
    points_left = n;
    found = tutti__aliases_find(&aliases, begin, 5, &offset);
    was = points_left < 0;
    points_left = -1;
    /* 1015 is in both aliases, 1070 in the old one only. */
    if (begin == 1015)
        assert_true(found && (offset == 501015 || (was && offset == 701015)));
    else if (begin == 1070)
        assert_true(found ? offset == 501070 : was);
    else
        assert_true(found && offset == 905005);
    return was;
}

static void test_changes(void **state)
{
    static const uintptr_t begins[] = { 1015, 1070, 5005 };

    (void)state;
    for (size_t b = 0; b < sizeof(begins) / sizeof(*begins); b++) {
        int n = 0;

        while (search_with_change(begins[b], n))
            n++;
        assert_in_range(n, 6, POINTS);
    }
}

/* The limits of an alias, and the largest numbers. */
static void test_limits(void **state)
{
    uint64_t offset;

    (void)state;
    memset(&aliases, 0, sizeof(aliases));
    assert_false(tutti__aliases_find(&aliases, 0, 0, &offset));
    assert_true(tutti__aliases_add(&aliases, 1000, 100, 7));
    assert_true(tutti__aliases_find(&aliases, 1000, 100, &offset));
    assert_int_equal(offset, 7);
    assert_true(tutti__aliases_find(&aliases, 1099, 1, &offset));
    assert_int_equal(offset, 106);
    assert_false(tutti__aliases_find(&aliases, 999, 1, &offset));
    assert_false(tutti__aliases_find(&aliases, 1099, 2, &offset));
    assert_false(tutti__aliases_find(&aliases, 1050, SIZE_MAX - 10, &offset));
    assert_false(tutti__aliases_find(&aliases, UINTPTR_MAX, 1, &offset));
    tutti__aliases_remove(&aliases, 1000);
    assert_false(tutti__aliases_find(&aliases, 1000, 100, &offset));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
