/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: token, thread, steps, waiting. See engine.h; state.h has the fields.
 *
 * The token. Whoever wants to work tries to take it; who fails leaves his work in the queue, where
 *   the owner finds it: after giving the token back the owner looks at `queued` once more.
 *
 * Sleeping. Nobody sleeps with the token. Before all activity ends while requests are pending, the
 *   last one sets `sleeping` in this rank's door, fences, and takes one more step; peers store, fence,
 *   and look at `sleeping`. So either the step sees what they stored, or they ring the bell. While
 *   nothing is pending here nobody need wake this rank: no tensor can be complete without its own
 *   announcement. (What must be seen at once, deaths and goodbyes, comes through sockets.)
 *
 * Waiting. mpirun binds all threads of a rank to one core, so a thread that waits does the work
 *   itself instead of waking another: waking one on another core costs 38 us on a virtual machine.
 *   It spins for a while if there are processors enough, yields a hundred times, then leaves the
 *   work to the thread and sleeps until a request is done. Only the thread sleeps on the bell; woken
 *   while another one works it goes back to sleep.
 */
#include "engine/engine.h"

#include "base/forked.h"
#include "base/log.h"
#include "base/time.h"
#include "engine/state.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Steps without any effect before a waiter yields, and yields before it sleeps. A step is about
   50 ns, so this spins for some 20 us: half of what it costs to be woken. */
#define SPIN_STEPS 400
#define YIELD_STEPS 100
/* While something in flight moves only by polling (MPI): the sleep between two looks. */
#define POLL_SLEEP_US 50
/* Sockets are looked at in every n-th step of a busy owner. */
#define SIDE_EVERY 16
/* A sleeper looks after deadlines and stalls at least so often. */
#define TICK_MS 500
/* The thread's nap when a socket has news and somebody else has the token. */
#define BUSY_NAP_US 50

/* ---- steps ---- */

void tutti__engine_message(tutti__engine_t *e, int link, uint32_t kind, const void *body,
                           size_t bytes)
{
    uint32_t rank;

    switch (kind) {
    case TUTTI__MSG_ANNOUNCE:
        tutti__agree_announce(e, body, bytes);
        break;
    case TUTTI__MSG_BUCKET:
        tutti__agree_bucket(e, body, bytes);
        break;
    case TUTTI__MSG_REJECT:
        tutti__agree_reject(e, body, bytes);
        break;
    case TUTTI__MSG_BYE:
        if (bytes == sizeof(rank)) {
            memcpy(&rank, body, sizeof(rank));
            tutti__watch_bye(e, link, rank);
        }
        break;
    case TUTTI__MSG_DEAD:
        tutti__watch_message(e, (uint32_t)link, body, bytes);
        break;
    default:
        tutti__watch_dead(e, TUTTI_ERR_ABI, "a control message of an unknown kind");
    }
}

/* Announce what was submitted. */
static int take_queue(tutti__engine_t *e)
{
    tutti_request_t *request, *next;

    if (!atomic_load(&e->queued))
        return 0;
    tutti__mutex_lock(&e->queue_lock);
    request = e->queue_first;
    e->queue_first = e->queue_last = NULL;
    atomic_store(&e->queued, 0);
    tutti__mutex_unlock(&e->queue_lock);
    for (; request != NULL; request = next) {
        next = request->next;
        tutti__agree_submit(e, request);
    }
    return 1;
}

/* The communicator has died: end everything that is pending, forget the rest. */
static void bury(tutti__engine_t *e)
{
    tutti__request_clear_queue(e);
    if (!e->dead_seen) {
        e->dead_seen = 1;
        tutti__lanes_clear(e);
        tutti__agree_clear(e);
    }
    tutti__request_finish_all(e, NULL, (tutti_status_t)atomic_load(&e->dead), e->dead_text);
}

/* Wake our own sleepers: something needs a thread that polls or sees the sockets. */
static void ring_self(const tutti__engine_t *e)
{
    uint64_t one = 1;

    if (e->has_thread && write(e->env.machine->bell[e->env.machine->me], &one, sizeof(one)) < 0)
        errno = 0;
}

