/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of the optimizers, and their steps, which go tensor by tensor. The rules are in
 * train_rules.c.
 */
#include "train_optimizer.h"

#include <math.h>

static size_t state_per_parameter(train_optimizer_kind_t kind)
{
    return kind == TRAIN_OPTIMIZER_ADAMW || kind == TRAIN_OPTIMIZER_LAMB ? 2 : 1;
}

bool train_optimizer_create(train_compute_t *compute, const train_rule_t *rule,
                            const train_tensor_t *tensors, size_t count,
                            train_optimizer_t *ret_optimizer, train_error_t *error)
{
    train_optimizer_t optimizer = { .compute = compute, .rule = *rule };

    for (size_t i = 0; i < count; i++)
        optimizer.state_count += state_per_parameter(rule->kind) * tensors[i].count;
    optimizer.state = compute->ops->alloc(compute, optimizer.state_count * sizeof(float));
    *ret_optimizer = optimizer;
    if (optimizer.state == NULL)
        return train_fail(error, "not enough memory for the optimizer");
    return true;
}

void train_optimizer_free(train_optimizer_t *optimizer)
{
    if (optimizer->compute != NULL)
        optimizer->compute->ops->free(optimizer->compute, optimizer->state);
    optimizer->state = NULL;
}

static train_averages_t averages_at(const train_rule_t *rule, uint64_t step)
{
    const train_averages_t averages = {
        .beta1 = (float)rule->beta1,
        .beta2 = (float)rule->beta2,
        .mean_factor = (float)(1.0 / (1.0 - pow(rule->beta1, (double)step))),
        .square_factor = (float)(1.0 / sqrt(1.0 - pow(rule->beta2, (double)step))),
        .epsilon = (float)rule->epsilon,
    };

    return averages;
}

void train_optimizer_step(train_optimizer_t *optimizer, const train_tensor_t *tensors, size_t count,
                          double rate)
{
    train_compute_t *compute = optimizer->compute;
    const train_rule_t *rule = &optimizer->rule;
    const train_averages_t averages =
        averages_at(rule, ++optimizer->steps - optimizer->skipped_steps);
    float *state = optimizer->state;

    for (size_t i = 0; i < count; i++) {
        compute->ops->step(compute, rule, &averages, &tensors[i], state, rate);
        state += state_per_parameter(rule->kind) * tensors[i].count;
    }
}

void train_optimizer_skip(train_optimizer_t *optimizer)
{
    optimizer->steps++;
    optimizer->skipped_steps++;
}
