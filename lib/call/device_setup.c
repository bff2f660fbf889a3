/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens a communicator's device, in rounds. In each round all ranks exchange their status. So
 * either all ranks have a device or no rank has one, and the same holds for NCCL. A failure on one
 * rank is a failure on all ranks. The rounds:
 *
 *   1. choose the device; a group uses its world's device
 *   2. open NCCL's communicators, of each host's ranks (device_nccl.c) and, if nccl-flat is
 *      requested, of all ranks (device_flat.c)
 *   3. make streams, events and memory of all lanes, and register the memory of fused buckets with
 *      NCCL: on all ranks, or on none (device_lanes.c)
 *   4. allocate memory for messages between hosts, if their transports take it:
 *      device_gpu_direct.c
 *
 * Without NCCL there still is a device; its calls run in host memory.
 */
#include "call/device_setup.h"

#include "base/log.h"
#include "base/status.h"
#include "boot/module.h"

#include <stdlib.h>
#include <string.h>

/* ---- exchanges ---- */

tutti_status_t tutti__device_exchange(const tutti__device_setup_t *setup, tutti_status_t mine)
{
    int32_t said = (int32_t)mine;

    return tutti__boot_allgather(setup->boot, &said, sizeof(said), setup->statuses);
}

uint32_t tutti__device_first(const tutti__device_setup_t *setup, int fails)
{
    uint32_t r = 0;

    while (r < setup->topo->size && (setup->statuses[r] != TUTTI_OK) != fails)
        r++;
    return r;
}

/* ---- choosing the device ---- */

/* The description of a rank's device for the other ranks. */
typedef struct {
    char name[32];    /* "": none */
    int32_t is_named; /* TUTTI_DEVICE names the device */
} facts_t;

static tutti_status_t find_device(const tutti__device_setup_t *setup,
                                  const tutti__device_ops_t **ret_ops)
{
    const char *versions;
    tutti_status_t status;

    if (setup->world != NULL) {
        *ret_ops = setup->world->ops;
        return TUTTI_OK;
    }
    status = tutti__module_device(setup->conf, ret_ops, &versions);
    if (status == TUTTI_OK || strcmp(setup->conf->device, "auto") != 0)
        return status;
    TUTTI__LOG(TUTTI__LOG_WARN, "the program uses a device, but calls take host memory only: %s",
               tutti_last_error());
    *ret_ops = NULL;
    return TUTTI_OK;
}

/* The first rank whose device differs from rank `as`'s device; or size. */
static uint32_t find_other(const facts_t *facts, uint32_t size, uint32_t as)
{
    uint32_t r = 0;

    while (r < size && strcmp(facts[r].name, facts[as].name) == 0)
        r++;
    return r;
}

/* Do all ranks have the same device? If not, *ops becomes NULL; if TUTTI_DEVICE names a device on a
   rank, the difference is an error. */
static tutti_status_t have_alike(const tutti__device_setup_t *setup,
                                 const tutti__device_ops_t **ops, facts_t *facts)
{
    uint32_t size = setup->topo->size, named = 0, other;
    facts_t mine = { .is_named = *ops != NULL && strcmp(setup->conf->device, "auto") != 0 };
    tutti_status_t status;

    if (*ops != NULL)
        strncpy(mine.name, (*ops)->name, sizeof(mine.name) - 1);
    status = tutti__boot_allgather(setup->boot, &mine, sizeof(mine), facts);
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
    /* No rank names a device, so each rank has the device that `auto` finds, or none. The devices
       of rank 0 and rank `other` differ, so one of these ranks has none. */
    setup->lone->lacks = facts[0].name[0] == '\0' ? 0 : other;
    setup->lone->ops = *ops;
    *ops = NULL;
    if (setup->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "rank %u has no device, but others have: calls take host memory only",
                   setup->lone->lacks);
    return TUTTI_OK;
}

static tutti_status_t choose(const tutti__device_setup_t *setup,
                             const tutti__device_ops_t **ret_ops)
{
    facts_t *facts = calloc(setup->topo->size, sizeof(*facts));
    tutti_status_t status;

    if (facts == NULL || setup->statuses == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "devices of %u ranks", setup->topo->size);
    else
        status = find_device(setup, ret_ops);
    status = tutti__boot_agree(setup->boot, status);
    if (status == TUTTI_OK)
        status = have_alike(setup, ret_ops, facts);
    free(facts);
    return status;
}

static tutti_status_t choose_number(const tutti__device_setup_t *setup)
{
    tutti__exec_device_t *device = setup->device;
    int count, current = device->ops->current(), asked = (int)setup->conf->device_id;
    tutti_status_t status;

    if (setup->world != NULL) {
        device->device = setup->world->device;
        return TUTTI_OK;
    }
    status = device->ops->count(&count);
    if (status != TUTTI_OK)
        return status;
    if (count < 1)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "there is no %s device", device->ops->name);
    if (asked >= count)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_DEVICE_ID=%d, but there are %d devices", asked, count);
    if (asked < 0)
        asked = current >= 0 ? current : (int)setup->topo->local_of[setup->topo->rank] % count;
    device->device = asked;
    return TUTTI_OK;
}

/* ---- opening and closing ---- */

static tutti_status_t open_found(const tutti__device_setup_t *setup)
{
    tutti__exec_device_t *device = setup->device;
    tutti_status_t status = choose_number(setup);
    int before = device->ops->current();

    if (status == TUTTI_OK)
        status = device->ops->use(device->device);
    if (status == TUTTI_OK && tutti__device_is_stuck(device))
        status = tutti__fail(TUTTI_ERR_SYSTEM,
                             "device %d is not free: an abort of NCCL there has not returned",
                             device->device);
    status = tutti__boot_agree(setup->boot, status);
    if (status == TUTTI_OK)
        status = tutti__device_open_nccl(setup);
    if (status == TUTTI_OK)
        status = tutti__device_open_flat(setup);
    if (status == TUTTI_OK)
        status = tutti__device_open_lanes(setup);
    if (status == TUTTI_OK)
        status = tutti__device_open_gpu_direct(setup);
    tutti__device_leave(device, before);
    return status;
}

tutti_status_t tutti__device_open(const tutti__device_setup_t *asked)
{
    tutti__device_setup_t setup = *asked;
    const tutti__device_ops_t *ops = NULL;
    tutti_status_t status;

    if (setup.world != NULL && setup.world->ops == NULL)
        return TUTTI_OK;
    setup.statuses = calloc(setup.topo->size, sizeof(*setup.statuses));
    status = choose(&setup, &ops);
    if (status == TUTTI_OK) {
        setup.device->ops = ops;
        status = ops != NULL ? open_found(&setup) : tutti__device_open_flat(&setup);
    }
    free(setup.statuses);
    return status;
}

void tutti__device_close(const tutti__device_setup_t *setup)
{
    tutti__exec_device_t *device = setup->device;
    int before;

    if (device->ops == NULL)
        return;
    /* A device that has failed is closed as well. */
    before = tutti__device_enter(device);
    tutti__device_close_flat(device);
    if (device->node != NULL)
        device->node->ops->close(device->node);
    tutti__device_close_gpu_direct(setup);
    tutti__device_close_lanes(setup);
    tutti__device_leave(device, before);
    memset(device, 0, sizeof(*device));
}
