/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous collectives on named tensors, from any thread in any order.
 *
 * The ranks agree by name which tensors are ready; small tensors of the same kind are fused into
 * one collective. The tensors of one such collective are called a bucket. A background thread makes
 * progress while the program computes. A thread in tutti_wait makes progress as well.
 *
 * Parameters of all calls here
 *   name           1 to 255 bytes; copied. The same name on all ranks means the same tensor. A name
 *                  may be used again as soon as its request is done. NULL: the call is matched by
 *                  its order, see below
 *   options        NULL: defaults; read during the call only
 *   ret_request    the request. tutti_wait, tutti_wait_all or tutti_wait_any must free it, before
 *                  or after tutti_finalize. If the submitting call fails, there is no request to
 *                  wait for, and *ret_request is unchanged. After the wait has freed the request,
 *                  every call on it returns TUTTI_ERR_INVALID_ARGUMENT: see "Handles" in tutti.h
 *   request        a started asynchronous operation, or a persistent request
 *   requests       [nrequests] entries may be NULL
 *   nrequests      number of entries in `requests`
 *   timeout_ms     milliseconds; 0: do not wait; < 0: the library's own deadline (TUTTI_TIMEOUT)
 *   all others     as in the direct call (collectives.h): for tutti_reduce_async, as in
 *                  tutti_reduce. The library reads and writes the buffers until the request is
 *                  done; do not access them before that. Arrays of counts are copied
 *
 * Any thread may make these calls. Ranks may submit named calls in different orders.
 *
 * The submitting call returns the errors that this rank finds without the other ranks. It also
 * returns TUTTI_ERR_SHUTDOWN if this rank has been told that a rank has left. tutti_test and
 * tutti_wait return the errors that the ranks find together.
 *
 * Plans
 *   If rank 0's program submits the same tensors in three training steps in a row, these tensors
 *   become a plan that all ranks know. Planned tensors need no further agreement: a rank starts a
 *   bucket as soon as this rank has submitted all tensors of the bucket. The results are the same
 *   as without a plan. If a tensor changes or is left out, the plan ends, and the ranks agree on
 *   each tensor again, until equal steps make a new plan. Allreduce, reduce, broadcast,
 *   reduce_scatter and allgather of host memory, and barriers, can be planned. A submission group
 *   (tutti_submit) of such calls is planned as a whole. TUTTI_PLANS=0 turns plans off. The tensors
 *   of a planned bucket are not copied if they are reduced in place and follow each other without
 *   gaps in memory from tutti_mem_alloc.
 *
 * Calls without a name
 *   Calls with name NULL are matched by their order, like direct calls. The n-th collective
 *   without a name on one rank belongs to the n-th such collective on every other rank. Rank a's
 *   n-th send to rank b belongs to rank b's n-th receive from rank a. Calls with names and direct
 *   calls are not counted. If several threads submit calls without a name, the program must fix
 *   their order.
 *
 *   If the communicator has no device, a collective without a name needs no agreement: it starts
 *   when this rank has submitted it and the previous collective without a name is done. These
 *   collectives run one after another, concurrently with all other calls. Their results are those
 *   of direct calls. They are not fused. With a device, the ranks agree on these collectives as on
 *   named ones. On messages (sends and receives) without a name the ranks always agree.
 *
 *   If the ranks' n-th calls without a name differ, these calls end with TUTTI_ERR_MISMATCH on all
 *   ranks, like direct calls, and later calls work. If the submission itself fails, the call is not
 *   counted. A persistent request without a name is counted at each tutti_start. Error texts
 *   identify a call by its number: "call 17 without a name". tutti_sendrecv_async, and calls with
 *   recvcounts NULL, need a name. While a rank has joined (tutti_join), the other ranks must not
 *   make calls without a name. When all ranks have joined, the numbers begin at 1 again.
 *
 * Errors of all calls here
 *   TUTTI_ERR_INVALID_ARGUMENT  an argument is invalid, or a request of this name is pending
 *   TUTTI_ERR_SHUTDOWN          a rank has left
 *   TUTTI_ERR_MISMATCH          a request's status on all ranks: the ranks passed different
 *                               collectives, types, counts, operations or roots. The text names the
 *                               tensor and two ranks. No recvbuf was changed. Later calls work
 *
 * tutti_send_async, tutti_recv_async and tutti_sendrecv_async are also matched by name. They
 * involve only the ranks that pass each other as dest or source. A pair or a ring of such ranks is
 * served as soon as all its ranks have submitted; a mismatch ends only the calls of these ranks. If
 * all ranks have submitted one name, some ranks for messages without a matching peer and other
 * ranks for a collective, all these calls end with TUTTI_ERR_MISMATCH.
 */
