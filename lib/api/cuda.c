/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls in CUDA streams. This file does not use CUDA: the streams belong to the communicator's
 * device, and a module implements the functions of the device.
 */
#include "api/arguments.h"
#include "api/blocking.h"
#include "api/call_args.h"
#include "api/comm_state.h"
#include "api/submission.h"

#include "base/status.h"
#include "engine/engine.h"

#include <assert.h>
#include <tutti/cuda.h>

/* Name of the request that a direct call becomes. When the call has returned, the name can be used
   again. */
#define DIRECT_NAME "tutti_cuda_run"

static tutti__dstream_t *stream_of(struct CUstream_st *stream)
{
    return (tutti__dstream_t *)(void *)stream;
}

/* Does the call become a request whose end the stream waits for? Messages do not become requests,
   because they involve two ranks only, and use host memory. Returns the same on all ranks. */
static int is_request(const tutti__comm_t *comm, const tutti__call_t *call)
{
    return comm->conf.shared.stream_wait &&
           tutti__call_collective(call->kind) != TUTTI__COLLECTIVES;
}

static tutti_status_t run_as_request(tutti__comm_t *comm, tutti__call_t *call)
{
    atomic_int *in_stream = &tutti__comm_state(comm)->in_stream;
    tutti__entry_t entry = { .name = DIRECT_NAME };
    tutti_status_t status = tutti__call_check(comm, call, 0, 0);

    if (status == TUTTI_OK)
        status = tutti__device_check_stream(comm, call, call->stream);
    if (status != TUTTI_OK)
        return status;
    /* Check this here: the engine's error would name DIRECT_NAME, which the caller has not
       given. */
    if (atomic_exchange_explicit(in_stream, 1, memory_order_acquire))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "another thread is in a direct call on this communicator");
    entry.call = *call;
    status = tutti__engine_run_queued(comm->engine, &entry);
    assert(atomic_load(in_stream) == 1);
    atomic_store_explicit(in_stream, 0, memory_order_release);
    return status;
}

static tutti_status_t run(tutti__call_t *call, tutti_comm_t *handle, struct CUstream_st *stream)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status != TUTTI_OK)
        return status;
    /* The stream might wait for work that only the callback's thread can do. */
    if (comm->conf.shared.stream_wait && tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "a callback must not make calls in a stream with "
                                                  "TUTTI_STREAM_WAIT=device");
    call->stream = stream_of(stream);
    call->has_stream = 1;
    return is_request(comm, call) ? run_as_request(comm, call)
                                  : tutti__comm_call_in_stream(handle, call);
}

int tutti_cuda_device(const tutti_comm_t *handle)
{
    const tutti__comm_t *comm;

    return tutti__comm_peek(handle, &comm) && comm->device.ops != NULL ? comm->device.device : -1;
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
    tutti__call_t call =
        tutti__reduce_args(TUTTI_CALL_ALLREDUCE, sendbuf, recvbuf, count, dtype, op, 0);

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
    return tutti__engine_wait_queued(request, timeout_ms, stream_of(stream));
}
