/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Algorithms compare the ranks' calls before they change recvbuf (tutti__compared_t in
 * sched/check.h). test_check_all and the following tests prove this for all algorithms. Here the
 * proof must find planted bugs.
 */
#include "unit/coll/plant.h"

#include "coll/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char why[1200];

static void refused(const set_t *set, const char *words)
{
    assert_int_equal(set_check(set, 1, 2, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    if (strstr(why, words) == NULL)
        fail_msg("%s: expected \"%s\", got: %s", set->algorithm->name, words, why);
}

/* A copy to OUT before rank r's first node operation. */
static void plant_copy(set_t *set, uint32_t r)
{
    static const tutti__op_t copy = {
        .kind = TUTTI__COPY, .sbuf = TUTTI__OUT, .dbuf = TUTTI__OUT, .nblk = 1, .nparts = 1
    };
    tutti__sched_t *right = set->scheds[r];
    char words[200];

    set->scheds[r] = sched_clone(right);
    sched_insert(set->scheds[r], 0, 0, copy);
    sched_settle(set->scheds[r]);
    snprintf(
        words, sizeof(words),
        "rank %u stream 0 operation 0 (COPY OUT[0] -> OUT[0]), chunk 0: writes OUT[0] before a "
        "node operation",
        r);
    refused(set, words);
    tutti__sched_free(set->scheds[r]);
    set->scheds[r] = right;
}

/* Every algorithm without messages, and every rank. */
static void test_on_host(void **state)
{
    shape_t *shape = shape_even(1, 4);
    unsigned planted = 0;

    (void)state;
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        set_t set = { .algorithm = a, .shape = shape };

        if (a->refuses != NULL && a->refuses(&shape->shape) != NULL)
            continue;
        for (set.in_place = 0; set.in_place < 2; set.in_place++) {
            set_build(&set);
            for (uint32_t r = 0; r < 4; r++)
                set.scheds[r]->on_device = 0; /* device memory has stricter rules */
            for (uint32_t r = 0; r < 4 && set.scheds[0]->nchans == 0; r++, planted++)
                plant_copy(&set, r);
            set_free(&set);
        }
    }
    assert_true(planted > 40);
    shape_free(shape);
}

static tutti__compared_t compared(const char *name, shape_t *shape)
{
    tutti__coll_args_t args = { .root = 0 };
    tutti__check_t check = tutti__coll_check(tutti__algorithm_find(TUTTI__ALLREDUCE, name),
                                             &shape->shape, &args, NULL);

    shape_free(shape);
    return check.compared;
}

/* Frames: only the algorithm that carries them. */
static void test_in_frames(void **state)
{
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .shape = shape };

    (void)state;
    assert_int_equal(compared("leaders", shape_even(2, 2)), TUTTI__COMPARED_IN_FRAMES);
    assert_int_equal(compared("leaders", shape_even(1, 4)), TUTTI__COMPARED_ON_HOST);
    assert_int_equal(compared("ring", shape_even(2, 2)), TUTTI__COMPARED_BEFORE);
    set_build(&set);
    assert_int_equal(set_check(&set, 1, 2, why, sizeof(why)), TUTTI_OK);
    set.algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "leaders");
    refused(&set, "so it cannot move a frame");
    set_free(&set);
    shape_free(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_host),
        cmocka_unit_test(test_in_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
