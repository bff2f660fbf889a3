/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's device. See device.h.
 *
 * Opening has a few rounds, each with a word from every rank, so that all have a device or none,
 * all have NCCL or none, and what fails on one fails on all:
 *
 *   1. which device is there; a part takes its world's
 *   2. each host's leader makes NCCL's id and the order of launches in its arena, and tells; all
 *      say what their NCCL serves, and only what all have is served
 *   3. NCCL's communicators are begun, and all say whether they could
 *   4. they stand, by the deadline; device_flat.c has one more, of all ranks, if it is asked for
 *   5. streams, events and memory of all lanes (device_lanes.c)
 *   6. what buckets are packed into is registered with NCCL: on all ranks, or on none
 *   7. memory for messages between hosts, if their transports take it (device_direct.c)
 *
 * Without NCCL there still is a device: its calls are made in host memory.
 */
#include "api/device.h"

#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/call_sides.h"
#include "node/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_SLEEP_US 100

/* What a rank says in a round. */
typedef struct {
    char name[32]; /* of its device; "": none */
    int32_t status;
    uint32_t unused;
    uint64_t order; /* leaders: offset in the arena */
    tutti__nccl_serves_t serves;
    tutti__nccl_id_t id;
} facts_t;

tutti_status_t tutti__device_enter(const tutti__exec_device_t *device, int *ret_before)
{
    *ret_before = device->ops->current();
    return device->ops->use(device->device);
}

void tutti__device_leave(const tutti__exec_device_t *device, int before)
{
    if (before >= 0 && before != device->device)
        device->ops->use(before);
}

/* ---- which ---- */

static tutti_status_t find_device(const tutti_comm_t *comm, const tutti__device_ops_t **ret_ops)
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

/* All ranks have the same, or *ops becomes NULL. */
static tutti_status_t have_alike(tutti_comm_t *comm, const tutti__device_ops_t **ops,
                                 facts_t *facts)
{
    facts_t mine = { .status = 0 };
    tutti_status_t status;

    if (*ops != NULL)
        strncpy(mine.name, (*ops)->name, sizeof(mine.name) - 1);
    status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), facts);
    for (uint32_t r = 1; status == TUTTI_OK && r < comm->topo->size; r++) {
        if (strcmp(facts[r].name, facts[0].name) == 0)
            continue;
        if (comm->topo->rank == 0)
            TUTTI__LOG(TUTTI__LOG_WARN,
                       "rank 0 has device '%s', rank %u has '%s', so calls take host memory only",
                       facts[0].name, r, facts[r].name);
        *ops = NULL;
        break;
    }
    return status;
}

static tutti_status_t choose_number(tutti_comm_t *comm)
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
        device->device = current >= 0 ? current : tutti_local_rank(comm) % count;
    return TUTTI_OK;
}

/* ---- NCCL ---- */

/* The leader's: an id, and a zeroed page for the order. */
static tutti_status_t lead(tutti_comm_t *comm, facts_t *mine)
{
    void *order;
    tutti_status_t status;

    if (tutti_local_rank(comm) != 0)
        return TUTTI_OK;
    status = tutti__arena_alloc(comm->machine->arena, sizeof(tutti__nccl_order_t), &order);
    if (status != TUTTI_OK)
        return status;
    /* It stays in the arena: other ranks may look at it for longer than this one lives. */
    tutti__arena_offset(comm->machine->arena, order, sizeof(tutti__nccl_order_t), &mine->order);
    mine->status = comm->device.ops->nccl_id(&mine->id);
    return TUTTI_OK;
}

static void warn_staged(const tutti_comm_t *comm, const char *why)
{
    if (comm->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "no NCCL, so device memory goes through the host: %s", why);
}

/* Has everybody, or somebody, said OK? */
static void count_ok(const facts_t *facts, uint32_t size, uint32_t *ret_ok)
{
    *ret_ok = 0;
    for (uint32_t r = 0; r < size; r++)
        *ret_ok += facts[r].status == TUTTI_OK;
}

