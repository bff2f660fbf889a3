/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes: buckets in flight. See lanes.c. Callers own the token. */
#ifndef TUTTI__ENGINE_LANES_H
#define TUTTI__ENGINE_LANES_H

#include "call/operation.h"
#include "engine/completion.h"

/* The caller of a step, which determines how much work the step may do. */
typedef enum {
    TUTTI__STEP_BRIEF, /* a caller that must return soon, and skips large buckets */
    TUTTI__STEP_WAITER,
    TUTTI__STEP_THREAD /* the engine's thread */
} tutti__who_t;

/* In the ordered lane each bucket has one request. */
typedef struct {
    tutti__operation_t op;
    tutti__bucket_t *first, *last; /* if `running` is 1, `first` is in flight */
    int running;
    int counting;       /* 1: the operation exchanges counts */
    tutti__call_t call; /* the call that serves the first bucket */
    tutti__call_with_t with;
    uint64_t begun_ns;       /* when the operation began, if times are measured */
    tutti__devent_t **ready; /* [ready_capacity] */
    size_t ready_capacity;
    tutti__arena_t *arena; /* the arena that holds `fuse` */
    char *fuse;            /* memory for fused buckets */
    size_t fuse_bytes;
    int is_packed; /* plan lane: the first bucket is packed */
    int is_left;   /* plan lane: a departure has ended the lane. The lane starts no operation, but
                      the messages of a comparison stay in flight */
    /* Plan lane, after a departure. still_ns: the time of the bucket's last progress; 0: not set
       for this bucket yet. moves: tutti__operation_moves at that time. */
    uint64_t still_ns;
    uint32_t moves;
    char *packed; /* where the first bucket is packed: `fuse`, or device memory */
} tutti__lane_t;

struct tutti__lanes {
    const tutti__engine_env_t *env;
    tutti__pending_t *pending;
    tutti__signals_t *signals;
    tutti__agree_t *agree; /* set with the agreement */
    int awaits_input;      /* streams may wait on semaphores */
    uint32_t in_flight;    /* agreed buckets in lanes */
    uint32_t on_device;    /* agreed buckets in lanes, in device memory */
    uint32_t ordered;      /* requests in the ordered lane */
    uint32_t planned;      /* buckets in the plan lanes */
    int polls;             /* as signals->polling */
    int pauses;            /* a lane has failed; see tutti__lanes_pause */
    uint64_t planned_ns;   /* when a bucket last entered or left a plan lane */
    /* Numbers of buckets so far. agreed_served: agreed buckets that were served. plan_served: a
       plan's buckets that were served. plan_returned: a plan's buckets that returned to agreement,
       because some ranks lacked tensors or had left. */
    uint64_t agreed_served, plan_served, plan_returned;
    /* For each plan lane: the last bucket that this rank has served in the lane. Upper half: the
       bucket's plan. Lower half: 1 + the bucket's number. All ranks serve the buckets of a lane in
       the same order. A bucket is served only if all ranks have started it. */
    uint64_t plan_progress[TUTTI__PLAN_LANES];
    uint32_t returned_plan; /* the plan of the last bucket that returned to agreement */
    uint32_t end;           /* the engine's lanes are 1 to end - 1 */
    tutti__lane_t lane[TUTTI__LANES];
    tutti__completions_t completions;
    tutti__request_t *zeros; /* zero contributions with counts for phase 1 */
    tutti__cache_t cache, device_cache;
    tutti__cache_t ordered_cache;    /* a cache like that of direct calls */
    tutti__call_env_t calls;         /* for agreed buckets */
    tutti__call_env_t ordered_calls; /* for the ordered lane */
    tutti__call_env_t planned_calls; /* for plan lanes: like `calls`, but compares calls */
};

void tutti__lanes_open(tutti__lanes_t *lanes, const tutti__engine_env_t *env,
                       tutti__pending_t *pending, tutti__signals_t *signals);
void tutti__lanes_close(tutti__lanes_t *lanes);
void tutti__lanes_add(tutti__lanes_t *lanes, tutti__bucket_t *bucket);
void tutti__lanes_add_ordered(tutti__lanes_t *lanes, tutti__request_t *request);
/* Append a bucket to its plan lane. If the bucket has no requests, this rank lacks some of the
   bucket's tensors, and no rank serves the bucket. */
void tutti__lanes_add_planned(tutti__lanes_t *lanes, tutti__bucket_t *bucket);
/* Advance all lanes. Returns 1 if anything moved. *ret_left 1: a brief step has skipped work. */
int tutti__lanes_step(tutti__lanes_t *lanes, tutti__who_t who, int *ret_left);
/* A number that changes whenever an operation in a lane advances. */
uint32_t tutti__lanes_moves(const tutti__lanes_t *lanes);
/* Write which rank or device an agreed request waits for. Returns 1 if this is certain. */
int tutti__lanes_culprit(const tutti__lanes_t *lanes, const tutti__request_t *request, char *text,
                         size_t bytes);
/* Abandon everything in flight. */
void tutti__lanes_clear(tutti__lanes_t *lanes);

/* Does a bucket in a lane, or a pending completion, use device memory? */
static inline int tutti__lanes_use_device(const tutti__lanes_t *lanes)
{
    return lanes->on_device > 0 || lanes->completions.count > 0;
}

/* Has a transport failed, and is a report of the cause awaited? If so, no lane is stepped. */
static inline int tutti__lanes_pause(const tutti__lanes_t *lanes)
{
    return TUTTI__UNLIKELY(lanes->pauses || tutti__lanes_use_device(lanes)) &&
           tutti__watch_has_failed(lanes->env->watch);
}

/* May another agreed bucket begin? While there is enough work in lanes and on the device, new
   tensors wait, so that they collect into larger buckets. */
static inline int tutti__lanes_have_space(const tutti__lanes_t *lanes)
{
    return lanes->in_flight < TUTTI__BUCKET_LANES &&
           lanes->completions.count < TUTTI__MOST_COMPLETIONS;
}

#endif
