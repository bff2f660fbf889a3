/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watch over peers that die, leave or are late.
 *
 * Deaths. A neighbour in the tree notices a death (a connection closes, a process ends). It reports
 * the death up and down the tree, so each rank receives the report even if its own data path is
 * blocked. The communicator is dead then: `dead` is set, and all pending requests end with the
 * reason. Direct calls poll `dead` while they wait, so they end as well. The first reason wins.
 *
 * Goodbyes. A rank that calls finalize sends a goodbye first. Tensors that need this rank and are
 * not agreed yet end with TUTTI_ERR_SHUTDOWN; buckets in flight complete if they can.
 *
 * A rank that has left forwards nothing. Without rank 0 the hosts receive nothing from each other,
 * and without its leader a host receives nothing. Therefore each rank also writes its state into
 * its status page, where the waiting ranks of its machine read it. Between machines only the first
 * goodbye is certain to arrive: a wait for a rank behind the gap ends at its deadline.
 */
#include "engine/state.h"

#include "base/log.h"
#include "base/time.h"

#include <string.h>

/* Report it to the neighbours, except over the link that it came from. */
static void spread_dead(tutti__engine_t *e, int from, tutti_status_t status, const char *text)
{
    tutti__dead_msg_t msg = { (uint32_t)status, (uint32_t)strlen(text) };
    char body[sizeof(msg) + TUTTI__ERROR_BYTES];

    memcpy(body, &msg, sizeof(msg));
    memcpy(body + sizeof(msg), text, msg.text_bytes);
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != from && !e->link[i].lost)
            tutti__link_send(e, i, TUTTI__MSG_DEAD, body, sizeof(msg) + msg.text_bytes);
}

/* 1 if this is the first reason. Any thread. */
static int set_dead(tutti__engine_t *e, tutti_status_t status, const char *text)
{
    int first;

    tutti__mutex_lock(&e->queue_lock);
    first = atomic_load(&e->dead) == 0;
    if (first) {
        snprintf(e->dead_text, sizeof(e->dead_text), "%s", text);
        /* Release: a thread that reads `dead` may read the text. */
        atomic_store(&e->dead, (int)status);
    }
    tutti__mutex_unlock(&e->queue_lock);
    return first;
}

/* ---- status pages ---- */

uint32_t tutti__watch_page(const tutti__engine_t *e, uint32_t rank)
{
    int32_t index = e->env.machine->index_of[rank];

    return index < 0 ? TUTTI__PAGE_OPEN : tutti__load_acquire(&e->env.machine->page[index]->end);
}

void tutti__watch_set_page(const tutti__engine_t *e, uint32_t end)
{
    const tutti__machine_t *machine = e->env.machine;
    tutti__word_t *word = &machine->page[machine->me]->end;

    if (tutti__load_relaxed(word) >= end)
        return;
    /* Release: a peer that reads it sees everything that this rank has written before. */
    tutti__store_release(word, end);
    tutti__fence();
    for (uint32_t i = 0; i < machine->nranks; i++)
        if (i != machine->me)
            tutti__machine_ring(machine, i);
}

/* ---- texts ---- */

static int is_gone(tutti__engine_t *e, uint32_t rank)
{
    return atomic_load(&e->left[rank]) || tutti__watch_page(e, rank) == TUTTI__PAGE_LEFT;
}

int tutti__watch_left(tutti__engine_t *e, uint32_t rank, char *text, size_t bytes)
{
    if (rank >= e->size || !is_gone(e, rank))
        for (rank = 0; rank < e->size && !is_gone(e, rank); rank++) {
        }
    if (rank == e->size)
        return 0;
    snprintf(text, bytes, "%s has %s", tutti__boot_rank_name(e->env.boot, rank),
             e->env.is_part ? "freed this communicator (tutti_comm_free or tutti_finalize)"
                            : "called tutti_finalize");
    return 1;
}

const char *tutti__watch_closed(const tutti__engine_t *e)
{
    return e->env.is_part ? "this communicator was freed on this rank (tutti_comm_free or "
                            "tutti_finalize)"
                          : "tutti_finalize was called on this rank";
}

/* ---- deaths ---- */

