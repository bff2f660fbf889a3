/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules that were built, kept for the next call: one cache per user (the direct calls of a
 * communicator have one, its engine another), so nothing here is locked.
 */
#ifndef TUTTI__COLL_CACHE_H
#define TUTTI__COLL_CACHE_H

#include "coll/coll.h"
#include "coll/device_cost.h"

#define TUTTI__CACHE_PAIRS 64 /* a power of two */

typedef struct tutti__cache_entry tutti__cache_entry_t;
typedef struct tutti__cache_pair tutti__cache_pair_t;
typedef struct tutti__cache_told tutti__cache_told_t;

typedef struct {
    const tutti__shape_t *shape;
    uint32_t rank;
    const char *override; /* TUTTI_ALGORITHM */
    tutti__association_t association;
    int on_device;  /* schedules for device memory, if algorithms can; set after init.. */
    tutti__device_limits_t device_limits; /* ..with these */
    int flat;       /* and there is a node of all ranks there: shape->flat; set after init */
    uint32_t prove; /* TUTTI_CHECK=1: prove what is built, with so many credits; 0: do not */
    tutti__cache_entry_t *entries;
    /* The last answer for each collective, in place or not. */
    struct {
        tutti__want_t want;
        const tutti__sched_t *sched;
    } last[TUTTI__COLLECTIVES][2];
    tutti__cache_told_t *told;                      /* what was logged of choices */
    tutti__cache_pair_t *pairs[TUTTI__CACHE_PAIRS]; /* by dest, source */
} tutti__cache_t;

void tutti__cache_init(tutti__cache_t *cache, const tutti__shape_t *shape, uint32_t rank,
                       const char *override, tutti__association_t association, uint32_t prove);
void tutti__cache_fini(tutti__cache_t *cache);

/* For calls on device memory. After init. */
void tutti__cache_for_device(tutti__cache_t *cache, const tutti__device_limits_t *limits);

/* The schedule for a call; it lives as long as the cache, or is a file's (shape->files). Where a
   choice begins to differ from those for other sizes, it is logged at info: what and why. For
   device memory: sched->on_device is 0 where the call is to be made in host memory. */
tutti_status_t tutti__cache_get(tutti__cache_t *cache, const tutti__want_t *want, int in_place,
                                const tutti__sched_t **ret_sched);

/* Between two ranks: dest receives what is IN, source's arrives in OUT; UINT32_MAX: nobody. Both
   may be this rank itself. */
tutti_status_t tutti__cache_sendrecv(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                     const tutti__sched_t **ret_sched);

/* What goes before that: IN to the other one, and its to OUT, of equal lengths. One of dest and
   source is NOBODY, and the other is not this rank. */
tutti_status_t tutti__cache_heads(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                  const tutti__sched_t **ret_sched);

#endif
