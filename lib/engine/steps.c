/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps: the work of the token's owner.
 *
 * If a thread finds the token taken, it leaves its request in the queue. The owner of the token
 * finds the request there: after it has given the token back, it checks `queued` once more.
 *
 * Sleeping. No thread sleeps while it owns the token. If requests are pending, or buckets are in
 * lanes, the last active thread sets `sleeping` in this rank's status page, executes a fence, and
 * takes one more step. Peers store, execute a fence, and read `sleeping`. So either the step sees
 * their stores, or they ring the doorbell. If nothing is pending, peers need not wake this rank:
 * each tensor still needs this rank's announcement. (Deaths and goodbyes must be seen at once, so
 * they arrive through sockets.)
 */
#include "engine/steps.h"

#include "base/constants.h"
#include "base/own_thread.h"
#include "base/time.h"
#include "engine/own_deadline.h"

#include <assert.h>
#include <sys/timerfd.h>

/* The alarm wakes the engine's thread, which then checks at shorter intervals. */
static void take_stuck(tutti__engine_t *e, uint32_t kind, const void *body, size_t bytes)
{
    if (tutti__watch_has_ended(e->env.watch))
        return;
    tutti__stuck_message(&tutti__owned(e)->stalls.stuck, kind, body, bytes);
    tutti__engine_ring_later(e);
}

void tutti__engine_message(void *engine, uint32_t link, uint32_t kind, const void *body,
                           size_t bytes)
{
    tutti__engine_t *e = engine;

    if (kind == TUTTI__MSG_MISSING)
        tutti__stalls_message(&e->env, body, bytes);
    else if (kind == TUTTI__MSG_STUCK || kind == TUTTI__MSG_QUESTION)
        take_stuck(e, kind, body, bytes);
    else if (kind > TUTTI__MSG_MISSING)
        tutti__watch_end(e->env.watch, TUTTI_ERR_ABI, "a control message of an unknown kind");
    else if (kind != TUTTI__MSG_BUCKET || !tutti__owned(e)->is_buried)
        /* After the state was cleared, a bucket must not add requests to it. */
        tutti__agree_message(tutti__owned(e)->agreed.agree, link, kind, body, bytes);
}

/* A rank has left: end all requests that are not agreed, because they need that rank. An ordered
   call ends only when it waits for that rank, like a direct call. A tutti_join ends later: see
   end_join. */
static int not_agreed(const tutti__request_t *request)
{
    return !request->agreed && !request->ordered && !request->joins;
}

static void refuse(tutti__engine_t *e)
{
    char text[160] = "";

    tutti__watch_left_text(e->env.watch, TUTTI__NO_RANK, text, sizeof(text));
    /* Call agreed_clear first: submitting threads use the plan's names until agreed_clear resets
       plan_names, and agree_depart clears these names. */
    tutti__agreed_clear(&tutti__owned(e)->agreed);
    tutti__agree_depart(tutti__owned(e)->agreed.agree);
    tutti__pending_finish_all(&e->pending, not_agreed, TUTTI_ERR_SHUTDOWN, text);
}

/* Announce submitted requests. */
static int take_queue(tutti__engine_t *e)
{
    if (!atomic_load(&e->pending.queued))
        return 0;
    /* After a goodbye the ranks agree on no new tensor. */
    if (tutti__watch_any_left(e->env.watch)) {
        tutti__agreed_submit(&tutti__owned(e)->agreed, tutti__pending_take(&e->pending), 1);
        refuse(e);
    } else {
        tutti__agreed_submit(&tutti__owned(e)->agreed, tutti__pending_take(&e->pending), 0);
    }
    return 1;
}

/* A rank has left, and the lanes are empty: end this rank's tutti_join. If it ended earlier, the
   program could finalize while other ranks wait for this rank's zero contributions. */
static void end_join(tutti__engine_t *e)
{
    tutti__request_t *join;
    char text[160] = "";

    tutti__mutex_lock(&e->pending.lock);
    join = e->pending.join;
    tutti__mutex_unlock(&e->pending.lock);
    if (join == NULL)
        return;
    assert(tutti__watch_any_left(e->env.watch) && !atomic_load(&e->pending.queued));
    tutti__watch_left_text(e->env.watch, TUTTI__NO_RANK, text, sizeof(text));
    tutti__pending_finish(&e->pending, join, TUTTI_ERR_SHUTDOWN, text);
}

