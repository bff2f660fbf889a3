/* SPDX-License-Identifier: BSD-3-Clause */
/* What all that runs operations step by step has in common: transports, node kernels, executor. */
#ifndef TUTTI__SCHED_STEP_H
#define TUTTI__SCHED_STEP_H

#include <stdint.h>

/* Lanes keep schedules in flight apart. 0: direct calls; 1 to 4: the engine. */
#define TUTTI__LANES 5

/* What a call is for; ranks with different ones do not fit. The first are the collectives of
   coll/. */
typedef enum {
    TUTTI__TAG_ALLREDUCE,
    TUTTI__TAG_BROADCAST,
    TUTTI__TAG_ALLGATHER,
    TUTTI__TAG_BARRIER,
    TUTTI__TAG_MEM_ALLOC,
    TUTTI__TAG_BUCKET
} tutti__tag_t;

/* Where a step is stuck: for waiting without burning the processor, and for naming the culprit. */
typedef struct {
    void *word;     /* a 32-bit word in shared memory that will change, or NULL: poll */
    uint32_t value; /* what it held */
    int32_t peer;   /* the rank waited for, or -1 */
} tutti__stuck_t;

#endif
