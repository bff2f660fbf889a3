/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A layer of a model: numbers go in, numbers come out, and gradients come back.
 *
 * A layer is a table of functions and what they work on. The model (train_model.c) only knows the
 * table, so it runs dense layers and convolutions alike, and a new kind of layer is a new file with
 * a table in it. Layers in turn only know the table of what computes (train_compute.h).
 *
 * With X the rows that enter a layer, W its weights and b its bias,
 *
 *     forward        Y = relu(X W + b)
 *     gradients      dW = X' dY,  db = column sums of dY
 *     delta_below    dX = dY W' where X > 0
 *
 * A row is one image, or what became of it. dX is set to 0 where X is, because X came out of the
 * ReLU of the layer below: so dX is that layer's dY as it stands.
 */
#ifndef TRAIN_LAYER_H
#define TRAIN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_compute.h"

typedef struct {
    const char *name;

    /* layer->output from `rows` rows; with ReLU, or the plain sums */
    void (*forward)(const train_layer_t *layer, const void *input, size_t rows, bool relu);

    /*
     * Both gradients, from what had entered the last forward pass and the gradient by the output.
     * `add`: to those that are there. 0 rows are allowed, and have gradients of 0.
     */
    void (*gradients)(const train_layer_t *layer, const void *input, const void *delta, size_t rows,
                      bool add);

    /* the gradient by the layer's input; after `gradients` of the same rows */
    void (*delta_below)(const train_layer_t *layer, const void *input, const void *delta,
                        size_t rows, void *ret_delta_below);
} train_layer_ops_t;

/* Arrays are the table's. */
struct train_layer {
    const train_layer_ops_t *ops;
    train_compute_t *compute;
    size_t inputs;  /* numbers per row */
    size_t outputs; /* numbers per row */
    size_t fan_in;  /* how many inputs one output is the sum of */
    train_tensor_t *weight;
    train_tensor_t *bias;
    void *output; /* rows x outputs, of the last forward pass */

    /* convolutions only: shapes in pixels, and room to work in */
    size_t height, width, channels, filters;
    size_t group;     /* images that are unfolded at once */
    void *padded;     /* the processor's: an image with a border of 0 */
    void *columns;    /* group * pixels x fan_in: each pixel's surroundings, unfolded */
    void *sums;       /* group * pixels x filters: before pooling, or the gradient there */
    uint8_t *winners; /* rows x outputs: which of four pixels was the largest, 0 to 3 */
};

/*
 * Describe a layer for up to `max_rows` rows at once, and allocate what it works on.
 *
 * weight, bias  get a size; the caller gives them a name and memory
 *
 * False if memory is short. Takes a zeroed layer and goes to train_layer_free, well or not.
 */
bool train_dense_create(train_compute_t *compute, train_layer_t *layer, size_t inputs,
                        size_t outputs, size_t max_rows, train_tensor_t *weight,
                        train_tensor_t *bias);

/* The same for a convolution, see train_conv.c: `filters` out of `channels` channels. */
bool train_conv_create(train_compute_t *compute, train_layer_t *layer, size_t height, size_t width,
                       size_t channels, size_t filters, size_t max_rows, train_tensor_t *weight,
                       train_tensor_t *bias);

/* Takes a zeroed layer, too. */
void train_layer_free(train_layer_t *layer);

#endif
