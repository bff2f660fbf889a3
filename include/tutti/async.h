/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous collectives: named tensors, handed in by any thread in any order.
 *
 * Ranks agree by name which tensors are ready; small ones of a kind are fused and served together.
 * A background thread makes progress while the program computes, and a thread that waits helps.
 *
 * Parameters of all calls here
 *   name           1 to 255 bytes; copied. The same name on all ranks means the same tensor. It may
 *                  be used again as soon as the request is done
 *   options        NULL: defaults; read during the call only
 *   ret_request    to be handed to tutti_wait, tutti_wait_all or tutti_wait_any exactly once, also
 *                  after tutti_finalize. Unchanged if the call fails: there is nothing to wait for
 *                  then. After one of them has freed it, every call returns
 *                  TUTTI_ERR_INVALID_ARGUMENT for it, and for any other pointer that is not a
 *                  request: see "Handles" in tutti.h
 *   request        one asynchronous operation that was started, or a persistent one
 *   requests       [nrequests] entries may be NULL
 *   nrequests      how many entries there are
 *   timeout_ms     milliseconds; 0: look once; < 0: the library's own deadline (TUTTI_TIMEOUT)
 *   other ones     as in the direct call of that name (collectives.h). Buffers are read and written
 *                  until the request is done; do not touch them before. Arrays of counts are copied
 *
 * Any thread may make these calls, in any order, on every rank.
 *
 * Errors that this rank can find are returned at once; so is TUTTI_ERR_SHUTDOWN, once this rank
 * has been told that a rank has left. tutti_test and tutti_wait return errors that need other
 * ranks.
 *
 * Errors of all calls here
 *   TUTTI_ERR_INVALID_ARGUMENT  an argument makes no sense; or the name is pending already
 *   TUTTI_ERR_SHUTDOWN          a rank has left
 *   TUTTI_ERR_MISMATCH          of a request, on all ranks: the collective, type, count, operation
 *                               or root differ; the text names the tensor and two ranks. No recvbuf
 *                               was changed, and the communicator stays usable
 *
 * tutti_send_async, tutti_recv_async and tutti_sendrecv_async meet by name like the others, but
 * concern only the ranks that name each other: a pair, or a ring, is served as soon as all of them
 * have come, and if they do not fit it ends on them alone. If all ranks have come with something of
 * one name, but some with messages that fit to nothing and others with a collective, that is a
 * mismatch on all of them.
 */
#ifndef TUTTI_ASYNC_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_ASYNC_H

/*
 * Told that a request is done, and how it ended. Called once for each start, by the library's
 * thread or one that is inside a Tutti call, never under a lock. The request is still to be waited
 * for; neither tutti_test nor tutti_wait calls it done before this returns. It may run before the
 * call that submits returns: *ret_request is set by then; in a list all entries are.
 *
 * arg  options.callback_arg; with options.callback_info a const tutti_callback_info_t *, which
 *      names the request and lives until the callback returns
 *
 * It may submit and start requests, test them, give them buffers, and wait for what is done. What
 * would wait for others, or end what has called it, is TUTTI_ERR_INVALID_ARGUMENT here: waiting for
 * a request that is not done, tutti_join, tutti_comm_free of any communicator, tutti_finalize.
 * Direct calls are not refused, but while one blocks, nothing else may make progress: better not.
 * Those that need MPI end with TUTTI_ERR_UNSUPPORTED where the calling thread may not use it: the
 * library's, with less than MPI_THREAD_MULTIPLE.
 */
typedef void (*tutti_callback_t)(void *arg, tutti_status_t status);

/* Which request a callback is about: see options.callback_info. Later versions add fields. */
typedef struct {
    size_t size;              /* sizeof(tutti_callback_info_t) of the library */
    tutti_request_t *request; /* as *ret_request; not done yet for tutti_test and tutti_wait */
    const char *name;         /* the tensor's */
    void *arg;                /* options.callback_arg */
} tutti_callback_info_t;

/*
 * Settings of one asynchronous call. Initialise with TUTTI_ASYNC_OPTIONS_INIT; 0 is the default.
 * Later versions add fields at the end; `size` tells the library how many there are.
 */
typedef struct {
    size_t size; /* sizeof(tutti_async_options_t) */
    tutti_callback_t callback;
    void *callback_arg;
    double prescale, postscale; /* reductions of floating point types: see tutti_allreduce_scaled;
                                   0 means 1. Equal on all ranks */
    int callback_info;          /* 1: the callback's arg leads to a tutti_callback_info_t */
    int reserved;               /* 0 */
} tutti_async_options_t;

