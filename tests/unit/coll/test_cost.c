/* SPDX-License-Identifier: BSD-3-Clause */
/* The cost model between hosts: its figures, its limits, and the choices that follow from the speed
   of links. */
#include "coll/cost.h"
#include "unit/coll/shapes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void test_links(void **state)
{
    (void)state;
    assert_int_equal(tutti__cost_link(1024, 0, 0).beta_ps, 7812);
    /* The model rounds to a power of two, so that nearly equal speeds lead to the same choice. */
    assert_int_equal(tutti__cost_link(9400, 0, 0).beta_ps, tutti__cost_link(10000, 0, 0).beta_ps);
    assert_int_equal(tutti__cost_link(0, 0, 0).beta_ps, tutti__cost_link(10000, 0, 0).beta_ps);
    assert_true(tutti__cost_link(1, 0, 0).beta_ps > tutti__cost_link(2, 0, 0).beta_ps);
    assert_true(tutti__cost_link(0, 0, 1).alpha_ns < tutti__cost_link(0, 0, 0).alpha_ns);
    assert_int_equal(tutti__cost_link(0, 77, 1).alpha_ns, 77);
    assert_int_equal(tutti__cost_link(1000000000, 0, 0).beta_ps, 1); /* 0: unknown */
}

static double us_of(const shape_t *shape, tutti__collective_t collective, const char *name,
                    const char *sub, size_t bytes)
{
    tutti__cost_t cost;

    assert_int_equal(
        tutti__cost_of(tutti__algorithm_find(collective, name), sub, &shape->shape, &cost), 1);
    return (double)tutti__cost_ps(&cost, bytes) / 1e6;
}

static void near_to(double have, double want)
{
    if (fabs(have - want) > want / 100)
        fail_msg("%f us, not %f", have, want);
}

/* The formulas of docs/algorithms.md, by hand: a 20 us, b 8 ns, g 0.1 ns, slots of 64 KiB, so a
   message of m bytes is cut into m / 64 KiB additional pieces. */
static void test_figures(void **state)
{
    const double a = 20, b = 8e-3, g = 1e-4, n = 1048576, slot = 65536;
    shape_t *four = shape_even(4, 1), *pairs = shape_even(2, 2);

    (void)state;
    four->shape.link = pairs->shape.link =
        (tutti__cost_link_t){ .alpha_ns = 20000, .beta_ps = 8000, .slot_bytes = 65536 };
    near_to(us_of(four, TUTTI__ALLREDUCE, "hierarchical", "recursive_doubling", MIB),
            2 * a * (1 + n / slot) + 2 * n * (b + g));
    near_to(us_of(four, TUTTI__ALLREDUCE, "hierarchical", "halving_doubling", MIB),
            4 * a * (1 + n / 4 * 2 / slot) + 1.5 * n * b + 0.75 * n * g);
    near_to(us_of(four, TUTTI__ALLREDUCE, "hierarchical", "ring", MIB),
            6 * a * (1 + n / 4 / slot) + 1.5 * n * b + 0.75 * n * g);
    near_to(us_of(four, TUTTI__BROADCAST, "binomial", NULL, MIB),
            2 * a * (1 + n / slot) + 2 * n * b);
    near_to(us_of(four, TUTTI__BROADCAST, "chain", NULL, MIB), 3 * a + n / slot * a / 4 + n * b);
    near_to(us_of(four, TUTTI__ALLGATHER, "ring", NULL, MIB),
            3 * a * (1 + n / 4 / slot) + 0.75 * n * b + n * g);
    near_to(us_of(four, TUTTI__GATHER, "binomial", NULL, MIB),
            2 * a * (1 + n / 2 / slot) + 0.75 * n * b);
    near_to(us_of(four, TUTTI__SCATTER, "direct", NULL, MIB),
            1.5 * a + 0.75 * n / slot * a / 4 + 0.75 * n * b);
    near_to(us_of(four, TUTTI__ALLTOALL, "bruck", NULL, MIB),
            2 * a * (1 + n / 2 / slot) + n * b + 4 * n * g);
    near_to(us_of(four, TUTTI__ALLTOALL, "recursive_doubling", NULL, MIB),
            2 * a * (1 + n / 2 / slot) + n * b + 2 * n * g);
    near_to(us_of(four, TUTTI__ALLTOALL, "ring", NULL, MIB),
            3 * a * (1 + n / slot) + 1.5 * n * b + 3 * n * g);
    near_to(us_of(four, TUTTI__ALLTOALL, "pairwise", NULL, MIB),
            3 * a * (1 + n / 4 / slot) + 0.75 * n * b);
    near_to(us_of(four, TUTTI__ALLTOALL, "direct", NULL, MIB),
            1.5 * a + 0.75 * n / slot * a / 4 + 0.75 * n * b);
    /* The two ranks of a host have separate slices. They share the host's link, and each adds the
       other's data. */
    near_to(us_of(pairs, TUTTI__ALLREDUCE, "hierarchical", "recursive_doubling", MIB),
            a * (1 + n / 2 / slot) + n * (b + g) + 2 * 0.3 * (1 + n / slot) + 4 * n * g);
    /* An algorithm between all ranks ignores hosts, so both ranks send the whole message through
       the link. */
    near_to(us_of(pairs, TUTTI__ALLREDUCE, "recursive_doubling", NULL, MIB),
            2 * a * (1 + n / slot) + 2 * 2 * n * b + 2 * 2 * n * g);
    /* Both ranks of a host send to both ranks of the other host, and to each other. */
    near_to(us_of(pairs, TUTTI__ALLTOALL, "direct", NULL, MIB),
            1.25 * a + 0.3 + n / 4 / slot * (2 * a / 4 + 0.3) + n * b + n / 4 * g);
    /* In Bruck's step by one rank, one of the two ranks sends to the next host. In the step by two
       ranks, both ranks send to the next host. */
    near_to(us_of(pairs, TUTTI__ALLTOALL, "bruck", NULL, MIB),
            2 * a * (1 + n / 2 / slot) + 1.5 * n * b + 4 * n * g);
    shape_free(four);
    shape_free(pairs);
}

