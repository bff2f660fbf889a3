/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides whether messages between hosts go from and to device memory (exec/direct.c). They do so
 * on all ranks or on none. Conditions: TUTTI_GPU_DIRECT is not 0, NCCL serves the hosts, the
 * transport to each rank of another host reports that it takes device memory, and the memory can be
 * allocated.
 *
 * The hazard: an MPI that takes device memory may at any time launch copies of its own, wait for
 * the device, or allocate on it. If NCCL's work is on the device and waits for other ranks, and
 * these wait for MPI, no rank makes progress until TUTTI_TIMEOUT. NCCL's documents call the
 * combination unsafe. UCX and MPI with GPUDirect RDMA do not use the device for long messages, but
 * do not guarantee it. So if jobs hang, set TUTTI_GPU_DIRECT=0: then MPI gets host memory only.
 *
 * An MPI that waits only for its own device is safe: NCCL is called in one order, and only when all
 * ranks of the host have reached the call (MEET and TURN in nccl.h). So all work on a device
 * belongs to launches that every rank has made. This work needs no further message, and ends.
 * tests/multi/mpi/mpi_direct_ends.sh runs such an MPI while NCCL works; it hangs without MEET. Only
 * an MPI that also waits for another rank, in a call that must not block, could cause a deadlock.
 */
#include "api/device.h"

#include "base/compiler.h"
#include "base/log.h"
#include "base/status.h"
#include "node/nccl/nccl.h"

#include <stdlib.h>

/* Slots of a lane. An allreduce between hosts receives from at most log2(hosts) + 1 ranks, see
   coll/between.c: two slots for each of them, and one per stream to gather data for a message. */
static uint32_t slots_for(uint32_t nhosts)
{
    uint32_t receivers = 1;

    for (uint32_t reach = 1; reach < nhosts; reach *= 2)
        receivers++;
    return 2 * receivers + TUTTI__SCHED_STREAMS;
}

/* The largest power of two that is at most a chunk, and whose slots take at most STAGE. */
static size_t message_bytes(const tutti__exec_device_t *device, uint32_t slots)
{
    size_t most = TUTTI__MIN(device->chunk_bytes, device->stage_bytes / slots), bytes = 1;

    while (bytes <= most / 2)
        bytes *= 2;
    return bytes;
}

/* Do all transports between hosts take device memory? ret_peer: a peer whose transport does not. */
static int transports_take(const tutti__comm_t *comm, uint32_t *ret_peer)
{
    const tutti__topo_t *topo = comm->topo;

    for (uint32_t r = 0; r < topo->size; r++) {
        tutti__xport_t *x = comm->xport[r];

        if (topo->host_of[r] == topo->host_of[topo->rank])
            continue;
        *ret_peer = r;
        if (x->ops->takes_device == NULL || !x->ops->takes_device(x, comm->device.ops->name))
            return 0;
    }
    return 1;
}

static tutti_status_t open_lane(tutti__exec_device_t *device, tutti__device_lane_t *lane,
                                size_t slots_bytes)
{
    void *direct = NULL;
    tutti_status_t status = device->ops->stream_make(1, &lane->between);

    if (status == TUTTI_OK)
        status = device->ops->alloc(device->stage_bytes + slots_bytes, &direct);
    lane->direct = direct;
    return status;
}

static void close_lanes(tutti__exec_device_t *device, int keeps)
{
    for (uint32_t i = 0; i < TUTTI__LANES && !tutti__nccl_is_stuck(device->device); i++) {
        tutti__device_lane_t *lane = &device->lane[i];

        if (lane->between != NULL)
            device->ops->stream_drop(lane->between);
        if (lane->direct != NULL && !keeps)
            device->ops->free(lane->direct);
        lane->between = NULL;
        lane->direct = NULL;
    }
}

/* Log the decision. why: the reason against device memory; NULL: it is used. */
static void tell(const tutti__comm_t *comm, const char *why)
{
    TUTTI__LOG(comm->world == comm && comm->topo->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
               "device memory to other hosts: %s%s",
               why != NULL ? "through the host's: " : "direct", why != NULL ? why : "");
}

/* This rank's vote; if it is no, `why` gets the reason. */
static uint32_t make_ready(tutti__comm_t *comm, size_t slots_bytes, char *why, size_t room)
{
    tutti__exec_device_t *device = &comm->device;
    tutti_status_t status = TUTTI_OK;
    uint32_t peer = 0;

    if (!transports_take(comm, &peer)) {
        snprintf(why, room, "the transport '%s' to rank %u does not say that it takes %s memory",
                 comm->xport[peer]->ops->name, peer, device->ops->name);
        return 0;
    }
    for (uint32_t i = 0; i < TUTTI__LANES && status == TUTTI_OK; i++)
        status = open_lane(device, &device->lane[i], slots_bytes);
    if (status != TUTTI_OK)
        snprintf(why, room, "%s", tutti_last_error());
    return status == TUTTI_OK;
}

/* Exchange the votes. *ret_all: all ranks vote yes. */
static tutti_status_t vote(tutti__comm_t *comm, uint32_t mine, char *why, size_t room, int *ret_all)
{
    uint32_t size = comm->topo->size, first = 0;
    uint32_t *ready = calloc(size, sizeof(*ready));
    tutti_status_t status = TUTTI_OK;

    if (ready == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "transports of %u ranks", size);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), ready);
    while (status == TUTTI_OK && first < size && ready[first])
        first++;
    free(ready);
    if (mine && first < size)
        snprintf(why, room, "rank %u has no transport, or no memory, for it", first);
    *ret_all = first == size;
    return status;
}

tutti_status_t tutti__device_open_direct(tutti__comm_t *comm)
{
    uint32_t slots = slots_for(comm->topo->nhosts);
    size_t bytes = message_bytes(&comm->device, slots);
    char why[TUTTI__ERROR_BYTES] = "";
    tutti_status_t status;
    uint32_t mine;
    int all = 0;

    if (comm->topo->nhosts == 1 || comm->device.node == NULL)
        return TUTTI_OK;
    if (!comm->conf.shared.gpu_direct) {
        tell(comm, "TUTTI_GPU_DIRECT is 0");
        return TUTTI_OK;
    }
    mine = make_ready(comm, slots * bytes, why, sizeof(why));
    status = vote(comm, mine, why, sizeof(why), &all);
    if (status != TUTTI_OK || !all)
        close_lanes(&comm->device, 0);
    if (status != TUTTI_OK)
        return status;
    tell(comm, all ? NULL : why);
    if (all) {
        comm->device.direct_slots = slots;
        comm->device.direct_bytes = bytes;
    }
    return TUTTI_OK;
}

void tutti__device_close_direct(tutti__comm_t *comm)
{
    int keeps = 0;

    for (uint32_t r = 0; r < comm->topo->size && comm->device.direct_bytes > 0; r++) {
        tutti__xport_t *x = r != comm->topo->rank ? comm->xport[r] : NULL;

        keeps |= x != NULL && x->ops->keeps != NULL && x->ops->keeps(x);
    }
    if (keeps)
        TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u leaves device memory that messages may still reach",
                   comm->topo->rank);
    close_lanes(&comm->device, keeps);
}
