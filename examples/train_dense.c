/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dense layer: every output is a weighted sum of all inputs. Three matrix products.
 *
 * This file also has the function that frees any kind of layer.
 */
#include "train_layer.h"

#include <string.h>

void train_layer_free(train_layer_t *layer)
{
    train_compute_t *compute = layer->compute;

    if (compute != NULL) {
        compute->ops->free(compute, layer->output);
        compute->ops->free(compute, layer->padded);
        compute->ops->free(compute, layer->columns);
        compute->ops->free(compute, layer->sums);
        compute->ops->free(compute, layer->winners);
    }
    memset(layer, 0, sizeof(*layer));
}

static void dense_forward(const train_layer_t *layer, const void *input, size_t rows, bool relu)
{
    const train_product_t product = {
        .m = rows,
        .n = layer->outputs,
        .k = layer->inputs,
        .a = input,
        .b = layer->weight->number,
        .c = layer->output,
    };

    layer->compute->ops->product(layer->compute, &product);
    layer->compute->ops->add_bias(layer->compute, layer->bias, layer->output, rows, relu);
}

static void dense_gradients(const train_layer_t *layer, const void *input, const void *delta,
                            size_t rows, bool add)
{
    train_compute_t *compute = layer->compute;
    const train_product_t product = {
        .turn_a = true,
        .m = layer->inputs,
        .n = layer->outputs,
        .k = rows,
        .a = input,
        .b = delta,
        .beta = add ? 1.0f : 0.0f,
        .c = layer->weight->gradient,
        .floats = true,
    };

    if (rows > 0)
        compute->ops->product(compute, &product);
    else if (!add)
        compute->ops->zero(compute, layer->weight->gradient, layer->weight->count * sizeof(float));
    compute->ops->bias_gradient(compute, layer->bias, delta, rows, add);
}

static void dense_delta_below(const train_layer_t *layer, const void *input, const void *delta,
                              size_t rows, void *ret_delta_below)
{
    const train_product_t product = {
        .turn_b = true,
        .m = rows,
        .n = layer->inputs,
        .k = layer->outputs,
        .a = delta,
        .b = layer->weight->number,
        .c = ret_delta_below,
    };

    layer->compute->ops->product(layer->compute, &product);
    layer->compute->ops->cut(layer->compute, input, ret_delta_below, rows * layer->inputs);
}

static const train_layer_ops_t dense_ops = {
    .name = "dense",
    .forward = dense_forward,
    .gradients = dense_gradients,
    .delta_below = dense_delta_below,
};

bool train_dense_create(train_compute_t *compute, train_layer_t *layer, size_t inputs,
                        size_t outputs, size_t max_rows, train_tensor_t *weight,
                        train_tensor_t *bias)
{
    layer->ops = &dense_ops;
    layer->compute = compute;
    layer->inputs = inputs;
    layer->outputs = outputs;
    layer->fan_in = inputs;
    layer->weight = weight;
    layer->bias = bias;
    weight->count = inputs * outputs;
    bias->count = outputs;
    layer->output = compute->ops->alloc(compute, max_rows * outputs * compute->number_bytes);
    return layer->output != NULL;
}
