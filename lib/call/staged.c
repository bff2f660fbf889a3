/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory that run in host memory. See staged.h.
 *
 *      device   | sendbuf |     | recvbuf |          | allgather's recvbuf, and sendbuf in it |
 *                    | down         ^ up
 *      host     | send  | recv      |                | the same |
 *
 * The copies are two adjacent ranges in host memory, or one range if the caller's buffers overlap,
 * for example in place. So the call in host memory is in place in the same way.
 */
#include "call/staged.h"

#include "base/compiler.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Ranges begin at cache lines. */
#define ALIGN ((size_t)64)

void tutti__staged_free(tutti__staged_t *staged)
{
    free(staged->host);
    staged->host = NULL;
    staged->host_bytes = 0;
}

/* Enlarge staged->host to at least `bytes` bytes, or return NO_MEMORY. */
static tutti_status_t need(tutti__staged_t *staged, size_t bytes)
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

/* Find the ranges to copy: each side from the beginning of its buffer. */
static void find_ranges(const tutti__call_t *call, uint32_t rank, uint32_t size,
                        tutti__staged_t *staged)
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
    staged->send = (tutti__staged_part_t){ (char *)(uintptr_t)send.ptr, NULL, send.end * esize };
    staged->recv = (tutti__staged_part_t){ (char *)(uintptr_t)recv.ptr, NULL, recv.end * esize };
    staged->into = recv;
    staged->nparts = recv.count != recv.end ? size : 0;
}

/* Choose the host memory for both ranges. */
static tutti_status_t place(const tutti__device_lane_t *lane, size_t stage_bytes,
                            tutti__staged_t *staged)
{
    uintptr_t send = (uintptr_t)staged->send.device, recv = (uintptr_t)staged->recv.device;
    uintptr_t send_end = send + staged->send.bytes, recv_end = recv + staged->recv.bytes;
    size_t send_at = 0, recv_at = TUTTI__ROUND_UP(staged->send.bytes, ALIGN), bytes;
    char *host = lane->stage;
    tutti_status_t status;

    bytes = recv_at + staged->recv.bytes;
    if (send < recv_end && recv < send_end) {
        uintptr_t begin = TUTTI__MIN(send, recv);

        send_at = send - begin;
        recv_at = recv - begin;
        bytes = TUTTI__MAX(send_end, recv_end) - begin;
    }
    staged->in_stage = bytes <= stage_bytes;
    if (!staged->in_stage) {
        status = need(staged, bytes);
        if (status != TUTTI_OK)
            return status;
        host = staged->host;
    }
    staged->send.host = host + send_at;
    staged->recv.host = host + recv_at;
    return TUTTI_OK;
}

/* The same call in host memory. The pointer of an empty buffer is never dereferenced. */
static void make_call(const tutti__call_t *call, tutti__staged_t *staged)
{
    staged->call = *call;
    staged->call.on_device = 0;
    if (call->kind == TUTTI_CALL_BROADCAST) {
        staged->call.recvbuf = staged->send.bytes > 0 ? staged->send.host : staged->recv.host;
        return;
    }
    if (staged->send.bytes > 0)
        staged->call.sendbuf = staged->send.host;
    if (staged->recv.bytes > 0)
        staged->call.recvbuf = staged->recv.host;
}

/* ---- copies ---- */

/* Begin the copies of one direction. The CUDA stream waits for `ready` even if there is nothing to
   copy down, because results may be written only after `ready`. */
static tutti_status_t turn_to(const tutti__exec_device_t *device, uint32_t lane_index, int is_up,
                              tutti__devent_t *ready, tutti__staged_t *staged)
{
    const tutti__device_lane_t *lane = &device->lane[lane_index];

    staged->is_up = is_up;
    staged->next = 0;
    staged->left.bytes = 0;
    memset(staged->half, 0, sizeof(staged->half));
    return ready == NULL ? TUTTI_OK : device->ops->wait(is_up ? lane->up : lane->down, ready);
}

/* Copy up: queue one copy for each part within a range; adjacent parts share one copy. The gaps
   between the parts are not copied, because other calls may write there meanwhile. */
static tutti_status_t queue_parts(const tutti__exec_device_t *device, uint32_t lane_index,
                                  char *on_device, char *host, size_t bytes,
                                  const tutti__staged_t *staged)
{
    const tutti__side_t *into = &staged->into;
    size_t esize = tutti_dtype_bytes(staged->call.dtype);
    size_t at = (size_t)(on_device - into->ptr), first, end;
    tutti_status_t status = TUTTI_OK;

    for (uint32_t i = 0; i < staged->nparts && status == TUTTI_OK;) {
        first = end = into->displs[i];
        while (i < staged->nparts && into->displs[i] == end)
            end += into->counts[i++];
        first = TUTTI__MAX(first * esize, at);
        end = TUTTI__MIN(end * esize, at + bytes);
        if (first < end)
            status = device->ops->copy(on_device + (first - at), host + (first - at), end - first,
                                       device->lane[lane_index].up);
    }
    return status;
}

static tutti_status_t queue(const tutti__exec_device_t *device, uint32_t lane_index,
                            char *on_device, char *host, size_t bytes,
                            const tutti__staged_t *staged)
{
    const tutti__device_lane_t *lane = &device->lane[lane_index];

    if (!staged->is_up)
        return device->ops->copy(host, on_device, bytes, lane->down);
    return staged->nparts > 0 ? queue_parts(device, lane_index, on_device, host, bytes, staged)
                              : device->ops->copy(on_device, host, bytes, lane->up);
}

