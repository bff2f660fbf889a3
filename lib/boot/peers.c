/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deaths during a set-up whose way to meet does not report them: MPI's collectives wait for a dead
 * rank, and a rank that has not connected yet is no connection that could end. After the first
 * exchange each rank knows the processes of its machine, and checks whether they still exist:
 * whenever it waits at a socket (net.h), and before each exchange. A rank that is inside MPI when
 * another one dies waits for MPI's deadline.
 *
 * If a rank's process does not exist any more, the rank has died: no rank leaves the set-up before
 * all ranks have begun its last exchange. For kill() a dead process exists until its parent has
 * waited for it; launchers wait at once.
 */
#include "base/constants.h"
#include "boot/boot_inside.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int has_died(const tutti__boot_t *boot, uint32_t r)
{
    const tutti__topo_t *topo = boot->topo;
    int pid = boot->peers[r].pid;

    return pid > 0 && topo->machine_of[r] == topo->machine_of[topo->rank] && kill(pid, 0) != 0 &&
           errno == ESRCH;
}

/* A rank that has given up because of another one's death may have ended, too. So all are named. */
static tutti_status_t report_dead(const tutti__boot_t *boot, uint32_t first)
{
    uint32_t size = boot->topo->size, ndead = 0;
    unsigned char *dead = calloc(size, 1);
    char ranks[256];

    for (uint32_t r = first; dead != NULL && r < size; r++)
        ndead += dead[r] = (unsigned char)has_died(boot, r);
    if (ndead > 1)
        tutti__net_list_ranks(dead, size, ranks, sizeof(ranks));
    else
        snprintf(ranks, sizeof(ranks), "%s", tutti__boot_rank_name(boot, first));
    free(dead);
    return tutti__fail(TUTTI_ERR_PEER_LOST, "%s ended while ranks met", ranks);
}

tutti_status_t tutti__boot_peers_still(void *arg)
{
    const tutti__boot_t *boot = arg;

    for (uint32_t r = 0; boot->topo != NULL && r < boot->topo->size; r++)
        if (has_died(boot, r))
            return report_dead(boot, r);
    return TUTTI_OK;
}

/* The kernel closes a process's sockets before it ends the process. */
void tutti__boot_await_death(tutti__boot_t *boot)
{
    uint64_t until = tutti__net_deadline(TUTTI__GATE_GRACE_MS);

    while (tutti__boot_peers_still(boot) == TUTTI_OK && tutti__net_left_ms(until) > 0)
        tutti__net_sleep_ms(TUTTI__GATE_REST_MS);
}
