/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: buckets in flight.
 *
 * Bucket k runs in lane 1 + k mod 4, after its predecessor in that lane, on every rank. So ranks
 * never wait for each other in different orders. A bucket of one tensor runs on the user's buffers;
 * several tensors are one call in the lane's memory (fuse.c). If ranks do not know each other's
 * counts, the ranks first exchange them in the same lane. Each lane steps one operation (call/).
 *
 * A bucket whose work is all queued on a device leaves its lane before this work is complete
 * (completion.c).
 *
 * A run on a device requires that every rank keeps stepping all lanes that it has started (see
 * node/nccl/nccl.h). While there is such a run, `polling` keeps the thread awake, and the thread
 * steps all lanes, even if brief steps omit some.
 */
#include "engine/state.h"

#include "base/constants.h"
#include "base/hash.h"
#include "base/time.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void tutti__lanes_open(tutti__engine_t *e)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        tutti__operation_init(&e->lane[i].op, &e->calls, i, NULL);
        e->lane[i].engine = e;
    }
}

void tutti__bucket_free(tutti__bucket_t *bucket)
{
    tutti__request_t *next;

    for (tutti__request_t *r = bucket != NULL ? bucket->first : NULL; r != NULL; r = next) {
        next = r->next;
        if (r->is_zero)
            tutti__request_free(r);
    }
    free(bucket);
}

static void free_buckets(tutti__lane_t *lane)
{
    while (lane->first != NULL) {
        tutti__bucket_t *bucket = lane->first;

        lane->first = bucket->next;
        tutti__bucket_free(bucket);
    }
    lane->last = NULL;
    lane->running = 0;
}

void tutti__lanes_clear(tutti__engine_t *e)
{
    int before = e->on_device > 0 ? tutti__device_enter(e->env.exec->device) : -1;

    if (e->on_device > 0)
        tutti__device_quiesce(e->env.exec->device, 1, TUTTI__LANES);
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        tutti__operation_cancel(&e->lane[i].op);
        free_buckets(&e->lane[i]);
    }
    tutti__completion_clear(e);
    if (before >= 0)
        tutti__device_leave(e->env.exec->device, before);
    e->in_flight = e->on_device = 0;
    atomic_store(&e->polling, 0);
}

void tutti__lanes_close(tutti__engine_t *e)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        free_buckets(&e->lane[i]);
        tutti__operation_fini(&e->lane[i].op);
        free(e->lane[i].ready);
    }
}

void tutti__lanes_add(tutti__engine_t *e, tutti__bucket_t *bucket)
{
    tutti__lane_t *lane = &e->lane[1 + bucket->number % (TUTTI__LANES - 1)];

    bucket->next = NULL;
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next)
        r->lane = (uint8_t)(lane - e->lane);
    if (lane->last != NULL)
        lane->last->next = bucket;
    else
        lane->first = bucket;
    lane->last = bucket;
    e->in_flight++;
    e->on_device += bucket->on_device;
}

/* ---- one bucket ---- */

/* Several tensors always fit the lane's memory. A lone tensor goes there if some ranks make zero
   contributions, which have no other memory, or if its scaled operand needs memory of its own. */
static int is_packed(const tutti__bucket_t *bucket)
{
    const tutti__call_t *call = &bucket->first->call;

    return bucket->nrequests > 1 || bucket->joined ||
           (call->prescale != 1 && tutti__call_reduces(call->kind) &&
            call->kind != TUTTI_CALL_ALLREDUCE);
}

/* Can all ranks serve the bucket in device memory? Kinds with their own block map run in host
   memory. */
static int fits_device(const tutti__engine_t *e, const tutti__bucket_t *bucket)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    const tutti__request_t *r = bucket->first;

    if (device == NULL || device->node == NULL || tutti__call_device_tag(&r->call) == 0 ||
        r->call.kind == TUTTI_CALL_REDUCE_SCATTERV || r->call.kind == TUTTI_CALL_ALLGATHERV)
        return 0;
    return bucket->nrequests > 1 || !is_packed(bucket) || r->bytes <= device->fuse_bytes;
}

