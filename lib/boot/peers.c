/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detects deaths of ranks during set-up, if the meeting does not report deaths. MPI's collectives
 * wait for ever for a dead rank, and a rank that has not connected has no connection that could
 * end. Whenever a rank waits at a socket (net.h) or for MPI (meet_mpi.c), it checks whether the
 * processes of the machine's other ranks exist. The rank has their process ids from the first
 * exchange. Before this exchange, the rank finds the processes by their marks (marks.h).
 *
 * If a rank's process does not exist any more, the rank has died: no living rank leaves the set-up
 * before all ranks have begun the last exchange of the set-up. kill() finds a dead process until
 * its parent has called waitpid(); launchers call waitpid() at once.
 */
#include "base/constants.h"
#include "boot/boot_inside.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int tutti__boot_has_ended(int pid)
{
    return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/* Name all ended ranks, because a rank may have ended as a consequence of another rank's death. */
tutti_status_t tutti__boot_report_dead(const unsigned char *dead, uint32_t size)
{
    char ranks[256];

    if (memchr(dead, 1, size) == NULL)
        return TUTTI_OK;
    tutti__net_list_ranks(dead, size, ranks, sizeof(ranks));
    return tutti__fail(TUTTI_ERR_PEER_LOST, "%s ended while ranks met", ranks);
}

tutti_status_t tutti__boot_peers_still(void *arg)
{
    const tutti__boot_t *boot = arg;
    const tutti__topo_t *topo = boot->topo;
    unsigned char *dead = topo != NULL ? calloc(topo->size, 1) : NULL;
    tutti_status_t status;

    if (dead == NULL)
        return TUTTI_OK;
    for (uint32_t r = 0; r < topo->size; r++)
        dead[r] = topo->machine_of[r] == topo->machine_of[topo->rank] &&
                  tutti__boot_has_ended(boot->peers[r].pid);
    status = tutti__boot_report_dead(dead, topo->size);
    free(dead);
    return status;
}

/* Called after a connection has failed: wait a short time for the end of a process of this machine.
   When a process dies, the kernel first closes its sockets, and ends the process later. */
void tutti__boot_await_death(tutti__boot_t *boot)
{
    uint64_t until = tutti__net_deadline(TUTTI__GATE_GRACE_MS);

    while (tutti__boot_peers_still(boot) == TUTTI_OK && tutti__net_left_ms(until) > 0)
        tutti__net_sleep_ms(TUTTI__GATE_REST_MS);
}
