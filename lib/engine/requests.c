/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and freeing requests. See request.h. Any thread. */
#include "engine/state.h"

#include "base/constants.h"
#include "base/hash.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The fields from here to `name` are 0 in a new request; see request.h. */
#define CLEARED_FROM offsetof(tutti__request_t, arrays)

size_t tutti__request_sum(const size_t *counts, uint32_t n)
{
    size_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

/* Copy the arrays. Reserve space for recvcounts and recvdispls that are not known yet. */
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

/* The key of a request in the spares. A call without a name uses the address of recvbuf, which
   usually finds the memory of the same call in the previous step. */
static uint64_t key_of(const tutti__call_t *call, int nameless, uint64_t hash)
{
    return nameless ? tutti__hash_mix(0, (uintptr_t)call->recvbuf) : hash;
}

/* Free a request with its slot, and drop its reference. */
static void discard(tutti__request_t *request)
{
    tutti__engine_t *e = request->engine;

    tutti__handle_end(&tutti__requests, request->handle);
    free(request);
    if (e != NULL)
        tutti__engine_release(e);
}

/* Memory for a request. bytes: length of its name with the final 0. In new memory only hash,
   name_bytes, name_capacity, handle and engine are set. Reused memory has the fields of its
   previous request. */
static tutti__request_t *allocate(size_t bytes, tutti__spares_t *spares, uint64_t key)
{
    tutti__request_t *r = spares != NULL ? tutti__spares_swap(spares, key, NULL) : NULL;
    size_t capacity = TUTTI__MAX(bytes, TUTTI__SHORT_NAME);

    assert(r != TUTTI__SPARES_CLOSED);
    if (TUTTI__LIKELY(r != NULL && r->name_capacity >= bytes))
        return r;
    if (r != NULL)
        discard(r);
    r = malloc(offsetof(tutti__request_t, name) + capacity);
    if (r == NULL)
        return NULL;
    r->hash = 0;
    r->name_bytes = 0;
    r->name_capacity = (uint32_t)capacity;
    r->handle = NULL;
    r->engine = NULL;
    return r;
}

/* Set the name. name NULL: the request has no name. bytes: the length of the name. Returns 1 if the
   previous request in this memory had the same name. */
static int set_name(tutti__request_t *r, const char *name, size_t bytes, uint64_t hash)
{
    if (TUTTI__LIKELY(name != NULL && r->hash == hash && r->name_bytes == bytes && !r->nameless &&
                      memcmp(r->name, name, bytes) == 0))
        return 1;
    r->nameless = name == NULL;
    r->name_bytes = (uint8_t)bytes;
    r->hash = hash;
    r->planned = r->plan_number = r->entered = r->record = 0;
    if (name != NULL)
        memcpy(r->name, name, bytes + 1);
    else
        strcpy(r->name, "without a name");
    return 0;
}

/* Is `call` the request's previous call, perhaps with other buffers? The caller has checked
   that `call` has no arrays. */
static int is_repeated(const tutti__call_t *before, const tutti__call_t *call)
{
    return before->kind == call->kind && before->dtype == call->dtype && before->op == call->op &&
           before->root == call->root && before->source == call->source &&
           before->count == call->count && before->recvcount == call->recvcount &&
           before->prescale == call->prescale && before->postscale == call->postscale &&
           before->wire == call->wire && before->on_device == call->on_device;
}

/* Set the call. was_used 1: r->call is the previous call of the same name. */
static tutti_status_t set_call(tutti__request_t *r, const tutti__call_t *call, int was_used,
                               uint32_t rank, uint32_t size)
{
    int has_arrays = tutti__call_has_arrays(call, rank);
    tutti_status_t status = TUTTI_OK;

    if (TUTTI__LIKELY(was_used && !has_arrays && is_repeated(&r->call, call))) {
        r->call.sendbuf = call->sendbuf;
        r->call.recvbuf = call->recvbuf;
        r->call.stream = call->stream;
        r->call.has_stream = call->has_stream & call->on_device;
        return TUTTI_OK;
    }
    r->entered = 0;
    r->call = *call;
    r->call.has_stream &= call->on_device;
    if (has_arrays)
        status = copy_arrays(r, size);
    else
        r->call.sendcounts = r->call.senddispls = r->call.recvcounts = r->call.recvdispls = NULL;
    r->bytes = status == TUTTI_OK ? tutti__call_bytes(&r->call, rank, size) : 0;
    return status;
}

tutti_status_t tutti__request_new(uint32_t rank, uint32_t size, const tutti__entry_t *entry,
                                  tutti__spares_t *spares, tutti__request_t **ret_request)
{
    const char *name = entry->name;
    size_t bytes = name != NULL ? strnlen(name, TUTTI__NAME_BYTES) : 0;
    uint64_t hash = name != NULL ? tutti__hash_name(name, bytes) : 0;
    tutti__request_t *r;
    tutti_status_t status;
    int was_used;

    if ((bytes == 0 && name != NULL) || bytes == TUTTI__NAME_BYTES)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes",
                           TUTTI__NAME_BYTES - 1);
    r = allocate(name != NULL ? bytes + 1 : TUTTI__OWN_NAME, spares,
                 key_of(&entry->call, name == NULL, hash));
    if (r == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "request for tensor '%s'",
                           name != NULL ? name : "");
    was_used = set_name(r, name, bytes, hash);
    memset((char *)r + CLEARED_FROM, 0, offsetof(tutti__request_t, name) - CLEARED_FROM);
    status = set_call(r, &entry->call, was_used, rank, size);
    if (status != TUTTI_OK) {
        discard(r);
        return status;
    }
    r->timeout_ms = entry->timeout_ms;
    r->priority = r->nameless ? 0 : entry->priority;
    r->counts_later = entry->counts_later != 0;
    r->callback = entry->callback;
    r->callback_arg = entry->callback_arg;
    r->callback_info = entry->callback_info != 0;
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
    tutti__handle_retire(&tutti__requests, request->handle);
}

/* ---- the end ---- */

/* Put an unused request into its place, and discard the request that was there. */
static void put(tutti__spares_t *spares, tutti__request_t *request)
{
    uint64_t key = key_of(&request->call, request->nameless, request->hash);
    tutti__request_t *before = tutti__spares_swap(spares, key, request);

    /* If the place was closed, close it again. Until then, another thread can remove this request
       only by putting its own request into the place. So some request is always in the place, and
       the reference of that request keeps `spares` valid. */
    if (TUTTI__UNLIKELY(before == TUTTI__SPARES_CLOSED))
        before = tutti__spares_swap(spares, key, TUTTI__SPARES_CLOSED);
    if (before != NULL)
        discard(before);
}

void tutti__spares_close(tutti__spares_t *spares)
{
    for (uint32_t i = 0; i < TUTTI__SPARE_REQUESTS; i++) {
        tutti__request_t *request = tutti__spares_swap(spares, i, TUTTI__SPARES_CLOSED);

        if (request != NULL)
            discard(request);
    }
}

void tutti__request_free(tutti__request_t *request)
{
    tutti__request_end_handle(request);
    free(request->arrays);
    free(request->text);
    if (request->engine != NULL)
        put(&request->engine->spares, request);
    else
        discard(request);
}
