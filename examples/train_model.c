/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The perceptron's arithmetic. Matrix products are BLAS; everything else is a loop.
 *
 * With X the rows that enter a layer, W its weights and b its bias,
 *
 *     forward     Y = relu(X W + b)
 *     backward    dW = X' dY,  db = column sums of dY,  dX = dY W' where X > 0
 *
 * In the last layer softmax and cross-entropy together make dY = probabilities - one-hot label.
 */
#include "train_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#define ALIGN_FLOATS 16 /* each tensor begins on a cache line of its own */

/* Smaller probabilities count as 0: as floats they could become denormal, which is slow. */
#define TINY_PROBABILITY 1e-20

static size_t padded(size_t count)
{
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

/* `count` zeros, aligned. */
static float *make_floats(size_t count)
{
    const size_t bytes = padded(count) * sizeof(float);
    float *floats = aligned_alloc(ALIGN_FLOATS * sizeof(float), bytes);

    if (floats != NULL)
        memset(floats, 0, bytes);
    return floats;
}

static void layer_describe(train_layer_t *layer, size_t index, size_t inputs, size_t outputs)
{
    layer->inputs = inputs;
    layer->outputs = outputs;
    layer->weight.count = inputs * outputs;
    layer->bias.count = outputs;
    snprintf(layer->weight.name, sizeof(layer->weight.name), "layer%zu/weight", index + 1);
    snprintf(layer->bias.name, sizeof(layer->bias.name), "layer%zu/bias", index + 1);
}

bool train_model_create(const size_t *widths, size_t layer_count, size_t max_rows,
                        train_model_t *ret_model, train_error_t *error)
{
    train_model_t model = { .layer_count = layer_count };
    size_t widest = 0;
    bool complete = true;

    for (size_t i = 0; i < layer_count; i++) {
        train_layer_t *layer = &model.layers[i];

        layer_describe(layer, i, widths[i], widths[i + 1]);
        layer->activation = make_floats(max_rows * layer->outputs);
        complete = complete && layer->activation != NULL;
        widest = layer->outputs > widest ? layer->outputs : widest;
        model.parameter_count += padded(layer->weight.count) + padded(layer->bias.count);
    }
    model.parameters = make_floats(model.parameter_count);
    model.input = make_floats(max_rows * widths[0]);
    model.delta = make_floats(max_rows * widest);
    model.delta_below = make_floats(max_rows * widest);
    complete = complete && model.parameters != NULL && model.input != NULL && model.delta != NULL &&
               model.delta_below != NULL;

    if (!complete) {
        train_model_free(&model);
        *ret_model = model;
        return train_fail(error, "not enough memory for a model of %zu MB",
                          model.parameter_count * sizeof(float) >> 20);
    }

    float *next = model.parameters;
    for (size_t i = 0; i < layer_count; i++) {
        model.layers[i].weight.value = next;
        next += padded(model.layers[i].weight.count);
        model.layers[i].bias.value = next;
        next += padded(model.layers[i].bias.count);
    }
    *ret_model = model;
    return true;
}

void train_model_free(train_model_t *model)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        free(model->layers[i].activation);
        model->layers[i].activation = NULL;
    }
    free(model->parameters);
    free(model->input);
    free(model->delta);
    free(model->delta_below);
    model->parameters = model->input = model->delta = model->delta_below = NULL;
}

void train_model_place_gradients(train_model_t *model, float *gradients)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        train_layer_t *layer = &model->layers[i];

        layer->weight.gradient = gradients + (layer->weight.value - model->parameters);
        layer->bias.gradient = gradients + (layer->bias.value - model->parameters);
    }
}

void train_model_initialise(train_model_t *model, uint64_t seed)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        const train_layer_t *layer = &model->layers[i];
        const float deviation = sqrtf(2.0f / (float)layer->inputs);
        train_random_t random = train_random_make(seed, i);

        for (size_t j = 0; j < layer->weight.count; j++)
            layer->weight.value[j] = deviation * train_random_normal(&random);
        memset(layer->bias.value, 0, layer->bias.count * sizeof(float));
    }
}

