/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What computes: a table of operations, by the processor (train_cpu.c) or a GPU (train_gpu.c).
 *
 * Layers, model and optimizer are written once against it. Arrays that operations work on are the
 * table's: `alloc` makes them, `put` and `get` are the only ways in and out, and nobody else looks
 * at them. On the processor they are ordinary memory, and both ways a memcpy or nothing.
 *
 * A GPU's operations are only ordered: they return before the work is done, and `get` and `sync`
 * are what waits. Nothing returns an error. The first one stays in `error`, and what follows does
 * nothing; whoever needs the results asks train_compute_works.
 *
 * Two kinds of arrays: floats - parameters, gradients, the optimizer's state, probabilities - and
 * numbers, which are what products read and layers hand on: floats too, or of 16 bits.
 */
#ifndef TRAIN_COMPUTE_H
#define TRAIN_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"

/* What numbers are; in the order of --precision's words. */
typedef enum {
    TRAIN_FP32,
    TRAIN_BF16,
    TRAIN_FP16
} train_precision_t;

/* One array of parameters, and its gradient: what ranks add up as one piece. */
typedef struct {
    char name[40];   /* such as "layer1/weight" */
    size_t count;    /* floats */
    bool one_number; /* per output: a bias, which some optimizers treat otherwise */
    float *value;
    float *gradient;
    void *number; /* the value as numbers: what products read. With floats it is the value */
} train_tensor_t;

/* How well rows did. */
typedef struct {
    double loss;    /* cross-entropy, summed over the rows */
    double correct; /* rows whose most probable class is the label; a whole number */
} train_score_t;

/* Images, one byte per pixel, and their labels. */
typedef struct {
    const uint8_t *images; /* of `pixels` each */
    const uint8_t *labels;
    size_t pixels;
    float mean, scale; /* pixels become (pixel - mean) * scale */
} train_source_t;

/* c = op(a) op(b) + beta c, all rows side by side: m x k, k x n, m x n numbers. */
typedef struct {
    bool turn_a, turn_b; /* it lies in memory the other way: k x m, n x k */
    size_t m, n, k;
    const void *a, *b;
    float beta;
    void *c;
    bool floats; /* c has floats, whatever numbers are */
} train_product_t;

/* One step of one tensor. */
typedef enum {
    TRAIN_OPTIMIZER_SGD,
    TRAIN_OPTIMIZER_ADAMW,
    TRAIN_OPTIMIZER_LARS,
    TRAIN_OPTIMIZER_LAMB
} train_optimizer_kind_t; /* in the order of --optimizer's words */

typedef struct {
    train_optimizer_kind_t kind;
    double momentum;     /* sgd, lars */
    double beta1, beta2; /* adamw, lamb: how slowly the two averages move */
    double epsilon;      /* adamw, lamb: keeps the divisor from 0 */
    double trust;        /* lars: length of a step as a share of the parameters' length */
    double weight_decay;
} train_rule_t;

/* What adamw and lamb have in common: the two averages, and what makes up for their start. */
typedef struct {
    float beta1, beta2;
    float mean_factor;   /* M = this times m */
    float square_factor; /* sqrt(V) = this times sqrt(v) */
    float epsilon;
} train_averages_t;

typedef struct train_compute train_compute_t;
typedef struct train_device train_device_t;
typedef struct train_layer train_layer_t;

