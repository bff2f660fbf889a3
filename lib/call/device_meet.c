/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchange of data before an NCCL communicator is opened. See device_meet.h. */
#include "call/device_meet.h"

#include "base/constants.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The GPU's identity, as NCCL compares it; "" if NCCL allows several ranks on one GPU. */
static void identify(const tutti__device_setup_t *setup, tutti__meet_facts_t *mine)
{
    const char *host = tutti__conf_nccl_host();
    char gpu[TUTTI__DEVICE_IDENTITY_BYTES] = "";

    if (tutti__conf_nccl_shares_gpus())
        return;
    setup->device->ops->identity(setup->device->device, gpu);
    if (gpu[0] != '\0')
        snprintf(mine->identity, sizeof(mine->identity), "%s %016" PRIx64, gpu,
                 host != NULL ? tutti__hash(host, strlen(host)) : 0);
}

tutti_status_t tutti__meet_prepare(const tutti__device_setup_t *setup, int makes_id,
                                   tutti__meet_facts_t *mine)
{
    tutti__arena_t *arena = setup->machine->arena;
    tutti_status_t status;
    void *order;

    identify(setup, mine);
    tutti__nccl_ask(setup->device->ops, &mine->serves);
    if (setup->topo->local_of[setup->topo->rank] == 0) {
        status = tutti__arena_alloc(arena, sizeof(tutti__nccl_order_t), &order);
        if (status != TUTTI_OK)
            return status;
        /* The page is never freed: other ranks may read it after this rank has closed. */
        tutti__arena_offset(arena, order, sizeof(tutti__nccl_order_t), &mine->order);
    }
    mine->status = makes_id ? setup->device->ops->nccl_id(&mine->id) : TUTTI_OK;
    return TUTTI_OK;
}

int tutti__meet_is_shared(const tutti__meet_facts_t *facts, const uint32_t *place, uint32_t size,
                          char ret_words[TUTTI__MEET_WORDS])
{
    for (uint32_t r = 1; r < size; r++)
        for (uint32_t s = 0; s < r && facts[r].identity[0] != '\0'; s++) {
            if (place[s] != place[r] || strcmp(facts[s].identity, facts[r].identity) != 0)
                continue;
            snprintf(ret_words, TUTTI__MEET_WORDS,
                     "ranks %u and %u use the same GPU, which NCCL refuses", s, r);
            return 1;
        }
    return 0;
}

tutti__nccl_open_t tutti__meet_with(const tutti__device_setup_t *setup,
                                    const tutti__meet_facts_t *facts)
{
    const tutti__topo_t *topo = setup->topo;
    const tutti__machine_t *machine = setup->machine;
    uint32_t leader = topo->by_host[topo->host_first[topo->host_of[topo->rank]]];
    char *base = machine->base[machine->index_of[leader]];

    return (tutti__nccl_open_t){
        .ops = setup->device->ops,
        .device = setup->device->device,
        .leader = (int32_t)leader,
        .host = setup->node,
        .order = (tutti__nccl_order_t *)(void *)(base + facts[leader].order),
    };
}

/* ---- waiting for the connection ---- */

static tutti_status_t settle_round(tutti__node_t *node)
{
    uint64_t limit = tutti__now_ns() + TUTTI__CONNECT_ROUND_NS;
    tutti_status_t status;

    while ((status = tutti__nccl_node_settle(node)) == TUTTI__AGAIN && tutti__now_ns() < limit)
        usleep(TUTTI__CONNECT_NAP_US);
    return status;
}

/* AGAIN: some rank is not connected. Sets no error text. */
static tutti_status_t find_settled(const int32_t *statuses, uint32_t size)
{
    tutti_status_t status = TUTTI_OK;

    for (uint32_t r = 0; r < size && (status == TUTTI_OK || status == TUTTI__AGAIN); r++)
        if (statuses[r] != TUTTI_OK)
            status = (tutti_status_t)statuses[r];
    return status;
}

tutti_status_t tutti__meet_settle(const tutti__device_setup_t *setup, tutti__node_t *node,
                                  const char *whom)
{
    uint64_t begun = tutti__now_ns(), limit = tutti__boot_deadline(setup->boot);
    tutti_status_t mine = TUTTI__AGAIN, all = TUTTI__AGAIN, status;

    while (all == TUTTI__AGAIN) {
        if (mine == TUTTI__AGAIN)
            mine = settle_round(node);
        if (mine == TUTTI__AGAIN && tutti__now_ns() > limit)
            mine = tutti__fail(TUTTI_ERR_TIMEOUT, "%s waited %.3g s for NCCL to connect %s",
                               tutti__boot_rank_name(setup->boot, setup->topo->rank),
                               (double)(tutti__now_ns() - begun) / 1e9, whom);
        status = tutti__device_exchange(setup, mine);
        if (status != TUTTI_OK)
            return status;
        all = find_settled(setup->statuses, setup->topo->size);
    }
    if (all == TUTTI_OK)
        return TUTTI_OK;
    return tutti__boot_agree(setup->boot, mine == TUTTI__AGAIN ? TUTTI_OK : mine);
}
