/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model: layers one after the other, softmax at the end.
 *
 * The perceptron (mlp) has dense layers only, the convolutional network (cnn) begins with
 * convolutions. Neither knows anything of ranks. A model sees the rows (images) of its own part of
 * a batch, and calls back for each gradient as soon as the backward pass has produced it: that is
 * where data-parallel training hooks in. All parameters lie in one array and all gradients in
 * another of the same layout, so one broadcast shares a model.
 *
 * Arrays are those of what computes, see train_compute.h.
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

/* What to build. */
typedef struct {
    size_t height, width;     /* of an image, in pixels */
    train_list_t convolution; /* filters of each convolution; empty for an mlp */
    train_list_t hidden;      /* widths of the dense layers but the last */
    size_t classes;           /* width of the last */
    size_t max_rows;          /* how many rows at once, at most */
} train_plan_t;

/* Points into itself: not to be copied. */
typedef struct {
    train_compute_t *compute;
    size_t layer_count;
    train_layer_t layers[TRAIN_MAX_LAYERS];
    size_t tensor_count;
    train_tensor_t tensors[TRAIN_MAX_TENSORS]; /* weight and bias of the first layer, ... */
    size_t parameter_count; /* floats in `parameters`, with some padding, which stays 0 */
    float *parameters;      /* all tensors' values */
    float *host_parameters; /* the same where the host can read them; on it, the same array */
    void *numbers;          /* all tensors' values as numbers; NULL if these are floats */
    void *input;            /* rows x inputs of the first layer; the caller fills it */
    void *delta;            /* backward: gradient by a layer's output */
    void *delta_below;      /* the same for the layer below */
    float *probabilities;   /* rows x classes; floats: the last layer's output */
} train_model_t;

/* Called when a gradient is complete. Backward will not touch it again in this pass. */
typedef void train_ready_t(void *context, const train_tensor_t *tensor);

/* On failure *ret_model is empty. train_model_free takes an empty one. */
bool train_model_create(train_compute_t *compute, const train_plan_t *plan,
                        train_model_t *ret_model, train_error_t *error);
void train_model_free(train_model_t *model);

/*
 * Say where gradients go: `parameter_count` floats, all 0, that stay the caller's.
 *
 * They are not allocated here because a data-parallel program wants them in memory from which
 * ranks can reduce without copying.
 */
void train_model_place_gradients(train_model_t *model, float *gradients);

/* Take over model->host_parameters, or bring them up to date. */
void train_model_put(train_model_t *model);
void train_model_get(train_model_t *model);

/*
 * Draw the first weights from the seed: He's normal distribution, made for ReLU. To be taken over
 * by train_model_put.
 */
void train_model_initialise(train_model_t *model, uint64_t seed);

/*
 * Push `rows` rows of model->input through the layers; 0 rows are no rows, not an error.
 *
 * labels  an array; so is `sum`, to which the score is added
 */
void train_model_forward(train_model_t *model, const uint8_t *labels, size_t rows,
                         train_score_t *sum);

/*
 * Compute all gradients for the rows of the last forward pass, from the last layer to the first.
 *
 * share  the weight of one row: 1 / (rows in the whole step) gives gradients whose sum over all
 *        ranks is that of the step's mean loss, however unevenly the rows are spread
 * add    to the gradients that are there, those of an earlier part of the same step
 * ready  called once per tensor; with 0 rows too, as the other ranks count on this one's zeros.
 *        NULL: nobody waits for these gradients yet
 */
void train_model_backward(train_model_t *model, const uint8_t *labels, size_t rows, float share,
                          bool add, train_ready_t *ready, void *context);

#endif
