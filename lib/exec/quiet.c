/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a communicator has died: the device lets go of the caller's buffers before calls end.
 *
 * What was queued goes on after an error, and may read or write buffers that the caller frees, or
 * uses again, as soon as he hears of it. So NCCL is aborted first, which ends what waits for other
 * ranks; then the rest, copies and kernels, is waited for: it is short, unless it stands behind
 * long work in the caller's own stream. Then this gives up: it keeps the engine waiting.
 *
 * Rejected: knowing in which phase a call was, and which of its events are recorded. A lane's
 * events are nobody's any more, so new records tell of all that is in its streams.
 */
#include "exec/device.h"

#include "base/status.h"
#include "base/time.h"
#include "node/nccl/nccl.h"

#include <unistd.h>

#define QUIET_NS 100000000u
#define NAP_US 20

int tutti__device_is_queued(const tutti__exec_device_t *device)
{
    return (device->node != NULL && tutti__nccl_node_queued(device->node) == TUTTI__AGAIN) ||
           (device->flat != NULL && tutti__nccl_node_queued(device->flat) == TUTTI__AGAIN);
}

/* A record that fails: the device is broken, and does nothing more. */
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

void tutti__device_quiet(const tutti__exec_device_t *device, uint32_t first, uint32_t end)
{
    uint64_t limit = tutti__now_ns() + QUIET_NS;

    for (uint32_t i = first; i < end; i++) {
        const tutti__device_lane_t *lane = &device->lane[i];

        /* If that fails, an earlier record is waited for, or nothing: see is_busy. */
        (void)device->ops->record(lane->copied[0], lane->down);
        if (lane->between != NULL)
            (void)device->ops->record(lane->copied[1], lane->between);
        (void)device->ops->record(lane->done, lane->up);
    }
    while (is_busy(device, first, end) && tutti__now_ns() < limit)
        usleep(NAP_US);
}
