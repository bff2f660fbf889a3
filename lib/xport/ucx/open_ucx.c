/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the transport over UCX: loads the module, and exchanges the addresses of the workers.
 *
 * An address has another length on each rank, because it lists the rank's networks, so the lengths
 * are exchanged first. Each step ends with an agreement, so no rank waits for one that has failed.
 */
#include "xport/ucx/open_ucx.h"

#include "base/compiler.h"
#include "base/status.h"
#include "boot/module.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tutti__boot_t *boot;
    const tutti__ucx_module_t *module;
    tutti__xport_t *xport;
    const void *address;
    size_t bytes;  /* of this rank's address */
    size_t stride; /* of the longest address */
} opening_t;

static tutti_status_t open_local(opening_t *o, const tutti__conf_t *conf)
{
    const tutti__topo_t *topo = tutti__boot_topo(o->boot);
    tutti_status_t status = tutti__module_ucx(conf, &o->module);

    if (status != TUTTI_OK)
        return status;
    return o->module->open(tutti__module_core(), topo->rank, topo->size,
                           tutti__xport_long(conf->shared.chunk_bytes, topo->size),
                           (uint32_t)conf->shared.credits, &o->xport, &o->address, &o->bytes);
}

static tutti_status_t exchange_lengths(opening_t *o)
{
    uint32_t size = tutti__boot_topo(o->boot)->size;
    uint64_t mine = o->bytes, *all = calloc(size, sizeof(*all));
    tutti_status_t status = TUTTI_OK;

    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "addresses of %u ranks", size);
    status = tutti__boot_agree(o->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(o->boot, &mine, sizeof(mine), all);
    for (uint32_t r = 0; status == TUTTI_OK && r < size; r++)
        o->stride = TUTTI__MAX(o->stride, TUTTI__ROUND_UP((size_t)all[r], (size_t)8));
    free(all);
    return status;
}

static tutti_status_t exchange_addresses(opening_t *o)
{
    uint32_t size = tutti__boot_topo(o->boot)->size;
    char *mine = calloc(1, o->stride), *all = calloc(size, o->stride);
    tutti_status_t status = TUTTI_OK;

    if (mine == NULL || all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "addresses of %u ranks", size);
    else
        memcpy(mine, o->address, o->bytes);
    status = tutti__boot_agree(o->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(o->boot, mine, o->stride, all);
    if (status == TUTTI_OK)
        status = o->module->connect(o->xport, all, o->stride);
    status = tutti__boot_agree(o->boot, status);
    free(mine);
    free(all);
    return status;
}

tutti_status_t tutti__xport_ucx_open(tutti__boot_t *boot, const tutti__conf_t *conf,
                                     tutti__xport_t **ret_xport)
{
    opening_t o = { .boot = boot };
    tutti_status_t status = tutti__boot_agree(boot, open_local(&o, conf));

    if (status == TUTTI_OK)
        status = exchange_lengths(&o);
    if (status == TUTTI_OK)
        status = exchange_addresses(&o);
    if (status != TUTTI_OK) {
        if (o.xport != NULL)
            o.xport->ops->close(o.xport);
        return status;
    }
    *ret_xport = o.xport;
    return TUTTI_OK;
}
