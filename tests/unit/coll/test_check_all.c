/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All algorithms for few ranks, in all kinds of placements; and TUTTI_CHECK. See provings.h.
 */
#include "unit/coll/provings.h"

#include "coll/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint32_t few;

static void test_sizes(void **state)
{
    (void)state;
    provings_sizes(1, few);
}

static void test_splits(void **state)
{
    static const uint32_t splits[][6] = {
        { 1, 1 },       { 2, 2 },          { 3, 2 },          { 2, 3 },
        { 4, 1 },       { 1, 4 },          { 5, 3, 1 },       { 1, 3, 5 },
        { 2, 2, 2 },    { 7, 1, 1, 1 },    { 4, 4, 4, 4, 4 }, { 3, 3, 3, 3, 3, 3 },
        { 8, 8, 7 },    { 1, 2, 3, 4, 5 }, { 6, 5 },          { 16, 16 },
        { 2, 9, 2, 9 }, { 1, 1, 1, 1, 2 }, { 12, 1 },         { 5, 5, 5 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
        uint32_t nhosts = 0;

        while (nhosts < 6 && splits[i][nhosts] != 0)
            nhosts++;
        for (uint32_t group = 0; group < 4; group++) {
            if (!provings_quick() || group == i % 4)
                provings_shape(shape_grouped(shape_split(nhosts, splits[i]), group), 0);
        }
    }
    for (uint32_t seed = 0; seed < 200; seed += provings_whole() ? 1 : provings_quick() ? 53 : 14)
        provings_shape(shape_grouped(shape_random(2 + seed % 20, 7777 + seed), seed % 4), 0);
}

/* The work of TUTTI_CHECK=1. */
static void test_prove(void **state)
{
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    tutti__coll_args_t args = { .root = 4 };
    tutti__algorithm_t liar = { .name = "liar", .collective = TUTTI__ALLGATHER };

    (void)state;
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->refuses != NULL && a->refuses(&shape->shape) != NULL)
            continue;
        args.sub = a->subs != NULL ? a->subs[0] : NULL;
        for (uint32_t credits = 1; credits <= 4; credits++) {
            if (tutti__coll_prove(a, &shape->shape, &args, credits) != TUTTI_OK)
                fail_msg("%s", tutti_last_error());
        }
    }
    args.sub = NULL;
    liar.build = tutti__algorithm_find(TUTTI__ALLREDUCE, "ring")->build;
    assert_int_equal(tutti__coll_prove(&liar, &shape->shape, &args, 4), TUTTI_ERR_INTERNAL);
    if (strstr(tutti_last_error(), "TUTTI_CHECK: allgather:liar (radix 0, root 4) of 5 ranks, with "
                                   "4 credits and 1 trip: rank ") == NULL)
        fail_msg("%s", tutti_last_error());
    shape_free(shape);
}

static void test_report(void **state)
{
    (void)state;
    provings_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_prove),
        cmocka_unit_test(test_report),
    };

    few = provings_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
