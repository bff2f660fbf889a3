/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradients of both models are compared with finite differences of a second forward pass, which
 * is written without matrix products and in double. Another test checks that the gradients of a
 * batch's parts add up to the gradients of the batch, on several ranks and on one rank.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_base.h"
#include "train_model.h"

#define ROWS 7
#define WIDEST 512 /* floats in a row of any layer */

static const train_plan_t mlp_plan = {
    .height = 1, .width = 6, .hidden = { 2, { 9, 5 } }, .classes = 4, .max_rows = ROWS
};

/* 5 x 6 pixels lose a row in the first pooling, and 2 x 3 pixels lose a column in the second */
static const train_plan_t cnn_plan = { .height = 5,
                                       .width = 6,
                                       .convolution = { 2, { 3, 4 } },
                                       .hidden = { 1, { 5 } },
                                       .classes = 4,
                                       .max_rows = ROWS };

typedef struct {
    const train_plan_t *plan;
    train_compute_t compute;
    train_model_t model;
    size_t inputs; /* floats per row */
    float *gradients;
    uint8_t labels[ROWS];
    char order[256]; /* names of tensors in the order in which they became ready */
} fixture_t;

static int set_up(void **state, const train_plan_t *plan)
{
    fixture_t *fixture = calloc(1, sizeof(*fixture));
    train_error_t error = { "" };
    train_random_t random = train_random_make(5, 5);

    if (fixture == NULL)
        return -1;
    train_cpu_open(&fixture->compute);
    if (!train_model_create(&fixture->compute, plan, &fixture->model, &error))
        return -1;
    fixture->plan = plan;
    fixture->inputs = plan->height * plan->width;
    fixture->gradients = calloc(fixture->model.parameter_count, sizeof(float));
    if (fixture->gradients == NULL)
        return -1;
    train_model_place_gradients(&fixture->model, fixture->gradients);
    train_model_initialise(&fixture->model, 11);

    /* biases must not be 0; otherwise their gradients would be tested at a special point */
    for (size_t i = 0; i < fixture->model.layer_count; i++) {
        train_layer_t *layer = &fixture->model.layers[i];

        for (size_t j = 0; j < layer->bias->count; j++)
            layer->bias->value[j] = 0.3f * train_random_normal(&random);
        layer->group = 2; /* as with large images: 7 rows in four groups */
    }
    float *input = fixture->model.input;
    for (size_t i = 0; i < ROWS * fixture->inputs; i++)
        input[i] = train_random_normal(&random);
    for (size_t i = 0; i < ROWS; i++)
        fixture->labels[i] = (uint8_t)(i * 3 % plan->classes);
    *state = fixture;
    return 0;
}

static int set_up_mlp(void **state)
{
    return set_up(state, &mlp_plan);
}

