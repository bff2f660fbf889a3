/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces on device memory, over the pretend device: on several hosts and on one, with each
 * algorithm between hosts, from one element to many chunks of many messages each.
 */
#include "unit/exec/devteam.h"
#include "long.h"

#include "base/status.h"
#include "unit/exec/far.h"
#include "unit/exec/lag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const devteam_options_t small = { .slot_bytes = 256,
                                         .chunk_bytes = 2048,
                                         .stage_bytes = 16384,
                                         .credits = 2,
                                         .buffer_bytes = 65536 };

static const uint32_t shapes[][4] = { { 2, 2 },    { 1, 1 }, { 3, 2 }, { 1, 1, 1, 1 }, { 1, 1, 1 },
                                      { 2, 1, 2 }, { 4 },    { 1 },    { 2, 2, 2, 2 }, { 1, 3 } };
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

static shape_t *shape_of(size_t i)
{
    uint32_t nhosts = 0;

    while (nhosts < 4 && shapes[i][nhosts] != 0)
        nhosts++;
    return shape_split(nhosts, shapes[i]);
}

#define LEFT_OUT "seven of ten sizes, and in place or not by turns"

static int whole; /* 0: the quick form */

static int32_t value(uint32_t r, size_t i)
{
    return (int32_t)((i * 7 + r * 13) % 101);
}

static void put(char *at, tutti_dtype_t dtype, size_t i, double v)
{
    int32_t full = (int32_t)v;
    int16_t half = (int16_t)v;
    float single = (float)v;

    if (dtype == TUTTI_INT32)
        memcpy(at + i * sizeof(full), &full, sizeof(full));
    else if (dtype == TUTTI_INT16)
        memcpy(at + i * sizeof(half), &half, sizeof(half));
    else if (dtype == TUTTI_FLOAT32)
        memcpy(at + i * sizeof(single), &single, sizeof(single));
    else
        memcpy(at + i * sizeof(v), &v, sizeof(v));
}

static double expected(uint32_t n, size_t i, tutti_op_t op)
{
    double v = value(0, i);

    for (uint32_t r = 1; r < n; r++)
        v = op == TUTTI_MAX ? TUTTI__MAX(v, value(r, i)) : v + value(r, i);
    /* As in the library's own kernels: multiplied by 1/n in float32. */
    return op == TUTTI_AVG ? (double)((float)v * (1.0f / (float)n)) : v;
}

static void fill(devteam_t *team, size_t count, tutti_dtype_t dtype)
{
    char *rubbish = team->pinned[0];

    devteam_settle(team);
    memset(rubbish, 0xa5, team->options.buffer_bytes);
    for (uint32_t r = 0; r < team->world.n; r++) {
        pretend_write(team->in[r], rubbish, team->options.buffer_bytes);
        pretend_write(team->out[r], rubbish, team->options.buffer_bytes);
    }
    for (uint32_t r = 0; r < team->world.n; r++)
        for (size_t i = 0; i < count; i++)
            put(team->pinned[r], dtype, i, value(r, i));
}

/* Results are correct, and memory behind them is unchanged. */
static void look(devteam_t *team, const set_t *set, size_t count, tutti_dtype_t dtype,
                 tutti_op_t op)
{
    size_t bytes = count * tutti_dtype_bytes(dtype);
    static char want[65536], have[65536];

    memset(want, 0xa5, sizeof(want));
    for (size_t i = 0; i < count; i++)
        put(want, dtype, i, expected(team->world.n, i, op));
    for (uint32_t r = 0; r < team->world.n; r++) {
        if (team->status[r] != TUTTI_OK)
            fail_msg("%s/%s on %s, %zu elements, rank %u: %s", set->algorithm->name, set->sub,
                     set->shape->name, count, r, team->error[r]);
        pretend_read(have, set->in_place ? team->in[r] : team->out[r], sizeof(have));
        for (size_t i = 0; i < sizeof(have); i++)
            if (have[i] != want[i])
                fail_msg("%s/%s on %s, %zu elements, rank %u: byte %zu of %zu is wrong",
                         set->algorithm->name, set->sub, set->shape->name, count, r, i, bytes);
    }
}