#ifndef TUTTI_ASYNC_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_ASYNC_H

/*
 * A function that the library calls when a request is done.
 *
 * arg     options.callback_arg. If options.callback_info is 1: a const tutti_callback_info_t *,
 *         which names the request and is valid until the callback returns
 * status  how the request ended
 *
 * The library calls the function once for each start of a request, on its own thread or on a thread
 * that is inside a Tutti call, and never under a lock of the library. tutti_test and tutti_wait
 * report the request as done only after the callback has returned. The program must still wait for
 * the request. The callback may run before the submitting call returns. *ret_request (of
 * tutti_submit: each entry) is set before the callback runs.
 *
 * A callback may submit, start and test requests, give them buffers, and wait for requests that are
 * done. In a callback, the calls that would wait for other ranks or free a communicator return
 * TUTTI_ERR_INVALID_ARGUMENT: a wait for a request that is not done, tutti_join, tutti_init,
 * tutti_comm_connect, tutti_comm_free of any communicator, and tutti_finalize.
 *
 * Avoid direct calls in a callback. They are allowed, but while a direct call blocks, requests may
 * stop making progress. On the library's thread, a direct call that needs MPI returns
 * TUTTI_ERR_UNSUPPORTED, unless MPI was initialised with MPI_THREAD_MULTIPLE.
 */
typedef void (*tutti_callback_t)(void *arg, tutti_status_t status);

/* The request whose end a callback reports: see options.callback_info. Later versions add
   fields. */
typedef struct {
    size_t size;              /* sizeof(tutti_callback_info_t) of the library */
    tutti_request_t *request; /* as *ret_request; tutti_test does not report it as done yet */
    const char *name;         /* the tensor's name; NULL: the call has none */
    void *arg;                /* options.callback_arg */
} tutti_callback_info_t;

/*
 * Options of an asynchronous call. Initialise with TUTTI_ASYNC_OPTIONS_INIT; 0 is the default of
 * each field. Later versions add fields at the end; `size` tells the library which fields exist.
 *
 * If a request is not done when its own deadline has passed (timeout_ms), the communicator ends, as
 * after the deadline of a wait: all requests of the communicator end with TUTTI_ERR_TIMEOUT. The
 * deadline also applies if no thread waits for the request. Then the library detects the passed
 * deadline within half a second; on a communicator of one rank, in the program's next call that
 * tests, waits or submits. tutti_wait with timeout_ms < 0 uses this deadline instead of the
 * communicator's.
 *
 * With a wire format (the field `wire`), the data of an allreduce, reduce, reduce_scatter or
 * reduce_scatterv of TUTTI_FLOAT32 with TUTTI_SUM or TUTTI_AVG go from one host to another in a
 * narrower type. The sums are computed in float32. The operands of additions between hosts, and the
 * result of the call, are rounded to the narrower type. All ranks get the same bits.
 * docs/performance.md states the bound of the error. If any other call has this option, it returns
 * TUTTI_ERR_INVALID_ARGUMENT. The option has no effect on one host, on device memory, and with a
 * user's schedule (TUTTI_ALGORITHM). Without TUTTI_DETERMINISTIC=strict, the option also has no
 * effect on calls without a name that have at most 4096 bytes. A sum that the type cannot hold
 * becomes infinite (above 65504 in float16), or NaN (above 448 in float8_e4m3).
 *
 * Among the calls that all ranks have submitted and that have not begun, the calls with the highest
 * priority begin first, in a bucket of their own. If ranks give a call different priorities, the
 * highest counts. A call with a priority is not part of a plan: the ranks agree on it each time,
 * and it also overtakes the plan's buckets. The priority of a call without a name is ignored.
 */
