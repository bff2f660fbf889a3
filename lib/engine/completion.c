/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pending completions: buckets whose work is queued on the device and is not complete.
 *
 *      lane:  pack, run, unpack are queued --> pending until the event behind them is complete
 *             the next bucket begins           (polled, in the order of their arrival)
 *
 * A bucket leaves its lane as soon as the host has no more work for it. Streams order all memory
 * and events that the lane's next bucket uses again:
 *
 *   - The lane's device memory is accessed in the stream `up`, or by NCCL. NCCL waits for `up`
 *     before its work, and `up` waits for NCCL after it.
 *   - Only runs that are not queued use pinned memory.
 *   - A new record of an event does not affect waits for its last record.
 *
 * The bucket's requests are then queued, but not done. A request that is handed over to a stream is
 * done for its waiter, and leaves the bucket. The others are done when the event is complete.
 *
 * Rejected: a count of the users of an event. Every thread that accesses a bucket has the token.
 */
#include "engine/state.h"

#include "base/log.h"
#include "base/time.h"

#include <sched.h>
#include <stdlib.h>

tutti_status_t tutti__completion_record(tutti__engine_t *e, tutti__bucket_t *bucket,
                                        tutti__dstream_t *stream)
{
    tutti_status_t status;

    /* The lane's streams already wait for these events, or the host has. */
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next)
        tutti__events_put(e, &r->ready);
    status = tutti__events_take(e, &bucket->landed);
    if (status == TUTTI_OK)
        status = e->env.exec->device->ops->record(bucket->landed, stream);
    if (status != TUTTI_OK)
        tutti__events_put(e, &bucket->landed);
    return status;
}

void tutti__completion_add(tutti__engine_t *e, tutti__bucket_t *bucket)
{
    bucket->since_ns = tutti__now_ns();
    bucket->next = NULL;
    if (e->completion_last != NULL)
        e->completion_last->next = bucket;
    else
        e->completion_first = bucket;
    e->completion_last = bucket;
    e->ncompletions++;
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next) {
        r->completion_ns = bucket->since_ns;
        tutti__store_release(&r->queued, 1);
        tutti__store_release(&r->begun, 1);
    }
    tutti__request_wake(e);
}

static void drop_first(tutti__engine_t *e)
{
    tutti__bucket_t *bucket = e->completion_first;

    e->completion_first = bucket->next;
    if (e->completion_first == NULL)
        e->completion_last = NULL;
    e->ncompletions--;
    e->on_device--;
    tutti__events_put(e, &bucket->landed);
    tutti__bucket_free(bucket);
}

static void fail(tutti__engine_t *e, const tutti__bucket_t *bucket, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    /* Requests that were handed over behind an event have left the bucket. */
    snprintf(text, sizeof(text), "%s, tensor '%.100s', queued on its device: %.300s",
             tutti__boot_rank_name(e->env.boot, e->rank),
             bucket->first != NULL ? bucket->first->name : "", tutti_last_error());
    tutti__watch_fail(e->watch, status, text);
}

/* Is the event complete? An error of NCCL appears only in NCCL's own query; its work does
   not end then. */
static tutti_status_t land(const tutti__engine_t *e, const tutti__bucket_t *bucket)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    tutti_status_t status = device->ops->query(bucket->landed), nccl;

    if (status != TUTTI__AGAIN)
        return status;
    nccl = device->node != NULL ? device->node->device_ops->settle(device->node) : TUTTI_OK;
    if (device->flat != NULL && (nccl == TUTTI_OK || nccl == TUTTI__AGAIN))
        nccl = device->flat->device_ops->settle(device->flat);
    return nccl == TUTTI_OK ? TUTTI__AGAIN : nccl;
}

int tutti__completion_poll(tutti__engine_t *e)
{
    tutti_status_t status = TUTTI_OK;
    tutti__request_t *next;
    int moved = 0;

    while (e->completion_first != NULL && (status = land(e, e->completion_first)) == TUTTI_OK) {
        for (tutti__request_t *r = e->completion_first->first; r != NULL; r = next) {
            next = r->next;
            tutti__request_finish(e, r, TUTTI_OK, NULL);
        }
        e->completion_first->first = NULL;
        drop_first(e);
        moved = 1;
    }
    if (status != TUTTI_OK && status != TUTTI__AGAIN)
        fail(e, e->completion_first, status);
    return moved;
}

