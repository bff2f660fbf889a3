/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with every algorithm: p ranks in one thread, stepped in random and in adversarial
 * orders, over shared memory with slots so small that there are many trips.
 *
 * Results are compared with a sequential fold, and bit by bit between ranks; behind each buffer
 * stand bytes that nobody may touch. Each combination of shape, credits and slots is a team of its
 * own that does all algorithms with all counts one after the other, so channels and node lanes go
 * on with what the last one left. What does not multiply (type, operation, order, lane, root) takes
 * turns.
 */
#include "unit/coll/shapes.h"
#include "unit/exec/data.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GUARD 64
#define MOST_COUNT 5003
#define MOST_BYTES ((size_t)MOST_COUNT * WORLD_RANKS * 8 + GUARD)

typedef struct {
    team_t team;
    const shape_t *shape;
    void *shared[WORLD_RANKS][2]; /* in arenas: for zero-copy */
    uint32_t seed;
    char text[200];
} court_t;

typedef struct {
    set_t set;
    data_t data;
    size_t count;    /* of a rank */
    uint32_t shared; /* bit r: rank r's buffers are in its arena */
    void *in[WORLD_RANKS], *out[WORLD_RANKS];
} case_t;

/* ---- buffers ---- */

static size_t out_count(const case_t *c)
{
    int gathers = c->set.algorithm->collective == TUTTI__ALLGATHER;

    return gathers ? c->count * c->set.shape->shape.size : c->count;
}

static size_t esize(const case_t *c)
{
    return tutti_dtype_bytes(c->data.dtype);
}

static void *get_buffer(const court_t *court, const case_t *c, uint32_t rank, int is_out,
                        size_t count)
{
    size_t bytes = count * esize(c);
    char *buffer = c->shared >> rank & 1 ? court->shared[rank][is_out] : malloc(bytes + GUARD);

    assert_non_null(buffer);
    memset(buffer, 0xee, bytes + GUARD);
    return buffer;
}

static void fill(const case_t *c, void *buffer, uint32_t rank, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data_put(&c->data, buffer, rank, i);
}

static void get_buffers(const court_t *court, case_t *c)
{
    tutti__collective_t collective = c->set.algorithm->collective;

    for (uint32_t r = 0; r < c->set.shape->shape.size; r++) {
        c->out[r] = get_buffer(court, c, r, 1, out_count(c));
        if (collective == TUTTI__BROADCAST) {
            c->in[r] = c->out[r];
            if (r == c->set.root)
                fill(c, c->in[r], r, c->count);
            continue;
        }
        if (!c->set.in_place)
            c->in[r] = get_buffer(court, c, r, 0, c->count);
        else if (collective == TUTTI__ALLGATHER)
            c->in[r] = (char *)c->out[r] + r * c->count * esize(c);
        else
            c->in[r] = c->out[r];
        fill(c, c->in[r], r, c->count);
    }
}

static void free_buffers(const case_t *c)
{
    for (uint32_t r = 0; r < c->set.shape->shape.size; r++) {
        if (c->shared >> r & 1)
            continue;
        free(c->out[r]);
        if (!c->set.in_place && c->set.algorithm->collective != TUTTI__BROADCAST)
            free(c->in[r]);
    }
}

/* ---- results ---- */

static void check_guard(const court_t *court, const void *buffer, size_t bytes, uint32_t rank)
{
    for (size_t i = 0; i < GUARD; i++)
        if (((const uint8_t *)buffer)[bytes + i] != 0xee)
            fail_msg("%s: rank %u wrote behind a buffer", court->text, rank);
}