typedef struct {
    size_t size; /* sizeof(tutti_async_options_t) */
    tutti_callback_t callback;
    void *callback_arg;
    double prescale, postscale; /* reductions of floating point types: see
                                   tutti_allreduce_scaled; 0 means 1. Equal on all ranks */
    int callback_info;          /* 1: the callback's arg points to a tutti_callback_info_t */
    int timeout_ms;             /* the request's own deadline, in milliseconds from its start; 0:
                                   none, see above */
    tutti_dtype_t wire;         /* the type between hosts, see above: TUTTI_FLOAT32,
                                   TUTTI_BFLOAT16, TUTTI_FLOAT16 or TUTTI_FLOAT8_E4M3; 0: as
                                   TUTTI_WIRE. Equal on all ranks */
    int priority;               /* 0 to 255, see above */
} tutti_async_options_t;

#define TUTTI_ASYNC_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(tutti_async_options_t), NULL, NULL, 0, 0, 0, 0, (tutti_dtype_t)0, 0                 \
    }

/*
 * Start to reduce `count` elements over all ranks, under a name. Returns at once. See
 * tutti_allreduce, and the head of this file for the rules of all these calls. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                               size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                               tutti_comm_t *comm,
                                               const tutti_async_options_t *options,
                                               tutti_request_t **ret_request);

/* See tutti_reduce. Since 0.1. */
TUTTI_API tutti_status_t tutti_reduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                            size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                            int root, tutti_comm_t *comm,
                                            const tutti_async_options_t *options,
                                            tutti_request_t **ret_request);

/* See tutti_broadcast. Since 0.1. */
TUTTI_API tutti_status_t tutti_broadcast_async(const char *name, void *buffer, size_t count,
                                               tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                               const tutti_async_options_t *options,
                                               tutti_request_t **ret_request);

/* See tutti_reduce_scatter. Since 0.1. */
TUTTI_API tutti_status_t tutti_reduce_scatter_async(const char *name, const void *sendbuf,
                                                    void *recvbuf, size_t recvcount,
                                                    tutti_dtype_t dtype, tutti_op_t op,
                                                    tutti_comm_t *comm,
                                                    const tutti_async_options_t *options,
                                                    tutti_request_t **ret_request);

/* See tutti_reduce_scatterv. Since 0.1. */
TUTTI_API tutti_status_t tutti_reduce_scatterv_async(const char *name, const void *sendbuf,
                                                     void *recvbuf, const size_t *recvcounts,
                                                     tutti_dtype_t dtype, tutti_op_t op,
                                                     tutti_comm_t *comm,
                                                     const tutti_async_options_t *options,
                                                     tutti_request_t **ret_request);

/* See tutti_allgather. Since 0.1. */
TUTTI_API tutti_status_t tutti_allgather_async(const char *name, const void *sendbuf, void *recvbuf,
                                               size_t sendcount, tutti_dtype_t dtype,
                                               tutti_comm_t *comm,
                                               const tutti_async_options_t *options,
                                               tutti_request_t **ret_request);

