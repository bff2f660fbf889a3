/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges of an arena: taken ranges never overlap, and free ranges are joined again.
 */
#include "mem/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void give(tutti__ranges_t *ranges, uint64_t offset, uint64_t bytes)
{
    assert_int_equal(tutti__ranges_leave(ranges, offset), bytes);
    tutti__ranges_give(ranges, offset);
}

static void test_first_fit_and_joining(void **state)
{
    tutti__ranges_t *ranges = tutti__ranges_create(100);
    uint64_t a, b, c, d;

    (void)state;
    assert_true(tutti__ranges_take(ranges, 10, &a));
    assert_true(tutti__ranges_take(ranges, 20, &b));
    assert_true(tutti__ranges_take(ranges, 30, &c));
    assert_int_equal(a, 0);
    assert_int_equal(b, 10);
    assert_int_equal(c, 30);
    assert_false(tutti__ranges_take(ranges, 41, &d));
    assert_int_equal(tutti__ranges_taken(ranges), 60);

    /* A hole is used again, and the rest of it stays free. */
    give(ranges, b, 20);
    assert_true(tutti__ranges_take(ranges, 5, &b));
    assert_int_equal(b, 10);
    assert_true(tutti__ranges_take(ranges, 15, &d));
    assert_int_equal(d, 15);

    /* Free neighbours on both sides become one. */
    give(ranges, b, 5);
    give(ranges, c, 30);
    give(ranges, d, 15);
    assert_true(tutti__ranges_take(ranges, 90, &b));
    assert_int_equal(b, 10);
    give(ranges, a, 10);
    give(ranges, b, 90);
    assert_int_equal(tutti__ranges_taken(ranges), 0);
    assert_true(tutti__ranges_take(ranges, 100, &a));
    tutti__ranges_destroy(ranges);
    tutti__ranges_destroy(NULL);
}

static void test_aligned(void **state)
{
    tutti__ranges_t *ranges = tutti__ranges_create(100);
    uint64_t a, b, c, d;

    (void)state;
    assert_true(tutti__ranges_take(ranges, 10, &a));
    assert_true(tutti__ranges_take_aligned(ranges, 16, 0, 16, &b));
    assert_int_equal(b, 16);
    assert_true(tutti__ranges_take_aligned(ranges, 10, 40, 16, &c));
    assert_int_equal(c, 48);
    assert_int_equal(tutti__ranges_taken(ranges), 36);

    /* The skipped parts are free: [10, 16), [32, 48), [58, 100). */
    assert_true(tutti__ranges_take(ranges, 6, &d));
    assert_int_equal(d, 10);
    give(ranges, d, 6);
    assert_true(tutti__ranges_take_aligned(ranges, 16, 0, 16, &d));
    assert_int_equal(d, 32);
    give(ranges, d, 16);

    /* From 64 on no free range is long enough. A failure does not change the list. */
    assert_false(tutti__ranges_take_aligned(ranges, 37, 0, 16, &d));
    assert_false(tutti__ranges_take_aligned(ranges, 16, 96, 16, &d));
    assert_false(tutti__ranges_take_aligned(ranges, 1, 200, 16, &d));
    give(ranges, a, 10);
    give(ranges, b, 16);
    give(ranges, c, 10);
    assert_true(tutti__ranges_take(ranges, 100, &a));
    tutti__ranges_destroy(ranges);
}

static void test_only_taken_ranges_leave(void **state)
{
    tutti__ranges_t *ranges = tutti__ranges_create(100);
    uint64_t a, b;

    (void)state;
    assert_int_equal(tutti__ranges_leave(ranges, 0), 0); /* free */
    assert_true(tutti__ranges_take(ranges, 10, &a));
    assert_int_equal(tutti__ranges_leave(ranges, 5), 0); /* not a beginning */
    assert_int_equal(tutti__ranges_leave(ranges, 1000), 0);
    assert_int_equal(tutti__ranges_leave(ranges, a), 10);
    assert_int_equal(tutti__ranges_leave(ranges, a), 0); /* already leaving */
    assert_true(tutti__ranges_take(ranges, 10, &b));     /* not before give */
    assert_int_equal(b, 10);
    tutti__ranges_give(ranges, a);
    tutti__ranges_destroy(ranges);
}

#define SPAN 4096
#define SLOTS 64

static void test_random_takes_never_overlap(void **state)
{
    static unsigned char owner[SPAN]; /* 0: free, otherwise slot + 1 */
    struct {
        uint64_t offset, bytes;
    } slots[SLOTS] = { { 0, 0 } };
    tutti__ranges_t *ranges = tutti__ranges_create(SPAN);
    uint64_t taken = 0;
    unsigned seed = 1;

    (void)state;
    for (int step = 0; step < 20000; step++) {
        int i = rand_r(&seed) % SLOTS;
        uint64_t offset, bytes = 1 + (uint64_t)rand_r(&seed) % 200;
        uint64_t align = (uint64_t)1 << rand_r(&seed) % 8, from = (uint64_t)rand_r(&seed) % SPAN;

        if (slots[i].bytes > 0) {
            for (uint64_t k = 0; k < slots[i].bytes; k++) {
                assert_int_equal(owner[slots[i].offset + k], i + 1);
                owner[slots[i].offset + k] = 0;
            }
            give(ranges, slots[i].offset, slots[i].bytes);
            taken -= slots[i].bytes;
            slots[i].bytes = 0;
        } else if (tutti__ranges_take_aligned(ranges, bytes, from, align, &offset)) {
            assert_true(offset + bytes <= SPAN);
            assert_true(offset >= from);
            assert_int_equal(offset % align, 0);
            for (uint64_t k = 0; k < bytes; k++) {
                assert_int_equal(owner[offset + k], 0);
                owner[offset + k] = (unsigned char)(i + 1);
            }
            slots[i].offset = offset;
            slots[i].bytes = bytes;
            taken += bytes;
        }
        assert_int_equal(tutti__ranges_taken(ranges), taken);
    }
    tutti__ranges_destroy(ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_fit_and_joining),
        cmocka_unit_test(test_aligned),
        cmocka_unit_test(test_only_taken_ranges_leave),
        cmocka_unit_test(test_random_takes_never_overlap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
