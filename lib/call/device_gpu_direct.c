/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides whether messages between hosts use device memory directly (exec/gpu_direct.c): on all
 * ranks, or on none. Conditions: TUTTI_GPU_DIRECT is not 0, the hosts have NCCL, the transport to
 * each rank of another host takes device memory, and the memory can be allocated.
 *
 * The hazard: an MPI or UCX that takes device memory may at any time launch copies of its own, wait
 * for the device, or allocate on it. If NCCL's work on the device waits for other ranks, and these
 * ranks wait for MPI or UCX, no rank makes progress until TUTTI_TIMEOUT. NCCL's documents call the
 * combination unsafe. With GPUDirect RDMA, UCX and MPI do not use the device for long messages, but
 * this is not guaranteed. If jobs hang, set TUTTI_GPU_DIRECT=0: then MPI and UCX get host memory
 * only.
 *
 * An MPI or UCX that waits only for its own device is safe: NCCL is called in one order, and only
 * when all ranks of the host have reached the call (MEET and ORDER in nccl.h). So all work on a
 * device belongs to launches that every rank has made. This work needs no further message, so it
 * ends. tests/multi/mpi/mpi_gpu_direct_ends.sh runs such an MPI while NCCL works; without MEET the
 * test hangs. If an MPI also waits for another rank, in a call that must not block, a deadlock is
 * possible.
 */
#include "call/device_setup.h"

#include "base/compiler.h"
#include "base/log.h"
#include "base/status.h"

#include <stdlib.h>

/* Slots of a lane. An allreduce between hosts receives from at most log2(hosts) + 1 ranks, see
   coll/between.c: two slots for each of these ranks, and one slot per stream to gather data for a
   message. */
static uint32_t slots_for(uint32_t nhosts)
{
    uint32_t receivers = 1;

    for (uint32_t reach = 1; reach < nhosts; reach *= 2)
        receivers++;
    return 2 * receivers + TUTTI__SCHED_STREAMS;
}

/* Bytes of a slot: the largest power of two that is at most a chunk, and with which all slots fit
   in STAGE. */
static size_t message_bytes(const tutti__exec_device_t *device, uint32_t slots)
{
    size_t most = TUTTI__MIN(device->chunk_bytes, device->stage_bytes / slots), bytes = 1;

    while (bytes <= most / 2)
        bytes *= 2;
    return bytes;
}

/* Do all transports between hosts take device memory? */
static tutti_status_t ask_transports(const tutti__device_setup_t *setup)
{
    const tutti__topo_t *topo = setup->topo;
    const char *device = setup->device->ops->name;
    tutti_status_t status = TUTTI_OK;

    for (uint32_t r = 0; r < topo->size && status == TUTTI_OK; r++) {
        tutti__xport_t *x = setup->xport[r];

        if (topo->host_of[r] == topo->host_of[topo->rank])
            continue;
        status =
            x->ops->take_device != NULL
                ? x->ops->take_device(x, device)
                : tutti__fail(TUTTI_ERR_UNSUPPORTED, "the transport '%s' does not take %s memory",
                              x->ops->name, device);
    }
    return status;
}

static tutti_status_t open_lane(tutti__exec_device_t *device, tutti__device_lane_t *lane,
                                size_t slots_bytes)
{
    void *direct = NULL;
    tutti_status_t status = device->ops->stream_make(1, &lane->between);

    if (status == TUTTI_OK)
        status = device->ops->alloc(device->stage_bytes + slots_bytes, &direct);
    lane->gpu_direct = direct;
    return status;
}

static void close_lanes(tutti__exec_device_t *device, int keeps)
{
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES && !tutti__device_is_stuck(device); i++) {
        tutti__device_lane_t *lane = &device->lane[i];

        if (lane->between != NULL)
            device->ops->stream_drop(lane->between);
        if (lane->gpu_direct != NULL && !keeps)
            device->ops->free(lane->gpu_direct);
        lane->between = NULL;
        lane->gpu_direct = NULL;
    }
}

/* Log the decision. why: the reason against device memory; NULL: device memory is used. */
static void tell(const tutti__device_setup_t *setup, const char *why)
{
    TUTTI__LOG(setup->world == NULL && setup->topo->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
               "device memory to other hosts: %s%s",
               why != NULL ? "through host memory: " : "direct", why != NULL ? why : "");
}

/* Prepare this rank for messages in device memory. After an error, `why` gets the reason. */
static tutti_status_t make_ready(const tutti__device_setup_t *setup, size_t slots_bytes, char *why,
                                 size_t capacity)
{
    tutti__exec_device_t *device = setup->device;
    tutti_status_t status = ask_transports(setup);

    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES && status == TUTTI_OK; i++)
        status = open_lane(device, &device->lane[i], slots_bytes);
    if (status != TUTTI_OK)
        snprintf(why, capacity, "%s", tutti_last_error());
    return status;
}

tutti_status_t tutti__device_open_gpu_direct(const tutti__device_setup_t *setup)
{
    tutti__exec_device_t *device = setup->device;
    uint32_t slots = slots_for(setup->topo->nhosts), first;
    size_t bytes = message_bytes(device, slots);
    char why[TUTTI__ERROR_BYTES] = "";
    tutti_status_t status, mine;

    if (setup->topo->nhosts == 1 || device->node == NULL)
        return TUTTI_OK;
    if (!setup->conf->shared.gpu_direct) {
        tell(setup, "TUTTI_GPU_DIRECT is 0");
        return TUTTI_OK;
    }
    mine = make_ready(setup, slots * bytes, why, sizeof(why));
    status = tutti__device_exchange(setup, mine);
    first = tutti__device_first(setup, 1);
    if (status == TUTTI_OK && first == setup->topo->size) {
        device->gpu_direct_slots = slots;
        device->gpu_direct_bytes = bytes;
        tell(setup, NULL);
        return TUTTI_OK;
    }
    close_lanes(device, 0);
    if (mine == TUTTI_OK)
        snprintf(why, sizeof(why), "rank %u has no transport, or no memory, for it", first);
    if (status == TUTTI_OK)
        tell(setup, why);
    return status;
}

void tutti__device_close_gpu_direct(const tutti__device_setup_t *setup)
{
    close_lanes(setup->device, setup->keeps);
}
