/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Testing and waiting. Any thread.
 *
 * mpirun binds all threads of a rank to one core, so a waiting thread does the work itself. To wake
 * another thread on another core costs 38 us on a virtual machine. The waiter spins for a while if
 * there are enough processors, yields a hundred times, and then leaves the work to the engine's
 * thread and sleeps until a request is done.
 */
#include "engine/state.h"

#include "base/forked.h"
#include "base/time.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Steps without effect before a waiter yields, and yields before it sleeps. A step takes about 50
   ns, so this is about 20 us of spinning: half the cost of a wake-up. */
#define SPIN_STEPS 400
#define YIELD_STEPS 100
/* After a deadline: how long a rank that cannot name the culprit waits for a rank that can. */
#define GRACE_MS 500u

/* ---- the awaited requests ---- */

tutti__request_t *tutti__wait_entry(const tutti__waiter_t *w, size_t i)
{
    void *found;

    if (w->list[i] == NULL || !tutti__handle_find(&tutti__requests, w->list[i], &found))
        return NULL;
    return tutti__wait_counts(found) ? found : NULL;
}

/* Of several requests that are done, find the request that ended first, so that none starves behind
   a busy one. */
void tutti__wait_look(tutti__waiter_t *w)
{
    uint64_t ended_ns = UINT64_MAX;

    w->ready = w->n;
    for (size_t i = 0; i < w->n; i++) {
        const tutti__request_t *r = tutti__wait_entry(w, i);

        if (r == NULL || !tutti__wait_is_done(r) || r->ended_ns >= ended_ns)
            continue;
        ended_ns = r->ended_ns;
        w->ready = i;
    }
}

/* Is it ready? A list is searched again only when a request has ended. */
static int is_ready(const tutti__engine_t *e, tutti__waiter_t *w)
{
    uint32_t epoch;

    if (TUTTI__LIKELY(w->one != NULL))
        return tutti__wait_is_done(w->one) || (w->enough != NULL && tutti__load_acquire(w->enough));
    epoch = atomic_load(&e->epoch);
    if (!w->has_looked || epoch != w->looked) {
        w->looked = epoch;
        w->has_looked = 1;
        tutti__wait_look(w);
    }
    return w->ready < w->n;
}

/* ---- working and sleeping ---- */

/* With the token: work until it is ready, the deadline has passed, or it is time to sleep. Gives
   the token back. 1 if due callbacks were the reason to stop. */
