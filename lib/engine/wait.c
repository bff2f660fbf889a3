/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Testing and waiting. Any thread.
 *
 * A waiting thread does the engine's work itself, for two reasons: mpirun may bind all threads of a
 * rank to one core, and on a virtual machine, waking a thread on another core takes 38 us. The
 * waiter spins for a while if there are enough processors, and yields a hundred times. Then it
 * leaves the work to the engine's thread, and sleeps until a request is done.
 */
#include "engine/waiter.h"

#include "base/constants.h"

#include "base/forked.h"
#include "base/time.h"
#include "engine/own_deadline.h"
#include "engine/recorded.h"
#include "engine/steps.h"
#include "engine/stuck.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the awaited requests ---- */

/* Entry i of the list, if a call may wait for it; otherwise NULL. */
static const tutti__request_t *entry(const tutti__waiter_t *w, size_t i)
{
    const tutti__slot_t *slot = tutti__handle_find(&tutti__requests, w->list[i]);
    const tutti__request_t *found = slot == NULL ? NULL : tutti__handle_object(slot);

    return found != NULL && tutti__request_is_active(found) ? found : NULL;
}

/* The first awaited request: `one`, or if that is NULL, the first entry of the list that a call may
   wait for. NULL: there is none. */
static const tutti__request_t *first_of(const tutti__waiter_t *w)
{
    const tutti__request_t *first = w->one;

    for (size_t i = 0; i < w->n && first == NULL; i++)
        first = entry(w, i);
    return first;
}

/* Set w->ready to the index of the request that ended first, so that requests are reported in the
   order of their ends. Returns 1 if a request is done, or if the list has nothing to wait for. */
static int search(tutti__waiter_t *w)
{
    uint64_t ended_ns = UINT64_MAX;

    w->ready = w->n;
    w->is_empty = 1;
    for (size_t i = 0; i < w->n; i++) {
        const tutti__request_t *r = entry(w, i);

        w->is_empty &= r == NULL;
        if (r == NULL || !tutti__request_is_done(r) || r->ended_ns >= ended_ns)
            continue;
        ended_ns = r->ended_ns;
        w->ready = i;
    }
    return w->ready < w->n || w->is_empty;
}

/* Is the wait over? If one engine has all requests of the list, search the list again only when a
   request has ended. */
static int is_ready(tutti__waiter_t *w)
{
    const tutti__engine_t *e = w->wait.engine;
    uint32_t epoch;

    if (TUTTI__LIKELY(w->one != NULL))
        return tutti__request_is_done(w->one) ||
               (w->enough != NULL && tutti__load_acquire(w->enough));
    if (e == NULL)
        return search(w);
    epoch = atomic_load(&e->pending.epoch);
    if (w->has_looked && epoch == w->looked)
        return w->ready < w->n || w->is_empty;
    w->looked = epoch;
    w->has_looked = 1;
    return search(w);
}

/* ---- deadlines ---- */

static int find_culprit(void *waiter, char *text, size_t bytes)
{
    tutti__waiter_t *w = waiter;
    tutti__engine_t *e = w->late;
    const tutti__request_t *request;
    int certain = TUTTI__LATE_NOT;

    tutti__token_await(&e->token);
    request = is_ready(w) ? NULL : first_of(w);
    /* Callbacks of several engines may free the first request meanwhile. */
    if (request != NULL && request->engine == e) {
        certain = tutti__agreed_culprit(&tutti__owned(e)->agreed, request, text, bytes);
        snprintf(w->name, sizeof(w->name), "%.100s", request->name);
        w->since_ns = request->since_ns;
    }
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
    return is_ready(w) ? TUTTI__LATE_NOT : certain;
}

static void what(void *waiter, char *text, size_t bytes)
{
    const tutti__waiter_t *w = waiter;
    char since[24];

    snprintf(text, bytes, "waited %s for tensor '%s'",
             tutti__late_time(tutti__now_ns() - w->since_ns, since), w->name);
}

/* Check the deadline. If the caller's timeout has passed, return TIMEOUT. If the library's own
   timeout has passed, the request is assumed never to complete, so the communicator ends. Rank 0
   waits half as long as other ranks for a report of the culprit, because rank 0 can name at least
   the culprit's host. A rank in tutti_join waits for ranks that still work, so each bucket that is
   served extends the deadline of this wait. */
