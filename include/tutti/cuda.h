/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory, and in CUDA streams.
 *
 * All calls of collectives.h and async.h take device memory like host memory: the data must be
 * complete before the call, and the result is complete when the call returns or the request is
 * done. The calls of this header work in the order of a CUDA stream: they read their data after the
 * work that is in the stream at the time of the call.
 *
 * Device          Each rank has one device for all its communicators, chosen by tutti_init:
 *                 TUTTI_DEVICE_ID; otherwise the current device of the thread that calls
 *                 tutti_init; otherwise the local rank modulo the number of devices.
 *                 With TUTTI_DEVICE=auto a rank uses a device if its process has loaded CUDA before
 *                 tutti_init; with TUTTI_DEVICE=cuda it always uses one; with TUTTI_DEVICE=none it
 *                 never does
 * Memory          All buffers of a call are in memory of that device, or none is. Pinned and
 *                 managed memory counts as host memory. All ranks pass device memory, or none does:
 *                 otherwise TUTTI_ERR_MISMATCH. Only gatherv, scatterv, alltoallv, tutti_send,
 *                 tutti_recv, tutti_sendrecv and tutti_allgatherv_async accept different kinds of
 *                 memory on different ranks
 * Path            Inside a host, NCCL does the work. An allreduce of several hosts is pipelined:
 *                 while NCCL works on the next pieces, earlier pieces travel between the hosts,
 *                 through pinned memory or directly from device memory (TUTTI_GPU_DIRECT). With the
 *                 algorithm nccl-flat (TUTTI_ALGORITHM), NCCL does the whole allreduce. For small
 *                 allreduces and all other calls of several hosts, and for calls that NCCL does not
 *                 support, the data are copied to host memory, and the call runs there
 * Streams         NULL is the legacy default stream, as in CUDA. A call in a stream that is being
 *                 captured into a graph returns TUTTI_ERR_UNSUPPORTED, because the ranks could not
 *                 agree on the call when the graph is replayed
 * End             tutti_finalize and tutti_comm_free wait for queued work, for at most
 *                 TUTTI_TIMEOUT, unless the communicator dies
 * Deadlines       A call's deadline applies until the call returns. From the time when this rank's
 *                 device reaches the queued work, this work may take TUTTI_TIMEOUT and some
 *                 seconds. If another rank's device reaches the same work later than this limit,
 *                 because of earlier work in its stream, the communicator ends. It also ends if a
 *                 rank dies
 * Current device  No call changes the thread's current device
 * Waiting         With TUTTI_STREAM_WAIT=device (rank 0's setting, for all ranks), the streams of
 *                 jobs on several hosts wait on the device for work of the host: see
 *                 tutti_cuda_wait. This setting has passed only one test on a GPU. CUDA is not told
 *                 which work ends such a wait. While a stream waits, a call that synchronises the
 *                 device (cudaFree, cudaMalloc, cudaDeviceSynchronize, the lazy first load of a
 *                 kernel) may block Tutti's thread before this thread launches the work that ends
 *                 the wait. A copy to or from the host, queued before the request is done, may
 *                 block this work as well, because copies have no priorities. NCCL's streams and
 *                 yours share the device's hardware queues (CUDA_DEVICE_MAX_CONNECTIONS; at most
 *                 32): the fewer queues, the more likely is such a deadlock. It ends after
 *                 TUTTI_TIMEOUT, but only if the blocked call to the driver returns. With
 *                 TUTTI_STREAM_WAIT=host, the default, no stream waits like this
 *
 * This header includes no header of CUDA: cudaStream_t is a pointer to a struct CUstream_st.
 * tutti.h does not include tutti/cuda.h.
 */
#ifndef TUTTI_CUDA_H
#define TUTTI_CUDA_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * The number of this rank's device, as cudaSetDevice takes it. -1 if the rank has no device, or if
 * comm is NULL, was freed, or is not a communicator. Any thread. Since 0.1.
 */
TUTTI_API int tutti_cuda_device(const tutti_comm_t *comm);

/*
 * Make a direct call in a stream.
 *
 * call    as for tutti_submit, of any kind except TUTTI_CALL_BARRIER; its name and options are
 *         NULL
 * stream  of this rank's device
 *
 * Later work in the stream sees the result. Blocks until the other ranks have made the same call.
 * If one NCCL operation does the whole call, the call returns as soon as this operation is queued.
 * This is possible on one host, or with nccl-flat on several hosts. Otherwise the call returns when
 * the result is complete.
 *
 * With TUTTI_STREAM_WAIT=device, on several hosts, a collective becomes a request named
 * "tutti_cuda_run", followed by a tutti_cuda_wait. Then all ranks must make the call in a stream,
 * or none, and a callback must not make it.
 *
 * The call also returns the errors of the direct call of that kind.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  buffers are in host memory; the call is a barrier; or its name or
 *                             options are not NULL
 * TUTTI_ERR_UNSUPPORTED       the communicator has no device; the stream is being captured into a
 *                             graph; or, with TUTTI_STREAM_WAIT=device on several hosts, the caller
 *                             is a callback. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_run(const tutti_call_t *call, tutti_comm_t *comm,
                                        struct CUstream_st *stream);

/*
 * A tutti_allreduce in a stream: see tutti_cuda_run.
 *
 * stream  of this rank's device. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                              tutti_dtype_t dtype, tutti_op_t op,
                                              tutti_comm_t *comm, struct CUstream_st *stream);

/*
 * Submit calls that read their data after the work that is in `stream` now.
 *
 * stream  of this rank's device
 *
 * This call works like tutti_submit, and does not wait for the work in the stream. When a request
 * is done, its result is complete for all streams. The call also returns the errors of
 * tutti_submit.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  buffers are in host memory, or a call is a barrier
 * TUTTI_ERR_UNSUPPORTED       the communicator has no device, or the stream is being captured into
 *                             a graph. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_submit(const tutti_call_t *calls, size_t ncalls,
                                           tutti_comm_t *comm, struct CUstream_st *stream,
                                           tutti_request_t **ret_request);

/*
 * Wait until a request's work is queued on the device, and order `stream` behind it.
 *
 * request     any request that tutti_wait accepts; it is freed, as by tutti_wait
 * timeout_ms  as in tutti_wait
 * stream      of this rank's device: later work there sees the result
 *
 * Afterwards, work in the stream may use the request's buffers, and any call may use the request's
 * name. If the host does the work or a part of it, the call returns when the result is complete.
 * For a request on host memory, or with a callback, the call behaves as tutti_wait. Any thread.
 *
 * With TUTTI_STREAM_WAIT=device, on several hosts, the call returns as soon as the request has
 * begun: all ranks have submitted it, and its fused bucket is in progress (at most four are).
 * Neither its data nor its result need be complete: the stream waits for the result on the device.
 * The deadline of such a request is TUTTI_TIMEOUT and some seconds after its data are complete.
 * If this deadline passes, the communicator ends and the next call returns an error; the
 * stream continues without a valid result. A callback must not wait for such a stream.
 *
 * In these cases TUTTI_STREAM_WAIT=device has no effect: persistent requests; operations of
 * tutti_op_create; 64 pending stream waits in the process; a stream with the device's highest
 * priority, which Tutti's own streams use; an MPI that only some threads may call.
 *
 * Errors as in tutti_wait. TUTTI_ERR_UNSUPPORTED: the stream is being captured into a graph. After
 * this and every other error of the argument `stream`, the request is unchanged. If the device
 * fails after the call has returned, the communicator ends, and its next call returns the error.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_wait(tutti_request_t *request, int timeout_ms,
                                         struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
