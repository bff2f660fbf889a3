/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The perceptron's gradients, against finite differences of a second forward pass in double; that
 * the gradients of a batch's parts add up to the batch's; and the optimizer's arithmetic.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_base.h"
#include "train_model.h"
#include "train_optimizer.h"

#define ROWS 7
#define LAYERS 3
#define WIDEST 9

static const size_t widths[LAYERS + 1] = { 6, 9, 5, 4 };

typedef struct {
    train_model_t model;
    float *gradients;
    uint8_t labels[ROWS];
    char order[256]; /* names of tensors as they became ready */
} fixture_t;

static int set_up(void **state)
{
    fixture_t *fixture = calloc(1, sizeof(*fixture));
    train_error_t error = { "" };
    train_random_t random = train_random_make(5, 5);

    if (fixture == NULL || !train_model_create(widths, LAYERS, ROWS, &fixture->model, &error))
        return -1;
    fixture->gradients = calloc(fixture->model.parameter_count, sizeof(float));
    if (fixture->gradients == NULL)
        return -1;
    train_model_place_gradients(&fixture->model, fixture->gradients);
    train_model_initialise(&fixture->model, 11);

    /* biases other than 0, or their gradients would be tested at a special point */
    for (size_t i = 0; i < LAYERS; i++)
        for (size_t j = 0; j < fixture->model.layers[i].bias.count; j++)
            fixture->model.layers[i].bias.value[j] = 0.3f * train_random_normal(&random);
    for (size_t i = 0; i < ROWS * widths[0]; i++)
        fixture->model.input[i] = train_random_normal(&random);
    for (size_t i = 0; i < ROWS; i++)
        fixture->labels[i] = (uint8_t)(i * 3 % widths[LAYERS]);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    fixture_t *fixture = *state;

    train_model_free(&fixture->model);
    free(fixture->gradients);
    free(fixture);
    return 0;
}

static void note_ready(void *context, const train_tensor_t *tensor)
{
    fixture_t *fixture = context;

    strcat(fixture->order, tensor->name);
    strcat(fixture->order, " ");
}

/* The loss of one row in double, with the model's shape and these parameters. */
static double row_loss(const train_model_t *model, const double *parameters, const float *input,
                       size_t label)
{
    double in[WIDEST], out[WIDEST];

    for (size_t i = 0; i < widths[0]; i++)
        in[i] = input[i];
    for (size_t l = 0; l < LAYERS; l++) {
        const train_layer_t *layer = &model->layers[l];
        const double *weight = parameters + (layer->weight.value - model->parameters);
        const double *bias = parameters + (layer->bias.value - model->parameters);

        for (size_t j = 0; j < layer->outputs; j++) {
            out[j] = bias[j];
            for (size_t i = 0; i < layer->inputs; i++)
                out[j] += in[i] * weight[i * layer->outputs + j];
            if (l + 1 < LAYERS && out[j] < 0.0)
                out[j] = 0.0;
        }
        memcpy(in, out, sizeof(in));
    }

    double total = 0.0;
    for (size_t j = 0; j < widths[LAYERS]; j++)
        total += exp(out[j]);
    return log(total) - out[label];
}

static double batch_loss(const fixture_t *fixture, const double *parameters)
{
    double loss = 0.0;

    for (size_t i = 0; i < ROWS; i++)
        loss += row_loss(&fixture->model, parameters, fixture->model.input + i * widths[0],
                         fixture->labels[i]);
    return loss;
}

static void backward(fixture_t *fixture, size_t rows)
{
    fixture->order[0] = '\0';
    train_model_forward(&fixture->model, fixture->labels, rows);
    train_model_backward(&fixture->model, fixture->labels, rows, 1.0f / ROWS, note_ready, fixture);
}

