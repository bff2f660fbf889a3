/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps, and the token that allows a thread to take them.
 *
 * The token. A thread that wants to work tries to take the token. If it fails, it leaves its
 * request in the queue. The owner finds it there: after it has given the token back, it checks
 * `queued` once more.
 *
 * Sleeping. No thread sleeps with the token. If requests are pending, the last active thread
 * sets `sleeping` in this rank's status page, executes a fence, and takes one more step. Peers
 * store, execute a fence, and read `sleeping`. So either the step sees their stores, or they
 * ring the doorbell. While nothing is pending here, peers need not wake this rank: no tensor can
 * be complete without its own announcement. (Deaths and goodbyes, which must be seen at once,
 * arrive through sockets.)
 */
#include "engine/state.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* A busy owner polls the sockets in every n-th step. */
#define SIDE_EVERY 16

/* A thread that must have the token: first it yields so many times, and then it naps. */
#define YIELDS 100
#define NAP_US 50

void tutti__engine_message(tutti__engine_t *e, int link, uint32_t kind, const void *body,
                           size_t bytes)
{
    uint32_t rank;

    switch (kind) {
    case TUTTI__MSG_BUCKET:
        /* The state was cleared, so no request may enter it again. */
        if (!e->dead_seen)
            tutti__agree_message(e->agree, (uint32_t)link, kind, body, bytes);
        break;
    case TUTTI__MSG_ANNOUNCE:
    case TUTTI__MSG_REJECT:
    case TUTTI__MSG_JOIN:
    case TUTTI__MSG_JOINED:
        tutti__agree_message(e->agree, (uint32_t)link, kind, body, bytes);
        break;
    case TUTTI__MSG_BYE:
        if (bytes == sizeof(rank)) {
            memcpy(&rank, body, sizeof(rank));
            tutti__watch_bye(e, link, rank);
        }
        break;
    case TUTTI__MSG_MISSING:
        tutti__stalls_message(e, body, bytes);
        break;
    case TUTTI__MSG_CANCEL:
        tutti__watch_cancel(e, link, body, bytes);
        break;
    case TUTTI__MSG_DEAD:
        tutti__watch_message(e, (uint32_t)link, body, bytes);
        break;
    default:
        tutti__watch_dead(e, TUTTI_ERR_ABI, "a control message of an unknown kind");
    }
}

/* Announce submitted requests. */
static int take_queue(tutti__engine_t *e)
{
    tutti__request_t *request, *next;

    if (!atomic_load(&e->queued))
        return 0;
    /* After a goodbye no new tensor can be agreed. */
    if (atomic_load(&e->any_left)) {
        tutti__watch_refuse(e);
        return 1;
    }
    tutti__mutex_lock(&e->queue_lock);
    request = e->queue_first;
    e->queue_first = e->queue_last = NULL;
    atomic_store(&e->queued, 0);
    tutti__mutex_unlock(&e->queue_lock);
    for (; request != NULL; request = next) {
        next = request->next;
        tutti__agreed_submit(e, request);
    }
    return 1;
}

/* The communicator has died: end all pending requests, and clear the state. */
static void bury(tutti__engine_t *e, tutti__who_t who)
{
    if (!e->dead_seen) {
        e->dead_seen = 1;
        tutti__lanes_clear(e, who);
        tutti__agreed_clear(e);
    }
    tutti__request_finish_all(e, NULL, (tutti_status_t)atomic_load(&e->dead), e->dead_text);
}

/* Wake this rank's sleeping thread: some work needs a thread that polls, or that reads
   the sockets. */
void tutti__engine_ring_self(const tutti__engine_t *e)
{
    uint64_t one = 1;

    if (e->has_thread && write(e->env.machine->doorbell[e->env.machine->me], &one, sizeof(one)) < 0)
        errno = 0;
}

/* One step; 1 if anything moved. */
int tutti__engine_step(tutti__engine_t *e, tutti__who_t who)
{
    int side = e->remote && e->polls++ % SIDE_EVERY == 0;
    int moved = 0, left;

    if (atomic_load(&e->news))
        side |= atomic_exchange(&e->news, 0);
    moved |= tutti__links_poll(e, side);
    if (atomic_load(&e->dead)) {
        if (!e->dead_seen || atomic_load(&e->pending) > 0)
            bury(e, who);
        return 0;
    }
    moved |= take_queue(e);
    moved |= tutti__agreed_step(e);
    moved |= tutti__lanes_step(e, who, &left);
    tutti__links_flush(e);
    /* After a goodbye no more buckets arrive. */
    if (atomic_load(&e->any_left) && e->in_flight == 0)
        tutti__watch_set_page(e, TUTTI__PAGE_IDLE);
    if (left && !moved)
        tutti__engine_ring_self(e);
    return moved;
}

int tutti__token_take(tutti__engine_t *e)
{
    return TUTTI__LIKELY(atomic_load(&e->wanted) == 0) && atomic_exchange(&e->token, 1) == 0;
}

/* A thread that steps in a loop would take the token again and again, so all others hold back. */
void tutti__token_await(tutti__engine_t *e)
{
    atomic_fetch_add(&e->wanted, 1);
    for (int tries = 0; atomic_exchange(&e->token, 1) != 0; tries++)
        if (tries < YIELDS)
            sched_yield();
        else
            usleep(NAP_US);
    atomic_fetch_sub(&e->wanted, 1);
}

void tutti__engine_sleeping(const tutti__engine_t *e, uint32_t value)
{
    tutti__word_t *word = &e->env.machine->page[e->env.machine->me]->sleeping;

    if (atomic_load_explicit(word, memory_order_relaxed) == value)
        return;
    atomic_store_explicit(word, value, memory_order_relaxed);
    /* Pairs with the fences of all peers that publish and then ring. */
    tutti__fence();
}

/* No thread polls after this, so peers must ring if anything is pending. */
static void give_back(tutti__engine_t *e, tutti__who_t who)
{
    int rings;

    do {
        rings = atomic_load(&e->pending) > 0;
        tutti__engine_sleeping(e, (uint32_t)rings);
        /* If a thread is in token_await, it takes over: it continues here, and gives the
           token back. */
        while (!atomic_load(&e->wanted) &&
               (atomic_load(&e->pending) > 0 || atomic_load(&e->news)) &&
               tutti__engine_step(e, who)) {
        }
        atomic_store(&e->token, 0);
        /* Once more, for the request of a thread that found the token taken meanwhile. */
    } while ((atomic_load(&e->queued) || atomic_load(&e->news) ||
              (!rings && atomic_load(&e->pending) > 0)) &&
             tutti__token_take(e));
}

void tutti__token_leave(tutti__engine_t *e, tutti__who_t who)
{
    give_back(e, who);
    tutti__request_callbacks(e);
}

void tutti__engine_help(tutti__engine_t *e)
{
    if (atomic_load(&e->pending) == 0 || !tutti__token_take(e))
        return;
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    give_back(e, TUTTI__STEP_WAITER);
    if (atomic_load(&e->polling) || atomic_load(&e->callbacks))
        tutti__engine_ring_self(e);
}

void tutti__engine_kick(tutti__engine_t *e, tutti__who_t who)
{
    if (who == TUTTI__STEP_WAITER && e->env.help != NULL)
        e->env.help(e->env.help_arg);
    if (!tutti__token_take(e))
        return;
    tutti__engine_step(e, who);
    tutti__token_leave(e, who);
    if (atomic_load(&e->polling))
        tutti__engine_ring_self(e);
}
