/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules for device memory: the algorithms that have such schedules, proofs of all these
 * schedules on small shapes, and detection of a STAGE that is too short.
 */
#include "unit/coll/shapes.h"

#include "coll/cache.h"
#include "coll/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 12

static unsigned long proofs;

static set_t allreduce(const shape_t *shape, const char *algorithm)
{
    return (set_t){ .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, algorithm),
                    .shape = shape,
                    .on_device = 1 };
}

static void prove(set_t *set)
{
    static const uint32_t trips[] = { 1, 2, 4, 5, 9 };
    char why[1200];

    set_build(set);
    for (uint32_t r = 0; r < set->shape->shape.size; r++)
        assert_true(set->scheds[r]->on_device);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t credits = (1u << i / 5) / 2; /* 0, 1, 2, 4 */

        proofs++;
        if (set_check(set, credits, trips[i % 5], why, sizeof(why)) != TUTTI_OK)
            fail_msg("hierarchical/%s on %s, in place %d, credits %u, trips %u: %s", set->sub,
                     set->shape->name, set->in_place, credits, trips[i % 5], why);
    }
    set_free(set);
}

static void prove_shape(shape_t *shape)
{
    set_t set = allreduce(shape, "hierarchical");

    for (int i = 0; set.algorithm->subs[i] != NULL; i++) {
        set.sub = set.algorithm->subs[i];
        for (set.in_place = 0; set.in_place < 2; set.in_place++)
            prove(&set);
    }
    shape_free(shape);
}

/* Prove all distributions of `left` further ranks to hosts of at most `most` ranks. */
static void prove_splits(uint32_t *locals, uint32_t nhosts, uint32_t left, uint32_t most)
{
    if (left == 0 && nhosts > 0)
        prove_shape(shape_split(nhosts, locals));
    for (uint32_t n = 1; n <= most && n <= left; n++) {
        locals[nhosts] = n;
        prove_splits(locals, nhosts + 1, left - n, n);
    }
}

static void test_proofs(void **state)
{
    uint32_t locals[MOST_RANKS];

    (void)state;
    for (uint32_t size = 1; size <= MOST_RANKS; size++)
        prove_splits(locals, 0, size, size);
    for (uint32_t seed = 0; seed < 40; seed++)
        prove_shape(shape_random(2 + seed % (MOST_RANKS - 1), 31 + seed));
    print_message("%lu proofs\n", proofs);
}

/* The checker's result for an allreduce that `spoil` has changed. */
static void find(shape_t *shape, void (*spoil)(tutti__sched_t *sched), const char *what)
{
    set_t set = allreduce(shape, "hierarchical");
    char why[1200];

    set.sub = "ring";
    set_build(&set);
    for (uint32_t r = 0; r < shape->shape.size; r++)
        spoil(set.scheds[r]);
    assert_int_equal(set_check(&set, 1, 9, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    if (strstr(why, what) == NULL)
        fail_msg("%s: \"%s\", not \"%s\"", shape->name, why, what);
    set_free(&set);
    shape_free(shape);
}

static void shorten(tutti__sched_t *sched)
{
    sched->stage_trips = 2;
}

/* With one rank per host only these waits delay the copies to STAGE. */
static void forget_waits(tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nops; i++)
        if (sched->ops[i].kind == TUTTI__WAIT && sched->ops[i].shift > 0)
            sched->ops[i].shift++, sched->ops[i - 1].arg++;
}

static void odd_stage(tutti__sched_t *sched)
{
    sched->stage_trips = 3;
}

static void one_block_less(tutti__sched_t *sched)
{
    sched->stage_blocks--;
}

static void one_is_for_hosts(tutti__sched_t *sched)
{
    sched->on_device = sched->rank != 1;
}

static void test_short_stage(void **state)
{
    static const uint32_t splits[][2] = { { 2, 2 }, { 3, 2 }, { 1, 1 } };

    (void)state;
    for (int i = 0; i < 3; i++) {
        find(shape_split(2, splits[i]), shorten, "STAGE[");
        find(shape_split(2, splits[i]), odd_stage, "that makes no sense");
        find(shape_split(2, splits[i]), one_block_less, "STAGE has blocks");
        find(shape_split(2, splits[i]), one_is_for_hosts,
             "rank 1 has a schedule for host memory, but rank 0 has one for device memory");
    }
    find(shape_even(3, 1), forget_waits, "STAGE[");
}

/* TUTTI_CHECK also detects the forgotten waits, even if a channel has one slot only. */
static void test_proved_when_built(void **state)
{
    shape_t *shape = shape_even(3, 1);
    set_t set = allreduce(shape, "hierarchical");
    tutti__coll_args_t args = { .sub = "ring", .on_device = 1 };

    (void)state;
    set.sub = "ring";
    set_build(&set);
    assert_int_equal(tutti__coll_prove_scheds(set.algorithm, &shape->shape, &args, set.scheds, 1),
                     TUTTI_OK);
    for (uint32_t r = 0; r < shape->shape.size; r++)
        forget_waits(set.scheds[r]);
    assert_int_equal(tutti__coll_prove_scheds(set.algorithm, &shape->shape, &args, set.scheds, 1),
                     TUTTI_ERR_INTERNAL);
    set_free(&set);
    shape_free(shape);
}

/* ---- which are for device memory ---- */

/* On several hosts the device schedule is chosen for any size, unless the user forces another
   algorithm. */
static void test_chosen(void **state)
{
    static const size_t bytes[] = { 4, 4096, 1 << 20, (size_t)1 << 32 };
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    tutti__cache_t cache, forced;

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 4, "", TUTTI__STEADY_ASSOCIATION, 1);
    tutti__cache_init(&forced, &shape->shape, 4, "allreduce:ring", TUTTI__ANY_ASSOCIATION, 0);
    cache.on_device = forced.on_device = 1;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
        tutti__want_t want = { .collective = TUTTI__ALLREDUCE, .bytes = bytes[i] };
        const tutti__sched_t *sched;

        assert_int_equal(tutti__cache_get(&cache, &want, 0, &sched), TUTTI_OK);
        assert_string_equal(sched->name, "hierarchical");
        assert_true(sched->on_device);
        assert_int_equal(tutti__cache_get(&forced, &want, 0, &sched), TUTTI_OK);
        assert_false(sched->on_device);
    }
    tutti__cache_fini(&forced);
    tutti__cache_fini(&cache);
    shape_free(shape);
}

