/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives: they run on the caller's thread and block until done.
 *
 * As in MPI and NCCL, all ranks make the same direct calls in the same order; tutti_send,
 * tutti_recv and tutti_sendrecv concern only the ranks that they name. A communicator takes one
 * direct call at a time: a second thread's call returns TUTTI_ERR_INVALID_ARGUMENT. Asynchronous
 * requests (async.h) may be pending meanwhile: their order is independent of direct calls.
 *
 * Buffers belong to the caller, are in host memory or in memory of the rank's GPU (cuda.h), and are
 * used during the call only. In host memory they need no alignment. Each call's comment states how
 * sendbuf and recvbuf may overlap ("in place"). If they overlap in another way, the call returns
 * TUTTI_ERR_INVALID_ARGUMENT. A buffer without elements may be NULL.
 *
 * A count of 0 is valid: the ranks compare their calls, but no data moves. If another rank passes
 * another count, the call returns TUTTI_ERR_MISMATCH. With TUTTI_COMPARE=0, a call with count 0 may
 * return before the other ranks have entered it.
 *
 * Counts are elements, not bytes, and may exceed 2^31. An array of counts or displacements has one
 * entry per rank. Displacements are elements from the beginning of the buffer; NULL means that the
 * parts follow each other without gaps. Arrays are read during the call only.
 *
 * Errors of all calls here
 *   TUTTI_ERR_INVALID_ARGUMENT  an argument is invalid, such as a root or peer that is not a rank,
 *                               or an unknown type, even with count 0; nothing was done, and the
 *                               other ranks have not been told
 *   TUTTI_ERR_UNSUPPORTED       the operation does not support the type, or the algorithm in
 *                               TUTTI_ALGORITHM does not support the operation
 *   TUTTI_ERR_MISMATCH          a rank passed another call: no buffer was written, and the next
 *                               call works
 *   TUTTI_ERR_PEER_LOST         a rank has died or called tutti_abort; the communicator is dead
 *   TUTTI_ERR_TIMEOUT           a peer did not enter the call within TUTTI_TIMEOUT; the
 *                               communicator is dead
 *   TUTTI_ERR_SHUTDOWN          a rank that the call needs has called tutti_finalize or
 *                               tutti_comm_free
 *   TUTTI_ERR_NO_MEMORY         memory, shared memory or its limit is exhausted
 *
 * In collective calls, a mismatch is found before data moves. All ranks get TUTTI_ERR_MISMATCH,
 * tutti_last_error names two ranks and their arguments, no buffer was written, and the next call
 * works. Inside a host this check costs nothing. Between hosts the ranks compare kind, type,
 * operation, root, count and scale factors. The data of a small call travel with the comparison.
 * Other calls first send 16 bytes; gatherv, scatterv and alltoallv also exchange a number per rank.
 *
 * TUTTI_COMPARE=0 omits this check between hosts. Then only lengths are compared, while data move.
 * Another type of the same size, another operation or another root is not found. A call without
 * elements on this rank waits for no other rank. A mismatch ends the communicator.
 *
 * TUTTI_WIRE applies to an allreduce, reduce, reduce_scatter or reduce_scatterv of TUTTI_FLOAT32
 * with TUTTI_SUM or TUTTI_AVG, if the call has more than 4096 bytes (with
 * TUTTI_DETERMINISTIC=strict, any size). The data of such a call go from one host to another in a
 * narrower type, and the result is rounded to this type: see tutti_async_options_t.
 *
 * Messages between two ranks are compared with each other (see tutti_send), but not with collective
 * calls. If a rank sends while its peer is in a collective call, both wait until TUTTI_TIMEOUT, or
 * the communicator ends with TUTTI_ERR_MISMATCH.
 */
#ifndef TUTTI_COLLECTIVES_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_COLLECTIVES_H

