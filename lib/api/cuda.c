/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls in streams. Nothing here is CUDA's: streams are those of the communicator's device, which a
 * module brings.
 */
#include "api/device.h"
#include "api/direct.h"
#include "api/submit.h"

#include "base/status.h"

#include <tutti/cuda.h>

static tutti__dstream_t *stream_of(struct CUstream_st *stream)
{
    return (tutti__dstream_t *)(void *)stream;
}

static tutti_status_t run(tutti__call_t *call, tutti_comm_t *comm, struct CUstream_st *stream)
{
    call->stream = stream_of(stream);
    call->has_stream = 1;
    return tutti__comm_call_in_stream(comm, call);
}

int tutti_cuda_device(const tutti_comm_t *comm)
{
    return comm == NULL || comm->device.ops == NULL ? -1 : comm->device.device;
}

tutti_status_t tutti_cuda_run(const tutti_call_t *call, tutti_comm_t *comm,
                              struct CUstream_st *stream)
{
    tutti__call_t inside;
    tutti_status_t status = tutti__read_call(call, &inside);

    if (status == TUTTI_OK && (call->name != NULL || call->options != NULL))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "call->%s is not NULL, but a direct call "
                           "has none",
                           call->name != NULL ? "name" : "options");
    return status == TUTTI_OK ? run(&inside, comm, stream) : status;
}

tutti_status_t tutti_cuda_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                    tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm,
                                    struct CUstream_st *stream)
{
    tutti__call_t call = {
        .kind = TUTTI_CALL_ALLREDUCE,
        .dtype = dtype,
        .op = op,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = count,
        TUTTI__UNSCALED,
    };

    return run(&call, comm, stream);
}

tutti_status_t tutti_cuda_submit(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                                 struct CUstream_st *stream, tutti_request_t **ret_request)
{
    const tutti__stream_of_t in = { stream_of(stream) };

    return tutti__submit_all(calls, ncalls, comm, &in, ret_request);
}

tutti_status_t tutti_cuda_wait(tutti_request_t *request, int timeout_ms, struct CUstream_st *stream)
{
    if (request == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request is NULL");
    return tutti__engine_wait_queued(request, timeout_ms, stream_of(stream));
}
