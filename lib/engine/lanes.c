/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: buckets in flight.
 *
 * Bucket k runs in lane 1 + k mod 4, after its predecessor in that lane, on every rank. So ranks
 * never wait for each other in different orders. A bucket of one tensor runs on the user's buffers;
 * several tensors are one call in the lane's memory (fuse.c). If ranks do not know each other's
 * counts, the collective first exchanges them in the same lane (exchange.c). Tensors in device
 * memory take more steps than one run (on_device.c).
 *
 * A bucket whose work is all queued on a device leaves its lane before this work is complete
 * (completion.c).
 *
 * A run on a device requires that every rank keeps stepping all lanes that it has started (see
 * node/nccl/nccl.h). While there is such a run, `polling` keeps the thread awake, and the thread
 * steps all lanes, even if brief steps omit some.
 */
#include "engine/state.h"

#include "base/hash.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

void tutti__lanes_open(tutti__engine_t *e)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++)
        tutti__run_init(&e->lane[i].run, e->env.exec, i);
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

/* Is this thread forbidden to drive the transports of a schedule? Needed only for MPI. */
int tutti__lanes_forbidden(const tutti__engine_t *e, const tutti__sched_t *sched, tutti__who_t who)
{
    int is_engine = who == TUTTI__STEP_THREAD || tutti__thread_is_own();

    return tutti__run_forbidden(e->env.exec, sched, is_engine);
}

void tutti__lanes_clear(tutti__engine_t *e, tutti__who_t who)
{
    int before = e->on_device > 0 ? tutti__device_enter(e->env.exec->device) : -1;

    if (e->on_device > 0)
        tutti__device_quiesce(e->env.exec->device, 1, TUTTI__LANES);
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        tutti__lane_t *lane = &e->lane[i];

        /* If this thread may not call MPI, it leaves the messages alone; no other thread will
           cancel them. */
        if (lane->running && lane->run.sched != NULL &&
            !(lane->polls && tutti__lanes_forbidden(e, lane->run.sched, who)))
            tutti__run_cancel(&lane->run);
        free_buckets(lane);
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
        tutti__run_fini(&e->lane[i].run);
        tutti__call_room_free(&e->lane[i].room);
        tutti__staged_free(&e->lane[i].staged);
        free(e->lane[i].pieces);
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

/* Does a schedule use a transport that advances only when polled? */
static int polls(const tutti__engine_t *e, const tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nchans; i++)
        if (e->env.exec->xport[sched->chans[i].peer]->ops->progress != NULL)
            return 1;
    return 0;
}

/* Make the call that serves the bucket: first the counts, and then the data, on the user's
   buffers or fused. */
static tutti_status_t make_call(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti__request_t *r = lane->first->first;

    if (r->is_zero && r->phase > 0 && r->call.recvcounts == NULL && !tutti__join_counts(e, r))
        return TUTTI__AGAIN;
    lane->counting = lane->first->counts;
    lane->fused = lane->on_device = 0;
    if (lane->counting)
        return tutti__exchange_call(e, lane, &lane->call);
    lane->fused = lane->first->nrequests > 1 || r->is_zero || tutti__device_packs(e, lane->first);
    /* A zero contribution has no device data, so it is not staged. */
    lane->on_device = r->call.on_device && (!r->is_zero || tutti__device_fits(e, lane->first));
    if (lane->fused)
        return tutti__fuse_call(e, lane, &lane->call);
    lane->call = r->call;
    return TUTTI_OK;
}

static inline tutti_status_t get_schedule(tutti__cache_t *cache, const tutti__call_t *call,
                                          const tutti__want_t *want, int in_place,
                                          const tutti__sched_t **ret_sched)
{
    switch (call->kind) {
    case TUTTI_CALL_SEND:
        return tutti__cache_sendrecv(cache, call->root, TUTTI__NOBODY, ret_sched);
    case TUTTI_CALL_RECV:
        return tutti__cache_sendrecv(cache, TUTTI__NOBODY, call->root, ret_sched);
    case TUTTI_CALL_SENDRECV:
        return tutti__cache_sendrecv(cache, call->root, call->source, ret_sched);
    default:
        return tutti__cache_get(cache, want, in_place, ret_sched);
    }
}

