/* SPDX-License-Identifier: BSD-3-Clause */
/* Argument checks of asynchronous calls: single calls, submission groups and persistent requests.
   The engine does the rest. */
#include "api/submission.h"

#include "api/arguments.h"

#include "base/grown.h"
#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>

/* ---- options ---- */

/* Sizes by version; the size of a released version never changes. See base/grown.h. */
enum {
    OPTIONS_V0 = 40,
    OPTIONS_V1 = 48,
    OPTIONS_V2 = 56,
    CALL_V0 = 112
};
TUTTI__GROWN_VERSION(tutti_async_options_t, postscale, OPTIONS_V0);
TUTTI__GROWN_VERSION(tutti_async_options_t, timeout_ms, OPTIONS_V1);
TUTTI__GROWN_VERSION(tutti_async_options_t, priority, OPTIONS_V2);
TUTTI__GROWN_TODAY(tutti_async_options_t, OPTIONS_V2);
TUTTI__GROWN_VERSION(tutti_call_t, options, CALL_V0);
TUTTI__GROWN_TODAY(tutti_call_t, CALL_V0);

static const size_t options_sizes[] = { OPTIONS_V0, OPTIONS_V1, OPTIONS_V2 };
static const size_t call_sizes[] = { CALL_V0 };
static const tutti__grown_t options_grown =
    TUTTI__GROWN("options", "TUTTI_ASYNC_OPTIONS_INIT", options_sizes);
static const tutti__grown_t call_grown = TUTTI__GROWN("call", "TUTTI_CALL_INIT", call_sizes);

static tutti_status_t check_options(const tutti_async_options_t *options)
{
    if (options->timeout_ms < 0 || (options->callback_info != 0 && options->callback_info != 1))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options->%s is %d",
                           options->timeout_ms < 0 ? "timeout_ms" : "callback_info",
                           options->timeout_ms < 0 ? options->timeout_ms : options->callback_info);
    if (options->priority < 0 || options->priority > UINT8_MAX)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "options->priority is %d; it is a number from 0 to %d",
                           options->priority, UINT8_MAX);
    return TUTTI_OK;
}

static tutti_status_t read_options(const tutti_async_options_t *user, tutti__entry_t *entry)
{
    tutti__call_t *call = &entry->call;
    tutti_async_options_t options;
    tutti_status_t status;

    call->prescale = call->postscale = 1;
    if (user == NULL)
        return TUTTI_OK;
    status = tutti__grown_read(&options_grown, user, &options);
    if (status == TUTTI_OK)
        status = check_options(&options);
    if (status != TUTTI_OK)
        return status;
    entry->callback = options.callback;
    entry->callback_arg = options.callback_arg;
    entry->callback_info = options.callback_info;
    entry->timeout_ms = (uint32_t)options.timeout_ms;
    entry->priority = (uint8_t)options.priority;
    if (options.prescale != 0)
        call->prescale = options.prescale;
    if (options.postscale != 0)
        call->postscale = options.postscale;
    call->wire = options.wire;
    if ((call->prescale != 1 || call->postscale != 1) && !tutti__call_reduces(call->kind))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "options->prescale and postscale are for reductions, not for %s",
                           tutti__call_name(call->kind));
    return TUTTI_OK;
}

/* ---- one entry ---- */

/* For allgatherv and alltoallv, recvcounts may be NULL: the ranks exchange the counts later. */
static tutti_status_t check_later(const tutti__call_t *call, int *ret_later)
{
    *ret_later = (call->kind == TUTTI_CALL_ALLGATHERV || call->kind == TUTTI_CALL_ALLTOALLV) &&
                 call->recvcounts == NULL;
    if (*ret_later && (call->recvbuf != NULL || call->recvdispls != NULL))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "recvcounts is NULL, but %s is not: pass it to "
                           "tutti_request_receive",
                           call->recvbuf != NULL ? "recvbuf" : "recvdispls");
    return TUTTI_OK;
}

/* May the call have this name, or no name? Calls without a name are matched by their order. */
static tutti_status_t check_name(const tutti__entry_t *entry)
{
    if (entry->name == NULL && entry->call.kind == TUTTI_CALL_SENDRECV)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "name is NULL: a sendrecv needs a name; without one, use a send and a "
                           "receive");
    if (entry->name == NULL && entry->counts_later)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "name is NULL: %s with recvcounts NULL needs a name",
                           tutti__call_name(entry->call.kind));
    if (entry->name != NULL && tutti__engine_owns_name(entry->name))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "the name '%s' is one that the library gives to calls without a name",
                           entry->name);
    return TUTTI_OK;
}

static tutti_status_t check_entry(const tutti__comm_t *comm, tutti__entry_t *entry,
                                  const tutti_async_options_t *options)
{
    tutti_status_t status = read_options(options, entry);

    if (status == TUTTI_OK)
        status = check_later(&entry->call, &entry->counts_later);
    if (status == TUTTI_OK)
        status = check_name(entry);
    if (status != TUTTI_OK)
        return status;
    return tutti__call_check(comm, &entry->call, entry->name != NULL, entry->counts_later);
}

