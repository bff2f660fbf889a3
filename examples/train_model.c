/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Building a model, and running its layers forward and backward.
 *
 * Softmax and cross-entropy together have the gradient probabilities - one-hot label, which is
 * where the backward pass begins.
 */
#include "train_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_FLOATS 16 /* each tensor begins on a cache line of its own */

/* Smaller probabilities count as 0: as floats they could become denormal, which is slow. */
#define TINY_PROBABILITY 1e-20

static size_t padded(size_t count)
{
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

/* Create the layers. Returns whether there was memory; those made so far are in the model. */
static bool make_layers(const train_plan_t *plan, train_model_t *model)
{
    const size_t convolutions = plan->convolution.count;
    size_t height = plan->height, width = plan->width, channels = 1;
    bool complete = true;

    model->layer_count = convolutions + plan->hidden.count + 1;
    for (size_t i = 0; i < model->layer_count; i++) {
        train_layer_t *layer = &model->layers[i];
        train_tensor_t *weight = &model->tensors[2 * i], *bias = weight + 1;
        bool made;

        if (i < convolutions) {
            made = train_conv_create(layer, height, width, channels, plan->convolution.items[i],
                                     plan->max_rows, weight, bias);
            height /= 2;
            width /= 2;
            channels = plan->convolution.items[i];
        } else {
            const size_t inputs = i > 0 ? layer[-1].outputs : height * width;
            const size_t j = i - convolutions;
            const size_t outputs = j < plan->hidden.count ? plan->hidden.items[j] : plan->classes;

            made = train_dense_create(layer, inputs, outputs, plan->max_rows, weight, bias);
        }
        snprintf(weight->name, sizeof(weight->name), "layer%zu/weight", i + 1);
        snprintf(bias->name, sizeof(bias->name), "layer%zu/bias", i + 1);
        bias->one_number = true;
        complete = complete && made;
    }
    model->tensor_count = 2 * model->layer_count;
    return complete;
}

/* Allocate the parameters, and what all layers share. */
static bool make_arrays(const train_plan_t *plan, train_model_t *model)
{
    size_t widest = 0;

    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].outputs > widest)
            widest = model->layers[i].outputs;
    for (size_t i = 0; i < model->tensor_count; i++)
        model->parameter_count += padded(model->tensors[i].count);

    model->parameters = train_floats(model->parameter_count);
    model->input = train_floats(plan->max_rows * model->layers[0].inputs);
    model->delta = train_floats(plan->max_rows * widest);
    model->delta_below = train_floats(plan->max_rows * widest);
    if (model->parameters == NULL)
        return false;

    float *next = model->parameters;
    for (size_t i = 0; i < model->tensor_count; i++) {
        model->tensors[i].value = next;
        next += padded(model->tensors[i].count);
    }
    return model->input != NULL && model->delta != NULL && model->delta_below != NULL;
}

bool train_model_create(const train_plan_t *plan, train_model_t *ret_model, train_error_t *error)
{
    const size_t halvings = plan->convolution.count;

    memset(ret_model, 0, sizeof(*ret_model));
    if (plan->height >> halvings == 0 || plan->width >> halvings == 0)
        return train_fail(error,
                          "images of %zux%zu pixels are too small for %zu convolutions, "
                          "each of which halves them",
                          plan->height, plan->width, halvings);

    const bool layers_made = make_layers(plan, ret_model);
    const bool arrays_made = make_arrays(plan, ret_model);
    if (!layers_made || !arrays_made) {
        const size_t megabytes = ret_model->parameter_count * sizeof(float) >> 20;

        train_model_free(ret_model);
        return train_fail(error, "not enough memory for a model of %zu MB", megabytes);
    }
    return true;
}

void train_model_free(train_model_t *model)
{
    for (size_t i = 0; i < model->layer_count; i++)
        train_layer_free(&model->layers[i]);
    free(model->parameters);
    free(model->input);
    free(model->delta);
    free(model->delta_below);
    memset(model, 0, sizeof(*model));
}

void train_model_place_gradients(train_model_t *model, float *gradients)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        model->tensors[i].gradient = gradients + (model->tensors[i].value - model->parameters);
}

void train_model_initialise(train_model_t *model, uint64_t seed)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        const train_layer_t *layer = &model->layers[i];
        const float deviation = sqrtf(2.0f / (float)layer->fan_in);
        train_random_t random = train_random_make(seed, i);

        for (size_t j = 0; j < layer->weight->count; j++)
            layer->weight->value[j] = deviation * train_random_normal(&random);
        memset(layer->bias->value, 0, layer->bias->count * sizeof(float));
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

        layer->ops->forward(layer, input, rows, layer != last);
        input = layer->output;
    }
    for (size_t i = 0; i < rows; i++)
        softmax_row(last->output + i * last->outputs, last->outputs, labels[i], &score);
    return score;
}

/* The gradient by the sums that the last layer computes. */
static void output_delta(const train_layer_t *last, const uint8_t *labels, size_t rows, float share,
                         float *delta)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < last->outputs; j++) {
            const size_t at = i * last->outputs + j;
            const float wanted = j == labels[i] ? 1.0f : 0.0f;

            delta[at] = (last->output[at] - wanted) * share;
        }
}

void train_model_backward(train_model_t *model, const uint8_t *labels, size_t rows, float share,
                          bool add, train_ready_t *ready, void *context)
{
    float *delta = model->delta, *below = model->delta_below;

    output_delta(&model->layers[model->layer_count - 1], labels, rows, share, delta);
    for (size_t i = model->layer_count; i-- > 0;) {
        const train_layer_t *layer = &model->layers[i];
        const float *input = i > 0 ? model->layers[i - 1].output : model->input;

        /* hand the gradients over before dX is computed: they travel meanwhile */
        layer->ops->gradients(layer, input, delta, rows, add);
        if (ready != NULL) {
            ready(context, layer->weight);
            ready(context, layer->bias);
        }

        if (i > 0 && rows > 0) {
            layer->ops->delta_below(layer, input, delta, rows, below);
            float *swap = delta;
            delta = below;
            below = swap;
        }
    }
}
