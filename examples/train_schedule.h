/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules of the learning rate.
 *
 *     peak |       ____                 |       ____      |       ________
 *          |     /      \               |     /    |__    |     /
 *          |   /          \__           |   /         |__ |   /
 *        0 +------------------->  steps +-------------->  +------------->
 *           warmup   cosine               warmup   step     warmup  constant
 */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stddef.h>

/* In the order of --schedule's words, and of --lr-scaling's. */
typedef enum {
    TRAIN_SCHEDULE_COSINE,
    TRAIN_SCHEDULE_STEP,
    TRAIN_SCHEDULE_CONSTANT
} train_schedule_kind_t;

typedef enum {
    TRAIN_SCALING_LINEAR,
    TRAIN_SCALING_SQRT
} train_scaling_t;

typedef struct {
    train_schedule_kind_t kind;
    double peak;
    double warmup_steps; /* a quadratic rise */
    double total_steps;  /* cosine: the step at which the rate would be 0 */
    double decay_steps;  /* step: number of steps with the same rate, from the first step on */
    double decay;        /* step: factor of the rate after decay_steps */
} train_schedule_t;

/*
 * The rate for `batch` images per step. rate: for `reference` images per step.
 *
 * Linear: with k times the images per step there are k times fewer steps, so each step is k times
 * as long (Goyal et al. 2017). Square root: keeps the noise of the steps constant; usual with adamw
 * and lamb.
 */
double train_schedule_scale(train_scaling_t scaling, double rate, double batch, double reference);

/* The learning rate of a step; steps count from 0. */
double train_schedule_rate(const train_schedule_t *schedule, size_t step);

#endif
