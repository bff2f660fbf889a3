/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs: calls on device memory, and in streams.
 *
 * All calls of collectives.h and async.h take device memory as they take host memory: their data
 * are there when the call is made, and the result is there when it returns or the request is done.
 * The calls of this header do the same within a stream of work: what they read is read after the
 * work that is in the stream by then.
 *
 * Which device    Each rank has one, for all its communicators, from tutti_init on:
 *                 TUTTI_DEVICE_ID; else the one that the thread which calls tutti_init is using;
 *                 else local rank modulo the number of devices. TUTTI_DEVICE=auto takes one if CUDA
 *                 is in the process by then, TUTTI_DEVICE=cuda always, none never
 * Which memory    All buffers of a call are memory of that device, or none is. Pinned and managed
 *                 memory counts as the host's. All ranks come with device memory, or none does:
 *                 else it is TUTTI_ERR_MISMATCH
 * How             Inside a host by NCCL. An allreduce of several hosts goes between them in pieces,
 *                 while NCCL works on the next ones: through pinned memory, or straight from device
 *                 memory (TUTTI_GPU_DIRECT), or by NCCL altogether (TUTTI_ALGORITHM=
 *                 allreduce:nccl-flat). All else is made in host memory as a whole: other calls of
 *                 several hosts, what NCCL does not serve, and small allreduces of several hosts
 * Streams         The legacy default stream is NULL, as in CUDA. A stream that is being captured
 *                 into a graph is TUTTI_ERR_UNSUPPORTED: ranks could not agree when it is replayed
 * The end         tutti_finalize and tutti_comm_free wait for what is only queued, TUTTI_TIMEOUT
 *                 at most, unless the communicator dies
 * Deadlines       of a call end when it returns. What is queued then has TUTTI_TIMEOUT, and a bit,
 *                 from when this rank's device has come to it: so work that is in one rank's stream
 *                 before it, and lasts longer than on the others by more than that, ends the
 *                 communicator, as does a rank that dies
 * The thread's    device is the same before and after each call
 * Waiting         TUTTI_STREAM_WAIT=device, rank 0's for all, lets streams of jobs on several hosts
 *                 wait on the device where the host has a share: see tutti_cuda_wait. Never tried
 *                 on a GPU. CUDA does not see what such a wait orders: while a stream stands there,
 *                 a call that synchronises the device (cudaFree, cudaMalloc, cudaDeviceSynchronize,
 *                 a kernel's first, lazy load) may keep Tutti's thread from launching what the
 *                 stream waits for. So may a copy to or from the host that is queued there before
 *                 the request is done, as copies know no priorities, most of all with few queues
 *                 (CUDA_DEVICE_MAX_CONNECTIONS; 32 is the most), which also NCCL's own streams
 *                 share with yours. That ends with TUTTI_TIMEOUT, if the driver lets go; the
 *                 default, host, has no such waits
 *
 * Needs no header of CUDA: cudaStream_t is a pointer to a struct CUstream_st. tutti.h does not
 * include this one.
 */
#ifndef TUTTI_CUDA_H
#define TUTTI_CUDA_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * The number of this rank's device, as cudaSetDevice takes it; -1 if it has none, or comm is NULL,
 * was freed, or is no communicator. Any thread. Since 0.1.
 */
TUTTI_API int tutti_cuda_device(const tutti_comm_t *comm);

/*
 * Make a direct call in a stream.
 *
 * call    as for tutti_submit, of any kind; its name and options are NULL
 * stream  of this rank's device
 *
 * Later work in the stream sees the result. Where the whole call is one operation of NCCL, which is
 * so on one host and with nccl-flat, this returns as soon as it is queued; else when the result is
 * there. With TUTTI_STREAM_WAIT=device, on several hosts, a collective is made as a request, named
 * "tutti_cuda_run", and a tutti_cuda_wait for it: all ranks make it in a stream then, or none does,
 * and no callback. Errors as in the direct call of that kind; and TUTTI_ERR_INVALID_ARGUMENT if
 * buffers are host memory. Blocks until the other ranks have come with the same call. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_run(const tutti_call_t *call, tutti_comm_t *comm,
                                        struct CUstream_st *stream);

/*
 * Make a tutti_allreduce in a stream: see tutti_cuda_run.
 *
 * stream  of this rank's device. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                              tutti_dtype_t dtype, tutti_op_t op,
                                              tutti_comm_t *comm, struct CUstream_st *stream);

/*
 * Submit calls whose data are ready when the work that is in `stream` now is done.
 *
 * stream  of this rank's device
 *
 * As tutti_submit; does not wait for the work. When a request is done, its result is there for all
 * streams. Errors as in tutti_submit; TUTTI_ERR_INVALID_ARGUMENT if buffers are host memory.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_submit(const tutti_call_t *calls, size_t ncalls,
                                           tutti_comm_t *comm, struct CUstream_st *stream,
                                           tutti_request_t **ret_request);

/*
 * Wait until a request's work is queued on the device, and order `stream` behind it.
 *
 * request     frees it, as tutti_wait does; may be of any call that tutti_wait takes
 * timeout_ms  as in tutti_wait
 * stream      of this rank's device: later work there sees the result
 *
 * The request's buffers are the caller's again for work in the stream, and its name for any call.
 * Where the host has a share in the work, in whole or between hosts, this returns when the result
 * is there; and so, as tutti_wait, for a request on host memory or with a callback. Any thread.
 *
 * With TUTTI_STREAM_WAIT=device, on several hosts, it returns then as soon as the request has
 * begun: all ranks have come with it, and it is one of the four fused buckets at work. It need not
 * be done, nor need its data be there: the stream waits for it on the device. Not so, but as above,
 * for persistent requests and for operations of tutti_op_create; when 64 are waited for like that
 * in the process; if the stream has the device's highest priority, which is that of Tutti's own;
 * and with an MPI that only some threads may call. Such a request has TUTTI_TIMEOUT, and some
 * seconds, from when its data are there, else the communicator ends; then, too, the stream goes on,
 * behind a result that is not there: the next call says so. A callback must not wait for such a
 * stream.
 *
 * Errors as in tutti_wait. TUTTI_ERR_UNSUPPORTED: the stream is being captured into a graph; this,
 * and any other that is about the stream, leaves the request as it was. What goes wrong on the
 * device after this has returned ends the communicator, so its next call says so. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_cuda_wait(tutti_request_t *request, int timeout_ms,
                                         struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