/*
 * Start to gather parts of different lengths on every rank: see tutti_allgatherv.
 *
 * recvcounts  [size] equal on all ranks; or NULL (recvbuf and displs must be NULL as well): see
 *             tutti_request_recvcounts. Some ranks may pass NULL and others counts. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allgatherv_async(const char *name, const void *sendbuf,
                                                size_t sendcount, void *recvbuf,
                                                const size_t *recvcounts, const size_t *displs,
                                                tutti_dtype_t dtype, tutti_comm_t *comm,
                                                const tutti_async_options_t *options,
                                                tutti_request_t **ret_request);

/* See tutti_gather. Since 0.1. */
TUTTI_API tutti_status_t tutti_gather_async(const char *name, const void *sendbuf, void *recvbuf,
                                            size_t sendcount, tutti_dtype_t dtype, int root,
                                            tutti_comm_t *comm,
                                            const tutti_async_options_t *options,
                                            tutti_request_t **ret_request);

/* See tutti_gatherv. Since 0.1. */
TUTTI_API tutti_status_t tutti_gatherv_async(const char *name, const void *sendbuf,
                                             size_t sendcount, void *recvbuf,
                                             const size_t *recvcounts, const size_t *displs,
                                             tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                             const tutti_async_options_t *options,
                                             tutti_request_t **ret_request);

/* See tutti_scatter. Since 0.1. */
TUTTI_API tutti_status_t tutti_scatter_async(const char *name, const void *sendbuf, void *recvbuf,
                                             size_t recvcount, tutti_dtype_t dtype, int root,
                                             tutti_comm_t *comm,
                                             const tutti_async_options_t *options,
                                             tutti_request_t **ret_request);

/* See tutti_scatterv. Since 0.1. */
TUTTI_API tutti_status_t tutti_scatterv_async(const char *name, const void *sendbuf,
                                              const size_t *sendcounts, const size_t *displs,
                                              void *recvbuf, size_t recvcount, tutti_dtype_t dtype,
                                              int root, tutti_comm_t *comm,
                                              const tutti_async_options_t *options,
                                              tutti_request_t **ret_request);

/* See tutti_alltoall. Since 0.1. */
TUTTI_API tutti_status_t tutti_alltoall_async(const char *name, const void *sendbuf, void *recvbuf,
                                              size_t count, tutti_dtype_t dtype, tutti_comm_t *comm,
                                              const tutti_async_options_t *options,
                                              tutti_request_t **ret_request);

/*
 * Start to exchange parts of different lengths between all ranks: see tutti_alltoallv.
 *
 * recvcounts  [size] elements from each rank; or NULL, with recvbuf and recvdispls NULL: see
 *             tutti_request_recvcounts. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_alltoallv_async(
    const char *name, const void *sendbuf, const size_t *sendcounts, const size_t *senddispls,
    void *recvbuf, const size_t *recvcounts, const size_t *recvdispls, tutti_dtype_t dtype,
    tutti_comm_t *comm, const tutti_async_options_t *options, tutti_request_t **ret_request);

/* See tutti_scan. Since 0.1. */
TUTTI_API tutti_status_t tutti_scan_async(const char *name, const void *sendbuf, void *recvbuf,
                                          size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                          tutti_comm_t *comm, const tutti_async_options_t *options,
                                          tutti_request_t **ret_request);

/* See tutti_exscan. Since 0.1. */
TUTTI_API tutti_status_t tutti_exscan_async(const char *name, const void *sendbuf, void *recvbuf,
                                            size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                            tutti_comm_t *comm,
                                            const tutti_async_options_t *options,
                                            tutti_request_t **ret_request);

/* Start a barrier, under a name. It is done when every rank has submitted it. Since 0.1. */
TUTTI_API tutti_status_t tutti_barrier_async(const char *name, tutti_comm_t *comm,
                                             const tutti_async_options_t *options,
                                             tutti_request_t **ret_request);

/* See tutti_send. Since 0.1. */
TUTTI_API tutti_status_t tutti_send_async(const char *name, const void *buffer, size_t count,
                                          tutti_dtype_t dtype, int dest, tutti_comm_t *comm,
                                          const tutti_async_options_t *options,
                                          tutti_request_t **ret_request);

/* See tutti_recv. Since 0.1. */
TUTTI_API tutti_status_t tutti_recv_async(const char *name, void *buffer, size_t count,
                                          tutti_dtype_t dtype, int source, tutti_comm_t *comm,
                                          const tutti_async_options_t *options,
                                          tutti_request_t **ret_request);

