/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: buckets in flight, packing and unpacking.
 *
 * Bucket k runs in lane 1 + k mod 4, after its predecessor in that lane, on every rank; so ranks
 * never wait for each other in different orders. A bucket of one tensor runs on the user's buffers.
 * Several are packed into one array in memory that the other ranks of the host map, reduced there
 * in place without further copies, and unpacked.
 */
#include "engine/state.h"

#include "base/hash.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

void tutti__lanes_open(tutti__engine_t *e)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++)
        tutti__run_init(&e->lane[i].run, e->env.exec, i);
}

static void free_buckets(tutti__lane_t *lane)
{
    while (lane->first != NULL) {
        tutti__bucket_t *bucket = lane->first;

        lane->first = bucket->next;
        free(bucket);
    }
    lane->last = NULL;
    lane->running = 0;
}

/* May this thread drive the transports of a schedule? Asked only where one minds (MPI). */
static int forbidden(tutti__engine_t *e, const tutti__sched_t *sched, tutti__who_t who)
{
    return tutti__run_forbidden(e->env.exec, sched, who == TUTTI__STEP_THREAD);
}

void tutti__lanes_clear(tutti__engine_t *e, tutti__who_t who)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        tutti__lane_t *lane = &e->lane[i];

        /* A thread that may not call MPI leaves its messages alone; nobody else may come. */
        if (lane->running && !(lane->polls && forbidden(e, lane->run.sched, who)))
            tutti__run_cancel(&lane->run);
        free_buckets(lane);
    }
    e->in_flight = 0;
    atomic_store(&e->polling, 0);
}

void tutti__lanes_close(tutti__engine_t *e)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        free_buckets(&e->lane[i]);
        tutti__run_fini(&e->lane[i].run);
    }
}

void tutti__lanes_add(tutti__engine_t *e, tutti__bucket_t *bucket)
{
    tutti__lane_t *lane = &e->lane[1 + bucket->number % (TUTTI__LANES - 1)];

    bucket->next = NULL;
    if (lane->last != NULL)
        lane->last->next = bucket;
    else
        lane->first = bucket;
    lane->last = bucket;
    e->in_flight++;
}

/* ---- one bucket ---- */

static size_t request_bytes(const tutti_request_t *r)
{
    return r->count * tutti_dtype_bytes(r->dtype);
}

/* Give each tensor its place; returns the bytes in all. */
static size_t lay_out(tutti__bucket_t *bucket)
{
    size_t total = 0;

    for (tutti_request_t *r = bucket->first; r != NULL; r = r->next) {
        r->offset = total;
        total += TUTTI__ROUND_UP(request_bytes(r), TUTTI__LINE_BYTES);
    }
    return total;
}

/* Memory for a fused bucket; grows with use, by powers of two. */
static tutti_status_t get_fuse(tutti__engine_t *e, tutti__lane_t *lane, size_t bytes)
{
    size_t room = 65536;
    void *ptr;
    tutti_status_t status;

    if (lane->fuse_bytes >= bytes)
        return TUTTI_OK;
    while (room < bytes)
        room *= 2;
    status = tutti__arena_alloc(e->env.machine->arena, room, &ptr);
    if (status != TUTTI_OK)
        return status;
    /* Nobody reads the old one: a zero-copy operation ends for all ranks at once. */
    tutti__arena_free(e->env.machine->arena, lane->fuse);
    lane->fuse = ptr;
    lane->fuse_bytes = room;
    return TUTTI_OK;
}

static void pack(const tutti__lane_t *lane)
{
    for (const tutti_request_t *r = lane->first->first; r != NULL; r = r->next)
        memcpy(lane->fuse + r->offset, r->sendbuf, request_bytes(r));
}

static void unpack(const tutti__lane_t *lane)
{
    for (const tutti_request_t *r = lane->first->first; r != NULL; r = r->next)
        memcpy(r->recvbuf, lane->fuse + r->offset, request_bytes(r));
}

/* Does a schedule use a transport that moves only when polled? */
static int polls(const tutti__engine_t *e, const tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nchans; i++)
        if (e->env.exec->xport[sched->chans[i].peer]->ops->progress != NULL)
            return 1;
    return 0;
}

/* TUTTI__AGAIN: this thread may not; nothing was done. */
static tutti_status_t start(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who)
{
    tutti__bucket_t *bucket = lane->first;
    const tutti_request_t *r = bucket->first;
    tutti__exec_call_t call = { r->sendbuf, r->recvbuf, r->count,         r->dtype,
                                r->op,      0,          TUTTI__TAG_BUCKET };
    const tutti__sched_t *sched;
    size_t total = 0;
    tutti_status_t status;

    if (bucket->nrequests > 1) {
        total = lay_out(bucket);
        call.count = total / tutti_dtype_bytes(r->dtype);
    }
    lane->bytes = call.count * tutti_dtype_bytes(call.dtype);
    call.signature = (uint32_t)tutti__hash(&bucket->number, sizeof(bucket->number));
    status = tutti__cache_get(&e->cache, TUTTI__ALLREDUCE, lane->bytes, 0,
                              total > 0 || call.in == call.out, &sched);
    if (status != TUTTI_OK)
        return status;
    lane->polls = polls(e, sched);
    if (lane->polls && forbidden(e, sched, who))
        return TUTTI__AGAIN;
    if (total > 0) {
        status = get_fuse(e, lane, total);
        if (status != TUTTI_OK)
            return status;
        pack(lane);
        call.in = call.out = lane->fuse;
    }
    status = tutti__run_start(&lane->run, sched, &call);
    lane->running = status == TUTTI_OK;
    return status;
}

