/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator's shape for the algorithms, and the length of its messages.
 *
 * The cost model uses settings and the speed of the network cards only, so that the same settings
 * give the same bits. The length of messages changes no bits. If TUTTI_CHUNK_BYTES is auto, it
 * depends on the round trip between hosts as well, which TCP has measured on the side channel.
 */
#include "api/comm.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/cost.h"

#include <assert.h>
#include <stdlib.h>

/* The longest round trip between neighbours in the tree of ranks; 0: unknown, or not needed.
   Collective. A group takes its world's. */
static tutti_status_t measure_rtt(tutti__comm_t *comm, uint64_t *ret_rtt_ns)
{
    uint64_t mine = tutti__boot_rtt_ns(comm->boot), *all;
    tutti_status_t status = TUTTI_OK;

    *ret_rtt_ns = comm->world->shape.link.rtt_ns;
    if (comm->world != comm || comm->topo->nhosts == 1 || comm->conf.shared.link_ns != 0)
        return TUTTI_OK;
    assert(*ret_rtt_ns == 0);
    all = calloc(comm->topo->size, sizeof(*all));
    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "round trips of %u ranks", comm->topo->size);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), all);
    for (uint32_t r = 0; status == TUTTI_OK && r < comm->topo->size; r++)
        *ret_rtt_ns = TUTTI__MAX(*ret_rtt_ns, all[r]);
    free(all);
    return status;
}

static void set_pieces(tutti__comm_t *comm, uint64_t rtt_ns)
{
    tutti__conf_shared_t *conf = &comm->conf.shared;
    tutti__cost_link_t *link = &comm->shape.link;

    comm->has_auto_pieces =
        comm->world != comm ? comm->world->has_auto_pieces : conf->chunk_bytes == TUTTI__CONF_AUTO;
    if (comm->has_auto_pieces)
        conf->chunk_bytes =
            comm->topo->nhosts > 1 ? tutti__cost_chunk_bytes(link, rtt_ns) : TUTTI__CHUNK_BYTES;
    assert(conf->chunk_bytes != TUTTI__CONF_AUTO);
    link->slot_bytes = comm->has_auto_pieces ? tutti__cost_chunk_bytes(link, 0) : conf->chunk_bytes;
    link->piece_bytes = conf->chunk_bytes;
    link->rtt_ns = rtt_ns;
    if (comm->topo->rank == 0 && comm->world == comm && comm->topo->nhosts > 1)
        TUTTI__LOG(TUTTI__LOG_INFO, "round trip between hosts %.0f us%s: pieces of %zu bytes",
                   (double)(rtt_ns != 0 ? rtt_ns : 2 * link->alpha_ns) / 1e3,
                   rtt_ns != 0 ? "" : " (not measured)", (size_t)conf->chunk_bytes);
}

tutti_status_t tutti__comm_take_shape(tutti__comm_t *comm)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    const tutti__topo_t *topo = comm->topo;
    uint64_t rtt_ns;
    tutti_status_t status = measure_rtt(comm, &rtt_ns);

    if (status != TUTTI_OK)
        return status;
    comm->shape = (tutti__shape_t){
        .size = topo->size,
        .nhosts = topo->nhosts,
        .host_of = topo->host_of,
        .local_of = topo->local_of,
        .host_first = topo->host_first,
        .by_host = topo->by_host,
        .min_local = topo->min_local,
        .group_size = (uint32_t)conf->group_size,
        .link = tutti__cost_link(conf->link_mbps != 0 ? conf->link_mbps : topo->link_mbps,
                                 conf->link_ns, topo->link_is_rdma),
    };
    set_pieces(comm, rtt_ns);
    return TUTTI_OK;
}
