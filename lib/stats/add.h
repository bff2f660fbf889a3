/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inline functions that add to counters. Only .c files that count include this file. No header
 * includes it, because a test of the wake-ups replaces all atomic accesses in files of the test.
 */
#ifndef TUTTI__STATS_ADD_H
#define TUTTI__STATS_ADD_H

#include "stats/stats.h"

static inline void tutti__stats_add(tutti__word64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

static inline void tutti__stats_count(tutti__stats_entry_t *entry, uint64_t bytes)
{
    tutti__stats_add(&entry->operations, 1);
    tutti__stats_add(&entry->bytes, bytes);
}

#endif