/* The first bucket of a lane is done. */
static void finish(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti__bucket_t *bucket = lane->first;
    tutti_request_t *next;

    if (bucket->nrequests > 1)
        unpack(lane);
    for (tutti_request_t *r = bucket->first; r != NULL; r = next) {
        next = r->next;
        tutti__request_finish(e, r, TUTTI_OK, NULL);
    }
    lane->first = bucket->next;
    if (lane->first == NULL)
        lane->last = NULL;
    lane->running = 0;
    e->in_flight--;
    free(bucket);
}

/* A peer that has called finalize will never come. */
static int waits_for_left(tutti__engine_t *e, const tutti__lane_t *lane)
{
    return lane->stuck.peer >= 0 && tutti__engine_has_left(e, (uint32_t)lane->stuck.peer);
}

static void fail(tutti__engine_t *e, const tutti__lane_t *lane, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "rank %u, tensor '%.100s': %.300s", e->rank,
             lane->first->first->name, tutti_last_error());
    tutti__watch_dead(e, status, text);
}

/* One step of a lane's run; AGAIN also if it waits for a rank that has left, until looked twice. */
static tutti_status_t step_run(tutti__engine_t *e, tutti__lane_t *lane)
{
    tutti_status_t status = tutti__run_step(&lane->run, &lane->stuck);

    if (status != TUTTI__AGAIN || !waits_for_left(e, lane))
        return status;
    /* What it wrote before it left may have come after the first look. */
    status = tutti__run_step(&lane->run, &lane->stuck);
    if (status == TUTTI__AGAIN && waits_for_left(e, lane))
        status =
            tutti__fail(TUTTI_ERR_SHUTDOWN, "rank %d has called tutti_finalize", lane->stuck.peer);
    return status;
}

/* Bytes of the first bucket of a lane: what a step there may cost. */
static size_t bucket_bytes(const tutti__lane_t *lane)
{
    size_t total = 0;

    if (lane->running)
        return lane->bytes;
    for (const tutti_request_t *r = lane->first->first; r != NULL; r = r->next)
        total += request_bytes(r);
    return total;
}

/* A brief step does not do more than this; about 10 us of work. */
#define BRIEF_BYTES 65536

/* Go on in one lane. A run that is done is followed by the next at once. */
static int step_lane(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who, int *ret_left)
{
    int moved = 0;

    while (lane->first != NULL) {
        tutti_status_t status = TUTTI_OK;

        if (who == TUTTI__STEP_BRIEF && bucket_bytes(lane) > BRIEF_BYTES) {
            *ret_left = 1;
            return moved;
        }
        if (!lane->running && lane->first->first->count > 0) {
            status = start(e, lane, who);
            moved |= status == TUTTI_OK;
        }
        if (status == TUTTI_OK && lane->running) {
            if (lane->polls && forbidden(e, lane->run.sched, who))
                return moved;
            status = step_run(e, lane);
        }
        if (status == TUTTI__AGAIN)
            return moved;
        if (status != TUTTI_OK) {
            fail(e, lane, status);
            return 1;
        }
        finish(e, lane);
        moved = 1;
    }
    return moved;
}

int32_t tutti__lanes_stuck(const tutti__engine_t *e, const tutti_request_t *request)
{
    for (uint32_t i = 1; i < TUTTI__LANES; i++) {
        const tutti__bucket_t *bucket = e->lane[i].running ? e->lane[i].first : NULL;

        for (const tutti_request_t *r = bucket ? bucket->first : NULL; r != NULL; r = r->next)
            if (r == request)
                return e->lane[i].stuck.peer;
    }
    return -1;
}

int tutti__lanes_step(tutti__engine_t *e, tutti__who_t who, int *ret_left)
{
    int moved = 0, polling = 0;

    *ret_left = 0;
    if (e->in_flight == 0)
        return 0;
    for (uint32_t i = 1; i < TUTTI__LANES && !atomic_load(&e->dead); i++) {
        moved |= step_lane(e, &e->lane[i], who, ret_left);
        polling |= e->lane[i].first != NULL && e->lane[i].polls;
    }
    /* Waiters that sleep for long must look more often now; perhaps only they may do the work. */
    if (polling && !atomic_exchange(&e->polling, polling) && who == TUTTI__STEP_THREAD)
        tutti__request_wake(e);
    else if (!polling)
        atomic_store_explicit(&e->polling, 0, memory_order_relaxed);
    return moved;
}