typedef struct {
    /* zeros, for `free`; NULL: not enough memory. NULL is fine in `free` */
    void *(*alloc)(train_compute_t *compute, size_t bytes);
    void (*free)(train_compute_t *compute, void *array);

    /* into and out of arrays; the other side is the caller's, and is read or filled on return */
    void (*put)(train_compute_t *compute, void *array, const void *from, size_t bytes);
    void (*get)(train_compute_t *compute, void *to, const void *array, size_t bytes);
    void (*zero)(train_compute_t *compute, void *array, size_t bytes);
    void (*sync)(train_compute_t *compute); /* wait until all that was ordered is done */

    /* numbers from floats: a tensor's, after its value was put */
    void (*narrow)(train_compute_t *compute, const train_tensor_t *tensor);

    /* the source's images and labels of these `rows` items; all are arrays */
    void (*gather)(train_compute_t *compute, const train_source_t *source, const uint32_t *items,
                   size_t rows, void *ret_inputs, uint8_t *ret_labels);

    void (*product)(train_compute_t *compute, const train_product_t *product);

    /* add the bias to each of `rows` rows, then cut off what is negative if `relu` */
    void (*add_bias)(train_compute_t *compute, const train_tensor_t *bias, void *output,
                     size_t rows, bool relu);

    /* the bias's gradient: sums over `rows` rows; `add` to what is there */
    void (*bias_gradient)(train_compute_t *compute, const train_tensor_t *bias, const void *delta,
                          size_t rows, bool add);

    /* delta = 0 where input is 0 */
    void (*cut)(train_compute_t *compute, const void *input, void *delta, size_t count);

    /* see train_conv.c: between images and layer->columns, and layer->sums and outputs */
    void (*unfold)(const train_layer_t *layer, const void *input, size_t images);
    void (*fold)(const train_layer_t *layer, const void *input, size_t images, void *ret_delta);
    void (*pool)(const train_layer_t *layer, size_t images, void *ret_output, uint8_t *ret_winners,
                 bool relu);
    void (*unpool)(const train_layer_t *layer, size_t images, const void *delta,
                   const uint8_t *winners);

    /* rows of scores become probabilities, which may lie in the same place; adds to `sum` */
    void (*softmax)(train_compute_t *compute, const void *scores, const uint8_t *labels,
                    size_t rows, size_t classes, float *ret_probabilities, train_score_t *sum);

    /* the gradient by the scores */
    void (*output_delta)(train_compute_t *compute, const float *probabilities,
                         const uint8_t *labels, size_t rows, size_t classes, float share,
                         void *ret_delta);

    /* *sum += *term */
    void (*add)(train_compute_t *compute, double *sum, const double *term);

    /* multiply gradients; false if one was, or became, infinite or NaN. Waits */
    bool (*unscale)(train_compute_t *compute, float *gradients, size_t count, float factor);

    /*
     * Scale all gradients by one factor so that their common length is at most `limit`, as
     * PyTorch's clip_grad_norm_ does. The gradients are sums over all ranks by then, the same
     * everywhere: so is the factor, without a word between ranks.
     */
    void (*clip)(train_compute_t *compute, const train_tensor_t *tensors, size_t count,
                 double limit);

    /* one tensor's part of an optimizer's step, with the tensor's state; numbers follow values */
    void (*step)(train_compute_t *compute, const train_rule_t *rule,
                 const train_averages_t *averages, const train_tensor_t *tensor, float *state,
                 double rate);
} train_compute_ops_t;

struct train_compute {
    const train_compute_ops_t *ops;
    bool on_device;      /* arrays are not the host's to read */
    size_t number_bytes; /* 4 or 2 */
    size_t group_bytes;  /* columns that convolutions unfold at once, about */
    train_error_t error; /* the first one */

    /* the GPU's only */
    train_precision_t precision;
    train_device_t *device;
    void *scratch; /* in the device's memory */
};

/* The processor, with OpenBLAS. Nothing to close. */
void train_cpu_open(train_compute_t *ret_compute);

/*
 * A GPU. Takes the device, and closes it on failure, or with train_gpu_close. After either
 * *ret_compute is empty, and may be closed again.
 */
bool train_gpu_open(train_device_t *device, train_precision_t precision,
                    train_compute_t *ret_compute, train_error_t *error);
void train_gpu_close(train_compute_t *compute);

/* False, and the reason in `error`, if an operation has failed. */
bool train_compute_works(const train_compute_t *compute, train_error_t *error);

/* The place of number `i`. */
static inline const void *train_number(const train_compute_t *compute, const void *numbers,
                                       size_t i)
{
    return (const char *)numbers + i * compute->number_bytes;
}

static inline void *train_number_to(const train_compute_t *compute, void *numbers, size_t i)
{
    return (char *)numbers + i * compute->number_bytes;
}

/* The processor's `clip` and `step` (train_rules.c). The first returns the length before. */
double train_rules_clip(const train_tensor_t *tensors, size_t count, double limit);
void train_rules_step(train_compute_t *compute, const train_rule_t *rule,
                      const train_averages_t *averages, const train_tensor_t *tensor, float *state,
                      double rate);

#endif
