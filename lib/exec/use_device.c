/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Switches threads to a communicator's device. Quiesces the device after the communicator has ended
 * with an error, so that no device work touches the buffers of a call that has returned.
 *
 * Queued work continues after an error. It may read or write buffers that the caller frees, or uses
 * again, as soon as the call has returned the error. So NCCL is aborted first, which ends all work
 * that waits for other ranks. Then tutti__device_quiesce waits for the rest: copies and kernels.
 * This wait is short, unless the work is queued behind long work in the caller's own CUDA stream.
 * The engine is blocked during the wait, so tutti__device_quiesce gives up after a second.
 *
 * tutti__device_quiesce records a lane's events again, behind all work in the lane's CUDA streams.
 * No call uses these events any more. Rejected: find out which events each call has recorded.
 */
#include "exec/exec_device.h"

#include "base/status.h"
#include "base/time.h"

#include <unistd.h>

/* ---- the calling thread's current device ---- */

int tutti__device_enter(const tutti__exec_device_t *device)
{
    int before = device->ops->current();

    if (before != device->device)
        (void)device->ops->use(device->device); /* a later call of the device reports the error */
    return before;
}

void tutti__device_leave(const tutti__exec_device_t *device, int before)
{
    if (before >= 0 && before != device->device)
        (void)device->ops->use(before); /* the caller's next use of its device reports an error */
}

/* ---- the end ---- */

static int is_queued(const tutti__node_t *node)
{
    return node != NULL && node->device_ops->queued(node) == TUTTI__AGAIN;
}

int tutti__device_is_queued(const tutti__exec_device_t *device)
{
    return is_queued(device->node) || is_queued(device->all_node);
}

void tutti__device_abort(const tutti__exec_device_t *device)
{
    tutti__node_t *const nodes[] = { device->all_node, device->node };
    int before = device->ops->current();
    int begun[] = { 0, 0 };

    /* Begin both aborts before waiting for the first: an abort waits for the other node's
       kernels. */
    for (int i = 0; i < 2; i++)
        if (nodes[i] != NULL)
            begun[i] = nodes[i]->device_ops->begin_abort(nodes[i]);
    for (int i = 0; i < 2; i++)
        if (begun[i])
            nodes[i]->device_ops->end_abort(nodes[i]);
    tutti__device_leave(device, before);
}

/* Is there unfinished work? If a query fails, the device is broken, and does no more work. */
static int is_busy(const tutti__exec_device_t *device, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const tutti__device_lane_t *lane = &device->lane[i];

        if (device->ops->query(lane->copied[0]) == TUTTI__AGAIN ||
            device->ops->query(lane->copied[1]) == TUTTI__AGAIN ||
            device->ops->query(lane->done) == TUTTI__AGAIN)
            return 1;
    }
    return tutti__device_is_queued(device);
}

void tutti__device_quiesce(const tutti__exec_device_t *device, uint32_t first, uint32_t end)
{
    uint64_t limit = tutti__now_ns() + TUTTI__QUIESCE_NS;

    for (uint32_t i = first; i < end; i++) {
        const tutti__device_lane_t *lane = &device->lane[i];

        /* If this fails, is_busy queries an earlier record of the event, or none. */
        (void)device->ops->record(lane->copied[0], lane->down);
        if (lane->between != NULL)
            (void)device->ops->record(lane->copied[1], lane->between);
        (void)device->ops->record(lane->done, lane->up);
    }
    while (is_busy(device, first, end) && tutti__now_ns() < limit)
        usleep(TUTTI__QUIESCE_NAP_US);
}
