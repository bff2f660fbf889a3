/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Built schedules, kept for the next call. A communicator has one cache for its direct calls and
 * another for its engine, so there is no lock.
 */
#ifndef TUTTI__COLL_CACHE_H
#define TUTTI__COLL_CACHE_H

#include "base/constants.h"
#include "coll/coll.h"
#include "coll/device_cost.h"

typedef struct tutti__cache_entry tutti__cache_entry_t;
typedef struct tutti__cache_pair tutti__cache_pair_t;
typedef struct tutti__cache_told tutti__cache_told_t;

typedef struct {
    const tutti__shape_t *shape;
    uint32_t rank;
    const char *override; /* TUTTI_ALGORITHM */
    tutti__association_t association;
    int on_device; /* schedules for device memory, if the algorithm has them; set after init */
    tutti__device_limits_t device_limits; /* for on_device */
    tutti__scope_t device_scope;          /* replaces the shape's; HOST if not set after init */
    uint32_t prove; /* credits for proofs of built schedules (TUTTI_CHECK=1); 0: no proofs */
    tutti__cache_entry_t *entries;
    /* The last result for each collective; [1]: in place. */
    struct {
        tutti__want_t want;
        const tutti__sched_t *sched;
    } last[TUTTI__COLLECTIVES][2];
    tutti__sched_t *leaders;                        /* tutti__cache_leaders; NULL: not built yet */
    tutti__cache_told_t *told;                      /* logged choices */
    tutti__cache_pair_t *pairs[TUTTI__CACHE_PAIRS]; /* by dest, source */
} tutti__cache_t;

void tutti__cache_init(tutti__cache_t *cache, const tutti__shape_t *shape, uint32_t rank,
                       const char *override, tutti__association_t association, uint32_t prove);
void tutti__cache_fini(tutti__cache_t *cache);

/* Prepare the cache for calls on device memory. Call it after init. */
void tutti__cache_for_device(tutti__cache_t *cache, const tutti__device_limits_t *limits);

/* The schedule for a call. It belongs to the cache, or to a file (shape->files). If the choice
   differs from the choices for other sizes, it is logged at info with its reason. If a call is on
   device memory and sched->on_device is 0, the call must run in host memory. */
tutti_status_t tutti__cache_get(tutti__cache_t *cache, const tutti__want_t *want, int in_place,
                                const tutti__sched_t **ret_sched);

/* The allreduce by leaders, in place: for the comparison of calls. */
tutti_status_t tutti__cache_leaders(tutti__cache_t *cache, const tutti__sched_t **ret_sched);

/* The schedule of a message: this rank sends IN to rank dest, and receives into OUT from rank
   source. UINT32_MAX: no such rank. Both may be this rank itself. */
tutti_status_t tutti__cache_sendrecv(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                     const tutti__sched_t **ret_sched);

/* The schedule for exchanging heads (type and count) before a message: the peer receives IN, and
   the peer's IN arrives in OUT. The lengths are equal. One of dest and source is UINT32_MAX, the
   other is not this rank. */
tutti_status_t tutti__cache_heads(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                  const tutti__sched_t **ret_sched);

#endif