/* The events behind the data of a bucket in device memory. */
static tutti_status_t gather_ready(tutti__lane_t *lane, tutti__call_with_t *with)
{
    tutti__devent_t **larger;

    if (lane->ready_room < lane->first->nrequests) {
        larger = realloc(lane->ready, lane->first->nrequests * sizeof(*larger));
        if (larger == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "events of a bucket");
        lane->ready = larger;
        lane->ready_room = lane->first->nrequests;
    }
    with->nready = 0;
    for (const tutti__request_t *r = lane->first->first; r != NULL; r = r->next)
        lane->ready[with->nready++] = r->ready;
    with->ready = lane->ready;
    return TUTTI_OK;
}

static tutti_status_t on_device(tutti__engine_t *e, tutti__lane_t *lane, tutti__call_with_t *with)
{
    const tutti__bucket_t *bucket = lane->first;

    with->stays_in_host = !fits_device(e, bucket);
    with->awaits_input = e->words != NULL;
    with->detaches = 1;
    with->uses_stage = bucket->first->is_zero;
    with->npieces = (size_t)bucket->nrequests * e->size;
    with->scaled = &bucket->first->call;
    return gather_ready(lane, with);
}

/* Estimate the cost of a step with the first bucket of a lane. To start a bucket in device memory
   takes little time. */
static size_t bucket_bytes(const tutti__bucket_t *bucket)
{
    size_t total = 0;

    for (const tutti__request_t *r = bucket->first; r != NULL && !bucket->on_device; r = r->next)
        total += r->bytes;
    return total;
}

/* Make the call that serves the bucket, on the user's buffers or fused. */
static tutti_status_t make_call(tutti__engine_t *e, tutti__lane_t *lane, tutti__call_with_t *with)
{
    const tutti__bucket_t *bucket = lane->first;
    const tutti__request_t *r = bucket->first;
    /* A zero contribution has no device data, so it is not staged. */
    int is_device = r->call.on_device && (!r->is_zero || fits_device(e, bucket));
    int fused = bucket->nrequests > 1 || r->is_zero ||
                (is_device && is_packed(bucket) && fits_device(e, bucket));
    tutti_status_t status = TUTTI_OK;

    with->signature = (uint32_t)tutti__hash(&bucket->number, sizeof(uint32_t));
    lane->call = r->call;
    lane->call.on_device = is_device;
    if (fused) {
        with->packing = &tutti__fuse_packing;
        with->owner = lane;
        status = tutti__fuse_call(e, lane, &lane->call);
    }
    return status == TUTTI_OK && is_device ? on_device(e, lane, with) : status;
}

/* Start the operation of a lane's first bucket. AGAIN: it cannot start yet. */
static tutti_status_t start(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti__request_t *r = lane->first->first;
    tutti_status_t status;

    if (lane->first->nrequests == 0)
        return TUTTI_OK;
    if (r->is_zero && r->phase > 0 && r->call.recvcounts == NULL && !tutti__join_counts(e, r))
        return TUTTI__AGAIN;
    lane->counting = lane->first->counts;
    if (lane->counting) {
        tutti__operation_start_counts(&lane->op, &r->call, r->is_zero);
    } else {
        lane->with = (tutti__call_with_t){ .tag = TUTTI__TAG_BUCKET };
        status = make_call(e, lane, &lane->with);
        if (status != TUTTI_OK)
            return status;
        tutti__operation_start(&lane->op, &lane->call, &lane->with);
    }
    lane->op.bytes = bucket_bytes(lane->first);
    lane->running = 1;
    return TUTTI_OK;
}

static tutti__bucket_t *take_first(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti__bucket_t *bucket = lane->first;

    assert(bucket != NULL && lane->op.at == TUTTI__AT_END && e->in_flight > 0);
    lane->first = bucket->next;
    if (lane->first == NULL)
        lane->last = NULL;
    lane->running = 0;
    e->in_flight--;
    return bucket;
}

