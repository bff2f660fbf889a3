/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of a learned plan. See planned.c. Callers own the token. */
#ifndef TUTTI__ENGINE_PLANNED_H
#define TUTTI__ENGINE_PLANNED_H

#include "engine/lanes.h"

/* Why this rank stops the plan. */
typedef enum {
    TUTTI__PLAN_GOES_ON,
    TUTTI__PLAN_LATE,     /* another rank makes no progress */
    TUTTI__PLAN_DEVIATION /* this rank's program does not follow the plan */
} tutti__plan_why_t;

/* A unit of a plan is one bucket, or the buckets of one submission group. A rank starts all buckets
   of a unit together, when it has submitted all tensors of the unit. */
typedef struct {
    uint32_t first, ntensors;
    uint32_t unit;    /* the first bucket of its unit */
    uint32_t missing; /* set in a unit's first bucket: number of the unit's tensors that this rank
                         has not submitted in this step */
    int is_tight;     /* see tutti__planned_t, is_adjacent */
} tutti__planned_bucket_t;

typedef struct {
    const tutti__engine_env_t *env;
    tutti__pending_t *pending;
    tutti__lanes_t *lanes;
    tutti__agree_t *agree;
    tutti__agree_plan_t plan;
    uint32_t plans;        /* plans that have begun so far */
    int runs;              /* buckets may start */
    tutti__plan_why_t why; /* set when this rank must stop the plan */
    /* [ntensors] A request waits here for the other requests of its unit. A request that cannot
       enter the plan waits here until the plan is over, and is then announced. */
    tutti__request_t **request;
    tutti__planned_bucket_t *bucket; /* [nbuckets] */
    uint32_t next;                   /* the unit that starts next */
    uint64_t started;                /* buckets started since the plan began */
    uint32_t nheld;                  /* requests that wait here */
    uint64_t arrived_ns;             /* submission time of the request that entered the plan last */
    uint64_t wanted_ns;              /* when a thread began to wait for a request here; 0: none */
    uint64_t wanted_after_ns;        /* arrived_ns at that time */
} tutti__plan_requests_t;

/* These functions do the work of the callbacks `plan`, `plan_stop` and `plan_end` of agree.h. */
void tutti__planned_begin(tutti__plan_requests_t *p);
uint64_t tutti__planned_stop(tutti__plan_requests_t *p);
/* This rank enters the rest of the plan's first `buckets` buckets, as all ranks do. Returns the
   requests that this rank must announce. */
tutti__request_t *tutti__planned_end(tutti__plan_requests_t *p, uint64_t buckets);
void tutti__planned_clear(tutti__plan_requests_t *p);
void tutti__planned_free(tutti__plan_requests_t *p);

/* Pass a submitted request to the plan. Returns 1 if the request belongs to the plan, and waits
   here or has started. */
int tutti__planned_take(tutti__plan_requests_t *p, tutti__request_t *request,
                        const tutti__metadata_t *metadata);
/* Has the request entered this plan before, with the same call? If so, no comparison is needed. */
static inline int tutti__planned_knows(const tutti__plan_requests_t *p,
                                       const tutti__request_t *request)
{
    return p->runs && p->why == TUTTI__PLAN_GOES_ON && request->planned > 0 &&
           request->plan_number == p->plan.number && request->entered == p->plan.number &&
           p->lanes->returned_plan != p->plan.number;
}

/* Pass a request for which tutti__planned_knows returns 1. */
void tutti__planned_take_known(tutti__plan_requests_t *p, tutti__request_t *request);
/* After the engine has taken the queue: set the number of requests that the queue must have before
   the engine takes it again. */
void tutti__planned_taken(tutti__plan_requests_t *p);
/* Note that a thread waits for a request, or tests it. If no further request is submitted for
   patience_ns, stop the plan. */
void tutti__planned_want(tutti__plan_requests_t *p, const tutti__request_t *request,
                         uint64_t patience_ns);
/* Stop the plan if it makes no progress. Call this function at intervals. */
void tutti__planned_check(tutti__plan_requests_t *p, uint64_t now);
/* Write the reason for which a request waits here. Returns 1 if the reason is certain. */
int tutti__planned_culprit(const tutti__plan_requests_t *p, char *text, size_t bytes);

#endif