static tutti_status_t add(const tutti__exec_device_t *device, uint32_t lane_index,
                          const tutti__staged_part_t *range, tutti__staged_t *staged)
{
    if (range->bytes == 0)
        return TUTTI_OK;
    if (staged->in_stage)
        return queue(device, lane_index, range->device, range->host, range->bytes, staged);
    staged->left = *range;
    return TUTTI_OK;
}

/* After the last copy: record the event `done` behind this copy. */
static tutti_status_t close_queue(const tutti__exec_device_t *device, uint32_t lane_index,
                                  const tutti__staged_t *staged)
{
    const tutti__device_lane_t *lane = &device->lane[lane_index];

    return device->ops->record(lane->done, staged->is_up ? lane->up : lane->down);
}

/* The next piece of the remaining bytes. If no bytes are left, the piece has 0 bytes. */
static tutti__staged_part_t take(tutti__staged_t *staged, size_t most)
{
    tutti__staged_part_t *left = &staged->left;
    tutti__staged_part_t piece = *left;

    piece.bytes = TUTTI__MIN(left->bytes, most);
    if (piece.bytes > 0) {
        left->device += piece.bytes;
        left->host += piece.bytes;
        left->bytes -= piece.bytes;
    }
    return piece;
}

/* For the next half of STAGE: end the half's piece, and begin a new piece. */
static tutti_status_t move(const tutti__exec_device_t *device, uint32_t lane_index,
                           tutti__staged_t *staged)
{
    const tutti__device_lane_t *lane = &device->lane[lane_index];
    tutti__staged_part_t *half = &staged->half[staged->next];
    tutti__devent_t *copied = lane->copied[staged->next];
    size_t most = device->stage_bytes / 2;
    char *stage = lane->stage + staged->next * most;
    tutti_status_t status;

    if (half->bytes > 0) {
        status = device->ops->query(copied);
        if (status != TUTTI_OK)
            return status;
        if (!staged->is_up)
            memcpy(half->host, stage, half->bytes);
        staged->moves++;
    }
    *half = take(staged, most);
    staged->next = !staged->next;
    if (half->bytes == 0)
        return TUTTI_OK;
    if (staged->is_up)
        memcpy(stage, half->host, half->bytes);
    status = queue(device, lane_index, half->device, stage, half->bytes, staged);
    return status == TUTTI_OK ? device->ops->record(copied, staged->is_up ? lane->up : lane->down)
                              : status;
}

tutti_status_t tutti__staged_step(const tutti__exec_device_t *device, uint32_t lane,
                                  tutti__staged_t *staged)
{
    tutti_status_t status = TUTTI_OK;

    if (staged->left.bytes + staged->half[0].bytes + staged->half[1].bytes > 0) {
        status = move(device, lane, staged);
        return status == TUTTI_OK ? TUTTI__AGAIN : status;
    }
    return device->ops->query(device->lane[lane].done);
}

/* ---- calls ---- */

tutti_status_t tutti__staged_begin(const tutti__exec_device_t *device, uint32_t lane,
                                   const tutti__call_t *call, uint32_t rank, uint32_t size,
                                   tutti__devent_t *ready, tutti__staged_t *staged)
{
    tutti_status_t status;

    find_ranges(call, rank, size, staged);
    status = place(&device->lane[lane], device->stage_bytes, staged);
    if (status != TUTTI_OK)
        return status;
    make_call(call, staged);
    status = turn_to(device, lane, 0, ready, staged);
    if (status == TUTTI_OK)
        status = add(device, lane, &staged->send, staged);
    return status == TUTTI_OK ? close_queue(device, lane, staged) : status;
}

/* Copy one range in one direction. */
static tutti_status_t copy_range(const tutti__exec_device_t *device, uint32_t lane, int is_up,
                                 tutti__devent_t *ready, const tutti__staged_part_t *range,
                                 tutti__staged_t *staged)
{
    tutti_status_t status = turn_to(device, lane, is_up, ready, staged);

    if (status == TUTTI_OK)
        status = add(device, lane, range, staged);
    return status == TUTTI_OK ? close_queue(device, lane, staged) : status;
}

tutti_status_t tutti__staged_finish(const tutti__exec_device_t *device, uint32_t lane,
                                    tutti__staged_t *staged)
{
    return copy_range(device, lane, 1, NULL, &staged->recv, staged);
}

tutti_status_t tutti__staged_keep(const tutti__exec_device_t *device, uint32_t lane, char *from,
                                  size_t bytes, tutti__devent_t *ready, tutti__staged_t *staged)
{
    tutti_status_t status = need(staged, bytes);
    const tutti__staged_part_t range = { from, staged->host, bytes };

    staged->in_stage = 0;
    staged->nparts = 0;
    return status == TUTTI_OK ? copy_range(device, lane, 0, ready, &range, staged) : status;
}

tutti_status_t tutti__staged_put_back(const tutti__exec_device_t *device, uint32_t lane, char *to,
                                      size_t at, size_t bytes, tutti__staged_t *staged)
{
    const tutti__staged_part_t range = { to, staged->host + at, bytes };

    staged->in_stage = 0;
    return copy_range(device, lane, 1, NULL, &range, staged);
}
