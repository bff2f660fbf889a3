/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lanes' memory, into which buckets are packed, is registered with the host's NCCL: on all
 * ranks of the communicator or on none, since NCCL must not get registered and other buffers in one
 * call. engine/on_device.c says how buckets keep to that. Direct calls use the caller's memory.
 *
 * None of this is an error: without it NCCL copies once more. node/nccl gives it back at the end.
 */
#include "api/device.h"

#include "base/log.h"
#include "base/status.h"
#include "node/nccl/nccl.h"

static tutti_status_t register_own(const tutti__exec_device_t *device)
{
    tutti_status_t status = TUTTI_OK;

    for (uint32_t i = 1; i < TUTTI__LANES && status == TUTTI_OK; i++) {
        const tutti__device_lane_t *lane = &device->lane[i];

        status = lane->is_nccls
                     ? tutti__nccl_node_register(device->node, lane->fuse, device->fuse_bytes)
                     : tutti__fail(TUTTI_ERR_UNSUPPORTED, "NCCL gave no memory");
    }
    return status;
}

tutti_status_t tutti__comm_register_lanes(const tutti_comm_t *comm, int32_t *room)
{
    const tutti__exec_device_t *device = &comm->device;
    int32_t mine;
    tutti_status_t status;
    int has_all = 1;

    if (device->node == NULL || device->fuse_bytes == 0)
        return TUTTI_OK;
    mine = register_own(device);
    if (mine != TUTTI_OK)
        TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %d registers no memory with NCCL: %s", tutti_rank(comm),
                   tutti_last_error());
    status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), room);
    if (status != TUTTI_OK)
        return status;
    for (uint32_t r = 0; r < comm->topo->size; r++)
        has_all &= room[r] == TUTTI_OK;
    if (!has_all)
        tutti__nccl_node_unregister(device->node);
    if (tutti_rank(comm) == 0)
        TUTTI__LOG(TUTTI__LOG_DEBUG, "fused buckets are packed into %s",
                   has_all ? "memory that NCCL knows" : "plain memory of the device");
    return TUTTI_OK;
}