/* The communicator has ended: tell the neighbours, end all pending requests, and clear the state.
   Peers receive the reason before they see the effects of the abort. */
static void bury(tutti__engine_t *e)
{
    const char *text;
    tutti_status_t status = tutti__watch_state(e->env.watch, &text);

    tutti__watch_tell(e->env.watch);
    if (!tutti__owned(e)->is_buried) {
        tutti__owned(e)->is_buried = 1;
        if (e->env.exec->device != NULL)
            tutti__device_abort(e->env.exec->device);
        tutti__lanes_clear(&tutti__owned(e)->lanes);
        tutti__agreed_clear(&tutti__owned(e)->agreed);
    }
    tutti__pending_finish_all(&e->pending, NULL, status, text);
}

/* Wake this rank's sleeping thread: some work needs a thread that polls, or that reads
   the sockets. */
void tutti__engine_ring_self(const tutti__engine_t *e)
{
    if (e->has_thread)
        tutti__machine_ring_always(e->env.machine, e->env.machine->me);
}

/*
 * Set a timer that wakes the engine's thread after alarm_us. Programs often wait soon after they
 * submit, and the waiting thread then does the work. If the engine's thread woke at once, it would
 * take the processor from the waiting thread, because mpirun binds both to one core. Tried: to ring
 * at once. The ring, two switches of threads and a sleep took 12 us of an allreduce of 512 KiB.
 * Setting the timer takes less than 1 us, at most once in ALARM_US. While the alarms are in vain,
 * they go off later (set_alarm_us in thread.c): each of them interrupts the waiting thread.
 */
void tutti__engine_ring_later(tutti__engine_t *e)
{
    uint32_t us = atomic_load_explicit(&e->alarm_us, memory_order_relaxed);
    const struct itimerspec once = { .it_value = { 0, (long)us * 1000 } };

    if (!e->has_thread || atomic_exchange(&e->alarmed, 1))
        return;
    /* Plain stores: in tests/unit/boot/test_wake, the functions' stores are delayed. */
    e->alarm_waits = atomic_load_explicit(&e->pending.waits, memory_order_relaxed);
    e->alarm_ns = tutti__now_ns();
    timerfd_settime(e->alarm, 0, &once, NULL);
}

/*
 * Step the lanes. If this step has begun work that advances only when polled, waiters in a long
 * sleep must wake and poll. Usually only a step of the engine's thread wakes them: a waiter that
 * steps polls the work itself. But if the engine's thread must not do the work (help.c), each such
 * step wakes them, because the thread that steps may leave before the work is done.
 */
static int step_lanes(tutti__engine_t *e, tutti__who_t who, int *ret_left)
{
    tutti__lanes_t *lanes = &tutti__owned(e)->lanes;
    int polled = lanes->polls, moved = tutti__lanes_step(lanes, who, ret_left);

    if (TUTTI__LIKELY(polled || !lanes->polls))
        return moved;
    if (!tutti__help_wake(e) && who == TUTTI__STEP_THREAD)
        tutti__pending_wake(&e->pending);
    return moved;
}

/* One step; 1 if anything moved. */
int tutti__engine_step(tutti__engine_t *e, tutti__who_t who)
{
    tutti__owned_t *own = tutti__owned(e);
    int side = tutti__links_remote(e->env.watch) && own->polls++ % TUTTI__SIDE_EVERY == 0;
    int moved = 0, left;

    if (atomic_load(&e->news))
        side |= atomic_exchange(&e->news, 0);
    /* After a failure of a transport or on the device, poll the sockets: a report of its cause may
       arrive there. */
    side |= tutti__lanes_pause(&own->lanes);
    moved |= tutti__links_poll(e->env.watch, side);
    if (TUTTI__UNLIKELY(tutti__watch_departed(e->env.watch)))
        refuse(e);
    if (tutti__watch_has_ended(e->env.watch)) {
        if (!tutti__owned(e)->is_buried || tutti__pending_count(&e->pending) > 0)
            bury(e);
        return 0;
    }
    moved |= take_queue(e);
    moved |= tutti__agreed_step(&own->agreed);
    moved |= step_lanes(e, who, &left);
    tutti__links_flush(e->env.watch);
    /* After a goodbye no more buckets arrive, and no bucket of a plan starts. */
    if (tutti__watch_any_left(e->env.watch) && own->lanes.in_flight + own->lanes.planned == 0) {
        tutti__watch_set_idle(e->env.watch);
        end_join(e);
    }
    if (left && !moved)
        tutti__engine_ring_later(e);
    return moved;
}

