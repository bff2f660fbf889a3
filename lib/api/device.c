/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's device. See device.h.
 *
 * It is opened in rounds. In each round all ranks exchange their status, so that all ranks have a
 * device or none, all have NCCL or none, and a failure on one rank is a failure on all:
 *
 *   1. choose the device; a part takes its world's
 *   2. each host's leader makes NCCL's id, and the order of launches in its arena. Each rank
 *      reports the types that its NCCL serves, and only those common to all ranks are used; and its
 *      GPU, since NCCL refuses two ranks of a host on one GPU
 *   3. begin to open NCCL's communicators, and exchange whether this worked
 *   4. wait until NCCL has connected, at most until the deadline. If nccl-flat is requested,
 *      device_flat.c opens one more NCCL communicator, of all ranks
 *   5. make streams, events and memory of all lanes (device_lanes.c)
 *   6. register the memory of fused buckets with NCCL: on all ranks, or on none
 *   7. allocate memory for messages between hosts, if their transports take it (device_direct.c)
 *
 * Without NCCL there still is a device; its calls run in host memory.
 */
#include "api/device.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "node/nccl/nccl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_SLEEP_US 100
/* If a rank cannot connect, NCCL on the other ranks waits for it and reports nothing. So the ranks
   exchange their status at this interval. */
#define SETTLE_ROUND_NS 100000000u

/* A rank's data of a round. */
typedef struct {
    char name[32]; /* of its device; "": none */
    int32_t status;
    int32_t is_named; /* TUTTI_DEVICE names the device */
    uint64_t order;   /* leaders: offset in the arena */
    char identity[TUTTI__SHARED_IDENTITY_BYTES];
    tutti__nccl_serves_t serves;
    tutti__nccl_id_t id;
} facts_t;

/* ---- choosing the device ---- */

static tutti_status_t find_device(const tutti__comm_t *comm, const tutti__device_ops_t **ret_ops)
{
    const char *versions;
    tutti_status_t status;

    *ret_ops = comm->world->device.ops;
    if (comm->world != comm)
        return TUTTI_OK;
    status = tutti__module_device(&comm->conf, ret_ops, &versions);
    if (status == TUTTI_OK || strcmp(comm->conf.device, "auto") != 0)
        return status;
    TUTTI__LOG(TUTTI__LOG_WARN, "the program uses a device, but calls take host memory only: %s",
               tutti_last_error());
    *ret_ops = NULL;
    return TUTTI_OK;
}

/* The first rank whose device differs from that of rank `as`; or size. */
static uint32_t find_other(const facts_t *facts, uint32_t size, uint32_t as)
{
    uint32_t r = 0;

    while (r < size && strcmp(facts[r].name, facts[as].name) == 0)
        r++;
    return r;
}

/* Do all ranks have the same device? If not, *ops becomes NULL; if a rank's TUTTI_DEVICE names one,
   this is an error. */
static tutti_status_t have_alike(tutti__comm_t *comm, const tutti__device_ops_t **ops,
                                 facts_t *facts)
{
    uint32_t size = comm->topo->size, named = 0, other;
    facts_t mine = { .status = 0 };
    tutti_status_t status;

    if (*ops != NULL)
        strncpy(mine.name, (*ops)->name, sizeof(mine.name) - 1);
    mine.is_named = *ops != NULL && strcmp(comm->conf.device, "auto") != 0;
    status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), facts);
    if (status != TUTTI_OK)
        return status;
    while (named < size && !facts[named].is_named)
        named++;
    other = find_other(facts, size, named % size);
    if (other == size)
        return TUTTI_OK;
    if (named < size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u has no device '%s', but rank %u has: TUTTI_DEVICE must name "
                           "it on all ranks (mpirun -x TUTTI_DEVICE passes it on)",
                           other, facts[named].name, named);
    /* Rank 0 and rank `other` have different devices, so one of them has none. */
    comm->lacks_device = facts[0].name[0] == '\0' ? 0 : other;
    comm->lone_device = *ops;
    *ops = NULL;
    if (comm->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "rank %u has no device, but others have: calls take host memory only",
                   comm->lacks_device);
    return TUTTI_OK;
}

