/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent requests. Any thread. */
#include "engine/submit.h"

#include "engine/state.h"

#include <assert.h>
#include <stdlib.h>

tutti_status_t tutti__engine_create(tutti__engine_t *e, const tutti__entry_t *entry,
                                    tutti_request_t **ret_request)
{
    tutti__request_t *request;
    tutti_status_t status = tutti__watch_alive(e->env.watch);

    if (status == TUTTI_OK)
        status = tutti__submit_make(e, entry, &request);
    if (status != TUTTI_OK)
        return status;
    request->persistent = 1;
    *ret_request = request->handle;
    return TUTTI_OK;
}

static tutti_status_t not_persistent(const tutti__request_t *request)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request '%s' is not persistent", request->name);
}

/* Give a persistent request the state that it had after its creation. */
static void reset(tutti__request_t *r)
{
    assert(!r->known && r->semaphore == 0 && r->ready == NULL);
    free(r->text);
    r->text = NULL;
    r->status = TUTTI_OK;
    r->phase = 0;
    r->agreed = r->announced = 0;
    if (r->counts_later) {
        r->call.recvbuf = NULL;
        r->call.recvcounts = r->call.recvdispls = NULL;
        r->bytes = tutti__call_bytes(&r->call, r->engine->rank, r->engine->size);
    }
    /* The lock of the queue publishes these values to other threads. */
    atomic_store_explicit(&r->counted, 0, memory_order_relaxed);
    atomic_store_explicit(&r->begun, 0, memory_order_relaxed);
    atomic_store_explicit(&r->queued, 0, memory_order_relaxed);
    r->completion_ns = 0;
    atomic_store_explicit(&r->done, TUTTI__NOT_DONE, memory_order_relaxed);
}

/* Make an inactive request active and reset it. No other thread can then start the request. */
static tutti_status_t activate(const tutti_request_t *handle, tutti__request_t **ret_request)
{
    tutti__request_t *request;
    tutti_status_t status = tutti__submit_find(handle, &request);
    int inactive = 0;

    if (status != TUTTI_OK)
        return status;
    if (!request->persistent)
        return not_persistent(request);
    /* The watch is not closed before the request is freed. */
    status = tutti__watch_alive(request->engine->env.watch);
    if (status != TUTTI_OK)
        return status;
    if (!atomic_compare_exchange_strong(&request->active, &inactive, 1))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request '%s' is active: wait for it first",
                           request->name);
    reset(request);
    *ret_request = request;
    return TUTTI_OK;
}

tutti_status_t tutti__engine_start(const tutti_request_t *handle)
{
    tutti__request_t *request;
    tutti_status_t status = activate(handle, &request);

    if (status != TUTTI_OK)
        return status;
    status = tutti__submit_push(request->engine, &request, 1, NULL);
    if (status != TUTTI_OK)
        atomic_store(&request->active, 0);
    return status;
}

static tutti_status_t start_list(tutti_request_t *const *handles, size_t n,
                                 tutti__request_t **requests)
{
    tutti_status_t status = TUTTI_OK;
    size_t active = 0;

    while (status == TUTTI_OK && active < n) {
        status = activate(handles[active], &requests[active]);
        if (status != TUTTI_OK)
            break;
        if (requests[active++]->engine != requests[0]->engine)
            status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                                 "requests[%zu] ('%s') is of another communicator than requests[0]",
                                 active - 1, requests[active - 1]->name);
    }
    if (status == TUTTI_OK)
        status = tutti__submit_push(requests[0]->engine, requests, n, NULL);
    for (size_t i = 0; status != TUTTI_OK && i < active; i++)
        atomic_store(&requests[i]->active, 0);
    return status;
}

tutti_status_t tutti__engine_start_all(tutti_request_t *const *handles, size_t n)
{
    tutti__request_t *few[64], **requests = n > 64 ? malloc(n * sizeof(*requests)) : few;
    tutti_status_t status;

    if (n == 0)
        return TUTTI_OK;
    if (requests == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu requests", n);
    status = start_list(handles, n, requests);
    if (requests != few)
        free(requests);
    return status;
}

/* Set the buffers of a request that the caller has made active, so no other thread starts it. */
static tutti_status_t set_buffers(tutti__request_t *request, const void *sendbuf, void *recvbuf)
{
    tutti__engine_t *e = request->engine;
    tutti__call_t call = request->call;
    tutti_status_t status;

    if (request->counts_later)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "request '%s' was made with recvcounts NULL: pass its recvbuf to "
                           "tutti_request_receive",
                           request->name);
    if (!tutti__engine_enter(e))
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", tutti__watch_closed_text(e->env.watch));
    call.sendbuf = sendbuf;
    call.recvbuf = recvbuf;
    status = e->env.check_receive(e->env.comm, &call);
    if (status == TUTTI_OK && call.on_device != request->call.on_device)
        status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                             "request '%s' was made for buffers in %s memory", request->name,
                             call.on_device ? "host" : "device");
    if (status == TUTTI_OK)
        request->call = call;
    tutti__engine_leave(e);
    return status;
}

tutti_status_t tutti__engine_set_buffers(tutti_request_t *handle, const void *sendbuf,
                                         void *recvbuf)
{
    tutti__request_t *request;
    tutti_status_t status = activate(handle, &request);

    if (status != TUTTI_OK)
        return status;
    status = set_buffers(request, sendbuf, recvbuf);
    atomic_store(&request->active, 0);
    return status;
}

tutti_status_t tutti__engine_free(tutti_request_t *handle)
{
    tutti__request_t *request;
    tutti_status_t status = tutti__submit_find(handle, &request);

    if (status != TUTTI_OK)
        return status;
    if (!request->persistent)
        return not_persistent(request);
    if (atomic_load(&request->active))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "request '%s' is active: wait for it before freeing it", request->name);
    tutti__request_free(request);
    return TUTTI_OK;
}
