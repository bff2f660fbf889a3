/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous collectives: named tensors, handed in by any thread in any order.
 *
 * Ranks agree by name which tensors are ready; small ones are fused and reduced together. A
 * background thread makes progress while the program computes, and a thread in tutti_wait helps.
 */
#ifndef TUTTI_ASYNC_H
#define TUTTI_ASYNC_H

#ifndef TUTTI_H
#error "include <tutti/tutti.h>, not its parts"
#endif

/* Settings of one asynchronous call. Initialise with TUTTI_ASYNC_OPTIONS_INIT. None yet. */
typedef struct {
    size_t size; /* sizeof(tutti_async_options_t) */
} tutti_async_options_t;

#define TUTTI_ASYNC_OPTIONS_INIT { sizeof(tutti_async_options_t) }

/*
 * Start to reduce `count` elements over all ranks under a name; return at once.
 *
 * name              1 to 255 bytes; copied. The same name on all ranks means the same tensor. It
 *                   may be used again as soon as the request is done
 * sendbuf, recvbuf  `count` elements each, equal pointers in place. The library reads and writes
 *                   them until the request is done; do not touch them before
 * count             elements; equal on all ranks; may be 0
 * options           NULL: defaults; read during the call only
 * ret_request       to be handed to tutti_wait exactly once, also after tutti_finalize. Unchanged
 *                   if this call fails: there is nothing to wait for then
 *
 * Any thread, in any order, on every rank. Errors of this rank are returned at once (a name that is
 * pending already: TUTTI_ERR_INVALID_ARGUMENT); those that need other ranks come from tutti_test
 * and tutti_wait: TUTTI_ERR_MISMATCH on all ranks if type, count or operation differ, naming the
 * tensor and two ranks. No recvbuf was changed then, and the communicator stays usable. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                               size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                               tutti_comm_t *comm,
                                               const tutti_async_options_t *options,
                                               tutti_request_t **ret_request);

/*
 * Is the request done? Never blocks and never frees.
 *
 * ret_done  1 if done, well or not, else 0
 *
 * Returns the status of a request that is done, TUTTI_OK for one that is not. Any thread, but not
 * at the same time as, or after, tutti_wait on the same request. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_test(tutti_request_t *request, int *ret_done);

/*
 * Wait until the request is done, free it, and return how it ended.
 *
 * timeout_ms  milliseconds; 0: look once; < 0: the library's own deadline (TUTTI_TIMEOUT)
 *
 * TUTTI_ERR_TIMEOUT with timeout_ms >= 0: not done yet; the request stays valid and goes on. Every
 * other answer frees it. With timeout_ms < 0 a passed deadline ends the communicator, so that no
 * request is left behind half done. The waiting thread does the library's work meanwhile. Any
 * thread; one thread per request. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_wait(tutti_request_t *request, int timeout_ms);

#endif