static int drive(tutti__engine_t *e, tutti__waiter_t *w)
{
    int idle = 0, callbacks = 0;

    tutti__stalls_check(e);
    tutti__engine_sleeping(e, 0);
    while (!is_ready(e, w) && idle < SPIN_STEPS + YIELD_STEPS && !atomic_load(&e->wanted)) {
        if (tutti__engine_step(e, TUTTI__STEP_WAITER)) {
            idle = 0;
            callbacks = atomic_load(&e->callbacks);
            if (callbacks)
                break;
            continue;
        }
        idle++;
        if (e->env.help != NULL)
            e->env.help(e->env.help_arg);
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

/* Leave the work to the token's owner or to the thread: sleep until a request is done. */
static void sleep_epoch(tutti__engine_t *e, tutti__waiter_t *w, int64_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    uint32_t epoch = atomic_load(&e->epoch);

    atomic_fetch_add(&e->sleepers, 1);
    if (!is_ready(e, w))
        syscall(SYS_futex, &e->epoch, FUTEX_WAIT_PRIVATE, epoch, &timeout, NULL, 0);
    atomic_fetch_sub(&e->sleepers, 1);
}

/* How long a waiter may sleep now, in microseconds. */
static int64_t nap_us(const tutti__engine_t *e, const tutti__waiter_t *w, uint64_t now)
{
    int64_t left = w->deadline_ns > now ? (int64_t)(w->deadline_ns - now) / 1000 + 1 : 0;

    if (atomic_load(&e->polling))
        return TUTTI__MIN(left, TUTTI__POLL_SLEEP_US);
    return TUTTI__MIN(left, TUTTI__TICK_MS * 1000);
}

/* Work or sleep until it is ready; 0 if the deadline came first. */
static int wait_ready(tutti__engine_t *e, tutti__waiter_t *w)
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

int tutti__wait_culprit(tutti__engine_t *e, const tutti__request_t *request, char *text,
                        size_t bytes)
{
    int32_t peer = -1;
    int certain;

    if (tutti__load_relaxed(&request->queued)) {
        certain = 0;
        snprintf(text, bytes, "it is queued on device %d, and is not done there",
                 e->env.exec->device->device);
    } else if (request->agreed && tutti__lanes_want_data(e, request)) {
        certain = 1;
        snprintf(text, bytes,
                 "what is before it on device %d is not done, so its data are not there",
                 e->env.exec->device->device);
    } else if (request->agreed) {
        peer = tutti__lanes_hint(e, request);
        certain = peer >= 0;
        snprintf(text, bytes, "%s does not go on",
                 certain ? tutti__boot_rank_name(e->env.boot, (uint32_t)peer) : "a peer");
    } else {
        certain = tutti__agreed_missing(e, request, text, bytes);
    }
    return certain;
}

static int find_culprit(tutti__engine_t *e, const tutti__request_t *request, char *text,
                        size_t bytes)
{
    int certain;

    tutti__token_await(e);
    certain = tutti__wait_culprit(e, request, text, bytes);
    tutti__token_leave(e, TUTTI__STEP_WAITER);
    return certain;
}

/*
 * The library's own deadline has passed: the request will never be complete. Other ranks have the
 * same deadline, so a rank that can name the culprit goes first.
 */
void tutti__wait_give_up(tutti__engine_t *e, const tutti__request_t *request)
{
    uint64_t now = tutti__now_ns();
    /* Rank 0 can name at least the host. */
    uint64_t limit = now + (e->parent < 0 ? 1 : 2) * GRACE_MS * 1000000u;
    double waited_s = (double)(now - request->since_ns) / 1e9;
    char text[TUTTI__ERROR_BYTES], culprit[448];

    if (!tutti__watch_halted(e->watch, culprit, sizeof(culprit)) &&
        !find_culprit(e, request, culprit, sizeof(culprit)))
        while (!tutti__watch_has_ended(e->watch) && !tutti__wait_is_done(request) &&
               tutti__now_ns() < limit)
            usleep(1000);
    if (tutti__wait_is_done(request))
        return;
    snprintf(text, sizeof(text), "%s waited %.*f s for tensor '%.100s': %.280s",
             tutti__boot_rank_name(e->env.boot, e->rank), waited_s < 10 ? 1 : 0, waited_s,
             request->name, culprit);
    tutti__engine_kill(e, TUTTI_ERR_TIMEOUT, text);
}

/* A rank that has joined waits for the working ranks: each bucket extends its deadline. */
static int has_time(tutti__engine_t *e, const tutti__request_t *request, uint64_t ms)
{
    return request->joins && tutti__now_ns() < atomic_load(&e->moved_ns) + ms * 1000000u;
}

/* The first awaited request that is not ready. */
const tutti__request_t *tutti__wait_first(const tutti__waiter_t *w)
{
    const tutti__request_t *first = w->one;

    for (size_t i = 0; i < w->n && first == NULL; i++)
        first = tutti__wait_entry(w, i);
    return first;
}

tutti_status_t tutti__wait_not_yet(const tutti__waiter_t *w, int timeout_ms)
{
    if (w->one != NULL)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "tensor '%s' is not done after %d ms", w->one->name,
                           timeout_ms);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "none of the tensors is done after %d ms", timeout_ms);
}

/* Wait until it is ready; all requests belong to one engine. TUTTI_ERR_TIMEOUT: not ready;
   otherwise it is. */
tutti_status_t tutti__wait(tutti__engine_t *e, tutti__waiter_t *w, int timeout_ms)
{
    if (is_ready(e, w))
        return TUTTI_OK;
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "a callback must not wait for what is not done");
    while (!is_ready(e, w) && tutti__engine_enter(e)) {
        uint64_t ms = timeout_ms < 0 ? e->env.conf->timeout_ms : (uint64_t)timeout_ms;
        int ready;

        w->deadline_ns = tutti__now_ns() + ms * 1000000u;
        if (timeout_ms == 0)
            tutti__engine_kick(e, TUTTI__STEP_WAITER);
        ready = timeout_ms == 0 ? is_ready(e, w) : wait_ready(e, w);
        /* Other work in flight that needs polling is left to the thread. */
        if (atomic_load(&e->polling))
            tutti__engine_ring_self(e);
        if (!ready && timeout_ms >= 0) {
            tutti__engine_leave(e);
            return tutti__wait_not_yet(w, timeout_ms);
        }
        if (!ready && !has_time(e, tutti__wait_first(w), ms))
            tutti__wait_give_up(e, tutti__wait_first(w));
        tutti__engine_leave(e);
    }
    /* Closing ends all requests, but may not have finished. */
    while (!is_ready(e, w))
        sched_yield();
    return TUTTI_OK;
}
