/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Building a model, and running its layers forward and backward.
 *
 * The backward pass begins with the gradient of softmax and cross-entropy together, which is
 * probabilities - one-hot label.
 */
#include "train_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_FLOATS 16 /* each tensor begins on a cache line of its own */

static size_t padded(size_t count)
{
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

/* Create the layers. False: no memory; the layers created so far are in the model. */
static bool make_layers(const train_plan_t *plan, train_model_t *model)
{
    train_compute_t *compute = model->compute;
    const size_t convolutions = plan->convolution.count;
    size_t height = plan->height, width = plan->width, channels = 1;
    bool complete = true;

    model->layer_count = convolutions + plan->hidden.count + 1;
    for (size_t i = 0; i < model->layer_count; i++) {
        train_layer_t *layer = &model->layers[i];
        train_tensor_t *weight = &model->tensors[2 * i], *bias = weight + 1;
        bool made;

        if (i < convolutions) {
            made = train_conv_create(compute, layer, height, width, channels,
                                     plan->convolution.items[i], plan->max_rows, weight, bias);
            height /= 2;
            width /= 2;
            channels = plan->convolution.items[i];
        } else {
            const size_t inputs = i > 0 ? layer[-1].outputs : height * width;
            const size_t j = i - convolutions;
            const size_t outputs = j < plan->hidden.count ? plan->hidden.items[j] : plan->classes;

            made =
                train_dense_create(compute, layer, inputs, outputs, plan->max_rows, weight, bias);
        }
        snprintf(weight->name, sizeof(weight->name), "layer%zu/weight", i + 1);
        snprintf(bias->name, sizeof(bias->name), "layer%zu/bias", i + 1);
        bias->one_number = true;
        complete = complete && made;
    }
    model->tensor_count = 2 * model->layer_count;
    return complete;
}

/* Allocate the parameters, and the arrays of all layers together. */
static bool make_arrays(const train_plan_t *plan, train_model_t *model)
{
    train_compute_t *compute = model->compute;
    const size_t bytes = compute->number_bytes;
    size_t widest = 0;

    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].outputs > widest)
            widest = model->layers[i].outputs;
    for (size_t i = 0; i < model->tensor_count; i++)
        model->parameter_count += padded(model->tensors[i].count);

    const train_layer_t *last = &model->layers[model->layer_count - 1];
    model->parameters = compute->ops->alloc(compute, model->parameter_count * sizeof(float));
    model->input = compute->ops->alloc(compute, plan->max_rows * model->layers[0].inputs * bytes);
    model->delta = compute->ops->alloc(compute, plan->max_rows * widest * bytes);
    model->delta_below = compute->ops->alloc(compute, plan->max_rows * widest * bytes);
    model->host_parameters = model->parameters;
    model->probabilities = last->output;
    if (compute->on_device) {
        model->host_parameters = train_floats(model->parameter_count);
        model->probabilities =
            compute->ops->alloc(compute, plan->max_rows * last->outputs * sizeof(float));
    }
    if (bytes != sizeof(float))
        model->numbers = compute->ops->alloc(compute, model->parameter_count * bytes);
    if (model->parameters == NULL || (bytes != sizeof(float) && model->numbers == NULL))
        return false;

    size_t next = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        train_tensor_t *tensor = &model->tensors[i];

        tensor->value = model->parameters + next;
        tensor->number = tensor->value;
        if (model->numbers != NULL)
            tensor->number = train_number_to(compute, model->numbers, next);
        next += padded(tensor->count);
    }
    return model->input != NULL && model->delta != NULL && model->delta_below != NULL &&
           model->host_parameters != NULL && model->probabilities != NULL;
}

bool train_model_create(train_compute_t *compute, const train_plan_t *plan,
                        train_model_t *ret_model, train_error_t *error)
{
    const size_t halvings = plan->convolution.count;

    memset(ret_model, 0, sizeof(*ret_model));
    ret_model->compute = compute;
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
        if (!train_compute_works(compute, error)) /* has a more precise error */
            return false;
        return train_fail(error, "not enough memory for a model of %zu MB", megabytes);
    }
    return true;
}

void train_model_free(train_model_t *model)
{
    train_compute_t *compute = model->compute;

    for (size_t i = 0; i < model->layer_count; i++)
        train_layer_free(&model->layers[i]);
    if (compute != NULL) {
        if (compute->on_device) {
            free(model->host_parameters);
            compute->ops->free(compute, model->probabilities);
        }
        compute->ops->free(compute, model->parameters);
        compute->ops->free(compute, model->numbers);
        compute->ops->free(compute, model->input);
        compute->ops->free(compute, model->delta);
        compute->ops->free(compute, model->delta_below);
    }
    memset(model, 0, sizeof(*model));
}

void train_model_place_gradients(train_model_t *model, float *gradients)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        model->tensors[i].gradient = gradients + (model->tensors[i].value - model->parameters);
}

void train_model_put(train_model_t *model)
{
    train_compute_t *compute = model->compute;

    compute->ops->put(compute, model->parameters, model->host_parameters,
                      model->parameter_count * sizeof(float));
    for (size_t i = 0; i < model->tensor_count; i++)
        compute->ops->narrow(compute, &model->tensors[i]);
}

void train_model_get(train_model_t *model)
{
    model->compute->ops->get(model->compute, model->host_parameters, model->parameters,
                             model->parameter_count * sizeof(float));
}

void train_model_initialise(train_model_t *model, uint64_t seed)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        const train_layer_t *layer = &model->layers[i];
        const float deviation = sqrtf(2.0f / (float)layer->fan_in);
        train_random_t random = train_random_make(seed, i);

        float *weight = model->host_parameters + (layer->weight->value - model->parameters);
        float *bias = model->host_parameters + (layer->bias->value - model->parameters);

        for (size_t j = 0; j < layer->weight->count; j++)
            weight[j] = deviation * train_random_normal(&random);
        memset(bias, 0, layer->bias->count * sizeof(float));
    }
}

void train_model_forward(train_model_t *model, const uint8_t *labels, size_t rows,
                         train_score_t *sum)
{
    const train_layer_t *last = &model->layers[model->layer_count - 1];
    const void *input = model->input;

    if (rows == 0)
        return;
    for (size_t i = 0; i < model->layer_count; i++) {
        const train_layer_t *layer = &model->layers[i];

        layer->ops->forward(layer, input, rows, layer != last);
        input = layer->output;
    }
    model->compute->ops->softmax(model->compute, last->output, labels, rows, last->outputs,
                                 model->probabilities, sum);
}

void train_model_backward(train_model_t *model, const uint8_t *labels, size_t rows, float share,
                          bool add, train_ready_t *ready, void *context)
{
    const train_layer_t *last = &model->layers[model->layer_count - 1];
    void *delta = model->delta, *below = model->delta_below;

    model->compute->ops->output_delta(model->compute, model->probabilities, labels, rows,
                                      last->outputs, share, delta);
    for (size_t i = model->layer_count; i-- > 0;) {
        const train_layer_t *layer = &model->layers[i];
        const void *input = i > 0 ? model->layers[i - 1].output : model->input;

        /* start the gradients' reduction before dX is computed, so that both overlap */
        layer->ops->gradients(layer, input, delta, rows, add);
        if (ready != NULL) {
            ready(context, layer->weight);
            ready(context, layer->bias);
        }

        if (i > 0 && rows > 0) {
            layer->ops->delta_below(layer, input, delta, rows, below);
            void *swap = delta;
            delta = below;
            below = swap;
        }
    }
}
