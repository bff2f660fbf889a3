/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory that are made in host memory: what no schedule does on the device.
 *
 *      begin   the buffers' bytes are on their way into host memory; `call` is the same call there
 *      step    TUTTI__AGAIN until they are there. Then `call` is made as any on host memory
 *      finish  results are on their way back
 *      step    TUTTI__AGAIN until they are there
 *
 * Host memory is the lane's STAGE, which is pinned. What does not fit is in memory of malloc, and
 * passes STAGE piece by piece, in two halves in turn: a copy from or to memory that is not pinned
 * would block the thread until all that stands before it in the stream is done, also the caller's
 * own work; and pinning more might wait for all of the device, and so for other ranks. A step moves
 * one piece, so the thread's other lanes get their turns.
 *
 * STAGE, `copied` and `done` are the lane's, and nobody else uses them meanwhile: a run in host
 * memory has no use for them, and zero contributions have left STAGE before `ready` comes.
 *
 * Parts of recvbuf that a call does not write keep what they hold: they are copied both ways.
 */
#ifndef TUTTI__ENGINE_STAGED_H
#define TUTTI__ENGINE_STAGED_H

#include "engine/call.h"

/* What is copied. */
typedef struct {
    char *device, *host;
    size_t bytes;
} tutti__staged_part_t;

/* One of a lane's; zero it first. */
typedef struct {
    tutti__call_t call; /* on host memory */
    char *host;         /* malloc's, or NULL */
    size_t host_bytes;
    /* The buffers, as byte ranges: of the caller's, and where they are in host memory. */
    const char *send_device;
    char *recv_device;
    char *send_host, *recv_host;
    size_t send_bytes, recv_bytes;
    /* What passes STAGE by pieces. */
    int in_stage; /* nothing: it stays there */
    int is_up;
    tutti__staged_part_t left[2]; /* not yet begun, one behind the other */
    tutti__staged_part_t half[2]; /* on its way, in each half of STAGE */
    uint32_t turn;                /* the half that is next */
    uint32_t moves;               /* pieces that have come */
} tutti__staged_t;

void tutti__staged_free(tutti__staged_t *staged);

/*
 * device  what the lane has; the calling thread uses it
 * ready   an event that was recorded, behind which the data are there; or NULL
 * ret     its `call` lives until the next begin; arrays are those of `call`
 *
 * rank and size: of the communicator. NO_MEMORY, SYSTEM.
 */
tutti_status_t tutti__staged_begin(const tutti__exec_device_t *device, uint32_t lane,
                                   const tutti__call_t *call, uint32_t rank, uint32_t size,
                                   tutti__devent_t *ready, tutti__staged_t *staged);
tutti_status_t tutti__staged_finish(const tutti__exec_device_t *device, uint32_t lane,
                                    tutti__staged_t *staged);
/* To be called again until it is not AGAIN. */
tutti_status_t tutti__staged_step(const tutti__exec_device_t *device, uint32_t lane,
                                  tutti__staged_t *staged);

/* The same for bytes of anybody's, kept in staged->host while STAGE is used by others: `from` goes
   to its begin, behind `ready`; and what stands there from `at` on goes to `to`. */
tutti_status_t tutti__staged_keep(const tutti__exec_device_t *device, uint32_t lane,
                                  const char *from, size_t bytes, tutti__devent_t *ready,
                                  tutti__staged_t *staged);
tutti_status_t tutti__staged_put_back(const tutti__exec_device_t *device, uint32_t lane, char *to,
                                      size_t at, size_t bytes, tutti__staged_t *staged);

#endif
