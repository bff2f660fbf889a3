/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of an allreduce on the device memory of several hosts, in each of two ways: on the
 * device (allreduce_hierarchical.c), or staged, in host memory (call/staged.h). See device_cost.c.
 */
#ifndef TUTTI__COLL_DEVICE_COST_H
#define TUTTI__COLL_DEVICE_COST_H

#include "coll/coll.h"

typedef struct {
    uint64_t device_ns, staged_ns;
} tutti__device_cost_t;

/* Returns 1 if the collective has both ways on this shape; otherwise 0, and *ret_cost is unchanged.
   max_local: the largest number of ranks on a host. Costs are integers, equal on all ranks. */
int tutti__device_cost(tutti__collective_t collective, size_t bytes, const tutti__shape_t *shape,
                       uint32_t max_local, tutti__device_cost_t *ret_cost);

/* The other values that determine the choice between the two ways. Equal on all ranks. */
typedef struct {
    uint64_t staged_bytes; /* TUTTI_DEVICE_STAGED_BYTES; TUTTI__STAGED_AUTO: by cost */
    uint64_t stage_bytes;  /* pinned memory of a lane; if the cost decides, only calls that fit in
                              this memory are staged */
} tutti__device_limits_t;

#define TUTTI__STAGED_AUTO UINT64_MAX

#define TUTTI__DEVICE_WHY 80

/*
 * Must a call on device memory run in host memory, even if there is a schedule for the device?
 *
 * choice   the result of tutti__algorithm_choose
 * forced   1: the choice is from TUTTI_ALGORITHM, so neither cost nor a limit decides
 * ret_why  the reason, for users; "": there was only one way
 *
 * The result depends on the arguments only, so all ranks choose alike.
 */
int tutti__device_stages(const tutti__want_t *want, const tutti__shape_t *shape,
                         const tutti__choice_t *choice, int forced,
                         tutti__association_t association, const tutti__device_limits_t *limits,
                         char ret_why[TUTTI__DEVICE_WHY]);

#endif
