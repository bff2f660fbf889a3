/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model: a sequence of layers with softmax at the end.
 *
 * The perceptron (mlp) has only dense layers; the convolutional network (cnn) begins with
 * convolutions. A model is independent of ranks. It computes the rows (images) of this rank's part
 * of a batch, and makes a callback for each gradient as soon as the backward pass has completed it;
 * data-parallel training uses this callback. All parameters are in one array, and all gradients in
 * another array of the same layout, so one broadcast copies a model.
 *
 * Arrays belong to the compute backend, see train_compute.h.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"
#include "train_layer.h"

#define TRAIN_MAX_LAYERS (2 * TRAIN_MAX_LIST + 1)
#define TRAIN_MAX_TENSORS (2 * TRAIN_MAX_LAYERS)

/* The description of a model. */
typedef struct {
    size_t height, width;     /* of an image, in pixels */
    train_list_t convolution; /* filters of each convolution; empty for an mlp */
    train_list_t hidden;      /* widths of the dense layers before the last */
    size_t classes;           /* width of the last layer */
    size_t max_rows;          /* most rows of a pass */
} train_plan_t;

/* Contains pointers into itself, so it must not be copied. */
typedef struct {
    train_compute_t *compute;
    size_t layer_count;
    train_layer_t layers[TRAIN_MAX_LAYERS];
    size_t tensor_count;
    train_tensor_t tensors[TRAIN_MAX_TENSORS]; /* weight and bias of the first layer, ... */
    size_t parameter_count; /* floats in `parameters`, with some padding, which stays 0 */
    float *parameters;      /* all tensors' values */
    float *host_parameters; /* a copy in host memory; on the processor equal to parameters */
    void *numbers;          /* all tensors' values as numbers; NULL if numbers are floats */
    void *input;            /* rows x inputs of the first layer; the caller fills it */
    void *delta;            /* backward: gradient by a layer's output */
    void *delta_below;      /* the same for the layer below */
    float *probabilities;   /* rows x classes, floats; on the processor the last layer's output */
} train_model_t;

/* Called when a gradient is complete: the backward pass does not access it again. */
typedef void train_ready_t(void *context, const train_tensor_t *tensor);

/* On failure *ret_model is empty, which train_model_free accepts. */
bool train_model_create(train_compute_t *compute, const train_plan_t *plan,
                        train_model_t *ret_model, train_error_t *error);
void train_model_free(train_model_t *model);

/*
 * Set the array of the gradients: `parameter_count` floats, all 0, owned by the caller.
 *
 * The model does not allocate it, because a data-parallel program needs memory that ranks can
 * reduce without a copy.
 */
void train_model_place_gradients(train_model_t *model, float *gradients);

/* _put: copy model->host_parameters to the parameters; _get: the reverse. */
void train_model_put(train_model_t *model);
void train_model_get(train_model_t *model);

/*
 * Draw the first weights from the seed: He's normal distribution, made for ReLU. They are in
 * host_parameters; call train_model_put afterwards.
 */
void train_model_initialise(train_model_t *model, uint64_t seed);

/*
 * The forward pass of `rows` rows of model->input; 0 rows are allowed.
 *
 * labels, sum  arrays; the score is added to `sum`
 */
void train_model_forward(train_model_t *model, const uint8_t *labels, size_t rows,
                         train_score_t *sum);

/*
 * Compute all gradients for the rows of the last forward pass, from the last layer to the first.
 *
 * share  the weight of a row: with 1 / (rows of the whole step), the sum of all ranks' gradients is
 *        the gradient of the step's mean loss, for any distribution of the rows
 * add    add to the gradients of earlier batches of the same step
 * ready  called once per tensor, also with 0 rows, since the other ranks need this rank's zeros.
 *        NULL: the gradients are not complete yet
 */
void train_model_backward(train_model_t *model, const uint8_t *labels, size_t rows, float share,
                          bool add, train_ready_t *ready, void *context);

#endif