/* The first bucket of a lane leaves it. Its requests end, unless they continue elsewhere. */
static void finish(tutti__engine_t *e, tutti__lane_t *lane, tutti_status_t status, const char *text)
{
    tutti__bucket_t *bucket = take_first(e, lane);
    tutti__request_t *next;

    for (tutti__request_t *r = bucket->first; r != NULL && status != TUTTI__AGAIN; r = next) {
        next = r->next;
        tutti__request_finish(e, r, status, text);
    }
    e->on_device -= bucket->on_device;
    if (tutti__agree_has_joined(e->agree))
        atomic_store_explicit(&e->moved_ns, tutti__now_ns(), memory_order_relaxed);
    free(bucket);
}

/* All ranks know that no rank can serve the bucket. */
static void refuse(tutti__engine_t *e, tutti__lane_t *lane, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];
    const tutti__request_t *r = lane->first->first;

    if (lane->counting)
        snprintf(text, sizeof(text), "tensor '%.200s': in %s %.200s", r->name,
                 tutti__call_name(r->call.kind), tutti_last_error());
    else
        snprintf(text, sizeof(text), "%s", tutti_last_error());
    tutti__operation_cancel(&lane->op);
    finish(e, lane, status, text);
}

/* ---- the exchange of counts ---- */

/* Keep the counts that each rank gives to this rank: the third of the request's four arrays. */
static void keep_counts(tutti__request_t *r, const tutti__exchange_t *x, uint32_t size)
{
    size_t *counts = r->arrays + 2 * (size_t)size;

    for (uint32_t s = 0; s < size; s++)
        counts[s] = (size_t)*tutti__exchange_from(x, size, s);
    r->call.recvcounts = counts;
}

/* A rank has no buffer, because it did not know the size. So the bucket ends here, and each rank
   announces the tensor again, as phase 1, when it has a buffer: no lane waits for a user. */
static void next_phase(tutti__engine_t *e, tutti__request_t *r, const tutti__exchange_t *x)
{
    if (r->counts_later)
        keep_counts(r, x, e->size);
    r->agreed = 0;
    r->phase = 1;
    if (r->is_zero) {
        r->next = e->zeros;
        e->zeros = r;
        return;
    }
    tutti__mutex_lock(&e->queue_lock);
    tutti__store_release(&r->counted, r->counts_later ? 1 : 2);
    if (!r->counts_later)
        tutti__request_queue(e, r);
    tutti__mutex_unlock(&e->queue_lock);
    tutti__request_wake(e);
}

/* ---- its end ---- */

/* The operation is done, or there was none. */
static void end_bucket(tutti__engine_t *e, tutti__lane_t *lane)
{
    if (lane->running && lane->counting) {
        lane->running = 0;
        lane->first->counts = 0;
        if (lane->op.exchange.all_know)
            return; /* the data follow in the same lane at once */
        next_phase(e, lane->first->first, &lane->op.exchange);
        finish(e, lane, TUTTI__AGAIN, NULL);
    } else if (lane->running && lane->op.is_queued) {
        tutti__completion_add(e, take_first(e, lane));
    } else {
        finish(e, lane, TUTTI_OK, NULL);
    }
}

/* All is queued: an event stands behind the results. */
static tutti_status_t record_result(tutti__engine_t *e, const tutti__lane_t *lane)
{
    if (!lane->running || !lane->op.is_queued)
        return TUTTI_OK;
    return tutti__completion_record(e, lane->first, e->env.exec->device->lane[lane - e->lane].up);
}

static void fail(tutti__engine_t *e, const tutti__lane_t *lane, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "%s, tensor '%.100s': %.300s",
             tutti__boot_rank_name(e->env.boot, e->rank), lane->first->first->name,
             tutti_last_error());
    if (lane->running && !lane->counting && lane->call.on_device)
        tutti__watch_fail(e->watch, status, text);
    else
        tutti__watch_end(e->watch, status, text);
}

/* ---- steps ---- */

