/* SPDX-License-Identifier: BSD-3-Clause */
/* Submitting: single calls, submission groups, joining. Persistent requests: persistent.c. */
#include "engine/submit.h"

#include "engine/steps.h"
#include "engine/waiter.h"

#include "base/forked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int tutti__engine_enter(tutti__engine_t *e)
{
    atomic_fetch_add(&e->pending.inside, 1);
    if (!atomic_load(&e->closed))
        return 1;
    atomic_fetch_sub(&e->pending.inside, 1);
    return 0;
}

void tutti__engine_leave(tutti__engine_t *e)
{
    int inside = atomic_fetch_sub(&e->pending.inside, 1);

    assert(inside > 0);
    (void)inside;
}

/* As tutti__pending_push, for a communicator with a device. */
static tutti_status_t push_with_events(tutti__engine_t *e, tutti__request_t **requests, size_t n,
                                       tutti_request_t **ret_handles, int *ret_inside)
{
    tutti_status_t status;

    if (!tutti__engine_enter(e))
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", tutti__watch_closed_text(e->env.watch));
    status = tutti__events_record(&e->events, requests, n);
    if (status == TUTTI_OK)
        status = tutti__pending_push(&e->pending, requests, n, ret_handles, ret_inside);
    for (size_t i = 0; status != TUTTI_OK && i < n; i++)
        tutti__events_put(&e->events, &requests[i]->ready);
    tutti__engine_leave(e);
    return status;
}

/* Tell the engine's thread, after the first request with a deadline, so that it sleeps less. */
static void tell_thread(tutti__engine_t *e)
{
    int untold = TUTTI__DEADLINES_UNTOLD;

    if (atomic_compare_exchange_strong(&e->pending.has_deadlines, &untold, TUTTI__DEADLINES_TOLD))
        tutti__engine_ring_self(e);
}

tutti_status_t tutti__submit_push(tutti__engine_t *e, tutti__request_t **requests, size_t n,
                                  tutti_request_t **ret_handles)
{
    int inside = 0;
    tutti_status_t status =
        TUTTI__LIKELY(e->events.device == NULL)
            ? tutti__pending_push(&e->pending, requests, n, ret_handles, &inside)
            : push_with_events(e, requests, n, ret_handles, &inside);

    /* From here on another thread may end the requests. If `inside` is 0, the program may even have
       freed the communicator already. If `inside` is 1, the close waits for tutti__engine_leave. */
    if (TUTTI__LIKELY(!inside))
        return status;
    if (TUTTI__UNLIKELY(atomic_load_explicit(&e->pending.has_deadlines, memory_order_relaxed) ==
                        TUTTI__DEADLINES_UNTOLD))
        tell_thread(e);
    /* If the engine has a thread, leave larger buckets to this thread, so that the call returns at
       once. */
    tutti__engine_kick(e, e->has_thread ? TUTTI__STEP_BRIEF : TUTTI__STEP_WAITER);
    tutti__engine_leave(e);
    return status;
}

/* Make a request that holds a reference to its engine. */
static tutti_status_t make_bare(tutti__engine_t *e, const tutti__entry_t *entry,
                                tutti__request_t **ret_request)
{
    tutti_status_t status = tutti__request_new(e->rank, e->size, entry, &e->spares, ret_request);

    if (status != TUTTI_OK || TUTTI__LIKELY((*ret_request)->engine == e))
        return status;
    (*ret_request)->engine = e;
    atomic_fetch_add(&e->refs, 1);
    return TUTTI_OK;
}

tutti_status_t tutti__submit_make(tutti__engine_t *e, const tutti__entry_t *entry,
                                  tutti__request_t **ret_request)
{
    tutti__request_t *request;
    tutti_status_t status = make_bare(e, entry, &request);
    void *handle;

    if (status != TUTTI_OK)
        return status;
    if (TUTTI__LIKELY(request->handle != NULL))
        handle = tutti__handle_renew(&tutti__requests, request->handle);
    else
        status = tutti__handle_make(&tutti__requests, request, &handle);
    if (TUTTI__UNLIKELY(status != TUTTI_OK)) {
        tutti__request_free(request);
        return status;
    }
    request->handle = handle;
    *ret_request = request;
    return TUTTI_OK;
}

tutti_status_t tutti__submit_find(const tutti_request_t *handle, tutti__request_t **ret_request)
{
    tutti_status_t status = tutti__request_of(handle, ret_request);

    return status == TUTTI_OK ? tutti__fork_check((*ret_request)->engine->generation) : status;
}

/* Names identify a submission group, so all of its calls must have names, or none of them. */
static tutti_status_t check_names(const tutti__entry_t *entries, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if ((entries[i].name == NULL) != (entries[0].name == NULL))
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "calls[%zu] has %s name, but calls[0] has %s: all calls of a list "
                               "have names, or none has",
                               i, entries[i].name == NULL ? "no" : "a",
                               entries[0].name == NULL ? "none" : "one");
    return TUTTI_OK;
}

