/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the transport over UCX: loads the module, and exchanges the addresses of the workers.
 *
 * A worker's address lists the networks of its rank. So the lengths of addresses differ between
 * ranks, and the ranks exchange the lengths first. Each step ends with an agreement
 * (tutti__boot_agree), so no rank waits for a rank that has failed.
 */
#include "xport/ucx/open_ucx.h"

#include "base/compiler.h"
#include "base/hash.h"
#include "base/status.h"
#include "boot/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT "UCX_TCP_RX_SEG_SIZE"

typedef struct {
    tutti__boot_t *boot;
    const tutti__ucx_module_t *module;
    tutti__xport_t *xport;
    const void *address;
    size_t bytes;  /* length of this rank's address */
    size_t stride; /* length of the longest address */
    int optional;  /* 1: the set-up of the world continues if UCX fails */
    int is_broken; /* the exchange between the ranks has failed */
} opening_t;

typedef struct {
    int32_t status;
    char text[252];
} report_t;

/* As tutti__boot_agree, but if a rank has failed, the set-up can still continue. */
static tutti_status_t agree_apart(opening_t *o, tutti_status_t mine)
{
    uint32_t size = tutti__boot_topo(o->boot)->size;
    report_t own = { .status = (int32_t)mine }, *all = calloc(size, sizeof(*all));
    tutti_status_t status;

    if (mine != TUTTI_OK)
        snprintf(own.text, sizeof(own.text), "%s", tutti_last_error());
    o->is_broken |= all == NULL;
    if (all == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "reports of %u ranks", size);
    status = tutti__boot_allgather(o->boot, &own, sizeof(own), all);
    o->is_broken |= status != TUTTI_OK;
    for (uint32_t r = 0; r < size && status == TUTTI_OK; r++)
        if (all[r].status != TUTTI_OK)
            status = tutti__fail((tutti_status_t)all[r].status, "rank %u: %.*s", r,
                                 (int)sizeof(all[r].text), all[r].text);
    free(all);
    return status;
}

static tutti_status_t agree(opening_t *o, tutti_status_t mine)
{
    return o->optional ? agree_apart(o, mine) : tutti__boot_agree(o->boot, mine);
}

/* An allgather. If it fails, set is_broken, because the ranks cannot agree any more. */
static tutti_status_t gather(opening_t *o, const void *mine, size_t bytes, void *ret_all)
{
    tutti_status_t status = tutti__boot_allgather(o->boot, mine, bytes, ret_all);

    o->is_broken |= status != TUTTI_OK;
    return status;
}

static tutti_status_t open_local(opening_t *o, const tutti__conf_t *conf)
{
    const tutti__topo_t *topo = tutti__boot_topo(o->boot);
    tutti_status_t status = tutti__module_ucx(conf, &o->module);

    if (status != TUTTI_OK)
        return status;
    return o->module->open(
        tutti__module_core(), topo->rank, topo->size, topo->oversubscribed,
        tutti__xport_long(conf->shared.chunk_bytes, topo->size, TUTTI__XPORT_LONGER_UCX),
        (uint32_t)conf->shared.credits, &o->xport, &o->address, &o->bytes);
}

/* The length of a rank's address, and a hash of its UCX_TCP_RX_SEG_SIZE; 0: not set. */
typedef struct {
    uint64_t bytes, segment;
} lengths_t;

/* UCX does not check that a segment (ucx_module.c) fits into the receiver's buffer. So the ranks
   compare their lengths of a segment. */
static tutti_status_t check_segments(const lengths_t *all, uint32_t size)
{
    for (uint32_t r = 1; r < size; r++)
        if (all[r].segment != all[0].segment)
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               SEGMENT
                               " of rank %u is not that of rank 0: set it on all ranks, with "
                               "the same value, or on none",
                               r);
    return TUTTI_OK;
}

static tutti_status_t exchange_lengths(opening_t *o)
{
    uint32_t size = tutti__boot_topo(o->boot)->size;
    const char *segment = tutti__conf_text(SEGMENT);
    lengths_t mine = { o->bytes, segment != NULL ? tutti__hash(segment, strlen(segment)) : 0 };
    lengths_t *all = calloc(size, sizeof(*all));
    tutti_status_t status = TUTTI_OK;

    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "addresses of %u ranks", size);
    status = agree(o, status);
    if (status == TUTTI_OK)
        status = gather(o, &mine, sizeof(mine), all);
    for (uint32_t r = 0; status == TUTTI_OK && r < size; r++)
        o->stride = TUTTI__MAX(o->stride, TUTTI__ROUND_UP((size_t)all[r].bytes, (size_t)8));
    if (status == TUTTI_OK)
        status = check_segments(all, size);
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
    status = agree(o, status);
    if (status == TUTTI_OK)
        status = gather(o, mine, o->stride, all);
    if (status == TUTTI_OK)
        status = o->module->connect(o->xport, all, o->stride);
    status = agree(o, status);
    free(mine);
    free(all);
    return status;
}

static tutti_status_t open_all(opening_t *o, const tutti__conf_t *conf, tutti__xport_t **ret_xport)
{
    tutti_status_t status = agree(o, open_local(o, conf));

    if (status == TUTTI_OK)
        status = exchange_lengths(o);
    if (status == TUTTI_OK)
        status = exchange_addresses(o);
    if (status == TUTTI_OK)
        *ret_xport = o->xport;
    else if (o->xport != NULL)
        o->xport->ops->close(o->xport);
    return status;
}

tutti_status_t tutti__xport_ucx_open(tutti__boot_t *boot, const tutti__conf_t *conf,
                                     tutti__xport_t **ret_xport)
{
    opening_t o = { .boot = boot };

    return open_all(&o, conf, ret_xport);
}

tutti_status_t tutti__xport_ucx_try(tutti__boot_t *boot, const tutti__conf_t *conf,
                                    tutti__xport_t **ret_xport)
{
    opening_t o = { .boot = boot, .optional = 1 };
    tutti_status_t status;

    *ret_xport = NULL;
    status = open_all(&o, conf, ret_xport);
    return o.is_broken ? status : TUTTI_OK;
}
