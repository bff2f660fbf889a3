/* SPDX-License-Identifier: BSD-3-Clause */
/* Unused requests, whose memory new requests reuse. A new request usually gets the memory of the
   previous request of its name. Its name, its call and its place in the plan are then set already.
   An unused request also keeps its handle's slot and its reference to the engine, so a request that
   reuses memory needs no atomic addition for them. If two keys share a place, the place has the
   request that was freed last. Any thread. */
#ifndef TUTTI__ENGINE_SPARES_H
#define TUTTI__ENGINE_SPARES_H

#include "base/constants.h"
#include "engine/request.h"

/* The content of a place when the engine is closed: no request may stay in the place. */
#define TUTTI__SPARES_CLOSED ((tutti__request_t *)(uintptr_t)1)

struct tutti__spares {
    /* The place of a request is its key (requests.c) modulo the number of places. NULL: empty. */
    _Atomic(tutti__request_t *) spare[TUTTI__SPARE_REQUESTS];
};

/* Exchange the request at the place of a key. request: the new request, or NULL to empty the place.
   Returns the old content of the place. */
static inline tutti__request_t *tutti__spares_swap(tutti__spares_t *spares, uint64_t key,
                                                   tutti__request_t *request)
{
    return atomic_exchange_explicit(&spares->spare[key % TUTTI__SPARE_REQUESTS], request,
                                    memory_order_acq_rel);
}

/* Discard all unused requests, and close all places. Afterwards no call may make a request of this
   engine. Requests may still be freed, but do not stay in their places. */
void tutti__spares_close(tutti__spares_t *spares);

#endif
