/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a lane's first bucket: its requests end, or return to agreement. See lanes.c. */
#include "engine/lane.h"

#include "base/time.h"
#include "engine/counted.h"
#include "engine/fuse.h"
#include "engine/recorded.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* The counter of this lane's buckets in flight. */
static uint32_t *count_of(tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    return tutti__lane_is_planned(lanes, lane)   ? &lanes->planned
           : tutti__lane_is_ordered(lanes, lane) ? &lanes->ordered
                                                 : &lanes->in_flight;
}

static tutti__bucket_t *take_first(tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    tutti__bucket_t *bucket = lane->first;

    assert(bucket != NULL && (lane->op.at == TUTTI__AT_END || lane->is_left));
    assert(*count_of(lanes, lane) > 0);
    assert(lanes->on_device >= bucket->on_device);
    lane->first = bucket->next;
    if (lane->first == NULL)
        lane->last = NULL;
    lane->running = 0;
    tutti__record_stop(lanes->env->watch->record, lane->op.lane);
    --*count_of(lanes, lane);
    lanes->on_device -= bucket->on_device;
    if (tutti__agree_has_joined(lanes->agree))
        atomic_store_explicit(&lanes->signals->moved_ns, tutti__now_ns(), memory_order_relaxed);
    return bucket;
}

/* Queue requests that return to agreement. `first` has them in the order of their submission group.
   If all calls of the group return, they stay a group. If only some calls failed, on all ranks
   alike, and the rest was served, the failed calls return as single calls. */
static void queue_returned(tutti__lanes_t *lanes, tutti__request_t *first)
{
    tutti__request_t *next;
    uint32_t n = 0;
    int is_whole;

    for (const tutti__request_t *r = first; r != NULL; r = r->next)
        n++;
    is_whole = first != NULL && n == first->group.size;
    tutti__mutex_lock(&lanes->pending->lock);
    for (tutti__request_t *r = first; r != NULL; r = next) {
        next = r->next;
        if (!is_whole)
            r->group = (tutti__group_msg_t){ 0 };
        r->agreed = r->announced = 0;
        r->lane = 0;
        tutti__record_returned(lanes->env->watch->record, r->record);
        tutti__pending_queue(lanes->pending, r);
    }
    tutti__mutex_unlock(&lanes->pending->lock);
}

/* Drop a bucket's use of its group, after the bucket has left its lane. The last bucket also queues
   the calls of the group that return to agreement. */
static void leave_group(tutti__lanes_t *lanes, tutti__bucket_group_t *group)
{
    if (TUTTI__LIKELY(group == NULL))
        return;
    if (group->uses == 1 && group->first != NULL)
        queue_returned(lanes, group->first);
    tutti__bucket_group_drop(group);
}

/* Take the first bucket out of the lane. End its requests, unless status is AGAIN. */
static void finish(tutti__lanes_t *lanes, tutti__lane_t *lane, tutti_status_t status,
                   const char *text)
{
    tutti__bucket_t *bucket = take_first(lanes, lane);
    tutti__request_t *next;

    if (status == TUTTI_OK && bucket->nrequests > 1) {
        tutti__pending_finish_list(lanes->pending, bucket->first);
        bucket->first = NULL;
    }
    for (tutti__request_t *r = bucket->first; r != NULL && status != TUTTI__AGAIN; r = next) {
        next = r->next;
        tutti__pending_finish(lanes->pending, r, status, text);
    }
    leave_group(lanes, bucket->group);
    free(bucket);
}

void tutti__lane_give_back(tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    tutti__bucket_group_t alone = { 0 }, *group = lane->first->group;
    tutti__request_t *next;

    if (group == NULL)
        group = &alone;
    /* After a departure, the messages of a comparison are not cancelled: over UCX, cancelling them
       might close connections that other lanes use. The messages stay in flight until the
       communicator ends, which is safe because they use only the library's memory. */
    if (!lane->is_left || lane->op.at != TUTTI__AT_COMPARE)
        tutti__operation_cancel(&lane->op);
    for (tutti__request_t *r = lane->first->first; r != NULL; r = next) {
        next = r->next;
        tutti__request_insert(&group->first, &group->last, r);
    }
    queue_returned(lanes, alone.first);
    lanes->planned_ns = tutti__now_ns();
    lanes->plan_returned++;
    lanes->returned_plan = lane->first->plan;
    finish(lanes, lane, TUTTI__AGAIN, NULL);
}