#define TUTTI_ASYNC_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(tutti_async_options_t), NULL, NULL, 0, 0, 0, 0                                      \
    }

/*
 * Start to reduce `count` elements over all ranks under a name; return at once. See
 * tutti_allreduce, and async.h for the rules of all these calls. Since 0.1.
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
 * recvcounts  [size] equal on all ranks; or NULL (then recvbuf and displs are NULL as well): see
 *             tutti_request_recvcounts. Some ranks may give them and others not. Since 0.1.
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
 * recvcounts  [size] of recvbuf; or NULL (then recvbuf and recvdispls are NULL as well): see
 *             tutti_request_recvcounts. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_alltoallv_async(const char *name, const void *sendbuf,
                                               const size_t *sendcounts, const size_t *senddispls,
                                               void *recvbuf, const size_t *recvcounts,
                                               const size_t *recvdispls, tutti_dtype_t dtype,
                                               tutti_comm_t *comm,
                                               const tutti_async_options_t *options,
                                               tutti_request_t **ret_request);

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

/* Start a barrier under a name: it is done when every rank has submitted it. Since 0.1. */
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

/* ---- several at once, and again and again ---- */

/* Which collective a tutti_call_t is. */
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
 * One call, written down. Initialise with TUTTI_CALL_INIT, then set what the direct function of
 * that name has as parameters; the rest stays 0.
 */
