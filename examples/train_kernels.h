/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of train_kernels.inc and their arguments, for the device's compiler and the host's.
 *
 * A kernel computes one element at a time, for a number of elements given at its launch. No element
 * needs the result of another. Pointers are to the device's memory. `kind` is the type of numbers.
 * The structures have no padding: tests/trainer/stream_device.c searches the arguments for
 * addresses, and undefined bytes of padding may look like an address.
 */
#ifndef TRAIN_KERNELS_H
#define TRAIN_KERNELS_H

#include <stdint.h>

#define TRAIN_KERNELS(X)                                                                           \
    X(narrow)                                                                                      \
    X(gather)                                                                                      \
    X(add_bias)                                                                                    \
    X(column_sum)                                                                                  \
    X(double_sum)                                                                                  \
    X(cut)                                                                                         \
    X(unfold)                                                                                      \
    X(fold)                                                                                        \
    X(pool)                                                                                        \
    X(unpool)                                                                                      \
    X(softmax)                                                                                     \
    X(output_delta)                                                                                \
    X(unscale)                                                                                     \
    X(squares)                                                                                     \
    X(pace)                                                                                        \
    X(scale)                                                                                       \
    X(momentum)                                                                                    \
    X(average)                                                                                     \
    X(decay)                                                                                       \
    X(step)

#define TRAIN_KERNEL_NUMBER(name) TRAIN_KERNEL_##name,
enum {
    TRAIN_KERNELS(TRAIN_KERNEL_NUMBER) TRAIN_KERNEL_COUNT
};

/* to = from */
typedef struct {
    const float *from;
    void *to;
    uint64_t kind;
} train_narrow_args_t;

/* element: a pixel of a row */
typedef struct {
    const uint8_t *images, *image_labels;
    const uint32_t *items;
    void *inputs;
    uint8_t *labels;
    float mean, scale;
    uint32_t pixels, kind;
} train_gather_args_t;

/* element: of the output */
typedef struct {
    const float *bias;
    void *output;
    uint32_t width, relu;
    uint64_t kind;
} train_add_bias_args_t;

/* Sums of columns, each in `parts` parts. A row of `to` has one part of each column's sum. element:
   of `to`, parts x width */
typedef struct {
    const void *from;
    void *to; /* floats; in double_sum, from and to are doubles for any `kind` */
    uint32_t rows, width, parts, add;
    uint64_t kind;
} train_column_sum_args_t;

typedef train_column_sum_args_t train_double_sum_args_t;

typedef struct {
    const void *input;
    void *delta;
    uint64_t kind;
} train_cut_args_t;

/* The shape of a convolution. */
typedef struct {
    uint32_t height, width, channels, filters;
} train_shape_t;

/* element: of columns */
typedef struct {
    train_shape_t shape;
    const void *input;
    void *columns;
    uint64_t kind;
} train_unfold_args_t;

/* element: of delta */
typedef struct {
    train_shape_t shape;
    const void *columns, *input;
    void *delta;
    uint64_t kind;
} train_fold_args_t;

/* element: of the output */
typedef struct {
    train_shape_t shape;
    const void *sums;
    const float *bias;
    void *output;
    uint8_t *winners;
    uint32_t relu, kind;
} train_pool_args_t;

/* element: of sums */
typedef struct {
    train_shape_t shape;
    const void *delta;
    const uint8_t *winners;
    void *sums;
    uint64_t kind;
} train_unpool_args_t;

/* An element is a row. score: two numbers of each row: its loss; 1 if its highest score is the
   label's, otherwise 0 */
typedef struct {
    const void *scores;
    const uint8_t *labels;
    float *probabilities;
    double *score;
    uint32_t classes, kind;
} train_softmax_args_t;

/* element: of delta */
typedef struct {
    const float *probabilities;
    const uint8_t *labels;
    void *delta;
    float share;
    uint32_t classes;
    uint64_t kind;
} train_output_delta_args_t;

/* bad: set to 1 if a product is infinite or NaN, otherwise unchanged */
typedef struct {
    float *gradients;
    uint32_t *bad;
    float factor;
    uint32_t nothing;
} train_unscale_args_t;

/* element: one of `parts` sums of squares */
typedef struct {
    const float *from;
    double *to;
    uint32_t count, parts;
} train_squares_args_t;

/* One number: the length of a step, or a scale. first, second: sums of squares */
enum {
    TRAIN_PACE_LARS, /* rate trust |first| / (|second| + decay |first|) */
    TRAIN_PACE_LAMB, /* rate |first| / |second| */
    TRAIN_PACE_CLIP  /* limit / |first|, at most 1 */
};
typedef struct {
    const double *first, *second;
    double rate, trust, decay, limit;
    float *pace;
    uint64_t kind;
} train_pace_args_t;

/* gradients *= *pace */
typedef struct {
    float *gradients;
    const float *pace;
} train_scale_args_t;

/* v = momentum v + inside (gradient + decay value); value -= outside v */
typedef struct {
    float *value;
    const float *gradient;
    float *velocity;
    const float *pace; /* used instead of `inside`, unless NULL */
    void *number;      /* NULL: the numbers are the values */
    float momentum, decay, inside, outside;
    uint64_t kind;
} train_momentum_args_t;

/* As `average` of train_rules.c. */
typedef struct {
    float *gradient, *mean, *square;
    float beta1, beta2, mean_factor, square_factor, epsilon;
    uint32_t nothing;
} train_average_args_t;

/* direction += decay value */
typedef struct {
    float *direction;
    const float *value;
    float decay;
    uint32_t nothing;
} train_decay_args_t;

/* value = shrink value - pace direction */
typedef struct {
    float *value;
    const float *direction;
    const float *pace; /* used instead of `rate`, unless NULL */
    void *number;      /* NULL: the numbers are the values */
    float shrink, rate;
    uint64_t kind;
} train_step_args_t;

#endif
