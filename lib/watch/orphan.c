/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orphans: ranks whose parent in the tree has left. An orphan receives no more messages from its
 * parent. So an orphan watches the processes of all ranks of its machine. If the communicator has
 * ended for one of these ranks, the orphan reads the reason in that rank's status page. Callers own
 * the links, unless a comment says otherwise.
 */
#include "watch/watch_inside.h"

#include <stdio.h>

void tutti__orphan_begin(tutti__watcher_t *w)
{
    const tutti__machine_t *machine = w->machine;

    w->is_orphan = 1;
    for (uint32_t i = 0; i < machine->nranks && !tutti__watch_has_ended(&w->base); i++) {
        uint32_t rank = machine->rank[i], link = 0;

        while (link < w->nlinks && w->link[link].rank != rank)
            link++;
        if (i != machine->me && link == w->nlinks &&
            tutti__side_watch(w->boot, rank) == TUTTI_ERR_PEER_LOST)
            tutti__orphan_lost(w, rank);
    }
    tutti__orphan_poll(w);
}

void tutti__orphan_poll(tutti__watcher_t *w)
{
    const tutti__machine_t *machine = w->machine;
    char text[TUTTI__ERROR_BYTES];

    for (uint32_t i = 0; i < machine->nranks && !tutti__watch_has_ended(&w->base); i++) {
        const tutti__status_page_t *page = machine->page[i];
        tutti_status_t status = (tutti_status_t)tutti__load_acquire(&page->failed);

        if (status == TUTTI_OK)
            continue;
        snprintf(text, sizeof(text), "%s", page->reason);
        tutti__watch_end_from(w, -1, status, text);
    }
}

void tutti__orphan_lost(tutti__watcher_t *w, uint32_t rank)
{
    const tutti__status_page_t *page = w->machine->page[w->machine->index_of[rank]];

    /* The rank may have published a reason before its process ended. If a departure has ended the
       communicator for the rank, the rank sends no goodbye, and its end is no death. */
    tutti__orphan_poll(w);
    if (!tutti__watch_has_ended(&w->base) && tutti__load_acquire(&page->end) < TUTTI__PAGE_ENDED)
        tutti__watch_lost_rank(w, -1, rank);
}

void tutti__orphan_publish(tutti__watcher_t *w, tutti_status_t status, const char *text)
{
    const tutti__machine_t *machine = w->machine;
    tutti__status_page_t *page = machine->page[machine->me];

    snprintf(page->reason, sizeof(page->reason), "%s", text);
    tutti__store_release(&page->failed, (uint32_t)status);
    for (uint32_t i = 0; i < machine->nranks; i++)
        if (i != machine->me)
            tutti__machine_ring_always(machine, i);
}
