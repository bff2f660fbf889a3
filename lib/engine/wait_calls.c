/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that test a request, or wait for one request, or for all or any of several requests.
   wait.c has the code that waits. Any thread. */
#include "engine/waiter.h"

#include "base/forked.h"
#include "base/time.h"
#include "engine/steps.h"

#include <string.h>

/* The status that a call with this timeout returns for a request that is done. If the caller gave a
   timeout, TUTTI_ERR_TIMEOUT means "not yet", so the call never returns it here. */
static tutti_status_t status_of(const tutti__request_t *request, int timeout_ms)
{
    const char *text = request->text != NULL ? request->text : "";

    if (request->status == TUTTI_OK)
        return TUTTI_OK;
    if (request->status == TUTTI_ERR_TIMEOUT && timeout_ms >= 0)
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "the communicator ended at a deadline: %s", text);
    return tutti__fail(request->status, "%s", text);
}

static tutti_status_t check_active(const tutti__request_t *request)
{
    tutti_status_t status = tutti__fork_check(request->engine->generation);

    if (status == TUTTI_OK && !tutti__request_is_active(request))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request '%s' is not active", request->name);
    return status;
}

/* Return the result of a request that is done. If the request is persistent, *ret_stays is 1;
   otherwise it is freed. */
static tutti_status_t take(tutti__request_t *request, int timeout_ms, int *ret_stays)
{
    tutti_status_t status = status_of(request, timeout_ms);

    *ret_stays = request->persistent;
    /* Release: pairs with the exchange in activate, in persistent.c. */
    if (request->persistent)
        atomic_store_explicit(&request->active, 0, memory_order_release);
    else
        tutti__request_free(request);
    return status;
}

/* The request that a handle refers to, if a call may wait for it. */
static inline tutti_status_t find_active(const tutti_request_t *handle,
                                         tutti__request_t **ret_request)
{
    tutti_status_t status = tutti__request_of(handle, ret_request);

    return TUTTI__LIKELY(status == TUTTI_OK) ? check_active(*ret_request) : status;
}

tutti_status_t tutti__engine_test(tutti_request_t *handle, int *ret_done)
{
    tutti__waiter_t w = { .n = 0 };
    tutti__request_t *request;
    tutti__engine_t *e;
    tutti_status_t status = find_active(handle, &request);
    int done;

    if (status != TUTTI_OK)
        return status;
    e = request->engine;
    done = tutti__request_is_done(request);
    if (!done && tutti__engine_enter(e)) {
        w.one = request;
        tutti__wait_look(e, &w);
        tutti__engine_leave(e);
        done = tutti__request_is_done(request);
    }
    *ret_done = done;
    return done ? status_of(request, -1) : TUTTI_OK;
}

/* Wait for one request. A tutti__waiter_t is large, so fill it only if this is necessary. */
static tutti_status_t await(tutti__request_t *request, int timeout_ms)
{
    tutti__waiter_t w;

    if (TUTTI__LIKELY(tutti__request_is_done(request) && !tutti__trace_on()))
        return TUTTI_OK;
    w = (tutti__waiter_t){ .one = request };
    return tutti__wait(request->engine, &w, timeout_ms);
}

tutti_status_t tutti__wait_and_take(tutti__request_t *request, int timeout_ms)
{
    tutti_status_t status = await(request, timeout_ms);
    int stays;

    return status == TUTTI_OK ? take(request, timeout_ms, &stays) : status;
}

tutti_status_t tutti__engine_wait(tutti_request_t *handle, int timeout_ms)
{
    tutti__request_t *request;
    tutti_status_t status = find_active(handle, &request);

    return TUTTI__LIKELY(status == TUTTI_OK) ? tutti__wait_and_take(request, timeout_ms) : status;
}

/* ---- handing over to a stream ---- */

/* Can work in the CUDA stream be ordered behind requests? */
static tutti_status_t check_stream(tutti__engine_t *e, tutti__dstream_t *stream)
{
    const tutti__exec_device_t *device;
    int before, captures;

    if (!tutti__engine_enter(e))
        return TUTTI_OK;
    device = e->env.exec->device;
    before = tutti__device_enter(device);
    captures = device->ops->stream_captures(stream);
    tutti__device_leave(device, before);
    tutti__engine_leave(e);
    return captures ? tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                  "the stream is being captured into a graph, which cannot be "
                                  "ordered behind calls between ranks")
                    : TUTTI_OK;
}

static tutti_status_t hand_over_pending(tutti__engine_t *e, tutti__request_t *request,
                                        tutti__dstream_t *stream, int *ret_gone)
{
    tutti__owned_t *own = tutti__owned(e);
    int found;
    tutti_status_t status;

    if (tutti__watch_has_ended(e->env.watch))
        return TUTTI_OK;
    status = tutti__completion_pass(&own->lanes.completions, request, stream, &found);
    if (found || !tutti__semaphore_suits(request))
        return status;
    return tutti__semaphore_give(&own->semaphores, request, stream, ret_gone);
}

