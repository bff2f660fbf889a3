/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations over shared memory: opening, closing, and the layout in the arenas.
 */
#include "node/shm/shm.h"

#include "base/constants.h"
#include "base/status.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

/* ---- one lane's memory ---- */

static size_t slot_bytes(size_t oneshot_bytes)
{
    return TUTTI__ROUND_UP(offsetof(tutti__announce_t, u) + oneshot_bytes + TUTTI__LINE_BYTES,
                           TUTTI__FALSE_SHARING_BYTES);
}

static size_t lane_bytes(size_t oneshot_bytes, int has_groups)
{
    return (has_groups ? 4 : 2) * slot_bytes(oneshot_bytes) + sizeof(tutti__progress_t);
}

/* One rank's share of oneshot_bytes, which is a limit for the data of all ranks together. */
static size_t oneshot_share(size_t all_bytes, uint32_t nlocal)
{
    return TUTTI__MAX(all_bytes / nlocal, sizeof(((tutti__announce_t *)0)->u.data));
}

size_t tutti__shm_control_bytes(uint32_t nlanes, uint32_t nlocal, int has_groups,
                                size_t oneshot_bytes)
{
    return nlanes * lane_bytes(oneshot_share(oneshot_bytes, nlocal), has_groups);
}

static void find_peer(const tutti__shm_t *shm, char *control, uint32_t lane,
                      tutti__shm_peer_t *peer)
{
    size_t slot = slot_bytes(shm->oneshot_bytes);
    char *at = control + lane * lane_bytes(shm->oneshot_bytes, shm->ngroups > 1);

    peer->announce[0] = (tutti__announce_t *)at;
    peer->announce[1] = (tutti__announce_t *)(at + slot);
    peer->progress = (tutti__progress_t *)(at + 2 * slot);
}

/* ---- opening and closing ---- */

void tutti__shm_close(tutti__node_t *node)
{
    tutti__shm_t *shm = (tutti__shm_t *)node;

    if (shm == NULL)
        return;
    /* Do not free the ranges of the arena: a peer may still read the data of the peer's last
       operation there, or write an announcement there. */
    for (uint32_t i = 0; i < TUTTI__LANES; i++)
        free(shm->lane[i].peer);
    free(shm->local_to_machine);
    free(shm->local_to_rank);
    free(shm->srcs);
    free(shm->bufs);
    free(shm->group_first);
    free(shm->by_group);
    free(shm->sums);
    free(shm);
}

tutti_status_t tutti__shm_attach(const tutti__machine_t *machine, uint32_t nlanes, uint32_t nlocal,
                                 uint32_t me, const uint32_t *local_to_machine,
                                 const uint64_t *offset, const uint32_t *group_of,
                                 const tutti__conf_shared_t *conf, tutti__node_t **ret_node)
{
    tutti__shm_t *shm = calloc(1, sizeof(*shm));

    if (shm == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/shm");
    shm->machine = machine;
    shm->nlocal = nlocal;
    shm->me = me;
    shm->oneshot_bytes = oneshot_share(conf->oneshot_bytes, nlocal);
    shm->bulk_bytes = TUTTI__ROUND_UP(conf->node_chunk_bytes, 4096);
    shm->outgrow_bytes = UINT64_MAX;
    shm->local_to_machine = calloc(nlocal, sizeof(*shm->local_to_machine));
    shm->local_to_rank = calloc(nlocal, sizeof(*shm->local_to_rank));
    shm->srcs = calloc((size_t)TUTTI__LANES * nlocal, sizeof(*shm->srcs));
    shm->bufs = calloc((size_t)TUTTI__LANES * nlocal, sizeof(*shm->bufs));
    if (!shm->local_to_machine || !shm->local_to_rank || !shm->srcs || !shm->bufs ||
        tutti__shm_make_groups(shm, group_of) != TUTTI_OK)
        goto no_memory;
    shm->node.ops = shm->ngroups > 1 ? &tutti__shm_group_ops : &tutti__shm_ops;
    for (uint32_t i = 0; i < nlocal; i++) {
        shm->local_to_machine[i] = local_to_machine[i];
        shm->local_to_rank[i] = machine->rank[local_to_machine[i]];
    }
    for (uint32_t i = 0; i < nlanes; i++) {
        shm->lane[i].peer = calloc(nlocal, sizeof(*shm->lane[i].peer));
        if (shm->lane[i].peer == NULL)
            goto no_memory;
        for (uint32_t r = 0; r < nlocal; r++)
            find_peer(shm, machine->base[local_to_machine[r]] + offset[r], i,
                      &shm->lane[i].peer[r]);
    }
    *ret_node = &shm->node;
    return TUTTI_OK;

no_memory:
    tutti__shm_close(&shm->node);
    return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/shm for %u ranks", nlocal);
}

/* Find the machine's ranks that are on this host, and their control areas. */
static tutti_status_t attach_host(const tutti__machine_t *machine, const tutti__topo_t *topo,
                                  const uint64_t *offsets, const uint32_t *group_of,
                                  const tutti__conf_shared_t *conf, tutti__node_t **ret_node)
{
    uint32_t host = topo->host_of[topo->rank], first = topo->host_first[host];
    uint32_t nlocal = topo->host_first[host + 1] - first;
    uint32_t *index = calloc(nlocal, sizeof(*index));
    uint64_t *offset = calloc(nlocal, sizeof(*offset));
    tutti_status_t status = TUTTI_OK;

    if (index == NULL || offset == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "node/shm for %u ranks", nlocal);
    for (uint32_t i = 0; status == TUTTI_OK && i < nlocal; i++) {
        uint32_t rank = topo->by_host[first + i];

        if (machine->index_of[rank] < 0)
            status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                                 "ranks %u and %u have the same "
                                 "TUTTI_HOST_ID but are on different machines",
                                 topo->rank, rank);
        else
            index[i] = (uint32_t)machine->index_of[rank];
        offset[i] = offsets[rank];
    }
    if (status == TUTTI_OK)
        status =
            tutti__shm_attach(machine, tutti__lanes_most(topo->nhosts), nlocal,
                              topo->local_of[topo->rank], index, offset, group_of, conf, ret_node);
    free(offset);
    free(index);
    return status;
}

