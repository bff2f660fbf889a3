/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The use of the device on the program's threads, and events in the program's CUDA streams.
 *
 * If a program submits device memory with a CUDA stream, the engine records an event in that
 * stream. The engine's work on this memory waits for the event on the device, and the host does not
 * wait. The event belongs to the request until this work is queued. Queued buckets take their
 * events from the same pool (completion.c).
 *
 * A thread that steps a lane with device memory switches to the engine's device, and afterwards
 * back to its own device. A thread that had no device keeps the engine's device, because choosing
 * another device would initialise that device as well.
 */
#include "engine/events.h"

#include "base/constants.h"

#include <assert.h>
#include <stdlib.h>

/* ---- the pool ---- */

/* Make one more event. This is allowed at any time: making an event does not wait for the device,
   but allocating device memory does (mem/device.h). */
static tutti_status_t make(tutti__events_t *events)
{
    tutti__devent_t *event, **all;
    tutti_status_t status = events->device->ops->event_make(&event);

    if (status != TUTTI_OK)
        return status;
    tutti__mutex_lock(&events->lock);
    all = realloc(events->event, (events->count + 1) * sizeof(tutti__devent_t *));
    if (all != NULL) {
        events->event = all;
        events->count++;
        events->event[events->nfree++] = event;
    }
    tutti__mutex_unlock(&events->lock);
    if (all != NULL)
        return TUTTI_OK;
    events->device->ops->event_drop(event);
    return tutti__fail(TUTTI_ERR_NO_MEMORY, "events");
}

tutti_status_t tutti__events_open(tutti__events_t *events, const tutti__exec_device_t *device)
{
    tutti_status_t status = TUTTI_OK;
    int before;

    *events = (tutti__events_t){ .device = device };
    tutti__mutex_init(&events->lock, TUTTI__LOCK_ENGINE_QUEUE);
    if (device == NULL)
        return TUTTI_OK;
    before = tutti__device_enter(device);

    for (size_t i = 0; i < TUTTI__ENGINE_EVENTS && status == TUTTI_OK; i++)
        status = make(events);
    tutti__device_leave(device, before);
    return status;
}

/* The caller has ended all requests and pending completions, so all events are in the pool. */
void tutti__events_close(tutti__events_t *events)
{
    int before;

    tutti__mutex_destroy(&events->lock);
    if (events->count == 0)
        return;
    before = tutti__device_enter(events->device);
    assert(events->nfree == events->count);
    for (size_t i = 0; i < events->nfree; i++)
        events->device->ops->event_drop(events->event[i]);
    tutti__device_leave(events->device, before);
    free(events->event);
    events->event = NULL;
    events->count = events->nfree = 0;
}

static tutti__devent_t *find(tutti__events_t *events)
{
    tutti__devent_t *event = NULL;

    tutti__mutex_lock(&events->lock);
    if (events->nfree > 0)
        event = events->event[--events->nfree];
    tutti__mutex_unlock(&events->lock);
    return event;
}

tutti_status_t tutti__events_take(tutti__events_t *events, tutti__devent_t **ret_event)
{
    tutti_status_t status = TUTTI_OK;

    while (status == TUTTI_OK && (*ret_event = find(events)) == NULL)
        status = make(events);
    return status;
}

void tutti__events_put(tutti__events_t *events, tutti__devent_t **event)
{
    if (*event == NULL)
        return;
    tutti__mutex_lock(&events->lock);
    assert(events->nfree < events->count);
    events->event[events->nfree++] = *event;
    tutti__mutex_unlock(&events->lock);
    *event = NULL;
}

/* ---- recording ---- */

static tutti_status_t record(tutti__events_t *events, tutti__request_t *r)
{
    tutti_status_t status = tutti__events_take(events, &r->ready);

    return status == TUTTI_OK ? events->device->ops->record(r->ready, r->call.stream) : status;
}

static int any_stream(tutti__request_t *const *requests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i]->call.has_stream)
            return 1;
    return 0;
}

tutti_status_t tutti__events_record(tutti__events_t *events, tutti__request_t *const *requests,
                                    size_t n)
{
    const tutti__device_ops_t *ops = events->device->ops;
    tutti_status_t status = TUTTI_OK;
    int before;

    if (!any_stream(requests, n))
        return TUTTI_OK;
    before = tutti__device_enter(events->device);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        if (requests[i]->call.has_stream && ops->stream_captures(requests[i]->call.stream))
            status = tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                 "tensor '%s': its stream is being captured into a graph, which an "
                                 "asynchronous call cannot be part of",
                                 requests[i]->name);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        if (requests[i]->call.has_stream)
            status = record(events, requests[i]);
    tutti__device_leave(events->device, before);
    return status;
}