static tutti_status_t check_ret(const void *ret_request)
{
    if (ret_request == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_request is NULL");
    return TUTTI_OK;
}

tutti_status_t tutti__submit_one(tutti_comm_t *handle, const char *name, tutti__call_t *call,
                                 const tutti_async_options_t *options,
                                 tutti_request_t **ret_request)
{
    tutti__entry_t entry = { .name = name, .call = *call };
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status == TUTTI_OK)
        status = check_entry(comm, &entry, options);
    if (status == TUTTI_OK)
        status = check_ret(ret_request);
    if (status != TUTTI_OK)
        return status;
    return tutti__engine_submit(comm->engine, &entry, 1, ret_request);
}

/* ---- calls as structures ---- */

tutti_status_t tutti__read_call(const tutti_call_t *user, tutti__call_t *ret_call)
{
    tutti_call_t read;
    const tutti_call_t *call = &read;
    tutti_status_t status;
    int has_root, is_barrier;

    if (user == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "call is NULL");
    status = tutti__grown_read(&call_grown, user, &read);
    if (status != TUTTI_OK)
        return status;
    if (call->kind < TUTTI_CALL_ALLREDUCE || call->kind > TUTTI_CALL_SENDRECV)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "call->kind %d is not a kind of call",
                           (int)call->kind);
    has_root = tutti__call_has_root(call->kind) || tutti__call_is_message(call->kind);
    is_barrier = call->kind == TUTTI_CALL_BARRIER;
    /* A field that the kind does not have gets a fixed value, because the ranks may have passed
       different values. */
    *ret_call = (tutti__call_t){ .kind = call->kind,
                                 .dtype = is_barrier ? (tutti_dtype_t)0 : call->dtype,
                                 .op = tutti__call_reduces(call->kind) ? call->op : TUTTI_SUM,
                                 .root = has_root ? (uint32_t)call->root : 0,
                                 .source = (uint32_t)call->source,
                                 .sendbuf = call->sendbuf,
                                 .recvbuf = call->recvbuf,
                                 .count = is_barrier ? 0 : call->count,
                                 .recvcount = is_barrier ? 0 : call->recvcount,
                                 .sendcounts = call->sendcounts,
                                 .senddispls = call->senddispls,
                                 .recvcounts = call->recvcounts,
                                 .recvdispls = call->recvdispls,
                                 .prescale = 1,
                                 .postscale = 1 };
    return TUTTI_OK;
}

static tutti_status_t read_entry(tutti__comm_t *comm, const tutti_call_t *call,
                                 const tutti__stream_of_t *in, tutti__entry_t *ret_entry)
{
    tutti_status_t status;

    *ret_entry = (tutti__entry_t){ .name = NULL };
    status = tutti__read_call(call, &ret_entry->call);
    if (status != TUTTI_OK)
        return status;
    ret_entry->name = call->name;
    status = check_entry(comm, ret_entry, call->options);
    if (status == TUTTI_OK && in != NULL)
        status = tutti__device_check_stream(comm, &ret_entry->call, in->stream);
    if (status == TUTTI_OK && in != NULL && ret_entry->call.on_device) {
        ret_entry->call.stream = in->stream;
        ret_entry->call.has_stream = 1;
    }
    return status;
}

/* Find call i of an array. The caller's structures may have another size than this version's, so
   the stride is the size of call 0. If call i has another size than call 0, the stride is unknown:
   set the error, and return NULL. */
static const tutti_call_t *find_call(const tutti_call_t *calls, size_t i)
{
    const tutti_call_t *call =
        (const tutti_call_t *)(const void *)((const char *)calls + i * calls->size);

    if (call->size == calls->size)
        return call;
    tutti__fail(TUTTI_ERR_ABI, "calls[%zu].size is %zu, but calls[0].size is %zu", i, call->size,
                calls->size);
    return NULL;
}

tutti_status_t tutti__submit_all(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *handle,
                                 const tutti__stream_of_t *in, tutti_request_t **ret_request)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);
    tutti__entry_t *entries;

    if (status != TUTTI_OK || ncalls == 0)
        return status;
    if (calls == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "calls is NULL");
    status = check_ret(ret_request);
    if (status != TUTTI_OK)
        return status;
    if (ncalls > UINT32_MAX)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ncalls %zu is too many", ncalls);
    entries = malloc(ncalls * sizeof(*entries));
    if (entries == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu calls", ncalls);
    for (size_t i = 0; status == TUTTI_OK && i < ncalls; i++) {
        const tutti_call_t *call = find_call(calls, i);

        status = call != NULL ? read_entry(comm, call, in, &entries[i]) : TUTTI_ERR_ABI;
    }
    if (status == TUTTI_OK)
        status = tutti__engine_submit(comm->engine, entries, ncalls, ret_request);
    free(entries);
    return status;
}

tutti_status_t tutti_submit(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                            tutti_request_t **ret_request)
{
    return tutti__submit_all(calls, ncalls, comm, NULL, ret_request);
}

tutti_status_t tutti_persistent_create(const tutti_call_t *call, tutti_comm_t *handle,
                                       tutti_request_t **ret_request)
{
    tutti__comm_t *comm;
    tutti__entry_t entry;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status == TUTTI_OK)
        status = read_entry(comm, call, NULL, &entry);
    if (status == TUTTI_OK)
        status = check_ret(ret_request);
    if (status != TUTTI_OK)
        return status;
    return tutti__engine_create(comm->engine, &entry, ret_request);
}

tutti_status_t tutti_join(tutti_comm_t *handle, int *ret_last_rank)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    return status != TUTTI_OK ? status : tutti__engine_join(comm->engine, ret_last_rank);
}