void tutti__completion_clear(tutti__engine_t *e)
{
    while (e->completion_first != NULL)
        drop_first(e);
}

/* Is there NCCL work that was not aborted? */
static int is_at_work(const tutti__engine_t *e)
{
    const tutti__exec_device_t *device = e->env.exec->device;

    return !tutti__watch_has_ended(e->watch) && tutti__device_is_queued(device);
}

void tutti__completion_drain(tutti__engine_t *e, uint64_t limit_ns)
{
    int before;

    if (e->on_device == 0)
        return;
    before = tutti__device_enter(e->env.exec->device);
    while (e->completion_first != NULL && !tutti__watch_has_ended(e->watch) &&
           tutti__now_ns() < limit_ns)
        if (!tutti__completion_poll(e))
            sched_yield();
    while (is_at_work(e) && tutti__now_ns() < limit_ns)
        sched_yield();
    /* This work will never end, so abort it: it must not touch buffers. */
    if (is_at_work(e))
        tutti__device_abort(e->env.exec->device);
    tutti__device_leave(e->env.exec->device, before);
}

/* ---- handing over ---- */

/* The request's place in its bucket's list; NULL: in no bucket here. */
static tutti__request_t **find(tutti__engine_t *e, const tutti__request_t *request,
                               tutti__bucket_t **ret_bucket)
{
    for (tutti__bucket_t *b = e->completion_first; b != NULL; b = b->next)
        for (tutti__request_t **at = &b->first; *at != NULL; at = &(*at)->next)
            if (*at == request) {
                *ret_bucket = b;
                return at;
            }
    return NULL;
}

static tutti_status_t hand_over(tutti__engine_t *e, tutti__request_t *request,
                                tutti__dstream_t *stream, int *ret_gone)
{
    tutti__bucket_t *bucket;
    tutti__request_t **at = find(e, request, &bucket);
    tutti_status_t status;
    int before;

    if (tutti__watch_has_ended(e->watch))
        return TUTTI_OK;
    if (at == NULL)
        return tutti__semaphore_suit(request) ? tutti__semaphore_give(e, request, stream, ret_gone)
                                              : TUTTI_OK;
    before = tutti__device_enter(e->env.exec->device);
    status = e->env.exec->device->ops->wait(stream, bucket->landed);
    tutti__device_leave(e->env.exec->device, before);
    if (status != TUTTI_OK)
        return status;
    *at = request->next;
    tutti__request_finish(e, request, TUTTI_OK, NULL);
    return TUTTI_OK;
}

tutti_status_t tutti__completion_check(tutti__engine_t *e, tutti__dstream_t *stream)
{
    int before, captures;

    if (!tutti__engine_enter(e))
        return TUTTI_OK;
    before = tutti__device_enter(e->env.exec->device);
    captures = e->env.exec->device->ops->stream_captures(stream);
    tutti__device_leave(e->env.exec->device, before);
    tutti__engine_leave(e);
    return captures ? tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                  "the stream is being captured into a graph, which cannot be "
                                  "ordered behind calls between ranks")
                    : TUTTI_OK;
}

tutti_status_t tutti__completion_pass(tutti__engine_t *e, tutti__request_t *request,
                                      tutti__dstream_t *stream, int *ret_gone)
{
    tutti_status_t status = TUTTI_OK;

    /* After the close all requests are done. */
    if (tutti__wait_is_done(request) || !tutti__engine_enter(e))
        return TUTTI_OK;
    tutti__token_await(e);
    if (!tutti__wait_is_done(request))
        status = hand_over(e, request, stream, ret_gone);
    tutti__token_leave(e, TUTTI__STEP_BRIEF);
    if (atomic_load(&e->polling))
        tutti__engine_ring_self(e);
    tutti__engine_leave(e);
    return status;
}