static int set_up_cnn(void **state)
{
    return set_up(state, &cnn_plan);
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

static void dense_row(size_t inputs, size_t outputs, const double *weight, const double *bias,
                      const double *in, double *out)
{
    for (size_t j = 0; j < outputs; j++) {
        out[j] = bias[j];
        for (size_t i = 0; i < inputs; i++)
            out[j] += in[i] * weight[i * outputs + j];
    }
}

/* One number of a convolution, from its definition. */
static double conv_at(const train_layer_t *layer, const double *weight, const double *in, size_t y,
                      size_t x, size_t filter)
{
    double sum = 0.0;

    for (size_t dy = 0; dy < 3; dy++)
        for (size_t dx = 0; dx < 3; dx++)
            for (size_t c = 0; c < layer->channels; c++) {
                const size_t at = ((dy * 3 + dx) * layer->channels + c) * layer->filters + filter;

                /* from -1 on; as unsigned, negative values are very large */
                if (y + dy - 1 < layer->height && x + dx - 1 < layer->width)
                    sum += weight[at] *
                           in[((y + dy - 1) * layer->width + x + dx - 1) * layer->channels + c];
            }
    return sum;
}

static void conv_row(const train_layer_t *layer, const double *weight, const double *bias,
                     const double *in, double *out)
{
    for (size_t y = 0; y < layer->height / 2; y++)
        for (size_t x = 0; x < layer->width / 2; x++)
            for (size_t f = 0; f < layer->filters; f++) {
                double most = -INFINITY;

                for (size_t i = 0; i < 4; i++)
                    most = fmax(most, conv_at(layer, weight, in, 2 * y + i / 2, 2 * x + i % 2, f));
                *out++ = most + bias[f];
            }
}

/* The loss of one row in double, with the model's shape and these parameters. */
static double row_loss(const train_model_t *model, const double *parameters, const float *input,
                       size_t label)
{
    double in[WIDEST], out[WIDEST];

    for (size_t i = 0; i < model->layers[0].inputs; i++)
        in[i] = input[i];
    for (size_t l = 0; l < model->layer_count; l++) {
        const train_layer_t *layer = &model->layers[l];
        const double *weight = parameters + (layer->weight->value - model->parameters);
        const double *bias = parameters + (layer->bias->value - model->parameters);

        if (layer->filters > 0)
            conv_row(layer, weight, bias, in, out);
        else
            dense_row(layer->inputs, layer->outputs, weight, bias, in, out);
        for (size_t j = 0; j < layer->outputs; j++)
            in[j] = out[j] < 0.0 ? 0.0 : out[j];
    }

    double total = 0.0;
    for (size_t j = 0; j < model->layers[model->layer_count - 1].outputs; j++)
        total += exp(out[j]);
    return log(total) - out[label];
}

static double batch_loss(const fixture_t *fixture, const double *parameters)
{
    double loss = 0.0;

    for (size_t i = 0; i < ROWS; i++)
        loss += row_loss(&fixture->model, parameters,
                         (float *)fixture->model.input + i * fixture->inputs, fixture->labels[i]);
    return loss;
}

static train_score_t pass(fixture_t *fixture, size_t rows, bool add)
{
    fixture->order[0] = '\0';
    train_score_t score = { 0 };
    train_model_forward(&fixture->model, fixture->labels, rows, &score);
    train_model_backward(&fixture->model, fixture->labels, rows, 1.0f / ROWS, add, note_ready,
                         fixture);
    return score;
}

static void gradients_are_finite_differences(void **state)
{
    fixture_t *fixture = *state;
    const train_model_t *model = &fixture->model;
    const double step = 1e-6;
    double *parameters = malloc(model->parameter_count * sizeof(double));
    size_t moved = 0, count = 0;

    assert_non_null(parameters);
    for (size_t i = 0; i < model->parameter_count; i++)
        parameters[i] = model->parameters[i];
    const train_score_t score = pass(fixture, ROWS, false);
    assert_float_equal(score.loss, batch_loss(fixture, parameters), 1e-4);

    for (size_t i = 0; i < model->tensor_count; i++)
        for (size_t j = 0; j < model->tensors[i].count; j++, count++) {
            const train_tensor_t *tensor = &model->tensors[i];
            double *parameter = parameters + (tensor->value - model->parameters) + j;
            const double middle = *parameter;

            *parameter = middle + step;
            const double above = batch_loss(fixture, parameters);
            *parameter = middle - step;
            const double below = batch_loss(fixture, parameters);
            *parameter = middle;

            const double wanted = (above - below) / (2.0 * step) / ROWS;
            if (fabs(tensor->gradient[j] - wanted) > 1e-6 + 1e-4 * fabs(wanted))
                fail_msg("%s %zu: gradient %.9g instead of %.9g", tensor->name, j,
                         tensor->gradient[j], wanted);
            moved += fabs(wanted) > 1e-4;
        }
    assert_true(moved > count / 2); /* if not, the output is constant, a useless test */
    free(parameters);
}

static void comes_from_the_last_layer(void **state)
{
    fixture_t *fixture = *state;
    char wanted[256] = "";

    for (size_t i = fixture->model.layer_count; i > 0; i--) {
        const size_t used = strlen(wanted);

        snprintf(wanted + used, sizeof(wanted) - used, "layer%zu/weight layer%zu/bias ", i, i);
    }
    pass(fixture, ROWS, false);
    assert_string_equal(fixture->order, wanted);
}

/* Move the rows from `first` on to the beginning of the arrays. A rank that has only these rows has
   them there. */
static void take_rows(fixture_t *fixture, const float *input, const uint8_t *labels, size_t first,
                      size_t rows)
{
    memcpy(fixture->model.input, input + first * fixture->inputs,
           rows * fixture->inputs * sizeof(float));
    memcpy(fixture->labels, labels + first, rows);
}

/* Compare the gradients of a batch with the sum of its parts' gradients. The sum is computed here,
   as several ranks do, or by the model, as one rank does. */
static void compare_parts(fixture_t *fixture, bool by_model)
{
    static const size_t cuts[] = { 0, 3, 3, 4, ROWS }; /* the second part is empty */
    const size_t count = fixture->model.parameter_count;
    double *sum = calloc(count, sizeof(double));
    float *whole = malloc(count * sizeof(float));
    float *input = malloc(ROWS * fixture->inputs * sizeof(float));
    uint8_t labels[ROWS];
    train_score_t score = { 0 };

    assert_true(sum != NULL && whole != NULL && input != NULL);
    memcpy(input, fixture->model.input, ROWS * fixture->inputs * sizeof(float));
    memcpy(labels, fixture->labels, sizeof(labels));
    const train_score_t whole_score = pass(fixture, ROWS, false);
    memcpy(whole, fixture->gradients, count * sizeof(float));

    for (size_t part = 0; part < 4; part++) {
        const size_t rows = cuts[part + 1] - cuts[part];

        take_rows(fixture, input, labels, cuts[part], rows);
        const train_score_t part_score = pass(fixture, rows, by_model && part > 0);
        score.loss += part_score.loss;
        score.correct += part_score.correct;
        assert_non_null(strstr(fixture->order, "layer1/bias"));
        for (size_t i = 0; i < count; i++) {
            if (rows == 0 && !by_model && fixture->gradients[i] != 0.0f)
                fail_msg("gradient %zu of no rows is %g", i, fixture->gradients[i]);
            sum[i] = by_model ? fixture->gradients[i] : sum[i] + fixture->gradients[i];
        }
    }
    assert_true(score.correct == whole_score.correct);
    assert_float_equal(score.loss, whole_score.loss, 1e-5);
    for (size_t i = 0; i < count; i++)
        if (fabs(sum[i] - whole[i]) > 1e-6)
            fail_msg("gradient %zu: parts give %.9g, the whole %.9g", i, sum[i], whole[i]);
    free(sum);
    free(whole);
    free(input);
}

static void parts_add_up(void **state)
{
    compare_parts(*state, false);
}

static void adds_parts_up(void **state)
{
    compare_parts(*state, true);
}

static void starts_as_he_said(void **state)
{
    static const train_plan_t plans[] = {
        { .height = 20, .width = 20, .hidden = { 1, { 300 } }, .classes = 10, .max_rows = 1 },
        { .height = 4, .width = 4, .convolution = { 1, { 8192 } }, .classes = 2, .max_rows = 1 },
    };
    static const size_t fan_in[] = { 400, 9 };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        train_error_t error = { "" };
        train_compute_t cpu;
        train_model_t model, again, other;
        double squares = 0.0;

        train_cpu_open(&cpu);
        assert_true(train_model_create(&cpu, &plans[i], &model, &error));
        assert_true(train_model_create(&cpu, &plans[i], &again, &error));
        assert_true(train_model_create(&cpu, &plans[i], &other, &error));
        train_model_initialise(&model, 1);
        train_model_initialise(&again, 1);
        train_model_initialise(&other, 2);

        const train_tensor_t *weight = model.layers[0].weight;
        for (size_t j = 0; j < weight->count; j++)
            squares += (double)weight->value[j] * weight->value[j];
        const double variance = 2.0 / (double)fan_in[i];
        assert_float_equal(squares / (double)weight->count, variance, 0.02 * variance);
        assert_memory_equal(model.parameters, again.parameters,
                            model.parameter_count * sizeof(float));
        assert_memory_not_equal(model.parameters, other.parameters,
                                model.parameter_count * sizeof(float));
        train_model_free(&model);
        train_model_free(&model);
        train_model_free(&again);
        train_model_free(&other);
    }
}

