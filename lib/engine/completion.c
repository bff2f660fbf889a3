/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pending completions: buckets whose work is queued on the device and is not complete.
 *
 *      lane:  pack, run, unpack are queued --> pending until the event behind them is complete
 *             the next bucket begins           (polled, in the order of their arrival)
 *
 * A bucket leaves its lane as soon as the host has no more work for it. The next bucket of the lane
 * may use the same memory and events at once, for these reasons:
 *
 *   - Only the CUDA stream `up` and NCCL access the lane's device memory. NCCL's work waits for
 *     earlier work in `up`, and later work in `up` waits for NCCL's work.
 *   - A run that is queued uses no pinned memory.
 *   - If an event is recorded again, CUDA streams that already wait for it are not affected.
 *
 * The requests of a pending completion are queued, but not done. If a request is handed over to a
 * CUDA stream, the request is done for its waiter, and leaves the bucket. The other requests are
 * done when the bucket's event is complete.
 *
 * Rejected: counting the users of an event. The token already excludes concurrent accesses.
 */
#include "engine/completion.h"

#include "base/log.h"
#include "base/time.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

tutti_status_t tutti__completion_record(tutti__completions_t *completions, tutti__bucket_t *bucket,
                                        tutti__dstream_t *stream)
{
    tutti_status_t status;

    /* The lane's CUDA streams already wait for these events, or the host has waited for them. */
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next)
        tutti__events_put(completions->pending->events, &r->ready);
    status = tutti__events_take(completions->pending->events, &bucket->landed);
    if (status == TUTTI_OK)
        status = completions->env->exec->device->ops->record(bucket->landed, stream);
    if (status != TUTTI_OK)
        tutti__events_put(completions->pending->events, &bucket->landed);
    return status;
}

void tutti__completion_add(tutti__completions_t *completions, tutti__bucket_t *bucket)
{
    assert(bucket->on_device && bucket->landed != NULL);
    bucket->since_ns = tutti__now_ns();
    tutti__bucket_append(&completions->first, &completions->last, bucket);
    completions->count++;
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next) {
        r->completion_ns = bucket->since_ns;
        tutti__store_release(&r->queued, 1);
        tutti__store_release(&r->begun, 1);
    }
    tutti__pending_wake(completions->pending);
}

static void drop_first(tutti__completions_t *completions)
{
    tutti__bucket_t *bucket = completions->first;

    completions->first = bucket->next;
    if (completions->first == NULL)
        completions->last = NULL;
    completions->count--;
    assert((completions->count == 0) == (completions->first == NULL));
    tutti__events_put(completions->pending->events, &bucket->landed);
    tutti__bucket_free(bucket);
}

static void fail(tutti__completions_t *completions, const tutti__bucket_t *bucket,
                 tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    /* If all requests were handed over, the bucket has no request left. */
    snprintf(text, sizeof(text), "%s, tensor '%.100s', queued on its device: %.300s",
             tutti__boot_rank_name(completions->env->boot, completions->env->exec->rank),
             bucket->first != NULL ? bucket->first->name : "", tutti_last_error());
    tutti__watch_fail(completions->env->watch, status, text);
}

/* Is the bucket's event complete (OK) or not (AGAIN)? After an error of NCCL the event is never
   complete, so ask NCCL for errors as well. */
static tutti_status_t land(const tutti__completions_t *completions, const tutti__bucket_t *bucket)
{
    const tutti__exec_device_t *device = completions->env->exec->device;
    tutti_status_t status = device->ops->query(bucket->landed), nccl;

    if (status != TUTTI__AGAIN)
        return status;
    nccl = device->node != NULL ? device->node->device_ops->settle(device->node) : TUTTI_OK;
    if (device->all_node != NULL && (nccl == TUTTI_OK || nccl == TUTTI__AGAIN))
        nccl = device->all_node->device_ops->settle(device->all_node);
    return nccl == TUTTI_OK ? TUTTI__AGAIN : nccl;
}

int tutti__completion_poll(tutti__completions_t *completions)
{
    tutti_status_t status = TUTTI_OK;
    tutti__request_t *next;
    int moved = 0;

    while (completions->first != NULL &&
           (status = land(completions, completions->first)) == TUTTI_OK) {
        for (tutti__request_t *r = completions->first->first; r != NULL; r = next) {
            next = r->next;
            tutti__pending_finish(completions->pending, r, TUTTI_OK, NULL);
        }
        completions->first->first = NULL;
        drop_first(completions);
        moved = 1;
    }
    if (status != TUTTI_OK && status != TUTTI__AGAIN)
        fail(completions, completions->first, status);
    return moved;
}

void tutti__completion_clear(tutti__completions_t *completions)
{
    while (completions->first != NULL)
        drop_first(completions);
}

/* Is there NCCL work that was not aborted? */
static int is_at_work(const tutti__completions_t *completions)
{
    const tutti__exec_device_t *device = completions->env->exec->device;

    return !tutti__watch_has_ended(completions->env->watch) && tutti__device_is_queued(device);
}

void tutti__completion_drain(tutti__completions_t *completions, uint64_t limit_ns)
{
    int before;

    before = tutti__device_enter(completions->env->exec->device);
    while (completions->first != NULL && !tutti__watch_has_ended(completions->env->watch) &&
           tutti__now_ns() < limit_ns)
        if (!tutti__completion_poll(completions))
            sched_yield();
    while (is_at_work(completions) && tutti__now_ns() < limit_ns)
        sched_yield();
    /* This work may never end. Abort it, because it must not access buffers later. */
    if (is_at_work(completions))
        tutti__device_abort(completions->env->exec->device);
    tutti__device_leave(completions->env->exec->device, before);
}

/* ---- handing over ---- */

/* The request's place in its bucket's list; NULL: the request is in no pending completion. */
static tutti__request_t **find(tutti__completions_t *completions, const tutti__request_t *request,
                               tutti__bucket_t **ret_bucket)
{
    for (tutti__bucket_t *b = completions->first; b != NULL; b = b->next)
        for (tutti__request_t **at = &b->first; *at != NULL; at = &(*at)->next)
            if (*at == request) {
                *ret_bucket = b;
                return at;
            }
    return NULL;
}

tutti_status_t tutti__completion_pass(tutti__completions_t *completions, tutti__request_t *request,
                                      tutti__dstream_t *stream, int *ret_found)
{
    const tutti__exec_device_t *device = completions->env->exec->device;
    tutti__bucket_t *bucket;
    tutti__request_t **at = find(completions, request, &bucket);
    tutti_status_t status;
    int before;

    *ret_found = at != NULL;
    if (at == NULL)
        return TUTTI_OK;
    assert(tutti__load_relaxed(&request->queued) && bucket->landed != NULL);
    before = tutti__device_enter(device);
    status = device->ops->wait(stream, bucket->landed);
    tutti__device_leave(device, before);
    if (status != TUTTI_OK)
        return status;
    *at = request->next;
    tutti__pending_finish(completions->pending, request, TUTTI_OK, NULL);
    return TUTTI_OK;
}