/* See tutti_sendrecv. Since 0.1. */
TUTTI_API tutti_status_t tutti_sendrecv_async(const char *name, const void *sendbuf,
                                              size_t sendcount, int dest, void *recvbuf,
                                              size_t recvcount, int source, tutti_dtype_t dtype,
                                              tutti_comm_t *comm,
                                              const tutti_async_options_t *options,
                                              tutti_request_t **ret_request);

/* ---- several calls at once, and repeated calls ---- */

/* The kinds of call that a tutti_call_t can describe. */
typedef enum {
    TUTTI_CALL_ALLREDUCE = 1,
    TUTTI_CALL_REDUCE = 2,
    TUTTI_CALL_BROADCAST = 3,
    TUTTI_CALL_REDUCE_SCATTER = 4,
    TUTTI_CALL_REDUCE_SCATTERV = 5,
    TUTTI_CALL_ALLGATHER = 6,
    TUTTI_CALL_ALLGATHERV = 7,
    TUTTI_CALL_GATHER = 8,
    TUTTI_CALL_GATHERV = 9,
    TUTTI_CALL_SCATTER = 10,
    TUTTI_CALL_SCATTERV = 11,
    TUTTI_CALL_ALLTOALL = 12,
    TUTTI_CALL_ALLTOALLV = 13,
    TUTTI_CALL_SCAN = 14,
    TUTTI_CALL_EXSCAN = 15,
    TUTTI_CALL_BARRIER = 16,
    TUTTI_CALL_SEND = 17,
    TUTTI_CALL_RECV = 18,
    TUTTI_CALL_SENDRECV = 19,
    TUTTI_CALL_FORCE_INT = 0x7fffffff
} tutti_call_kind_t;

/*
 * A call as a structure. Initialise with TUTTI_CALL_INIT. Then set `kind`, `name`, `options`, and
 * the fields that are parameters of the direct function of this kind. All other fields stay 0.
 */
typedef struct {
    size_t size; /* sizeof(tutti_call_t) */
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    int root;   /* SEND: dest, RECV: source, SENDRECV: dest */
    int source; /* SENDRECV */
    const char *name;
    const void *sendbuf;
    void *recvbuf;    /* BROADCAST: the buffer */
    size_t count;     /* the direct call's count, sendcount or recvcount */
    size_t recvcount; /* SENDRECV */
    const size_t *sendcounts, *senddispls;
    const size_t *recvcounts, *recvdispls;
    const tutti_async_options_t *options;
} tutti_call_t;

#define TUTTI_CALL_INIT                                                                            \
    {                                                                                              \
        sizeof(tutti_call_t), (tutti_call_kind_t)0, (tutti_dtype_t)0, (tutti_op_t)0, 0, 0, NULL,   \
            NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL                                         \
    }

