/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One NCCL communicator of all ranks of several hosts, for the algorithm nccl-flat; and the
 * schedules of its launch sequencer. Opened with the world, and only if rank 0's TUTTI_ALGORITHM
 * names nccl-flat. Because the user has named it, a failure is an error on all ranks:
 *
 *   1. rank 0 makes NCCL's id, and each host's leader an order of launches in its arena
 *   2. all ranks begin to open the communicator, and exchange whether this worked
 *   3. all ranks wait until NCCL has connected, at most until the deadline
 */
#include "api/device.h"

#include "base/status.h"
#include "node/nccl/nccl.h"

#include <stdlib.h>

/* Bytes per rank of NCCL's stage, which only alltoalls use: the least, since there are none. */
#define LEAST_STAGE 16

typedef struct {
    uint64_t order;      /* leaders: offset in the arena */
    tutti__nccl_id_t id; /* rank 0's */
    char identity[TUTTI__SHARED_IDENTITY_BYTES];
} facts_t;

static tutti_status_t lacks(const char *why)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "TUTTI_ALGORITHM=allreduce:nccl-flat cannot be used: %s", why);
}

static tutti_status_t build(tutti__comm_t *comm, tutti__collective_t collective, int in_place,
                            tutti__sched_t **ret_sched)
{
    const tutti__coll_args_t args = { .rank = comm->topo->rank, .in_place = in_place };

    return tutti__algorithm_find(collective, "binomial")->build(&comm->shape, &args, ret_sched);
}

static tutti_status_t prepare(tutti__comm_t *comm, facts_t *mine)
{
    tutti__exec_device_t *device = &comm->device;
    tutti_status_t status;
    void *order;

    tutti__device_identify(comm, mine->identity);
    status = build(comm, TUTTI__ROOT_REDUCE, 0, &device->gate[TUTTI__GATE_COME]);
    if (status == TUTTI_OK)
        status = build(comm, TUTTI__BROADCAST, 1, &device->gate[TUTTI__GATE_TURN]);
    if (status == TUTTI_OK && comm->topo->rank == 0)
        status = device->ops->nccl_id(&mine->id);
    if (status != TUTTI_OK || tutti_local_rank(comm->handle) != 0)
        return status;
    status = tutti__arena_alloc(comm->machine->arena, sizeof(tutti__nccl_order_t), &order);
    /* The page is never freed: other ranks may read it after this rank has closed. */
    if (status == TUTTI_OK)
        tutti__arena_offset(comm->machine->arena, order, sizeof(tutti__nccl_order_t), &mine->order);
    return status;
}

static tutti_status_t begin(tutti__comm_t *comm, const facts_t *facts)
{
    const tutti__topo_t *topo = comm->topo;
    uint32_t leader = topo->by_host[topo->host_first[topo->host_of[topo->rank]]];
    char *base = comm->machine->base[comm->machine->index_of[leader]];
    const tutti__nccl_open_t with = {
        .ops = comm->device.ops,
        .device = comm->device.device,
        .me = topo->rank,
        .nlocal = topo->size,
        .flat = 1,
        .leader = (int32_t)leader,
        .host = comm->node,
        .order = (tutti__nccl_order_t *)(void *)(base + facts[leader].order),
        .tickets = tutti__nccl_node_tickets(comm->device.node),
        .id = &facts[0].id,
        .stage_bytes = (size_t)LEAST_STAGE * topo->size,
        .serves = tutti__nccl_node_serves_what(comm->device.node),
    };

    return tutti__nccl_node_open(&with, &comm->device.flat);
}

static tutti_status_t open_flat(tutti__comm_t *comm, facts_t *facts)
{
    facts_t mine = { .order = 0 };
    tutti_status_t status = TUTTI_OK;
    char words[TUTTI__SHARED_WORDS];

    if (facts == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "NCCL's facts of %u ranks", comm->topo->size);
    if (status == TUTTI_OK)
        status = prepare(comm, &mine);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), facts);
    if (status != TUTTI_OK)
        return status;
    /* By machine, not by host: TUTTI_HOST_ID may divide a machine into several hosts. */
    if (tutti__device_is_shared(facts->identity, sizeof(*facts), comm->topo->machine_of,
                                comm->topo->size, words))
        return lacks(words);
    /* NCCL waits for all ranks, so all must have begun. */
    status = tutti__boot_agree(comm->boot, begin(comm, facts));
    if (status == TUTTI_OK)
        status = tutti__device_settle(comm, comm->device.flat, (int32_t *)(void *)facts,
                                      "the ranks of all hosts");
    if (status != TUTTI_OK && comm->device.flat != NULL)
        tutti__nccl_node_abort(comm->device.flat);
    return status;
}

tutti_status_t tutti__device_open_flat(tutti__comm_t *comm)
{
    tutti_status_t status;
    facts_t *facts;

    if (comm->world != comm || comm->topo->nhosts == 1 ||
        !tutti__override_is_flat(comm->conf.shared.algorithm))
        return TUTTI_OK;
    if (comm->device.ops == NULL)
        return lacks("there is no device that all ranks use, see TUTTI_DEVICE");
    if (comm->device.node == NULL)
        return lacks("there is no NCCL");
    facts = calloc(comm->topo->size, sizeof(*facts));
    status = open_flat(comm, facts);
    free(facts);
    return status;
}

void tutti__device_close_flat(tutti__exec_device_t *device)
{
    if (device->flat != NULL)
        device->flat->ops->close(device->flat);
    for (int i = 0; i < TUTTI__GATE_STEPS; i++)
        tutti__sched_free(device->gate[i]);
}
