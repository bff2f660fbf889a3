/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous calls, one by one, in submission groups and persistent: argument checks. The engine
   does the rest. */
#include "api/submit.h"

#include "api/arguments.h"
#include "api/device.h"
#include "api/direct.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>

/* ---- options ---- */

/* Sizes of the structures in the first version of the library. */
#define OPTIONS_FIRST TUTTI__END_OF(tutti_async_options_t, postscale)
#define CALL_FIRST TUTTI__END_OF(tutti_call_t, options)

static tutti_status_t read_options(const tutti_async_options_t *user, tutti__entry_t *entry)
{
    tutti__call_t *call = &entry->call;
    tutti_async_options_t options;
    tutti_status_t status;

    call->prescale = call->postscale = 1;
    if (user == NULL)
        return TUTTI_OK;
    status = tutti__read_structure(&options, sizeof(options), user, user->size, OPTIONS_FIRST,
                                   "options", "TUTTI_ASYNC_OPTIONS_INIT");
    if (status != TUTTI_OK)
        return status;
    if (options.reserved != 0 || (options.callback_info != 0 && options.callback_info != 1))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options->%s is %d",
                           options.reserved != 0 ? "reserved" : "callback_info",
                           options.reserved != 0 ? options.reserved : options.callback_info);
    entry->callback = options.callback;
    entry->callback_arg = options.callback_arg;
    entry->callback_info = options.callback_info;
    if (options.prescale != 0)
        call->prescale = options.prescale;
    if (options.postscale != 0)
        call->postscale = options.postscale;
    if ((call->prescale != 1 || call->postscale != 1) && !tutti__call_reduces(call->kind))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "options->prescale and postscale are for reductions, not for %s",
                           tutti__call_name(call->kind));
    return TUTTI_OK;
}

/* ---- one entry ---- */

/* For allgatherv and alltoallv, recvcounts may be NULL; then it is computed. */
static tutti_status_t check_later(const tutti__call_t *call, int *ret_later)
{
    *ret_later = (call->kind == TUTTI_CALL_ALLGATHERV || call->kind == TUTTI_CALL_ALLTOALLV) &&
                 call->recvcounts == NULL;
    if (*ret_later && (call->recvbuf != NULL || call->recvdispls != NULL))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "recvcounts is NULL, but %s is not: it is given with "
                           "tutti_request_receive",
                           call->recvbuf != NULL ? "recvbuf" : "recvdispls");
    return TUTTI_OK;
}

static tutti_status_t check_entry(const tutti__comm_t *comm, tutti__entry_t *entry,
                                  const tutti_async_options_t *options)
{
    tutti_status_t status;

    if (entry->name == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "name is NULL");
    status = read_options(options, entry);
    if (status == TUTTI_OK)
        status = check_later(&entry->call, &entry->counts_later);
    if (status == TUTTI_OK)
        status = tutti__call_check(comm, &entry->call, entry->counts_later);
    /* Only reductions have an operation. */
    if (!tutti__call_reduces(entry->call.kind))
        entry->call.op = (tutti_op_t)0;
    return status;
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

    if (user == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "call is NULL");
    status = tutti__read_structure(&read, sizeof(read), user, user->size, CALL_FIRST, "call",
                                   "TUTTI_CALL_INIT");
    if (status != TUTTI_OK)
        return status;
    if (call->kind < TUTTI_CALL_ALLREDUCE || call->kind > TUTTI_CALL_SENDRECV)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "call->kind %d is not a kind of call",
                           (int)call->kind);
    *ret_call = (tutti__call_t){
        .kind = call->kind,
        .dtype = call->dtype,
        .op = call->op,
        .root = (uint32_t)call->root,
        .source = (uint32_t)call->source,
        .sendbuf = call->sendbuf,
        .recvbuf = call->recvbuf,
        .count = call->count,
        .recvcount = call->recvcount,
        .sendcounts = call->sendcounts,
        .senddispls = call->senddispls,
        .recvcounts = call->recvcounts,
        .recvdispls = call->recvdispls,
        TUTTI__UNSCALED,
    };
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
        ret_entry->stream = in->stream;
        ret_entry->has_stream = 1;
    }
    return status;
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
    /* The stride is the size of the caller's structures, which may differ from this version's. */
    for (size_t i = 0; status == TUTTI_OK && i < ncalls; i++)
        status = read_entry(
            comm, (const tutti_call_t *)(const void *)((const char *)calls + i * calls->size), in,
            &entries[i]);
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
