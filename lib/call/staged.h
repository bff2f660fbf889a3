/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory that run in host memory, because no schedule serves them on the device.
 *
 *      begin   starts to copy the buffers into host memory; staged->call is the call there
 *      step    TUTTI__AGAIN until the buffers are copied. Then the caller runs staged->call
 *      finish  starts to copy the results back
 *      step    TUTTI__AGAIN until the results are copied
 *
 * The copies are in the lane's STAGE, which is pinned. If they do not fit, they are in memory of
 * malloc, and pass through STAGE piece by piece, alternately through its two halves. A copy from or
 * to unpinned memory would block the thread until all earlier work in the CUDA stream is complete,
 * even the caller's work. Pinning more memory may wait for the whole device, and so for other
 * ranks. A step moves one piece, so the thread can also step its other lanes.
 *
 * STAGE, `copied` and `done` belong to the lane, and have no other user during a call. A run in
 * host memory does not use them. If the packing copies zero contributions out of STAGE, the event
 * `ready` completes only after these copies.
 *
 * Only the parts of recvbuf that the call writes are copied back: between these parts, other calls
 * and the caller may write meanwhile.
 */
#ifndef TUTTI__CALL_STAGED_H
#define TUTTI__CALL_STAGED_H

#include "call/call_sides.h"

/* A range to copy. */
typedef struct {
    char *device, *host;
    size_t bytes;
} tutti__staged_part_t;

/* The state of one lane. Zero this structure before its first use. */
typedef struct {
    tutti__call_t call; /* the same call in host memory */
    char *host;         /* from malloc, or NULL */
    size_t host_bytes;
    tutti__staged_part_t send, recv; /* the caller's buffers, and their copies in host memory */
    tutti__side_t into;              /* the parts of recv */
    uint32_t nparts;                 /* > 0: the parts to copy; 0: whole ranges */
    /* For data that pass through STAGE piece by piece: */
    int in_stage; /* 1: STAGE holds all data at once, not piece by piece */
    int is_up;
    tutti__staged_part_t left;    /* the rest of the range */
    tutti__staged_part_t half[2]; /* the piece in each half of STAGE */
    uint32_t next;                /* the next half */
    uint32_t moves;               /* complete pieces */
} tutti__staged_t;

void tutti__staged_free(tutti__staged_t *staged);

/*
 * device  the lanes' resources; the calling thread's current device
 * ready   a recorded event, after which the data are complete; or NULL
 * staged  staged->call is valid until the next begin, and points to the arrays of *call
 *
 * rank, size: this rank, and the communicator's size. NO_MEMORY, SYSTEM.
 */
tutti_status_t tutti__staged_begin(const tutti__exec_device_t *device, uint32_t lane,
                                   const tutti__call_t *call, uint32_t rank, uint32_t size,
                                   tutti__devent_t *ready, tutti__staged_t *staged);
tutti_status_t tutti__staged_finish(const tutti__exec_device_t *device, uint32_t lane,
                                    tutti__staged_t *staged);
/* Call this function again while it returns AGAIN. */
tutti_status_t tutti__staged_step(const tutti__exec_device_t *device, uint32_t lane,
                                  tutti__staged_t *staged);

/* The same for any bytes, which stay in staged->host while other code uses STAGE. _keep copies
   `bytes` bytes from `from`, after `ready`. _put_back copies `bytes` of these bytes, beginning at
   offset `at`, to `to`. */
tutti_status_t tutti__staged_keep(const tutti__exec_device_t *device, uint32_t lane, char *from,
                                  size_t bytes, tutti__devent_t *ready, tutti__staged_t *staged);
tutti_status_t tutti__staged_put_back(const tutti__exec_device_t *device, uint32_t lane, char *to,
                                      size_t at, size_t bytes, tutti__staged_t *staged);

#endif