/* One step; 1 if anything moved. */
static int step(tutti__engine_t *e, tutti__who_t who)
{
    int side = e->remote && e->polls++ % SIDE_EVERY == 0;
    int moved = 0, left;

    if (atomic_load(&e->news))
        side |= atomic_exchange(&e->news, 0);
    moved |= tutti__links_poll(e, side);
    if (atomic_load(&e->dead)) {
        if (!e->dead_seen || atomic_load(&e->pending) > 0)
            bury(e);
        return 0;
    }
    if (atomic_load(&e->any_left) && atomic_load(&e->queued))
        tutti__watch_refuse(e);
    moved |= take_queue(e);
    moved |= tutti__agree_plan(e);
    moved |= tutti__lanes_step(e, who, &left);
    tutti__links_flush(e);
    if (left && !moved)
        ring_self(e);
    return moved;
}

/* ---- the token ---- */

static int take_token(tutti__engine_t *e)
{
    return atomic_exchange(&e->token, 1) == 0;
}

static void set_sleeping(const tutti__engine_t *e, uint32_t value)
{
    tutti__word_t *word = &e->env.machine->door[e->env.machine->me]->sleeping;

    if (atomic_load_explicit(word, memory_order_relaxed) == value)
        return;
    atomic_store_explicit(word, value, memory_order_relaxed);
    /* Pairs with the fences of all that publish and then ring. */
    tutti__fence();
}

/* Give the token back. Nobody polls after this, so peers must ring if anything is pending. */
static void leave_token(tutti__engine_t *e, tutti__who_t who)
{
    do {
        set_sleeping(e, atomic_load(&e->pending) > 0);
        while ((atomic_load(&e->pending) > 0 || atomic_load(&e->news)) && step(e, who)) {
        }
        atomic_store(&e->token, 0);
    } while ((atomic_load(&e->queued) || atomic_load(&e->news)) && take_token(e));
}

/* Work that somebody has left: take the token if it is free, one round, and back. */
static void kick(tutti__engine_t *e)
{
    if (!take_token(e))
        return;
    step(e, TUTTI__STEP_BRIEF);
    leave_token(e, TUTTI__STEP_BRIEF);
    if (atomic_load(&e->polling))
        ring_self(e);
}

/*
 * The thread sleeps until the bell rings or a socket has news; 1 if one did. The bell is emptied, so
 * the news must reach whoever works next: the thread, or the token's owner if it does not get that.
 *
 * Tried: waiters sleep here as well. One drains the bell that was meant for the other: 70 ms a step
 * in the example trainer instead of 2.
 */
static int sleep_bell(tutti__engine_t *e, int64_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    struct epoll_event events[2];
    uint64_t count;
    int n = epoll_pwait2(e->epfd, events, 2, timeout_us < 0 ? NULL : &timeout, NULL);

    if (n <= 0)
        return 0;
    if (read(e->env.machine->bell[e->env.machine->me], &count, sizeof(count)) < 0)
        errno = 0;
    atomic_store(&e->news, 1);
    return 1;
}

/* ---- waiting ---- */

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

    set_sleeping(e, 0);
    while (!is_done(w->request) && idle < SPIN_STEPS + YIELD_STEPS) {
        if (step(e, TUTTI__STEP_WAITER)) {
            idle = 0;
            continue;
        }
        idle++;
        if (idle < SPIN_STEPS && e->spin)
            tutti__pause();
        else if (idle < SPIN_STEPS)
            idle = SPIN_STEPS;
        else
            sched_yield();
    }
    leave_token(e, TUTTI__STEP_BRIEF);
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
        return TUTTI__MIN(left, POLL_SLEEP_US);
    return TUTTI__MIN(left, TICK_MS * 1000);
}

/* Work or sleep until the request is done; 0 if the deadline came first. */
static int wait_done(tutti__engine_t *e, waiter_t *w)
{
    while (!is_done(w->request)) {
        uint64_t now;

        if (take_token(e))
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

/* The library's own deadline has passed: nobody will ever complete this request. */
static void give_up(tutti__engine_t *e, const tutti_request_t *request)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "rank %u waited %llu s for tensor '%.200s': %s", e->rank,
             (unsigned long long)(tutti__now_ns() - request->since_ns) / 1000000000u,
             request->name, request->agreed ? "it is in flight, a peer does not go on"
                                            : "not all ranks have submitted it");
    tutti__engine_kill(e, TUTTI_ERR_TIMEOUT, text);
}