/* A certain model gives probabilities of 0, not denormal numbers, and a finite loss. */
static void stands_extreme_scores(void **state)
{
    fixture_t *fixture = *state;
    const train_layer_t *last = &fixture->model.layers[fixture->model.layer_count - 1];

    for (size_t j = 0; j < last->outputs; j++)
        last->bias->value[j] = j == 0 ? 3000.0f : -60.0f * (float)j;
    train_score_t score = { 0 };
    train_model_forward(&fixture->model, fixture->labels, ROWS, &score);
    const float *output = last->output;
    assert_true(isfinite(score.loss) && score.loss > 1000.0);
    for (size_t i = 0; i < ROWS * last->outputs; i++)
        assert_true(output[i] == 0.0f || output[i] == 1.0f);
}

static void refuses_what_cannot_be_halved(void **state)
{
    train_plan_t plan = cnn_plan;
    train_error_t error = { "" };
    train_compute_t cpu;
    train_model_t model;

    (void)state;
    train_cpu_open(&cpu);
    plan.height = 3; /* 3, 1, 0 */
    assert_false(train_model_create(&cpu, &plan, &model, &error));
    assert_string_equal(error.text, "images of 3x6 pixels are too small for 2 convolutions, each "
                                    "of which halves them");
    train_model_free(&model);
}

#define WITH_BOTH(test)                                                                            \
    { "mlp " #test, test, set_up_mlp, tear_down, NULL },                                           \
    {                                                                                              \
        "cnn " #test, test, set_up_cnn, tear_down, NULL                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BOTH(gradients_are_finite_differences),
        WITH_BOTH(comes_from_the_last_layer),
        WITH_BOTH(parts_add_up),
        WITH_BOTH(adds_parts_up),
        WITH_BOTH(stands_extreme_scores),
        cmocka_unit_test(starts_as_he_said),
        cmocka_unit_test(refuses_what_cannot_be_halved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
