/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with every algorithm: p ranks in one thread, stepped in random and in adversarial
 * orders, over shared memory with slots so small that there are many trips.
 *
 * model.h defines the results. Each combination of shape, credits and slots is a separate team that
 * runs all algorithms in sequence, so channels and node lanes continue from their state after the
 * last algorithm. Parameters that are not combined (count, type, operation, order, lane, root)
 * rotate.
 */
#include "unit/coll/shapes.h"
#include "long.h"
#include "unit/exec/lag.h"
#include "unit/exec/model.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    COUNTS = 3 /* of each set, drawn from a longer list */
};

typedef struct {
    team_t team;
    const shape_t *shape;
    char *buffers[2][WORLD_RANKS][2]; /* private buffers, and buffers in arenas, for zero-copy */
    uint32_t seed;
    char text[200];
} court_t;

/* ---- one call ---- */

static int has_node_ops(const tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nops; i++)
        if (sched->ops[i].kind >= TUTTI__NODE_ALLREDUCE)
            return 1;
    return 0;
}

static void draw_data(court_t *court, model_t *m)
{
    static const tutti_dtype_t dtypes[] = { TUTTI_FLOAT32, TUTTI_INT64, TUTTI_UINT8,
                                            TUTTI_BFLOAT16 };
    static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_MIN, TUTTI_MAX, TUTTI_AVG };

    m->data.dtype = dtypes[random_next(&court->seed) % 4];
    /* Scans have no average. */
    m->data.op = ops[random_next(&court->seed) % (model_is_scan(m->collective) ? 3 : 4)];
    m->data.nranks = m->n;
    m->data.seed = court->seed;
    m->data.rough = (m->data.dtype == TUTTI_FLOAT32 || m->data.dtype == TUTTI_BFLOAT16) &&
                    random_next(&court->seed) % 2;
}

/* The buffers of all ranks, of none, or of some are in arenas. */
static void choose_buffers(court_t *court, uint32_t n, char **in, char **out)
{
    uint32_t shared = random_next(&court->seed) % 3 * 0xff / 2;

    if (shared == 0x7f)
        shared = random_next(&court->seed);
    for (uint32_t r = 0; r < n; r++) {
        in[r] = court->buffers[shared >> r & 1][r][0];
        out[r] = court->buffers[shared >> r & 1][r][1];
    }
}

static void one_call(court_t *court, crew_t *crew, const set_t *set, size_t count)
{
    model_t model = { .collective = set->algorithm->collective,
                      .n = set->shape->shape.size,
                      .root = set->root,
                      .in_place = set->in_place };
    order_t order = (order_t)(random_next(&court->seed) % ORDERS);
    tutti__exec_call_t calls[WORLD_RANKS];
    char *in[WORLD_RANKS], *out[WORLD_RANKS];
    uint32_t meet = random_next(&court->seed) % 3 == 0 && !has_node_ops(set->scheds[0]);
    const char *wrong;

    model.unequal = model_has_tables(model.collective) ||
                    (model.collective == TUTTI__REDUCE_SCATTER && random_next(&court->seed) % 2);
    if (!model_lay_out(&model, count, &court->seed))
        return;
    draw_data(court, &model);
    snprintf(court->text, sizeof(court->text),
             "%s:%s/%s radix %u on %s, root %u, %zu elements, %s, type %d, operation %d, lane %u",
             tutti__collective_name(model.collective), set->algorithm->name,
             set->sub != NULL ? set->sub : "", set->radix, court->shape->name, set->root, count,
             set->in_place ? "in place" : "out of place", (int)model.data.dtype, (int)model.data.op,
             crew->lane);
    choose_buffers(court, model.n, in, out);
    model_fill(&model, in, out, calls);
    for (uint32_t r = 0; r < model.n; r++)
        calls[r].meet = (int)meet;
    crew_set(crew, set->scheds, calls);
    crew_finish(crew, order, court->seed, court->text);
    wrong = model_check(&model);
    if (wrong != NULL)
        fail_msg("%s: %s", court->text, wrong);
    model_free(&model);
}

static void one_barrier(court_t *court, crew_t *crew, const set_t *set)
{
    tutti__exec_call_t calls[WORLD_RANKS];

    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        calls[r] = (tutti__exec_call_t){ .count = 1, .dtype = TUTTI_UINT8, .op = TUTTI_SUM };
    crew->meets = 1;
    for (int order = 0; order < ORDERS; order++) {
        snprintf(court->text, sizeof(court->text), "barrier:%s on %s", set->algorithm->name,
                 court->shape->name);
        crew_set(crew, set->scheds, calls);
        crew_finish(crew, (order_t)order, court->seed, court->text);
    }
}