static const char *sub_for(shape_t *shape, uint64_t mbps, size_t bytes)
{
    tutti__want_t want = { TUTTI__ALLREDUCE, bytes, 0, 0 };
    tutti__choice_t choice;
    const char *why;

    shape->shape.link = tutti__cost_link(mbps, 0, 0);
    assert_int_equal(
        tutti__algorithm_choose(&want, &shape->shape, NULL, TUTTI__ANY_ASSOCIATION, &choice, &why),
        TUTTI_OK);
    assert_string_equal(choice.algorithm->name, "hierarchical");
    return choice.sub;
}

/* On a slow link the number of bytes decides. On a fast link the number of steps decides. */
static void test_classes(void **state)
{
    shape_t *eight = shape_even(8, 1), *two = shape_even(2, 1), *three = shape_even(3, 1);

    (void)state;
    /* On three hosts recursive_doubling takes three steps, and halving_doubling four. */
    assert_string_equal(sub_for(three, 1000, 8), "recursive_doubling");
    assert_string_equal(sub_for(eight, 1000, 8), "recursive_doubling");
    assert_string_equal(sub_for(eight, 1000, 64 * KIB), "halving_doubling");
    assert_string_equal(sub_for(eight, 100000, 64 * KIB), "recursive_doubling");
    assert_string_equal(sub_for(eight, 1000, 64 * MIB), "ring");
    /* Two hosts send the same bytes with each algorithm, so one step is best up to large sizes. */
    assert_string_equal(sub_for(two, 1000, 64 * KIB), "recursive_doubling");
    shape_free(eight);
    shape_free(two);
    shape_free(three);
}

static void chosen(shape_t *shape, tutti__collective_t collective, size_t bytes, const char *name)
{
    tutti__want_t want = { collective, bytes, 0, 0 };
    tutti__choice_t choice;
    const char *why;

    assert_int_equal(
        tutti__algorithm_choose(&want, &shape->shape, NULL, TUTTI__ANY_ASSOCIATION, &choice, &why),
        TUTTI_OK);
    assert_string_equal(choice.algorithm->name, name);
}

/* With few ranks, or with large blocks, each rank exchanges with every other rank directly. The
   more a message costs, the larger are the blocks for which Bruck's alltoall is taken. */
