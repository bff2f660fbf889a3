/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Computes hosts, machines and places from all ranks' metadata.
 *
 * These functions use only their arguments, so tests can use invented machines. The metadata come
 * from other processes, so their texts are read with a length limit. Jobs may have many ranks, so
 * the computation takes only n log n steps:
 *
 *      metadata --sort by machine and host--> groups --lowest rank of each--> leaders
 *      leaders in rank order --> numbers of hosts and machines --> lists
 */
#include "topo/topo.h"

#include "base/status.h"

#include <assert.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

static int compare_ids(const char *a, const char *b)
{
    return strncmp(a, b, TUTTI__TOPO_TEXT);
}

/* Compare by machine, host, rank. Even with TUTTI_HOST_ID, a host never spans several machines: the
   ranks of a host must be able to share memory. All entries are in one array, in the order of
   ranks, so comparing the addresses of two entries compares their ranks. */
static int compare(const void *a, const void *b)
{
    const tutti__topo_facts_t *x = *(const tutti__topo_facts_t *const *)a;
    const tutti__topo_facts_t *y = *(const tutti__topo_facts_t *const *)b;
    int order = compare_ids(x->machine_id, y->machine_id);

    if (order == 0)
        order = compare_ids(x->host_id, y->host_id);
    return order != 0 ? order : (x > y) - (x < y);
}

/*
 * Set leader[rank] to the lowest rank of its group. `sorted` lists the entries group by group. A
 * machine's entries are sorted by host, so its first entry need not be its lowest rank.
 */
static void find_leaders(const tutti__topo_facts_t *const *sorted, const tutti__topo_facts_t *facts,
                         uint32_t size, int by_host, uint32_t *leader)
{
    for (uint32_t begin = 0, end; begin < size; begin = end) {
        const tutti__topo_facts_t *lowest = sorted[begin];

        for (end = begin; end < size; end++) {
            if (compare_ids(sorted[end]->machine_id, sorted[begin]->machine_id) != 0 ||
                (by_host && compare_ids(sorted[end]->host_id, sorted[begin]->host_id) != 0))
                break;
            if (sorted[end] < lowest)
                lowest = sorted[end];
        }
        for (uint32_t i = begin; i < end; i++)
            leader[sorted[i] - facts] = (uint32_t)(lowest - facts);
    }
}

/* Replace leaders by numbers of groups, in place, and return the number of groups. A leader is the
   lowest rank of its group, so the loop numbers the leader first. */
static uint32_t number_groups(uint32_t *leader, uint32_t size)
{
    uint32_t groups = 0;

    for (uint32_t rank = 0; rank < size; rank++)
        leader[rank] = leader[rank] == rank ? groups++ : leader[leader[rank]];
    return groups;
}

/* List the ranks of each host. Call this when host_of is complete. */
static void list_hosts(tutti__topo_t *topo)
{
    /* At first, host_first[h + 1] is the number of host h's ranks so far. */
    for (uint32_t rank = 0; rank < topo->size; rank++)
        topo->local_of[rank] = topo->host_first[topo->host_of[rank] + 1]++;
    topo->min_local = topo->size;
    for (uint32_t host = 0; host < topo->nhosts; host++) {
        if (topo->host_first[host + 1] < topo->min_local)
            topo->min_local = topo->host_first[host + 1];
        topo->host_first[host + 1] += topo->host_first[host];
    }
    for (uint32_t rank = 0; rank < topo->size; rank++)
        topo->by_host[topo->host_first[topo->host_of[rank]] + topo->local_of[rank]] = rank;
}

/* Add the mask in `text`, which write_mask() (detect.c) has written, to `mask`. */
static void add_mask(const char *text, hwloc_bitmap_t mask, hwloc_bitmap_t scratch)
{
    char ended[sizeof(((tutti__topo_facts_t *)0)->cpus) + 1] = "";
    int rc;

    memcpy(ended, text, sizeof(ended) - 1);
    if (strncmp(ended, "0x", 2) == 0)
        rc = hwloc_bitmap_taskset_sscanf(scratch, ended);
    else
        rc = hwloc_bitmap_list_sscanf(scratch, ended);
    if (rc == 0)
        hwloc_bitmap_or(mask, mask, scratch);
}