static void make(devteam_t *team, const set_t *set, size_t count, tutti_dtype_t dtype,
                 tutti_op_t op, void (*run)(devteam_t *team))
{
    fill(team, count, dtype);
    devteam_set(team, set->scheds, count, dtype, op, set->in_place);
    run(team);
}

static void sizes(devteam_t *team, const set_t *set, void (*run)(devteam_t *team))
{
    static const size_t counts[] = { 1, 2, 5, 63, 64, 100, 513, 2049, 7777, 16384 };

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i += whole ? 1 : 4) {
        make(team, set, counts[i], TUTTI_INT32, TUTTI_SUM, run);
        look(team, set, counts[i], TUTTI_INT32, TUTTI_SUM);
    }
    make(team, set, 3001, TUTTI_FLOAT32, TUTTI_AVG, run);
    if ((team->world.n & (team->world.n - 1)) == 0)
        look(team, set, 3001, TUTTI_FLOAT32, TUTTI_AVG);
    if (team->options.gpu_direct_bytes > 0 && team->shape->shape.nhosts > 1)
        assert_int_equal(far_messages() > 0, set->scheds[0]->scratch_blocks == 0);
    make(team, set, 3001, TUTTI_FLOAT64, TUTTI_MAX, run);
    look(team, set, 3001, TUTTI_FLOAT64, TUTTI_MAX);
    assert_int_equal(far_messages(), 0); /* only sums are sent from device memory */
}

static void shape_all(shape_t *shape, const devteam_options_t *options,
                      void (*run)(devteam_t *team))
{
    static devteam_t team;
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .shape = shape,
                  .on_device = 1 };

    devteam_open(&team, shape, options);
    pretend_delays(shape->shape.size, 20);
    for (int i = 0; set.algorithm->subs[i] != NULL; i++) {
        set.sub = set.algorithm->subs[i];
        for (set.in_place = 0; set.in_place < 2; set.in_place++) {
            if (!whole && set.in_place != (i + (int)shape->shape.size) % 2)
                continue;
            set_build(&set);
            sizes(&team, &set, run);
            set_free(&set);
        }
        if (shape->shape.nhosts == 1)
            break;
    }
    for (uint32_t r = 0; options->is_lagging && r < team.world.n; r++)
        assert_int_equal(lag_missing(team.lag[r]), 0);
    for (uint32_t r = 0; options->gpu_direct_bytes > 0 && r < team.world.n; r++)
        assert_int_equal(far_missing(team.far[r]), 0);
    devteam_close(&team);
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++)
        shape_all(shape_of(i), &small, devteam_threads);
}

/* Every message is expected, and is read as late as possible. */
static void test_turns(void **state)
{
    devteam_options_t lagging = small;

    (void)state;
    lagging.is_lagging = 1;
    lagging.credits = 1;
    for (size_t i = 0; i < 6; i++)
        shape_all(shape_of(i), &lagging, devteam_turns);
}

/* A single rank copies from IN to OUT, without a node operation. */
static void test_alone(void **state)
{
    static devteam_t team;
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "ring"),
                  .shape = shape_even(1, 1),
                  .on_device = 1 };

    (void)state;
    devteam_open(&team, shape_even(1, 1), &small);
    pretend_delays(1, 200);
    for (set.in_place = 0; set.in_place < 2; set.in_place++) {
        set_build(&set);
        assert_true(set.scheds[0]->on_device);
        sizes(&team, &set, devteam_threads);
        set_free(&set);
    }
    devteam_close(&team);
    shape_free((shape_t *)(uintptr_t)set.shape);
}

/* Calls on host memory with as many elements, before and after those on the device. */
static void host_between(const devteam_options_t *options)
{
    static devteam_t team;
    static char in[4][65536], out[4][65536];
    shape_t *shape = shape_even(2, 2);
    set_t device = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                     .sub = "ring",
                     .shape = shape,
                     .on_device = 1 };
    set_t host = device;

    host.on_device = 0;
    set_build(&device);
    set_build(&host);
    devteam_open(&team, shape, options);
    for (int i = 0; i < 6; i++) {
        make(&team, &device, 16384, TUTTI_INT32, TUTTI_SUM, devteam_turns);
        look(&team, &device, 16384, TUTTI_INT32, TUTTI_SUM);
        devteam_set(&team, host.scheds, 16384, TUTTI_INT32, TUTTI_SUM, 0);
        for (uint32_t r = 0; r < 4; r++) {
            memcpy(in[r], team.pinned[r], sizeof(in[r]));
            team.call[r].in = in[r];
            team.call[r].out = out[r];
            team.call[r].on_device = 0;
        }
        devteam_turns(&team);
        for (uint32_t r = 0; r < 4; r++) {
            char want[4];

            assert_int_equal(team.status[r], TUTTI_OK);
            for (size_t k = 0; k < 16384; k++) {
                put(want, TUTTI_INT32, 0, expected(4, k, TUTTI_SUM));
                assert_memory_equal(out[r] + 4 * k, want, 4);
            }
        }
    }
    set_free(&host);
    set_free(&device);
    devteam_close(&team);
}