/*
 * Submit several calls as one submission group: either all calls are submitted, or none.
 *
 * ncalls       number of entries in `calls`
 * calls        [ncalls] the same names in the same order on all ranks, also for messages; read
 *              during tutti_submit only. A list of one call has the effect of the call's own
 *              function
 * ret_request  [ncalls] one for each call
 *
 * Either all calls of a list have names, or none has. If one call has an error, none is submitted.
 * In all other respects, a list without names has the effect of single calls in this order: the
 * rules below apply only to lists with names.
 *
 * No call is served before all ranks have submitted the whole list, so the calls are fused with
 * each other as far as possible. If one call does not match between the ranks, all calls of the
 * list end with TUTTI_ERR_MISMATCH.
 *
 * If ranks submit the same names in different submission groups, all these groups end with
 * TUTTI_ERR_MISMATCH. A call with one of these names outside a submission group ends with this
 * error as well, if it is submitted at most 0.1 s after the mismatch was found. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_submit(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                                      tutti_request_t **ret_request);

/*
 * Prepare a call that will be made many times. Nothing is submitted yet.
 *
 * call         read during tutti_persistent_create only
 * ret_request  for tutti_start; free it with tutti_request_free. Local. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_persistent_create(const tutti_call_t *call, tutti_comm_t *comm,
                                                 tutti_request_t **ret_request);

/*
 * Start a persistent request that is not active. The effect is that of the asynchronous call for
 * which the request was made. The request is active until a wait for it returns its status.
 *
 * tutti_wait does not free a persistent request, so the request can be started again. If a
 * persistent request is not active, tutti_test and tutti_wait return TUTTI_ERR_INVALID_ARGUMENT.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_start(tutti_request_t *request);

/*
 * Start persistent requests of one communicator, one after another, as tutti_start does. They are
 * not a submission group. If tutti_start_all returns an error, it has started no request. This
 * function is the cheapest way to start many requests.
 *
 * requests  [nrequests]; none is NULL. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_start_all(tutti_request_t *const *requests, size_t nrequests);

/*
 * Change the buffers of a persistent request that is not active, for its next starts. So one
 * persistent request can serve a tensor whose memory changes from step to step: name, type, count
 * and options are checked only once, when the request is made.
 *
 * sendbuf, recvbuf  as in the call for which the request was made, for the same counts; in memory
 *                   of the same kind as before (host or device)
 *
 * On an error the request keeps its buffers. TUTTI_ERR_INVALID_ARGUMENT: buffers that do not fit
 * the call, or an active request. TUTTI_ERR_UNSUPPORTED: a request made with recvcounts NULL, which
 * gets its receive buffer from tutti_request_receive. Local. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_request_set_buffers(tutti_request_t *request, const void *sendbuf,
                                                   void *recvbuf);

/* Free a persistent request that is not active. NULL does nothing. If the request was freed before,
   the call returns TUTTI_ERR_INVALID_ARGUMENT. Since 0.1. */
TUTTI_API tutti_status_t tutti_request_free(tutti_request_t *request);

/* ---- waiting ---- */

