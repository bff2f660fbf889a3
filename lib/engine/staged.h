/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory that are made in host memory: what no schedule does on the device.
 *
 *      begin   the buffers' bytes are on their way into host memory; `call` is the same call there
 *      ready   TUTTI__AGAIN until they are there. Then `call` is made as any on host memory
 *      finish  results are on their way back
 *      done    TUTTI__AGAIN until they are there
 *
 * Host memory is the lane's STAGE, which is pinned; what does not fit is in memory of malloc, for
 * which copies may block, but wait for nobody else: pinning more might wait for all of the device,
 * and so for other ranks.
 *
 * Parts of recvbuf that a call does not write keep what they hold: they are copied both ways.
 */
#ifndef TUTTI__ENGINE_STAGED_H
#define TUTTI__ENGINE_STAGED_H

#include "engine/call.h"

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
} tutti__staged_t;

void tutti__staged_free(tutti__staged_t *staged);
/* staged->host has so many bytes, or NO_MEMORY. */
tutti_status_t tutti__staged_need(tutti__staged_t *staged, size_t bytes);

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
tutti_status_t tutti__staged_ready(const tutti__exec_device_t *device, uint32_t lane);
tutti_status_t tutti__staged_finish(const tutti__exec_device_t *device, uint32_t lane,
                                    const tutti__staged_t *staged);
tutti_status_t tutti__staged_done(const tutti__exec_device_t *device, uint32_t lane);

#endif
