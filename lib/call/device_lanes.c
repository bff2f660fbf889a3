/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lanes' resources on a device: streams, events and memory.
 *
 * The memory for packed buckets is registered with the host's NCCL, on all ranks of the
 * communicator or on none: NCCL must not get registered and unregistered buffers in one call (see
 * engine/fuse.c). Direct calls use the caller's memory. If the registration fails, NCCL copies
 * once more; this is not an error. node/nccl ends the registration.
 */
#include "call/device_setup.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/status.h"

/* Allocate memory from NCCL. If NCCL provides none, allocate plain device memory. */
static tutti_status_t alloc_fuse(const tutti__exec_device_t *device, tutti__device_lane_t *lane,
                                 void **ret_fuse)
{
    const tutti__device_ops_t *ops = device->ops;

    lane->is_nccls =
        device->node != NULL && ops->nccl_alloc(device->fuse_bytes, ret_fuse) == TUTTI_OK;
    return lane->is_nccls ? TUTTI_OK : ops->alloc(device->fuse_bytes, ret_fuse);
}

static tutti_status_t open_lane(tutti__exec_device_t *device, uint32_t i)
{
    tutti__device_lane_t *lane = &device->lane[i];
    const tutti__device_ops_t *ops = device->ops;
    tutti_status_t status = ops->stream_make(1, &lane->down);
    void *stage = NULL, *fuse = NULL;

    if (status == TUTTI_OK)
        status = ops->stream_make(1, &lane->up);
    for (int s = 0; s < TUTTI__SCHED_STREAMS && status == TUTTI_OK; s++)
        status = ops->event_make(&lane->copied[s]);
    if (status == TUTTI_OK)
        status = ops->event_make(&lane->done);
    if (status == TUTTI_OK)
        status = ops->event_make(&lane->ready);
    if (status == TUTTI_OK)
        status = ops->host_alloc(device->stage_bytes, &stage);
    lane->stage = stage;
    if (status == TUTTI_OK && i > 0 && device->fuse_bytes > 0)
        status = alloc_fuse(device, lane, &fuse);
    lane->fuse = fuse;
    return status;
}

static void close_lane(const tutti__exec_device_t *device, tutti__device_lane_t *lane, int keeps)
{
    const tutti__device_ops_t *ops = device->ops;

    for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
        if (lane->copied[s] != NULL)
            ops->event_drop(lane->copied[s]);
    if (lane->done != NULL)
        ops->event_drop(lane->done);
    if (lane->ready != NULL)
        ops->event_drop(lane->ready);
    if (tutti__device_is_stuck(device))
        return;
    if (lane->down != NULL)
        ops->stream_drop(lane->down);
    if (lane->up != NULL)
        ops->stream_drop(lane->up);
    if (lane->stage != NULL && !keeps)
        ops->host_free(lane->stage);
    if (lane->fuse != NULL)
        (lane->is_nccls ? ops->nccl_free : ops->free)(lane->fuse);
}

static tutti_status_t open_all(const tutti__device_setup_t *setup)
{
    const tutti__conf_shared_t *conf = &setup->conf->shared;
    tutti__exec_device_t *device = setup->device;
    tutti_status_t status = TUTTI_OK;

    device->chunk_bytes = conf->device_chunk_bytes;
    device->stage_bytes = conf->stage_bytes;
    device->fuse_bytes = conf->fusion_bytes == TUTTI__CONF_AUTO ? TUTTI__FUSE_DEVICE_BYTES
                                                                : (size_t)conf->fusion_bytes;
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES && status == TUTTI_OK; i++)
        status = open_lane(device, i);
    return tutti__boot_agree(setup->boot, status);
}

/* ---- registering ---- */

static tutti_status_t register_own(const tutti__exec_device_t *device)
{
    tutti_status_t status = TUTTI_OK;

    for (uint32_t i = 1; i < TUTTI__DEVICE_LANES && status == TUTTI_OK; i++) {
        const tutti__device_lane_t *lane = &device->lane[i];

        status = lane->is_nccls ? tutti__device_register(device, lane->fuse)
                                : tutti__fail(TUTTI_ERR_UNSUPPORTED, "NCCL gave no memory");
    }
    return status;
}

static tutti_status_t register_all(const tutti__device_setup_t *setup)
{
    const tutti__exec_device_t *device = setup->device;
    tutti_status_t status;
    int has_all;

    if (device->node == NULL || device->fuse_bytes == 0)
        return TUTTI_OK;
    status = register_own(device);
    if (status != TUTTI_OK)
        TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u registers no memory with NCCL: %s", setup->topo->rank,
                   tutti_last_error());
    status = tutti__device_exchange(setup, status);
    if (status != TUTTI_OK)
        return status;
    has_all = tutti__device_first(setup, 1) == setup->topo->size;
    if (!has_all)
        tutti__device_unregister(device);
    if (setup->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_DEBUG, "fused buckets are packed into %s",
                   has_all ? "memory that NCCL knows" : "plain memory of the device");
    return TUTTI_OK;
}

/* ---- all lanes ---- */

tutti_status_t tutti__device_open_lanes(const tutti__device_setup_t *setup)
{
    tutti_status_t status = open_all(setup);

    return status == TUTTI_OK ? register_all(setup) : status;
}

void tutti__device_close_lanes(const tutti__device_setup_t *setup)
{
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES; i++)
        close_lane(setup->device, &setup->device->lane[i], setup->keeps);
}
