/* SPDX-License-Identifier: BSD-3-Clause */
/* The start and the end of a lane's first bucket, for lanes.c. Callers own the token. */
#ifndef TUTTI__ENGINE_LANE_H
#define TUTTI__ENGINE_LANE_H

#include "engine/lanes.h"

static inline int tutti__lane_is_ordered(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return lane == &lanes->lane[TUTTI__ORDERED_LANE];
}

static inline int tutti__lane_is_planned(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return lane >= &lanes->lane[TUTTI__PLAN_LANE];
}

/* Do the ranks compare the lane's operations, as they compare direct calls? */
static inline int tutti__lane_is_compared(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return lane >= &lanes->lane[TUTTI__ORDERED_LANE];
}

/* lane_start.c: start the operation of a lane's first bucket. AGAIN: it cannot start yet. */
tutti_status_t tutti__lane_start(tutti__lanes_t *lanes, tutti__lane_t *lane);

/* lane_end.c */
/* If all work of the first bucket is queued, record an event behind its results. */
tutti_status_t tutti__lane_record_result(tutti__lanes_t *lanes, const tutti__lane_t *lane);
/* End the first bucket, when its operation is done, or if it has no tensor of this rank. */
void tutti__lane_end(tutti__lanes_t *lanes, tutti__lane_t *lane);
/* End a plan's bucket, because some ranks lack its tensors or have left. This rank's requests enter
   the queue again. */
void tutti__lane_give_back(tutti__lanes_t *lanes, tutti__lane_t *lane);
/* End a bucket with an error that all ranks find. The communicator continues. */
void tutti__lane_refuse(tutti__lanes_t *lanes, tutti__lane_t *lane, tutti_status_t status);
/* End the communicator, because the first bucket has failed. */
void tutti__lane_fail(tutti__lanes_t *lanes, const tutti__lane_t *lane, tutti_status_t status);

#endif
