/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Testing and waiting. Any thread.
 *
 * mpirun binds all threads of a rank to one core, so a thread that waits does the work itself
 * instead of waking another: waking one on another core costs 38 us on a virtual machine. It spins
 * for a while if there are processors enough, yields a hundred times, then leaves the work to the
 * engine's thread and sleeps until a request is done.
 */
#include "engine/state.h"

#include "base/forked.h"
#include "base/time.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Steps without any effect before a waiter yields, and yields before it sleeps. A step is about
   50 ns, so this spins for some 20 us: half of what it costs to be woken. */
#define SPIN_STEPS 400
#define YIELD_STEPS 100
/* After a deadline: how long a rank that does not know the culprit waits for one that does. */
#define GRACE_MS 500u
/* Between two looks at requests of several communicators. */
#define MIXED_NAP_US 100

typedef struct {
    tutti_request_t *const *requests; /* NULL entries do not count */
    size_t n;
    int for_counts; /* one request; its recvcounts are enough */
    uint64_t deadline_ns;
    size_t ready;    /* several: the one that ended first, or n */
    uint32_t looked; /* several: the epoch of the last look */
    int has_looked;
} waiter_t;

/* ---- what is waited for ---- */

static int is_done(const tutti_request_t *request)
{
    return tutti__load_acquire(&request->done) == TUTTI__DONE;
}

/* In a list; inactive persistent requests are as NULL. */
static int counts(const tutti_request_t *request)
{
    return request != NULL && (!request->persistent || atomic_load(&request->active));
}

/* Of those that are done the one that ended first; so none starves behind a busy one. */
static void look(waiter_t *w)
{
    w->ready = w->n;
    for (size_t i = 0; i < w->n; i++) {
        const tutti_request_t *r = w->requests[i];

        if (counts(r) && is_done(r) &&
            (w->ready == w->n || (int32_t)(r->turn - w->requests[w->ready]->turn) < 0))
            w->ready = i;
    }
}

/* Is it there? Several are looked at again only when something has ended. */
static int is_ready(const tutti__engine_t *e, waiter_t *w)
{
    uint32_t epoch;

    if (TUTTI__LIKELY(w->n == 1))
        return is_done(w->requests[0]) ||
               (w->for_counts && tutti__load_acquire(&w->requests[0]->counted));
    epoch = atomic_load(&e->epoch);
    if (!w->has_looked || epoch != w->looked) {
        w->looked = epoch;
        w->has_looked = 1;
        look(w);
    }
    return w->ready < w->n;
}

/* ---- working and sleeping ---- */

/* Own the token and work until it is ready, the deadline has passed, or it is time to sleep. Gives
   the token back. 1 if callbacks made it stop. */
static int drive(tutti__engine_t *e, waiter_t *w)
{
    int idle = 0, callbacks = 0;

    tutti__watch_stalls(e);
    tutti__engine_sleeping(e, 0);
    while (!is_ready(e, w) && idle < SPIN_STEPS + YIELD_STEPS) {
        if (tutti__engine_step(e, TUTTI__STEP_WAITER)) {
            idle = 0;
            callbacks = atomic_load(&e->callbacks);
            if (callbacks)
                break;
            continue;
        }
        idle++;
        if (idle < SPIN_STEPS && e->spin)
            tutti__pause();
        else if (idle < SPIN_STEPS)
            idle = SPIN_STEPS;
        else if (tutti__now_ns() < w->deadline_ns)
            sched_yield();
        else
            break;
    }
    tutti__token_leave(e, TUTTI__STEP_BRIEF);
    return callbacks;
}

/* Leave the work to whoever has the token, or to the thread: sleep until something is done. */
static void sleep_epoch(tutti__engine_t *e, waiter_t *w, int64_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    uint32_t epoch = atomic_load(&e->epoch);

    atomic_fetch_add(&e->sleepers, 1);
    if (!is_ready(e, w))
        syscall(SYS_futex, &e->epoch, FUTEX_WAIT_PRIVATE, epoch, &timeout, NULL, 0);
    atomic_fetch_sub(&e->sleepers, 1);
}

/* How long a waiter may sleep now, in microseconds. */
static int64_t nap_us(const tutti__engine_t *e, const waiter_t *w, uint64_t now)
{
    int64_t left = w->deadline_ns > now ? (int64_t)(w->deadline_ns - now) / 1000 + 1 : 0;

    if (atomic_load(&e->polling))
        return TUTTI__MIN(left, TUTTI__POLL_SLEEP_US);
    return TUTTI__MIN(left, TUTTI__TICK_MS * 1000);
}

/* Work or sleep until it is ready; 0 if the deadline came first. */
static int wait_ready(tutti__engine_t *e, waiter_t *w)
{
    while (!is_ready(e, w)) {
        uint64_t now;

        if (tutti__token_take(e) && drive(e, w))
            continue;
        if (is_ready(e, w))
            break;
        now = tutti__now_ns();
        if (now >= w->deadline_ns)
            return 0;
        sleep_epoch(e, w, nap_us(e, w, now));
    }
    return 1;
}

