/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizers: SGD, AdamW, LARS, LAMB.
 *
 * Every rank has the whole state and makes the same step from the same summed gradients. So the
 * parameters stay equal on all ranks without communication.
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
    float *state;           /* one or two per parameter, tensor by tensor; a backend's array */
    uint64_t steps;         /* so far, including skipped steps */
    uint64_t skipped_steps; /* skipped so far */
} train_optimizer_t;

/*
 * Allocate the state for these tensors. Each step must have the same tensors.
 *
 * On failure *ret_optimizer is empty, which train_optimizer_free accepts.
 */
bool train_optimizer_create(train_compute_t *compute, const train_rule_t *rule,
                            const train_tensor_t *tensors, size_t count,
                            train_optimizer_t *ret_optimizer, train_error_t *error);
void train_optimizer_free(train_optimizer_t *optimizer);

/* Make one step. Overwrites the gradients. */
void train_optimizer_step(train_optimizer_t *optimizer, const train_tensor_t *tensors, size_t count,
                          double rate);

/* Skip a step: its gradients are invalid, and the parameters do not change. */
void train_optimizer_skip(train_optimizer_t *optimizer);

#endif
