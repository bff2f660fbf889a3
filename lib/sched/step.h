/* SPDX-License-Identifier: BSD-3-Clause */
/* What all that runs operations step by step has in common: transports, node kernels, executor. */
#ifndef TUTTI__SCHED_STEP_H
#define TUTTI__SCHED_STEP_H

#include <stdint.h>

/* Lanes keep schedules in flight apart. 0: direct calls; 1 to 4: the engine. */
#define TUTTI__LANES 5

/* Where a step is stuck: for waiting without burning the processor, and for naming the culprit. */
typedef struct {
    void *word;     /* a 32-bit word in shared memory that will change, or NULL: poll */
    uint32_t value; /* what it held */
    int32_t peer;   /* the rank waited for, or -1 */
} tutti__stuck_t;

#endif
