/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects the tree of the side channel (boot.h).
 *
 * Inside a host each rank connects over a Unix socket to the leader, the host's lowest rank;
 * between hosts the leaders connect over TCP to rank 0. Only rank 0 listens on TCP, and only if
 * there are several hosts. Each rank connects to its parent before it admits its children. There is
 * no deadlock, because rank 0 has no parent.
 */
#include "base/log.h"
#include "boot/boot_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint32_t tutti__boot_leader(const tutti__boot_t *boot, uint32_t rank)
{
    const tutti__topo_t *topo = boot->topo;

    return topo->by_host[topo->host_first[topo->host_of[rank]]];
}

static tutti__gate_t make_gate(const tutti__boot_t *boot)
{
    return (tutti__gate_t){ .purpose = TUTTI__GATE_SIDE,
                            .rank = boot->topo->rank,
                            .size = boot->topo->size,
                            .token = boot->token };
}

static tutti__side_link_t *add_link(tutti__boot_t *boot, uint32_t rank, int fd)
{
    tutti__side_link_t *link = &boot->side.links[boot->side.nlinks++];

    link->fd = fd;
    link->rank = rank;
    link->local = boot->topo->host_of[rank] == boot->topo->host_of[boot->topo->rank];
    return link;
}

/* Connect to this host's leader, which is the parent. */
static tutti_status_t join_leader(tutti__boot_t *boot, uint32_t leader, uint64_t deadline)
{
    const unsigned char *door = boot->peers[leader].door;
    tutti__gate_t gate = make_gate(boot);
    tutti_status_t status;
    int fd;

    status = tutti__net_unix_connect(door, sizeof(boot->peers[leader].door), 0, deadline, &fd);
    if (status != TUTTI_OK)
        return tutti__fail(status,
                           "rank %u cannot reach rank %u on its own host (%s): rank %u has ended, "
                           "or the two ranks are in containers with separate networks and the "
                           "same hostname; such containers need different hostnames",
                           boot->topo->rank, leader, tutti_last_error(), leader);
    add_link(boot, leader, fd); /* if a later step fails, fd is closed with the other links */
    boot->side.parent = 0;
    return tutti__gate_knock(&gate, fd, leader, deadline);
}

/* Connect to rank 0, the parent, on another host. If this fails, also log a warning: all ranks
   return only the error text of the lowest failed rank, which may be another rank. */
static tutti_status_t join_root(tutti__boot_t *boot, const tutti__net_addrs_t *addrs,
                                uint64_t deadline)
{
    tutti__gate_t gate = make_gate(boot);
    tutti_status_t status;
    int fd;

    status = tutti__gate_reach(&gate, addrs, 0, 1, deadline, &fd);
    if (status != TUTTI_OK) {
        TUTTI__LOG(TUTTI__LOG_WARN, "%s", tutti_last_error());
        return status;
    }
    add_link(boot, 0, fd);
    boot->side.parent = 0;
    return TUTTI_OK;
}

/* Is `rank` a child of this rank that connects over TCP (over_tcp 1) or a Unix socket (0)? */
static int is_child(const tutti__boot_t *boot, uint32_t rank, int over_tcp)
{
    const tutti__topo_t *topo = boot->topo;

    if (rank == topo->rank)
        return 0;
    if (over_tcp)
        return topo->rank == 0 && rank == tutti__boot_leader(boot, rank);
    return tutti__boot_leader(boot, rank) == topo->rank;
}

/* Admit the children that connect to one listening socket. Their links are added in the order of
   ranks. */
static tutti_status_t admit(tutti__boot_t *boot, int door, int over_tcp, uint64_t deadline)
{
    tutti__gate_t gate = make_gate(boot);
    uint32_t size = boot->topo->size;
    int *fds = malloc(size * sizeof(*fds));
    tutti_status_t status;

    if (fds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "side channel of %u ranks", size);
    for (uint32_t r = 0; r < size; r++)
        fds[r] = is_child(boot, r, over_tcp) ? TUTTI__GATE_AWAITED : TUTTI__GATE_NOBODY;
    status = tutti__gate_admit(&gate, door, fds, deadline);
    for (uint32_t r = 0; r < size; r++) {
        if (fds[r] >= 0)
            add_link(boot, r, fds[r]);
    }
    free(fds);
    return status;
}

/*
 * If there are several hosts, rank 0 listens on TCP and sends its addresses to all ranks.
 *
 * If all hosts are on one machine (pretended hosts, TUTTI_HOST_ID), rank 0 listens at the loopback
 * interface, so other machines cannot reach the port. If rank 0 cannot listen, all ranks fail with
 * rank 0's error.
 */
static tutti_status_t tell_addresses(tutti__boot_t *boot, const char *interface, int *ret_door,
                                     tutti__net_addrs_t *ret_addrs)
{
    tutti__net_addrs_t mine = { 0 }, *all = calloc(boot->topo->size, sizeof(*all));
    tutti_status_t status = TUTTI_OK;

    if (all == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "side channel of %u ranks", boot->topo->size);
    } else if (boot->topo->rank == 0) {
        status = tutti__net_addrs(interface, boot->topo->nmachines == 1, &mine);
        if (status == TUTTI_OK)
            status = tutti__net_tcp_listen(&mine, ret_door);
        if (status != TUTTI_OK)
            mine.count = 0;
    }
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(boot, &mine, sizeof(mine), all);
    if (status == TUTTI_OK) {
        *ret_addrs = all[0];
        ret_addrs->count = TUTTI__MIN(ret_addrs->count, (uint32_t)TUTTI__NET_ADDRS);
    }
    free(all);
    return status;
}

tutti_status_t tutti__boot_connect(tutti__boot_t *boot, const tutti__conf_t *conf)
{
    const tutti__topo_t *topo = boot->topo;
    uint32_t leader = tutti__boot_leader(boot, topo->rank);
    tutti__net_addrs_t addrs = { 0 };
    tutti_status_t status = TUTTI_OK;
    uint64_t deadline;
    int tcp_door = -1;

    if (topo->nhosts > 1)
        status = tell_addresses(boot, conf->interface, &tcp_door, &addrs);
    deadline = tutti__boot_step_deadline(boot);
    if (status == TUTTI_OK && leader != topo->rank)
        status = join_leader(boot, leader, deadline);
    else if (status == TUTTI_OK && topo->rank != 0)
        status = join_root(boot, &addrs, deadline);
    if (status == TUTTI_OK && leader == topo->rank)
        status = admit(boot, boot->door, 0, deadline);
    if (status == TUTTI_OK && tcp_door >= 0)
        status = admit(boot, tcp_door, 1, deadline);
    if (tcp_door >= 0)
        close(tcp_door);
    return status;
}
