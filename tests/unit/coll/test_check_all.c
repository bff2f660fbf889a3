/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm is proved for every number of ranks from 1 to 128.
 *
 * The table of algorithms drives it, so a new row is proved without a change here. Each proof is of
 * one (ranks, places, root, in place or not, credits, trips). What is tried:
 *
 *      ranks     1 to 128
 *      places    one host, a host for each rank, two hosts, two random ones; and those in `splits`
 *      credits   1, 2, and up to ALL_CREDITS ranks 4
 *      trips     1, 2, c, c + 1, 2c + 1 up to ALL_TRIPS ranks, above that 1 with one credit and
 *                2c + 1 with each
 *      roots     all up to ALL_ROOTS ranks, above that the first two, the middle and the last
 *
 * An algorithm between all ranks does not care much who sits where; above ALL_PLACES ranks it is
 * tried on hosts of one rank and on one random placing only. The hierarchical one is not tried
 * there on one host nor on hosts of one rank, where it builds another one's schedule.
 */
#include "unit/coll/shapes.h"

#include "base/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 128
/* All of them take 17 s; with a sanitizer five times that, where a part is enough. */
#ifdef TUTTI__SANITIZED
#define ALL_TRIPS 24
#define ALL_CREDITS 64
#else
#define ALL_TRIPS MOST_RANKS
#define ALL_CREDITS MOST_RANKS
#endif
#define ALL_ROOTS 12
#define ALL_PLACES 24

/* What was done, for the last line. */
static struct {
    unsigned long sets, schedules, proofs;
} done;

static void prove(const set_t *set, uint32_t credits, uint32_t trips)
{
    char why[1200];

    done.proofs++;
    if (set_check(set, credits, trips, why, sizeof(why)) != TUTTI_OK)
        fail_msg("%s %s%s%s on %s, root %u, in place %d, credits %u, trips %u: %s",
                 tutti__collective_name(set->algorithm->collective), set->algorithm->name,
                 set->sub != NULL ? "/" : "", set->sub != NULL ? set->sub : "", set->shape->name,
                 set->root, set->in_place, credits, trips, why);
}

static void prove_trips(const set_t *set)
{
    uint32_t most = set->shape->shape.size <= ALL_CREDITS ? 4 : 2;

    for (uint32_t c = 1; c <= most; c *= 2) {
        if (set->shape->shape.size <= ALL_TRIPS) {
            prove(set, c, 1);
            prove(set, c, 2);
            if (c > 2)
                prove(set, c, c);
            if (c > 1)
                prove(set, c, c + 1);
        } else if (c == 1) {
            prove(set, c, 1);
        }
        prove(set, c, 2 * c + 1);
    }
}

static void prove_set(const tutti__algorithm_t *algorithm, const shape_t *shape, const char *sub,
                      uint32_t root, int in_place)
{
    set_t set = { algorithm, shape, sub, root, in_place, NULL };

    set_build(&set);
    done.sets++;
    done.schedules += shape->shape.size;
    prove_trips(&set);
    set_free(&set);
}

static void prove_roots(const tutti__algorithm_t *algorithm, const shape_t *shape, const char *sub,
                        int in_place)
{
    uint32_t size = shape->shape.size;

    if (algorithm->collective != TUTTI__BROADCAST) {
        prove_set(algorithm, shape, sub, 0, in_place);
        return;
    }
    for (uint32_t root = 0; root < size; root++) {
        if (size <= ALL_ROOTS || root < 2 || root == size / 2 || root == size - 1)
            prove_set(algorithm, shape, sub, root, in_place);
    }
}

/* Is a placing worth a try? `is_main`: the random one is. */
static int is_wanted(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape, int is_main)
{
    if (algorithm->refuses != NULL)
        return algorithm->refuses(shape) == NULL;
    if (shape->size <= ALL_PLACES)
        return 1;
    if (algorithm->subs != NULL)
        return shape->nhosts != 1 && shape->nhosts != shape->size;
    return shape->nhosts == shape->size || is_main;
}

static void prove_algorithms(const shape_t *shape, int is_main)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        int has_places = a->collective == TUTTI__ALLREDUCE || a->collective == TUTTI__ALLGATHER;

        if (!is_wanted(a, &shape->shape, is_main))
            continue;
        for (int in_place = 0; in_place <= has_places; in_place++) {
            if (a->subs == NULL)
                prove_roots(a, shape, NULL, in_place);
            for (int i = 0; a->subs != NULL && a->subs[i] != NULL; i++)
                prove_roots(a, shape, a->subs[i], in_place);
        }
    }
}

static void prove_shape(shape_t *shape, int is_main)
{
    prove_algorithms(shape, is_main);
    shape_free(shape);
}

static void test_all_sizes(void **state)
{
    (void)state;
    for (uint32_t p = 1; p <= MOST_RANKS; p++) {
        prove_shape(shape_even(1, p), 0);
        prove_shape(shape_random(p, p), 1);
        if (p == 1)
            continue;
        prove_shape(shape_even(p, 1), 0);
        prove_shape(shape_split(2, (uint32_t[]){ p / 2, p - p / 2 }), 0);
        prove_shape(shape_random(p, 1000 + p), 0);
    }
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
        prove_shape(shape_split(nhosts, splits[i]), 0);
    }
    for (uint32_t seed = 0; seed < 200; seed++)
        prove_shape(shape_random(2 + seed % 20, 7777 + seed), 0);
}

static void test_report(void **state)
{
    (void)state;
    print_message("proved %lu sets of schedules (%lu schedules) in %lu runs\n", done.sets,
                  done.schedules, done.proofs);
    assert_true(done.proofs > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sizes),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