tutti_status_t tutti__lanes_schedule(tutti__cache_t *cache, const tutti__call_t *call,
                                     const tutti__want_t *want, int in_place,
                                     const tutti__sched_t **ret_sched)
{
    return get_schedule(cache, call, want, in_place, ret_sched);
}

tutti_status_t tutti__lanes_run(tutti__lane_t *lane, const tutti__sched_t *sched)
{
    lane->exec.tag = TUTTI__TAG_BUCKET;
    lane->exec.signature = (uint32_t)tutti__hash(&lane->first->number, sizeof(uint32_t));
    return tutti__run_start(&lane->run, sched, &lane->exec);
}

/*
 * Begin the first bucket of a lane; afterwards `running`, unless there is nothing to do.
 *
 * TUTTI__AGAIN: this thread is not allowed to; nothing was done. *ret_refused: no rank can
 * serve the call.
 */
static tutti_status_t start(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                            tutti_status_t *ret_refused)
{
    const tutti__sched_t *sched;
    tutti__want_t want = { 0 };
    int in_place, empty;
    tutti_status_t status;

    if (lane->first->nrequests == 0)
        return TUTTI_OK;
    status = make_call(e, lane);
    if (status == TUTTI_OK && lane->on_device)
        return tutti__device_start(e, lane, who, ret_refused);
    if (status == TUTTI_OK)
        status = tutti__call_prepare(&lane->call, e->rank, e->size, &lane->room, &want, &lane->exec,
                                     &in_place, &empty);
    if (status != TUTTI_OK || empty)
        return status;
    status = get_schedule(&e->cache, &lane->call, &want, in_place, &sched);
    if (status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_INVALID_ARGUMENT) {
        *ret_refused = status;
        return TUTTI_OK;
    }
    if (status != TUTTI_OK)
        return status;
    lane->polls = polls(e, sched);
    if (lane->polls && tutti__lanes_forbidden(e, sched, who))
        return TUTTI__AGAIN;
    lane->bytes =
        TUTTI__MAX(lane->exec.count, lane->exec.in_count) * tutti_dtype_bytes(lane->exec.dtype);
    if (lane->fused)
        tutti__fuse_pack(e, lane);
    else
        tutti__call_begin(&lane->call, &lane->room, &lane->exec);
    status = tutti__lanes_run(lane, sched);
    lane->running = status == TUTTI_OK;
    return status;
}

/* Copy the results of a complete run to the user's buffers. */
static void deliver(tutti__engine_t *e, tutti__lane_t *lane)
{
    if (lane->fused)
        tutti__fuse_unpack(e, lane);
    else
        tutti__call_end(&lane->call, &lane->room, &lane->exec);
}

static tutti__bucket_t *take_first(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti__bucket_t *bucket = lane->first;

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

/* The run is complete, or there was none. */
static void end_bucket(tutti__engine_t *e, tutti__lane_t *lane, tutti_status_t refused)
{
    char text[TUTTI__ERROR_BYTES];
    tutti_status_t status = refused;

    text[0] = '\0';
    if (TUTTI__UNLIKELY(refused != TUTTI_OK))
        snprintf(text, sizeof(text), "%s", tutti_last_error());
    if (lane->running && lane->counting) {
        lane->running = 0;
        status = tutti__exchange_done(e, lane, text, sizeof(text));
        if (status == TUTTI_OK) {
            lane->first->counts = 0;
            return;
        }
    } else if (lane->running && !lane->on_device) {
        deliver(e, lane);
    } else if (lane->running && lane->phase == TUTTI__DEVICE_QUEUED) {
        tutti__completion_add(e, take_first(e, lane));
        return;
    }
    finish(e, lane, status, status == TUTTI_OK ? NULL : text);
}

/* A peer that has left sends nothing more. Nor does a peer whose status page is IDLE: it runs no
   more buckets, and its data are already here, except data over MPI, which may be late. */
static int waits_for_left(tutti__engine_t *e, const tutti__lane_t *lane)
{
    uint32_t peer = (uint32_t)lane->hint.peer;

    if (lane->hint.peer < 0)
        return 0;
    return tutti__watch_has_left(e->watch, peer) ||
           (e->env.exec->xport[peer]->ops->progress == NULL &&
            tutti__watch_is_idle(e->watch, peer));
}

static void fail(tutti__engine_t *e, const tutti__lane_t *lane, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "%s, tensor '%.100s': %.300s",
             tutti__boot_rank_name(e->env.boot, e->rank), lane->first->first->name,
             tutti_last_error());
    if (lane->on_device)
        tutti__watch_fail(e->watch, status, text);
    else
        tutti__watch_end(e->watch, status, text);
}