static tutti_status_t choose_number(tutti__comm_t *comm)
{
    tutti__exec_device_t *device = &comm->device;
    int count, current = device->ops->current();
    tutti_status_t status;

    if (comm->world != comm) {
        device->device = comm->world->device.device;
        return TUTTI_OK;
    }
    status = device->ops->count(&count);
    if (status != TUTTI_OK)
        return status;
    if (count < 1)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "there is no %s device", device->ops->name);
    if (comm->conf.device_id >= count)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_DEVICE_ID=%d, but there are %d devices",
                           (int)comm->conf.device_id, count);
    if (comm->conf.device_id >= 0)
        device->device = (int)comm->conf.device_id;
    else
        device->device = current >= 0 ? current : tutti_local_rank(comm->handle) % count;
    return TUTTI_OK;
}

/* ---- NCCL ---- */

/* The leader's part of round 2: an id, and a zeroed page for the order of launches. */
static tutti_status_t lead(tutti__comm_t *comm, facts_t *mine)
{
    void *order;
    tutti_status_t status;

    if (tutti_local_rank(comm->handle) != 0)
        return TUTTI_OK;
    status = tutti__arena_alloc(comm->machine->arena, sizeof(tutti__nccl_order_t), &order);
    if (status != TUTTI_OK)
        return status;
    /* The page is never freed: other ranks may read it after this rank has closed. */
    tutti__arena_offset(comm->machine->arena, order, sizeof(tutti__nccl_order_t), &mine->order);
    mine->status = comm->device.ops->nccl_id(&mine->id);
    return TUTTI_OK;
}

static void warn_staged(const tutti__comm_t *comm, const char *why)
{
    if (comm->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "no NCCL, so device memory goes through the host: %s", why);
}

/* The number of ranks whose status is OK. */
static void count_ok(const facts_t *facts, uint32_t size, uint32_t *ret_ok)
{
    *ret_ok = 0;
    for (uint32_t r = 0; r < size; r++)
        *ret_ok += facts[r].status == TUTTI_OK;
}

static tutti_status_t settle_round(tutti__node_t *node)
{
    uint64_t limit = tutti__now_ns() + SETTLE_ROUND_NS;
    tutti_status_t status;

    while ((status = tutti__nccl_node_settle(node)) == TUTTI__AGAIN && tutti__now_ns() < limit)
        usleep(SETTLE_SLEEP_US);
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

tutti_status_t tutti__device_settle(const tutti__comm_t *comm, tutti__node_t *node, int32_t *room,
                                    const char *whom)
{
    uint64_t begun = tutti__now_ns(), limit = tutti__boot_deadline(comm->boot);
    tutti_status_t mine = TUTTI__AGAIN, all = TUTTI__AGAIN, status;
    int32_t said;

    while (all == TUTTI__AGAIN) {
        if (mine == TUTTI__AGAIN)
            mine = settle_round(node);
        if (mine == TUTTI__AGAIN && tutti__now_ns() > limit)
            mine = tutti__fail(TUTTI_ERR_TIMEOUT, "%s waited %.3g s for NCCL to connect %s",
                               tutti__boot_rank_name(comm->boot, comm->topo->rank),
                               (double)(tutti__now_ns() - begun) / 1e9, whom);
        said = (int32_t)mine;
        status = tutti__boot_allgather(comm->boot, &said, sizeof(said), room);
        if (status != TUTTI_OK)
            return status;
        all = find_settled(room, comm->topo->size);
    }
    if (all == TUTTI_OK)
        return TUTTI_OK;
    return tutti__boot_agree(comm->boot, mine == TUTTI__AGAIN ? TUTTI_OK : mine);
}

/* The types that NCCL serves on all ranks: for other types the ranks would take different paths.
   facts: of round 2. */
static tutti__nccl_serves_t find_common(const facts_t *facts, uint32_t size)
{
    tutti__nccl_serves_t common = facts[0].serves;

    for (uint32_t r = 1; r < size; r++)
        tutti__nccl_agree(&common, &facts[r].serves);
    return common;
}

/* Rounds 3 and 4. facts: of round 2; overwritten by round 3. */
static tutti_status_t connect_nccl(tutti__comm_t *comm, facts_t *facts)
{
    const tutti__topo_t *topo = comm->topo;
    uint32_t first = topo->host_first[topo->host_of[topo->rank]];
    uint32_t leader = topo->by_host[first], nok;
    uint32_t nlocal = (uint32_t)tutti_local_size(comm->handle);
    char *base = comm->machine->base[comm->machine->index_of[leader]];
    tutti__nccl_id_t id = facts[leader].id;
    const tutti__nccl_serves_t common = find_common(facts, topo->size);
    const tutti__nccl_open_t with = {
        .ops = comm->device.ops,
        .device = comm->device.device,
        .me = (uint32_t)tutti_local_rank(comm->handle),
        .nlocal = nlocal,
        .leader = (int32_t)leader,
        .host = comm->node,
        .order = (tutti__nccl_order_t *)(void *)(base + facts[leader].order),
        .tickets = comm->world == comm ? NULL : tutti__nccl_node_tickets(comm->world->device.node),
        .id = &id,
        .stage_bytes = (size_t)comm->conf.shared.device_chunk_bytes * nlocal,
        .serves = &common,
    };
    facts_t mine = { .status = TUTTI_OK };
    tutti__node_t *node = NULL;
    char words[TUTTI__ERROR_BYTES];
    tutti_status_t status;

    mine.status = tutti__nccl_node_open(&with, &node);
    snprintf(words, sizeof(words), "%s", mine.status != TUTTI_OK ? tutti_last_error() : "");
    status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), facts);
    count_ok(facts, topo->size, &nok);
    if (status == TUTTI_OK && nok == 0) {
        warn_staged(comm, words);
        return TUTTI_OK;
    }
    if (status == TUTTI_OK && mine.status != TUTTI_OK)
        status = tutti__fail((tutti_status_t)mine.status, "%s", words);
    status = tutti__boot_agree(comm->boot, status);
    /* NCCL waits for all ranks, so all must have begun. */
    if (status == TUTTI_OK)
        status = tutti__device_settle(comm, node, (int32_t *)(void *)facts, "this host's ranks");
    if (status == TUTTI_OK) {
        comm->device.node = node;
        return TUTTI_OK;
    }
    if (node != NULL) {
        tutti__nccl_node_abort(node);
        node->ops->close(node);
    }
    return status;
}

