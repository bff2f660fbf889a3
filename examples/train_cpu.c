/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The compute backend for the processor: matrix products by OpenBLAS, loops for all else.
 *
 * Numbers are floats, and arrays are ordinary memory.
 */
#include "train_compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "train_layer.h"

#define SIDE 3 /* of the convolution, in pixels */
#define POOL 2 /* side of the pooling */

/*
 * Bytes of the columns of a group. Columns and sums should fit into a second-level cache. Tried:
 * 64 KB to 1 MB, all within 3 %.
 */
#define GROUP_BYTES ((size_t)256 << 10)

/* Smaller probabilities count as 0: as floats they could become denormal, which is slow. */
#define TINY_PROBABILITY 1e-20

static void *cpu_alloc(train_compute_t *compute, size_t bytes)
{
    (void)compute;
    return train_floats((bytes + sizeof(float) - 1) / sizeof(float));
}

static void cpu_free(train_compute_t *compute, void *array)
{
    (void)compute;
    free(array);
}

static void cpu_put(train_compute_t *compute, void *array, const void *from, size_t bytes)
{
    (void)compute;
    if (array != from && bytes > 0)
        memcpy(array, from, bytes);
}

static void cpu_get(train_compute_t *compute, void *to, const void *array, size_t bytes)
{
    cpu_put(compute, to, array, bytes);
}

static void cpu_zero(train_compute_t *compute, void *array, size_t bytes)
{
    (void)compute;
    memset(array, 0, bytes);
}

static void cpu_sync(train_compute_t *compute)
{
    (void)compute;
}

static void cpu_narrow(train_compute_t *compute, const train_tensor_t *tensor)
{
    (void)compute;
    (void)tensor;
}

static void cpu_gather(train_compute_t *compute, const train_source_t *source,
                       const uint32_t *items, size_t rows, void *ret_inputs, uint8_t *ret_labels)
{
    const size_t pixels = source->pixels;

    (void)compute;
    for (size_t i = 0; i < rows; i++) {
        const uint8_t *image = source->images + items[i] * pixels;
        float *input = (float *)ret_inputs + i * pixels;

        for (size_t j = 0; j < pixels; j++)
            input[j] = ((float)image[j] - source->mean) * source->scale;
        ret_labels[i] = source->labels[items[i]];
    }
}

static void cpu_product(train_compute_t *compute, const train_product_t *p)
{
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;

    (void)compute;
    cblas_sgemm(CblasRowMajor, p->turn_a ? CblasTrans : CblasNoTrans,
                p->turn_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0f, p->a, p->turn_a ? m : k, p->b,
                p->turn_b ? k : n, p->beta, p->c, n);
}

static void cpu_add_bias(train_compute_t *compute, const train_tensor_t *bias, void *output,
                         size_t rows, bool relu)
{
    const float *add = bias->value;

    (void)compute;
    for (size_t i = 0; i < rows; i++) {
        float *row = (float *)output + i * bias->count;

        for (size_t j = 0; j < bias->count; j++) {
            const float sum = row[j] + add[j];

            row[j] = relu && sum < 0.0f ? 0.0f : sum;
        }
    }
}

static void cpu_bias_gradient(train_compute_t *compute, const train_tensor_t *bias,
                              const void *delta, size_t rows, bool add)
{
    float *gradient = bias->gradient;
    const float *from = delta;

    (void)compute;
    if (!add)
        memset(gradient, 0, bias->count * sizeof(float));
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < bias->count; j++)
            gradient[j] += from[i * bias->count + j];
}

static void cpu_cut(train_compute_t *compute, const void *input, void *delta, size_t count)
{
    const float *in = input;
    float *d = delta;

    (void)compute;
    for (size_t i = 0; i < count; i++)
        d[i] = in[i] > 0.0f ? d[i] : 0.0f;
}

/* ---- convolutions ---- */

/* Put a border of 0 around an image; the border of layer->padded is 0 from the beginning. */
static void pad(const train_layer_t *layer, const float *image)
{
    const size_t row = layer->width * layer->channels;
    const size_t padded_row = row + 2 * layer->channels;

    for (size_t y = 0; y < layer->height; y++)
        memcpy((float *)layer->padded + (y + 1) * padded_row + layer->channels, image + y * row,
               row * sizeof(float));
}

/* Copy `count` floats. In a loop: the pixels of one channel are too few for a call of memcpy. */
static inline void copy_floats(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
}

/* Unfold `images` images into the columns. */
static void cpu_unfold(const train_layer_t *layer, const void *input, size_t images)
{
    const size_t channels = layer->channels, part = SIDE * channels;
    const size_t padded_row = (layer->width + 2) * channels;
    const float *padded = layer->padded;
    float *to = layer->columns;

    for (size_t i = 0; i < images; i++) {
        pad(layer, (const float *)input + i * layer->inputs);
        for (size_t y = 0; y < layer->height; y++)
            for (size_t x = 0; x < layer->width; x++)
                for (size_t dy = 0; dy < SIDE; dy++, to += part)
                    copy_floats(to, padded + (y + dy) * padded_row + x * channels, part);
    }
}

