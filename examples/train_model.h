/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A multi-layer perceptron: layers of weights with ReLU between them, softmax at the end.
 *
 * The model knows nothing of ranks. It sees the rows (images) of its own part of a batch, and calls
 * back for each gradient as soon as the backward pass has produced it: that is where data-parallel
 * training hooks in. All parameters lie in one array and all gradients in another of the same
 * layout, so one broadcast shares a model and one loop updates it.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"

#define TRAIN_MAX_LAYERS 17
#define TRAIN_MAX_TENSORS (2 * TRAIN_MAX_LAYERS)

/* One array of parameters, and its gradient: what ranks add up as one piece. */
typedef struct {
    char name[40]; /* such as "layer1/weight" */
    size_t count;  /* floats */
    float *value;
    float *gradient;
} train_tensor_t;

typedef struct {
    size_t inputs;
    size_t outputs;
    train_tensor_t weight; /* inputs x outputs, row-major */
    train_tensor_t bias;   /* outputs */
    float *activation;     /* rows x outputs: after ReLU; in the last layer probabilities */
} train_layer_t;

typedef struct {
    size_t layer_count;
    train_layer_t layers[TRAIN_MAX_LAYERS];
    size_t parameter_count; /* floats in `parameters`, with some padding, which stays 0 */
    float *parameters;      /* all tensors' values */
    float *input;           /* rows x inputs of the first layer; the caller fills it */
    float *delta;           /* backward: gradient by the sums that a layer computes */
    float *delta_below;     /* the same for the layer below */
} train_model_t;

/* How well the rows of one forward pass did. */
typedef struct {
    double loss;    /* cross-entropy, summed over the rows */
    size_t correct; /* rows whose most probable class is the label */
} train_score_t;

/* Called when a gradient is complete. Backward will not touch it again in this pass. */
typedef void train_ready_t(void *context, const train_tensor_t *tensor);

/*
 * Allocate a model for up to `max_rows` rows at once.
 *
 * widths  layer_count + 1 numbers: inputs of the first layer, then outputs of each
 *
 * On failure *ret_model is empty. train_model_free takes an empty one.
 */
bool train_model_create(const size_t *widths, size_t layer_count, size_t max_rows,
                        train_model_t *ret_model, train_error_t *error);
void train_model_free(train_model_t *model);

/*
 * Say where gradients go: `parameter_count` floats, all 0, that stay the caller's.
 *
 * They are not allocated here because a data-parallel program wants them in memory from which
 * ranks can reduce without copying.
 */
void train_model_place_gradients(train_model_t *model, float *gradients);

/* Draw the first weights from the seed: He's normal distribution, made for ReLU. */
void train_model_initialise(train_model_t *model, uint64_t seed);

/* Push `rows` rows of model->input through the layers; 0 rows are no rows, not an error. */
train_score_t train_model_forward(train_model_t *model, const uint8_t *labels, size_t rows);

/*
 * Compute all gradients for the rows of the last forward pass, from the last layer to the first.
 *
 * share  the weight of one row: 1 / (rows in the whole batch) gives gradients whose sum over all
 *        ranks is that of the batch's mean loss, however unevenly the rows are spread
 * ready  called once per tensor; with 0 rows too, as the other ranks count on this one's zeros
 */
void train_model_backward(train_model_t *model, const uint8_t *labels, size_t rows, float share,
                          train_ready_t *ready, void *context);

#endif
