/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The learning rate at chosen steps, computed by hand.
 */
#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_schedule.h"

static void rises_and_falls(void **state)
{
    train_schedule_t schedule = {
        .kind = TRAIN_SCHEDULE_COSINE, .peak = 2.0, .warmup_steps = 10, .total_steps = 30
    };
    double before = 0.0;

    (void)state;
    for (size_t step = 0; step < 10; step++) {
        assert_true(train_schedule_rate(&schedule, step) > before);
        before = train_schedule_rate(&schedule, step);
    }
    assert_float_equal(train_schedule_rate(&schedule, 4), 0.5, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 9), 2.0, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 20), 1.0, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 25), 2.0 * 0.146446609, 1e-6);
    for (size_t step = 11; step < 30; step++) {
        assert_true(train_schedule_rate(&schedule, step) < before);
        before = train_schedule_rate(&schedule, step);
    }
    assert_true(before > 0.0);
}

static void stays(void **state)
{
    train_schedule_t schedule = {
        .kind = TRAIN_SCHEDULE_CONSTANT, .peak = 2.0, .warmup_steps = 10, .total_steps = 30
    };

    (void)state;
    assert_float_equal(train_schedule_rate(&schedule, 4), 0.5, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 29), 2.0, 0.0);
    schedule.warmup_steps = 0;
    assert_float_equal(train_schedule_rate(&schedule, 0), 2.0, 0.0);
}

/* Steps count from the beginning of the run, so they include those of the warmup. */
static void falls_in_steps(void **state)
{
    const train_schedule_t schedule = { .kind = TRAIN_SCHEDULE_STEP,
                                        .peak = 2.0,
                                        .warmup_steps = 4,
                                        .total_steps = 30,
                                        .decay_steps = 10,
                                        .decay = 0.25 };

    (void)state;
    assert_float_equal(train_schedule_rate(&schedule, 1), 0.5, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 4), 2.0, 0.0);
    assert_float_equal(train_schedule_rate(&schedule, 9), 2.0, 0.0);
    assert_float_equal(train_schedule_rate(&schedule, 10), 0.5, 1e-12);
    assert_float_equal(train_schedule_rate(&schedule, 19), 0.5, 1e-12);
    assert_float_equal(train_schedule_rate(&schedule, 20), 0.125, 1e-12);
    assert_float_equal(train_schedule_rate(&schedule, 29), 0.125, 1e-12);
}

static void scales_with_the_batch(void **state)
{
    (void)state;
    assert_float_equal(train_schedule_scale(TRAIN_SCALING_LINEAR, 0.5, 512, 128), 2.0, 1e-12);
    assert_float_equal(train_schedule_scale(TRAIN_SCALING_SQRT, 0.5, 512, 128), 1.0, 1e-12);
    assert_float_equal(train_schedule_scale(TRAIN_SCALING_LINEAR, 0.5, 32, 128), 0.125, 1e-12);
    assert_float_equal(train_schedule_scale(TRAIN_SCALING_SQRT, 0.5, 32, 128), 0.25, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rises_and_falls),
        cmocka_unit_test(stays),
        cmocka_unit_test(falls_in_steps),
        cmocka_unit_test(scales_with_the_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