/* ---- all calls ---- */

/* Run one schedule set with some of the counts. */
static void one_set(void *arg, set_t *set)
{
    court_t *court = arg;
    uint32_t n = set->shape->shape.size;
    size_t counts[] = { 1, 2, n - 1, n, n + 1, 63, 700, 1000, 5003 };
    size_t ncounts = sizeof(counts) / sizeof(*counts), each = ncounts / COUNTS;
    crew_t crew;

    set_build(set);
    crew_open(&crew, &court->team, random_next(&court->seed) % TUTTI__LANES);
    if (set->algorithm->collective == TUTTI__BARRIER)
        one_barrier(court, &crew, set);
    for (size_t i = 0; i < COUNTS && set->algorithm->collective != TUTTI__BARRIER; i++)
        one_call(court, &crew, set, counts[i * each + random_next(&court->seed) % each]);
    crew_close(&crew);
    set_free(set);
}

static void one_team(const shape_t *shape, size_t slot_bytes, uint32_t credits, int is_lagging)
{
    uint32_t n = shape->shape.size;
    court_t court = { .shape = shape, .seed = n * 100 + credits + (uint32_t)slot_bytes };

    team_open(&court.team, n, shape->host_of, slot_bytes, credits, is_lagging);
    for (uint32_t r = 0; r < n; r++) {
        for (int i = 0; i < 2; i++) {
            void *shared;

            assert_int_equal(tutti__arena_alloc(court.team.world.arena[r], MODEL_BYTES, &shared),
                             TUTTI_OK);
            court.buffers[0][r][i] = malloc(MODEL_BYTES);
            court.buffers[1][r][i] = shared;
            assert_non_null(court.buffers[0][r][i]);
        }
    }
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++)
        model_each_set(a, shape, &court.seed, one_set, &court);
    for (uint32_t r = 0; r < n; r++)
        for (int i = 0; i < 2; i++)
            free(court.buffers[0][r][i]);
    team_close(&court.team);
}

static int whole; /* 0: the quick form */

static void one_shape(shape_t *shape)
{
    static const size_t slots[] = { 64, 128, 1000 };

    shape->shape.group_size = shape->shape.size % 2 == 0 ? 2 : 0;
    for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++) {
        if (!whole && shape->shape.size % 3 != i)
            continue;
        for (uint32_t credits = whole ? 1 : 1u << i; credits <= (whole ? 4 : 1u << i);
             credits += credits)
            one_team(shape, slots[i], credits, 0);
    }
    one_team(shape, 128, 3, 0);
    if (whole || shape->shape.size % 4 < 2)
        one_team(shape, 64, 2, 1);
    if (whole || shape->shape.size % 4 >= 2)
        one_team(shape, 1000, 1, 1);
    if (whole || shape->shape.size % 4 < 2)
        one_team(shape, 64, 1, LAG_ZERO_CREDITS);
    if (whole || shape->shape.size % 4 >= 2)
        one_team(shape, 1000, 2, LAG_ZERO_CREDITS);
    shape_free(shape);
}

static void test_one_host(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= (whole ? WORLD_RANKS : 5); n += whole ? 1 : 2)
        one_shape(shape_even(1, n));
}

static void test_several_hosts(void **state)
{
    static const struct {
        uint32_t nhosts, locals[4];
    } splits[] = {
        { 2, { 1, 1 } }, { 3, { 1, 1, 1 } }, { 2, { 3, 2 } },    { 2, { 2, 2 } },
        { 2, { 4, 1 } }, { 2, { 5, 3 } },    { 3, { 2, 1, 3 } }, { 4, { 2, 2, 2, 2 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(splits) / sizeof(*splits); i += whole ? 1 : 3)
        one_shape(shape_split(splits[i].nhosts, splits[i].locals));
    /* Hosts whose ranks are not neighbours. */
    for (uint32_t seed = 1; seed <= (whole ? 3 : 1); seed++)
        one_shape(shape_random(5 + seed, seed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_several_hosts),
    };

    whole = test_is_long("two thirds of the shapes, and eight of nine slots and credits");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
