/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator's device: opening it, and finding out in whose memory a call's buffers are. */
#ifndef TUTTI__API_DEVICE_H
#define TUTTI__API_DEVICE_H

#include "api/comm.h"

/* Fill in comm->device, if all ranks have a working device. Collective; during set-up only. The
   calling thread's current device does not change. */
tutti_status_t tutti__comm_open_device(tutti__comm_t *comm);
/* Wait for calls that are queued in streams, until they are done, the communicator dies or
   TUTTI_TIMEOUT has passed. Called before the engine is closed, which detects deaths. Takes
   half-open communicators. */
void tutti__comm_end_queued(tutti__comm_t *comm);
/* Close the device, which no call uses any more; work in flight is aborted. Takes half-open
   communicators. */
void tutti__comm_close_device(tutti__comm_t *comm);

/* ---- rounds of opening, in other files; collective, on the thread that opens the device ---- */

/* device_flat.c: open NCCL among all ranks of several hosts, if TUTTI_ALGORITHM names nccl-flat;
   then a failure is an error. A part has none. */
tutti_status_t tutti__device_open_flat(tutti__comm_t *comm);
void tutti__device_close_flat(tutti__exec_device_t *device);
/* device.c: the identity of this rank's GPU, as NCCL compares it; "" if NCCL allows sharing. */
#define TUTTI__SHARED_IDENTITY_BYTES (TUTTI__DEVICE_IDENTITY_BYTES + 20)
void tutti__device_identify(const tutti__comm_t *comm, char *ret_identity);
/* Do two ranks of the same place use one GPU? identity: rank 0's; the next rank's is `stride` bytes
   further; place: [size]. ret_words: names the two ranks. */
#define TUTTI__SHARED_WORDS 80
int tutti__device_is_shared(const char *identity, size_t stride, const uint32_t *place,
                            uint32_t size, char ret_words[TUTTI__SHARED_WORDS]);
/* device_lanes.c: streams, events and memory of the lanes. room: [size], scratch. */
tutti_status_t tutti__device_open_lanes(tutti__comm_t *comm, int32_t *room);
void tutti__device_close_lanes(tutti__exec_device_t *device);
/* device_direct.c: decide whether messages between hosts use device memory, and prepare it. */
tutti_status_t tutti__device_open_direct(tutti__comm_t *comm);
void tutti__device_close_direct(tutti__comm_t *comm);
/* Wait until NCCL is connected on all ranks, a rank reports an error, or TUTTI_TIMEOUT has passed.
   room: [size], scratch; whom: the ranks that it connects, for messages. */
tutti_status_t tutti__device_settle(const tutti__comm_t *comm, tutti__node_t *node, int32_t *room,
                                    const char *whom);

/* ---- calls ---- */

void tutti__device_leave(const tutti__exec_device_t *device, int before);

/*
 * Are the buffers of a call, whose counts and pointers were checked, in memory of comm's device?
 *
 * receives  0: the receiving side is not known yet
 *
 * Sides without elements are ignored, so a call without elements counts as host memory on all
 * ranks.
 *
 * INVALID_ARGUMENT, naming the buffers: they are in two kinds of memory; or on another device; or
 * on a device, but comm has none; or not at a multiple of the element's size on the device. As with
 * all argument errors, only this rank finds it, before it has sent anything. So the other ranks
 * wait for this rank until it makes a valid call, or until TUTTI_TIMEOUT.
 */
tutti_status_t tutti__device_check(const tutti__comm_t *comm, const tutti__call_t *call,
                                   int receives, int *ret_on_device);

/* May a checked call be made in a stream? UNSUPPORTED: comm has no device, or the stream is being
   captured into a graph. INVALID_ARGUMENT: the buffers are in host memory. */
tutti_status_t tutti__device_check_stream(const tutti__comm_t *comm, const tutti__call_t *call,
                                          tutti__dstream_t *stream);

#endif
