/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two ways of a call on device memory: properties of the cost model, and the choice. The
 * figures of device_cost.c's head comment are checked as well.
 */
#include "coll/device_cost.h"
#include "unit/coll/shapes.h"

#include "base/constants.h"
#include "coll/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define GIB ((size_t)1 << 30)

static const tutti__device_limits_t by_cost = { TUTTI__STAGED_AUTO, GIB };

/* ---- the model ---- */

static tutti__device_cost_t cost_of(const shape_t *shape, uint32_t max_local, size_t bytes)
{
    tutti__device_cost_t cost = { 0, 0 };

    assert_int_equal(tutti__device_cost(TUTTI__ALLREDUCE, bytes, &shape->shape, max_local, &cost),
                     1);
    return cost;
}

static int prefers_staged(const shape_t *shape, uint32_t max_local, size_t bytes)
{
    tutti__device_cost_t cost = cost_of(shape, max_local, bytes);

    return cost.staged_ns < cost.device_ns;
}

/* From this size on the device is cheaper, to a precision of 1 KiB. */
static size_t find_crossover(const shape_t *shape, uint32_t max_local)
{
    size_t at = 8;

    while (at < GIB && prefers_staged(shape, max_local, at))
        at += KIB;
    for (size_t more = at + KIB; more < 64 * GIB; more += more / 7)
        assert_false(prefers_staged(shape, max_local, more));
    return at / KIB;
}

static void test_crossovers(void **state)
{
    static const struct {
        uint32_t hosts, local;
        size_t kib;
    } even[] = { { 2, 2, 325 }, { 2, 4, 184 }, { 2, 8, 111 }, { 16, 8, 111 }, { 100, 2, 325 } };
    shape_t *shape;
    size_t last = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(even) / sizeof(*even); i++) {
        shape = shape_even(even[i].hosts, even[i].local);
        assert_in_range(find_crossover(shape, even[i].local), even[i].kib - 1, even[i].kib + 1);
        shape_free(shape);
    }
    shape = shape_split(2, (uint32_t[]){ 2, 1 });
    assert_in_range(find_crossover(shape, 2), 803, 805);
    shape_free(shape);
    for (uint32_t local = 64; local > 1; local--) {
        size_t kib;

        shape = shape_even(3, local);
        kib = find_crossover(shape, local);
        assert_true(kib > 0 && kib >= last);
        last = kib;
        shape_free(shape);
    }
}

/* More bytes never cost less, and twice as many hosts never cost less. Nothing overflows. */
static void test_grows(void **state)
{
    tutti__device_cost_t last = { 0, 0 }, cost;
    shape_t *shape = shape_even(5, 8);

    (void)state;
    for (size_t bytes = 1; bytes != 0; bytes <<= 1) {
        cost = cost_of(shape, 8, bytes);
        assert_true(cost.device_ns >= last.device_ns && cost.staged_ns >= last.staged_ns);
        last = cost;
    }
    shape_free(shape);
    last = (tutti__device_cost_t){ 0, 0 };
    for (uint32_t hosts = 2; hosts < 100; hosts *= 2) {
        shape = shape_even(hosts, 4);
        cost = cost_of(shape, 4, 1000 * KIB);
        assert_true(cost.device_ns >= last.device_ns && cost.staged_ns >= last.staged_ns);
        last = cost;
        shape_free(shape);
    }
}

static void test_no_choice(void **state)
{
    shape_t *one = shape_even(1, 4), *alone = shape_even(4, 1);
    tutti__device_cost_t cost;

    (void)state;
    assert_int_equal(tutti__device_cost(TUTTI__ALLREDUCE, 8, &one->shape, 4, &cost), 0);
    assert_int_equal(tutti__device_cost(TUTTI__BROADCAST, 8, &alone->shape, 1, &cost), 0);
    for (size_t bytes = 1; bytes < 64 * GIB; bytes *= 3) {
        cost = cost_of(alone, 1, bytes);
        assert_int_equal(cost.device_ns, cost.staged_ns);
    }
    shape_free(one);
    shape_free(alone);
}