/* ---- deadlines ---- */

/* Say in words whom a request waits for; 1 if that is certain. */
static int find_culprit(tutti__engine_t *e, const tutti_request_t *request, char *text,
                        size_t bytes)
{
    int32_t peer = -1;
    int certain;

    while (!tutti__token_take(e))
        sched_yield();
    if (request->agreed) {
        peer = tutti__lanes_stuck(e, request);
        certain = peer >= 0;
        snprintf(text, bytes, certain ? "rank %d does not go on" : "a peer does not go on", peer);
    } else {
        certain = tutti__agree_missing(e, request, text, bytes);
    }
    tutti__token_leave(e, TUTTI__STEP_WAITER);
    return certain;
}

/*
 * The library's own deadline has passed: nobody will ever complete this request. Others have the
 * same deadline; who can name the culprit speaks first.
 */
static void give_up(tutti__engine_t *e, const tutti_request_t *request)
{
    uint64_t now = tutti__now_ns();
    /* Rank 0 knows at least the host. */
    uint64_t limit = now + (e->parent < 0 ? 1 : 2) * GRACE_MS * 1000000u;
    double waited_s = (double)(now - request->since_ns) / 1e9;
    char text[TUTTI__ERROR_BYTES], culprit[240];

    if (!find_culprit(e, request, culprit, sizeof(culprit)))
        while (!atomic_load(&e->dead) && !is_done(request) && tutti__now_ns() < limit)
            usleep(1000);
    if (is_done(request))
        return;
    snprintf(text, sizeof(text), "rank %u waited %.*f s for tensor '%.160s': %s", e->rank,
             waited_s < 10 ? 1 : 0, waited_s, request->name, culprit);
    tutti__engine_kill(e, TUTTI_ERR_TIMEOUT, text);
}

/* A rank that has joined waits for others who are at work: each bucket is a sign of life. */
static int has_time(tutti__engine_t *e, const tutti_request_t *request, uint64_t ms)
{
    return request->joins && tutti__now_ns() < atomic_load(&e->moved_ns) + ms * 1000000u;
}

/* The first request that is waited for, and is not ready. */
static const tutti_request_t *first_of(const waiter_t *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (counts(w->requests[i]))
            return w->requests[i];
    return NULL;
}

static tutti_status_t not_yet(const waiter_t *w, int timeout_ms)
{
    if (w->n == 1)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "tensor '%s' is not done after %d ms",
                           w->requests[0]->name, timeout_ms);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "none of the tensors is done after %d ms", timeout_ms);
}

/* Wait for it, all of one engine. TUTTI_ERR_TIMEOUT: not ready; else it is. */
static tutti_status_t await(tutti__engine_t *e, waiter_t *w, int timeout_ms)
{
    if (tutti__engine_in_callback() && !is_ready(e, w))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "a callback must not wait for what is not done");
    while (!is_ready(e, w) && tutti__engine_enter(e)) {
        uint64_t ms = timeout_ms < 0 ? e->env.conf->timeout_ms : (uint64_t)timeout_ms;
        int ready;

        w->deadline_ns = tutti__now_ns() + ms * 1000000u;
        if (timeout_ms == 0)
            tutti__engine_kick(e, TUTTI__STEP_WAITER);
        ready = timeout_ms == 0 ? is_ready(e, w) : wait_ready(e, w);
        /* What else is in flight and needs polling is the thread's now. */
        if (atomic_load(&e->polling))
            tutti__engine_ring_self(e);
        if (!ready && timeout_ms >= 0) {
            tutti__engine_leave(e);
            return not_yet(w, timeout_ms);
        }
        if (!ready && !has_time(e, first_of(w), ms))
            give_up(e, first_of(w));
        tutti__engine_leave(e);
    }
    /* Closing ends all requests, but perhaps not just yet. */
    while (!is_ready(e, w))
        sched_yield();
    return TUTTI_OK;
}

/* ---- the calls ---- */

static tutti_status_t status_of(const tutti_request_t *request)
{
    if (request->status == TUTTI_OK)
        return TUTTI_OK;
    return tutti__fail(request->status, "%s", request->text ? request->text : "");
}

static tutti_status_t check_active(const tutti_request_t *request)
{
    tutti_status_t status = tutti__fork_check(request->engine->generation);

    if (status == TUTTI_OK && !counts(request))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "request '%s' is not active", request->name);
    return status;
}

/* One that is done leaves: freed, or ready to be started again (1). */
static tutti_status_t take(tutti_request_t *request, int *ret_stays)
{
    tutti_status_t status = status_of(request);

    *ret_stays = request->persistent;
    if (request->persistent)
        atomic_store(&request->active, 0);
    else
        tutti__request_free(request);
    return status;
}

tutti_status_t tutti__engine_test(tutti_request_t *request, int *ret_done)
{
    tutti__engine_t *e = request->engine;
    tutti_status_t status = check_active(request);

    if (status != TUTTI_OK)
        return status;
    if (!is_done(request) && tutti__engine_enter(e)) {
        tutti__engine_kick(e, TUTTI__STEP_WAITER);
        tutti__engine_leave(e);
    }
    *ret_done = is_done(request);
    return *ret_done ? status_of(request) : TUTTI_OK;
}

