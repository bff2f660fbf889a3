/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss scaling, for gradients of 16 bits with a short exponent (--precision fp16).
 *
 * Small gradients would become 0 in the backward pass, so the loss is multiplied by a scale as
 * large as possible. If the scale is too large, gradients become infinite or NaN: then the step is
 * skipped, and the scale is halved, except after the first overflow. After many steps without
 * overflow the scale is doubled, and the next overflow counts as the first again.
 *
 * All ranks check the summed gradients. These are equal on all ranks, so all ranks have the same
 * scale.
 */
#ifndef TRAIN_SCALE_H
#define TRAIN_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#define TRAIN_SCALE_START 65536.0f
#define TRAIN_SCALE_INTERVAL 1000 /* steps without overflow until the scale is doubled */
#define TRAIN_SCALE_HYSTERESIS 2  /* the second overflow halves the scale */
#define TRAIN_SCALE_MOST 16777216.0f

typedef struct {
    float value;          /* a power of two, at least 1 */
    uint32_t clean_steps; /* since the last doubling or overflow */
    uint32_t hysteresis;  /* 1: the next overflow halves `value`; above 1: it decrements this */
} train_scale_t;

train_scale_t train_scale_start(void);

/*
 * Update the scale after a step. finite: the gradients were finite; otherwise the step must be
 * skipped. False: they were not finite, and the scale cannot become smaller.
 */
bool train_scale_update(train_scale_t *scale, bool finite);

#endif
