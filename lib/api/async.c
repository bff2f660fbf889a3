/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous calls: argument checks; the rest is the engine's. */
#include "api/comm.h"

#include "base/status.h"

static tutti_status_t check_options(const tutti_async_options_t *options)
{
    const unsigned char *bytes = (const unsigned char *)options;

    if (options == NULL)
        return TUTTI_OK;
    if (options->size < sizeof(*options) || options->size > 4096)
        return tutti__fail(TUTTI_ERR_ABI, "options->size is %zu; use TUTTI_ASYNC_OPTIONS_INIT",
                           options->size);
    for (size_t i = sizeof(*options); i < options->size; i++)
        if (bytes[i] != 0)
            return tutti__fail(TUTTI_ERR_ABI,
                               "options has a field that this version of the "
                               "library, %x, does not know",
                               tutti_version());
    return TUTTI_OK;
}

tutti_status_t tutti_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                     size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                     tutti_comm_t *comm, const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    tutti_status_t status = tutti__comm_check_call(comm, sendbuf, recvbuf, count, dtype, op);

    if (status == TUTTI_OK)
        status = check_options(options);
    if (status != TUTTI_OK)
        return status;
    if (name == NULL || ret_request == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is NULL",
                           name == NULL ? "name" : "ret_request");
    return tutti__engine_submit(comm->engine, name, sendbuf, recvbuf, count, dtype, op,
                                ret_request);
}

tutti_status_t tutti_test(tutti_request_t *request, int *ret_done)
{
    if (request == NULL || ret_done == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is NULL",
                           request == NULL ? "request" : "ret_done");
    return tutti__engine_test(request, ret_done);
}

tutti_status_t tutti_wait(tutti_request_t *request, int timeout_ms)
{
    if (request == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request is NULL");
    return tutti__engine_wait(request, timeout_ms);
}
