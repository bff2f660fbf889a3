/* SPDX-License-Identifier: BSD-3-Clause */
/* Events for submissions with a CUDA stream and for pending completions. Any thread may call these
   functions, unless it holds the lock of pending.h. */
#ifndef TUTTI__ENGINE_EVENTS_H
#define TUTTI__ENGINE_EVENTS_H

#include "base/lock.h"
#include "engine/request.h"

typedef struct {
    const tutti__exec_device_t *device; /* NULL: no device, so no events */
    tutti__mutex_t lock;                /* protects the rest */
    tutti__devent_t **event;            /* [count]; the first `nfree` are free */
    size_t count, nfree;
} tutti__events_t;

/* Make the first events, if device is not NULL. After an error, the caller calls close. */
tutti_status_t tutti__events_open(tutti__events_t *events, const tutti__exec_device_t *device);
void tutti__events_close(tutti__events_t *events);
/* Record an event in the stream of each request; all or none. */
tutti_status_t tutti__events_record(tutti__events_t *events, tutti__request_t *const *requests,
                                    size_t n);
/* An event of the pool, or a new event. */
tutti_status_t tutti__events_take(tutti__events_t *events, tutti__devent_t **ret_event);
/* Return the event, if there is one, to the pool; *event becomes NULL. */
void tutti__events_put(tutti__events_t *events, tutti__devent_t **event);

#endif
