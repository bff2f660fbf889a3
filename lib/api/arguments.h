/* SPDX-License-Identifier: BSD-3-Clause */
/* Argument checks, the same for direct and asynchronous calls. Any thread. */
#ifndef TUTTI__API_ARGUMENTS_H
#define TUTTI__API_ARGUMENTS_H

#include "api/comm.h"
#include "call/call.h"

/*
 * Check a call. Root and peers are the caller's ints, cast to uint32_t and not checked yet. Sets
 * call->on_device. On entry call->wire is the option `wire`. On return call->wire is the type
 * between hosts, from this option and TUTTI_WIRE (0: the call's own type).
 *
 * is_named      1: an asynchronous call with a name. Small calls without a name keep their own type
 *               between hosts
 * counts_later  for allgatherv and alltoallv: recvcounts may be NULL. If it is NULL, the receiving
 *               side is not checked
 *
 * INVALID_ARGUMENT or UNSUPPORTED: the text names argument and value. NO_MEMORY: there is no memory
 * to sort many parts.
 */
tutti_status_t tutti__call_check(const tutti__comm_t *comm, tutti__call_t *call, int is_named,
                                 int counts_later);

/* The engine's check_receive: check the counts and buffers of a call that tutti__call_check has
   accepted, after the program has given the call its receive buffer, or other buffers. comm: points
   to a tutti__comm_t. */
tutti_status_t tutti__call_check_receive(const void *comm, tutti__call_t *call);

/* ---- check_memory.c: the memory of a call's buffers ---- */

/*
 * Are a call's buffers in memory of comm's device? The caller has checked the counts and pointers.
 *
 * receives  0: the receiving side is not known yet
 *
 * Sides without elements are ignored, so a call without elements is a call on host memory on all
 * ranks.
 *
 * INVALID_ARGUMENT: the text names the buffers. They are in two kinds of memory; or on another
 * device; or on a device, but comm has none; or on the device, but not at a multiple of the
 * element's size. As with all argument errors, only this rank finds the error, and has sent no
 * message yet. So the other ranks wait until this rank makes a valid call, or until TUTTI_TIMEOUT.
 */
tutti_status_t tutti__device_check(const tutti__comm_t *comm, const tutti__call_t *call,
                                   int receives, int *ret_on_device);

/* May a checked call be made in a stream? UNSUPPORTED: comm has no device, or the stream is being
   captured into a graph. INVALID_ARGUMENT: the buffers are in host memory. */
tutti_status_t tutti__device_check_stream(const tutti__comm_t *comm, const tutti__call_t *call,
                                          tutti__dstream_t *stream);

#endif