void tutti__device_identify(const tutti__comm_t *comm, char *ret_identity)
{
    const char *host = tutti__conf_nccl_host();
    char gpu[TUTTI__DEVICE_IDENTITY_BYTES] = "";

    memset(ret_identity, 0, TUTTI__SHARED_IDENTITY_BYTES);
    if (tutti__conf_nccl_shares_gpus())
        return;
    comm->device.ops->identity(comm->device.device, gpu);
    if (gpu[0] != '\0')
        snprintf(ret_identity, TUTTI__SHARED_IDENTITY_BYTES, "%s %016" PRIx64, gpu,
                 host != NULL ? tutti__hash(host, strlen(host)) : 0);
}

int tutti__device_is_shared(const char *identity, size_t stride, const uint32_t *place,
                            uint32_t size, char ret_words[TUTTI__SHARED_WORDS])
{
    for (uint32_t r = 1; r < size; r++) {
        const char *one = identity + r * stride;

        for (uint32_t s = 0; s < r && one[0] != '\0'; s++) {
            if (place[s] != place[r] || strcmp(identity + s * stride, one) != 0)
                continue;
            snprintf(ret_words, TUTTI__SHARED_WORDS,
                     "ranks %u and %u use the same GPU, which NCCL refuses", s, r);
            return 1;
        }
    }
    return 0;
}

/* Without NCCL: each leader without it logs its reason, and rank 0 logs the effect on calls.
   facts: of round 2. */
static void warn_leaders(const tutti__comm_t *comm, const facts_t *facts, const char *mine)
{
    char words[64];
    uint32_t r = 0;

    if (mine[0] != '\0' && comm->topo->rank != 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "no NCCL on the host of rank %u: %s", comm->topo->rank, mine);
    while (facts[r].status == TUTTI_OK)
        r++;
    snprintf(words, sizeof(words), "the host of rank %u has none", r);
    warn_staged(comm, mine[0] != '\0' ? mine : words);
}