static void gradients_are_finite_differences(void **state)
{
    fixture_t *fixture = *state;
    const size_t count = fixture->model.parameter_count;
    const double step = 1e-6;
    double *parameters = malloc(count * sizeof(double));

    assert_non_null(parameters);
    for (size_t i = 0; i < count; i++)
        parameters[i] = fixture->model.parameters[i];

    const train_score_t score = train_model_forward(&fixture->model, fixture->labels, ROWS);
    assert_float_equal(score.loss, batch_loss(fixture, parameters), 1e-4);

    backward(fixture, ROWS);
    assert_string_equal(fixture->order, "layer3/weight layer3/bias layer2/weight layer2/bias "
                                        "layer1/weight layer1/bias ");
    size_t moved = 0;
    for (size_t i = 0; i < LAYERS; i++) {
        const train_tensor_t tensors[] = { fixture->model.layers[i].weight,
                                           fixture->model.layers[i].bias };

        for (size_t k = 0; k < 2; k++)
            for (size_t j = 0; j < tensors[k].count; j++) {
                double *parameter = parameters + (tensors[k].value - fixture->model.parameters) + j;
                const double middle = *parameter;

                *parameter = middle + step;
                const double above = batch_loss(fixture, parameters);
                *parameter = middle - step;
                const double below = batch_loss(fixture, parameters);
                *parameter = middle;

                const double wanted = (above - below) / (2.0 * step) / ROWS;
                if (fabs(tensors[k].gradient[j] - wanted) > 1e-6 + 1e-4 * fabs(wanted))
                    fail_msg("%s %zu: gradient %.9g instead of %.9g", tensors[k].name, j,
                             tensors[k].gradient[j], wanted);
                moved += fabs(wanted) > 1e-4;
            }
    }
    assert_true(moved > count / 2); /* or the model is dead and the test says nothing */
    free(parameters);
}

/* Move the rows from `first` on to the front, as a rank that has them would see them. */
static void take_rows(fixture_t *fixture, const float *input, const uint8_t *labels, size_t first,
                      size_t rows)
{
    memcpy(fixture->model.input, input + first * widths[0], rows * widths[0] * sizeof(float));
    memcpy(fixture->labels, labels + first, rows);
}

static void parts_add_up(void **state)
{
    static const size_t cuts[] = { 0, 3, 3, 4, ROWS }; /* the second part is empty */
    fixture_t *fixture = *state;
    const size_t count = fixture->model.parameter_count;
    double *sum = calloc(count, sizeof(double));
    float *whole = malloc(count * sizeof(float));
    float input[ROWS * 6];
    uint8_t labels[ROWS];
    train_score_t score = { 0 };

    assert_non_null(sum);
    assert_non_null(whole);
    memcpy(input, fixture->model.input, sizeof(input));
    memcpy(labels, fixture->labels, sizeof(labels));
    const train_score_t whole_score = train_model_forward(&fixture->model, fixture->labels, ROWS);
    backward(fixture, ROWS);
    memcpy(whole, fixture->gradients, count * sizeof(float));

    for (size_t part = 0; part < 4; part++) {
        const size_t rows = cuts[part + 1] - cuts[part];

        take_rows(fixture, input, labels, cuts[part], rows);
        const train_score_t part_score =
            train_model_forward(&fixture->model, fixture->labels, rows);
        score.loss += part_score.loss;
        score.correct += part_score.correct;
        backward(fixture, rows);
        assert_non_null(strstr(fixture->order, "layer1/bias"));
        for (size_t i = 0; i < count; i++) {
            if (rows == 0 && fixture->gradients[i] != 0.0f)
                fail_msg("gradient %zu of no rows is %g", i, fixture->gradients[i]);
            sum[i] += fixture->gradients[i];
        }
    }
    assert_int_equal(score.correct, whole_score.correct);
    assert_float_equal(score.loss, whole_score.loss, 1e-5);
    for (size_t i = 0; i < count; i++)
        if (fabs(sum[i] - whole[i]) > 1e-6)
            fail_msg("gradient %zu: parts give %.9g, the whole %.9g", i, sum[i], whole[i]);
    free(sum);
    free(whole);
}