static tutti_status_t check(tutti__engine_t *e, tutti__waiter_t *w)
{
    const tutti__request_t *request;
    const tutti__late_t late = { .what = what,
                                 .culprit = find_culprit,
                                 .subject = w,
                                 .unsure_ns =
                                     (e->rank == 0 ? 1 : 2) * TUTTI__CULPRIT_MS * 1000000u };
    uint64_t now = tutti__now_ns();

    if (now < w->deadline_ns)
        return TUTTI_OK;
    if (w->timeout_ms >= 0)
        return TUTTI_ERR_TIMEOUT;
    w->late = e;
    request = first_of(w);
    if (request == NULL)
        return TUTTI_OK;
    if (request->joins && now < atomic_load(&e->signals.moved_ns) + w->limit_ns) {
        w->deadline_ns = atomic_load(&e->signals.moved_ns) + w->limit_ns;
        return TUTTI_OK;
    }
    if (tutti__late_check(e->env.watch, &late, w->deadline_ns - w->limit_ns, now, w->limit_ns))
        tutti__engine_settle(e);
    return TUTTI_OK;
}

tutti_status_t tutti__wait_not_yet(const tutti__waiter_t *w, int timeout_ms)
{
    if (w->one != NULL)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "tensor '%s' is not done after %d ms", w->one->name,
                           timeout_ms);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "none of the tensors is done after %d ms", timeout_ms);
}

/* own_ms: the library's own timeout. */
static void set_deadline(tutti__waiter_t *w, uint64_t own_ms)
{
    const tutti__request_t *one = w->one;

    w->limit_ns = (w->timeout_ms < 0 ? own_ms : (uint64_t)w->timeout_ms) * 1000000u;
    w->deadline_ns = tutti__now_ns() + w->limit_ns;
    /* A request's own deadline counts from its submission. */
    if (w->timeout_ms < 0 && one != NULL && one->timeout_ms > 0) {
        w->limit_ns = one->timeout_ms * (uint64_t)1000000;
        w->deadline_ns = one->since_ns + w->limit_ns;
    }
}

/* ---- working and sleeping ---- */

/* The first awaited request that waits in a plan of this engine; NULL: there is none. */
static const tutti__request_t *held_of(const tutti__engine_t *e, const tutti__waiter_t *w)
{
    if (w->one != NULL)
        return tutti__load_relaxed(&w->one->waits_in_plan) ? w->one : NULL;
    for (size_t i = 0; i < w->n; i++) {
        const tutti__request_t *r = entry(w, i);

        if (r != NULL && r->engine == e && tutti__load_relaxed(&r->waits_in_plan))
            return r;
    }
    return NULL;
}

/* Tell the plan that this thread waits for a request. The plan is stopped if no further request is
   submitted for patience_ns. The caller owns the token. */
static void want(tutti__engine_t *e, tutti__waiter_t *w, uint64_t patience_ns)
{
    const tutti__request_t *request;

    if (TUTTI__LIKELY(tutti__owned(e)->agreed.plan.nheld == 0) || is_ready(w))
        return;
    request = held_of(e, w);
    if (request != NULL)
        tutti__planned_want(&tutti__owned(e)->agreed.plan, request, patience_ns);
}

/* Take the token if it is free, and run a step. If another thread has the token, that thread does
   the work, and the waiter sleeps. */
