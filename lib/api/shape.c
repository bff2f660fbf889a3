/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator's shape (ranks, hosts, link) for the algorithms, and the length of messages.
 *
 * The cost model uses only settings and the speed of the network cards, so that the same settings
 * give the same bits. If TUTTI_CHUNK_BYTES is auto, the length of messages also depends on the
 * round trip between hosts, which TCP has measured on the side channel. This changes no bits: the
 * cost model uses the length that follows from settings and network cards.
 */
#include "api/comm.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/cost.h"

#include <assert.h>
#include <stdlib.h>

/* Find the longest round trip between hosts, in nanoseconds; 0: unknown, or not measured. A group
   gets its world's value. Collective. */
static tutti_status_t measure_rtt(tutti__comm_t *comm, uint64_t *ret_rtt_ns)
{
    uint64_t mine = tutti__boot_rtt_ns(comm->boot), *all;
    tutti_status_t status = TUTTI_OK;

    *ret_rtt_ns = comm->world->shape.link.rtt_ns;
    /* With RDMA, messages take another network than the side channel, which was measured. */
    if (comm->world != comm || comm->topo->nhosts == 1 || comm->conf.shared.link_ns != 0 ||
        comm->topo->link_is_rdma)
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

/* The message length for TUTTI_CHUNK_BYTES=auto. A peer may have slots for `credits` messages. */
static size_t auto_bytes(const tutti__comm_t *comm, uint64_t rtt_ns)
{
    uint64_t slots = comm->conf.shared.credits * comm->topo->size;
    size_t bytes = TUTTI__CHUNK_BYTES;

    if (comm->topo->nhosts > 1)
        bytes = tutti__cost_chunk_bytes(&comm->shape.link, rtt_ns);
    while (bytes > TUTTI__CHUNK_BYTES && bytes * slots > TUTTI__CHUNK_ALL_BYTES)
        bytes /= 2;
    return bytes;
}

static void set_pieces(tutti__comm_t *comm, uint64_t rtt_ns)
{
    tutti__conf_shared_t *conf = &comm->conf.shared;
    tutti__cost_link_t *link = &comm->shape.link;

    comm->has_auto_pieces =
        comm->world != comm ? comm->world->has_auto_pieces : conf->chunk_bytes == TUTTI__CONF_AUTO;
    if (comm->has_auto_pieces)
        conf->chunk_bytes = auto_bytes(comm, rtt_ns);
    assert(conf->chunk_bytes != TUTTI__CONF_AUTO);
    link->slot_bytes = comm->has_auto_pieces ? auto_bytes(comm, 0) : conf->chunk_bytes;
    link->piece_bytes = conf->chunk_bytes;
    link->rtt_ns = rtt_ns;
    if (comm->topo->rank == 0 && comm->world == comm && comm->topo->nhosts > 1)
        TUTTI__LOG(TUTTI__LOG_INFO,
                   "round trip between hosts %.0f us (%s): pieces of %zu bytes (TUTTI_CHUNK_BYTES)",
                   (double)(rtt_ns != 0 ? rtt_ns : 2 * link->alpha_ns) / 1e3,
                   rtt_ns != 0          ? "measured"
                   : conf->link_ns != 0 ? "TUTTI_LINK_NS"
                                        : "assumed",
                   (size_t)conf->chunk_bytes);
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
