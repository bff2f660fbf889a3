/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss scaling, as in DeepSpeed's default. The hysteresis ignores a single overflow, which may be
 * caused by one unusual batch and not by the scale.
 */
#include "train_scale.h"

train_scale_t train_scale_start(void)
{
    const train_scale_t scale = { TRAIN_SCALE_START, 0, TRAIN_SCALE_HYSTERESIS };

    return scale;
}

bool train_scale_update(train_scale_t *scale, bool finite)
{
    if (!finite) {
        scale->clean_steps = 0;
        if (scale->hysteresis > 1) {
            scale->hysteresis--;
            return true;
        }
        if (scale->value <= 1.0f)
            return false;
        scale->value *= 0.5f;
    } else if (++scale->clean_steps == TRAIN_SCALE_INTERVAL) {
        if (scale->value < TRAIN_SCALE_MOST)
            scale->value *= 2.0f;
        scale->clean_steps = 0;
        scale->hysteresis = TRAIN_SCALE_HYSTERESIS;
    }
    return true;
}