/* ---- the choice ---- */

static int stages(tutti__collective_t collective, size_t bytes, const shape_t *shape,
                  const char *override, tutti__association_t association,
                  const tutti__device_limits_t *limits, const char *expected)
{
    tutti__want_t want = { collective, bytes, 0, 0 };
    tutti__choice_t choice;
    char why[TUTTI__DEVICE_WHY];
    const char *table;
    int staged;

    assert_int_equal(
        tutti__algorithm_choose(&want, &shape->shape, override, association, &choice, &table),
        TUTTI_OK);
    staged = tutti__device_stages(&want, &shape->shape, &choice, table == tutti__why_forced,
                                  association, limits, why);
    if (strncmp(why, expected, strlen(expected)) != 0 || (*expected == '\0' && *why != '\0'))
        fail_msg("%s, %zu bytes: \"%s\", not \"%s\"", shape->name, bytes, why, expected);
    return staged;
}

static int allreduce(size_t bytes, const shape_t *shape, tutti__association_t association,
                     const char *expected)
{
    return stages(TUTTI__ALLREDUCE, bytes, shape, "", association, &by_cost, expected);
}

static void test_by_cost(void **state)
{
    tutti__device_limits_t little = { TUTTI__STAGED_AUTO, 64 * KIB };
    shape_t *four = shape_even(2, 4), *one = shape_even(1, 4), *alone = shape_even(4, 1);

    (void)state;
    assert_true(allreduce(8, four, 0, "by cost: staged, 26 us instead of 54"));
    assert_true(allreduce(180 * KIB, four, 0, "by cost: staged, "));
    assert_false(allreduce(190 * KIB, four, 0, "by cost: on the device, "));
    assert_false(allreduce(SIZE_MAX, four, 0, "on the device, as it does not fit the stage"));
    assert_true(stages(TUTTI__ALLREDUCE, 32 * KIB, four, "", 0, &little, "by cost: staged"));
    assert_false(stages(TUTTI__ALLREDUCE, 32 * KIB + 1, four, "", 0, &little, "on the device, as"));
    assert_false(allreduce(8, one, 0, ""));
    assert_false(allreduce(8, alone, 0, "by cost: on the device"));
    assert_false(stages(TUTTI__BROADCAST, 8, four, "", 0, &by_cost, ""));
    shape_free(four);
    shape_free(one);
    shape_free(alone);
}

/* NCCL executes the stages inside a host, so the model counts them once: without data, a host of
   four ranks needs two launches more than a host of one rank. */
static void test_stages_once(void **state)
{
    shape_t *four = shape_even(2, 4), *one = shape_even(2, 1);
    tutti__device_cost_t of_four, of_one;

    (void)state;
    assert_int_equal(tutti__device_cost(TUTTI__ALLREDUCE, 0, &four->shape, 4, &of_four), 1);
    assert_int_equal(tutti__device_cost(TUTTI__ALLREDUCE, 0, &one->shape, 1, &of_one), 1);
    assert_int_equal(of_four.device_ns - of_one.device_ns, 2 * TUTTI__COST_NCCL_NS);
    shape_free(four);
    shape_free(one);
}

/* The engine's buckets have any size, so the engine may combine only those ways whose results have
   the same bits. */
