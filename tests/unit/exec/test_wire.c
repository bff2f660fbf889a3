/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire formats: sums and averages of float32 whose messages to other hosts are of a narrower type,
 * with every algorithm of allreduce, reduce and reduce_scatter. All ranks get the same bits, the
 * error is at most the one in docs/performance.md, only messages to other hosts are shorter, and IN
 * is not written.
 */
#include "long.h"
#include "unit/coll/shapes.h"
#include "unit/exec/lag.h"
#include "unit/exec/model.h"
#include "unit/exec/team.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    tutti_dtype_t dtype;
    /* unit: the largest relative error of a rounding. least: the largest absolute error of the
       rounding of a tiny number. */
    double unit, least;
} format_t;

static const format_t formats[] = {
    { TUTTI_BFLOAT16, 1.0 / (1 << 8), 0 },
    { TUTTI_FLOAT16, 1.0 / (1 << 11), 1.0 / (1 << 25) },
    { TUTTI_FLOAT8_E4M3, 1.0 / (1 << 4), 1.0 / (1 << 10) },
};

/* ---- the bytes of messages ---- */

static const tutti__xport_ops_t *real_ops;
static size_t sent_bytes;

static tutti_status_t counting_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                    uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    tutti_status_t status = real_ops->send(chan, data, bytes, signature, ret_pending, hint);

    sent_bytes += status == TUTTI_OK ? bytes : 0;
    return status;
}

/* Let each rank's transport, which is the same for all its peers, count the bytes it sends. ops:
   filled in; lives as long as the team. */
static void count_bytes(team_t *team, tutti__xport_ops_t *ops)
{
    uint32_t n = team->world.n;

    real_ops = team->table[0][n - 1]->ops;
    *ops = *real_ops;
    ops->send = counting_send;
    for (uint32_t r = 0; r < n; r++)
        team->table[r][r == 0 ? n - 1 : 0]->ops = ops;
}

/* ---- calls ---- */

typedef struct {
    team_t team;
    tutti__xport_ops_t ops;
    const shape_t *shape;
    size_t slot_bytes;
    char *buffers[WORLD_RANKS][2];
    uint32_t seed;
} court_t;

static uint32_t log2_up(uint32_t n)
{
    uint32_t log = 0;

    while ((1u << log) < n)
        log++;
    return log;
}

/* The largest number of roundings of a contribution on its way to the result. */
static uint32_t roundings(const set_t *set)
{
    uint32_t nhosts = set->shape->shape.nhosts;

    if (strcmp(set->algorithm->name, "hierarchical") != 0)
        return set->shape->shape.size;
    return strcmp(set->sub, "ring") == 0 ? nhosts : 1 + log2_up(nhosts);
}

/* Do all messages go to other hosts? */
static int all_far(const set_t *set)
{
    const tutti__shape_t *shape = &set->shape->shape;

    for (uint32_t r = 0; r < shape->size; r++)
        for (uint32_t i = 0; i < set->scheds[r]->nchans; i++)
            if (shape->host_of[set->scheds[r]->chans[i].peer] == shape->host_of[r])
                return 0;
    return 1;
}

static void run(court_t *court, crew_t *crew, const set_t *set, model_t *model, tutti_dtype_t wire,
                const char *text)
{
    order_t order = (order_t)(random_next(&court->seed) % ORDERS);
    tutti__exec_call_t calls[WORLD_RANKS];
    char *in[WORLD_RANKS], *out[WORLD_RANKS];

    for (uint32_t r = 0; r < model->n; r++) {
        in[r] = court->buffers[r][0];
        out[r] = court->buffers[r][1];
    }
    model_fill(model, in, out, calls);
    for (uint32_t r = 0; r < model->n; r++)
        calls[r].wire = wire;
    sent_bytes = 0;
    crew_set(crew, set->scheds, calls);
    crew_finish(crew, order, court->seed, text);
}

/* Does another rounding leave the result unchanged? For a reduce_scatter, the result is rank 0's
   block. */