tutti_status_t tutti__engine_test(tutti_request_t *request, int *ret_done)
{
    tutti__engine_t *e = request->engine;
    tutti_status_t status = tutti__fork_check(e->generation);

    if (status != TUTTI_OK)
        return status;
    if (!is_done(request) && enter(e)) {
        kick(e);
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

        done = wait_done(e, &w);
        /* What else is in flight and needs polling is the thread's now. */
        if (atomic_load(&e->polling))
            ring_self(e);
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
                                    void *recvbuf, size_t count, tutti_dtype_t dtype,
                                    tutti_op_t op, tutti_request_t **ret_request)
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
        kick(e);
    }
    leave(e);
    return status;
}

/* ---- for direct calls ---- */

tutti_status_t tutti__engine_alive(tutti__engine_t *e)
{
    int dead = atomic_load_explicit(&e->dead, memory_order_acquire);

    if (TUTTI__LIKELY(dead == 0))
        return TUTTI_OK;
    return tutti__fail((tutti_status_t)dead, "%s", e->dead_text);
}

int tutti__engine_has_left(tutti__engine_t *e, uint32_t rank)
{
    return atomic_load(&e->left[rank]);
}

tutti_status_t tutti__engine_kill(tutti__engine_t *e, tutti_status_t status, const char *text)
{
    /* Any thread: wait for the token, which nobody keeps for long. */
    while (!take_token(e))
        sched_yield();
    tutti__watch_dead(e, status, text);
    step(e, TUTTI__STEP_BRIEF);
    leave_token(e, TUTTI__STEP_BRIEF);
    return tutti__engine_alive(e);
}

/* ---- the thread ---- */

/* Work as long as there is progress; 0 if somebody else does the work. */
static int thread_work(tutti__engine_t *e)
{
    if (!take_token(e))
        return 0;
    do {
        tutti__watch_stalls(e);
    } while (step(e, TUTTI__STEP_THREAD));
    leave_token(e, TUTTI__STEP_THREAD);
    return 1;
}

static void *thread_main(void *arg)
{
    tutti__engine_t *e = arg;
    int busy = 0;

    while (!atomic_load(&e->stop)) {
        int64_t nap = -1;
        int woken;

        /* Sockets stay readable until the one who works looks at them. */
        if (busy)
            usleep(BUSY_NAP_US);
        if (atomic_load(&e->polling))
            nap = POLL_SLEEP_US;
        else if (atomic_load(&e->pending) > 0)
            nap = TICK_MS * 1000;
        woken = sleep_bell(e, nap);
        busy = !thread_work(e) && woken;
    }
    return NULL;
}

/* All signals are the application's. */
static tutti_status_t start_thread(tutti__engine_t *e)
{
    sigset_t all, before;
    int error;

    if (e->size == 1)
        return TUTTI_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&e->thread, NULL, thread_main, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return tutti__fail_errno("the engine's thread");
    }
    pthread_setname_np(e->thread, "tutti");
    e->has_thread = 1;
    return TUTTI_OK;
}

static void stop_thread(tutti__engine_t *e)
{
    if (!e->has_thread)
        return;
    atomic_store(&e->stop, 1);
    ring_self(e);
    pthread_join(e->thread, NULL);
    e->has_thread = 0;
}

/* ---- opening and closing ---- */

static tutti_status_t add_fd(tutti__engine_t *e, int fd)
{
    struct epoll_event event = { .events = EPOLLIN };

    if (fd >= 0 && epoll_ctl(e->epfd, EPOLL_CTL_ADD, fd, &event) < 0)
        return tutti__fail_errno("epoll_ctl");
    return TUTTI_OK;
}

static tutti_status_t open_epoll(tutti__engine_t *e)
{
    tutti_status_t status;

    e->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (e->epfd < 0)
        return tutti__fail_errno("epoll_create1");
    status = add_fd(e, e->env.machine->bell[e->env.machine->me]);
    if (status == TUTTI_OK && e->size > 1)
        status = add_fd(e, tutti__side_fd(e->env.boot));
    return status;
}

