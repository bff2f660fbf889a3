/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device on the user's threads, and events in the user's streams.
 *
 * If a thread passes device memory with a stream, the engine records an event in that stream. Work
 * on the memory waits for the event on the device, so the host does not wait. The event belongs to
 * the request until this work is queued. Queued buckets take their events from the same pool
 * (completion.c).
 *
 * A thread that steps a lane with device memory switches to the engine's device, and afterwards
 * back to its own device. A thread that had none keeps the engine's device: to choose another would
 * initialise that device as well.
 */
#include "engine/state.h"

#include "base/constants.h"

#include <stdlib.h>

/* ---- the pool ---- */

/* Make one more event. It is allowed at any time: unlike memory, an event waits for nothing
   (mem/device.h). */
static tutti_status_t make(tutti__engine_t *e)
{
    tutti__devent_t *event, **all;
    tutti_status_t status = e->env.exec->device->ops->event_make(&event);

    if (status != TUTTI_OK)
        return status;
    tutti__mutex_lock(&e->queue_lock);
    all = realloc(e->event, (e->nevents + 1) * sizeof(tutti__devent_t *));
    if (all != NULL) {
        e->event = all;
        e->nevents++;
        e->event[e->free_events++] = event;
    }
    tutti__mutex_unlock(&e->queue_lock);
    if (all != NULL)
        return TUTTI_OK;
    e->env.exec->device->ops->event_drop(event);
    return tutti__fail(TUTTI_ERR_NO_MEMORY, "events");
}

tutti_status_t tutti__events_open(tutti__engine_t *e)
{
    int before = tutti__device_enter(e->env.exec->device);
    tutti_status_t status = TUTTI_OK;

    for (size_t i = 0; i < TUTTI__ENGINE_EVENTS && status == TUTTI_OK; i++)
        status = make(e);
    tutti__device_leave(e->env.exec->device, before);
    return status;
}

/* All requests are done and no completion is pending, so all events are in the pool. */
void tutti__events_close(tutti__engine_t *e)
{
    int before;

    if (e->nevents == 0)
        return;
    before = tutti__device_enter(e->env.exec->device);
    for (size_t i = 0; i < e->free_events; i++)
        e->env.exec->device->ops->event_drop(e->event[i]);
    tutti__device_leave(e->env.exec->device, before);
    free(e->event);
    e->event = NULL;
    e->nevents = e->free_events = 0;
}

static tutti__devent_t *find(tutti__engine_t *e)
{
    tutti__devent_t *event = NULL;

    tutti__mutex_lock(&e->queue_lock);
    if (e->free_events > 0)
        event = e->event[--e->free_events];
    tutti__mutex_unlock(&e->queue_lock);
    return event;
}

tutti_status_t tutti__events_take(tutti__engine_t *e, tutti__devent_t **ret_event)
{
    tutti_status_t status = TUTTI_OK;

    while (status == TUTTI_OK && (*ret_event = find(e)) == NULL)
        status = make(e);
    return status;
}

void tutti__events_put(tutti__engine_t *e, tutti__devent_t **event)
{
    if (*event == NULL)
        return;
    tutti__mutex_lock(&e->queue_lock);
    e->event[e->free_events++] = *event;
    tutti__mutex_unlock(&e->queue_lock);
    *event = NULL;
}

/* ---- recording ---- */

static tutti_status_t record(tutti__engine_t *e, tutti__request_t *r)
{
    tutti_status_t status = tutti__events_take(e, &r->ready);

    return status == TUTTI_OK ? e->env.exec->device->ops->record(r->ready, r->stream) : status;
}

static int any_stream(tutti__request_t *const *requests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i]->has_stream)
            return 1;
    return 0;
}

tutti_status_t tutti__events_record(tutti__engine_t *e, tutti__request_t *const *requests, size_t n)
{
    const tutti__device_ops_t *ops = e->env.exec->device->ops;
    tutti_status_t status = TUTTI_OK;
    int before;

    if (!any_stream(requests, n))
        return TUTTI_OK;
    before = tutti__device_enter(e->env.exec->device);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        if (requests[i]->has_stream && ops->stream_captures(requests[i]->stream))
            status = tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                 "tensor '%s': its stream is being captured into a graph, which an "
                                 "asynchronous call cannot be part of",
                                 requests[i]->name);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        if (requests[i]->has_stream)
            status = record(e, requests[i]);
    tutti__device_leave(e->env.exec->device, before);
    return status;
}
