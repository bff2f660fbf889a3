/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A layer: convolution of 3 x 3 pixels, max pooling of 2 x 2, ReLU.
 *
 * A row is an image, pixel by pixel, with a pixel's channels side by side. Unfolding (im2col) turns
 * each pixel into a row with the 3 x 3 pixels around it. Then the convolution is the matrix product
 * of a dense layer, with pixels in place of images:
 *
 *     . . . .         . . . | . 1 2 | . 4 5      pixel 1
 *     . 1 2 3         . . . | 1 2 3 | 4 5 6      pixel 2      x  weights  =  sums
 *     . 4 5 6         ...                                                       |
 *     . 7 8 9                                                       largest of 2 x 2, + bias, relu
 *     padded            columns: pixels x (9 * channels)
 *
 * Unfolding turns one number into nine. So the processor unfolds a group of a few images at a time;
 * the group's columns stay in the cache until the matrix product has read them. For the backward
 * pass, only the pooled output is kept, and for each of its numbers one byte: the index of the
 * largest of the four pixels. The backward pass unfolds again instead of keeping 141 KB of columns
 * per image. If all images are one group, as on a GPU, the columns still exist, and are not
 * computed again.
 *
 * Pooling before bias and ReLU gives the same numbers as after them, with a quarter of the work. If
 * the number of rows or columns is odd, pooling ignores the last.
 */
#include "train_layer.h"

#define SIDE 3 /* of the convolution, in pixels; one pixel on each side of the middle */
#define POOL 2 /* side of the pooling */

static size_t group_at(const train_layer_t *layer, size_t first, size_t rows)
{
    return rows - first < layer->group ? rows - first : layer->group;
}

static void conv_forward(const train_layer_t *layer, const void *input, size_t rows, bool relu)
{
    train_compute_t *compute = layer->compute;

    for (size_t first = 0; first < rows; first += layer->group) {
        const size_t images = group_at(layer, first, rows);
        const train_product_t product = {
            .m = images * layer->height * layer->width,
            .n = layer->filters,
            .k = layer->fan_in,
            .a = layer->columns,
            .b = layer->weight->number,
            .c = layer->sums,
        };

        compute->ops->unfold(layer, train_number(compute, input, first * layer->inputs), images);
        compute->ops->product(compute, &product);
        compute->ops->pool(layer, images,
                           train_number_to(compute, layer->output, first * layer->outputs),
                           layer->winners + first * layer->outputs, relu);
    }
}

/* Compute the gradient by layer->sums from the gradient by the outputs of a group of images. */
static void unpool_group(const train_layer_t *layer, const void *delta, size_t first, size_t images)
{
    train_compute_t *compute = layer->compute;

    compute->ops->unpool(layer, images, train_number(compute, delta, first * layer->outputs),
                         layer->winners + first * layer->outputs);
}

static void conv_gradients(const train_layer_t *layer, const void *input, const void *delta,
                           size_t rows, bool add)
{
    train_compute_t *compute = layer->compute;

    if (rows == 0 && !add)
        compute->ops->zero(compute, layer->weight->gradient, layer->weight->count * sizeof(float));
    for (size_t first = 0; first < rows; first += layer->group) {
        const size_t images = group_at(layer, first, rows);
        const train_product_t product = {
            .turn_a = true,
            .m = layer->fan_in,
            .n = layer->filters,
            .k = images * layer->height * layer->width,
            .a = layer->columns,
            .b = layer->sums,
            .beta = add || first > 0 ? 1.0f : 0.0f,
            .c = layer->weight->gradient,
            .floats = true,
        };

        if (rows > layer->group)
            compute->ops->unfold(layer, train_number(compute, input, first * layer->inputs),
                                 images);
        unpool_group(layer, delta, first, images);
        compute->ops->product(compute, &product);
    }
    /* unpooling gives each gradient to exactly one pixel, so a sum over the outputs is equal to the
       sum over the pixels */
    compute->ops->bias_gradient(compute, layer->bias, delta, rows * layer->outputs / layer->filters,
                                add);
}

static void conv_delta_below(const train_layer_t *layer, const void *input, const void *delta,
                             size_t rows, void *ret_delta_below)
{
    train_compute_t *compute = layer->compute;

    for (size_t first = 0; first < rows; first += layer->group) {
        const size_t images = group_at(layer, first, rows), at = first * layer->inputs;
        const train_product_t product = {
            .turn_b = true,
            .m = images * layer->height * layer->width,
            .n = layer->fan_in,
            .k = layer->filters,
            .a = layer->sums,
            .b = layer->weight->number,
            .c = layer->columns,
        };

        if (rows > layer->group)
            unpool_group(layer, delta, first, images);
        compute->ops->product(compute, &product);
        compute->ops->fold(layer, train_number(compute, input, at), images,
                           train_number_to(compute, ret_delta_below, at));
    }
}

static const train_layer_ops_t conv_ops = {
    .name = "convolution",
    .forward = conv_forward,
    .gradients = conv_gradients,
    .delta_below = conv_delta_below,
};

bool train_conv_create(train_compute_t *compute, train_layer_t *layer, size_t height, size_t width,
                       size_t channels, size_t filters, size_t max_rows, train_tensor_t *weight,
                       train_tensor_t *bias)
{
    const size_t pixels = height * width, bytes = compute->number_bytes;

    layer->ops = &conv_ops;
    layer->compute = compute;
    layer->height = height;
    layer->width = width;
    layer->channels = channels;
    layer->filters = filters;
    layer->inputs = pixels * channels;
    layer->outputs = (height / POOL) * (width / POOL) * filters;
    layer->fan_in = SIDE * SIDE * channels;
    layer->group = compute->group_bytes / (pixels * layer->fan_in * bytes);
    layer->group = layer->group < max_rows ? layer->group : max_rows;
    layer->group = layer->group > 0 ? layer->group : 1;
    layer->weight = weight;
    layer->bias = bias;
    weight->count = layer->fan_in * filters;
    bias->count = filters;

    layer->output = compute->ops->alloc(compute, max_rows * layer->outputs * bytes);
    layer->padded = compute->ops->alloc(compute, (height + 2) * (width + 2) * channels * bytes);
    layer->columns = compute->ops->alloc(compute, layer->group * pixels * layer->fan_in * bytes);
    layer->sums = compute->ops->alloc(compute, layer->group * pixels * filters * bytes);
    layer->winners = compute->ops->alloc(compute, max_rows * layer->outputs);
    return layer->output != NULL && layer->padded != NULL && layer->columns != NULL &&
           layer->sums != NULL && layer->winners != NULL;
}
