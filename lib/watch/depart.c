/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goodbyes, status pages, and groups that cannot be made. See watch.h. Callers own the links,
 * unless a comment says otherwise.
 */
#include "watch/watch_inside.h"

#include "base/time.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- status pages; any thread ---- */

/* The state in a rank's status page, TUTTI__PAGE_...; OPEN for a rank of another machine. */
static uint32_t page_of(const tutti__watcher_t *w, uint32_t rank)
{
    int32_t index = w->machine->index_of[rank];

    return index < 0 ? TUTTI__PAGE_OPEN : tutti__load_acquire(&w->machine->page[index]->end);
}

void tutti__watch_set_page(tutti__watcher_t *w, uint32_t end)
{
    const tutti__machine_t *machine = w->machine;
    tutti__word_t *word = &machine->page[machine->me]->end;
    uint32_t before = tutti__load_relaxed(word);

    assert(end > TUTTI__PAGE_OPEN);
    /* Release: a peer that reads the state also sees all earlier writes of this rank. */
    do {
        if (before >= end)
            return;
    } while (!atomic_compare_exchange_weak_explicit(word, &before, end, memory_order_release,
                                                    memory_order_relaxed));
    tutti__fence();
    for (uint32_t i = 0; i < machine->nranks; i++)
        if (i != machine->me)
            tutti__machine_ring(machine, i);
}

void tutti__watch_set_idle(tutti__watch_t *watch)
{
    tutti__watch_set_page(tutti__watcher(watch), TUTTI__PAGE_IDLE);
}

int tutti__watch_is_idle(const tutti__watch_t *watch, uint32_t rank)
{
    return page_of(tutti__watcher_read(watch), rank) == TUTTI__PAGE_IDLE;
}

int tutti__watch_has_left(const tutti__watch_t *watch, uint32_t rank)
{
    const tutti__watcher_t *w = tutti__watcher_read(watch);

    /* The status page shows a departure even if the ranks that forward goodbyes have left. */
    return atomic_load(&w->left[rank]) || page_of(w, rank) >= TUTTI__PAGE_ENDED;
}

int tutti__watch_any_left(const tutti__watch_t *watch)
{
    return atomic_load(&tutti__watcher_read(watch)->first_left);
}

/* ---- texts; any thread ---- */

static int is_gone(const tutti__watcher_t *w, uint32_t rank)
{
    return atomic_load(&w->left[rank]) || page_of(w, rank) == TUTTI__PAGE_LEFT;
}

int tutti__watch_left_text(const tutti__watch_t *watch, uint32_t rank, char *text, size_t bytes)
{
    const tutti__watcher_t *w = tutti__watcher_read(watch);
    int first = atomic_load(&w->first_left);

    /* The first rank is the cause: later ranks may have left because their calls had failed. */
    if (rank >= w->size || !is_gone(w, rank))
        rank = first > 0 ? (uint32_t)first - 1 : 0;
    if (!is_gone(w, rank))
        for (rank = 0; rank < w->size && !is_gone(w, rank); rank++) {
        }
    if (rank == w->size)
        return 0;
    snprintf(text, bytes, "%s has %s", tutti__boot_rank_name(w->boot, rank),
             w->is_part ? "freed this communicator (tutti_comm_free or tutti_finalize)"
                        : "called tutti_finalize");
    return 1;
}

const char *tutti__watch_closed_text(const tutti__watch_t *watch)
{
    return tutti__watcher_read(watch)->is_part
               ? "this communicator was freed on this rank (tutti_comm_free or tutti_finalize)"
               : "tutti_finalize was called on this rank";
}

/* ---- goodbyes ---- */

static void note_progress(tutti__watcher_t *w, const uint64_t *progress)
{
    for (int i = 0; i < TUTTI__PLAN_LANES; i++)
        if (progress[i] > atomic_load(&w->progress[i]))
            atomic_store(&w->progress[i], progress[i]); /* only the owner of the links writes it */
}

uint64_t tutti__watch_progress(const tutti__watch_t *watch, uint32_t i)
{
    return atomic_load(&tutti__watcher_read(watch)->progress[i]);
}

static tutti__bye_msg_t make_bye(const tutti__watcher_t *w, uint32_t awaits,
                                 const uint64_t *progress)
{
    tutti__bye_msg_t msg = { .rank = w->rank, .awaits = awaits };

    memcpy(msg.progress, progress, sizeof(msg.progress));
    return msg;
}

/* A goodbye has arrived over `link`, and takes effect on this rank. Returns 1 if this rank forwards
   the goodbye over link i: over all links except `link`, and also over `link` if this link leads to
   a child. Exception: a child's own goodbye returns to the child only if the child waits for it. */
static int goes_down(const tutti__watcher_t *w, int i, int link, const tutti__bye_msg_t *msg)
{
    return i != link || (link != w->parent && (w->link[i].rank != msg->rank || msg->awaits));
}