static int is_exact(const model_t *model, const format_t *format)
{
    const float *out = (const float *)(void *)model->out[model->root].buffer;
    size_t begin = model->collective == TUTTI__REDUCE_SCATTER ? model->out[0].table[0] : 0;
    size_t end =
        model->collective == TUTTI__REDUCE_SCATTER ? model->out[0].table[1] : model->out[0].count;

    if (model->collective == TUTTI__REDUCE_SCATTER)
        out = (const float *)(void *)model->out[0].buffer;
    for (size_t i = begin; i < end; i++) {
        uint16_t code;
        float back;

        tutti__reduce_narrow(&code, &out[i], 1, format->dtype);
        tutti__reduce_widen(&back, &code, 1, format->dtype);
        if (memcmp(&back, &out[i], sizeof(back)) != 0)
            return 0;
    }
    return 1;
}

static void one_call(court_t *court, crew_t *crew, const set_t *set, size_t count)
{
    const format_t *format = &formats[random_next(&court->seed) % 3];
    model_t model = { .collective = set->algorithm->collective,
                      .n = set->shape->shape.size,
                      .root = set->root,
                      .in_place = set->in_place,
                      .data = { .dtype = TUTTI_FLOAT32,
                                .op = random_next(&court->seed) % 2 ? TUTTI_SUM : TUTTI_AVG,
                                .nranks = set->shape->shape.size,
                                .seed = court->seed,
                                .rough = 1,
                                .roundings = roundings(set),
                                .unit = format->unit,
                                .least = format->least } };
    char text[200];
    const char *wrong;
    size_t wide_bytes;

    model.unequal = model.collective == TUTTI__REDUCE_SCATTER && random_next(&court->seed) % 2;
    if (!model_lay_out(&model, count, &court->seed))
        return;
    snprintf(text, sizeof(text), "%s:%s/%s on %s, root %u, %zu elements, %s, as %s",
             tutti__collective_name(model.collective), set->algorithm->name,
             set->sub != NULL ? set->sub : "", court->shape->name, set->root, count,
             set->in_place ? "in place" : "out of place", tutti_dtype_name(format->dtype));
    run(court, crew, set, &model, (tutti_dtype_t)0, text);
    wide_bytes = sent_bytes;
    model_free(&model);

    run(court, crew, set, &model, format->dtype, text);
    wrong = model_check(&model);
    if (wrong == NULL && !is_exact(&model, format))
        wrong = "the result is not rounded to the format";
    if (wrong == NULL &&
        (all_far(set) ? sent_bytes != wide_bytes / sizeof(float) * tutti_dtype_bytes(format->dtype)
                      : sent_bytes >= wide_bytes))
        wrong = "wrong number of bytes";
    if (wrong != NULL)
        fail_msg("%s: %s", text, wrong);
    model_free(&model);
}

static void one_set(void *arg, set_t *set)
{
    court_t *court = arg;
    uint32_t n = set->shape->shape.size;
    /* The last one is longer than a tile of the conversions. */
    size_t counts[] = { 1, n + 1, court->slot_bytes > 4096 ? 5003 : 700 };
    crew_t crew;

    set_build(set);
    crew_open(&crew, &court->team, random_next(&court->seed) % TUTTI__LANES);
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        one_call(court, &crew, set, counts[i] + random_next(&court->seed) % 2);
    crew_close(&crew);
    set_free(set);
}

static int is_reduction(tutti__collective_t collective)
{
    return collective == TUTTI__ALLREDUCE || collective == TUTTI__ROOT_REDUCE ||
           collective == TUTTI__REDUCE_SCATTER;
}

static void one_team(const shape_t *shape, size_t slot_bytes, uint32_t credits, int is_lagging)
{
    uint32_t n = shape->shape.size;
    court_t court = { .shape = shape,
                      .slot_bytes = slot_bytes,
                      .seed = n * 100 + credits + (uint32_t)slot_bytes };

    assert_true(shape->shape.nhosts > 1);
    team_open(&court.team, n, shape->host_of, slot_bytes, credits, is_lagging);
    count_bytes(&court.team, &court.ops);
    for (uint32_t r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) {
            court.buffers[r][i] = malloc(MODEL_BYTES);
            assert_non_null(court.buffers[r][i]);
        }
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++)
        if (is_reduction(a->collective))
            model_each_set(a, shape, &court.seed, one_set, &court);
    for (uint32_t r = 0; r < n; r++)
        for (int i = 0; i < 2; i++)
            free(court.buffers[r][i]);
    team_close(&court.team);
}