static void die(tutti__engine_t *e, int from, tutti_status_t status, const char *text)
{
    if (!set_dead(e, status, text))
        return;
    /* Any other reason is reported through the tree only. */
    if (status == TUTTI_ERR_SHUTDOWN)
        tutti__watch_set_page(e, TUTTI__PAGE_ENDED);
    /* SHUTDOWN: the program made a rank leave early. The failing calls report this. */
    TUTTI__LOG(status == TUTTI_ERR_SHUTDOWN ? TUTTI__LOG_DEBUG : TUTTI__LOG_ERROR, "%s", text);
    spread_dead(e, from, status, text);
    if (e->env.on_death != NULL) {
        /* Peers must receive the reason before they see the effects of on_death. */
        tutti__links_flush(e);
        e->env.on_death(e->env.on_death_arg);
    }
}

void tutti__watch_dead(tutti__engine_t *e, tutti_status_t status, const char *text)
{
    die(e, -1, status, text);
}

void tutti__watch_message(tutti__engine_t *e, uint32_t link, const void *body, size_t bytes)
{
    const tutti__dead_msg_t *msg = body;
    char text[TUTTI__ERROR_BYTES];

    if (bytes < sizeof(*msg) || bytes != sizeof(*msg) + msg->text_bytes)
        return;
    snprintf(text, sizeof(text), "%.*s", (int)msg->text_bytes, (const char *)body + sizeof(*msg));
    die(e, (int)link, (tutti_status_t)msg->status, text);
}

void tutti__watch_lost(tutti__engine_t *e, int link, uint32_t rank)
{
    char text[TUTTI__ERROR_BYTES];

    /* If the rank is not a neighbour, only its leader knows whether it sent a goodbye. */
    if (link < 0) {
        for (uint32_t i = 0; i < e->nlinks; i++)
            if (e->link[i].rank == rank)
                link = (int)i;
        if (link < 0)
            return;
    }
    if (atomic_load(&e->left[rank]) || e->link[link].bye)
        return;
    snprintf(text, sizeof(text), "%s was lost: its process ended or its host is gone",
             tutti__boot_rank_name(e->env.boot, rank));
    die(e, link, TUTTI_ERR_PEER_LOST, text);
}

/* ---- goodbyes ---- */

/* Not agreed by all ranks yet, so the request needs the rank that has left. */
static int not_agreed(const tutti__request_t *request)
{
    return !request->agreed;
}

static void say_bye(tutti__engine_t *e, uint32_t link, uint32_t rank)
{
    tutti__link_send(e, link, TUTTI__MSG_BYE, &rank, sizeof(rank));
}

/*
 * Goodbyes go up to rank 0 and take effect on their way down, behind all buckets that rank 0 has
 * sent before. So no rank rejects a tensor that another rank reduces. A leader's own goodbye (link
 * -1) goes both ways, because nothing passes through the leader any longer.
 */
void tutti__watch_bye(tutti__engine_t *e, int link, uint32_t rank)
{
    if (rank >= e->size || atomic_load(&e->left[rank]))
        return;
    if (link >= 0 && e->link[link].local)
        tutti__link_read(e, (uint32_t)link);
    if (link >= 0 && e->link[link].rank == rank)
        e->link[link].bye = 1;
    if (link >= 0 && link != e->parent && e->parent >= 0) {
        say_bye(e, (uint32_t)e->parent, rank);
        return;
    }
    atomic_store(&e->left[rank], 1);
    atomic_store(&e->any_left, 1);
    tutti__links_flush(e);
    /* Also to a leader that has only forwarded the goodbye. */
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != link || (link != e->parent && e->link[i].rank != rank))
            say_bye(e, i, rank);
    tutti__watch_refuse(e);
}

/* ---- groups ---- */

void tutti__watch_cancel(tutti__engine_t *e, int link, const void *body, size_t bytes)
{
    tutti__cancel_msg_t msg;

    if (bytes != sizeof(msg))
        return;
    memcpy(&msg, body, sizeof(msg));
    /* Several ranks may send it, so a message of an earlier call may arrive late. */
    if (msg.first >= e->size || (int32_t)(msg.number - atomic_load(&e->cancelled[msg.first])) <= 0)
        return;
    atomic_store(&e->cancelled[msg.first], msg.number);
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != link)
            tutti__link_send(e, i, TUTTI__MSG_CANCEL, &msg, sizeof(msg));
}

void tutti__watch_refuse(tutti__engine_t *e)
{
    char text[160] = "";

    tutti__watch_left(e, TUTTI__NOBODY, text, sizeof(text));
    tutti__agree_depart(e->agree);
    tutti__agreed_clear(e);
    tutti__request_finish_all(e, not_agreed, TUTTI_ERR_SHUTDOWN, text);
}