static tutti_status_t poll(tutti__wait_t *wait)
{
    tutti__waiter_t *w = (tutti__waiter_t *)(void *)wait;
    tutti__engine_t *e = wait->engine;
    int took = 0;

    if (is_ready(w))
        return TUTTI_OK;
    wait->moved = 0;
    wait->hint.peer = -1;
    if (!w->holds && tutti__token_take(&e->token)) {
        w->holds = 1;
        wait->looks = 0;
        tutti__stalls_check(&tutti__owned(e)->stalls);
        tutti__engine_sleeping(e, 0);
        took = 1;
    }
    if (w->holds) {
        wait->moved = tutti__engine_step(e, TUTTI__STEP_WAITER);
        if (!wait->moved)
            want(e, w, TUTTI__PLAN_WAIT_NS);
        /* If a program waits in many short waits, the engine's thread may never find the token
           free. So a waiter that has taken the token and finds no work checks the deadlines. */
        if (!wait->moved && took) {
            tutti__overdue_check(&tutti__owned(e)->agreed, &e->pending);
            tutti__engine_push(e);
        }
    }
    w->calls_back = wait->moved && atomic_load(&e->pending.callbacks);
    wait->rests = !w->holds || w->calls_back || atomic_load(&e->token.wanted);
    /* The deadline is checked before each sleep. While other requests make progress, the waiter
       does not sleep by itself. So after the deadline `rests` makes the wait loop call sleep. */
    if (wait->moved && ++w->busy % TUTTI__BUSY_CHECK == 0 && tutti__now_ns() >= w->deadline_ns)
        wait->rests = 1;
    return is_ready(w) ? TUTTI_OK : TUTTI__AGAIN;
}

/* Before a sleep, note whether the lanes have moved. A waiter without the token cannot read the
   lanes' counters. It assumes that the lanes have moved, because another thread has the token. */
static void note_moves(tutti__engine_t *e, tutti__waiter_t *w)
{
    uint32_t moves = w->holds ? tutti__lanes_moves(&tutti__owned(e)->lanes) : w->moves + 1;

    if (moves != w->moves)
        w->quiet_ns = 0;
    w->moves = moves;
}

/* Give the token back. who: the kind of the last steps, which engine_yield takes. If the engine has
   no thread, these steps must do all the work. */
static void let_go(tutti__engine_t *e, tutti__waiter_t *w, tutti__who_t who)
{
    if (w->holds)
        tutti__engine_yield(e, e->has_thread ? who : TUTTI__STEP_WAITER);
    w->holds = 0;
}

/* Is there work that this thread must poll, here or in another engine? */
static int must_poll(const tutti__engine_t *e)
{
    return atomic_load(&e->signals.polling) || tutti__help_is_due(e);
}

/* Sleep until a request is done; other threads do the work meanwhile. Do not begin a long sleep if,
   since the call of nap_us, work has begun that must be polled. If such work begins during the
   sleep, the epoch changes and ends the sleep. */
static void sleep_epoch(tutti__engine_t *e, tutti__waiter_t *w, int64_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    uint32_t epoch = atomic_load(&e->pending.epoch);

    atomic_fetch_add(&e->pending.sleepers, 1);
    if (!is_ready(w) && (timeout_us <= TUTTI__FAR_SLEEP_MOST_US || !must_poll(e)))
        syscall(SYS_futex, &e->pending.epoch, FUTEX_WAIT_PRIVATE, epoch, &timeout, NULL, 0);
    atomic_fetch_sub(&e->pending.sleepers, 1);
}

/* How long a waiter may sleep now, in microseconds. */
static int64_t nap_us(const tutti__engine_t *e, tutti__waiter_t *w, uint64_t now)
{
    int64_t left = w->deadline_ns > now ? (int64_t)(w->deadline_ns - now) / 1000 + 1 : 0;

    if (left == 0) /* the deadline has passed: poll until the culprit has been reported */
        return TUTTI__NEWS_POLL_US;
    if (w->quiet_ns == 0)
        w->quiet_ns = now;
    if (must_poll(e))
        return TUTTI__MIN(left,
                          tutti__poll_nap_us(e, now - TUTTI__MAX(w->quiet_ns, w->wait.helped_ns)));
    if (held_of(e, w) != NULL) /* poll soon again: the poll stops a plan without progress */
        left = TUTTI__MIN(left, TUTTI__PLAN_WAIT_NS / 1000);
    return TUTTI__MIN(left, TUTTI__TICK_MS * 1000);
}

/* Note a long wait, because ranks may wait for each other in a circle (stuck.c). Only a wait for
   one request without a timeout is noted. */
static void note_long(tutti__engine_t *e, tutti__waiter_t *w, uint64_t now)
{
    if (!w->is_long && w->one != NULL && w->timeout_ms < 0 &&
        now >= w->deadline_ns - w->limit_ns + TUTTI__STUCK_NS)
        w->is_long = tutti__stuck_begin(&e->pending, w->one);
}

