/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SGD as PyTorch has it: v = momentum v + gradient + weight_decay p;  p = p - rate v.
 */
#include "train_optimizer.h"

#include <math.h>
#include <stdlib.h>

bool train_optimizer_create(size_t count, float momentum, float weight_decay,
                            train_optimizer_t *ret_optimizer, train_error_t *error)
{
    train_optimizer_t optimizer = { momentum, weight_decay, count, NULL };

    optimizer.velocity = calloc(count, sizeof(float));
    *ret_optimizer = optimizer;
    if (optimizer.velocity == NULL)
        return train_fail(error, "not enough memory for the optimizer");
    return true;
}

void train_optimizer_free(train_optimizer_t *optimizer)
{
    free(optimizer->velocity);
    optimizer->velocity = NULL;
}

void train_optimizer_step(train_optimizer_t *optimizer, float *parameters, const float *gradients,
                          float rate)
{
    const float momentum = optimizer->momentum, weight_decay = optimizer->weight_decay;
    float *velocity = optimizer->velocity;

    for (size_t i = 0; i < optimizer->count; i++) {
        const float push = gradients[i] + weight_decay * parameters[i];

        velocity[i] = momentum * velocity[i] + push;
        parameters[i] -= rate * velocity[i];
    }
}

float train_schedule_rate(const train_schedule_t *schedule, size_t step)
{
    const double now = (double)step;
    const double rest = schedule->total_steps - schedule->warmup_steps;

    /*
     * Quadratic, as a linear rise is already steep in the first steps, when the loss is roughest.
     * It shows when N ranks are compared with one: rounding lets a ReLU switch on one and not on
     * the other, about once in a few hundred steps, and their losses then part. After 50 steps
     * by 1e-3 with a linear warmup of half an epoch, by less than 1e-5 with a quadratic one.
     */
    if (now < schedule->warmup_steps)
        return (float)(schedule->peak * pow(fmin(1.0, (now + 1.0) / schedule->warmup_steps), 2));
    if (!schedule->cosine || rest <= 0.0)
        return (float)schedule->peak;

    const double done = fmin(1.0, (now - schedule->warmup_steps) / rest);
    return (float)(schedule->peak * 0.5 * (1.0 + cos(3.141592653589793 * done)));
}
