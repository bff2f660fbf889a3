/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The compute backend: a table of operations, for the processor (train_cpu.c) or a GPU
 * (train_gpu.c).
 *
 * Layers, model and optimizer use only this table. The arrays that the operations use belong to the
 * backend: `alloc` makes them, and only `put` and `get` copy data in and out. On the processor the
 * arrays are ordinary memory, and `put` and `get` copy, or do nothing.
 *
 * A GPU's operations are only queued: they return before the work is done, and only `get` and
 * `sync` wait. No operation returns an error. The first error stays in `error`, and later
 * operations do nothing; before results are used, train_compute_works checks for an error.
 *
 * There are two kinds of arrays. Floats: parameters, gradients, the optimizer's state,
 * probabilities. Numbers: the inputs of matrix products and the outputs of layers, which are floats
 * or have 16 bits.
 */
#ifndef TRAIN_COMPUTE_H
#define TRAIN_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"

/* The type of numbers; in the order of --precision's words. */
typedef enum {
    TRAIN_FP32,
    TRAIN_BF16,
    TRAIN_FP16
} train_precision_t;

/* An array of parameters and its gradient, which the ranks add up by one request. */
typedef struct {
    char name[40];   /* such as "layer1/weight" */
    size_t count;    /* floats */
    bool one_number; /* one number per output: a bias, which some optimizers treat differently */
    float *value;
    float *gradient;
    void *number; /* the value as numbers, for products; with fp32 the same as `value` */
} train_tensor_t;

/* Loss and correct rows of a set of rows. */
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

/* c = op(a) op(b) + beta c, in row-major order: m x k, k x n, m x n numbers. */
typedef struct {
    bool turn_a, turn_b; /* transposed in memory: k x m, n x k */
    size_t m, n, k;
    const void *a, *b;
    float beta;
    void *c;
    bool floats; /* c has floats, for any type of numbers */
} train_product_t;

/* The optimizer's rule for a step of a tensor. */
typedef enum {
    TRAIN_OPTIMIZER_SGD,
    TRAIN_OPTIMIZER_ADAMW,
    TRAIN_OPTIMIZER_LARS,
    TRAIN_OPTIMIZER_LAMB
} train_optimizer_kind_t; /* in the order of --optimizer's words */

typedef struct {
    train_optimizer_kind_t kind;
    double momentum;     /* sgd, lars */
    double beta1, beta2; /* adamw, lamb: decay of the two averages */
    double epsilon;      /* adamw, lamb: added to the divisor */
    double trust;        /* lars: norm of a step / norm of the parameters */
    double weight_decay;
} train_rule_t;