/*
 * Is the request done? Never blocks and never frees.
 *
 * ret_done  1 if done, with success or an error; otherwise 0
 *
 * Returns the status of a request that is done; TUTTI_OK if it is not done. Any thread, but not
 * during tutti_wait on the same request, and not after a wait has freed the request.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: a persistent request that is not active; *ret_done is unchanged.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_test(tutti_request_t *request, int *ret_done);

/*
 * Wait until the request is done, free it, and return its status.
 *
 * With timeout_ms < 0, a passed deadline ends the communicator: all requests of the communicator
 * end with TUTTI_ERR_TIMEOUT, so no request stays incomplete. The waiting thread does the library's
 * work while it waits. Any thread, but only one thread per request.
 *
 * If the request has ended because its own deadline or another call's deadline has passed, a wait
 * with timeout_ms >= 0 frees the request and returns TUTTI_ERR_SHUTDOWN: TUTTI_ERR_TIMEOUT would
 * mean that the request is not done. tutti_last_error() then names the cause.
 *
 * Returns the status with which the request ended. The request is freed, except after the errors
 * whose description says "not freed".
 *
 * TUTTI_ERR_TIMEOUT           with timeout_ms >= 0, the request is not done yet. It is not freed
 *                             and continues; the wait may be repeated
 * TUTTI_ERR_INVALID_ARGUMENT  the caller is a callback and the request is not done; or the request
 *                             is persistent and not active. The request is not freed
 * TUTTI_ERR_SHUTDOWN          the caller is a forked child, and its parent process has made the
 *                             request: the request is not freed. Otherwise this is the status of
 *                             the request: a rank has left. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait(tutti_request_t *request, int timeout_ms);

/*
 * Wait for all requests of an array. Each request that is done is freed and its entry set to NULL.
 *
 * NULL entries are skipped. An entry whose request is in the array twice, or was freed before,
 * causes TUTTI_ERR_INVALID_ARGUMENT and stays unchanged. A persistent request that is done becomes
 * inactive and stays in the array. Persistent requests that are inactive already are skipped.
 *
 * An error does not end the wait for the other requests. Returns the first status, in the order of
 * the array, that is not TUTTI_OK. The statuses are those of tutti_wait. If tutti_wait would not
 * free a request (it is not done, or the error is marked "not freed"), the request stays in the
 * array. If it is persistent, it also stays active. TUTTI_ERR_TIMEOUT with timeout_ms >= 0 means
 * that some requests are not done. After another error, this is possible as well. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait_all(tutti_request_t **requests, size_t nrequests,
                                        int timeout_ms);

/*
 * Wait for any one request of an array. The request is freed and its entry set to NULL.
 *
 * ret_index  index of the entry whose request was done; nrequests if no entry has an active request
 *
 * NULL entries are skipped. If an entry is not a request, or was freed, the call returns
 * TUTTI_ERR_INVALID_ARGUMENT and frees nothing. If several requests are done, the call takes the
 * request that ended first. Persistent requests: see tutti_wait_all. If all requests belong to one
 * communicator, the thread can sleep. Requests of several communicators are polled every 0.1 ms.
 *
 * Returns the status of the taken request, as tutti_wait does; or TUTTI_ERR_TIMEOUT with
 * timeout_ms >= 0 if no request is done. If the call returns an error and has taken no request,
 * *ret_index is unchanged. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait_any(tutti_request_t **requests, size_t nrequests,
                                        int timeout_ms, size_t *ret_index);

/*
 * The number of elements from each rank, for an alltoallv or allgatherv with recvcounts NULL.
 *
 * ret_counts  [size] elements from each rank
 *
 * Waits until the counts are known, and frees nothing. The errors are those of tutti_wait. If the
 * request has ended before the counts were known, the call returns the request's status, and the
 * program must still wait for the request.
 *
 * Works for every alltoallv and allgatherv request, until tutti_wait frees it. For other requests
 * the call returns TUTTI_ERR_INVALID_ARGUMENT. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_request_recvcounts(tutti_request_t *request, int timeout_ms,
                                                  size_t *ret_counts);

/*
 * Give the receive buffer to a request whose recvcounts were NULL, after tutti_request_recvcounts.
 *
 * recvbuf     see tutti_alltoallv and tutti_allgatherv
 * recvdispls  [size] or NULL
 *
 * On every rank the request stays pending until all ranks have given their buffers.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  recvcounts were not NULL; the counts are not known yet; the request
 *                             has a buffer already; or the direct call would refuse the buffer:
 *                             then the request continues and needs another buffer
 * other errors                the status with which the request has ended; the program must still
 *                             wait for the request. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_request_receive(tutti_request_t *request, void *recvbuf,
                                               const size_t *recvdispls);

/*
 * Contribute zeros to all further requests until all ranks have joined.
 *
 * ret_last_rank  the rank that joined last: its model is the most recent. May be NULL
 *
 * A rank without further data calls this function, so that ranks with different numbers of batches
 * can end a training epoch together.
 *
 * Collective: every rank joins once before the call returns. While some ranks have joined, the
 * others may submit allreduces, reduces and reduce_scatters with SUM or AVG (AVG divides by the
 * number of all ranks), barriers, broadcasts, and allgathervs with recvcounts NULL (a joined rank
 * contributes no elements). All other calls, and a broadcast whose root has joined, end with
 * TUTTI_ERR_UNSUPPORTED on the ranks that submitted them.
 *
 * This rank must have no pending request, and cannot submit one until tutti_join returns
 * (TUTTI_ERR_INVALID_ARGUMENT). Blocks; the deadline counts from the last completed tensor. If a
 * peer leaves, this rank still contributes to the requests on which all ranks had agreed before.
 * Then tutti_join returns TUTTI_ERR_SHUTDOWN. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_join(tutti_comm_t *comm, int *ret_last_rank);

#endif
#endif