/* output = input x weight + bias, and ReLU except in the last layer */
static void layer_forward(const train_layer_t *layer, const float *input, size_t rows, bool relu)
{
    const float *bias = layer->bias.value;
    const int inputs = (int)layer->inputs, outputs = (int)layer->outputs;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, outputs, inputs, 1.0f, input,
                inputs, layer->weight.value, outputs, 0.0f, layer->activation, outputs);

    for (size_t i = 0; i < rows; i++) {
        float *row = layer->activation + i * layer->outputs;

        for (size_t j = 0; j < layer->outputs; j++) {
            const float sum = row[j] + bias[j];

            row[j] = relu && sum < 0.0f ? 0.0f : sum;
        }
    }
}

/* Turn a row of scores into probabilities; add to the score how well they fit the label. */
static void softmax_row(float *row, size_t classes, size_t label, train_score_t *score)
{
    size_t best = 0;
    double total = 0.0;

    for (size_t j = 1; j < classes; j++)
        if (row[j] > row[best])
            best = j;
    const double highest = row[best];
    for (size_t j = 0; j < classes; j++)
        total += exp(row[j] - highest);

    score->loss += log(total) - (row[label] - highest);
    score->correct += best == label;

    for (size_t j = 0; j < classes; j++) {
        const double probability = exp(row[j] - highest) / total;

        row[j] = probability < TINY_PROBABILITY ? 0.0f : (float)probability;
    }
}

train_score_t train_model_forward(train_model_t *model, const uint8_t *labels, size_t rows)
{
    train_score_t score = { 0 };
    const train_layer_t *last = &model->layers[model->layer_count - 1];
    const float *input = model->input;

    if (rows == 0)
        return score;
    for (size_t i = 0; i < model->layer_count; i++) {
        const train_layer_t *layer = &model->layers[i];

        layer_forward(layer, input, rows, layer != last);
        input = layer->activation;
    }
    for (size_t i = 0; i < rows; i++)
        softmax_row(last->activation + i * last->outputs, last->outputs, labels[i], &score);
    return score;
}

/* dY of the last layer */
static void output_delta(const train_layer_t *last, const uint8_t *labels, size_t rows, float share,
                         float *delta)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < last->outputs; j++) {
            const size_t at = i * last->outputs + j;
            const float wanted = j == labels[i] ? 1.0f : 0.0f;

            delta[at] = (last->activation[at] - wanted) * share;
        }
}

/* dW and db, from dY and what had entered the layer */
static void layer_gradients(const train_layer_t *layer, const float *input, const float *delta,
                            size_t rows)
{
    const int inputs = (int)layer->inputs, outputs = (int)layer->outputs;
    float *bias = layer->bias.gradient;

    memset(bias, 0, layer->bias.count * sizeof(float));
    if (rows == 0) {
        memset(layer->weight.gradient, 0, layer->weight.count * sizeof(float));
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, inputs, outputs, (int)rows, 1.0f, input,
                inputs, delta, outputs, 0.0f, layer->weight.gradient, outputs);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < layer->outputs; j++)
            bias[j] += delta[i * layer->outputs + j];
}

/* dX, which is dY of the layer below: only where that layer's ReLU let something through */
static void layer_delta_below(const train_layer_t *layer, const float *input, const float *delta,
                              size_t rows, float *delta_below)
{
    const int inputs = (int)layer->inputs, outputs = (int)layer->outputs;

    if (rows == 0)
        return;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, inputs, outputs, 1.0f, delta,
                outputs, layer->weight.value, outputs, 0.0f, delta_below, inputs);
    for (size_t i = 0; i < rows * layer->inputs; i++)
        delta_below[i] = input[i] > 0.0f ? delta_below[i] : 0.0f;
}

void train_model_backward(train_model_t *model, const uint8_t *labels, size_t rows, float share,
                          train_ready_t *ready, void *context)
{
    float *delta = model->delta, *below = model->delta_below;

    output_delta(&model->layers[model->layer_count - 1], labels, rows, share, delta);
    for (size_t i = model->layer_count; i-- > 0;) {
        const train_layer_t *layer = &model->layers[i];
        const float *input = i > 0 ? model->layers[i - 1].activation : model->input;

        /* hand the gradients over before dX is computed: they travel meanwhile */
        layer_gradients(layer, input, delta, rows);
        ready(context, &layer->weight);
        ready(context, &layer->bias);

        if (i > 0) {
            layer_delta_below(layer, input, delta, rows, below);
            float *swap = delta;
            delta = below;
            below = swap;
        }
    }
}
