/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives: they run on the caller's thread and block until done.
 *
 * As in MPI and NCCL, all ranks make the same direct calls in the same order; tutti_send,
 * tutti_recv and tutti_sendrecv concern the two ranks only that they name. One communicator takes
 * one direct call at a time; a second thread's call answers TUTTI_ERR_INVALID_ARGUMENT. They mix
 * freely with asynchronous requests (async.h), which have an order of their own.
 *
 * Buffers belong to the caller, lie in the host's memory or in that of the rank's GPU (cuda.h), and
 * are used during the call only. In host memory they need no alignment. What works in place is said
 * with each call; a sendbuf and a recvbuf that overlap in another way are
 * TUTTI_ERR_INVALID_ARGUMENT. Where a rank has nothing to give or to get, its buffer may be NULL.
 *
 * A count of 0 is a count like any other: the ranks meet, nothing is moved, and a rank that came
 * with another count gets MISMATCH. Only with TUTTI_COMPARE=0 may such a call return before the
 * others have come.
 *
 * Counts are elements, not bytes, and may exceed 2^31. Counts and displacements in arrays have one
 * entry for each rank; displacements count elements from the buffer's begin, and NULL stands for
 * parts that follow each other without gaps. Arrays are read during the call only.
 *
 * Errors of all calls here
 *   TUTTI_ERR_INVALID_ARGUMENT  an argument makes no sense, such as a root or peer that is no rank,
 *                               or an unknown type, even with count 0; nothing was done, and no
 *                               other rank has been told
 *   TUTTI_ERR_UNSUPPORTED       type and operation do not go together, or TUTTI_ALGORITHM does not
 *                               serve the operation
 *   TUTTI_ERR_MISMATCH          a rank passed another call: no buffer was written, and the next
 *                               call works
 *   TUTTI_ERR_PEER_LOST         a rank has died or called tutti_abort; the communicator is dead
 *   TUTTI_ERR_TIMEOUT           a peer did not come within TUTTI_TIMEOUT; the communicator is dead
 *   TUTTI_ERR_SHUTDOWN          a rank that the call needs has called tutti_finalize or
 *                               tutti_comm_free
 *   TUTTI_ERR_NO_MEMORY         memory, shared memory or its limit is exhausted
 *
 * TUTTI_ERR_MISMATCH of collective calls is found before anything moves: all ranks get it, with
 * words that name two of them and what they came with, no buffer was written, and the next call
 * works. Inside a host that adds nothing to a call. Between hosts the ranks first tell each other
 * kind, type, operation, root, count and factors: an allreduce of 80 bytes before each direct call;
 * for gatherv, scatterv and alltoallv also an alltoall of one number. TUTTI_COMPARE=0 saves that
 * between hosts; then only lengths are compared, on the way, so types of one size, operations
 * and roots are not, calls with no elements on this rank wait for nobody, and the communicator
 * ends. Messages between two ranks are compared by themselves (see tutti_send), but not with
 * collective calls: a rank that is in one while its peer sends waits until TUTTI_TIMEOUT, or the
 * communicator ends with MISMATCH.
 */
#ifndef TUTTI_COLLECTIVES_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_COLLECTIVES_H

