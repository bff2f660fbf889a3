/* SPDX-License-Identifier: BSD-3-Clause */
/* Proves algorithms. See provings.h. */
#include "unit/coll/provings.h"

#include "base/compiler.h"
#include "coll/algorithms.h"
#include "long.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Above `full` ranks, a number of ranks has fewer proofs; above `few`, only every `every`-th number
   is proved. */
static uint32_t full, few, every;
static int is_quick;

#define ALL_ROOTS 12
#define ALL_PLACES 24
#define MANY_BLOCKS ((uint64_t)1 << 21)

/* Counts for the last line. */
static struct {
    unsigned long sets, schedules, proofs;
} done;

uint32_t provings_begin(void)
{
    is_quick = !test_is_long("most proofs of more than 9 ranks, three of four groups of some "
                             "placings, and most random placings");
    full = few = is_quick ? 16 : 64;
    every = is_quick ? 37 : 1;
#ifdef TUTTI__SANITIZED /* A proof takes five times as long. */
    few = 16;
    every = is_quick ? 37 : 17;
#endif
    full = is_quick ? 9 : few;
    return few;
}

int provings_whole(void)
{
    return every == 1;
}

int provings_quick(void)
{
    return is_quick;
}

static void prove(const set_t *set, uint32_t credits, uint32_t trips)
{
    char why[1200];

    done.proofs++;
    if (set_check(set, credits, trips, why, sizeof(why)) != TUTTI_OK)
        fail_msg(
            "%s %s%s%s on %s, radix %u, streams %u, root %u, in place %d%s, credits %u, trips %u: "
            "%s",
            tutti__collective_name(set->algorithm->collective), set->algorithm->name,
            set->sub != NULL ? "/" : "", set->sub != NULL ? set->sub : "", set->shape->name,
            set->radix, set->streams, set->root, set->in_place, set->wire ? ", wire format" : "",
            credits, trips, why);
}

static int is_heavy(const set_t *set)
{
    uint64_t blocks = 0;

    for (uint32_t r = 0; r < set->shape->shape.size; r++) {
        for (uint32_t i = 0; i < set->scheds[r]->nops; i++)
            blocks += set->scheds[r]->ops[i].nblk;
    }
    return blocks > MANY_BLOCKS;
}

/* Prove that all ranks get the same bits with a wire format as well. */
static void prove_wire(const set_t *set)
{
    tutti__collective_t collective = set->algorithm->collective;
    set_t wired = *set;

    wired.wire = 1;
    if (set->shape->shape.nhosts > 1 &&
        (collective == TUTTI__ALLREDUCE || collective == TUTTI__ROOT_REDUCE ||
         collective == TUTTI__REDUCE_SCATTER))
        prove(&wired, 1, 2);
}

static void prove_trips(const set_t *set)
{
    uint32_t size = set->shape->shape.size, trips;

    if (size > full) {
        trips = is_heavy(set) ? 1 : 1 + (size / 2 + (uint32_t)set->in_place) % 2;
        prove(set, 1, trips);
        if (provings_whole() || size <= 64)
            prove(set, 0, trips);
        return;
    }
    prove(set, 0, 1);
    prove(set, 0, 3);
    prove_wire(set);
    for (uint32_t c = 1; c <= 4; c *= 2) {
        prove(set, c, 1);
        prove(set, c, 2);
        if (c > 2)
            prove(set, c, c);
        if (c > 1)
            prove(set, c, c + 1);
        prove(set, c, 2 * c + 1);
    }
}

static void prove_places(set_t *set)
{
    tutti__collective_t collective = set->algorithm->collective;
    int has_places = collective != TUTTI__BROADCAST && collective != TUTTI__BARRIER;

    for (set->in_place = 0; set->in_place <= has_places; set->in_place++) {
        set_build(set);
        done.sets++;
        done.schedules += set->shape->shape.size;
        prove_trips(set);
        set_free(set);
    }
}