/*
 * Reduce `count` elements over all ranks; every rank gets the result.
 *
 * sendbuf, recvbuf  `count` elements each; equal pointers reduce in place
 * count             elements, not bytes; equal on all ranks
 * op                applied in the same order for all ranks, so all ranks get the same bits. With
 *                   TUTTI_DETERMINISTIC=strict, an element's result is also independent of the
 *                   call's size and of fusion. But calls of different kinds may round differently,
 *                   such as tutti_allreduce and tutti_reduce
 *
 * The call is fastest with memory from tutti_mem_alloc. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                         tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm);

/*
 * Reduce with scaling: tutti_allreduce with two factors. Each rank's data is multiplied by
 * `prescale` before the reduction, and the result by `postscale` after it.
 *
 * dtype                a floating point type, otherwise TUTTI_ERR_UNSUPPORTED. Products are rounded
 *                      to this type
 * prescale, postscale  equal on all ranks; 0 means 1, as in tutti_async_options_t. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce_scaled(const void *sendbuf, void *recvbuf, size_t count,
                                                tutti_dtype_t dtype, tutti_op_t op, double prescale,
                                                double postscale, tutti_comm_t *comm);

/*
 * Reduce `count` elements over all ranks; rank `root` gets the result.
 *
 * recvbuf  `count` elements on root, where it may equal sendbuf; not used on other ranks.
 *          Since 0.1.
 */
TUTTI_API tutti_status_t tutti_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                      tutti_dtype_t dtype, tutti_op_t op, int root,
                                      tutti_comm_t *comm);