static tutti_status_t sleep_until_done(tutti__wait_t *wait)
{
    tutti__waiter_t *w = (tutti__waiter_t *)(void *)wait;
    tutti__engine_t *e = wait->engine;
    int calls_back = w->calls_back, held = w->holds;
    tutti_status_t status;
    uint64_t now;

    note_moves(e, w);
    let_go(e, w, TUTTI__STEP_WAITER);
    if (is_ready(w))
        return TUTTI_OK;
    if (calls_back)
        return check(e, w);
    /* From here on the engine's thread does the work. */
    if (held && (atomic_load(&e->signals.polling) || atomic_load(&e->alarmed)))
        tutti__engine_ring_self(e);
    tutti__recorded_sleep(e->env.watch, w, first_of(w));
    status = check(e, w);
    if (status == TUTTI_OK && !is_ready(w)) {
        now = tutti__now_ns();
        note_long(e, w, now);
        sleep_epoch(e, w, nap_us(e, w, now));
    }
    return status;
}

/* ---- the waits ---- */

static void look(tutti__engine_t *e, tutti__waiter_t *w, uint64_t patience_ns)
{
    tutti__engine_kick(e, TUTTI__STEP_WAITER);
    if (is_ready(w) || held_of(e, w) == NULL || !tutti__token_take(&e->token))
        return;
    want(e, w, patience_ns);
    tutti__engine_yield(e, TUTTI__STEP_BRIEF);
    if (atomic_load(&e->signals.polling))
        tutti__engine_ring_later(e);
}

void tutti__wait_look(tutti__engine_t *e, tutti__waiter_t *w)
{
    look(e, w, TUTTI__PLAN_TEST_NS);
}

/* If the program has computed between its submission and this wait, set the time until an alarm
   back to ALARM_US, so that the engine's thread works during the next computation. waits:
   pending.waits before this wait. */
static void note_submission(tutti__engine_t *e, unsigned waits)
{
    const uint64_t soon_ns = TUTTI__ALARM_US * 1000ull;

    if (atomic_load_explicit(&e->alarm_us, memory_order_relaxed) == TUTTI__ALARM_US ||
        !atomic_load_explicit(&e->alarmed, memory_order_relaxed) ||
        atomic_load_explicit(&e->alarm_waits, memory_order_relaxed) != waits)
        return;
    if (tutti__now_ns() - atomic_load_explicit(&e->alarm_ns, memory_order_relaxed) > soon_ns)
        atomic_store_explicit(&e->alarm_us, TUTTI__ALARM_US, memory_order_relaxed);
}

static tutti_status_t wait_entered(tutti__engine_t *e, tutti__waiter_t *w)
{
    static const tutti__wait_ops_t near = { .poll = poll,
                                            .sleep = sleep_until_done,
                                            .spins = TUTTI__SPIN_STEPS,
                                            .yields = TUTTI__YIELD_STEPS };
    static const tutti__wait_ops_t far = { .poll = poll,
                                           .sleep = sleep_until_done,
                                           .spins = TUTTI__SPIN_LOOKS,
                                           .yields = TUTTI__YIELD_STEPS };
    tutti_status_t status;
    uint32_t tensor;

    note_submission(e, atomic_fetch_add_explicit(&e->pending.waits, 1, memory_order_relaxed));
    w->wait = (tutti__wait_t){ .ops = e->far != NULL ? &far : &near, .engine = e };
    w->quiet_ns = 0;
    w->record = 0;
    w->is_long = 0;
    set_deadline(w, e->env.conf->timeout_ms);
    tensor = TUTTI__UNLIKELY(w->traced_ns != 0) && first_of(w) != NULL ? first_of(w)->record : 0;
    w->holds = 0;
    if (w->timeout_ms == 0) {
        tutti__wait_look(e, w);
        status = is_ready(w) ? TUTTI_OK : TUTTI_ERR_TIMEOUT;
    } else {
        /* This thread may call callbacks when it gives the token back. If callbacks free the
           request that was ready, wait for the next request. */
        do {
            status = tutti__wait_loop(&w->wait);
            let_go(e, w, TUTTI__STEP_BRIEF);
        } while (status == TUTTI_OK && !is_ready(w));
    }
    tutti__recorded_wait(e->env.watch->record, tensor, w->traced_ns);
    tutti__record_waited(e->env.watch->record, w->record);
    if (w->is_long)
        tutti__stuck_end(&e->pending);
    /* If other work in flight must be polled, the engine's thread must do this from now on. */
    if (atomic_load(&e->signals.polling))
        tutti__engine_ring_later(e);
    return status;
}

