/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stochastic gradient descent with momentum and weight decay, and the learning rate's course.
 *
 * Every rank holds all of it and makes the same step from the same summed gradients, so the
 * parameters stay equal on all ranks without being sent again.
 */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "train_base.h"

typedef struct {
    float momentum;
    float weight_decay;
    size_t count;    /* parameters */
    float *velocity; /* `count` floats */
} train_optimizer_t;

/* How the learning rate changes: a quadratic rise, then constant or a cosine down to 0. */
typedef struct {
    double peak;
    double warmup_steps;
    double total_steps;
    bool cosine;
} train_schedule_t;

/* On failure *ret_optimizer is empty. train_optimizer_free takes an empty one. */
bool train_optimizer_create(size_t count, float momentum, float weight_decay,
                            train_optimizer_t *ret_optimizer, train_error_t *error);
void train_optimizer_free(train_optimizer_t *optimizer);

/* Change the parameters by one step against their gradients. */
void train_optimizer_step(train_optimizer_t *optimizer, float *parameters, const float *gradients,
                          float rate);

/* The learning rate of a step; steps count from 0. */
float train_schedule_rate(const train_schedule_t *schedule, size_t step);

#endif