/*
 * A goodbye is forwarded up the tree to rank 0, and then down; a rank applies it on the way down.
 * This rank's own goodbye (link -1) is sent both ways at once, because this rank leaves.
 */
void tutti__watch_bye(tutti__watcher_t *w, int link, const tutti__bye_msg_t *msg)
{
    tutti__watch_t *watch = &w->base;
    uint32_t rank = msg->rank;

    assert(link < (int)w->nlinks);
    if (rank >= w->size || atomic_load(&w->left[rank]))
        return;
    if (link >= 0 && w->link[link].rank == rank)
        w->link[link].bye = 1;
    if (link >= 0 && link != w->parent && w->parent >= 0) {
        tutti__links_send(watch, (uint32_t)w->parent, TUTTI__WATCH_BYE, msg, sizeof(*msg), 0);
        return;
    }
    note_progress(w, msg->progress);
    atomic_store(&w->left[rank], 1);
    if (atomic_load(&w->first_left) == 0)
        atomic_store(&w->first_left, (int)rank + 1);
    w->departures = 1;
    tutti__links_flush(watch);
    for (int i = 0; i < (int)w->nlinks; i++)
        if (goes_down(w, i, link, msg))
            tutti__links_send(watch, (uint32_t)i, TUTTI__WATCH_BYE, msg, sizeof(*msg), 0);
    if (w->parent >= 0 && w->link[w->parent].rank == rank)
        tutti__orphan_begin(w);
}

void tutti__watch_drain(tutti__watch_t *watch, const uint64_t *progress, uint64_t limit_ns)
{
    tutti__watcher_t *w = tutti__watcher(watch);
    const tutti__bye_msg_t msg = make_bye(w, 1, progress);
    struct pollfd pfd = { tutti__side_fd(w->boot), POLLIN, 0 };

    if (w->parent < 0 || w->nlinks == 1)
        return;
    /* From now on this rank only forwards messages. Write the page before sending the goodbye: a
       rank whose communicator ends because of the goodbye can then name this rank. */
    tutti__watch_set_page(w, TUTTI__PAGE_LEFT);
    tutti__links_send(watch, (uint32_t)w->parent, TUTTI__WATCH_BYE, &msg, sizeof(msg), 0);
    tutti__links_flush(watch);
    while (!atomic_load(&w->first_left) && !tutti__watch_has_ended(watch) &&
           tutti__now_ns() < limit_ns) {
        if (!tutti__links_poll(watch, 1))
            poll(&pfd, 1, 1);
        tutti__links_flush(watch);
    }
}

void tutti__watch_leave(tutti__watch_t *watch, const uint64_t *progress)
{
    tutti__watcher_t *w = tutti__watcher(watch);
    const tutti__bye_msg_t msg = make_bye(w, 0, progress);

    tutti__watch_set_page(w, TUTTI__PAGE_LEFT);
    /* Drop the backlogs: after this call a backlog would never be sent, and a goodbye behind a
       backlog would be lost with it. */
    for (uint32_t i = 0; i < w->nlinks; i++)
        w->link[i].backlog_bytes = w->link[i].backlog_sent = 0;
    if (!atomic_load(&w->left[w->rank])) {
        tutti__watch_bye(w, -1, &msg);
        return;
    }
    /* During tutti__watch_drain the goodbye was sent down, but perhaps only into a backlog, which
       has just been dropped. So send it again. A child ignores a second goodbye. */
    for (int i = 0; i < (int)w->nlinks; i++)
        if (i != w->parent)
            tutti__links_send(watch, (uint32_t)i, TUTTI__WATCH_BYE, &msg, sizeof(msg), 0);
}

int tutti__watch_departed(tutti__watch_t *watch)
{
    tutti__watcher_t *w = tutti__watcher(watch);
    int departures = w->departures;

    w->departures = 0;
    return departures;
}

/* ---- groups ---- */

void tutti__watch_receive_cancel(tutti__watcher_t *w, int link, const tutti__cancel_msg_t *msg)
{
    /* Several ranks may send this message, so a message for an earlier call may arrive late. */
    if (msg->first >= w->size ||
        (int32_t)(msg->number - atomic_load(&w->cancelled[msg->first])) <= 0)
        return;
    atomic_store(&w->cancelled[msg->first], msg->number);
    for (uint32_t i = 0; i < w->nlinks; i++)
        if ((int)i != link)
            tutti__links_send(&w->base, i, TUTTI__WATCH_CANCEL, msg, sizeof(*msg), 0);
}

void tutti__watch_cancel(tutti__watch_t *watch, uint32_t first, uint32_t number)
{
    const tutti__cancel_msg_t msg = { first, number };

    tutti__watch_receive_cancel(tutti__watcher(watch), -1, &msg);
}

int tutti__watch_cancelled(const tutti__watch_t *watch, uint32_t first, uint32_t number)
{
    return atomic_load(&tutti__watcher_read(watch)->cancelled[first]) == number;
}
