/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watch: peers that die, leave or are late.
 *
 * A death is seen by a neighbour in the tree (its connection closes, its process ends), who tells
 * everybody, up and down; so each rank hears of it even if its own data path is stuck elsewhere.
 * The communicator is dead then: `dead` is set, all pending requests end with the reason, and
 * direct calls, which look at `dead` while they wait, end too. The first reason wins.
 *
 * A rank that calls finalize says goodbye first. What needs it and is not agreed yet ends with
 * TUTTI_ERR_SHUTDOWN; what is in flight ends well if it can.
 *
 * Whoever has left passes nothing on: without rank 0 hosts hear nothing of each other, without its
 * leader a host hears nothing. So each rank writes how near its end it is into its door, too, where
 * all of its machine look who wait for it. Between machines the first goodbye is what is heard, and
 * a wait for a rank behind the gap ends by its deadline.
 */
#include "engine/state.h"

#include "base/log.h"
#include "base/time.h"

#include <string.h>

/* Tell the neighbours, except the link it came from. */
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
        /* Release: who sees `dead` may read the text. */
        atomic_store(&e->dead, (int)status);
    }
    tutti__mutex_unlock(&e->queue_lock);
    return first;
}

/* ---- doors ---- */

uint32_t tutti__watch_door(const tutti__engine_t *e, uint32_t rank)
{
    int32_t index = e->env.machine->index_of[rank];

    return index < 0 ? TUTTI__DOOR_OPEN : tutti__load_acquire(&e->env.machine->door[index]->end);
}

void tutti__watch_close_door(const tutti__engine_t *e, uint32_t end)
{
    const tutti__machine_t *machine = e->env.machine;
    tutti__word_t *word = &machine->door[machine->me]->end;

    if (tutti__load_relaxed(word) >= end)
        return;
    /* Release: who sees it sees all that this rank has written before. */
    tutti__store_release(word, end);
    tutti__fence();
    for (uint32_t i = 0; i < machine->nranks; i++)
        if (i != machine->me)
            tutti__machine_ring(machine, i);
}

/* ---- words ---- */

static int is_gone(tutti__engine_t *e, uint32_t rank)
{
    return atomic_load(&e->left[rank]) || tutti__watch_door(e, rank) == TUTTI__DOOR_LEFT;
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
    /* Of other deaths the tree tells, or nobody. */
    if (status == TUTTI_ERR_SHUTDOWN)
        tutti__watch_close_door(e, TUTTI__DOOR_ENDED);
    /* A peer that ends early is the program's affair, and the calls that fail say so. */
    TUTTI__LOG(status == TUTTI_ERR_SHUTDOWN ? TUTTI__LOG_DEBUG : TUTTI__LOG_ERROR, "%s", text);
    spread_dead(e, from, status, text);
    if (e->env.on_death != NULL) {
        /* First the reason, then what follows from it. */
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

    /* A rank that is no neighbour may have said goodbye to its leader; that one knows. */
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

/* Not agreed by all ranks yet, so it needs the one that has left. */
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
 * sent before; so no rank refuses a tensor that another one reduces. A leader's own goodbye (link
 * -1) goes both ways: nothing comes through it any more.
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
    /* Also to a leader who has only passed it on. */
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
    /* Several ranks may say it, so one of an earlier call may be late. */
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
