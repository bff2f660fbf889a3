/* SPDX-License-Identifier: BSD-3-Clause */
/* A list of unused requests, whose memory new requests reuse. Any thread. */
#ifndef TUTTI__ENGINE_SPARES_H
#define TUTTI__ENGINE_SPARES_H

#include "engine/request.h"

typedef struct {
    tutti__word_t busy; /* a thread uses the list; other threads do not wait for it */
    tutti__request_t *first;
    uint32_t n;
} tutti__spares_t;

/* NULL: none, or another thread uses the list. */
static inline tutti__request_t *tutti__spares_take(tutti__spares_t *spares)
{
    tutti__request_t *spare;

    if (atomic_exchange_explicit(&spares->busy, 1, memory_order_acquire))
        return NULL;
    spare = spares->first;
    if (spare != NULL) {
        spares->first = spare->next;
        spares->n--;
    }
    atomic_store_explicit(&spares->busy, 0, memory_order_release);
    return spare;
}

/* Keep a request, or free it. */
void tutti__spares_put(tutti__spares_t *spares, tutti__request_t *request);
void tutti__spares_free(tutti__spares_t *spares);

#endif
