/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One NCCL communicator of all ranks of several hosts, for the algorithm nccl-flat; and the
 * schedules of its launch sequencer. Both are opened with the world, and only if rank 0's
 * TUTTI_ALGORITHM names nccl-flat. Because the user has named nccl-flat, a failure is an error on
 * all ranks. Steps:
 *
 *   1. rank 0 makes NCCL's id, and each host's leader makes the page of the launch order in its
 *      arena
 *   2. all ranks begin to open the communicator, and exchange whether this worked
 *   3. all ranks wait until NCCL has connected, at most until the deadline
 */
#include "call/device_meet.h"

#include "base/status.h"

#include <assert.h>
#include <stdlib.h>

/* Bytes per rank of NCCL's stage. Only alltoalls use the stage, and this communicator makes no
   alltoalls. So this is the smallest size. */
#define LEAST_STAGE 16

static tutti_status_t lacks(const char *why)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "TUTTI_ALGORITHM=allreduce:nccl-flat cannot be used: %s", why);
}

static tutti_status_t build(const tutti__device_setup_t *setup, tutti__collective_t collective,
                            int in_place, tutti__sched_t **ret_sched)
{
    const tutti__coll_args_t args = { .rank = setup->topo->rank, .in_place = in_place };

    return tutti__algorithm_find(collective, "binomial")->build(setup->shape, &args, ret_sched);
}

static tutti_status_t prepare(const tutti__device_setup_t *setup, tutti__meet_facts_t *mine)
{
    tutti__sched_t **step = setup->device->sequencer;
    tutti_status_t status = build(setup, TUTTI__ROOT_REDUCE, 0, &step[TUTTI__SEQUENCER_COME]);

    if (status == TUTTI_OK)
        status = build(setup, TUTTI__BROADCAST, 1, &step[TUTTI__SEQUENCER_NUMBER]);
    if (status == TUTTI_OK)
        status = tutti__meet_prepare(setup, setup->topo->rank == 0, mine);
    return status == TUTTI_OK ? (tutti_status_t)mine->status : status;
}

static tutti_status_t begin(const tutti__device_setup_t *setup, const tutti__meet_facts_t *facts)
{
    tutti__nccl_open_t with = tutti__meet_with(setup, facts);

    assert(setup->device->all_node == NULL && setup->device->node != NULL);
    with.me = setup->topo->rank;
    with.nlocal = setup->topo->size;
    with.flat = 1;
    with.tickets = tutti__nccl_node_tickets(setup->device->node);
    with.id = &facts[0].id;
    with.stage_bytes = (size_t)LEAST_STAGE * setup->topo->size;
    with.serves = tutti__nccl_node_serves_what(setup->device->node);
    setup->device->sequencer_ops = &tutti__nccl_sequencer_ops;
    return tutti__nccl_node_open(&with, &setup->device->all_node);
}

static tutti_status_t open_flat(const tutti__device_setup_t *setup, tutti__meet_facts_t *facts)
{
    const tutti__topo_t *topo = setup->topo;
    tutti__meet_facts_t mine = { .status = TUTTI_OK };
    tutti_status_t status;
    char words[TUTTI__MEET_WORDS];

    if (facts == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "exchange before NCCL, %u ranks", topo->size);
    else
        status = prepare(setup, &mine);
    status = tutti__boot_agree(setup->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(setup->boot, &mine, sizeof(mine), facts);
    if (status != TUTTI_OK)
        return status;
    /* Compare by machine, not by host: TUTTI_HOST_ID may divide a machine into several hosts. */
    if (tutti__meet_is_shared(facts, topo->machine_of, topo->size, words))
        return lacks(words);
    /* NCCL waits for all ranks, so all ranks must have begun to open NCCL. */
    status = tutti__boot_agree(setup->boot, begin(setup, facts));
    if (status == TUTTI_OK)
        status = tutti__meet_settle(setup, setup->device->all_node, "the ranks of all hosts");
    if (status != TUTTI_OK && setup->device->all_node != NULL)
        tutti__nccl_node_abort(setup->device->all_node);
    return status;
}

tutti_status_t tutti__device_open_flat(const tutti__device_setup_t *setup)
{
    tutti_status_t status;
    tutti__meet_facts_t *facts;

    if (setup->world != NULL || setup->topo->nhosts == 1 ||
        !tutti__override_is_nccl_flat(setup->conf->shared.algorithm))
        return TUTTI_OK;
    if (setup->device->ops == NULL)
        return lacks("there is no device that all ranks use, see TUTTI_DEVICE");
    if (setup->device->node == NULL)
        return lacks("there is no NCCL");
    facts = calloc(setup->topo->size, sizeof(*facts));
    status = open_flat(setup, facts);
    free(facts);
    return status;
}

void tutti__device_close_flat(tutti__exec_device_t *device)
{
    if (device->all_node != NULL)
        device->all_node->ops->close(device->all_node);
    for (int i = 0; i < TUTTI__SEQUENCER_STEPS; i++)
        tutti__sched_free(device->sequencer[i]);
}