void tutti__lane_refuse(tutti__lanes_t *lanes, tutti__lane_t *lane, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];
    const tutti__request_t *r = lane->first->first;

    if (lane->counting)
        snprintf(text, sizeof(text), "tensor '%.200s': in %s %.200s", r->name,
                 tutti__call_name(r->call.kind), tutti_last_error());
    else if (tutti__lane_is_ordered(lanes, lane))
        snprintf(text, sizeof(text), "%.100s: %.400s", r->name, tutti_last_error());
    else
        snprintf(text, sizeof(text), "%s", tutti_last_error());
    tutti__operation_cancel(&lane->op);
    for (; r != NULL && !tutti__lane_is_ordered(lanes, lane); r = r->next)
        tutti__agree_refused(lanes->agree, r->name, r->name_bytes, r->hash);
    finish(lanes, lane, status, text);
}

/* ---- the exchange of counts ---- */

/* Store in the third of the request's arrays how many elements each rank sends to this rank. */
static void keep_counts(tutti__request_t *r, const tutti__exchange_t *x, uint32_t size)
{
    size_t *counts = r->arrays + 2 * (size_t)size;

    for (uint32_t s = 0; s < size; s++)
        counts[s] = (size_t)*tutti__exchange_from(x, size, s);
    r->call.recvcounts = counts;
}

/* End phase 0 of a call. Some rank made the call without the counts, so that rank has no receive
   buffer yet. The bucket ends here, so that no lane waits for the program. Each rank announces the
   tensor again, as phase 1, when it has a buffer. */
static void next_phase(tutti__lanes_t *lanes, tutti__request_t *r, const tutti__exchange_t *x)
{
    assert(r->phase == 0 && r->agreed);
    if (r->counts_later)
        keep_counts(r, x, lanes->env->exec->size);
    r->agreed = r->announced = 0;
    r->phase = 1;
    tutti__record_returned(lanes->env->watch->record, r->record);
    if (r->is_zero) {
        r->next = lanes->zeros;
        lanes->zeros = r;
        return;
    }
    tutti__mutex_lock(&lanes->pending->lock);
    tutti__store_release(&r->counted, r->counts_later ? 1 : 2);
    if (!r->counts_later)
        tutti__pending_queue(lanes->pending, r);
    tutti__mutex_unlock(&lanes->pending->lock);
    tutti__pending_wake(lanes->pending);
}

/* ---- the end of an operation ---- */

void tutti__lane_end(tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    if (lane->running && !lane->counting)
        tutti__lane_count(lanes, lane);
    if (lane->running && lane->counting) {
        lane->running = 0;
        lane->first->counts = 0;
        if (lane->op.exchange.all_know)
            return; /* the data follow in the same lane at once */
        next_phase(lanes, lane->first->first, &lane->op.exchange);
        finish(lanes, lane, TUTTI__AGAIN, NULL);
    } else if (lane->running && lane->op.is_queued) {
        tutti__completion_add(&lanes->completions, take_first(lanes, lane));
    } else {
        if (tutti__lane_is_planned(lanes, lane)) {
            lanes->planned_ns = tutti__now_ns();
            lanes->plan_served++;
            lanes->plan_progress[lane - &lanes->lane[TUTTI__PLAN_LANE]] =
                (uint64_t)lane->first->plan << 32 | (lane->first->number + 1);
            tutti__stats_plan_hit(lanes->env->stats,
                                  lane->first->nrequests > 1 && !lane->is_packed);
            if (lane->is_packed)
                tutti__fuse_packing.unpack(lane, &lane->op);
        }
        lanes->agreed_served += !tutti__lane_is_compared(lanes, lane);
        finish(lanes, lane, TUTTI_OK, NULL);
    }
}

tutti_status_t tutti__lane_record_result(tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    if (!lane->running || !lane->op.is_queued)
        return TUTTI_OK;
    return tutti__completion_record(&lanes->completions, lane->first,
                                    lanes->env->exec->device->lane[lane - lanes->lane].up);
}

void tutti__lane_fail(tutti__lanes_t *lanes, const tutti__lane_t *lane, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "%s, tensor '%.100s': %.300s",
             tutti__boot_rank_name(lanes->env->boot, lanes->env->exec->rank),
             lane->first->first != NULL ? lane->first->first->name : "", tutti_last_error());
    tutti__watch_fail(lanes->env->watch, status, text);
    lanes->pauses = !tutti__watch_has_ended(lanes->env->watch);
}