static void starts_as_he_said(void **state)
{
    static const size_t wide[] = { 400, 300, 10 };
    train_error_t error = { "" };
    train_model_t model, again, other;
    double squares = 0.0;

    (void)state;
    assert_true(train_model_create(wide, 2, 1, &model, &error));
    assert_true(train_model_create(wide, 2, 1, &again, &error));
    assert_true(train_model_create(wide, 2, 1, &other, &error));
    train_model_initialise(&model, 1);
    train_model_initialise(&again, 1);
    train_model_initialise(&other, 2);

    const train_tensor_t *weight = &model.layers[0].weight;
    for (size_t i = 0; i < weight->count; i++)
        squares += (double)weight->value[i] * weight->value[i];
    assert_float_equal(squares / (double)weight->count, 2.0 / 400, 1e-4);
    assert_memory_equal(model.parameters, again.parameters, model.parameter_count * sizeof(float));
    assert_memory_not_equal(model.parameters, other.parameters,
                            model.parameter_count * sizeof(float));
    train_model_free(&model);
    train_model_free(&model);
    train_model_free(&again);
    train_model_free(&other);
}

/* A sure model makes probabilities of 0, not denormal numbers, and a finite loss. */
static void stands_extreme_scores(void **state)
{
    fixture_t *fixture = *state;
    const train_layer_t *last = &fixture->model.layers[LAYERS - 1];

    for (size_t j = 0; j < last->outputs; j++)
        last->bias.value[j] = j == 0 ? 3000.0f : -60.0f * (float)j;
    const train_score_t score = train_model_forward(&fixture->model, fixture->labels, ROWS);
    assert_true(isfinite(score.loss) && score.loss > 1000.0);
    for (size_t i = 0; i < ROWS * last->outputs; i++)
        assert_true(last->activation[i] == 0.0f || last->activation[i] == 1.0f);
}

static void steps_with_momentum(void **state)
{
    train_error_t error = { "" };
    train_optimizer_t optimizer;
    float parameters[] = { 1.0f, -2.0f };
    const float gradients[] = { 0.5f, 0.25f };

    (void)state;
    assert_true(train_optimizer_create(2, 0.5f, 0.125f, &optimizer, &error));
    train_optimizer_step(&optimizer, parameters, gradients, 0.5f);
    /* v = 0.5 + 0.125, 0.25 - 0.25 */
    assert_true(parameters[0] == 0.6875f && parameters[1] == -2.0f);
    train_optimizer_step(&optimizer, parameters, gradients, 0.5f);
    /* v = 0.3125 + 0.5 + 0.0859375, 0 */
    assert_true(parameters[0] == 0.6875f - 0.44921875f && parameters[1] == -2.0f);
    train_optimizer_free(&optimizer);
    train_optimizer_free(&optimizer);
}

static void rate_rises_and_falls(void **state)
{
    train_schedule_t schedule = {
        .peak = 2.0, .warmup_steps = 10, .total_steps = 30, .cosine = true
    };
    float before = 0.0f;

    (void)state;
    for (size_t step = 0; step < 10; step++) {
        assert_true(train_schedule_rate(&schedule, step) > before);
        before = train_schedule_rate(&schedule, step);
    }
    assert_float_equal(train_schedule_rate(&schedule, 4), 0.5, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 9), 2.0, 1e-6);
    assert_float_equal(train_schedule_rate(&schedule, 20), 1.0, 1e-6);
    for (size_t step = 11; step < 30; step++) {
        assert_true(train_schedule_rate(&schedule, step) < before);
        before = train_schedule_rate(&schedule, step);
    }
    assert_true(before > 0.0f);

    schedule.cosine = false;
    assert_float_equal(train_schedule_rate(&schedule, 29), 2.0, 0.0);
    schedule.warmup_steps = 0;
    assert_float_equal(train_schedule_rate(&schedule, 0), 2.0, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gradients_are_finite_differences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_add_up, set_up, tear_down),
        cmocka_unit_test(starts_as_he_said),
        cmocka_unit_test_setup_teardown(stands_extreme_scores, set_up, tear_down),
        cmocka_unit_test(steps_with_momentum),
        cmocka_unit_test(rate_rises_and_falls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