static void check_element(const court_t *court, const case_t *c, size_t i)
{
    const void *out = c->out[0];
    uint32_t from;
    size_t at;

    switch (c->set.algorithm->collective) {
    case TUTTI__ALLREDUCE:
        if (!data_is_fold(&c->data, out, i))
            fail_msg("%s: element %zu is %g, not %g", court->text, i, data_get(&c->data, out, i),
                     data_fold(&c->data, i));
        return;
    case TUTTI__BROADCAST:
        if (!data_is_from(&c->data, out, c->set.root, i))
            fail_msg("%s: element %zu is %g", court->text, i, data_get(&c->data, out, i));
        return;
    default:
        from = (uint32_t)(i / c->count);
        at = i % c->count;
        if (!data_is_from(&c->data, (const char *)out + from * c->count * esize(c), from, at))
            fail_msg("%s: element %zu from rank %u is %g", court->text, at, from,
                     data_get(&c->data, out, i));
    }
}

static void check_results(const court_t *court, const case_t *c)
{
    size_t bytes = out_count(c) * esize(c);

    for (size_t i = 0; i < out_count(c); i++)
        check_element(court, c, i);
    for (uint32_t r = 0; r < c->set.shape->shape.size; r++) {
        check_guard(court, c->out[r], bytes, r);
        if (memcmp(c->out[r], c->out[0], bytes) != 0)
            fail_msg("%s: ranks 0 and %u have different bits", court->text, r);
        if (c->set.in_place || c->set.algorithm->collective == TUTTI__BROADCAST)
            continue;
        check_guard(court, c->in[r], c->count * esize(c), r);
        for (size_t i = 0; i < c->count; i++)
            if (!data_is_from(&c->data, c->in[r], r, i))
                fail_msg("%s: rank %u wrote into element %zu of IN", court->text, r, i);
    }
}

/* ---- one call ---- */

static void set_calls(const case_t *c, tutti__exec_call_t *calls)
{
    size_t count = out_count(c);

    for (uint32_t r = 0; r < c->set.shape->shape.size; r++) {
        const void *in = c->in[r];

        /* IN is seen as block `rank`. */
        if (c->set.algorithm->collective == TUTTI__ALLGATHER)
            in = (const void *)((uintptr_t)in - r * c->count * esize(c));
        calls[r] = (tutti__exec_call_t){ .in = in,
                                         .out = c->out[r],
                                         .count = count,
                                         .dtype = c->data.dtype,
                                         .op = c->data.op,
                                         .signature = (uint32_t)count };
    }
}

static void draw_data(court_t *court, case_t *c)
{
    static const tutti_dtype_t dtypes[] = { TUTTI_FLOAT32, TUTTI_INT64, TUTTI_UINT8,
                                            TUTTI_BFLOAT16 };
    static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_AVG, TUTTI_MIN, TUTTI_MAX };
    uint32_t n = c->set.shape->shape.size;

    c->data.dtype = dtypes[random_next(&court->seed) % 4];
    c->data.op = ops[random_next(&court->seed) % 4];
    c->data.nranks = n;
    c->data.seed = court->seed;
    c->data.rough = (c->data.dtype == TUTTI_FLOAT32 || c->data.dtype == TUTTI_BFLOAT16) &&
                    random_next(&court->seed) % 2;
    /* All, none, or any. */
    c->shared = random_next(&court->seed) % 3 * 0xff / 2;
    if (c->shared == 0x7f)
        c->shared = random_next(&court->seed);
}

static void one_call(court_t *court, crew_t *crew, case_t *c)
{
    tutti__exec_call_t calls[WORLD_RANKS];
    order_t order = (order_t)(random_next(&court->seed) % ORDERS);

    draw_data(court, c);
    snprintf(court->text, sizeof(court->text),
             "%s:%s/%s on %s, %zu elements, %s, type %d, operation %d, lane %u",
             tutti__collective_name(c->set.algorithm->collective), c->set.algorithm->name,
             c->set.sub != NULL ? c->set.sub : "", court->shape->name, c->count,
             c->set.in_place ? "in place" : "out of place", (int)c->data.dtype, (int)c->data.op,
             crew->lane);
    get_buffers(court, c);
    set_calls(c, calls);
    crew_set(crew, c->set.scheds, calls);
    crew_finish(crew, order, court->seed, court->text);
    check_results(court, c);
    free_buffers(c);
}

