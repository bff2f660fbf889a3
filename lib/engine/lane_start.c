/* SPDX-License-Identifier: BSD-3-Clause */
/* The start of a lane's first bucket: the call that serves it. See lanes.c. */
#include "engine/lane.h"

#include "base/hash.h"
#include "engine/fuse.h"
#include "engine/join.h"
#include "engine/recorded.h"

#include <assert.h>
#include <stdlib.h>

/* Collect the events after which the data of a bucket in device memory are complete. */
static tutti_status_t gather_ready(tutti__lane_t *lane, tutti__call_with_t *with)
{
    tutti__devent_t **larger;

    if (lane->ready_capacity < lane->first->nrequests) {
        larger = realloc(lane->ready, lane->first->nrequests * sizeof(*larger));
        if (larger == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "events of a bucket");
        lane->ready = larger;
        lane->ready_capacity = lane->first->nrequests;
    }
    with->nready = 0;
    for (const tutti__request_t *r = lane->first->first; r != NULL; r = r->next)
        lane->ready[with->nready++] = r->ready;
    with->ready = lane->ready;
    return TUTTI_OK;
}

static tutti_status_t on_device(tutti__lanes_t *lanes, tutti__lane_t *lane,
                                tutti__call_with_t *with)
{
    const tutti__bucket_t *bucket = lane->first;

    with->stays_in_host = !tutti__bucket_fits_device(bucket, lanes->env->exec->device);
    with->awaits_input = lanes->awaits_input;
    with->detaches = 1;
    with->uses_stage = bucket->first->is_zero;
    with->npieces = (size_t)bucket->nrequests * lanes->env->exec->size;
    with->scaled = &bucket->first->call;
    return gather_ready(lane, with);
}

/* Make the call that serves the bucket: on the user's buffers, or on the fused tensors. */
static tutti_status_t make_call(tutti__lanes_t *lanes, tutti__lane_t *lane,
                                tutti__call_with_t *with)
{
    const tutti__bucket_t *bucket = lane->first;
    const tutti__request_t *r = bucket->first;
    /* A zero contribution has no device data, so it is not staged. */
    int is_device = r->call.on_device &&
                    (!r->is_zero || tutti__bucket_fits_device(bucket, lanes->env->exec->device));
    int fused = bucket->nrequests > 1 || r->is_zero ||
                (is_device && tutti__bucket_is_packed(bucket) &&
                 tutti__bucket_fits_device(bucket, lanes->env->exec->device));
    tutti_status_t status = TUTTI_OK;

    with->signature = (uint32_t)tutti__hash(&bucket->number, sizeof(uint32_t));
    lane->call = r->call;
    lane->call.on_device = is_device;
    lane->call.has_stream = 0; /* `ready` has the events of the requests' streams */
    if (fused) {
        with->packing = &tutti__fuse_packing;
        with->owner = lane;
        status = tutti__fuse_call(lane, &lane->call);
    }
    return status == TUTTI_OK && is_device ? on_device(lanes, lane, with) : status;
}

/* Must another thread start the lane's operation? If so, note that the lane must be polled. */
static int is_barred(tutti__lane_t *lane)
{
    if (!tutti__operation_is_barred(&lane->op))
        return 0;
    lane->op.polls = 1;
    return 1;
}

/* A call of the ordered lane runs like a direct call, but any thread may step it. */
static tutti_status_t start_ordered(const tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    if (is_barred(lane))
        return TUTTI__AGAIN;
    assert(!lane->running && lane->first->nrequests == 1);
    lane->counting = 0;
    lane->with = (tutti__call_with_t){ .tag = 0 };
    lane->call = lane->first->first->call;
    tutti__operation_start(&lane->op, &lane->call, &lane->with);
    lane->op.polls = lane->op.may_be_far;
    lane->begun_ns = tutti__stats_now(lanes->env->stats);
    lane->op.bytes = tutti__bucket_bytes(lane->first);
    lane->running = 1;
    tutti__recorded_start(lanes, lane);
    return TUTTI_OK;
}

/*
 * Start a bucket of a plan. If this rank has no requests for the bucket, it starts a barrier with a
 * factor instead. No program can make such a call, so the comparison fails on all ranks. The data
 * follow the comparison at once, so the bucket is packed before the comparison.
 */
static tutti_status_t start_planned(const tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    const tutti__bucket_t *bucket = lane->first;
    const tutti__call_t *call = bucket->first != NULL ? &bucket->first->call : NULL;
    tutti_status_t status = TUTTI_OK;

    if (is_barred(lane))
        return TUTTI__AGAIN;
    lane->counting = 0;
    lane->is_packed = 0;
    lane->still_ns = 0;
    lane->with = (tutti__call_with_t){ .tag = 0 };
    lane->call = (tutti__call_t){ .kind = TUTTI_CALL_BARRIER, .prescale = 0, .postscale = 1 };
    if (call != NULL) {
        lane->with.tag = TUTTI__TAG_BUCKET;
        lane->with.signature = (uint32_t)tutti__hash(&bucket->number, sizeof(bucket->number));
        lane->call = *call;
        lane->is_packed =
            (bucket->nrequests > 1 && !tutti__fuse_call_in_place(lane, &lane->call)) ||
            call->prescale != 1 || call->postscale != 1;
    }
    if (lane->is_packed) {
        status = tutti__fuse_call(lane, &lane->call);
        if (status == TUTTI_OK)
            status = tutti__fuse_packing.pack(lane, &lane->op);
    }
    if (status != TUTTI_OK)
        return status;
    tutti__operation_start(&lane->op, &lane->call, &lane->with);
    lane->op.polls = lane->op.may_be_far;
    lane->begun_ns = tutti__stats_now(lanes->env->stats);
    lane->op.bytes = tutti__bucket_bytes(bucket);
    lane->running = 1;
    tutti__recorded_start(lanes, lane);
    return TUTTI_OK;
}

tutti_status_t tutti__lane_start(tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    tutti__request_t *r = lane->first->first;
    tutti_status_t status;

    if (tutti__lane_is_ordered(lanes, lane))
        return start_ordered(lanes, lane);
    if (tutti__lane_is_planned(lanes, lane))
        return start_planned(lanes, lane);
    if (lane->first->nrequests == 0)
        return TUTTI_OK;
    if (r->is_zero && r->phase > 0 && r->call.recvcounts == NULL &&
        !tutti__join_counts(&lanes->zeros, lanes->env->exec->size, r))
        return TUTTI__AGAIN;
    lane->counting = lane->first->counts;
    if (lane->counting) {
        tutti__operation_start_counts(&lane->op, &r->call, r->is_zero);
    } else {
        lane->with = (tutti__call_with_t){ .tag = TUTTI__TAG_BUCKET };
        status = make_call(lanes, lane, &lane->with);
        if (status != TUTTI_OK)
            return status;
        tutti__operation_start(&lane->op, &lane->call, &lane->with);
    }
    assert(!lane->running);
    lane->begun_ns = tutti__stats_now(lanes->env->stats);
    lane->op.bytes = tutti__bucket_bytes(lane->first);
    lane->running = 1;
    tutti__recorded_start(lanes, lane);
    return TUTTI_OK;
}