tutti_status_t tutti__device_settle(const tutti_comm_t *comm, tutti__node_t *node, const char *whom)
{
    uint64_t timeout_ms = comm->conf.shared.timeout_ms;
    uint64_t limit = tutti__now_ns() + timeout_ms * 1000000u;
    tutti_status_t status;

    while ((status = tutti__nccl_node_settle(node)) == TUTTI__AGAIN) {
        if (tutti__now_ns() > limit)
            return tutti__fail(TUTTI_ERR_TIMEOUT, "rank %d waited %.3g s for NCCL to connect %s",
                               tutti_rank(comm), (double)timeout_ms / 1000, whom);
        usleep(SETTLE_SLEEP_US);
    }
    return status;
}

/* Ranks that served different types would go different ways. facts: of round 2. */
static tutti__nccl_serves_t find_common(const facts_t *facts, uint32_t size)
{
    tutti__nccl_serves_t common = facts[0].serves;

    for (uint32_t r = 1; r < size; r++)
        tutti__nccl_agree(&common, &facts[r].serves);
    return common;
}

/* facts: of round 2, then of round 3. */
static tutti_status_t connect_nccl(tutti_comm_t *comm, facts_t *facts)
{
    const tutti__topo_t *topo = comm->topo;
    uint32_t first = topo->host_first[topo->host_of[topo->rank]];
    uint32_t leader = topo->by_host[first], nok;
    uint32_t nlocal = (uint32_t)tutti_local_size(comm);
    char *base = comm->machine->base[comm->machine->index_of[leader]];
    tutti__nccl_id_t id = facts[leader].id;
    const tutti__nccl_serves_t common = find_common(facts, topo->size);
    const tutti__nccl_open_t with = {
        .ops = comm->device.ops,
        .device = comm->device.device,
        .me = (uint32_t)tutti_local_rank(comm),
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
    /* Who waits for others must know that all have begun. */
    if (status == TUTTI_OK && nok == topo->size)
        status = tutti__device_settle(comm, node, "this host's ranks");
    status = tutti__boot_agree(comm->boot, status);
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

static tutti_status_t open_nccl(tutti_comm_t *comm, facts_t *facts)
{
    facts_t mine = { .status = TUTTI_OK };
    char words[TUTTI__ERROR_BYTES];
    tutti_status_t status = lead(comm, &mine);
    uint32_t nok;

    snprintf(words, sizeof(words), "%s", mine.status != TUTTI_OK ? tutti_last_error() : "");
    tutti__nccl_ask(comm->device.ops, &mine.serves);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), facts);
    if (status != TUTTI_OK)
        return status;
    count_ok(facts, comm->topo->size, &nok);
    if (nok == comm->topo->size)
        return connect_nccl(comm, facts);
    warn_staged(comm, words[0] != '\0' ? words : "another host has none");
    return TUTTI_OK;
}

/* ---- the whole ---- */

static tutti_status_t open_found(tutti_comm_t *comm, facts_t *facts)
{
    tutti_status_t status = choose_number(comm);
    int before = comm->device.ops->current();

    if (status == TUTTI_OK)
        status = comm->device.ops->use(comm->device.device);
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

tutti_status_t tutti__comm_open_device(tutti_comm_t *comm)
{
    const tutti__device_ops_t *ops = NULL;
    tutti_status_t status = TUTTI_OK;
    facts_t *facts;

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
        status = open_found(comm, facts);
    } else if (status == TUTTI_OK) {
        status = tutti__device_open_flat(comm);
    }
    free(facts);
    return status;
}

void tutti__comm_end_queued(tutti_comm_t *comm)
{
    uint64_t limit = tutti__now_ns() + comm->conf.shared.timeout_ms * 1000000u;
    int before;

    if (comm->device.node == NULL || comm->engine == NULL)
        return;
    (void)tutti__device_enter(&comm->device, &before);
    while (tutti__engine_alive(comm->engine) == TUTTI_OK &&
           tutti__device_is_queued(&comm->device) && tutti__now_ns() < limit)
        usleep(SETTLE_SLEEP_US);
    tutti__device_leave(&comm->device, before);
}

void tutti__comm_close_device(tutti_comm_t *comm)
{
    tutti__exec_device_t *device = &comm->device;
    int before;

    if (device->ops == NULL)
        return;
    /* A device that has failed does not stop the end. */
    (void)tutti__device_enter(device, &before);
    tutti__device_close_flat(device);
    if (device->node != NULL)
        device->node->ops->close(device->node);
    tutti__device_close_direct(comm);
    tutti__device_close_lanes(device);
    tutti__device_leave(device, before);
    tutti__staged_free(&comm->staged);
    memset(device, 0, sizeof(*device));
}