/* The reverse: add up the values of each pixel in all columns. Uses layer->padded for the sums. */
static void cpu_fold(const train_layer_t *layer, const void *input, size_t images, void *ret_delta)
{
    const size_t channels = layer->channels, part = SIDE * channels;
    const size_t row = layer->width * channels, padded_row = row + 2 * channels;
    const size_t padded_count = (layer->height + 2) * padded_row;
    const float *from = layer->columns;
    float *padded = layer->padded, *delta = ret_delta;

    for (size_t i = 0; i < images; i++) {
        memset(padded, 0, padded_count * sizeof(float));
        for (size_t y = 0; y < layer->height; y++)
            for (size_t x = 0; x < layer->width; x++)
                for (size_t dy = 0; dy < SIDE; dy++, from += part) {
                    float *to = padded + (y + dy) * padded_row + x * channels;

                    for (size_t j = 0; j < part; j++)
                        to[j] += from[j];
                }
        for (size_t y = 0; y < layer->height; y++)
            memcpy(delta + i * layer->inputs + y * row, padded + (y + 1) * padded_row + channels,
                   row * sizeof(float));
    }
    memset(padded, 0, padded_count * sizeof(float));
    cpu_cut(layer->compute, input, delta, images * layer->inputs);
}

/* The largest of 2 x 2 sums of each filter, and its index. */
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

/* The reverse: the largest sum gets the gradient; the other three sums get a gradient of 0. */
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

static void cpu_pool(const train_layer_t *layer, size_t images, void *ret_output,
                     uint8_t *ret_winners, bool relu)
{
    const size_t filters = layer->filters, row = layer->width * filters;
    const float *sums = layer->sums;
    float *output = ret_output;

    for (size_t i = 0; i < images; i++)
        for (size_t y = 0; y + 1 < layer->height; y += POOL)
            for (size_t x = 0; x + 1 < layer->width; x += POOL) {
                const float *upper = sums + (i * layer->height + y) * row + x * filters;

                pool_pixel(upper, upper + row, filters, output, ret_winners);
                output += filters;
                ret_winners += filters;
            }
    cpu_add_bias(layer->compute, layer->bias, ret_output, images * layer->outputs / filters, relu);
}

static void cpu_unpool(const train_layer_t *layer, size_t images, const void *delta,
                       const uint8_t *winners)
{
    const size_t filters = layer->filters, row = layer->width * filters;
    const float *from = delta;
    float *sums = layer->sums;

    if (layer->height % POOL != 0 || layer->width % POOL != 0)
        memset(sums, 0, images * layer->height * row * sizeof(float));
    for (size_t i = 0; i < images; i++)
        for (size_t y = 0; y + 1 < layer->height; y += POOL)
            for (size_t x = 0; x + 1 < layer->width; x += POOL) {
                float *upper = sums + (i * layer->height + y) * row + x * filters;

                unpool_pixel(from, winners, filters, upper, upper + row);
                from += filters;
                winners += filters;
            }
}

/* ---- behind the last layer: softmax, loss, and their gradient ---- */

/* Turn a row of scores into probabilities; add the row's loss and correctness to `score`. */
static void softmax_row(const float *scores, size_t classes, size_t label, float *ret_row,
                        train_score_t *score)
{
    size_t best = 0;
    double total = 0.0;

    for (size_t j = 1; j < classes; j++)
        if (scores[j] > scores[best])
            best = j;
    const double highest = scores[best];
    for (size_t j = 0; j < classes; j++)
        total += exp(scores[j] - highest);

    score->loss += log(total) - (scores[label] - highest);
    score->correct += best == label;

    for (size_t j = 0; j < classes; j++) {
        const double probability = exp(scores[j] - highest) / total;

        ret_row[j] = probability < TINY_PROBABILITY ? 0.0f : (float)probability;
    }
}

static void cpu_softmax(train_compute_t *compute, const void *scores, const uint8_t *labels,
                        size_t rows, size_t classes, float *ret_probabilities, train_score_t *sum)
{
    train_score_t score = { 0 };

    (void)compute;
    for (size_t i = 0; i < rows; i++)
        softmax_row((const float *)scores + i * classes, classes, labels[i],
                    ret_probabilities + i * classes, &score);
    sum->loss += score.loss;
    sum->correct += score.correct;
}

static void cpu_output_delta(train_compute_t *compute, const float *probabilities,
                             const uint8_t *labels, size_t rows, size_t classes, float share,
                             void *ret_delta)
{
    float *delta = ret_delta;

    (void)compute;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < classes; j++) {
            const size_t at = i * classes + j;
            const float wanted = j == labels[i] ? 1.0f : 0.0f;

            delta[at] = (probabilities[at] - wanted) * share;
        }
}

static void cpu_add(train_compute_t *compute, double *sum, const double *term)
{
    (void)compute;
    *sum += *term;
}

static bool cpu_unscale(train_compute_t *compute, float *gradients, size_t count, float factor)
{
    bool finite = true;

    (void)compute;
    for (size_t i = 0; i < count; i++) {
        gradients[i] *= factor;
        finite = finite && isfinite(gradients[i]);
    }
    return finite;
}

static void cpu_clip(train_compute_t *compute, const train_tensor_t *tensors, size_t count,
                     double limit)
{
    (void)compute;
    train_rules_clip(tensors, count, limit);
}

static const train_compute_ops_t cpu_ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .put = cpu_put,
    .get = cpu_get,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .narrow = cpu_narrow,
    .gather = cpu_gather,
    .product = cpu_product,
    .add_bias = cpu_add_bias,
    .bias_gradient = cpu_bias_gradient,
    .cut = cpu_cut,
    .unfold = cpu_unfold,
    .fold = cpu_fold,
    .pool = cpu_pool,
    .unpool = cpu_unpool,
    .softmax = cpu_softmax,
    .output_delta = cpu_output_delta,
    .add = cpu_add,
    .unscale = cpu_unscale,
    .clip = cpu_clip,
    .step = train_rules_step,
};

void train_cpu_open(train_compute_t *ret_compute)
{
    *ret_compute = (train_compute_t){
        .ops = &cpu_ops,
        .number_bytes = sizeof(float),
        .group_bytes = GROUP_BYTES,
    };
}