tutti_status_t tutti__engine_wait(tutti_request_t *request, int timeout_ms)
{
    waiter_t w = { .requests = &request, .n = 1 };
    tutti_status_t status = check_active(request);
    int stays;

    if (status == TUTTI_OK)
        status = await(request->engine, &w, timeout_ms);
    return status == TUTTI_OK ? take(request, &stays) : status;
}

tutti_status_t tutti__engine_wait_all(tutti_request_t **requests, size_t nrequests, int timeout_ms)
{
    uint64_t deadline = tutti__now_ns() + (uint64_t)TUTTI__MAX(timeout_ms, 0) * 1000000u;
    tutti_status_t first = TUTTI_OK;
    char text[TUTTI__ERROR_BYTES] = "";

    for (size_t i = 0; i < nrequests; i++) {
        waiter_t w = { .requests = &requests[i], .n = 1 };
        uint64_t now = timeout_ms > 0 ? tutti__now_ns() : 0;
        int left_ms = now < deadline ? (int)((deadline - now + 999999u) / 1000000u) : 0, stays;
        tutti_status_t status;

        if (!counts(requests[i]))
            continue;
        status = check_active(requests[i]);
        if (status == TUTTI_OK)
            status = await(requests[i]->engine, &w, timeout_ms > 0 ? left_ms : timeout_ms);
        if (status == TUTTI_OK) {
            status = take(requests[i], &stays);
            if (!stays)
                requests[i] = NULL;
        }
        if (first == TUTTI_OK && status != TUTTI_OK) {
            first = status;
            snprintf(text, sizeof(text), "%s", tutti_last_error());
        }
    }
    return first == TUTTI_OK ? TUTTI_OK : tutti__fail(first, "%s", text);
}

/* Requests of several communicators: look at all of them, in turns, with naps. */
static tutti_status_t await_mixed(waiter_t *w, int timeout_ms)
{
    uint64_t ms = timeout_ms < 0 ? first_of(w)->engine->env.conf->timeout_ms : (uint64_t)timeout_ms;
    uint64_t deadline = tutti__now_ns() + ms * 1000000u;

    for (;;) {
        for (size_t i = 0; i < w->n; i++) {
            const tutti_request_t *r = w->requests[i];

            if (!counts(r) || is_done(r) || !tutti__engine_enter(r->engine))
                continue;
            tutti__engine_kick(r->engine, TUTTI__STEP_WAITER);
            tutti__engine_leave(r->engine);
        }
        look(w);
        if (w->ready < w->n)
            return TUTTI_OK;
        if (tutti__engine_in_callback())
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "a callback must not wait for what is not done");
        if (tutti__now_ns() >= deadline && timeout_ms >= 0)
            return not_yet(w, timeout_ms);
        if (tutti__now_ns() >= deadline && tutti__engine_enter(first_of(w)->engine)) {
            give_up(first_of(w)->engine, first_of(w));
            tutti__engine_leave(first_of(w)->engine);
        }
        usleep(MIXED_NAP_US);
    }
}

tutti_status_t tutti__engine_wait_any(tutti_request_t **requests, size_t nrequests, int timeout_ms,
                                      size_t *ret_index)
{
    waiter_t w = { .requests = requests, .n = nrequests };
    const tutti_request_t *first = first_of(&w);
    tutti_status_t status;
    int mixed = 0, stays;

    if (first == NULL) {
        *ret_index = nrequests;
        return TUTTI_OK;
    }
    status = tutti__fork_check(first->engine->generation);
    if (status != TUTTI_OK)
        return status;
    for (size_t i = 0; i < nrequests; i++)
        mixed |= counts(requests[i]) && requests[i]->engine != first->engine;
    status = mixed ? await_mixed(&w, timeout_ms) : await(first->engine, &w, timeout_ms);
    if (status != TUTTI_OK)
        return status;
    if (w.n == 1)
        w.ready = 0;
    status = take(requests[w.ready], &stays);
    if (!stays)
        requests[w.ready] = NULL;
    *ret_index = w.ready;
    return status;
}

tutti_status_t tutti__engine_recvcounts(tutti_request_t *request, int timeout_ms,
                                        size_t *ret_counts)
{
    waiter_t w = { .requests = &request, .n = 1, .for_counts = 1 };
    tutti_call_kind_t kind = request->call.kind;
    tutti_status_t status = check_active(request);

    if (status != TUTTI_OK)
        return status;
    if (kind != TUTTI_CALL_ALLTOALLV && kind != TUTTI_CALL_ALLGATHERV)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s, request '%s', has no recvcounts",
                           tutti__call_name(kind), request->name);
    if (request->counts_later) {
        status = await(request->engine, &w, timeout_ms);
        if (status != TUTTI_OK)
            return status;
        if (!tutti__load_acquire(&request->counted))
            return status_of(request);
    }
    memcpy(ret_counts, request->call.recvcounts, request->engine->size * sizeof(*ret_counts));
    return TUTTI_OK;
}