void tutti__comm_abort_device(void *arg)
{
    const tutti_comm_t *comm = arg;
    int before = comm->device.ops->current();

    tutti__nccl_node_abort(comm->device.node);
    if (comm->device.flat != NULL)
        tutti__nccl_node_abort(comm->device.flat);
    tutti__device_leave(&comm->device, before);
}

/* ---- whose memory ---- */

static void describe(tutti__where_t where, char *text, size_t bytes)
{
    if (where.kind == TUTTI__MEM_DEVICE)
        snprintf(text, bytes, "memory of device %d", where.device);
    else
        snprintf(text, bytes, "host memory");
}

static tutti_status_t wrong(const tutti_comm_t *comm, const tutti__side_t *side,
                            tutti__where_t where, const tutti__side_t *other,
                            tutti__where_t other_where)
{
    char a[48], b[48];

    describe(where, a, sizeof(a));
    if (other == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s is %s, but this communicator uses device %d on rank %d", side->name,
                           a, comm->device.device, tutti_rank(comm));
    describe(other_where, b, sizeof(b));
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "%s is %s, but %s is %s: both must be in one kind of memory", side->name, a,
                       other->name, b);
}

/* Devices read numbers where they should stand only. Pairs are moved as bytes. */
static int is_aligned(const tutti__call_t *call, const void *ptr)
{
    return call->dtype > TUTTI_FLOAT64 || (uintptr_t)ptr % tutti_dtype_bytes(call->dtype) == 0;
}

tutti_status_t tutti__device_check(const tutti_comm_t *comm, const tutti__call_t *call,
                                   int receives, int *ret_on_device)
{
    uint32_t rank = comm->topo->rank, size = comm->topo->size;
    tutti__side_t side[2] = { { 0 }, { 0 } };
    tutti__where_t where[2];
    int last = -1;

    *ret_on_device = 0;
    tutti__call_sends(call, rank, size, &side[0]);
    if (receives)
        tutti__call_receives(call, rank, size, &side[1]);
    for (int i = 0; i < 2; i++) {
        tutti__side_measure(&side[i], size);
        if (side[i].count == 0)
            continue;
        where[i] = comm->device.ops->where(side[i].ptr);
        if (where[i].kind == TUTTI__MEM_DEVICE && where[i].device != comm->device.device)
            return wrong(comm, &side[i], where[i], NULL, where[i]);
        if (where[i].kind == TUTTI__MEM_DEVICE && !is_aligned(call, side[i].ptr))
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s is on a device, but not at a multiple of its element's size",
                               side[i].name);
        if (last >= 0 && (where[i].kind == TUTTI__MEM_DEVICE) != *ret_on_device)
            return wrong(comm, &side[last], where[last], &side[i], where[i]);
        *ret_on_device = where[i].kind == TUTTI__MEM_DEVICE;
        last = i;
    }
    return TUTTI_OK;
}

tutti_status_t tutti__device_check_stream(const tutti_comm_t *comm, const tutti__call_t *call,
                                          tutti__dstream_t *stream)
{
    tutti__side_t side[2] = { { 0 }, { 0 } };

    if (comm->device.ops == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "this communicator has no device, so no streams: see TUTTI_DEVICE");
    if (call->kind == TUTTI_CALL_BARRIER)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "a barrier moves no data, so it has no place in a stream");
    if (comm->device.ops->stream_captures(stream))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "the stream is being captured into a graph: calls between ranks cannot "
                           "be replayed");
    tutti__call_sends(call, comm->topo->rank, comm->topo->size, &side[0]);
    tutti__call_receives(call, comm->topo->rank, comm->topo->size, &side[1]);
    for (int i = 0; i < 2 && !call->on_device; i++) {
        tutti__side_measure(&side[i], comm->topo->size);
        if (side[i].count > 0)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s is host memory, but calls in a stream are for device memory",
                               side[i].name);
    }
    return TUTTI_OK;
}
