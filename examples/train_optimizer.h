/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How parameters follow their gradients: SGD, AdamW, LARS, LAMB.
 *
 * Every rank holds all of it and makes the same step from the same summed gradients, so the
 * parameters stay equal on all ranks without being sent again.
 */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"
#include "train_layer.h"

/* In the order of --optimizer's words. */
typedef enum {
    TRAIN_OPTIMIZER_SGD,
    TRAIN_OPTIMIZER_ADAMW,
    TRAIN_OPTIMIZER_LARS,
    TRAIN_OPTIMIZER_LAMB
} train_optimizer_kind_t;

typedef struct {
    train_optimizer_kind_t kind;
    double momentum;     /* sgd, lars */
    double beta1, beta2; /* adamw, lamb: how slowly the two averages move */
    double epsilon;      /* adamw, lamb: keeps the divisor from 0 */
    double trust;        /* lars: length of a step as a share of the parameters' length */
    double weight_decay;
} train_rule_t;

typedef struct {
    train_rule_t rule;
    size_t state_count; /* floats */
    float *state;       /* one or two numbers per parameter, tensor by tensor */
    uint64_t steps;     /* made so far */
} train_optimizer_t;

/*
 * Allocate the state for these tensors. The same tensors go to each step.
 *
 * On failure *ret_optimizer is empty. train_optimizer_free takes an empty one.
 */
bool train_optimizer_create(const train_rule_t *rule, const train_tensor_t *tensors, size_t count,
                            train_optimizer_t *ret_optimizer, train_error_t *error);
void train_optimizer_free(train_optimizer_t *optimizer);

/* Change the parameters by one step against their gradients, which are used up by it. */
void train_optimizer_step(train_optimizer_t *optimizer, const train_tensor_t *tensors, size_t count,
                          double rate);

/*
 * Scale all gradients by one factor so that their common length is at most `limit`, as PyTorch's
 * clip_grad_norm_ does. Returns the length before.
 *
 * The gradients are sums over all ranks by then, the same everywhere: so is the factor, without a
 * word between ranks.
 */
double train_optimizer_clip(const train_tensor_t *tensors, size_t count, double limit);

#endif