/*
 * Reduce `count` elements over all ranks; every rank gets the result.
 *
 * sendbuf, recvbuf  `count` elements each; equal pointers reduce in place
 * count             elements, not bytes; equal on all ranks
 * op                applied in an order that is the same on all ranks, so the results are equal
 *                   bit by bit on all of them. TUTTI_DETERMINISTIC=strict makes them so for any
 *                   size and fusion, too, among calls of one kind: a reduce may round differently
 *
 * Fastest with memory from tutti_mem_alloc. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                         tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm);

/*
 * Reduce and scale: as tutti_allreduce, but each rank's data is multiplied by `prescale` before,
 * and the result by `postscale` after the reduction.
 *
 * dtype                a floating point type; else TUTTI_ERR_UNSUPPORTED. Products are rounded to
 *                      it
 * prescale, postscale  equal on all ranks; 0 means 1, as in tutti_async_options_t. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce_scaled(const void *sendbuf, void *recvbuf, size_t count,
                                                tutti_dtype_t dtype, tutti_op_t op, double prescale,
                                                double postscale, tutti_comm_t *comm);

/*
 * Reduce `count` elements over all ranks; rank `root` gets the result.
 *
 * recvbuf  `count` elements on root, where it may be sendbuf; not used elsewhere. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                      tutti_dtype_t dtype, tutti_op_t op, int root,
                                      tutti_comm_t *comm);

/*
 * Reduce over all ranks; rank r gets part r of the result.
 *
 * sendbuf    size * recvcount elements
 * recvbuf    `recvcount` elements. In place: this rank's own part of sendbuf, at element
 *            rank * recvcount, as in NCCL; or sendbuf itself, as in MPI, which costs a copy
 * recvcount  elements for each rank; equal on all ranks. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_reduce_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                              tutti_dtype_t dtype, tutti_op_t op,
                                              tutti_comm_t *comm);

/*
 * Reduce over all ranks and scatter parts of different lengths: rank r gets part r of the result,
 * which has recvcounts[r] elements.
 *
 * recvcounts  [size] equal on all ranks. The parts follow each other in sendbuf. Since 0.1.
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
 * displs      [size] where each part begins in recvbuf, or NULL; may differ between ranks.
 *             Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                          const size_t *recvcounts, const size_t *displs,
                                          tutti_dtype_t dtype, tutti_comm_t *comm);

/*
 * Gather `sendcount` elements of every rank, in rank order, on rank `root`.
 *
 * recvbuf  on root size * sendcount elements; not used elsewhere. In place, on root: sendbuf points
 *          at root's own part of recvbuf. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_gather(const void *sendbuf, void *recvbuf, size_t sendcount,
                                      tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Gather parts of different lengths on rank `root`.
 *
 * sendcount           on rank r what root has in recvcounts[r]
 * recvcounts, displs  [size] on root, see tutti_allgatherv; not used elsewhere. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                       const size_t *recvcounts, const size_t *displs,
                                       tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Give rank r the r-th `recvcount` elements of rank `root`.
 *
 * sendbuf  on root size * recvcount elements; not used elsewhere. In place, on root: recvbuf points
 *          at root's own part of sendbuf. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                       tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Scatter parts of different lengths from rank `root`.
 *
 * sendcounts, displs  [size] on root: rank r gets sendcounts[r] elements from element displs[r] on;
 *                     not used elsewhere
 * recvcount           on rank r what root has in sendcounts[r]. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_scatterv(const void *sendbuf, const size_t *sendcounts,
                                        const size_t *displs, void *recvbuf, size_t recvcount,
                                        tutti_dtype_t dtype, int root, tutti_comm_t *comm);

/*
 * Every rank gives `count` elements to every rank: part r of sendbuf goes to rank r, and part r of
 * recvbuf comes from rank r.
 *
 * sendbuf, recvbuf  size * count elements each; equal pointers work in place. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_alltoall(const void *sendbuf, void *recvbuf, size_t count,
                                        tutti_dtype_t dtype, tutti_comm_t *comm);

/*
 * Exchange parts of different lengths between all ranks.
 *
 * sendcounts, senddispls  [size] of the parts of sendbuf; displacements may be NULL
 * recvcounts, recvdispls  [size] of recvbuf; recvcounts[r] is what rank r has in sendcounts[rank].
 *                         Equal buffers work in place if counts and displacements are equal, too.
 *                         Since 0.1.
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
 * Reduce over the ranks before this one: rank r gets the result of ranks 0 to r - 1; recvbuf of
 * rank 0 stays as it is.
 *
 * op  not TUTTI_AVG, which answers TUTTI_ERR_UNSUPPORTED here and in tutti_scan. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_exscan(const void *sendbuf, void *recvbuf, size_t count,
                                      tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm);

/*
 * Copy `count` elements from rank `root` to all ranks.
 *
 * buffer  `count` elements; read on root, written elsewhere
 * root    the rank that has the data; equal on all ranks. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_broadcast(void *buffer, size_t count, tutti_dtype_t dtype, int root,
                                         tutti_comm_t *comm);

/*
 * Return only after every rank has called it. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_barrier(tutti_comm_t *comm);

/*
 * Send `count` elements to rank `dest`, which calls tutti_recv or tutti_sendrecv.
 *
 * buffer  `count` elements
 *
 * Waits until the receiver has come, but not until it has received all elements. If ranks send
 * around a circle, or to each other, each of them waits until TUTTI_TIMEOUT: use tutti_sendrecv.
 * Between two ranks messages stay in order; there are no tags. A message of count 0 also needs a
 * receiver that comes.
 *
 * TUTTI_ERR_MISMATCH: the receiver came with another type or count. Both ranks get it, with words
 * that say what each came with; nothing was written, and the next call works.
 *
 * With TUTTI_COMPARE=0, which makes short messages faster, sends may return before the receiver has
 * come. Then only the receiver gets TUTTI_ERR_MISMATCH, and the communicator is dead. Two mistakes
 * are seen late or not at all: between hosts, another type of the same size is not seen; and a
 * message that is too long by whole pieces of TUTTI_CHUNK_BYTES is seen only when the next message
 * comes. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_send(const void *buffer, size_t count, tutti_dtype_t dtype, int dest,
                                    tutti_comm_t *comm);

/*
 * Receive `count` elements from rank `source`. Errors as with tutti_send.
 *
 * buffer  `count` elements. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_recv(void *buffer, size_t count, tutti_dtype_t dtype, int source,
                                    tutti_comm_t *comm);

/*
 * Send to `dest` and receive from `source` at the same time, so that rings and exchanges do not
 * deadlock. The buffers do not overlap. dest and source may be equal, but not this rank. Neither
 * direction waits for the other, and a peer may serve them in two calls.
 *
 * TUTTI_ERR_MISMATCH as with tutti_send. A direction that fits was moved all the same; one that
 * does not was not. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_sendrecv(const void *sendbuf, size_t sendcount, int dest,
                                        void *recvbuf, size_t recvcount, int source,
                                        tutti_dtype_t dtype, tutti_comm_t *comm);

#endif
#endif
