/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss scaling: what DeepSpeed does by default, but for its hysteresis, which lets every second
 * overflow pass.
 */
#include "train_scale.h"

train_scale_t train_scale_start(void)
{
    const train_scale_t scale = { TRAIN_SCALE_START, 0 };

    return scale;
}

bool train_scale_update(train_scale_t *scale, bool finite)
{
    if (!finite) {
        if (scale->value <= 1.0f)
            return false;
        scale->value *= 0.5f;
        scale->clean_steps = 0;
    } else if (++scale->clean_steps == TRAIN_SCALE_INTERVAL) {
        if (scale->value < TRAIN_SCALE_MOST)
            scale->value *= 2.0f;
        scale->clean_steps = 0;
    }
    return true;
}
