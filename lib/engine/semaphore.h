/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests for which only a CUDA stream waits. See semaphore.c. Callers own the token, unless a
   comment says "any thread". */
#ifndef TUTTI__ENGINE_SEMAPHORE_H
#define TUTTI__ENGINE_SEMAPHORE_H

#include "engine/events.h"
#include "engine/signals.h"

typedef struct tutti__lanes tutti__lanes_t;
typedef struct tutti__pending tutti__pending_t;

typedef struct {
    const tutti__engine_env_t *env;
    tutti__events_t *events;
    tutti__pending_t *pending;
    const tutti__lanes_t *lanes;
    tutti__signals_t *signals;
    void *words;             /* semaphores that streams wait on; NULL: none. Set up once */
    tutti__request_t *given; /* requests that were handed over to streams */
    uint64_t checked_ns;     /* the last check of `given` */
} tutti__semaphores_t;

/* Set `words` if the device has semaphores. The caller has set env. */
tutti_status_t tutti__semaphore_open(tutti__semaphores_t *semaphores);
/* Can the request be handed over to a stream when it has begun, if `words` is set? Any thread. */
int tutti__semaphore_suits(const tutti__request_t *request);
/* If a suitable request has begun, a semaphore is free, and the stream can wait, hand the request
   over and set *ret_gone to 1. */
tutti_status_t tutti__semaphore_give(tutti__semaphores_t *semaphores, tutti__request_t *request,
                                     tutti__dstream_t *stream, int *ret_gone);
/* End a request that was handed over: write and release its semaphore, and free the request. */
void tutti__semaphore_end(tutti__semaphores_t *semaphores, tutti__request_t *request,
                          tutti_status_t status, const char *text);
void tutti__semaphore_end_all(tutti__semaphores_t *semaphores, const char *text);
/* End the communicator if a request of `given` is past the deadline. For the engine's thread. */
void tutti__semaphore_check(tutti__semaphores_t *semaphores);

#endif