static int has_root(tutti__collective_t collective)
{
    return collective == TUTTI__BROADCAST || collective == TUTTI__ROOT_REDUCE ||
           collective == TUTTI__GATHER || collective == TUTTI__GATHERV ||
           collective == TUTTI__SCATTER || collective == TUTTI__SCATTERV;
}

static void prove_roots(set_t *set)
{
    uint32_t size = set->shape->shape.size;
    const uint32_t some[] = { 0, 1, size / 2, size - 1 };

    set->root = 0;
    if (!has_root(set->algorithm->collective)) {
        prove_places(set);
    } else if (size <= ALL_ROOTS) {
        for (; set->root < size; set->root++)
            prove_places(set);
    } else if (size <= full) {
        for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
            set->root = some[i];
            prove_places(set);
        }
    } else {
        set->root = some[size / 2 % 4];
        prove_places(set);
    }
}

/* Prove the algorithm with two streams between hosts, and with the largest number. */
static void prove_streams(set_t *set)
{
    uint32_t most = tutti__coll_most_streams(set->algorithm), size = set->shape->shape.size;

    for (set->streams = 2; set->streams <= most; set->streams += TUTTI__MAX(most - 2, 1u)) {
        if (size <= full || size % 8 == set->streams)
            prove_roots(set);
    }
    set->streams = 0;
}

static void prove_radixes(set_t *set)
{
    static const uint32_t radixes[] = { 2, 3, 4, 5, 8 };
    uint32_t n = sizeof(radixes) / sizeof(*radixes), size = set->shape->shape.size;

    set->radix = 0;
    prove_roots(set);
    prove_streams(set);
    if (set->algorithm->radix == 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        set->radix = radixes[i];
        if (set->radix != set->algorithm->radix && (size <= full || size % n == i))
            prove_roots(set);
    }
    set->radix = size;
    if (size > 8 && (size <= full || size % 4 == 0))
        prove_roots(set);
}

/* Is this placement tried? is_main: if only one random placement is tried, it is this one. */
static int is_wanted(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape, int is_main)
{
    int is_odd = shape->size % 2 != 0;

    if (algorithm->refuses != NULL && algorithm->refuses(shape) != NULL)
        return 0;
    if (shape->size <= ALL_PLACES)
        return 1;
    if (shape->nhosts == 1)
        return algorithm->refuses != NULL;
    if (algorithm->subs != NULL)
        return shape->nhosts != shape->size && is_main == is_odd;
    return is_odd ? is_main : shape->nhosts == shape->size;
}

void provings_shape(shape_t *shape, int is_main)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        set_t set = { .algorithm = a, .shape = shape };

        if (!is_wanted(a, &shape->shape, is_main))
            continue;
        if (a->subs == NULL)
            prove_radixes(&set);
        for (int i = 0; a->subs != NULL && a->subs[i] != NULL; i++) {
            set.sub = a->subs[i];
            prove_radixes(&set);
        }
    }
    shape_free(shape);
}

/* A proof allocates megabytes and frees them. The process keeps them for the next proof, to avoid
   page faults. */
void provings_sizes(uint32_t from, uint32_t upto)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    for (uint32_t p = from; p <= upto; p += p < few ? 1 : every) {
        provings_shape(shape_grouped(shape_even(1, p), p % 7), 0);
        provings_shape(shape_grouped(shape_random(p, p), p % 5), 1);
        if (p == 1)
            continue;
        provings_shape(shape_even(p, 1), 0);
        provings_shape(shape_grouped(shape_split(2, (uint32_t[]){ p / 2, p - p / 2 }), p % 11), 0);
        if (p <= ALL_PLACES)
            provings_shape(shape_random(p, 1000 + p), 0);
    }
}

void provings_report(void)
{
    print_message("proved %lu sets of schedules (%lu schedules) in %lu runs\n", done.sets,
                  done.schedules, done.proofs);
    assert_true(done.proofs > 0);
}