static tutti_status_t submit_group(tutti__engine_t *e, const tutti__entry_t *entries, size_t n,
                                   tutti_request_t **ret_requests)
{
    tutti__request_t **requests = calloc(n, sizeof(tutti__request_t *));
    tutti_status_t status = check_names(entries, n);
    size_t made = 0;

    if (requests == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu requests", n);
    for (; status == TUTTI_OK && made < n; made += status == TUTTI_OK)
        status = tutti__submit_make(e, &entries[made], &requests[made]);
    for (size_t i = 0; status == TUTTI_OK && n > 1 && i < n; i++)
        requests[i]->group.size = (uint32_t)n;
    if (status == TUTTI_OK)
        status = tutti__submit_push(e, requests, n, ret_requests);
    for (size_t i = 0; status != TUTTI_OK && i < made; i++)
        tutti__request_free(requests[i]);
    free(requests);
    return status;
}

tutti_status_t tutti__engine_submit(tutti__engine_t *e, const tutti__entry_t *entries,
                                    size_t nentries, tutti_request_t **ret_requests)
{
    tutti__request_t *request;
    tutti_status_t status = tutti__watch_alive(e->env.watch);

    if (status != TUTTI_OK)
        return status;
    if (nentries > 1)
        return submit_group(e, entries, nentries, ret_requests);
    status = tutti__submit_make(e, entries, &request);
    if (status != TUTTI_OK)
        return status;
    status = tutti__submit_push(e, &request, 1, ret_requests);
    if (status != TUTTI_OK)
        tutti__request_free(request);
    return status;
}

/* ---- the second phase, and joining ---- */

static tutti_status_t has_buffer(const tutti__request_t *r)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request '%s' has its buffer already", r->name);
}

/* Does the request have its counts, but no buffer? */
static tutti_status_t may_receive(const tutti__request_t *r)
{
    uint32_t counted = tutti__load_acquire(&r->counted);

    if (!r->counts_later)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "request '%s' was not submitted with recvcounts NULL", r->name);
    if (!tutti__request_is_active(r))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request '%s' is not active", r->name);
    if (counted == 2)
        return has_buffer(r);
    if (tutti__load_acquire(&r->done))
        return tutti__fail(r->status, "%s", r->text != NULL ? r->text : "");
    if (counted == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "the recvcounts of request '%s' are not known yet: see "
                           "tutti_request_recvcounts",
                           r->name);
    return TUTTI_OK;
}

/* Set the receive buffer of a checked call, and queue the request again. Under pending's lock. */
static tutti_status_t give_buffer(tutti__engine_t *e, tutti__request_t *r,
                                  const tutti__call_t *checked)
{
    size_t *displs = r->arrays + 3 * (size_t)e->size;

    if (atomic_load(&r->counted) == 2)
        return has_buffer(r);
    /* The request is ending, but `done` may not be set yet. tutti_wait will report the status. */
    if (!r->known)
        return TUTTI_OK;
    r->call.recvbuf = checked->recvbuf;
    /* If this rank sends nothing, only the receive buffer shows whether the call is on device
       memory. */
    r->call.on_device = checked->on_device;
    if (checked->recvdispls != NULL) {
        memcpy(displs, checked->recvdispls, e->size * sizeof(*displs));
        r->call.recvdispls = displs;
    }
    r->bytes = tutti__request_sum(r->call.recvcounts, e->size) * tutti_dtype_bytes(r->call.dtype);
    tutti__store_release(&r->counted, 2);
    tutti__pending_queue(&e->pending, r);
    return TUTTI_OK;
}

tutti_status_t tutti__engine_receive(tutti_request_t *handle, void *recvbuf,
                                     const size_t *recvdispls)
{
    tutti__request_t *request;
    tutti__engine_t *e;
    tutti__call_t call;
    tutti_status_t status = tutti__submit_find(handle, &request);

    if (status == TUTTI_OK)
        status = may_receive(request);
    if (status != TUTTI_OK)
        return status;
    e = request->engine;
    if (!tutti__engine_enter(e))
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", tutti__watch_closed_text(e->env.watch));
    call = request->call;
    call.recvbuf = recvbuf;
    call.recvdispls = recvdispls;
    status = e->env.check_receive(e->env.comm, &call);
    if (status == TUTTI_OK) {
        tutti__mutex_lock(&e->pending.lock);
        status = give_buffer(e, request, &call);
        tutti__mutex_unlock(&e->pending.lock);
        tutti__engine_kick(e, e->has_thread ? TUTTI__STEP_BRIEF : TUTTI__STEP_WAITER);
    }
    tutti__engine_leave(e);
    return status;
}

tutti_status_t tutti__engine_join(tutti__engine_t *e, int *ret_last_rank)
{
    tutti__entry_t entry = { .name = "tutti_join", .call = { .kind = TUTTI_CALL_BARRIER } };
    tutti__request_t *request;
    tutti_status_t status = tutti__watch_alive(e->env.watch);
    uint32_t last_rank;

    if (status != TUTTI_OK)
        return status;
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "tutti_join inside a callback");
    status = make_bare(e, &entry, &request);
    if (status != TUTTI_OK)
        return status;
    request->joins = 1;
    /* The request must outlive the wait, because last_rank is read after the wait. */
    request->persistent = 1;
    atomic_store(&request->active, 1);
    status = tutti__submit_push(e, &request, 1, NULL);
    if (status == TUTTI_OK)
        status = tutti__wait_and_take(request, -1);
    last_rank = request->last_rank;
    tutti__request_free(request);
    if (status == TUTTI_OK && ret_last_rank != NULL)
        *ret_last_rank = (int)last_rank;
    return status;
}
