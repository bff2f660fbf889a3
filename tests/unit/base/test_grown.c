/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structures that grow from version to version: the size of each version is accepted. A longer
 * structure is read only if its tail is 0, and other sizes are refused.
 */
#include "base/grown.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A structure that has grown twice. */
typedef struct {
    size_t size;
    uint64_t first;
    uint64_t second;
    uint64_t third[2];
} thing_t;

TUTTI__GROWN_VERSION(thing_t, first, 16);
TUTTI__GROWN_VERSION(thing_t, second, 24);
TUTTI__GROWN_TODAY(thing_t, 40);

static const size_t sizes[] = { 16, 24, 40 };
static const tutti__grown_t grown = TUTTI__GROWN("thing", "THING_INIT", sizes);

typedef struct {
    thing_t known;
    unsigned char more[4096];
} longer_t;

static longer_t a_thing(size_t size)
{
    longer_t user;

    memset(&user, 0, sizeof(user));
    user.known = (thing_t){ size, 1, 2, { 3, 4 } };
    return user;
}

static void test_every_version_is_read(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        longer_t user = a_thing(sizes[v]);
        thing_t thing;

        memset(&thing, 0xff, sizeof(thing));
        assert_int_equal(tutti__grown_read(&grown, &user, &thing), TUTTI_OK);
        assert_int_equal(thing.size, sizes[v]);
        assert_int_equal(thing.first, 1);
        assert_int_equal(thing.second, v >= 1 ? 2 : 0);
        assert_int_equal(thing.third[0], v >= 2 ? 3 : 0);
        assert_int_equal(thing.third[1], v >= 2 ? 4 : 0);
    }
}

static void check_refused(const longer_t *user, const char *words)
{
    thing_t thing = { 0, 9, 9, { 9, 9 } };

    assert_int_equal(tutti__grown_read(&grown, user, &thing), TUTTI_ERR_ABI);
    if (strstr(tutti_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", tutti_last_error(), words);
    assert_int_equal(thing.first, 9);
}

static void test_other_sizes_are_refused(void **state)
{
    (void)state;
    for (size_t size = 0; size < 40; size++) {
        longer_t user = a_thing(size);
        char words[128];

        if (size == 16 || size == 24)
            continue;
        snprintf(words, sizeof(words), "thing->size is %zu, %s", size,
                 size < 16 ? "but the first version had 16; initialise it with THING_INIT"
                           : "which no version had");
        check_refused(&user, words);
    }
    for (int i = 0; i < 2; i++) {
        longer_t user = a_thing(i == 0 ? 4097 : SIZE_MAX);

        check_refused(&user, "which no version had");
    }
}

static void test_longer_ones_end_with_0(void **state)
{
    (void)state;
    for (size_t size = 41; size <= 4096; size += 5) {
        longer_t user = a_thing(size);
        thing_t thing;

        /* A byte behind the structure is not 0. */
        user.more[size - 40] = 1;
        assert_int_equal(tutti__grown_read(&grown, &user, &thing), TUTTI_OK);
        assert_int_equal(thing.third[1], 4);
        user.more[size - 41] = 1;
        check_refused(&user, "beyond the 40 bytes");
        user.more[size - 41] = 0;
        user.more[0] = 1;
        check_refused(&user, "is not 0");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_version_is_read),
        cmocka_unit_test(test_other_sizes_are_refused),
        cmocka_unit_test(test_longer_ones_end_with_0),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
