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
    TUTTI__TAG_REDUCE,
    TUTTI__TAG_BROADCAST,
    TUTTI__TAG_REDUCE_SCATTER,
    TUTTI__TAG_ALLGATHER,
    TUTTI__TAG_ALLGATHERV,
    TUTTI__TAG_GATHER,
    TUTTI__TAG_GATHERV,
    TUTTI__TAG_SCATTER,
    TUTTI__TAG_SCATTERV,
    TUTTI__TAG_ALLTOALL,
    TUTTI__TAG_ALLTOALLV,
    TUTTI__TAG_SCAN,
    TUTTI__TAG_EXSCAN,
    TUTTI__TAG_BARRIER,
    TUTTI__TAG_SENDRECV, /* also send, receive */
    TUTTI__TAG_MEM_ALLOC,
    TUTTI__TAG_COUNTS, /* what v collectives tell each other first */
    TUTTI__TAG_SPLIT,
    TUTTI__TAG_BUCKET
} tutti__tag_t;

/* Added to a tag: buffers are device memory, be they copied to the host first or not. */
#define TUTTI__TAG_ON_DEVICE 64u

/* "an allreduce", "a barrier", for messages; NULL for what is none. Static. */
const char *tutti__tag_name(unsigned tag);

/* Where a step is stuck: for waiting without burning the processor, and for naming the culprit. */
typedef struct {
    void *word;     /* a 32-bit word in shared memory that will change, or NULL: poll */
    uint32_t value; /* what it held */
    int32_t peer;   /* the rank waited for, or -1 */
} tutti__stuck_t;

#endif
