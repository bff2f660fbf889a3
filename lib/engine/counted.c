/* SPDX-License-Identifier: BSD-3-Clause */
/* See counted.h. */
#include "engine/counted.h"

#include "call/what.h"

#include <assert.h>

void tutti__request_count(tutti__stats_t *stats, const tutti__request_t *request,
                          tutti_status_t status, uint64_t ended_ns)
{
    assert(!request->is_zero);
    if (!request->joins)
        tutti__stats_request(stats, request->call.kind, request->bytes,
                             ended_ns - request->since_ns, status);
}

void tutti__lane_count(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    const tutti__bucket_t *bucket = lane->first;
    uint64_t bytes = 0, ntensors = 0;
    tutti__stats_what_t what;

    assert(bucket != NULL && bucket->first != NULL);
    what = tutti__operation_what(&lane->op, &lane->call, 1);
    for (const tutti__request_t *r = bucket->first; r != NULL; r = r->next) {
        bytes += r->is_zero ? 0 : r->bytes;
        ntensors += !r->is_zero;
    }
    if (bucket->first->ordered)
        tutti__stats_ordered_end(lanes->env->stats, &what, bytes, lane->begun_ns);
    else
        tutti__stats_bucket_end(lanes->env->stats, &what, ntensors, bytes, lane->begun_ns);
}

void tutti__count_message(tutti__stats_t *stats, uint32_t kind)
{
    if (kind == TUTTI__MSG_ANNOUNCE)
        tutti__stats_announcement(stats);
    else if (kind == TUTTI__MSG_BUCKET)
        tutti__stats_bucket_message(stats);
    else
        tutti__stats_other_message(stats);
}
