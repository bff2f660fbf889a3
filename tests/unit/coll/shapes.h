/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of schedules: placements of ranks that this machine does not have, and all ranks'
 * schedules at once. Out of memory fails the running cmocka test.
 */
#ifndef TESTS_UNIT_COLL_SHAPES_H
#define TESTS_UNIT_COLL_SHAPES_H

#include "coll/coll.h"
#include "sched/check.h"

typedef struct {
    tutti__shape_t shape;
    char name[96]; /* "3+2", or "3+2 in groups of 2" */
    uint32_t *host_of, *local_of, *host_first, *by_host;
} shape_t;

/* Ranks placed host by host: locals[h] of them on host h. */
shape_t *shape_split(uint32_t nhosts, const uint32_t *locals);
/* `nhosts` hosts of `each` ranks. */
shape_t *shape_even(uint32_t nhosts, uint32_t each);
/* Any number of hosts up to `size`, with the ranks on them in any order. The same seed gives the
   same shape. */
shape_t *shape_random(uint32_t size, uint32_t seed);
/* The same shape with its hosts in groups of this many local ranks; 0: none. */
shape_t *shape_grouped(shape_t *shape, uint32_t group_size);
void shape_free(shape_t *shape);

/* All ranks' schedules of one call. */
typedef struct {
    const tutti__algorithm_t *algorithm;
    const shape_t *shape;
    const char *sub;
    uint32_t radix, root;
    uint32_t streams; /* between hosts; 0: one */
    int in_place;
    int wire;                /* with a wire format: for set_check */
    tutti__sched_t **scheds; /* [size] */
    int on_device;
} set_t;

/* Fills in scheds; a failed build fails the test. */
void set_build(set_t *set);
void set_free(set_t *set);

/* The checker's result. */
tutti_status_t set_check(const set_t *set, uint32_t credits, uint32_t trips, char *why,
                         size_t why_bytes);

/* A pseudo-random number; advances *seed. */
uint32_t random_next(uint32_t *seed);

#endif