/* Let all engines with a request that is not done take a step. */
static tutti_status_t poll_several(tutti__wait_t *wait)
{
    tutti__waiter_t *w = (tutti__waiter_t *)(void *)wait;

    for (size_t i = 0; i < w->n; i++) {
        const tutti__request_t *r = entry(w, i);
        tutti__engine_t *e = r != NULL && !tutti__request_is_done(r) ? r->engine : NULL;

        /* The step may run a callback that frees the request, so use only `e` from here on. */
        if (e == NULL || !tutti__engine_enter(e))
            continue;
        look(e, w, TUTTI__PLAN_WAIT_NS);
        tutti__engine_leave(e);
    }
    wait->rests = 1;
    return is_ready(w) ? TUTTI_OK : TUTTI__AGAIN;
}

/* Requests of several engines have no common word to sleep on, so the waiter polls at intervals. */
static tutti_status_t sleep_several(tutti__wait_t *wait)
{
    tutti__waiter_t *w = (tutti__waiter_t *)(void *)wait;
    const tutti__request_t *first = first_of(w);
    tutti__engine_t *e = first != NULL ? first->engine : NULL;
    tutti_status_t status = TUTTI_OK;

    if (e != NULL && tutti__engine_enter(e)) {
        status = check(e, w);
        tutti__engine_leave(e);
    }
    if (status == TUTTI_OK)
        usleep(TUTTI__MIXED_NAP_US);
    return status;
}

/* The timeout of the first communicator that is not closed, in milliseconds; 0: all are closed, so
   all requests are done, or soon will be. */
static uint64_t timeout_of(const tutti__waiter_t *w)
{
    for (size_t i = 0; i < w->n; i++) {
        const tutti__request_t *r = entry(w, i);
        uint64_t ms;

        if (r == NULL || !tutti__engine_enter(r->engine))
            continue;
        ms = r->engine->env.conf->timeout_ms;
        tutti__engine_leave(r->engine);
        return ms;
    }
    return 0;
}

static tutti_status_t wait_several(tutti__waiter_t *w)
{
    static const tutti__wait_ops_t ops = { .poll = poll_several, .sleep = sleep_several };

    w->wait = (tutti__wait_t){ .ops = &ops };
    set_deadline(w, timeout_of(w));
    return tutti__wait_loop(&w->wait);
}

tutti_status_t tutti__wait(tutti__engine_t *e, tutti__waiter_t *w, int timeout_ms)
{
    tutti_status_t status = TUTTI_OK;

    w->wait.engine = e;
    w->traced_ns = tutti__trace_begin();
    if (is_ready(w)) {
        if (TUTTI__UNLIKELY(w->traced_ns != 0) && e != NULL && w->one != NULL)
            tutti__recorded_wait(e->env.watch->record, w->one->record, w->traced_ns);
        return TUTTI_OK;
    }
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "a callback must not wait for a request that is not done");
    w->timeout_ms = timeout_ms;
    if (e == NULL) {
        status = wait_several(w);
    } else if (tutti__engine_enter(e)) {
        tutti__stats_wait_begin(e->env.stats);
        status = wait_entered(e, w);
        tutti__stats_wait_end(e->env.stats);
        /* After this, `e` may be freed: callbacks may have freed all requests of the list. */
        tutti__engine_leave(e);
    } else {
        /* Another thread is closing the engine, which ends all requests. */
        while (!is_ready(w))
            sched_yield();
    }
    return status == TUTTI_OK ? TUTTI_OK : tutti__wait_not_yet(w, timeout_ms);
}