static void test_associations(void **state)
{
    static const tutti__collective_t reduce[] = { TUTTI__ALLREDUCE, TUTTI__ROOT_REDUCE,
                                                  TUTTI__REDUCE_SCATTER };
    const tutti__association_t steady = TUTTI__STEADY_ASSOCIATION;
    const tutti__association_t strict = TUTTI__STRICT_ASSOCIATION;
    shape_t *two = shape_split(3, (uint32_t[]){ 2, 1, 2 });
    shape_t *three = shape_split(2, (uint32_t[]){ 3, 2 }), *one = shape_even(1, 3);
    shape_t *pair = shape_even(1, 2);

    (void)state;
    assert_true(allreduce(8, two, steady, "by cost: staged"));
    assert_true(allreduce(8, two, strict, "by cost: staged"));
    assert_false(allreduce(GIB / 2, two, steady, "by cost: on the device"));
    assert_false(allreduce(GIB / 2, two, strict, "by cost: on the device"));
    assert_true(allreduce(8, three, 0, "by cost: staged"));
    assert_false(allreduce(8, three, steady, ""));
    for (size_t bytes = 8; bytes < GIB; bytes *= 8)
        for (int i = 0; i < 3; i++) {
            assert_true(stages(reduce[i], bytes, three, "", strict, &by_cost, "staged, by TUTTI"));
            assert_true(stages(reduce[i], bytes, one, "", strict, &by_cost, "staged, by TUTTI"));
            assert_false(stages(reduce[i], bytes, pair, "", strict, &by_cost, ""));
            assert_false(stages(reduce[i], bytes, one, "", steady, &by_cost, ""));
        }
    assert_true(stages(TUTTI__ALLREDUCE, 8, one, "allreduce:node", strict, &by_cost, "staged, by"));
    assert_false(stages(TUTTI__BROADCAST, 8, one, "", strict, &by_cost, ""));
    shape_free(two);
    shape_free(three);
    shape_free(one);
    shape_free(pair);
}

static void test_settings(void **state)
{
    const char staged[] = "by TUTTI_DEVICE_STAGED_BYTES: staged";
    const char there[] = "by TUTTI_DEVICE_STAGED_BYTES: on the device";
    const tutti__device_limits_t never = { 0, GIB }, some = { 4 * KIB, KIB };
    shape_t *four = shape_even(2, 4), *alone = shape_even(4, 1);

    (void)state;
    assert_false(stages(TUTTI__ALLREDUCE, 8, four, "", 0, &never, there));
    assert_true(stages(TUTTI__ALLREDUCE, 4 * KIB, four, "", 0, &some, staged));
    assert_false(stages(TUTTI__ALLREDUCE, 4 * KIB + 1, four, "", 0, &some, there));
    assert_true(stages(TUTTI__ALLREDUCE, 4 * KIB, alone, "", 0, &some, staged));
    assert_false(stages(TUTTI__ALLREDUCE, 8, four, "allreduce:hierarchical", 0, &some, ""));
    assert_false(stages(TUTTI__ALLREDUCE, 8, four, "allreduce:ring", 0, &some, ""));
    shape_free(four);
    shape_free(alone);
}

/* The schedule cache makes this choice for each size. */
static void test_cache(void **state)
{
    static const size_t bytes[] = { 8, 300 * KIB, 64, 8, 400 * KIB };
    shape_t *shape = shape_even(2, 4);
    tutti__cache_t cache;

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 3, "", TUTTI__ANY_ASSOCIATION, 1);
    tutti__cache_for_device(&cache, &by_cost);
    for (int i = 0; i < 10; i++) {
        tutti__want_t want = { TUTTI__ALLREDUCE, bytes[i % 5], 0, 0 };
        const tutti__sched_t *sched;

        assert_int_equal(tutti__cache_get(&cache, &want, i % 2, &sched), TUTTI_OK);
        assert_int_equal(sched->on_device, bytes[i % 5] > KIB);
    }
    tutti__cache_fini(&cache);
    shape_free(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crossovers),   cmocka_unit_test(test_grows),
        cmocka_unit_test(test_no_choice),    cmocka_unit_test(test_by_cost),
        cmocka_unit_test(test_associations), cmocka_unit_test(test_settings),
        cmocka_unit_test(test_cache),        cmocka_unit_test(test_stages_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