/* The run waited for a rank that has left: poll once more. */
static tutti_status_t step_again(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti_status_t status;
    char text[160];

    /* Data that the peer wrote before it left may have arrived after the first poll. */
    status = tutti__run_step(&lane->run, &lane->hint);
    if (status != TUTTI__AGAIN || !waits_for_left(e, lane))
        return status;
    if (tutti__watch_left_text(e->watch, (uint32_t)lane->hint.peer, text, sizeof(text)))
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", text);
    return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s has ended, as another rank has left",
                       tutti__boot_rank_name(e->env.boot, (uint32_t)lane->hint.peer));
}

/* One step of a lane's run. If it waits for a rank that has left, a second poll decides. */
static inline tutti_status_t step_run(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti_status_t status = tutti__run_step(&lane->run, &lane->hint);

    if (status != TUTTI__AGAIN || !waits_for_left(e, lane))
        return status;
    return step_again(e, lane);
}

tutti_status_t tutti__lanes_step_run(tutti__engine_t *e, tutti__lane_t *lane)
{
    return step_run(e, lane);
}

/* Bytes of the first bucket of a lane, which estimate the cost of a step. */
static size_t bucket_bytes(const tutti__lane_t *lane)
{
    size_t total = 0;

    if (lane->running)
        return lane->bytes;
    /* To start such a bucket takes little time. */
    if (lane->first->on_device)
        return 0;
    for (const tutti__request_t *r = lane->first->first; r != NULL; r = r->next)
        total += r->bytes;
    return total;
}

/* A brief step does no more than this, which is about 10 us of work. */
#define BRIEF_BYTES 65536

/* Advance one lane. After a complete run the next begins at once. */
static int step_lane(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who, int *ret_left)
{
    int moved = 0;

    while (lane->first != NULL) {
        tutti_status_t status = TUTTI_OK, refused = TUTTI_OK;

        if (who == TUTTI__STEP_BRIEF && bucket_bytes(lane) > BRIEF_BYTES) {
            *ret_left = 1;
            return moved;
        }
        if (!lane->running) {
            status = start(e, lane, who, &refused);
            moved |= status == TUTTI_OK;
        }
        if (status == TUTTI_OK && lane->running) {
            if (TUTTI__UNLIKELY(lane->on_device))
                status = tutti__device_step(e, lane, who, &refused);
            else if (lane->polls && tutti__lanes_forbidden(e, lane->run.sched, who))
                return moved;
            else
                status = step_run(e, lane);
        }
        if (status == TUTTI__AGAIN)
            return moved;
        if (status != TUTTI_OK) {
            fail(e, lane, status);
            return 1;
        }
        end_bucket(e, lane, refused);
        moved = 1;
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

    return lane != NULL ? lane->hint.peer : -1;
}

int tutti__lanes_want_data(const tutti__engine_t *e, const tutti__request_t *request)
{
    const tutti__lane_t *lane = lane_of(e, request);

    return lane != NULL && lane->on_device &&
           (lane->phase == TUTTI__DEVICE_INPUT || lane->phase == TUTTI__DEVICE_STAGED_IN);
}

static int step_lanes(tutti__engine_t *e, tutti__who_t who, int *ret_left)
{
    int moved = 0, polling = 0;

    for (uint32_t i = 1; i < TUTTI__LANES && !tutti__watch_has_ended(e->watch); i++) {
        moved |= step_lane(e, &e->lane[i], who, ret_left);
        polling |= e->lane[i].first != NULL && e->lane[i].polls;
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