/* Order later work in the stream behind the request. If the request is queued, this function ends
   the request. If the request has begun, but is not queued, this function gives the request to the
   engine, and *ret_gone is 1. If the request has not begun, or no semaphore can be used, this
   function does nothing. */
static tutti_status_t hand_over(tutti__engine_t *e, tutti__request_t *request,
                                tutti__dstream_t *stream, int *ret_gone)
{
    tutti_status_t status = TUTTI_OK;

    /* After the close of an engine all of its requests are done. */
    if (tutti__request_is_done(request) || !tutti__engine_enter(e))
        return TUTTI_OK;
    tutti__token_await(&e->token);
    if (!tutti__request_is_done(request))
        status = hand_over_pending(e, request, stream, ret_gone);
    tutti__engine_yield(e, TUTTI__STEP_BRIEF);
    if (atomic_load(&e->signals.polling))
        tutti__engine_ring_self(e);
    tutti__engine_leave(e);
    return status;
}

/* Wait until the word `enough` is not 0, and hand the request over. *ret_gone: see hand_over. */
static tutti_status_t pass(tutti__request_t *request, const tutti__word_t *enough, int timeout_ms,
                           tutti__dstream_t *stream, int *ret_gone)
{
    tutti__waiter_t w = { .one = request, .enough = enough };
    tutti_status_t status = tutti__wait(request->engine, &w, timeout_ms);

    return status == TUTTI_OK ? hand_over(request->engine, request, stream, ret_gone) : status;
}

/* The rest of a timeout that began at since_ns; 0 and negative values do not change. */
static int left_of(int timeout_ms, uint64_t since_ns)
{
    uint64_t ms = (tutti__now_ns() - since_ns) / 1000000u;

    if (timeout_ms <= 0)
        return timeout_ms;
    return ms < (uint64_t)timeout_ms ? timeout_ms - (int)ms : 0;
}

/* Wait until the request has begun or is queued, and order later work in the stream behind it.
   *ret_gone: see hand_over. If the communicator has died, the wait ends as well, because the
   request is done, or soon will be. */
static tutti_status_t pass_queued(tutti__request_t *request, int timeout_ms,
                                  tutti__dstream_t *stream, int *ret_gone)
{
    uint64_t since_ns = tutti__now_ns();
    tutti__waiter_t w = { .one = request };
    tutti_status_t status = TUTTI_OK;

    if (request->engine->has_semaphores && tutti__semaphore_suits(request))
        status = pass(request, &request->begun, timeout_ms, stream, ret_gone);
    if (status == TUTTI_OK && !*ret_gone)
        status = pass(request, &request->queued, left_of(timeout_ms, since_ns), stream, ret_gone);
    return status == TUTTI_ERR_TIMEOUT ? tutti__wait_not_yet(&w, timeout_ms) : status;
}

tutti_status_t tutti__engine_wait_queued(tutti_request_t *handle, int timeout_ms,
                                         tutti__dstream_t *stream)
{
    tutti__request_t *request;
    tutti_status_t status = find_active(handle, &request);
    int gone = 0;

    if (status != TUTTI_OK)
        return status;
    /* If the request has a callback, wait until the callback has returned: it may need objects that
       the caller frees after this call. */
    if (!request->call.on_device || request->callback != NULL)
        return tutti__wait_and_take(request, timeout_ms);
    status = check_stream(request->engine, stream);
    if (status == TUTTI_OK)
        status = pass_queued(request, timeout_ms, stream, &gone);
    return status == TUTTI_OK && !gone ? tutti__wait_and_take(request, timeout_ms) : status;
}

tutti_status_t tutti__engine_run_queued(tutti__engine_t *e, const tutti__entry_t *entry)
{
    tutti_request_t *handle = NULL;
    tutti__request_t *request;
    tutti_status_t status = tutti__engine_submit(e, entry, 1, &handle);
    int gone = 0;

    if (status == TUTTI_OK)
        status = tutti__request_of(handle, &request);
    if (status != TUTTI_OK)
        return status;
    if (request->call.on_device)
        status = pass_queued(request, -1, entry->call.stream, &gone);
    if (gone)
        return TUTTI_OK;
    /* After an error of the stream the request still runs, so wait for it. */
    if (status != TUTTI_OK) {
        char words[TUTTI__ERROR_BYTES];

        snprintf(words, sizeof(words), "%s", tutti_last_error());
        (void)tutti__wait_and_take(request, -1);
        return tutti__fail(status, "%s", words);
    }
    return tutti__wait_and_take(request, -1);
}

/* ---- several requests ---- */

/* Wait for one entry of a list, unless the entry is NULL or inactive. If its request is freed, the
   entry becomes NULL. limit_ms: the rest of the caller's timeout_ms. */
