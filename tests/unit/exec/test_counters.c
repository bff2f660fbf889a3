/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests long use: counters wrap around at 2^32, and repeated calls must not allocate.
 *
 * The counters of channels are private to xport/shm, so its source is part of this test. malloc and
 * related functions are counted (--wrap, see local.mk).
 */
#include "xport/shm/shm.c"

#include "node/shm/shm.h"
#include "unit/coll/shapes.h"
#include "unit/exec/data.h"
#include "unit/exec/hand.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum {
    MOST = 4000
};

/* ---- allocations ---- */

static unsigned long allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *ptr, size_t bytes);
tutti_status_t __real_tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *ptr, size_t bytes);
tutti_status_t __wrap_tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    allocations++;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *ptr, size_t bytes)
{
    allocations++;
    return __real_realloc(ptr, bytes);
}

tutti_status_t __wrap_tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr)
{
    allocations++;
    return __real_tutti__arena_alloc(arena, bytes, ret_ptr);
}

/* ---- one allreduce after the other ---- */

typedef struct {
    team_t team;
    crew_t crew;
    uint32_t turn;
    float in[WORLD_RANKS][MOST], out[WORLD_RANKS][MOST];
} life_t;

static void life_open(life_t *life, uint32_t n, const uint32_t *host_of, uint32_t credits,
                      uint32_t lane)
{
    team_open(&life->team, n, host_of, 64, credits, 0);
    crew_open(&life->crew, &life->team, lane);
    life->turn = 0;
}

static void life_close(life_t *life)
{
    crew_close(&life->crew);
    team_close(&life->team);
}

static void once(life_t *life, tutti__sched_t *const *scheds, size_t count)
{
    uint32_t n = life->team.world.n, turn = life->turn++;
    data_t data = { .dtype = TUTTI_FLOAT32, .op = TUTTI_AVG, .nranks = n, .seed = turn };
    tutti__exec_call_t calls[WORLD_RANKS] = { { 0 } };

    for (uint32_t r = 0; r < n; r++) {
        for (size_t i = 0; i < count; i++)
            data_put(&data, life->in[r], r, i);
        calls[r] = (tutti__exec_call_t){ .in = life->in[r],
                                         .out = life->out[r],
                                         .count = count,
                                         .dtype = data.dtype,
                                         .op = data.op,
                                         .signature = turn };
    }
    crew_set(&life->crew, scheds, calls);
    crew_finish(&life->crew, (order_t)(turn % ORDERS), turn, scheds[0]->name);
    for (uint32_t r = 0; r < n; r++)
        for (size_t i = 0; i < count; i++)
            if (!data_is_fold(&data, life->out[r], i))
                fail_msg("%s, call %u: element %zu of rank %u is %g, not %g", scheds[0]->name, turn,
                         i, r, life->out[r][i], data_fold(&data, i));
}

/* ---- wrapping around ---- */

/* All channels of the lane are empty; their counters continue from `start`. */
static void age_channels(life_t *life, uint32_t start)
{
    for (uint32_t r = 0; r < life->team.world.n; r++) {
        shm_xport_t *x = self(life->team.xport[r]);

        for (size_t i = 0; i < ends_count(x); i++) {
            tutti__chan_t *chan = x->ends[i];

            if (chan == NULL || chan->key.lane != life->crew.lane)
                continue;
            assert_non_null(chan->ring);
            chan->count = chan->seen = start;
            tutti__store_relaxed(&chan->ring->head, start);
            tutti__store_relaxed(&chan->ring->tail, start);
        }
    }
}

/* Let the counters of nodes continue from `start`. No operation is in flight, so all ranks of a
   host have the same numbers. */
static void age_nodes(life_t *life, uint32_t start)
{
    for (uint32_t r = 0; r < life->team.world.n; r++) {
        tutti__shm_t *shm = (tutti__shm_t *)life->team.node[r];
        tutti__shm_lane_t *lane = &shm->lane[life->crew.lane];
        tutti__progress_t *own = lane->peer[shm->me].progress;

        assert_int_equal(lane->base, tutti__load_relaxed(&own->out));
        for (uint32_t seq = start - 1; seq != start + 1; seq++)
            tutti__store_relaxed(tutti__shm_seq(lane->peer[shm->me].announce[seq & 1]), seq);
        lane->seq = start;
        lane->base = start;
        tutti__store_relaxed(&own->in, start);
        tutti__store_relaxed(&own->red, start);
        tutti__store_relaxed(&own->out, start);
    }
}

