/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: the submitter makes them, the token's owner ends them, the waiter frees them.
   Any thread. */
#include "engine/state.h"

#include "base/constants.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

size_t tutti__request_sum(const size_t *counts, uint32_t n)
{
    size_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

/* Copy the arrays. Reserve space for recvcounts that are not known yet, and for their
   displacements. */
static tutti_status_t copy_arrays(tutti__request_t *r, uint32_t size)
{
    const size_t **array[] = { &r->call.sendcounts, &r->call.senddispls, &r->call.recvcounts,
                               &r->call.recvdispls };

    r->arrays = calloc(4 * (size_t)size, sizeof(*r->arrays));
    if (r->arrays == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "counts of %u ranks", size);
    for (uint32_t i = 0; i < 4; i++) {
        if (*array[i] == NULL)
            continue;
        memcpy(r->arrays + (size_t)i * size, *array[i], size * sizeof(*r->arrays));
        *array[i] = r->arrays + (size_t)i * size;
    }
    return TUTTI_OK;
}

/* Memory for a request. bytes: length of its name with the final 0. */
static tutti__request_t *allocate(size_t bytes, tutti__request_t *spare)
{
    size_t room = TUTTI__MAX(bytes, TUTTI__SHORT_NAME);

    if (spare == NULL || spare->name_room < bytes) {
        free(spare);
        spare = malloc(offsetof(tutti__request_t, name) + room);
        if (spare == NULL)
            return NULL;
        spare->name_room = (uint32_t)room;
    }
    room = spare->name_room;
    memset(spare, 0, offsetof(tutti__request_t, name));
    spare->name_room = (uint32_t)room;
    return spare;
}

tutti_status_t tutti__request_new(uint32_t rank, uint32_t size, const tutti__entry_t *entry,
                                  tutti__request_t *spare, tutti__request_t **ret_request)
{
    size_t bytes = entry->name != NULL ? strnlen(entry->name, TUTTI__NAME_BYTES) : 0;
    tutti__request_t *r;
    tutti_status_t status = TUTTI_OK;

    if ((bytes == 0 && entry->name != NULL) || bytes == TUTTI__NAME_BYTES) {
        free(spare);
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes",
                           TUTTI__NAME_BYTES - 1);
    }
    r = allocate(entry->name != NULL ? bytes + 1 : TUTTI__OWN_NAME, spare);
    if (r == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "request for tensor '%s'",
                           entry->name != NULL ? entry->name : "");
    r->nameless = entry->name == NULL;
    if (r->nameless) {
        strcpy(r->name, "without a name");
    } else {
        memcpy(r->name, entry->name, bytes + 1);
        r->name_bytes = (uint8_t)bytes;
        r->hash = tutti__hash_name(r->name, bytes);
    }
    r->timeout_ms = entry->timeout_ms;
    r->priority = r->nameless ? 0 : entry->priority;
    r->call = entry->call;
    if (TUTTI__UNLIKELY(tutti__call_has_arrays(&r->call, rank)))
        status = copy_arrays(r, size);
    else
        r->call.sendcounts = r->call.senddispls = r->call.recvcounts = r->call.recvdispls = NULL;
    if (status != TUTTI_OK) {
        free(r);
        return status;
    }
    r->bytes = tutti__call_bytes(&r->call, rank, size);
    r->counts_later = entry->counts_later != 0;
    r->callback = entry->callback;
    r->callback_arg = entry->callback_arg;
    r->callback_info = entry->callback_info != 0;
    r->call.has_stream &= r->call.on_device;
    *ret_request = r;
    return TUTTI_OK;
}

/* ---- handles ---- */

tutti__handles_t tutti__requests =
    TUTTI__HANDLES_INIT(TUTTI__HANDLE_REQUEST, "request",
                        "was freed by tutti_wait or a similar call: do not use its handle again");

tutti_status_t tutti__request_wrong(const tutti_request_t *handle)
{
    if (handle == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request is NULL");
    return tutti__handle_wrong(&tutti__requests, handle, "request");
}

void tutti__request_end_handle(tutti__request_t *request)
{
    tutti__handle_end(&tutti__requests, request->handle);
    request->handle = NULL;
}

/* ---- spares ---- */

void tutti__spares_put(tutti__spares_t *spares, tutti__request_t *request)
{
    tutti__request_t *excess = request;

    if (!atomic_exchange_explicit(&spares->busy, 1, memory_order_acquire)) {
        if (spares->n < TUTTI__SPARE_REQUESTS) {
            request->next = spares->first;
            spares->first = request;
            spares->n++;
            excess = NULL;
        }
        atomic_store_explicit(&spares->busy, 0, memory_order_release);
    }
    free(excess);
}

void tutti__spares_free(tutti__spares_t *spares)
{
    tutti__request_t *spare;

    while ((spare = tutti__spares_take(spares)) != NULL)
        free(spare);
}

/* ---- the end ---- */

void tutti__request_free(tutti__request_t *request)
{
    tutti__engine_t *e = request->engine;

    tutti__request_end_handle(request);
    free(request->arrays);
    free(request->text);
    if (e == NULL) {
        free(request);
        return;
    }
    tutti__spares_put(&e->spares, request);
    tutti__engine_release(e);
}
