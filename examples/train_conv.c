/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A convolution of 3 x 3 pixels, a pooling of 2 x 2, and ReLU, as one layer.
 *
 * A row holds an image pixel by pixel, with a pixel's channels side by side. Unfolded (im2col),
 * each pixel becomes a row of the 3 x 3 pixels around it; then the convolution is the matrix
 * product of a dense layer, with pixels in place of images:
 *
 *     . . . .         . . . | . 1 2 | . 4 5      pixel 1
 *     . 1 2 3         . . . | 1 2 3 | 4 5 6      pixel 2      x  weights  =  sums
 *     . 4 5 6         ...                                                       |
 *     . 7 8 9                                                       largest of 2 x 2, + bias, relu
 *     padded            columns: pixels x (9 * channels)
 *
 * Unfolding makes nine numbers of one, so it is done for a few images at a time, whose columns stay
 * in the cache until the matrix product has read them. Only the pooled output is kept for the
 * backward pass, with one byte per number that says which of the four pixels it came from. The
 * backward pass unfolds again, rather than keeping 141 KB of columns for each image.
 *
 * Pooling before bias and ReLU gives the same numbers as after, with a quarter of the work. A last
 * row or column of an odd number is left out of the pooling.
 */
#include "train_layer.h"

#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#define SIDE 3 /* of the convolution, in pixels; 1 on each side of the middle */
#define POOL 2 /* side of the pooling */

/*
 * Columns of one group: in a second-level cache, next to the sums. Tried: 64 KB to 1 MB, all within
 * 3 %.
 */
#define GROUP_BYTES ((size_t)256 << 10)

/* Put a border of 0 around an image; the border of layer->padded is 0 from the beginning. */
static void pad(const train_layer_t *layer, const float *image)
{
    const size_t row = layer->width * layer->channels;
    const size_t padded_row = row + 2 * layer->channels;

    for (size_t y = 0; y < layer->height; y++)
        memcpy(layer->padded + (y + 1) * padded_row + layer->channels, image + y * row,
               row * sizeof(float));
}

/* Copy `count` floats. memcpy would be called for each handful that one channel makes. */
static inline void copy_floats(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
}

/* Fill the columns from `images` images. */
static void unfold(const train_layer_t *layer, const float *input, size_t images)
{
    const size_t channels = layer->channels, part = SIDE * channels;
    const size_t padded_row = (layer->width + 2) * channels;
    float *to = layer->columns;

    for (size_t i = 0; i < images; i++) {
        pad(layer, input + i * layer->inputs);
        for (size_t y = 0; y < layer->height; y++)
            for (size_t x = 0; x < layer->width; x++)
                for (size_t dy = 0; dy < SIDE; dy++, to += part)
                    copy_floats(to, layer->padded + (y + dy) * padded_row + x * channels, part);
    }
}

/* The reverse: add up what the columns say about each pixel. Uses layer->padded for the sums. */
static void fold(const train_layer_t *layer, size_t images, float *ret_delta_below)
{
    const size_t channels = layer->channels, part = SIDE * channels;
    const size_t row = layer->width * channels, padded_row = row + 2 * channels;
    const size_t padded_count = (layer->height + 2) * padded_row;
    const float *from = layer->columns;

    for (size_t i = 0; i < images; i++) {
        memset(layer->padded, 0, padded_count * sizeof(float));
        for (size_t y = 0; y < layer->height; y++)
            for (size_t x = 0; x < layer->width; x++)
                for (size_t dy = 0; dy < SIDE; dy++, from += part) {
                    float *to = layer->padded + (y + dy) * padded_row + x * channels;

                    for (size_t j = 0; j < part; j++)
                        to[j] += from[j];
                }
        for (size_t y = 0; y < layer->height; y++)
            memcpy(ret_delta_below + i * layer->inputs + y * row,
                   layer->padded + (y + 1) * padded_row + channels, row * sizeof(float));
    }
    memset(layer->padded, 0, padded_count * sizeof(float));
}

/* Keep the largest of 2 x 2 sums of each filter, and which it was. */
static void pool_pixel(const float *restrict upper, const float *restrict lower, size_t filters,
                       float *restrict output, uint8_t *restrict winners)
{
    for (size_t j = 0; j < filters; j++) {
        const float a = upper[j], b = upper[filters + j];
        const float c = lower[j], d = lower[filters + j];
        const float ab = b > a ? b : a, cd = d > c ? d : c;
        const uint8_t ab_winner = b > a, cd_winner = 2 + (d > c);

        output[j] = cd > ab ? cd : ab;
        winners[j] = cd > ab ? cd_winner : ab_winner;
    }
}

/* The reverse: the gradient goes to the winner, the other three sums have none. */
static void unpool_pixel(const float *restrict delta, const uint8_t *restrict winners,
                         size_t filters, float *restrict upper, float *restrict lower)
{
    for (size_t j = 0; j < filters; j++) {
        const float d = delta[j];
        const uint8_t winner = winners[j];

        upper[j] = winner == 0 ? d : 0.0f;
        upper[filters + j] = winner == 1 ? d : 0.0f;
        lower[j] = winner == 2 ? d : 0.0f;
        lower[filters + j] = winner == 3 ? d : 0.0f;
    }
}

