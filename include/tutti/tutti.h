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
 * started with `mpirun -np N ./program`. It averages x over all N processes.
 *
 * Where to look
 *     tutti/types.h        statuses, element types, operations
 *     tutti/comm.h         start and end, rank and size, abort
 *     tutti/collectives.h  allreduce, alltoallv, send and receive, ...: they block
 *     tutti/async.h        named tensors in any order from any thread, fused; test and wait
 *     tutti/mem.h          memory that need not be copied
 *     tutti/log.h          the log, in a function of yours
 *     tutti/version.h      numbers and promises
 *     Whichever is included, all are.
 *
 * Parameters of all calls
 *     comm            the communicator whose ranks make the call
 *     sendbuf         what this rank gives
 *     recvbuf         where this rank's result goes
 *     count           elements, not bytes
 *     sendcount       elements that this rank gives, not bytes
 *     recvcount       elements that this rank gets, not bytes
 *     dtype           the type of the elements: tutti_dtype_t
 *     op              how they are reduced: tutti_op_t, or a number from tutti_op_create
 *     root            the rank that sends to all or receives from all; equal on all ranks
 *     dest, source    a rank of `comm`, from 0 on
 *
 * Errors
 *     Every function that can fail returns a tutti_status_t; TUTTI_OK is 0. tutti_strerror() names
 *     the number, tutti_last_error() says what happened in words: which rank, which tensor, why.
 *     Outputs (named ret_...) change only on success. The library never exits, aborts, raises or
 *     handles signals, and prints nothing but its log on stderr (TUTTI_LOG, or log.h).
 *
 *     After TUTTI_ERR_PEER_LOST, TUTTI_ERR_TIMEOUT from a blocking call, TUTTI_ERR_SHUTDOWN from a
 *     direct call, or TUTTI_ERR_TRANSPORT, a communicator is dead: every further call says so at
 *     once, and tutti_finalize works. MPI, if Tutti started it, is then not finalized unless all
 *     peers are alive, so that mpirun reports a failed job.
 *
 *     A peer that leaves (tutti_finalize, tutti_comm_free) need not be the end of it: what all
 *     ranks have agreed on ends well, and direct calls that do not wait for that peer go on, such
 *     as messages between two others; the first that does ends the communicator. All other
 *     asynchronous requests end with TUTTI_ERR_SHUTDOWN, and submitting more answers that at once.
 *
 *     After TUTTI_ERR_MISMATCH it stays usable: it was found on all ranks before anything moved.
 *     With TUTTI_COMPARE=0, direct calls between hosts and messages between two ranks may have
 *     moved data before it is found, and end it.
 *
 * Lifetimes
 *     communicator  tutti_world() from tutti_init to tutti_finalize; others from tutti_comm_split
 *                   or tutti_comm_create to tutti_comm_free
 *     request       from tutti_allreduce_async to the tutti_wait that frees it (async.h); it may
 *                   outlive tutti_finalize
 *     memory        from tutti_mem_alloc to tutti_mem_free or tutti_finalize
 *     your buffers  yours; a direct call uses them while it runs, a request until it is done
 *
 * Handles
 *     A tutti_comm_t * or tutti_request_t * is a number that the library checks, not an address: do
 *     not dereference it. If a communicator or request was freed, every call that takes it answers
 *     TUTTI_ERR_INVALID_ARGUMENT, and tutti_last_error() says so; the same holds for any pointer
 *     that is no handle of the library. Functions that return no status, such as tutti_rank, answer
 *     as for NULL. After tutti_finalize a communicator is no handle any more, even if tutti_init
 *     was called again. (An old handle becomes valid again only after 2^24 requests, or
 *     communicators, in its slot.)
 *
 *     This holds for calls one after another. A program must not free a communicator or request
 *     while another thread is inside a call on it; the library does not detect this error.
 *
 * Threads
 *     Any thread may call any function. One communicator takes one direct call at a time.
 *     tutti_init and tutti_finalize want to be alone. The library has one thread of its own, which
 *     sleeps when nothing is pending, and another one while there is a log callback.
 *
 *     In a process made by fork() all calls on what its parent has made, and tutti_init, answer
 *     TUTTI_ERR_SHUTDOWN, and free nothing. It may call tutti_finalize, which forgets the parent's
 *     world and leaves it in peace, and then tutti_init to find ranks of its own.
 *
 * Structures that begin with `size`
 *     `size` is the sizeof of the header that the program was built with. Later versions add fields
 *     at the end, and 0 is the default of each. So a program runs with a newer library: fields
 *     beyond `size` read as 0. It also runs with an older library, as long as all bytes that this
 *     library does not know are 0. A size that no version had, or another byte there, is
 *     TUTTI_ERR_ABI. All entries of an array have one size.
 *
 * Settings
 *     Environment variables TUTTI_*, read once by tutti_init; TUTTI_HELP=1 prints them all.
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

/* clang-format off: version and types first, the others need them */
#include <tutti/version.h>
#include <tutti/types.h>
#include <tutti/comm.h>
#include <tutti/collectives.h>
#include <tutti/async.h>
#include <tutti/mem.h>
#include <tutti/log.h>
/* clang-format on */

#ifdef __cplusplus
}
#endif

#endif
