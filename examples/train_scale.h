/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss scaling, for gradients of 16 bits with a short exponent (--precision fp16).
 *
 * Small gradients would become 0 on their way back through the layers, so the loss is multiplied by
 * a scale as large as possible. Where it was too large, gradients become infinite or NaN: then the
 * step is left out and the scale halved, but for the first time. After a long time without that it
 * is doubled, and the next overflow is the first one again.
 *
 * All ranks look at the summed gradients, which are the same everywhere: so is what follows.
 */
#ifndef TRAIN_SCALE_H
#define TRAIN_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#define TRAIN_SCALE_START 65536.0f
#define TRAIN_SCALE_INTERVAL 1000 /* steps without overflow until the scale is doubled */
#define TRAIN_SCALE_HYSTERESIS 2  /* the overflow that is the first to halve it */
#define TRAIN_SCALE_MOST 16777216.0f

typedef struct {
    float value;          /* a power of two from 1 on */
    uint32_t clean_steps; /* since it was doubled, or gradients overflowed */
    uint32_t hysteresis;  /* the next overflow halves it if this is 1, and else lowers this */
} train_scale_t;

train_scale_t train_scale_start(void);

/*
 * Go on after a step whose gradients were finite, or not: then the step is to be left out. False if
 * they were not, and the scale cannot become smaller.
 */
bool train_scale_update(train_scale_t *scale, bool finite);

#endif