/* From layer->sums to the output. */
static void pool(const train_layer_t *layer, size_t images, float *output, uint8_t *winners)
{
    const size_t filters = layer->filters, row = layer->width * filters;

    for (size_t i = 0; i < images; i++)
        for (size_t y = 0; y + 1 < layer->height; y += POOL)
            for (size_t x = 0; x + 1 < layer->width; x += POOL) {
                const float *upper = layer->sums + (i * layer->height + y) * row + x * filters;

                pool_pixel(upper, upper + row, filters, output, winners);
                output += filters;
                winners += filters;
            }
}

/* From the gradient by the output to that by layer->sums. */
static void unpool(const train_layer_t *layer, size_t images, const float *delta,
                   const uint8_t *winners)
{
    const size_t filters = layer->filters, row = layer->width * filters;

    if (layer->height % POOL != 0 || layer->width % POOL != 0)
        memset(layer->sums, 0, images * layer->height * row * sizeof(float));
    for (size_t i = 0; i < images; i++)
        for (size_t y = 0; y + 1 < layer->height; y += POOL)
            for (size_t x = 0; x + 1 < layer->width; x += POOL) {
                float *upper = layer->sums + (i * layer->height + y) * row + x * filters;

                unpool_pixel(delta, winners, filters, upper, upper + row);
                delta += filters;
                winners += filters;
            }
}

static size_t group_at(const train_layer_t *layer, size_t first, size_t rows)
{
    return rows - first < layer->group ? rows - first : layer->group;
}

static void conv_forward(const train_layer_t *layer, const float *input, size_t rows, bool relu)
{
    const int columns = (int)layer->fan_in, filters = (int)layer->filters;

    for (size_t first = 0; first < rows; first += layer->group) {
        const size_t images = group_at(layer, first, rows);
        const int pixels = (int)(images * layer->height * layer->width);
        float *output = layer->output + first * layer->outputs;

        unfold(layer, input + first * layer->inputs, images);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, pixels, filters, columns, 1.0f,
                    layer->columns, columns, layer->weight->value, filters, 0.0f, layer->sums,
                    filters);
        pool(layer, images, output, layer->winners + first * layer->outputs);
        train_layer_add_bias(layer->bias, output, images * layer->outputs / layer->filters, relu);
    }
}

static void conv_gradients(const train_layer_t *layer, const float *input, const float *delta,
                           size_t rows, bool add)
{
    const int columns = (int)layer->fan_in, filters = (int)layer->filters;

    if (rows == 0 && !add)
        memset(layer->weight->gradient, 0, layer->weight->count * sizeof(float));
    for (size_t first = 0; first < rows; first += layer->group) {
        const size_t images = group_at(layer, first, rows);
        const int pixels = (int)(images * layer->height * layer->width);

        unfold(layer, input + first * layer->inputs, images);
        unpool(layer, images, delta + first * layer->outputs,
               layer->winners + first * layer->outputs);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, columns, filters, pixels, 1.0f,
                    layer->columns, columns, layer->sums, filters, add || first > 0 ? 1.0f : 0.0f,
                    layer->weight->gradient, filters);
    }
    /* each pooled number's gradient went to exactly one pixel: the pixels' sum is theirs */
    train_layer_bias_gradient(layer->bias, delta, rows * layer->outputs / layer->filters, add);
}

static void conv_delta_below(const train_layer_t *layer, const float *input, const float *delta,
                             size_t rows, float *ret_delta_below)
{
    const int columns = (int)layer->fan_in, filters = (int)layer->filters;

    for (size_t first = 0; first < rows; first += layer->group) {
        const size_t images = group_at(layer, first, rows);
        const int pixels = (int)(images * layer->height * layer->width);

        unpool(layer, images, delta + first * layer->outputs,
               layer->winners + first * layer->outputs);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, pixels, columns, filters, 1.0f,
                    layer->sums, filters, layer->weight->value, filters, 0.0f, layer->columns,
                    columns);
        fold(layer, images, ret_delta_below + first * layer->inputs);
    }
    for (size_t i = 0; i < rows * layer->inputs; i++)
        ret_delta_below[i] = input[i] > 0.0f ? ret_delta_below[i] : 0.0f;
}

static const train_layer_ops_t conv_ops = {
    .name = "convolution",
    .forward = conv_forward,
    .gradients = conv_gradients,
    .delta_below = conv_delta_below,
};

bool train_conv_create(train_layer_t *layer, size_t height, size_t width, size_t channels,
                       size_t filters, size_t max_rows, train_tensor_t *weight,
                       train_tensor_t *bias)
{
    const size_t pixels = height * width;

    layer->ops = &conv_ops;
    layer->height = height;
    layer->width = width;
    layer->channels = channels;
    layer->filters = filters;
    layer->inputs = pixels * channels;
    layer->outputs = (height / POOL) * (width / POOL) * filters;
    layer->fan_in = SIDE * SIDE * channels;
    layer->group = GROUP_BYTES / (pixels * layer->fan_in * sizeof(float));
    layer->group = layer->group < max_rows ? layer->group : max_rows;
    layer->group = layer->group > 0 ? layer->group : 1;
    layer->weight = weight;
    layer->bias = bias;
    weight->count = layer->fan_in * filters;
    bias->count = filters;

    layer->output = train_floats(max_rows * layer->outputs);
    layer->padded = train_floats((height + 2) * (width + 2) * channels);
    layer->columns = train_floats(layer->group * pixels * layer->fan_in);
    layer->sums = train_floats(layer->group * pixels * filters);
    layer->winners = malloc(max_rows * layer->outputs);
    return layer->output != NULL && layer->padded != NULL && layer->columns != NULL &&
           layer->sums != NULL && layer->winners != NULL;
}