static void across_the_wrap(const char *name, const shape_t *shape, uint32_t credits)
{
    static const size_t counts[] = { 3, 1000, 1, 3700, 12, 3700 };
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, name), .shape = shape };
    life_t *life = malloc(sizeof(*life));

    assert_non_null(life);
    set_build(&set);
    life_open(life, shape->shape.size, shape->host_of, credits, credits % TUTTI__LANES);
    for (uint32_t before = 0; before < 8; before++) {
        once(life, set.scheds, 40); /* channels are open now */
        age_channels(life, 0u - before);
        age_nodes(life, 0u - before);
        for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
            once(life, set.scheds, counts[i]);
    }
    life_close(life);
    set_free(&set);
    free(life);
}

static void wrap_all(uint32_t credits)
{
    static const uint32_t locals[] = { 2, 1 };
    shape_t *one = shape_even(1, 3), *two = shape_split(2, locals);

    across_the_wrap("node", one, credits);
    across_the_wrap("ring", one, credits);
    across_the_wrap("recursive_doubling", two, credits);
    across_the_wrap("hierarchical", two, credits);
    shape_free(two);
    shape_free(one);
}

static void test_wrap(void **state)
{
    (void)state;
    for (uint32_t credits = 1; credits <= 4; credits *= 2)
        wrap_all(credits);
}

/* 2^32 is no multiple of these numbers of credits. The slot after the wrap must still follow the
   slot before it. */
static void test_wrap_odd_credits(void **state)
{
    (void)state;
    wrap_all(3);
    wrap_all(5);
}

/* ---- no allocations ---- */

static void repeat(life_t *life, tutti__sched_t *const *scheds)
{
    unsigned long after_first;

    once(life, scheds, 600);
    after_first = allocations;
    for (size_t i = 0; i < 1000; i++)
        once(life, scheds, i % 50 == 0 ? 600 : 1 + i % 37);
    if (allocations != after_first)
        fail_msg("%s: %lu allocations in calls after the first", scheds[0]->name,
                 allocations - after_first);
}

static void test_allocations(void **state)
{
    static const uint32_t locals[] = { 2, 2 };
    static const char *const names[] = { "ring", "recursive_doubling", "hierarchical" };
    life_t *life = malloc(sizeof(*life));
    shape_t *shape = shape_split(2, locals);
    set_t sets[3];

    (void)state;
    assert_non_null(life);
    life_open(life, 4, shape->host_of, 4, 1);
    for (int i = 0; i < 3; i++) {
        sets[i] = (set_t){ .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, names[i]),
                           .shape = shape };
        set_build(&sets[i]);
        repeat(life, sets[i].scheds);
    }
    /* Alternating schedules reopen channels that are already open. */
    for (uint32_t i = 0; i < 300; i++) {
        unsigned long before = allocations;

        once(life, sets[i % 3].scheds, 1 + i);
        assert_int_equal(allocations, before);
    }
    life_close(life);
    for (int i = 0; i < 3; i++)
        set_free(&sets[i]);
    shape_free(shape);
    free(life);
}

static void test_allocations_hand_made(void **state)
{
    life_t *life = malloc(sizeof(*life));

    (void)state;
    assert_non_null(life);
    for (const hand_t *hand = hand_made; hand->name != NULL; hand++) {
        uint32_t n = TUTTI__MIN(hand->most_ranks, 3);
        tutti__sched_t *scheds[WORLD_RANKS];

        for (uint32_t r = 0; r < n; r++)
            assert_int_equal(hand->build(r, n, &scheds[r]), TUTTI_OK);
        life_open(life, n, NULL, 2, 0);
        repeat(life, scheds);
        life_close(life);
        for (uint32_t r = 0; r < n; r++)
            tutti__sched_free(scheds[r]);
    }
    free(life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_wrap_odd_credits),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_allocations_hand_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
