/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The learning rate depends only on the step's number: it need not be saved or sent.
 */
#include "train_schedule.h"

#include <math.h>

double train_schedule_scale(train_scaling_t scaling, double rate, double batch, double reference)
{
    const double factor = batch / reference;

    return rate * (scaling == TRAIN_SCALING_SQRT ? sqrt(factor) : factor);
}

double train_schedule_rate(const train_schedule_t *schedule, size_t step)
{
    const double now = (double)step;
    const double rest = schedule->total_steps - schedule->warmup_steps;
    double share = 1.0;

    /*
     * Quadratic: a linear rise is too steep in the first steps, where the loss is roughest. The
     * difference shows if N ranks are compared with one rank: about once in a few hundred steps,
     * rounding switches a ReLU in one run and not in the other, and the losses diverge. After 50
     * steps they differ by 1e-3 with a linear warmup of half an epoch, and by less than 1e-5 with a
     * quadratic warmup.
     */
    if (now < schedule->warmup_steps)
        return schedule->peak * pow(fmin(1.0, (now + 1.0) / schedule->warmup_steps), 2);

    switch (schedule->kind) {
    case TRAIN_SCHEDULE_COSINE:
        if (rest > 0.0) {
            const double done = fmin(1.0, (now - schedule->warmup_steps) / rest);

            share = 0.5 * (1.0 + cos(3.141592653589793 * done));
        }
        break;
    case TRAIN_SCHEDULE_STEP:
        share = pow(schedule->decay, floor(now / schedule->decay_steps));
        break;
    case TRAIN_SCHEDULE_CONSTANT:
        break;
    }
    return schedule->peak * share;
}
