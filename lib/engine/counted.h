/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's additions to the statistics. Callers own the token. */
#ifndef TUTTI__ENGINE_COUNTED_H
#define TUTTI__ENGINE_COUNTED_H

#include "engine/lanes.h"

/* Count a request that has ended with `status`, at ended_ns. */
void tutti__request_count(tutti__stats_t *stats, const tutti__request_t *request,
                          tutti_status_t status, uint64_t ended_ns);
/* Count the operation of a lane's first bucket, which has ended without an error. */
void tutti__lane_count(const tutti__lanes_t *lanes, const tutti__lane_t *lane);
void tutti__count_message(tutti__stats_t *stats, uint32_t kind);

#endif
