/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The four optimizers' rules, on the processor. p: a tensor's parameters; g: their gradients; r:
 * the learning rate; d: the weight decay; |x|: the norm of a tensor:
 *
 *     sgd     v = momentum v + g + d p
 *             p = p - r v
 *
 *     adamw   m = beta1 m + (1 - beta1) g       both start at 0; M and V correct the bias:
 *             v = beta2 v + (1 - beta2) g^2     M = m / (1 - beta1^t), V = v / (1 - beta2^t)
 *             p = p - r d p - r M / (sqrt(V) + epsilon)
 *
 *     lars    v = momentum v + r s (g + d p)    s = trust |p| / (|g| + d |p|)
 *             p = p - v
 *
 *     lamb    u = M / (sqrt(V) + epsilon) + d p
 *             p = p - r s u                     s = |p| / |u|
 *
 * sgd is PyTorch's SGD; its momentum differs from the textbook's when the rate changes. adamw:
 * Loshchilov and Hutter 2017 (arXiv 1711.05101), as PyTorch's AdamW. lars: You, Gitman and Ginsburg
 * 2017 (arXiv 1708.03888), algorithm 1. lamb: You et al. 2019 (arXiv 1904.00962), algorithm 2 with
 * phi(x) = x. sgd and adamw treat all tensors equally. lars and lamb use no decay and s = 1 for
 * biases, as in their authors' programs: the norm of a bias tells little about its scale. If a norm
 * is 0, s is 1 as well.
 */
#include "train_compute.h"

#include <math.h>

#define LANES 16 /* partial sums, which the compiler turns into vectors */

/* Sum of squares, in double and in a fixed order: the same bits on all ranks. */
static double squares(const float *x, size_t count)
{
    double lanes[LANES] = { 0 }, sum = 0.0;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lanes[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    for (size_t j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

static void sgd(const train_rule_t *rule, const train_tensor_t *tensor, float *restrict velocity,
                float rate)
{
    const float momentum = (float)rule->momentum, decay = (float)rule->weight_decay;
    const float *restrict gradient = tensor->gradient;
    float *restrict value = tensor->value;

    for (size_t i = 0; i < tensor->count; i++) {
        const float push = gradient[i] + decay * value[i];

        velocity[i] = momentum * velocity[i] + push;
        value[i] -= rate * velocity[i];
    }
}

static void lars(const train_rule_t *rule, const train_tensor_t *tensor, float *restrict velocity,
                 double rate)
{
    const double decay = tensor->one_number ? 0.0 : rule->weight_decay;
    const float momentum = (float)rule->momentum;
    const float *restrict gradient = tensor->gradient;
    float *restrict value = tensor->value;
    double scale = 1.0;

    if (!tensor->one_number) {
        const double length = sqrt(squares(value, tensor->count));
        const double gradient_length = sqrt(squares(gradient, tensor->count));

        if (length > 0.0 && gradient_length > 0.0)
            scale = rule->trust * length / (gradient_length + decay * length);
    }
    for (size_t i = 0; i < tensor->count; i++) {
        const float push = gradient[i] + (float)decay * value[i];

        velocity[i] = momentum * velocity[i] + (float)(rate * scale) * push;
        value[i] -= velocity[i];
    }
}

/* Update the averages. Afterwards the gradient's array has the direction: M / (sqrt(V) +
   epsilon). */
static void average(const train_averages_t *averages, const train_tensor_t *tensor,
                    float *restrict mean, float *restrict square)
{
    const train_averages_t a = *averages;
    float *restrict gradient = tensor->gradient;

    for (size_t i = 0; i < tensor->count; i++) {
        const float g = gradient[i];

        mean[i] = a.beta1 * mean[i] + (1.0f - a.beta1) * g;
        square[i] = a.beta2 * square[i] + (1.0f - a.beta2) * g * g;
        gradient[i] = mean[i] * a.mean_factor / (sqrtf(square[i]) * a.square_factor + a.epsilon);
    }
}

static void adamw(const train_rule_t *rule, const train_tensor_t *tensor, double rate)
{
    const float shrink = (float)(1.0 - rate * rule->weight_decay), pace = (float)rate;
    const float *restrict direction = tensor->gradient;
    float *restrict value = tensor->value;

    for (size_t i = 0; i < tensor->count; i++)
        value[i] = shrink * value[i] - pace * direction[i];
}

static void lamb(const train_rule_t *rule, const train_tensor_t *tensor, double rate)
{
    const float decay = tensor->one_number ? 0.0f : (float)rule->weight_decay;
    float *restrict direction = tensor->gradient;
    float *restrict value = tensor->value;
    double scale = 1.0;

    for (size_t i = 0; i < tensor->count; i++)
        direction[i] += decay * value[i];
    if (!tensor->one_number) {
        const double length = sqrt(squares(value, tensor->count));
        const double step_length = sqrt(squares(direction, tensor->count));

        if (length > 0.0 && step_length > 0.0)
            scale = length / step_length;
    }

    const float pace = (float)(rate * scale);
    for (size_t i = 0; i < tensor->count; i++)
        value[i] -= pace * direction[i];
}

void train_rules_step(train_compute_t *compute, const train_rule_t *rule,
                      const train_averages_t *averages, const train_tensor_t *tensor, float *state,
                      double rate)
{
    (void)compute;
    switch (rule->kind) {
    case TRAIN_OPTIMIZER_SGD:
        sgd(rule, tensor, state, (float)rate);
        break;
    case TRAIN_OPTIMIZER_LARS:
        lars(rule, tensor, state, rate);
        break;
    case TRAIN_OPTIMIZER_ADAMW:
        average(averages, tensor, state, state + tensor->count);
        adamw(rule, tensor, rate);
        break;
    case TRAIN_OPTIMIZER_LAMB:
        average(averages, tensor, state, state + tensor->count);
        lamb(rule, tensor, rate);
        break;
    }
}

double train_rules_clip(const train_tensor_t *tensors, size_t count, double limit)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++)
        sum += squares(tensors[i].gradient, tensors[i].count);

    /* 1e-6, as in PyTorch, prevents a division by 0 for a gradient of 0 */
    const double length = sqrt(sum), factor = limit / (length + 1e-6);
    if (factor < 1.0)
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < tensors[i].count; j++)
                tensors[i].gradient[j] *= (float)factor;
    return length;
}
