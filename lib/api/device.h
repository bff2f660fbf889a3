/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator's device: opened with it, and whose memory a call's buffers are. */
#ifndef TUTTI__API_DEVICE_H
#define TUTTI__API_DEVICE_H

#include "api/comm.h"

/* Fill in comm->device, if all ranks have one that works. Collective; of set-up. The calling thread
   gets back the device it had. */
tutti_status_t tutti__comm_open_device(tutti__comm_t *comm);
/* Calls that are in streams still: until they have come, the communicator dies or TUTTI_TIMEOUT is
   over. Before its engine is closed, which sees deaths. Half-open ones are fine. */
void tutti__comm_end_queued(tutti__comm_t *comm);
/* Nobody uses it any more; work in flight is aborted. Half-open ones are fine. */
void tutti__comm_close_device(tutti__comm_t *comm);
/* End NCCL's work, as an engine's on_death does. comm: a tutti__comm_t. Any thread. */
void tutti__comm_abort_device(void *comm);

/* ---- rounds of opening it, in files of their own; collective, on the thread that opens it ---- */

/* device_flat.c: NCCL among all ranks of several hosts, if TUTTI_ALGORITHM names what needs it; and
   then an error if it cannot be. A part has none. */
tutti_status_t tutti__device_open_flat(tutti__comm_t *comm);
void tutti__device_close_flat(tutti__exec_device_t *device);
/* device.c: whose GPU this rank has, as NCCL compares them. Nothing if NCCL was told to share. */
#define TUTTI__SHARED_IDENTITY_BYTES (TUTTI__DEVICE_IDENTITY_BYTES + 20)
void tutti__device_identify(const tutti__comm_t *comm, char *ret_identity);
/* Do two ranks of a place use one GPU? identity: rank 0's, and every `stride` bytes another's;
   place: [size]. Words say who. */
#define TUTTI__SHARED_WORDS 80
int tutti__device_is_shared(const char *identity, size_t stride, const uint32_t *place,
                            uint32_t size, char ret_words[TUTTI__SHARED_WORDS]);
/* device_lanes.c: streams, events and memory. room: [size], written. */
tutti_status_t tutti__device_open_lanes(tutti__comm_t *comm, int32_t *room);
void tutti__device_close_lanes(tutti__exec_device_t *device);
/* device_direct.c: shall messages between hosts go from and to device memory? */
tutti_status_t tutti__device_open_direct(tutti__comm_t *comm);
void tutti__device_close_direct(tutti__comm_t *comm);
/* Until NCCL stands on all ranks, or one says why not; by TUTTI_TIMEOUT. room: [size], written;
   whom: it connects, in words. */
tutti_status_t tutti__device_settle(const tutti__comm_t *comm, tutti__node_t *node, int32_t *room,
                                    const char *whom);

/* ---- calls ---- */

/* The calling thread uses comm's device from here on. *ret_before: for tutti__device_leave. */
tutti_status_t tutti__device_enter(const tutti__exec_device_t *device, int *ret_before);
void tutti__device_leave(const tutti__exec_device_t *device, int before);

/*
 * Are the buffers of a call, whose counts and pointers were checked, memory of comm's device?
 *
 * receives  0: what it receives is not known yet
 *
 * Sides without elements do not count, so ranks of a call without any all come with host memory.
 * INVALID_ARGUMENT, naming the buffers: they are in two kinds of memory, another device's, or on a
 * device and not at a multiple of the element's size, or on one where comm has none. It is an error
 * like any in arguments: found here alone, before anything was sent, so the other ranks wait for
 * this one, until it comes with a right call or TUTTI_TIMEOUT.
 */
tutti_status_t tutti__device_check(const tutti__comm_t *comm, const tutti__call_t *call,
                                   int receives, int *ret_on_device);

/* May this call, which was checked, be made in a stream? UNSUPPORTED: comm has no device, or the
   stream is being captured into a graph. INVALID_ARGUMENT: it is in host memory. */
tutti_status_t tutti__device_check_stream(const tutti__comm_t *comm, const tutti__call_t *call,
                                          tutti__dstream_t *stream);

#endif