/*
 * Group this host's ranks by TUTTI_GROUP_SIZE if it is set, otherwise by the cores on which they
 * run. In the second case, if there are fewer processors than ranks, make one group: each level
 * costs a context switch, and ranks change their cores all the time.
 */
static uint32_t find_groups(const tutti__topo_t *topo, uint64_t group_size, uint32_t *group_of)
{
    uint32_t host = topo->host_of[topo->rank], first = topo->host_first[host];
    uint32_t nlocal = topo->host_first[host + 1] - first, ngroups = 1;

    for (uint32_t i = 0; i < nlocal; i++) {
        if (group_size > 0)
            group_of[i] = (uint32_t)(i / group_size);
        else
            group_of[i] = topo->oversubscribed ? 0 : topo->group_of[topo->by_host[first + i]];
        ngroups = TUTTI__MAX(ngroups, group_of[i] + 1);
    }
    return ngroups;
}

/* A rank's share of the L3 cache. Larger results do not stay in the cache. If the cache's size is
   unknown, a common size is assumed. */
static uint64_t cache_share(const tutti__topo_t *topo, uint64_t bytes)
{
    if (bytes == TUTTI__CONF_AUTO)
        bytes = topo->l3_bytes > 0 ? topo->l3_bytes : TUTTI__SHM_L3_BYTES;
    return bytes / topo->l3_ranks;
}

void tutti__shm_hold_blocks(tutti__node_t *node, uint32_t nblocks)
{
    tutti__shm_t *shm = (tutti__shm_t *)node;
    size_t bytes = TUTTI__ROUND_UP((size_t)nblocks * TUTTI__LINE_BYTES, 4096);

    for (uint32_t i = 0; i < TUTTI__LANES; i++)
        assert(shm->lane[i].bulk_memory == NULL);
    shm->bulk_bytes = TUTTI__MAX(shm->bulk_bytes, bytes);
}

tutti_status_t tutti__shm_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                               const tutti__conf_shared_t *conf, tutti__node_t **ret_node)
{
    const tutti__topo_t *topo = tutti__boot_topo(boot);
    uint32_t host = topo->host_of[topo->rank];
    uint32_t nlocal = topo->host_first[host + 1] - topo->host_first[host];
    uint64_t mine = 0, *offsets = calloc(topo->size, sizeof(*offsets));
    uint32_t ngroups, *group_of = calloc(nlocal, sizeof(*group_of));
    tutti__node_t *node = NULL;
    void *own = NULL;
    tutti_status_t status;

    if (offsets == NULL || group_of == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "table for %u ranks", topo->size);
    } else {
        ngroups = find_groups(topo, conf->group_size, group_of);
        status =
            tutti__arena_alloc(machine->arena,
                               tutti__shm_control_bytes(tutti__lanes_most(topo->nhosts), nlocal,
                                                        ngroups > 1, conf->oneshot_bytes),
                               &own);
    }
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK)
        goto free_own;
    tutti__arena_offset(machine->arena, own, 1, &mine);
    status = tutti__boot_allgather(boot, &mine, sizeof(mine), offsets);
    if (status != TUTTI_OK)
        goto free_own;
    status = attach_host(machine, topo, offsets, group_of, conf, &node);
    if (status == TUTTI_OK) {
        /* A node operation of the library's schedules has at most one block for each rank and each
           stream between hosts. */
        tutti__shm_hold_blocks(node,
                               topo->nhosts > 1 ? topo->size * TUTTI__SCHED_STREAMS : topo->size);
        ((tutti__shm_t *)node)->boot = boot;
        ((tutti__shm_t *)node)->outgrow_bytes = cache_share(topo, conf->l3_bytes);
    }
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK) {
        tutti__shm_close(node);
        goto free_own;
    }
    *ret_node = node;
    free(group_of);
    free(offsets);
    return TUTTI_OK;

free_own:
    tutti__arena_free(machine->arena, own);
    free(group_of);
    free(offsets);
    return status;
}