static void test_host_between(void **state)
{
    (void)state;
    host_between(&small);
}

/* NCCL does not serve the type: all ranks report it, no message is expected, and the
   lane continues. */
static void test_not_served(void **state)
{
    static devteam_t team;
    devteam_options_t lagging = small;
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .sub = "ring",
                  .shape = shape,
                  .on_device = 1 };

    (void)state;
    lagging.is_lagging = 1;
    set_build(&set);
    devteam_open(&team, shape, &lagging);
    for (int i = 0; i < 2; i++) {
        make(&team, &set, 1000, TUTTI_INT16, TUTTI_SUM, devteam_turns);
        for (uint32_t r = 0; r < team.world.n; r++) {
            assert_int_equal(team.status[r], TUTTI_ERR_UNSUPPORTED);
            assert_true(tutti__run_untouched(&team.run[r]));
            assert_int_equal(lag_missing(team.lag[r]), 0);
            tutti__run_cancel(&team.run[r]);
        }
        make(&team, &set, 1000, TUTTI_INT32, TUTTI_SUM, devteam_turns);
        look(&team, &set, 1000, TUTTI_INT32, TUTTI_SUM);
    }
    set_free(&set);
    devteam_close(&team);
}

/* If the stage is too small for any chunk, all ranks detect this at the start. */
static void test_small_stage(void **state)
{
    static devteam_t team;
    devteam_options_t options = small;
    shape_t *shape = shape_even(2, 1);
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .sub = "ring",
                  .shape = shape,
                  .on_device = 1 };

    (void)state;
    options.stage_bytes = 4 * 2 * 64 - 1;
    set_build(&set);
    devteam_open(&team, shape, &options);
    make(&team, &set, 1000, TUTTI_INT32, TUTTI_SUM, devteam_turns);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(team.status[r], TUTTI_ERR_UNSUPPORTED);
        assert_true(tutti__run_untouched(&team.run[r]));
    }
    set_free(&set);
    devteam_close(&team);
}

/* If a call is cancelled in the middle, its copies end, and no device work is left. */
static void test_cancel(void **state)
{
    static devteam_t team;
    shape_t *shape = shape_even(2, 1);
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .sub = "ring",
                  .shape = shape,
                  .on_device = 1 };
    tutti__hint_t hint;
    tutti__run_t *run = &team.run[0];

    (void)state;
    set_build(&set);
    devteam_open(&team, shape, &small);
    fill(&team, 16384, TUTTI_INT32);
    devteam_set(&team, set.scheds, 16384, TUTTI_INT32, TUTTI_SUM, 0);
    pretend_rates(1e6, 0); /* 2 ms for a chunk */
    assert_int_equal(pretend_device()->use(0), TUTTI_OK);
    assert_int_equal(tutti__run_start(run, set.scheds[0], &team.call[0]), TUTTI_OK);
    assert_int_equal(tutti__run_step(run, &hint), TUTTI__AGAIN);
    assert_null(hint.word);
    assert_int_equal(hint.peer, -1);
    tutti__run_cancel(run);
    for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
        assert_int_equal(pretend_device()->query(team.device[0].lane[2].copied[s]), TUTTI_OK);
    set_free(&set);
    devteam_close(&team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_turns),
        cmocka_unit_test(test_alone),      cmocka_unit_test(test_host_between),
        cmocka_unit_test(test_not_served), cmocka_unit_test(test_small_stage),
        cmocka_unit_test(test_cancel),
    };

    whole = test_is_long(LEFT_OUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
