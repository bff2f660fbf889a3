/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for all rooms that run operations step by step: transports, nodes, executor. */
#ifndef TUTTI__SCHED_STEP_H
#define TUTTI__SCHED_STEP_H

#include "base/constants.h"

#include <stdint.h>

/* Lanes separate schedules in flight. Lane 0: direct calls. Lanes 1 to 4: agreed buckets of
   tensors. Lane 5: calls without a name, in their order. Lanes 6 and 7: buckets of a learned
   plan. */
#define TUTTI__BUCKET_LANES 4
#define TUTTI__ORDERED_LANE 5
#define TUTTI__PLAN_LANE 6
#define TUTTI__LANES (TUTTI__PLAN_LANE + TUTTI__PLAN_LANES)
/* The lanes that can use device memory: those before the ordered lane. */
#define TUTTI__DEVICE_LANES TUTTI__ORDERED_LANE

/* The number of lanes for which memory is reserved. The engine may use fewer, because a plan may
   have only one lane (engine/lanes.c). */
static inline uint32_t tutti__lanes_most(uint32_t nhosts)
{
    return nhosts > 1 ? TUTTI__LANES : TUTTI__PLAN_LANE + 1;
}

/* The purpose of a call. Different purposes on two ranks are a mismatch. The first tags are the
   collectives of coll/coll.h, in the same order. */
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
    TUTTI__TAG_SENDRECV, /* also for a send or a receive alone */
    TUTTI__TAG_MEM_ALLOC,
    TUTTI__TAG_COUNTS, /* the exchange of counts that precedes v collectives */
    TUTTI__TAG_SPLIT,
    TUTTI__TAG_BUCKET
} tutti__tag_t;

/* A bit of a tag: buffers are device memory, even if the call copies them to the host first. */
#define TUTTI__TAG_ON_DEVICE 64u

/* Returns a static text for messages, such as "an allreduce"; NULL for an invalid tag. */
const char *tutti__tag_name(unsigned tag);

/* The wait hint of a step: a word to sleep on, and the rank to name in messages. If a step waits
   for changes of several words, the word is NULL, and the peer is preferably a rank that this rank
   reaches over shared memory. */
typedef struct {
    void *word;     /* a 32-bit word in shared memory that will change, or NULL: poll */
    uint32_t value; /* its last value */
    int32_t peer;   /* the rank waited for, or -1 */
} tutti__hint_t;

#endif
