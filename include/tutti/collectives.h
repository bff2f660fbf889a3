/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives: they run on the caller's thread and block until done.
 *
 * As in MPI and NCCL, all ranks make the same direct calls in the same order. One communicator
 * takes one direct call at a time; a second thread's call answers TUTTI_ERR_INVALID_ARGUMENT. They
 * mix freely with asynchronous requests (async.h), which have an order of their own.
 *
 * Buffers belong to the caller and are used during the call only. `sendbuf == recvbuf` works in
 * place; other overlaps are errors that the library does not detect. Buffers need no alignment. A
 * call with count 0 does nothing but check the arguments, and needs no peer; its buffers may be
 * NULL. Since it meets nobody, a 0 where others have a count is found at that rank's next call.
 *
 * Common errors: INVALID_ARGUMENT, UNSUPPORTED (type or operation), MISMATCH (a rank came with
 * another call: always found inside a host; between hosts over MPI only lengths are compared, so
 * types of one size, operations and roots are not), PEER_LOST, TIMEOUT (a peer did not come within
 * TUTTI_TIMEOUT; the communicator is dead then), SHUTDOWN.
 */
#ifndef TUTTI_COLLECTIVES_H
#define TUTTI_COLLECTIVES_H

#ifndef TUTTI_H
#error "include <tutti/tutti.h>, not its parts"
#endif

/*
 * Reduce `count` elements over all ranks; every rank gets the result.
 *
 * sendbuf, recvbuf  `count` elements each; equal pointers reduce in place
 * count             elements, not bytes; equal on all ranks
 * op                applied in an order that is the same on all ranks, so the results are equal
 *                   bit by bit on all of them
 *
 * Fastest with memory from tutti_mem_alloc. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                         tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm);

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

#endif