static tutti_status_t wait_entry(tutti_request_t **entry, int limit_ms, int timeout_ms)
{
    tutti__request_t *request;
    tutti_status_t status;
    int stays;

    if (*entry == NULL)
        return TUTTI_OK;
    status = tutti__request_of(*entry, &request);
    if (status == TUTTI_OK && !tutti__request_is_active(request))
        return TUTTI_OK;
    if (status == TUTTI_OK)
        status = tutti__fork_check(request->engine->generation);
    if (status == TUTTI_OK)
        status = await(request, limit_ms);
    if (status == TUTTI_ERR_TIMEOUT)
        return tutti__wait_not_yet(&(tutti__waiter_t){ .one = request }, timeout_ms);
    if (status != TUTTI_OK)
        return status;
    status = take(request, timeout_ms, &stays);
    if (!stays)
        *entry = NULL;
    return status;
}

tutti_status_t tutti__engine_wait_all(tutti_request_t **requests, size_t nrequests, int timeout_ms)
{
    uint64_t deadline = tutti__now_ns() + (uint64_t)TUTTI__MAX(timeout_ms, 0) * 1000000u;
    tutti_status_t first = TUTTI_OK;
    char text[TUTTI__ERROR_BYTES] = "";

    for (size_t i = 0; i < nrequests; i++) {
        uint64_t now = timeout_ms > 0 ? tutti__now_ns() : 0;
        int left_ms = now < deadline ? (int)((deadline - now + 999999u) / 1000000u) : 0;
        tutti_status_t status =
            wait_entry(&requests[i], timeout_ms > 0 ? left_ms : timeout_ms, timeout_ms);

        if (first == TUTTI_OK && status != TUTTI_OK) {
            first = status;
            snprintf(text, sizeof(text), "%s", tutti_last_error());
        }
    }
    return first == TUTTI_OK ? TUTTI_OK : tutti__fail(first, "%s", text);
}

/* Are all entries of the list valid? *ret_first: the first request that a call may wait for, or
   NULL; *ret_mixed: the entries belong to several communicators. */
static tutti_status_t check_list(tutti_request_t *const *requests, size_t n,
                                 tutti__request_t **ret_first, int *ret_mixed)
{
    *ret_first = NULL;
    *ret_mixed = 0;
    for (size_t i = 0; i < n; i++) {
        tutti__request_t *r;
        tutti_status_t status;

        if (requests[i] == NULL)
            continue;
        status = tutti__request_of(requests[i], &r);
        if (status == TUTTI_OK && !tutti__request_is_active(r))
            continue;
        if (status == TUTTI_OK)
            status = check_active(r);
        if (status != TUTTI_OK)
            return status;
        if (*ret_first == NULL)
            *ret_first = r;
        *ret_mixed |= r->engine != (*ret_first)->engine;
    }
    return TUTTI_OK;
}

tutti_status_t tutti__engine_wait_any(tutti_request_t **requests, size_t nrequests, int timeout_ms,
                                      size_t *ret_index)
{
    tutti__waiter_t w = { .list = requests, .n = nrequests };
    tutti__request_t *first;
    int mixed, stays;
    tutti_status_t status = check_list(requests, nrequests, &first, &mixed);

    if (status != TUTTI_OK)
        return status;
    if (first == NULL) {
        *ret_index = nrequests;
        return TUTTI_OK;
    }
    status = tutti__wait(mixed ? NULL : first->engine, &w, timeout_ms);
    if (status != TUTTI_OK)
        return status;
    *ret_index = w.ready;
    if (w.ready == nrequests)
        return TUTTI_OK;
    status = tutti__request_of(requests[w.ready], &first);
    if (status != TUTTI_OK)
        return status;
    status = take(first, timeout_ms, &stays);
    if (!stays)
        requests[w.ready] = NULL;
    return status;
}

tutti_status_t tutti__engine_recvcounts(tutti_request_t *handle, int timeout_ms, size_t *ret_counts)
{
    tutti__waiter_t w = { .n = 0 };
    tutti__request_t *request;
    tutti_call_kind_t kind;
    tutti_status_t status = find_active(handle, &request);

    if (status != TUTTI_OK)
        return status;
    w.one = request;
    w.enough = &request->counted;
    kind = request->call.kind;
    if (kind != TUTTI_CALL_ALLTOALLV && kind != TUTTI_CALL_ALLGATHERV)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s, request '%s', has no recvcounts",
                           tutti__call_name(kind), request->name);
    if (request->counts_later) {
        status = tutti__wait(request->engine, &w, timeout_ms);
        if (status != TUTTI_OK)
            return status;
        if (!tutti__load_acquire(&request->counted))
            return status_of(request, timeout_ms);
    }
    memcpy(ret_counts, request->call.recvcounts, request->engine->size * sizeof(*ret_counts));
    return TUTTI_OK;
}