/* Ranks that announce through me: all for rank 0, my host's for its leader, else just me. */
static uint32_t count_subtree(const tutti__engine_t *e)
{
    const tutti__shape_t *shape = e->env.shape;
    uint32_t host = shape->host_of[e->rank];

    if (e->rank == 0)
        return e->size;
    if (shape->local_of[e->rank] == 0)
        return shape->host_first[host + 1] - shape->host_first[host];
    return 1;
}

static void destroy(tutti__engine_t *e)
{
    tutti__agree_clear(e);
    tutti__lanes_close(e);
    tutti__links_close(e);
    tutti__cache_fini(&e->cache);
    if (e->epfd >= 0)
        close(e->epfd);
    free(e->names.bucket);
    e->names.bucket = NULL;
    e->names.nbuckets = 0;
    tutti__mutex_destroy(&e->queue_lock);
    free(e->left);
    e->left = NULL;
    if (atomic_fetch_sub(&e->refs, 1) == 1)
        free(e);
}

tutti_status_t tutti__engine_open(const tutti__engine_env_t *env, tutti__engine_t **ret_engine)
{
    const tutti__topo_t *topo = tutti__boot_topo(env->boot);
    tutti__engine_t *e = aligned_alloc(TUTTI__FALSE_SHARING_BYTES,
                                       TUTTI__ROUND_UP(sizeof(*e), TUTTI__FALSE_SHARING_BYTES));
    tutti_status_t status = TUTTI_OK;

    if (e == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "engine");
        return tutti__boot_agree(env->boot, status);
    }
    memset(e, 0, sizeof(*e));
    e->env = *env;
    e->generation = tutti__fork_generation();
    e->rank = topo->rank;
    e->size = topo->size;
    e->parent = -1;
    e->epfd = -1;
    e->spin = !topo->oversubscribed;
    atomic_store(&e->refs, 1);
    tutti__mutex_init(&e->queue_lock, TUTTI__LOCK_ENGINE_QUEUE);
    e->subtree = count_subtree(e);
    tutti__lanes_open(e);
    /* Until plans are learned the buckets depend on timing; results must not. */
    tutti__cache_init(&e->cache, env->shape, e->rank, env->conf->algorithm,
                      env->conf->strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__STEADY_ASSOCIATION);
    e->left = calloc(e->size, sizeof(*e->left));
    if (e->left == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "engine for %u ranks", e->size);
    status = tutti__boot_agree(env->boot, status);
    if (status == TUTTI_OK)
        status = tutti__links_open(e);
    if (status == TUTTI_OK)
        status = open_epoll(e);
    if (status == TUTTI_OK)
        status = start_thread(e);
    status = tutti__boot_agree(env->boot, status);
    if (status != TUTTI_OK) {
        stop_thread(e);
        destroy(e);
        return status;
    }
    *ret_engine = e;
    return TUTTI_OK;
}

/* Say goodbye, and end what is left here. */
static void end_all(tutti__engine_t *e)
{
    const char *text = "tutti_finalize was called on this rank";

    while (!take_token(e))
        sched_yield();
    atomic_store(&e->news, 1);
    step(e, TUTTI__STEP_BRIEF);
    if (!atomic_load(&e->dead))
        tutti__watch_bye(e, -1, e->rank);
    tutti__lanes_clear(e);
    tutti__request_finish_all(e, NULL, TUTTI_ERR_SHUTDOWN, text);
    set_sleeping(e, 0);
    atomic_store(&e->token, 0);
}

void tutti__engine_close(tutti__engine_t *e)
{
    if (e == NULL)
        return;
    tutti__mutex_lock(&e->queue_lock);
    atomic_store(&e->closed, 1);
    tutti__mutex_unlock(&e->queue_lock);
    stop_thread(e);
    end_all(e);
    /* Threads in tutti_wait find their requests done and go. */
    while (atomic_load(&e->inside) > 0)
        sched_yield();
    destroy(e);
}
