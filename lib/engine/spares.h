/* SPDX-License-Identifier: BSD-3-Clause */
/* Unused requests, whose memory new requests reuse. A request of a name that was submitted before
   gets the same memory again, so its name, its call and its place in the plan need not be set
   again. Any thread. */
#ifndef TUTTI__ENGINE_SPARES_H
#define TUTTI__ENGINE_SPARES_H

#include "base/constants.h"
#include "engine/request.h"

struct tutti__spares {
    /* The place of a request is its key (requests.c) modulo the number of places. NULL: empty. */
    _Atomic(tutti__request_t *) spare[TUTTI__SPARE_REQUESTS];
};

/* Put a request into the place of a key, or NULL; returns what was there. */
static inline tutti__request_t *tutti__spares_swap(tutti__spares_t *spares, uint64_t key,
                                                   tutti__request_t *request)
{
    return atomic_exchange_explicit(&spares->spare[key % TUTTI__SPARE_REQUESTS], request,
                                    memory_order_acq_rel);
}

void tutti__spares_free(tutti__spares_t *spares);

#endif