static void expect_device(shape_t *shape, tutti__collective_t collective, const char *algorithm,
                          int on_device)
{
    set_t set = { .algorithm = tutti__algorithm_find(collective, algorithm),
                  .shape = shape,
                  .on_device = 1 };

    if (set.algorithm->subs != NULL)
        set.sub = set.algorithm->subs[0];
    set_build(&set);
    for (uint32_t r = 0; r < shape->shape.size; r++)
        if (set.scheds[r]->on_device != on_device)
            fail_msg("%s on %s, rank %u: %d", algorithm, shape->name, r, !on_device);
    set_free(&set);
    shape_free(shape);
}

static void test_which(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        expect_device(shape_even(1, n), TUTTI__ALLREDUCE, "node", 1);
        expect_device(shape_even(1, n), TUTTI__ALLREDUCE, "hierarchical", 1);
        expect_device(shape_even(1, n), TUTTI__ROOT_REDUCE, "node", 1);
        expect_device(shape_even(1, n), TUTTI__BROADCAST, "node", 1);
        expect_device(shape_even(1, n), TUTTI__REDUCE_SCATTER, "node", 1);
        expect_device(shape_even(1, n), TUTTI__ALLGATHER, "node", 1);
        expect_device(shape_even(1, n), TUTTI__ALLTOALL, "node", 1);
        expect_device(shape_even(1, n), TUTTI__BARRIER, "node", 0);
        expect_device(shape_even(1, n), TUTTI__ALLREDUCE, "ring", n == 1);
        expect_device(shape_even(1, n), TUTTI__SCAN, "chain", n == 1);
        expect_device(shape_even(2, n), TUTTI__ALLREDUCE, "ring", 0);
        expect_device(shape_even(2, n), TUTTI__ALLREDUCE, "three_level", 0);
        expect_device(shape_even(2, n), TUTTI__ALLGATHER, "bruck", 0);
        expect_device(shape_even(2, n), TUTTI__BROADCAST, "binomial", 0);
    }
}

/* On hosts with more ranks than parts, some ranks have node operations only. */
static void test_host_schedules_are_not(void **state)
{
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    set_t set = allreduce(shape, "hierarchical");

    (void)state;
    set.sub = "ring";
    set.on_device = 0;
    set_build(&set);
    for (uint32_t r = 0; r < 5; r++)
        assert_false(set.scheds[r]->on_device);
    set_free(&set);
    shape_free(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_short_stage),
        cmocka_unit_test(test_proved_when_built),
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_which),
        cmocka_unit_test(test_host_schedules_are_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
