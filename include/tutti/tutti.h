/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tutti: collective communication for data-parallel training.
 *
 * The smallest program:
 *
 *     tutti_init(NULL);
 *     tutti_allreduce(x, x, n, TUTTI_FLOAT32, TUTTI_AVG, tutti_world());
 *     tutti_finalize();
 *
 * Start it with `mpirun -np N ./program`. It averages x over all N processes.
 *
 * Where to look
 *     tutti/types.h        statuses, element types, operations
 *     tutti/comm.h         start and end, rank and size, abort
 *     tutti/collectives.h  allreduce, alltoallv, send and receive, ...: these calls block
 *     tutti/async.h        named tensors in any order from any thread, fused; test and wait
 *     tutti/mem.h          memory for collectives without a copy
 *     tutti/log.h          a callback for the log
 *     tutti/stats.h        counters: operations, bytes, buckets, times
 *     tutti/record.h       a dump of pending work and of the last events; traces
 *     tutti/version.h      version numbers and compatibility
 *     Each of these headers includes all of them, but not tutti/cuda.h, which has the calls in CUDA
 *     streams.
 *
 * Parameters of all calls
 *     comm            the communicator whose ranks make the call
 *     sendbuf         the data that this rank sends
 *     recvbuf         the memory for this rank's result
 *     count           elements, not bytes
 *     sendcount       elements that this rank sends, not bytes
 *     recvcount       elements that this rank receives, not bytes
 *     dtype           the type of the elements: tutti_dtype_t
 *     op              the reduction: tutti_op_t, or a number from tutti_op_create
 *     root            the rank that sends to all or receives from all; equal on all ranks
 *     dest, source    a rank of `comm`, counted from 0
 *
 * Errors
 *     Every function that can fail returns a tutti_status_t; TUTTI_OK is 0. tutti_strerror() names
 *     the number. tutti_last_error() describes the error: which rank, which tensor, why. Outputs
 *     (named ret_...) change only on success. The library never calls exit or abort, and never
 *     raises or handles signals. It prints only its log, on stderr or to a callback (TUTTI_LOG,
 *     log.h), and the output that TUTTI_HELP, TUTTI_STATS and tutti_dump request.
 *
 *     After TUTTI_ERR_PEER_LOST, TUTTI_ERR_TIMEOUT from a blocking call, TUTTI_ERR_SHUTDOWN from a
 *     direct call, or TUTTI_ERR_TRANSPORT, the communicator is dead: every further call returns an
 *     error at once, and tutti_finalize works. After TUTTI_ERR_NO_MEMORY, TUTTI_ERR_SYSTEM or
 *     TUTTI_ERR_INTERNAL it may be dead: tutti_comm_state reports whether it is. If Tutti has
 *     initialised MPI, it finalizes MPI only if all peers are alive. Otherwise the process exits
 *     without MPI_Finalize, and mpirun reports a failed job.
 *
 *     If a peer leaves (tutti_finalize, tutti_comm_free), the communicator may continue. Requests
 *     on which all ranks agreed before the peer left are still completed. All other requests end
 *     with TUTTI_ERR_SHUTDOWN, and new submissions return this error at once. Direct calls that do
 *     not need the peer, such as messages between two other ranks, still work; the first direct
 *     call that needs the peer ends the communicator. A request whose data are moving also ends the
 *     communicator, if it needs the peer.
 *
 *     After TUTTI_ERR_MISMATCH the communicator stays usable: all ranks have found the mismatch
 *     before any data moved. With TUTTI_COMPARE=0, direct calls between hosts and messages between
 *     two ranks may already have moved data when the mismatch is found; then the mismatch ends the
 *     communicator. The communicator also ends if one rank makes a send or receive and its peer a
 *     collective call (tutti/collectives.h).
 *
 * Lifetimes
 *     communicator  tutti_world() from tutti_init to tutti_finalize; others from tutti_comm_split,
 *                   tutti_comm_create or tutti_comm_connect to tutti_comm_free
 *     request       from tutti_allreduce_async to the tutti_wait that frees it (async.h); it may
 *                   outlive tutti_finalize
 *     memory        from tutti_mem_alloc to tutti_mem_free or the communicator's end;
 *                   from tutti_mem_alloc_local to tutti_mem_free_local;
 *                   from tutti_mem_register to tutti_mem_unregister
 *     your buffers  yours; a direct call uses them while it runs, a request until it is done. One
 *                   exception: after an error over MPI, MPI may still read a buffer that is being
 *                   sent, until the peer has taken the message or has ended. If the process goes on
 *                   without the communicator, do not unmap such a buffer
 *
 * Handles
 *     A tutti_comm_t * or tutti_request_t * is a number that the library checks, not an address: do
 *     not dereference it. If a communicator or request was freed, every call that takes it returns
 *     TUTTI_ERR_INVALID_ARGUMENT, and tutti_last_error() names the reason. The same holds for any
 *     other pointer that is not a handle of the library. Functions that return no status, such as
 *     tutti_rank, return the same as for NULL. tutti_finalize makes the handles of the world and
 *     its groups invalid; another tutti_init does not make them valid again. (A freed handle
 *     becomes valid again only after 2^24 requests, or communicators, in its slot.)
 *
 *     These checks detect a handle that an earlier call has freed. A program must not free a
 *     communicator or request while another thread is inside a call on it; the library does not
 *     detect this error.
 *
 * Threads
 *     Any thread may call any function. A communicator takes one direct call at a time. While a
 *     thread is in tutti_init or tutti_finalize, other threads may only make the calls listed at
 *     tutti_finalize, and calls on communicators from tutti_comm_connect. Each communicator, except
 *     one of a single rank without a device, has a thread of the library's own, which sleeps when
 *     nothing is pending. The library has one more thread while a log callback is set, and one
 *     more while statistics go to a file or a port.
 *
 *     After fork(), in the child: tutti_init, and all calls on objects of the parent, return
 *     TUTTI_ERR_SHUTDOWN and free nothing. If the child calls tutti_finalize, it forgets the
 *     parent's world, which is not disturbed. After that the child may call tutti_init, to join
 *     ranks of its own. This call returns TUTTI_ERR_UNSUPPORTED if these ranks would meet by the
 *     MPI, PMIx or PMI-2 that the parent has used. The child may call tutti_comm_connect at any
 *     time.
 *
 * Structures that begin with `size`
 *     `size` is the structure's sizeof in the header that the program was built with. Later
 *     versions add fields at the end, and 0 is the default of each. So a program runs with a newer
 *     library: fields beyond `size` read as 0. It also runs with an older library, as long as all
 *     bytes that this library does not know are 0. TUTTI_ERR_ABI: no version had this size, or one
 *     of these unknown bytes is not 0. All entries of an array have one size.
 *
 * Settings
 *     Environment variables TUTTI_*, read by tutti_init, tutti_comm_connect and
 *     tutti_unique_id_create; TUTTI_HELP=1 prints all of them.
 */
#ifndef TUTTI_H
#define TUTTI_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off: version and types come first; the others need them */
#include <tutti/version.h>
#include <tutti/types.h>
#include <tutti/comm.h>
#include <tutti/collectives.h>
#include <tutti/async.h>
#include <tutti/mem.h>
#include <tutti/log.h>
#include <tutti/stats.h>
#include <tutti/record.h>
/* clang-format on */

#ifdef __cplusplus
}
#endif

#endif