/*
 * Reduce over all ranks; rank r gets part r of the result.
 *
 * sendbuf    size * recvcount elements
 * recvbuf    `recvcount` elements. In place: either this rank's own part of sendbuf, at element
 *            rank * recvcount, as in NCCL; or sendbuf itself, as in MPI, at the cost of a copy
 * recvcount  elements for each rank; equal on all ranks. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_reduce_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                              tutti_dtype_t dtype, tutti_op_t op,
                                              tutti_comm_t *comm);

/*
 * Reduce over all ranks and scatter parts of different lengths: rank r gets part r of the result,
 * which has recvcounts[r] elements.
 *
 * recvcounts  [size] equal on all ranks. The parts are consecutive in sendbuf. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_reduce_scatterv(const void *sendbuf, void *recvbuf,
                                               const size_t *recvcounts, tutti_dtype_t dtype,
                                               tutti_op_t op, tutti_comm_t *comm);

/*
 * Gather `sendcount` elements of every rank, in rank order, on every rank.
 *
 * sendbuf    `sendcount` elements
 * recvbuf    size * sendcount elements; rank r's part begins at element r * sendcount. In place:
 *            sendbuf points at this rank's own part of recvbuf
 * sendcount  elements from each rank; equal on all ranks. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allgather(const void *sendbuf, void *recvbuf, size_t sendcount,
                                         tutti_dtype_t dtype, tutti_comm_t *comm);

/*
 * Gather parts of different lengths on every rank: recvcounts[r] elements come from rank r.
 *
 * sendbuf     `sendcount` elements. In place: this rank's own part of recvbuf
 * sendcount   equals recvcounts[rank]
 * recvcounts  [size] equal on all ranks
 * displs      [size] the first element of each part in recvbuf, or NULL; may differ between ranks.
 *             Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                          const size_t *recvcounts, const size_t *displs,
                                          tutti_dtype_t dtype, tutti_comm_t *comm);

/*
 * Gather `sendcount` elements of every rank, in rank order, on rank `root`.
 *
 * recvbuf  on root size * sendcount elements; not used on other ranks. In place, on root: sendbuf
 *          points at root's own part of recvbuf. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_gather(const void *sendbuf, void *recvbuf, size_t sendcount,
                                      tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Gather parts of different lengths on rank `root`.
 *
 * sendcount           on rank r equal to root's recvcounts[r]
 * recvcounts, displs  [size] on root, see tutti_allgatherv; not used on other ranks. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                       const size_t *recvcounts, const size_t *displs,
                                       tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Scatter parts of equal length from rank `root`: rank r gets the r-th `recvcount` elements.
 *
 * sendbuf  on root size * recvcount elements; not used on other ranks. In place, on root: recvbuf
 *          points at root's own part of sendbuf. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                       tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Scatter parts of different lengths from rank `root`.
 *
 * sendcounts, displs  [size] on root: rank r gets sendcounts[r] elements from element displs[r] on;
 *                     not used on other ranks
 * recvcount           on rank r equal to root's sendcounts[r]. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_scatterv(const void *sendbuf, const size_t *sendcounts,
                                        const size_t *displs, void *recvbuf, size_t recvcount,
                                        tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Exchange parts of equal length between all ranks: part r of sendbuf goes to rank r, and part r of
 * recvbuf comes from rank r.
 *
 * sendbuf, recvbuf  size * count elements each; equal pointers work in place. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_alltoall(const void *sendbuf, void *recvbuf, size_t count,
                                        tutti_dtype_t dtype, tutti_comm_t *comm);

/*
 * Exchange parts of different lengths between all ranks.
 *
 * sendcounts, senddispls  [size] the parts of sendbuf; senddispls may be NULL
 * recvcounts, recvdispls  [size] the parts of recvbuf; recvdispls may be NULL. This rank's
 *                         recvcounts[r] equals rank r's sendcounts[rank]. In place: sendbuf equals
 *                         recvbuf; for each r, sendcounts[r] equals recvcounts[r], and the
 *                         displacements are equal. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_alltoallv(const void *sendbuf, const size_t *sendcounts,
                                         const size_t *senddispls, void *recvbuf,
                                         const size_t *recvcounts, const size_t *recvdispls,
                                         tutti_dtype_t dtype, tutti_comm_t *comm);

/*
 * Reduce over the ranks up to this one: rank r gets the result of ranks 0 to r.
 *
 * sendbuf, recvbuf  `count` elements each; equal pointers work in place. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_scan(const void *sendbuf, void *recvbuf, size_t count,
                                    tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm);

/*
 * Reduce over the ranks before this one: rank r gets the result of ranks 0 to r - 1. On rank 0,
 * recvbuf is not changed.
 *
 * op  not TUTTI_AVG, for which this call and tutti_scan return TUTTI_ERR_UNSUPPORTED. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_exscan(const void *sendbuf, void *recvbuf, size_t count,
                                      tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm);

/*
 * Copy `count` elements from rank `root` to all ranks.
 *
 * buffer  `count` elements; read on root, written on the other ranks
 * root    the rank that has the data; equal on all ranks. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_broadcast(void *buffer, size_t count, tutti_dtype_t dtype, int root,
                                         tutti_comm_t *comm);

/*
 * Wait until all ranks have called tutti_barrier. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_barrier(tutti_comm_t *comm);

/*
 * Send `count` elements to rank `dest`, which calls tutti_recv or tutti_sendrecv.
 *
 * buffer  `count` elements
 *
 * Waits until the receiver has entered its call, but not until it has received all elements. If two
 * ranks send to each other, or several ranks in a circle, each of them waits until TUTTI_TIMEOUT:
 * use tutti_sendrecv instead. Messages between two ranks stay in order; there are no tags. A
 * message of count 0 needs a receiver as well.
 *
 * TUTTI_ERR_MISMATCH: the receiver passed another type or count. Both ranks get this error, and
 * tutti_last_error names the arguments of both. Nothing was written, and the next call works.
 *
 * TUTTI_COMPARE=0 makes short messages faster: a send may return before the receiver has entered
 * its call. In this case only the receiver gets a mismatch error, and the communicator is dead.
 * Between hosts, another type of the same size is not found. If a message is too long by whole
 * pieces of TUTTI_CHUNK_BYTES, the mismatch is found only with the next message. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_send(const void *buffer, size_t count, tutti_dtype_t dtype, int dest,
                                    tutti_comm_t *comm);

/*
 * Receive `count` elements from rank `source`. Errors as in tutti_send.
 *
 * buffer  `count` elements. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_recv(void *buffer, size_t count, tutti_dtype_t dtype, int source,
                                    tutti_comm_t *comm);

/*
 * Send to `dest` and receive from `source` at the same time, so that rings and exchanges do not
 * deadlock. The buffers must not overlap. dest and source may be equal, but must not be this rank.
 * Neither direction waits for the other, so a peer may instead call tutti_send and tutti_recv, in
 * either order.
 *
 * TUTTI_ERR_MISMATCH: as in tutti_send, but each direction is checked alone. A direction that
 * matches has moved its data; a direction that does not match has moved nothing. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_sendrecv(const void *sendbuf, size_t sendcount, int dest,
                                        void *recvbuf, size_t recvcount, int source,
                                        tutti_dtype_t dtype, tutti_comm_t *comm);

#endif
#endif
