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
#include "train_compute.h"

typedef struct {
    train_compute_t *compute;
    train_rule_t rule;
    size_t state_count;     /* floats */
    float *state;           /* one or two per parameter, tensor by tensor: the compute's array */
    uint64_t steps;         /* made so far, with those that were skipped */
    uint64_t skipped_steps; /* of them */
} train_optimizer_t;

/*
 * Allocate the state for these tensors. The same tensors go to each step.
 *
 * On failure *ret_optimizer is empty. train_optimizer_free takes an empty one.
 */
bool train_optimizer_create(train_compute_t *compute, const train_rule_t *rule,
                            const train_tensor_t *tensors, size_t count,
                            train_optimizer_t *ret_optimizer, train_error_t *error);
void train_optimizer_free(train_optimizer_t *optimizer);

/* Change the parameters by one step against their gradients, which are used up by it. */
void train_optimizer_step(train_optimizer_t *optimizer, const train_tensor_t *tensors, size_t count,
                          double rate);

/* Leave out a step: its gradients are not to be used, and nothing moves. */
void train_optimizer_skip(train_optimizer_t *optimizer);

#endif
