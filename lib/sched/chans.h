/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds channel ends by name, in constant time. A schedule between all ranks has two ends for each
 * peer. Linear searches would take most of the time to build and prove such a schedule.
 */
#ifndef TUTTI__SCHED_CHANS_H
#define TUTTI__SCHED_CHANS_H

#include "sched/sched.h"

/* A hash table with open addressing: the ends of a schedule under construction, by name. A table of
   zeros is empty. */
typedef struct {
    uint32_t *slots;   /* 1 + index into sched->chans; 0: free */
    uint32_t nslots;   /* a power of two */
    uint32_t capacity; /* allocated entries of sched->chans */
} tutti__chan_table_t;

/*
 * Find the index in sched->chans of the end with this name. If there is no such end, append it.
 * Only this function may add ends to sched->chans.
 *
 * TUTTI_ERR_NO_MEMORY; TUTTI_ERR_UNSUPPORTED if an operation cannot hold the index.
 */
tutti_status_t tutti__chan_table_find(tutti__chan_table_t *table, tutti__sched_t *sched,
                                      tutti__sched_chan_t name, uint16_t *ret_index);
void tutti__chan_table_clear(tutti__chan_table_t *table);

/*
 * Renumber the ends in the order in which operations refer to them, instead of the builder's order.
 * So a schedule that is printed and read back stays the same. Returns 0 if there is no memory.
 */
int tutti__chans_sort(tutti__sched_t *sched);

/* The name of an end as a number, which is unique for ranks below 2^29. */
static inline uint32_t tutti__chan_key(tutti__sched_chan_t end)
{
    return (end.peer * TUTTI__SCHED_STREAMS + end.stream) * 2 + end.is_recv;
}

#endif
