/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submitting, testing, waiting. Any thread.
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
#include <sys/syscall.h>
#include <unistd.h>

/* Steps without any effect before a waiter yields, and yields before it sleeps. A step is about
   50 ns, so this spins for some 20 us: half of what it costs to be woken. */
#define SPIN_STEPS 400
#define YIELD_STEPS 100
/* After a deadline: how long a rank that does not know the culprit waits for one that does. */
#define GRACE_MS 500u

typedef struct {
    tutti_request_t *request;
    uint64_t deadline_ns;
} waiter_t;

static int is_done(const tutti_request_t *request)
{
    return tutti__load_acquire(&request->done) != 0;
}

/* Own the token and work until the request is done, the deadline has passed, or it is time to
   sleep. Gives the token back. */
static void drive(tutti__engine_t *e, waiter_t *w)
{
    int idle = 0;

    tutti__watch_stalls(e);
    tutti__engine_sleeping(e, 0);
    while (!is_done(w->request) && idle < SPIN_STEPS + YIELD_STEPS) {
        if (tutti__engine_step(e, TUTTI__STEP_WAITER)) {
            idle = 0;
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
}

/* Leave the work to whoever has the token, or to the thread: sleep until something is done. */
static void sleep_epoch(tutti__engine_t *e, const waiter_t *w, int64_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    uint32_t epoch = atomic_load(&e->epoch);

    atomic_fetch_add(&e->sleepers, 1);
    if (!is_done(w->request))
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

/* Work or sleep until the request is done; 0 if the deadline came first. */
static int wait_done(tutti__engine_t *e, waiter_t *w)
{
    while (!is_done(w->request)) {
        uint64_t now;

        if (tutti__token_take(e))
            drive(e, w);
        if (is_done(w->request))
            break;
        now = tutti__now_ns();
        if (now >= w->deadline_ns)
            return 0;
        sleep_epoch(e, w, nap_us(e, w, now));
    }
    return 1;
}

/* May this thread use the engine's surroundings? They live until the last one is out. */
static int enter(tutti__engine_t *e)
{
    atomic_fetch_add(&e->inside, 1);
    if (!atomic_load(&e->closed))
        return 1;
    atomic_fetch_sub(&e->inside, 1);
    return 0;
}

static void leave(tutti__engine_t *e)
{
    atomic_fetch_sub(&e->inside, 1);
}

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
    uint64_t waited_s = (now - request->since_ns) / 1000000000u;
    char text[TUTTI__ERROR_BYTES], culprit[128];

    if (!find_culprit(e, request, culprit, sizeof(culprit)))
        while (!atomic_load(&e->dead) && !is_done(request) && tutti__now_ns() < limit)
            usleep(1000);
    if (is_done(request))
        return;
    snprintf(text, sizeof(text), "rank %u waited %llu s for tensor '%.200s': %s", e->rank,
             (unsigned long long)waited_s, request->name, culprit);
    tutti__engine_kill(e, TUTTI_ERR_TIMEOUT, text);
}

tutti_status_t tutti__engine_test(tutti_request_t *request, int *ret_done)
{
    tutti__engine_t *e = request->engine;
    tutti_status_t status = tutti__fork_check(e->generation);

    if (status != TUTTI_OK)
        return status;
    if (!is_done(request) && enter(e)) {
        tutti__engine_kick(e, TUTTI__STEP_WAITER);
        leave(e);
    }
    *ret_done = is_done(request);
    if (!*ret_done || request->status == TUTTI_OK)
        return TUTTI_OK;
    return tutti__fail(request->status, "%s", request->text ? request->text : "");
}

tutti_status_t tutti__engine_wait(tutti_request_t *request, int timeout_ms)
{
    tutti__engine_t *e = request->engine;
    tutti_status_t status = tutti__fork_check(e->generation);

    if (status != TUTTI_OK)
        return status;
    while (!is_done(request) && enter(e)) {
        uint64_t ms = timeout_ms < 0 ? e->env.conf->timeout_ms : (uint64_t)timeout_ms;
        waiter_t w = { request, tutti__now_ns() + ms * 1000000u };
        int done;

        if (timeout_ms == 0)
            tutti__engine_kick(e, TUTTI__STEP_WAITER);
        done = timeout_ms == 0 ? is_done(request) : wait_done(e, &w);
        /* What else is in flight and needs polling is the thread's now. */
        if (atomic_load(&e->polling))
            tutti__engine_ring_self(e);
        if (!done && timeout_ms >= 0) {
            leave(e);
            return tutti__fail(TUTTI_ERR_TIMEOUT, "tensor '%s' is not done after %d ms",
                               request->name, timeout_ms);
        }
        if (!done)
            give_up(e, request);
        leave(e);
    }
    /* Closing ends all requests, but perhaps not just yet. */
    while (!is_done(request))
        sched_yield();
    status = request->status;
    if (status != TUTTI_OK)
        tutti__fail(status, "%s", request->text ? request->text : "");
    tutti__request_free(request);
    return status;
}

tutti_status_t tutti__engine_submit(tutti__engine_t *e, const char *name, const void *sendbuf,
                                    void *recvbuf, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                    tutti_request_t **ret_request)
{
    tutti_request_t *request;
    tutti_status_t status = tutti__engine_alive(e);

    if (status != TUTTI_OK)
        return status;
    status = tutti__request_new(e, name, &request);
    if (status != TUTTI_OK)
        return status;
    request->sendbuf = sendbuf;
    request->recvbuf = recvbuf;
    request->count = count;
    request->dtype = dtype;
    request->op = op;
    if (!enter(e)) {
        tutti__request_free(request);
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "tutti_finalize was called");
    }
    status = tutti__request_push(e, request);
    if (status != TUTTI_OK) {
        tutti__request_free(request);
    } else {
        *ret_request = request;
        /* Larger buckets are the thread's, if there is one, so that this returns at once. */
        tutti__engine_kick(e, e->has_thread ? TUTTI__STEP_BRIEF : TUTTI__STEP_WAITER);
    }
    leave(e);
    return status;
}
