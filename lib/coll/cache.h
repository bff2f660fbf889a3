/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules that were built, kept for the next call: one cache per user (the direct calls of a
 * communicator have one, its engine another), so nothing here is locked.
 */
#ifndef TUTTI__COLL_CACHE_H
#define TUTTI__COLL_CACHE_H

#include "coll/coll.h"

typedef struct tutti__cache_entry tutti__cache_entry_t;

typedef struct {
    const tutti__shape_t *shape;
    uint32_t rank;
    const char *override; /* TUTTI_ALGORITHM */
    tutti__association_t association;
    tutti__cache_entry_t *entries;
    /* The last answer for each collective, in place or not. */
    struct {
        size_t bytes;
        uint32_t root;
        const tutti__sched_t *sched;
    } last[TUTTI__COLLECTIVES][2];
} tutti__cache_t;

void tutti__cache_init(tutti__cache_t *cache, const tutti__shape_t *shape, uint32_t rank,
                       const char *override, tutti__association_t association);
void tutti__cache_fini(tutti__cache_t *cache);

/* The schedule for a call of `bytes` in all; it lives as long as the cache. */
tutti_status_t tutti__cache_get(tutti__cache_t *cache, tutti__collective_t collective, size_t bytes,
                                uint32_t root, int in_place, const tutti__sched_t **ret_sched);

#endif