typedef struct {
    size_t size; /* sizeof(tutti_call_t) */
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    int root;                       /* also: dest of a send, source of a receive */
    int source;                     /* SENDRECV */
    const char *name;
    const void *sendbuf;
    void *recvbuf;                  /* BROADCAST: the buffer */
    size_t count;                   /* the direct call's count, sendcount or recvcount */
    size_t recvcount;               /* SENDRECV */
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
 * Submit several calls, all or nothing: if one of them is in error, none is submitted; and none of
 * them is served before all ranks have submitted all of them, so they are fused with each other as
 * far as possible. If they do not fit between ranks, all of them end with TUTTI_ERR_MISMATCH.
 *
 * ncalls       how many calls there are
 * calls        [ncalls] the same names on all ranks, in the same order, messages too; read during
 *              the call only. A list of one call is the same as that call by its own function
 * ret_request  [ncalls] one for each
 *
 * If ranks list the same names in different ways, all these lists end with TUTTI_ERR_MISMATCH. So
 * do calls under these names that other ranks make by themselves, outside of a list, up to 0.1 s
 * after the mismatch was found. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_submit(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                                      tutti_request_t **ret_request);

/*
 * Prepare a call that is to be made many times. Nothing is submitted yet.
 *
 * call         read during this call only
 * ret_request  for tutti_start; free it with tutti_request_free. Local. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_persistent_create(const tutti_call_t *call, tutti_comm_t *comm,
                                                 tutti_request_t **ret_request);

/*
 * Start a persistent request that is not active: as the asynchronous call that it stands for. Then
 * tutti_wait waits for it, but does not free it: it may be started again. Testing, or waiting for,
 * one that is not active is TUTTI_ERR_INVALID_ARGUMENT. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_start(tutti_request_t *request);

/* Free a persistent request that is not active. NULL is fine; a request that was freed already is
   TUTTI_ERR_INVALID_ARGUMENT. Since 0.1. */
TUTTI_API tutti_status_t tutti_request_free(tutti_request_t *request);

/* ---- waiting ---- */

/*
 * Is the request done? Never blocks and never frees.
 *
 * ret_done  1 if done, well or not, else 0
 *
 * Returns the status of a request that is done, TUTTI_OK for one that is not. Any thread, but not
 * at the same time as, or after, tutti_wait on the same request.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: a persistent request that is not active; *ret_done is unchanged.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_test(tutti_request_t *request, int *ret_done);

/*
 * Wait until the request is done, free it, and return how it ended.
 *
 * With timeout_ms < 0 a passed deadline ends the communicator, so that no request is left behind
 * half done: all of them end with TUTTI_ERR_TIMEOUT. The waiting thread does the library's work
 * meanwhile. Any thread; one thread per request.
 *
 * Returns how the request ended. Every answer frees it, except these.
 *
 * TUTTI_ERR_TIMEOUT: with timeout_ms >= 0: not done yet; it stays valid and goes on, so this may be
 *     repeated as long as it says so. One that has ended because the deadline of another call had
 *     passed answers TUTTI_ERR_SHUTDOWN then, which tutti_last_error() explains, and is freed
 * TUTTI_ERR_INVALID_ARGUMENT: in a callback, a request that is not done; or a persistent request
 *     that is not active
 * TUTTI_ERR_SHUTDOWN: in a forked child, for a request of its parent. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait(tutti_request_t *request, int timeout_ms);

/*
 * Wait for all of them; each that is done is freed and its entry set to NULL. NULL entries are
 * skipped. A request that stands in the array twice, or was freed before, is
 * TUTTI_ERR_INVALID_ARGUMENT; such an entry stays as it is.
 *
 * Persistent requests stay in the array, inactive; those that are inactive already are skipped.
 *
 * Returns the first answer that is not TUTTI_OK, in the order of the array, after having waited for
 * the others too; the answers are those of tutti_wait. Whichever it is, what tutti_wait would not
 * have freed is left in the array, or active: TUTTI_ERR_TIMEOUT with timeout_ms >= 0 says that some
 * are, and another error does not say that none is. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait_all(tutti_request_t **requests, size_t nrequests,
                                        int timeout_ms);

/*
 * Wait for any one of them; it is freed and its entry set to NULL. NULL entries are skipped. If an
 * entry is no request, or was freed, this answers TUTTI_ERR_INVALID_ARGUMENT and frees nothing.
 *
 * ret_index  of the request that is done; nrequests if all entries were NULL
 *
 * Of several that are done it is the one that ended first. Persistent requests: see tutti_wait_all.
 * All of one communicator can be slept for; requests of several are looked at every 0.1 ms.
 *
 * Returns how that request ended, as tutti_wait says it; or TUTTI_ERR_TIMEOUT with timeout_ms >= 0:
 * none yet. Whatever leaves all of them in the array leaves *ret_index unchanged. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait_any(tutti_request_t **requests, size_t nrequests,
                                        int timeout_ms, size_t *ret_index);

/*
 * How many elements come from each rank: for the v forms whose recvcounts were NULL. Waits until it
 * is known, with the answers of tutti_wait, but frees nothing: a request that has ended before that
 * says how, and is still to be waited for.
 *
 * ret_counts  [size] elements from each rank
 *
 * Works for every alltoallv and allgatherv request, until it is waited for; others are
 * TUTTI_ERR_INVALID_ARGUMENT. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_request_recvcounts(tutti_request_t *request, int timeout_ms,
                                                  size_t *ret_counts);

/*
 * Give a request whose recvcounts were NULL its buffer, after tutti_request_recvcounts has told how
 * large. Until all ranks have done so it is not done anywhere.
 *
 * recvbuf     see tutti_alltoallv and tutti_allgatherv
 * recvdispls  [size] or NULL
 *
 * TUTTI_ERR_INVALID_ARGUMENT  recvcounts were given, or are not known yet; it has its buffer
 *                             already; or the buffer is none that the direct call would take: then
 *                             the request goes on, and wants another one
 * other errors                how the request has ended meanwhile; it is still to be waited for.
 *                             Since 0.1.
 */
TUTTI_API tutti_status_t tutti_request_receive(tutti_request_t *request, void *recvbuf,
                                               const size_t *recvdispls);

/*
 * This rank has no more data: take part with zeros in what the others still submit, until all ranks
 * have joined. So ranks with different numbers of batches can end a training epoch together.
 *
 * ret_last_rank  the rank that joined last: its parameters are the most recent. May be NULL
 *
 * Collective: every rank joins once for each round. While some have joined, the others may submit
 * allreduces, reduces and reduce_scatters with SUM or AVG (AVG divides by the number of all ranks),
 * barriers, broadcasts, and allgathervs with recvcounts NULL (joined ranks give nothing). All else
 * ends with TUTTI_ERR_UNSUPPORTED on the ranks that submitted it, a broadcast from a joined root
 * too. No request of this rank may be pending, and none can be submitted until this returns
 * (TUTTI_ERR_INVALID_ARGUMENT). Blocks; the deadline counts from the last tensor that was served.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_join(tutti_comm_t *comm, int *ret_last_rank);

#endif
#endif