static void one_barrier(court_t *court, crew_t *crew, case_t *c)
{
    tutti__exec_call_t calls[WORLD_RANKS];

    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        calls[r] = (tutti__exec_call_t){ .count = 1, .dtype = TUTTI_UINT8, .op = TUTTI_SUM };
    crew->meets = 1;
    for (int order = 0; order < ORDERS; order++) {
        snprintf(court->text, sizeof(court->text), "barrier:%s on %s", c->set.algorithm->name,
                 court->shape->name);
        crew_set(crew, c->set.scheds, calls);
        crew_finish(crew, (order_t)order, court->seed, court->text);
    }
}

/* ---- all calls ---- */

/* One schedule set with all counts. */
static void one_set(court_t *court, case_t *c)
{
    uint32_t n = c->set.shape->shape.size;
    size_t counts[] = { 1, 2, n - 1, n, n + 1, 63, 1000, MOST_COUNT };
    crew_t crew;

    set_build(&c->set);
    crew_open(&crew, &court->team, random_next(&court->seed) % TUTTI__LANES);
    if (c->set.algorithm->collective == TUTTI__BARRIER) {
        one_barrier(court, &crew, c);
    } else {
        for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
            c->count = counts[i];
            if (c->count > 0)
                one_call(court, &crew, c);
        }
    }
    crew_close(&crew);
    set_free(&c->set);
}

static void one_algorithm(court_t *court, const tutti__algorithm_t *algorithm)
{
    static const char *const no_subs[] = { NULL };
    const char *const *sub = algorithm->subs != NULL ? algorithm->subs : no_subs;
    case_t c = { .set = { .algorithm = algorithm, .shape = court->shape } };
    uint32_t n = court->shape->shape.size;

    if (algorithm->refuses != NULL && algorithm->refuses(&court->shape->shape) != NULL)
        return;
    do {
        c.set.sub = *sub;
        for (c.set.in_place = 0; c.set.in_place < 2; c.set.in_place++) {
            c.set.root = 0;
            if (algorithm->collective == TUTTI__BROADCAST)
                c.set.root = c.set.in_place ? n - 1 : random_next(&court->seed) % n;
            one_set(court, &c);
        }
    } while (*sub != NULL && *++sub != NULL);
}

static void one_team(const shape_t *shape, size_t slot_bytes, uint32_t credits, int is_lagging)
{
    uint32_t n = shape->shape.size;
    court_t court = { .shape = shape, .seed = n * 100 + credits + (uint32_t)slot_bytes };

    team_open(&court.team, n, shape->host_of, slot_bytes, credits, is_lagging);
    for (uint32_t r = 0; r < n; r++)
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                tutti__arena_alloc(court.team.world.arena[r], MOST_BYTES, &court.shared[r][i]),
                TUTTI_OK);
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++)
        one_algorithm(&court, a);
    team_close(&court.team);
}

static void one_shape(shape_t *shape)
{
    static const size_t slots[] = { 64, 128, 1000 };

    for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++)
        for (uint32_t credits = 1; credits <= 4; credits += credits)
            one_team(shape, slots[i], credits, 0);
    one_team(shape, 128, 3, 0);
    one_team(shape, 64, 2, 1);
    one_team(shape, 1000, 1, 1);
    shape_free(shape);
}

static void test_one_host(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= WORLD_RANKS; n++)
        one_shape(shape_even(1, n));
}

static void test_several_hosts(void **state)
{
    static const struct {
        uint32_t nhosts, locals[4];
    } splits[] = {
        { 2, { 1, 1 } }, { 3, { 1, 1, 1 } }, { 2, { 2, 2 } },    { 2, { 3, 2 } },
        { 2, { 4, 1 } }, { 2, { 5, 3 } },    { 3, { 2, 1, 3 } }, { 4, { 2, 2, 2, 2 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(splits) / sizeof(*splits); i++)
        one_shape(shape_split(splits[i].nhosts, splits[i].locals));
    /* Hosts whose ranks are not neighbours. */
    for (uint32_t seed = 1; seed <= 3; seed++)
        one_shape(shape_random(5 + seed, seed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_several_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