static void test_trees(void **state)
{
    shape_t *eight = shape_even(8, 1), *fifty = shape_even(50, 1);

    (void)state;
    eight->shape.link = tutti__cost_link(10000, 0, 0);
    chosen(eight, TUTTI__GATHER, 64, "direct");
    chosen(eight, TUTTI__ALLTOALL, 64, "direct");
    for (uint64_t ns = 10000; ns <= 1000000; ns *= 100) {
        fifty->shape.link = tutti__cost_link(10000, ns, 0);
        chosen(fifty, TUTTI__GATHER, 64, "binomial");
        chosen(fifty, TUTTI__SCATTER, 128 * KIB, "binomial");
        chosen(fifty, TUTTI__SCATTER, 64 * MIB, "direct");
        chosen(fifty, TUTTI__ALLTOALL, 64, "bruck");
        chosen(fifty, TUTTI__ALLTOALL, 32 * KIB, ns == 10000 ? "direct" : "bruck");
    }
    fifty->shape.link = tutti__cost_link(10000, 0, 0);
    chosen(fifty, TUTTI__ALLTOALL, 64 * MIB, "pairwise");
    shape_free(eight);
    shape_free(fifty);
}

/* The choice is never more expensive than another allowed algorithm. More bytes never cost less.
   Nothing overflows. */
static void test_cheapest(void **state)
{
    static const struct {
        tutti__collective_t collective;
        const char *names[4];
    } rows[] = {
        { TUTTI__ROOT_REDUCE, { "binomial", "scatter_gather", "chain", NULL } },
        { TUTTI__BROADCAST, { "binomial", "scatter_allgather", "chain", NULL } },
        { TUTTI__REDUCE_SCATTER, { "halving", "ring", NULL } },
        { TUTTI__ALLGATHER, { "bruck", "ring", NULL } },
        { TUTTI__SCAN, { "recursive_doubling", "chain", NULL } },
        { TUTTI__GATHER, { "binomial", "direct", NULL } },
        { TUTTI__SCATTER, { "binomial", "direct", NULL } },
        { TUTTI__ALLTOALL, { "bruck", "pairwise", NULL } },
    };
    uint32_t seed = 3;

    (void)state;
    for (int i = 0; i < 300; i++) {
        shape_t *shape = shape_even(2 + random_next(&seed) % 300, 1 + random_next(&seed) % 8);
        size_t r = random_next(&seed) % (sizeof(rows) / sizeof(rows[0]));
        double last = 0;

        shape->shape.link = tutti__cost_link((uint64_t)1 << random_next(&seed) % 20,
                                             1 + random_next(&seed) % 2000000, 0);
        for (size_t bytes = 1; bytes != 0; bytes *= 8) {
            tutti__want_t want = { rows[r].collective, bytes, 0, 0 };
            tutti__choice_t choice;
            const char *why;
            double us;

            assert_int_equal(tutti__algorithm_choose(&want, &shape->shape, NULL,
                                                     TUTTI__ANY_ASSOCIATION, &choice, &why),
                             TUTTI_OK);
            assert_ptr_equal(why, tutti__why_cost);
            us = us_of(shape, want.collective, choice.algorithm->name, NULL, bytes);
            assert_true(us >= last && us > 0);
            last = us;
            for (const char *const *name = rows[r].names; *name != NULL; name++)
                assert_true(us <= us_of(shape, want.collective, *name, NULL, bytes));
        }
        shape_free(shape);
    }
}

static void test_rides(void **state)
{
    shape_t *two = shape_even(2, 1), *sixteen = shape_even(16, 1);
    size_t slow, fast;

    (void)state;
    two->shape.link = tutti__cost_link(1000, 0, 0);
    assert_int_equal(tutti__cost_ride_bytes(TUTTI__ALLREDUCE, &two->shape, 0, 65520), 65520);
    sixteen->shape.link = tutti__cost_link(1000, 0, 0);
    slow = tutti__cost_ride_bytes(TUTTI__ALLREDUCE, &sixteen->shape, 0, 65520);
    sixteen->shape.link = tutti__cost_link(100000, 0, 0);
    fast = tutti__cost_ride_bytes(TUTTI__ALLREDUCE, &sixteen->shape, 0, 65520);
    assert_true(slow >= 1024 && slow < fast && fast <= 65520);
    /* The result is at most `room`, the last argument. */
    assert_int_equal(tutti__cost_ride_bytes(TUTTI__GATHER, &sixteen->shape, 0, 65520), 65520);
    assert_int_equal(tutti__cost_ride_bytes(TUTTI__ALLTOALL, &two->shape, 0, 65520), 65520);
    shape_free(two);
    shape_free(sixteen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links),   cmocka_unit_test(test_figures),
        cmocka_unit_test(test_classes), cmocka_unit_test(test_cheapest),
        cmocka_unit_test(test_trees),   cmocka_unit_test(test_rides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