static int whole; /* 0: the quick form, in which each shape has one of the four teams */

static void one_shape(shape_t *shape)
{
    uint32_t turn = shape->shape.size % 4;

    shape->shape.group_size = shape->shape.size % 2 == 0 ? 2 : 0;
    if (whole || turn == 0)
        one_team(shape, 64, 1, 0);
    if (whole || turn == 1)
        one_team(shape, 1000, 2, LAG_CREDITS);
    if (whole || turn == 2)
        one_team(shape, 5000, 3, 0);
    if (whole || turn == 3)
        one_team(shape, 128, 1, LAG_ZERO_CREDITS);
    shape_free(shape);
}

static void test_formats(void **state)
{
    static const struct {
        uint32_t nhosts, locals[8];
    } splits[] = {
        { 2, { 1, 1 } }, { 3, { 1, 1, 1 } }, { 2, { 3, 1 } },
        { 2, { 3, 2 } }, { 3, { 2, 1, 3 } }, { 7, { 1, 1, 1, 1, 1, 1, 1 } },
        { 2, { 4, 4 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(splits) / sizeof(*splits); i++)
        one_shape(shape_split(splits[i].nhosts, splits[i].locals));
    /* Hosts whose ranks are not neighbours. */
    one_shape(shape_random(6, 2));
    one_shape(shape_random(7, 3));
}

/* Numbers at the ends of the formats: infinite, NaN, and tiny ones. */
static void test_extremes(void **state)
{
    static const struct {
        tutti_dtype_t wire;
        float each, sum; /* each of two ranks contributes `each`; `sum` is the result */
    } cases[] = {
        { TUTTI_FLOAT16, 40000, (float)INFINITY },
        { TUTTI_FLOAT16, -40000, -(float)INFINITY },
        { TUTTI_FLOAT16, 30000, 60000 },
        { TUTTI_FLOAT8_E4M3, 240, (float)NAN },
        { TUTTI_FLOAT8_E4M3, 224, 448 },
        { TUTTI_FLOAT8_E4M3, (float)NAN, (float)NAN },
        { TUTTI_BFLOAT16, 3e38f, (float)INFINITY },
        { TUTTI_BFLOAT16, 1e-40f, 1.83671e-40f },
        { TUTTI_FLOAT16, 1e-9f, 0 },
    };
    shape_t *shape = shape_even(2, 1);
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .shape = shape };
    team_t team;
    crew_t crew;

    (void)state;
    set_build(&set);
    team_open(&team, 2, shape->host_of, 64, 2, 0);
    crew_open(&crew, &team, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        float in = cases[i].each, out[2];
        tutti__exec_call_t calls[2];

        for (int r = 0; r < 2; r++)
            calls[r] = (tutti__exec_call_t){ .in = &in,
                                             .out = &out[r],
                                             .count = 1,
                                             .dtype = TUTTI_FLOAT32,
                                             .op = TUTTI_SUM,
                                             .wire = cases[i].wire };
        crew_set(&crew, set.scheds, calls);
        crew_finish(&crew, ORDER_LOWEST, 1, "extremes");
        assert_memory_equal(&out[0], &out[1], sizeof(out[0]));
        if (isnan(cases[i].sum) ? !isnan(out[0])
                                : !(fabsf(out[0] - cases[i].sum) <= fabsf(cases[i].sum) / 64 ||
                                    out[0] == cases[i].sum))
            fail_msg("case %zu: %g", i, (double)out[0]);
    }
    crew_close(&crew);
    team_close(&team);
    set_free(&set);
    shape_free(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_extremes),
    };

    whole = test_is_long("three of four slots, credits and transports");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
