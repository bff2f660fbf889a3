/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds channel ends by name, in constant time: an exchange between all ranks has two for each
 * peer, and a linear search took most of the time of building and proving it.
 */
#ifndef TUTTI__SCHED_CHANS_H
#define TUTTI__SCHED_CHANS_H

#include "sched/sched.h"

/* The ends of a schedule under construction, by name: a hash table with open addressing. All zeros:
   an empty table. */
typedef struct {
    uint32_t *slots; /* index into sched->chans, + 1; 0: free */
    uint32_t nslots; /* a power of two */
    uint32_t room;   /* of sched->chans */
} tutti__chan_table_t;

/*
 * The index of the end with this name in sched->chans; a new name is appended. All ends in it must
 * come from this function.
 *
 * TUTTI_ERR_NO_MEMORY; TUTTI_ERR_UNSUPPORTED if an operation cannot hold the index.
 */
tutti_status_t tutti__chan_table_find(tutti__chan_table_t *table, tutti__sched_t *sched,
                                      tutti__sched_chan_t name, uint16_t *ret_index);
void tutti__chan_table_clear(tutti__chan_table_t *table);

/*
 * Number the ends in the order in which the operations refer to them, whatever the order of the
 * builder's calls was. So a printed schedule that is read back has the same bits. 0: no memory.
 */
int tutti__chans_sort(tutti__sched_t *sched);

/* Names of ends as small numbers, unique for ranks below 2^29. */
static inline uint32_t tutti__chan_key(tutti__sched_chan_t end)
{
    return (end.peer * TUTTI__SCHED_STREAMS + end.stream) * 2 + end.is_recv;
}

#endif
