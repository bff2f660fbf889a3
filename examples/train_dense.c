/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dense layer: every output is a weighted sum of all inputs. Three matrix products, by BLAS.
 *
 * Also here: what all kinds of layers share.
 */
#include "train_layer.h"

#include <stdlib.h>
#include <string.h>

#include <cblas.h>

void train_layer_free(train_layer_t *layer)
{
    free(layer->output);
    free(layer->padded);
    free(layer->columns);
    free(layer->sums);
    free(layer->winners);
    memset(layer, 0, sizeof(*layer));
}

void train_layer_add_bias(const train_tensor_t *bias, float *output, size_t rows, bool relu)
{
    const float *add = bias->value;

    for (size_t i = 0; i < rows; i++) {
        float *row = output + i * bias->count;

        for (size_t j = 0; j < bias->count; j++) {
            const float sum = row[j] + add[j];

            row[j] = relu && sum < 0.0f ? 0.0f : sum;
        }
    }
}

void train_layer_bias_gradient(const train_tensor_t *bias, const float *delta, size_t rows,
                               bool add)
{
    float *gradient = bias->gradient;

    if (!add)
        memset(gradient, 0, bias->count * sizeof(float));
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < bias->count; j++)
            gradient[j] += delta[i * bias->count + j];
}

static void dense_forward(const train_layer_t *layer, const float *input, size_t rows, bool relu)
{
    const int inputs = (int)layer->inputs, outputs = (int)layer->outputs;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, outputs, inputs, 1.0f, input,
                inputs, layer->weight->value, outputs, 0.0f, layer->output, outputs);
    train_layer_add_bias(layer->bias, layer->output, rows, relu);
}

static void dense_gradients(const train_layer_t *layer, const float *input, const float *delta,
                            size_t rows, bool add)
{
    const int inputs = (int)layer->inputs, outputs = (int)layer->outputs;

    if (rows > 0)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, inputs, outputs, (int)rows, 1.0f,
                    input, inputs, delta, outputs, add ? 1.0f : 0.0f, layer->weight->gradient,
                    outputs);
    else if (!add)
        memset(layer->weight->gradient, 0, layer->weight->count * sizeof(float));
    train_layer_bias_gradient(layer->bias, delta, rows, add);
}

static void dense_delta_below(const train_layer_t *layer, const float *input, const float *delta,
                              size_t rows, float *ret_delta_below)
{
    const int inputs = (int)layer->inputs, outputs = (int)layer->outputs;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, inputs, outputs, 1.0f, delta,
                outputs, layer->weight->value, outputs, 0.0f, ret_delta_below, inputs);
    for (size_t i = 0; i < rows * layer->inputs; i++)
        ret_delta_below[i] = input[i] > 0.0f ? ret_delta_below[i] : 0.0f;
}

static const train_layer_ops_t dense_ops = {
    .name = "dense",
    .forward = dense_forward,
    .gradients = dense_gradients,
    .delta_below = dense_delta_below,
};

bool train_dense_create(train_layer_t *layer, size_t inputs, size_t outputs, size_t max_rows,
                        train_tensor_t *weight, train_tensor_t *bias)
{
    layer->ops = &dense_ops;
    layer->inputs = inputs;
    layer->outputs = outputs;
    layer->fan_in = inputs;
    layer->weight = weight;
    layer->bias = bias;
    weight->count = inputs * outputs;
    bias->count = outputs;
    layer->output = train_floats(max_rows * outputs);
    return layer->output != NULL;
}