static tutti_status_t open_nccl(tutti__comm_t *comm, facts_t *facts)
{
    facts_t mine = { .status = TUTTI_OK };
    char words[TUTTI__ERROR_BYTES], shared[TUTTI__SHARED_WORDS];
    tutti_status_t status;
    uint32_t nok;

    /* The world has logged the reason. */
    if (comm->world != comm && comm->world->device.node == NULL)
        return TUTTI_OK;
    tutti__device_identify(comm, mine.identity);
    status = lead(comm, &mine);
    snprintf(words, sizeof(words), "%s", mine.status != TUTTI_OK ? tutti_last_error() : "");
    tutti__nccl_ask(comm->device.ops, &mine.serves);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), facts);
    if (status != TUTTI_OK)
        return status;
    count_ok(facts, comm->topo->size, &nok);
    if (nok < comm->topo->size)
        warn_leaders(comm, facts, words);
    else if (tutti__device_is_shared(facts->identity, sizeof(*facts), comm->topo->host_of,
                                     comm->topo->size, shared))
        warn_staged(comm, shared);
    else
        return connect_nccl(comm, facts);
    return TUTTI_OK;
}

/* ---- opening and closing ---- */

static tutti_status_t open_found(tutti__comm_t *comm, facts_t *facts)
{
    tutti_status_t status = choose_number(comm);
    int before = comm->device.ops->current();

    if (status == TUTTI_OK)
        status = comm->device.ops->use(comm->device.device);
    if (status == TUTTI_OK && tutti__nccl_is_stuck(comm->device.device))
        status = tutti__fail(TUTTI_ERR_SYSTEM,
                             "device %d is not free: an abort of NCCL there has not returned",
                             comm->device.device);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = open_nccl(comm, facts);
    if (status == TUTTI_OK)
        status = tutti__device_open_flat(comm);
    if (status == TUTTI_OK)
        status = tutti__device_open_lanes(comm, (int32_t *)(void *)facts);
    if (status == TUTTI_OK)
        status = tutti__device_open_direct(comm);
    tutti__device_leave(&comm->device, before);
    return status;
}

tutti_status_t tutti__comm_open_device(tutti__comm_t *comm)
{
    const tutti__device_ops_t *ops = NULL;
    tutti_status_t status = TUTTI_OK;
    facts_t *facts;

    comm->lone_device = comm->world->lone_device;
    comm->lacks_device = comm->world->lacks_device;
    if (comm->world != comm && comm->world->device.ops == NULL)
        return TUTTI_OK;
    facts = calloc(comm->topo->size, sizeof(*facts));
    if (facts == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "devices of %u ranks", comm->topo->size);
    else
        status = find_device(comm, &ops);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = have_alike(comm, &ops, facts);
    if (status == TUTTI_OK && ops != NULL) {
        comm->device.ops = ops;
        tutti__semaphore_pause();
        status = open_found(comm, facts);
        tutti__semaphore_resume();
    } else if (status == TUTTI_OK) {
        status = tutti__device_open_flat(comm);
    }
    free(facts);
    return status;
}

void tutti__comm_end_queued(tutti__comm_t *comm)
{
    uint64_t limit = tutti__now_ns() + comm->conf.shared.timeout_ms * 1000000u;
    int before;

    if (comm->engine != NULL)
        tutti__engine_drain(comm->engine);
    if (comm->device.node == NULL || comm->engine == NULL)
        return;
    before = tutti__device_enter(&comm->device);
    while (tutti__watch_alive(comm->watch) == TUTTI_OK && tutti__device_is_queued(&comm->device) &&
           tutti__now_ns() < limit)
        usleep(SETTLE_SLEEP_US);
    tutti__device_leave(&comm->device, before);
}

void tutti__comm_close_device(tutti__comm_t *comm)
{
    tutti__exec_device_t *device = &comm->device;
    int before;

    if (device->ops == NULL)
        return;
    tutti__semaphore_pause();
    /* Close also a device that has failed. */
    before = tutti__device_enter(device);
    tutti__device_close_flat(device);
    if (device->node != NULL)
        device->node->ops->close(device->node);
    tutti__device_close_direct(comm);
    tutti__device_close_lanes(device);
    tutti__device_leave(device, before);
    tutti__semaphore_resume();
    memset(device, 0, sizeof(*device));
}
