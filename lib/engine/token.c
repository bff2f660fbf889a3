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

#include "base/constants.h"

#include <sched.h>
#include <unistd.h>

void tutti__engine_message(void *engine, uint32_t link, uint32_t kind, const void *body,
                           size_t bytes)
{
    tutti__engine_t *e = engine;

    if (kind == TUTTI__MSG_MISSING)
        tutti__stalls_message(e, body, bytes);
    else if (kind > TUTTI__MSG_MISSING)
        tutti__watch_end(e->watch, TUTTI_ERR_ABI, "a control message of an unknown kind");
    else if (kind != TUTTI__MSG_BUCKET || !e->buried)
        /* After the state was cleared, no request may enter it again. */
        tutti__agree_message(e->agree, link, kind, body, bytes);
}

/* A rank has left: end all requests that are not agreed, because they need that rank. */
static int not_agreed(const tutti__request_t *request)
{
    return !request->agreed;
}

static void refuse(tutti__engine_t *e)
{
    char text[160] = "";

    tutti__watch_left_text(e->watch, TUTTI__NO_RANK, text, sizeof(text));
    tutti__agree_depart(e->agree);
    tutti__agreed_clear(e);
    tutti__request_finish_all(e, not_agreed, TUTTI_ERR_SHUTDOWN, text);
}

/* Announce submitted requests. */
static int take_queue(tutti__engine_t *e)
{
    tutti__request_t *request, *next;

    if (!atomic_load(&e->queued))
        return 0;
    /* After a goodbye no new tensor can be agreed. */
    if (tutti__watch_any_left(e->watch)) {
        refuse(e);
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

/* The communicator has ended: tell the neighbours, end all pending requests, and clear the state.
   Peers receive the reason before they see the effects of the abort. */
static void bury(tutti__engine_t *e)
{
    const char *text;
    tutti_status_t status = tutti__watch_state(e->watch, &text);

    tutti__watch_tell(e->watch);
    if (!e->buried) {
        e->buried = 1;
        if (e->env.exec->device != NULL)
            tutti__device_abort(e->env.exec->device);
        tutti__lanes_clear(e);
        tutti__agreed_clear(e);
    }
    tutti__request_finish_all(e, NULL, status, text);
}

/* Wake this rank's sleeping thread: some work needs a thread that polls, or that reads
   the sockets. */
void tutti__engine_ring_self(const tutti__engine_t *e)
{
    if (e->has_thread)
        tutti__machine_ring_always(e->env.machine, e->env.machine->me);
}

/* One step; 1 if anything moved. */
int tutti__engine_step(tutti__engine_t *e, tutti__who_t who)
{
    int side = tutti__links_remote(e->watch) && e->polls++ % TUTTI__SIDE_EVERY == 0;
    int moved = 0, left;

    if (atomic_load(&e->news))
        side |= atomic_exchange(&e->news, 0);
    moved |= tutti__links_poll(e->watch, side);
    if (TUTTI__UNLIKELY(tutti__watch_departed(e->watch)))
        refuse(e);
    if (tutti__watch_has_ended(e->watch)) {
        if (!e->buried || atomic_load(&e->pending) > 0)
            bury(e);
        return 0;
    }
    moved |= take_queue(e);
    moved |= tutti__agreed_step(e);
    moved |= tutti__lanes_step(e, who, &left);
    tutti__links_flush(e->watch);
    /* After a goodbye no more buckets arrive. */
    if (tutti__watch_any_left(e->watch) && e->in_flight == 0)
        tutti__watch_set_idle(e->watch);
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
        if (tries < TUTTI__TOKEN_YIELDS)
            sched_yield();
        else
            usleep(TUTTI__TOKEN_NAP_US);
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
    if (who == TUTTI__STEP_WAITER)
        tutti__engine_help_others(e);
    if (!tutti__token_take(e))
        return;
    tutti__engine_step(e, who);
    tutti__token_leave(e, who);
    if (atomic_load(&e->polling))
        tutti__engine_ring_self(e);
}