/*
 * An MPI may report a message as complete that it has only copied, and send it at this rank's next
 * call of MPI: Open MPI over UCX over TCP does so if the socket is full. But this rank's operations
 * are complete, so no step calls MPI, and this rank may wait for a tensor of a rank that waits for
 * the message. So a rank that waits, tests or leaves calls this function. A rank in no call of the
 * library calls MPI only if its thread wakes, like a program that uses MPI alone.
 */
void tutti__engine_push(const tutti__engine_t *e)
{
    tutti__xport_t *far = e->far;

    if (far != NULL && far->ops->progress != NULL && !tutti__watch_has_ended(e->env.watch) &&
        far->ops->may_progress(far, tutti__thread_is_own()))
        (void)far->ops->progress(far);
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

/* May peers wait for this rank? A rank without pending requests may also run buckets: with zero
   contributions, or buckets of a plan whose tensors this rank has not submitted. */
static int has_work(tutti__engine_t *e)
{
    const tutti__lanes_t *lanes = &tutti__owned(e)->lanes;

    return tutti__pending_count(&e->pending) > 0 || lanes->in_flight + lanes->planned > 0;
}

/* No thread polls after this, so peers must ring if there is work. */
static void give_back(tutti__engine_t *e, tutti__who_t who)
{
    int rings, is_late;

    do {
        rings = has_work(e);
        tutti__engine_sleeping(e, (uint32_t)rings);
        /* If a thread waits in token_await, stop and leave the token to it. That thread takes the
           remaining steps when it gives the token back. */
        while (!atomic_load(&e->token.wanted) && (has_work(e) || atomic_load(&e->news)) &&
               tutti__engine_step(e, who)) {
        }
        /* These steps may have begun a bucket, after peers were told not to ring. */
        is_late = !rings && has_work(e);
        tutti__token_leave(&e->token);
        /* Repeat this if another thread has found the token taken, and has left its request in the
           queue. */
    } while ((is_late || atomic_load(&e->pending.queued) || atomic_load(&e->news) ||
              (!rings && tutti__pending_count(&e->pending) > 0)) &&
             tutti__token_take(&e->token));
}

void tutti__engine_yield(tutti__engine_t *e, tutti__who_t who)
{
    give_back(e, who);
    if (TUTTI__UNLIKELY(tutti__pending_callbacks(&e->pending)))
        tutti__engine_ring_self(e);
}

int tutti__engine_help(tutti__engine_t *e)
{
    uint32_t before, after;

    /* The helper must not call callbacks: the engine's thread calls them. If the engine has no
       thread, do not help. */
    if (!e->has_thread || tutti__pending_count(&e->pending) == 0 || !tutti__token_take(&e->token))
        return 0;
    before = tutti__lanes_moves(&tutti__owned(e)->lanes);
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    after = tutti__lanes_moves(&tutti__owned(e)->lanes);
    give_back(e, TUTTI__STEP_WAITER);
    if (atomic_load(&e->signals.polling) || atomic_load(&e->pending.callbacks))
        tutti__engine_ring_self(e);
    return after != before;
}

void tutti__engine_kick(tutti__engine_t *e, tutti__who_t who)
{
    if (who == TUTTI__STEP_WAITER)
        tutti__engine_help_others(e);
    if (!tutti__token_take(&e->token))
        return;
    if (!tutti__engine_step(e, who)) {
        tutti__overdue_check(&tutti__owned(e)->agreed, &e->pending);
        if (who == TUTTI__STEP_WAITER)
            tutti__engine_push(e);
    }
    tutti__engine_yield(e, who);
    if (atomic_load(&e->signals.polling))
        tutti__engine_ring_later(e);
}
