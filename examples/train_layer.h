/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A layer of a model: the forward pass computes its output, and the backward pass its gradients.
 *
 * A layer is a table of functions and their data. The model (train_model.c) uses only the table, so
 * it runs dense layers and convolutions in the same way, and a new kind of layer is a new file with
 * a table. Layers use only the table of the compute backend (train_compute.h).
 *
 * With X the rows that enter a layer, W its weights and b its bias,
 *
 *     forward        Y = relu(X W + b)
 *     gradients      dW = X' dY,  db = column sums of dY
 *     delta_below    dX = dY W' where X > 0
 *
 * A row is an image, or the output of a layer for it. dX is set to 0 where X is 0, because X is the
 * output of the ReLU of the layer below. So dX is that layer's dY, without a further step.
 */
#ifndef TRAIN_LAYER_H
#define TRAIN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_compute.h"

typedef struct {
    const char *name;

    /* compute layer->output from `rows` rows; relu: with ReLU */
    void (*forward)(const train_layer_t *layer, const void *input, size_t rows, bool relu);

    /*
     * Compute both gradients, from the input of the last forward pass and the gradient by the
     * output. add: add them to the old gradients. 0 rows are allowed, and have gradients of 0.
     */
    void (*gradients)(const train_layer_t *layer, const void *input, const void *delta, size_t rows,
                      bool add);

    /* compute the gradient by the layer's input; called after `gradients` of the same rows */
    void (*delta_below)(const train_layer_t *layer, const void *input, const void *delta,
                        size_t rows, void *ret_delta_below);
} train_layer_ops_t;

/* Arrays belong to the compute backend. */
struct train_layer {
    const train_layer_ops_t *ops;
    train_compute_t *compute;
    size_t inputs;  /* numbers per row */
    size_t outputs; /* numbers per row */
    size_t fan_in;  /* inputs of one output's sum */
    train_tensor_t *weight;
    train_tensor_t *bias;
    void *output; /* rows x outputs, of the last forward pass */

    /* convolutions only: shapes in pixels, and scratch arrays */
    size_t height, width, channels, filters;
    size_t group;     /* images of a group, which are unfolded together */
    void *padded;     /* processor only: an image with a border of 0 */
    void *columns;    /* group * pixels x fan_in: unfolded pixels */
    void *sums;       /* group * pixels x filters: before pooling, or their gradient */
    uint8_t *winners; /* rows x outputs: the index, 0 to 3, of the largest of four pixels */
};

/*
 * Make a layer for up to `max_rows` rows, and allocate its arrays.
 *
 * weight, bias  the function sets their sizes; the caller sets name and memory
 *
 * False: no memory. `layer` must be zeroed; train_layer_free frees it, also after a failure.
 */
bool train_dense_create(train_compute_t *compute, train_layer_t *layer, size_t inputs,
                        size_t outputs, size_t max_rows, train_tensor_t *weight,
                        train_tensor_t *bias);

/* The same for a convolution of `channels` input channels, see train_conv.c. */
bool train_conv_create(train_compute_t *compute, train_layer_t *layer, size_t height, size_t width,
                       size_t channels, size_t filters, size_t max_rows, train_tensor_t *weight,
                       train_tensor_t *bias);

/* Accepts a zeroed layer. */
void train_layer_free(train_layer_t *layer);

#endif
