/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL among the ranks of each host:
 *
 *   1. each host's leader makes NCCL's id, and the page of the launch order in its arena. Each rank
 *      reports the types that its NCCL serves: only types that all ranks report are used. Each rank
 *      also reports its GPU, because NCCL refuses two ranks of a host on one GPU
 *   2. all ranks begin to open NCCL's communicators, and exchange whether this worked
 *   3. all ranks wait until NCCL has connected, at most until the deadline
 */
#include "call/device_meet.h"

#include "base/log.h"
#include "base/status.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static void warn_staged(const tutti__device_setup_t *setup, const char *why)
{
    if (setup->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "no NCCL, so device memory goes through the host: %s", why);
}

/* The types that NCCL serves on all ranks. If only some ranks used NCCL for a type, the ranks would
   take different routes. */
static tutti__nccl_serves_t find_common(const tutti__meet_facts_t *facts, uint32_t size)
{
    tutti__nccl_serves_t common = facts[0].serves;

    for (uint32_t r = 1; r < size; r++)
        tutti__nccl_agree(&common, &facts[r].serves);
    return common;
}

static tutti_status_t begin(const tutti__device_setup_t *setup, const tutti__meet_facts_t *facts,
                            tutti__node_t **ret_node)
{
    const tutti__topo_t *topo = setup->topo;
    uint32_t host = topo->host_of[topo->rank];
    const tutti__nccl_serves_t common = find_common(facts, topo->size);
    tutti__nccl_open_t with = tutti__meet_with(setup, facts);

    with.me = topo->local_of[topo->rank];
    with.nlocal = topo->host_first[host + 1] - topo->host_first[host];
    with.tickets = setup->world == NULL ? NULL : tutti__nccl_node_tickets(setup->world->node);
    with.id = &facts[with.leader].id;
    with.stage_bytes = (size_t)setup->conf->shared.device_chunk_bytes * with.nlocal;
    with.serves = &common;
    return tutti__nccl_node_open(&with, ret_node);
}

/* Steps 2 and 3. */
static tutti_status_t connect_nccl(const tutti__device_setup_t *setup,
                                   const tutti__meet_facts_t *facts)
{
    char words[TUTTI__ERROR_BYTES];
    tutti__node_t *node = NULL;
    tutti_status_t status, mine = begin(setup, facts, &node);

    snprintf(words, sizeof(words), "%s", mine != TUTTI_OK ? tutti_last_error() : "");
    status = tutti__device_exchange(setup, mine);
    if (status == TUTTI_OK && tutti__device_first(setup, 0) == setup->topo->size) {
        warn_staged(setup, words);
        return TUTTI_OK;
    }
    if (status == TUTTI_OK && mine != TUTTI_OK)
        status = tutti__fail(mine, "%s", words);
    status = tutti__boot_agree(setup->boot, status);
    /* NCCL waits for all ranks, so all ranks must have begun to open NCCL. */
    if (status == TUTTI_OK)
        status = tutti__meet_settle(setup, node, "this host's ranks");
    if (status == TUTTI_OK) {
        setup->device->node = node;
    } else if (node != NULL) {
        tutti__nccl_node_abort(node);
        node->ops->close(node);
    }
    return status;
}

/* The communicator has no NCCL: each leader without NCCL logs the reason, and rank 0 logs the
   effect on calls. first: the first rank without NCCL. */
static void warn_leaders(const tutti__device_setup_t *setup, uint32_t first, const char *mine)
{
    char words[64];

    if (mine[0] != '\0' && setup->topo->rank != 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "no NCCL on the host of rank %u: %s", setup->topo->rank, mine);
    snprintf(words, sizeof(words), "the host of rank %u has none", first);
    warn_staged(setup, mine[0] != '\0' ? mine : words);
}

static tutti_status_t open_with(const tutti__device_setup_t *setup, tutti__meet_facts_t *facts)
{
    const tutti__topo_t *topo = setup->topo;
    char words[TUTTI__ERROR_BYTES], shared[TUTTI__MEET_WORDS];
    tutti__meet_facts_t mine = { .status = TUTTI_OK };
    uint32_t first = 0;
    tutti_status_t status;

    if (facts == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "exchange before NCCL, %u ranks", topo->size);
    else
        status = tutti__meet_prepare(setup, topo->local_of[topo->rank] == 0, &mine);
    snprintf(words, sizeof(words), "%s", mine.status != TUTTI_OK ? tutti_last_error() : "");
    status = tutti__boot_agree(setup->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(setup->boot, &mine, sizeof(mine), facts);
    if (status != TUTTI_OK)
        return status;
    while (first < topo->size && facts[first].status == TUTTI_OK)
        first++;
    if (first < topo->size)
        warn_leaders(setup, first, words);
    else if (tutti__meet_is_shared(facts, topo->host_of, topo->size, shared))
        warn_staged(setup, shared);
    else
        return connect_nccl(setup, facts);
    return TUTTI_OK;
}

tutti_status_t tutti__device_open_nccl(const tutti__device_setup_t *setup)
{
    tutti__meet_facts_t *facts;
    tutti_status_t status;

    /* The world has no NCCL, and has logged the reason. */
    if (setup->world != NULL && setup->world->node == NULL)
        return TUTTI_OK;
    facts = calloc(setup->topo->size, sizeof(*facts));
    status = open_with(setup, facts);
    free(facts);
    return status;
}

tutti_status_t tutti__device_register(const tutti__exec_device_t *device, void *fuse)
{
    assert(device->node != NULL && fuse != NULL && device->fuse_bytes > 0);
    return tutti__nccl_node_register(device->node, fuse, device->fuse_bytes);
}

void tutti__device_unregister(const tutti__exec_device_t *device)
{
    assert(device->node != NULL);
    tutti__nccl_node_unregister(device->node);
}

int tutti__device_is_stuck(const tutti__exec_device_t *device)
{
    return tutti__nccl_is_stuck(device->device);
}
