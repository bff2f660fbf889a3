/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flat schedules: one node operation of all ranks, on any hosts. The checker proves them as
 * operations of all ranks, not of a host's ranks. Also tests the errors of the checker and of the
 * language's rules, and the calls to which TUTTI_ALGORITHM applies flat schedules.
 */
#include "unit/coll/shapes.h"

#include "base/status.h"
#include "coll/cache.h"
#include "coll/prove.h"
#include "sched/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static set_t flat_on(shape_t *shape)
{
    shape->shape.device_scope = TUTTI__SCOPE_ALL;
    return (set_t){ .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "nccl-flat"),
                    .shape = shape,
                    .on_device = 1 };
}

static tutti_status_t judge(const set_t *set, char *why, size_t why_bytes)
{
    tutti__coll_args_t args = { .on_device = 1 };
    tutti__check_t check =
        tutti__coll_check(set->algorithm, &set->shape->shape, &args, set->scheds);

    check.in_place = set->in_place;
    check.ordered = check.fixed = 1;
    return tutti__sched_check(&check, why, why_bytes);
}

static void prove(shape_t *shape)
{
    set_t set = flat_on(shape);
    char why[1200];

    for (set.in_place = 0; set.in_place < 2; set.in_place++) {
        set_build(&set);
        for (uint32_t r = 0; r < shape->shape.size; r++) {
            assert_int_equal(set.scheds[r]->scope == TUTTI__SCOPE_ALL, shape->shape.nhosts > 1);
            assert_true(set.scheds[r]->on_device);
        }
        if (judge(&set, why, sizeof(why)) != TUTTI_OK)
            fail_msg("%s: %s", shape->name, why);
        set_free(&set);
    }
    shape_free(shape);
}

static void test_proofs(void **state)
{
    (void)state;
    prove(shape_even(1, 4));
    prove(shape_split(2, (uint32_t[]){ 3, 2 }));
    prove(shape_split(3, (uint32_t[]){ 2, 1, 2 }));
    for (uint32_t n = 2; n <= 40; n++) {
        prove(shape_even(n, 1));
        prove(shape_random(n, n));
    }
}

static void refused(set_t *set, const char *words)
{
    char why[1200] = "";

    assert_int_equal(judge(set, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    if (strstr(why, words) == NULL)
        fail_msg("\"%s\" is not about \"%s\"", why, words);
}

static void test_bugs(void **state)
{
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    set_t set = flat_on(shape);
    tutti__op_t twice[2];
    tutti__op_t *ops;

    (void)state;
    set_build(&set);
    /* With this scope the operation adds only the ranks of a host, so the result is not the sum of
       all ranks. */
    for (uint32_t r = 0; r < shape->shape.size; r++)
        set.scheds[r]->scope = TUTTI__SCOPE_HOST;
    refused(&set, "rank 0");
    for (uint32_t r = 0; r < shape->shape.size; r++)
        set.scheds[r]->scope = r != 3 ? TUTTI__SCOPE_ALL : TUTTI__SCOPE_HOST;
    refused(&set, "rank 3 has node operations of scope host, but rank 0 of scope all");
    set.scheds[3]->scope = TUTTI__SCOPE_ALL;
    for (uint32_t r = 0; r < shape->shape.size; r++)
        set.scheds[r]->on_device = 0;
    refused(&set, "rank 0 has node operations of scope all, but a schedule for host memory");
    for (uint32_t r = 0; r < shape->shape.size; r++)
        set.scheds[r]->on_device = 1;
    /* A schedule of scope all may have one operation only. */
    ops = set.scheds[2]->ops;
    twice[0] = twice[1] = ops[0];
    set.scheds[2]->ops = twice;
    set.scheds[2]->nops = 2;
    for (int s = 1; s <= TUTTI__SCHED_STREAMS; s++)
        set.scheds[2]->first[s] = 2;
    refused(&set, "has scope all, so one node operation");
    set.scheds[2]->ops = ops;
    set_free(&set);
    shape_free(shape);
}

static const char *chosen(const shape_t *shape, const char *override, size_t bytes)
{
    tutti__want_t want = { TUTTI__ALLREDUCE, bytes, 0, 0 };
    tutti__choice_t choice;
    const char *why;

    if (tutti__algorithm_choose(&want, &shape->shape, override, TUTTI__ANY_ASSOCIATION, &choice,
                                &why) != TUTTI_OK)
        return tutti_last_error();
    return choice.algorithm->name;
}

/* TUTTI_ALGORITHM=nccl-flat applies to calls that nccl-flat can serve. For other calls the table
   decides, and no call is refused. */
static void test_choice(void **state)
{
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    static const char text[] = "allreduce:1k-:nccl-flat";

    (void)state;
    assert_true(tutti__override_is_nccl_flat(text));
    assert_false(tutti__override_is_nccl_flat("allreduce:ring;reduce:chain"));
    assert_false(tutti__override_is_nccl_flat("no such"));
    assert_false(tutti__override_is_nccl_flat(NULL));
    assert_string_equal(chosen(shape, text, 4096), "hierarchical");
    assert_int_equal(tutti__algorithm_check_override(text, &shape->shape), TUTTI_OK);
    shape->shape.device_scope = TUTTI__SCOPE_ALL;
    assert_string_equal(chosen(shape, text, 4096), "nccl-flat");
    assert_string_equal(chosen(shape, text, 100), "hierarchical");
    assert_string_equal(chosen(shape, "", 4096), "hierarchical");
    shape_free(shape);
}

/* A job has two caches: one for host memory, and one for device memory. */
static void test_caches(void **state)
{
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    tutti__want_t want = { TUTTI__ALLREDUCE, 4096, 0, 0 };

    (void)state;
    for (int all = 0; all < 2; all++) {
        const tutti__sched_t *sched;
        tutti__cache_t cache;

        tutti__cache_init(&cache, &shape->shape, 1, "allreduce:nccl-flat", TUTTI__ANY_ASSOCIATION,
                          4);
        cache.on_device = all;
        cache.device_scope = all ? TUTTI__SCOPE_ALL : TUTTI__SCOPE_HOST;
        assert_int_equal(tutti__cache_get(&cache, &want, 0, &sched), TUTTI_OK);
        assert_string_equal(sched->name, all ? "nccl-flat" : "hierarchical");
        assert_int_equal(sched->scope == TUTTI__SCOPE_ALL, all);
        tutti__cache_fini(&cache);
    }
    shape_free(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_bugs),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_caches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
