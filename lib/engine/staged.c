/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory that are made in host memory. See staged.h.
 *
 *      device   | sendbuf |     | recvbuf |          | allgather's recvbuf, and sendbuf in it |
 *                    | down         ^ up
 *      host     | send  | recv      |                | the same |
 *
 * Two ranges beside each other, or one where the caller's overlap, as they do in place: so the call
 * in host memory works in place the same way.
 */
#include "engine/staged.h"

#include "base/compiler.h"
#include "base/status.h"
#include "engine/call_sides.h"

#include <stdlib.h>

/* Ranges begin at whole lines. */
#define ALIGN ((size_t)64)

void tutti__staged_free(tutti__staged_t *staged)
{
    free(staged->host);
    staged->host = NULL;
    staged->host_bytes = 0;
}

tutti_status_t tutti__staged_need(tutti__staged_t *staged, size_t bytes)
{
    if (bytes <= staged->host_bytes)
        return TUTTI_OK;
    tutti__staged_free(staged);
    staged->host = malloc(bytes);
    if (staged->host == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY,
                           "%zu bytes of host memory for a call on device memory", bytes);
    staged->host_bytes = bytes;
    return TUTTI_OK;
}

/* What there is to copy: all of a side, from its buffer's begin. */
static void find_ranges(const tutti__call_t *call, uint32_t rank, uint32_t size,
                        tutti__staged_t *staged, int *ret_has_gaps)
{
    size_t esize = tutti_dtype_bytes(call->dtype);
    tutti__side_t send, recv;

    tutti__call_sends(call, rank, size, &send);
    tutti__call_receives(call, rank, size, &recv);
    if (call->kind == TUTTI_CALL_BROADCAST && rank == call->root) {
        send = recv;
        recv = (tutti__side_t){ 0 };
    }
    tutti__side_measure(&send, size);
    tutti__side_measure(&recv, size);
    staged->send_bytes = send.end * esize;
    staged->recv_bytes = recv.end * esize;
    staged->send_device = send.ptr;
    staged->recv_device = (char *)(uintptr_t)recv.ptr;
    *ret_has_gaps = recv.count != recv.end;
}

/* Host memory for both. */
static tutti_status_t place(const tutti__device_lane_t *lane, size_t stage_bytes,
                            tutti__staged_t *staged)
{
    uintptr_t send = (uintptr_t)staged->send_device, recv = (uintptr_t)staged->recv_device;
    uintptr_t send_end = send + staged->send_bytes, recv_end = recv + staged->recv_bytes;
    size_t send_at = 0, recv_at = TUTTI__ROUND_UP(staged->send_bytes, ALIGN), bytes;
    char *host = lane->stage;
    tutti_status_t status;

    bytes = recv_at + staged->recv_bytes;
    if (send < recv_end && recv < send_end) {
        uintptr_t begin = TUTTI__MIN(send, recv);

        send_at = send - begin;
        recv_at = recv - begin;
        bytes = TUTTI__MAX(send_end, recv_end) - begin;
    }
    if (bytes > stage_bytes) {
        status = tutti__staged_need(staged, bytes);
        if (status != TUTTI_OK)
            return status;
        host = staged->host;
    }
    staged->send_host = host + send_at;
    staged->recv_host = host + recv_at;
    return TUTTI_OK;
}

/* The same call there. Buffers of no bytes are nobody's to touch, wherever they are. */
static void make_call(const tutti__call_t *call, tutti__staged_t *staged)
{
    staged->call = *call;
    staged->call.on_device = 0;
    if (call->kind == TUTTI_CALL_BROADCAST) {
        staged->call.recvbuf = staged->send_bytes > 0 ? staged->send_host : staged->recv_host;
        return;
    }
    if (staged->send_bytes > 0)
        staged->call.sendbuf = staged->send_host;
    if (staged->recv_bytes > 0)
        staged->call.recvbuf = staged->recv_host;
}

tutti_status_t tutti__staged_begin(const tutti__exec_device_t *device, uint32_t lane_index,
                                   const tutti__call_t *call, uint32_t rank, uint32_t size,
                                   tutti__devent_t *ready, tutti__staged_t *staged)
{
    const tutti__device_lane_t *lane = &device->lane[lane_index];
    const tutti__device_ops_t *ops = device->ops;
    tutti_status_t status;
    int has_gaps;

    find_ranges(call, rank, size, staged, &has_gaps);
    status = place(lane, device->stage_bytes, staged);
    if (status != TUTTI_OK)
        return status;
    make_call(call, staged);
    if (ready != NULL)
        status = ops->wait(lane->down, ready);
    if (status == TUTTI_OK && has_gaps)
        status = ops->copy(staged->recv_host, staged->recv_device, staged->recv_bytes, lane->down);
    if (status == TUTTI_OK && staged->send_bytes > 0)
        status = ops->copy(staged->send_host, staged->send_device, staged->send_bytes, lane->down);
    /* Without data too: nobody may write before `ready`. */
    return status == TUTTI_OK ? ops->record(lane->done, lane->down) : status;
}

tutti_status_t tutti__staged_ready(const tutti__exec_device_t *device, uint32_t lane)
{
    return device->ops->query(device->lane[lane].done);
}

tutti_status_t tutti__staged_finish(const tutti__exec_device_t *device, uint32_t lane_index,
                                    const tutti__staged_t *staged)
{
    const tutti__device_lane_t *lane = &device->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    if (staged->recv_bytes > 0)
        status =
            device->ops->copy(staged->recv_device, staged->recv_host, staged->recv_bytes, lane->up);
    return status == TUTTI_OK ? device->ops->record(lane->done, lane->up) : status;
}

tutti_status_t tutti__staged_done(const tutti__exec_device_t *device, uint32_t lane)
{
    return device->ops->query(device->lane[lane].done);
}