static tutti_status_t count_machine(tutti__topo_t *topo, const tutti__topo_facts_t *facts)
{
    hwloc_bitmap_t mask = hwloc_bitmap_alloc(), scratch = hwloc_bitmap_alloc();
    int32_t l3 = facts[topo->rank].place[TUTTI__PLACE_L3];
    tutti_status_t status = TUTTI_OK;
    int cpus;

    if (mask == NULL || scratch == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for a mask of processors");
        goto free_masks;
    }
    for (uint32_t rank = 0; rank < topo->size; rank++) {
        if (topo->machine_of[rank] != topo->machine_of[topo->rank])
            continue;
        topo->machine_ranks++;
        topo->l3_ranks += l3 < 0 || facts[rank].place[TUTTI__PLACE_L3] == l3;
        add_mask(facts[rank].cpus, mask, scratch);
    }
    cpus = hwloc_bitmap_weight(mask);
    topo->machine_cpus = cpus > 0 ? (uint32_t)cpus : 1;
    topo->oversubscribed = topo->machine_ranks > topo->machine_cpus;
    topo->l3_bytes = facts[topo->rank].l3_bytes;

free_masks:
    hwloc_bitmap_free(mask);
    hwloc_bitmap_free(scratch);
    return status;
}

/* Allocate a zeroed topo. All its arrays except host_name are in the same piece of memory. */
static tutti__topo_t *allocate(uint32_t size, uint32_t rank)
{
    size_t words = 6 * (size_t)size + 1;
    tutti__topo_t *topo = calloc(1, sizeof(*topo) + words * sizeof(uint32_t));

    if (topo == NULL)
        return NULL;
    topo->size = size;
    topo->rank = rank;
    topo->host_of = (uint32_t *)(topo + 1);
    topo->local_of = topo->host_of + size;
    topo->by_host = topo->local_of + size;
    topo->machine_of = topo->by_host + size;
    topo->group_of = topo->machine_of + size;
    topo->host_first = topo->group_of + size; /* size + 1 words, of which nhosts + 1 are used */
    return topo;
}

/* Name hosts for messages. A machine's id is its hostname, a slash, and its boot id. */
static tutti_status_t name_hosts(tutti__topo_t *topo, const tutti__topo_facts_t *facts)
{
    topo->host_name = calloc(topo->nhosts, sizeof(*topo->host_name));
    if (topo->host_name == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for the names of %u hosts",
                           topo->nhosts);
    for (uint32_t host = 0; host < topo->nhosts; host++) {
        const char *id = facts[topo->by_host[topo->host_first[host]]].host_id;

        for (int i = 0; i < TUTTI__TOPO_TEXT - 1 && id[i] != '\0' && id[i] != '/'; i++)
            topo->host_name[host][i] = id[i] > ' ' && id[i] <= '~' ? id[i] : '?';
    }
    return TUTTI_OK;
}

static void join_links(tutti__topo_t *topo, const tutti__topo_facts_t *facts)
{
    topo->link_is_rdma = 1;
    for (uint32_t rank = 0; rank < topo->size; rank++) {
        uint32_t mbps = facts[rank].link_mbps;

        topo->link_is_rdma = topo->link_is_rdma && facts[rank].link_is_rdma;
        if (mbps > 0 && (topo->link_mbps == 0 || mbps < topo->link_mbps))
            topo->link_mbps = mbps;
    }
}

tutti_status_t tutti__topo_make(const tutti__topo_facts_t *facts, uint32_t size, uint32_t rank,
                                tutti__topo_t **ret_topo)
{
    const tutti__topo_facts_t **sorted = malloc(size * sizeof(const tutti__topo_facts_t *));
    tutti__topo_t *topo = allocate(size, rank);
    tutti_status_t status;

    assert(rank < size);
    if (sorted == NULL || topo == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for the places of %u ranks", size);
        goto free_sorted;
    }
    for (uint32_t i = 0; i < size; i++)
        sorted[i] = &facts[i];
    qsort(sorted, size, sizeof(*sorted), compare);
    find_leaders(sorted, facts, size, 1, topo->host_of);
    find_leaders(sorted, facts, size, 0, topo->machine_of);
    topo->nhosts = number_groups(topo->host_of, size);
    topo->nmachines = number_groups(topo->machine_of, size);
    list_hosts(topo);
    join_links(topo, facts);
    status = count_machine(topo, facts);
    if (status == TUTTI_OK)
        status = name_hosts(topo, facts);
    if (status == TUTTI_OK)
        status = tutti__topo_find_groups(topo, facts);

free_sorted:
    free(sorted);
    if (status == TUTTI_OK)
        *ret_topo = topo;
    else
        tutti__topo_free(topo);
    return status;
}

void tutti__topo_free(tutti__topo_t *topo)
{
    if (topo != NULL)
        free(topo->host_name);
    free(topo);
}
