/* SPDX-License-Identifier: BSD-3-Clause */
/* One lane, for lanes.c: its first bucket starts and ends. The token's owner. */
#ifndef TUTTI__ENGINE_LANE_H
#define TUTTI__ENGINE_LANE_H

#include "engine/lanes.h"

static inline int tutti__lane_is_ordered(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return lane == &lanes->lane[TUTTI__ORDERED_LANE];
}

static inline int tutti__lane_is_planned(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return lane == &lanes->lane[TUTTI__PLAN_LANE];
}

/* The lane's operations are compared as direct calls are. */
static inline int tutti__lane_is_compared(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return lane >= &lanes->lane[TUTTI__ORDERED_LANE];
}

/* lane_start.c: start the operation of a lane's first bucket. AGAIN: it cannot start yet. */
tutti_status_t tutti__lane_start(tutti__lanes_t *lanes, tutti__lane_t *lane);

/* lane_end.c */
/* If all work of the first bucket is queued, record an event behind its results. */
tutti_status_t tutti__lane_record_result(tutti__lanes_t *lanes, const tutti__lane_t *lane);
/* The operation is done, or there was none. */
void tutti__lane_end(tutti__lanes_t *lanes, tutti__lane_t *lane);
/* Not all ranks have the tensors of a plan's bucket: each rank announces those that it has. */
void tutti__lane_give_back(tutti__lanes_t *lanes, tutti__lane_t *lane);
/* All ranks know that no rank can serve the bucket. */
void tutti__lane_refuse(tutti__lanes_t *lanes, tutti__lane_t *lane, tutti_status_t status);
/* The communicator ends. */
void tutti__lane_fail(tutti__lanes_t *lanes, const tutti__lane_t *lane, tutti_status_t status);

#endif