/* The two averages of adamw and lamb, and the correction of their bias. */
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
    /* an array of zeros; NULL: no memory. `free` accepts NULL */
    void *(*alloc)(train_compute_t *compute, size_t bytes);
    void (*free)(train_compute_t *compute, void *array);

    /* copy into and out of arrays; on return, the caller's memory has been read or filled */
    void (*put)(train_compute_t *compute, void *array, const void *from, size_t bytes);
    void (*get)(train_compute_t *compute, void *to, const void *array, size_t bytes);
    void (*zero)(train_compute_t *compute, void *array, size_t bytes);
    void (*sync)(train_compute_t *compute); /* wait until all queued work is done */

    /* compute a tensor's numbers from its value, after `put` */
    void (*narrow)(train_compute_t *compute, const train_tensor_t *tensor);

    /* copy images and labels of `rows` items of the source; all pointers are arrays */
    void (*gather)(train_compute_t *compute, const train_source_t *source, const uint32_t *items,
                   size_t rows, void *ret_inputs, uint8_t *ret_labels);

    void (*product)(train_compute_t *compute, const train_product_t *product);

    /* add the bias to each of `rows` rows; with `relu`, replace negative results by 0 */
    void (*add_bias)(train_compute_t *compute, const train_tensor_t *bias, void *output,
                     size_t rows, bool relu);

    /* the bias's gradient: sums over `rows` rows; with `add`, added to the old gradient */
    void (*bias_gradient)(train_compute_t *compute, const train_tensor_t *bias, const void *delta,
                          size_t rows, bool add);

    /* set delta to 0 where input is 0 */
    void (*cut)(train_compute_t *compute, const void *input, void *delta, size_t count);

    /* unfold, fold: between images and layer->columns; pool, unpool: between layer->sums and
       outputs; see train_conv.c */
    void (*unfold)(const train_layer_t *layer, const void *input, size_t images);
    void (*fold)(const train_layer_t *layer, const void *input, size_t images, void *ret_delta);
    void (*pool)(const train_layer_t *layer, size_t images, void *ret_output, uint8_t *ret_winners,
                 bool relu);
    void (*unpool)(const train_layer_t *layer, size_t images, const void *delta,
                   const uint8_t *winners);

    /* turn rows of scores into probabilities, perhaps in the same array; add the rows' loss and
       correctness to `sum` */
    void (*softmax)(train_compute_t *compute, const void *scores, const uint8_t *labels,
                    size_t rows, size_t classes, float *ret_probabilities, train_score_t *sum);

    /* compute the gradient by the scores */
    void (*output_delta)(train_compute_t *compute, const float *probabilities,
                         const uint8_t *labels, size_t rows, size_t classes, float share,
                         void *ret_delta);

    /* *sum += *term */
    void (*add)(train_compute_t *compute, double *sum, const double *term);

    /* multiply gradients by a factor, and wait; false if a result is infinite or NaN */
    bool (*unscale)(train_compute_t *compute, float *gradients, size_t count, float factor);

    /*
     * Scale all gradients by one factor so that their common norm is at most `limit`, as PyTorch's
     * clip_grad_norm_. The gradients are sums over all ranks, so all ranks compute the same factor
     * without communication.
     */
    void (*clip)(train_compute_t *compute, const train_tensor_t *tensors, size_t count,
                 double limit);

    /* a tensor's part of an optimizer's step; `state` is the optimizer's state of this tensor. Also
       updates the tensor's numbers */
    void (*step)(train_compute_t *compute, const train_rule_t *rule,
                 const train_averages_t *averages, const train_tensor_t *tensor, float *state,
                 double rate);
} train_compute_ops_t;

struct train_compute {
    const train_compute_ops_t *ops;
    bool on_device;      /* the host cannot read arrays */
    size_t number_bytes; /* 4 or 2 */
    size_t group_bytes;  /* approximate size of the columns of a convolution's group */
    train_error_t error; /* the first error */

    /* only for a GPU */
    train_precision_t precision;
    train_device_t *device;
    void *scratch; /* in the device's memory */
};

/* The processor, with OpenBLAS. Need not be closed. */
void train_cpu_open(train_compute_t *ret_compute);

/*
 * A GPU. Takes over the device, and closes it on failure or in train_gpu_close. After a
 * failure, and after train_gpu_close, *ret_compute is empty, and may be closed again.
 */
bool train_gpu_open(train_device_t *device, train_precision_t precision,
                    train_compute_t *ret_compute, train_error_t *error);
void train_gpu_close(train_compute_t *compute);

/* False, with the reason in `error`, if an operation has failed. */
bool train_compute_works(const train_compute_t *compute, train_error_t *error);

/* The address of number `i`. */
static inline const void *train_number(const train_compute_t *compute, const void *numbers,
                                       size_t i)
{
    return (const char *)numbers + i * compute->number_bytes;
}

static inline void *train_number_to(const train_compute_t *compute, void *numbers, size_t i)
{
    return (char *)numbers + i * compute->number_bytes;
}

/* The processor's `clip` and `step` (train_rules.c). The first returns the norm before clipping. */
double train_rules_clip(const train_tensor_t *tensors, size_t count, double limit);
void train_rules_step(train_compute_t *compute, const train_rule_t *rule,
                      const train_averages_t *averages, const train_tensor_t *tensor, float *state,
                      double rate);

#endif