/* One step of a lane's operation. If it waits for a rank that has left, a second step decides. */
static inline tutti_status_t step_operation(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti_status_t status = tutti__operation_step(&lane->op);

    if (status == TUTTI__AGAIN && TUTTI__UNLIKELY(tutti__operation_awaits_left(&lane->op)))
        status = tutti__operation_step_left(&lane->op);
    if (TUTTI__UNLIKELY(lane->op.is_certain)) {
        lane->op.is_certain = 0;
        tutti__semaphore_begin(e, lane->first);
    }
    return status;
}

/* Advance one lane. After a complete operation the next begins at once. */
static int step_lane(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who, int *ret_left)
{
    int moved = 0;

    while (lane->first != NULL) {
        size_t bytes = lane->running ? lane->op.bytes : bucket_bytes(lane->first);
        uint32_t at = lane->op.at;
        tutti_status_t status;

        if (who == TUTTI__STEP_BRIEF && bytes > TUTTI__BRIEF_BYTES) {
            *ret_left = 1;
            return moved;
        }
        status = lane->running ? TUTTI_OK : start(e, lane);
        if (status == TUTTI_OK && lane->running)
            status = step_operation(e, lane);
        if (status == TUTTI__AGAIN)
            return moved | (lane->running && (uint32_t)lane->op.at != at);
        if (status == TUTTI_OK)
            status = record_result(e, lane);
        moved = 1;
        if (status == TUTTI_OK)
            end_bucket(e, lane);
        else if (lane->running && lane->op.is_common)
            refuse(e, lane, status);
        else {
            fail(e, lane, status);
            return 1;
        }
    }
    return moved;
}

/* NULL: in no lane. */
static const tutti__lane_t *lane_of(const tutti__engine_t *e, const tutti__request_t *request)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        const tutti__bucket_t *bucket = e->lane[i].running ? e->lane[i].first : NULL;

        for (const tutti__request_t *r = bucket ? bucket->first : NULL; r != NULL; r = r->next)
            if (r == request)
                return &e->lane[i];
    }
    return NULL;
}

int32_t tutti__lanes_hint(const tutti__engine_t *e, const tutti__request_t *request)
{
    const tutti__lane_t *lane = lane_of(e, request);

    return lane != NULL ? lane->op.hint.peer : -1;
}

int tutti__lanes_want_data(const tutti__engine_t *e, const tutti__request_t *request)
{
    const tutti__lane_t *lane = lane_of(e, request);

    return lane != NULL && tutti__operation_awaits_data(&lane->op);
}

static int step_lanes(tutti__engine_t *e, tutti__who_t who, int *ret_left)
{
    int moved = 0, polling = 0;

    for (uint32_t i = 1; i < TUTTI__LANES && !tutti__watch_has_ended(e->watch); i++) {
        moved |= step_lane(e, &e->lane[i], who, ret_left);
        polling |= e->lane[i].first != NULL && e->lane[i].op.polls;
    }
    polling |= e->completion_first != NULL;
    /* Wake waiters from a long sleep: they must poll more often now, and only they may be allowed
       to do the work. */
    if (polling && !atomic_exchange(&e->polling, polling) && who == TUTTI__STEP_THREAD)
        tutti__request_wake(e);
    else if (!polling)
        atomic_store_explicit(&e->polling, 0, memory_order_relaxed);
    return moved;
}

/* Some buckets are on the device. */
static int step_with_device(tutti__engine_t *e, tutti__who_t who, int *ret_left)
{
    int before, moved;

    if (TUTTI__UNLIKELY(tutti__watch_has_failed(e->watch))) {
        atomic_store(&e->news, 1); /* the next step polls the sockets */
        tutti__watch_await_news(e->watch);
        return 0;
    }
    before = tutti__device_enter(e->env.exec->device);
    moved = tutti__completion_poll(e);
    moved |= step_lanes(e, who, ret_left);
    tutti__device_leave(e->env.exec->device, before);
    return moved;
}

int tutti__lanes_step(tutti__engine_t *e, tutti__who_t who, int *ret_left)
{
    *ret_left = 0;
    if (e->in_flight == 0 && e->on_device == 0)
        return 0;
    return TUTTI__LIKELY(e->on_device == 0) ? step_lanes(e, who, ret_left)
                                            : step_with_device(e, who, ret_left);
}
