/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's open and close, and its functions for direct calls. See engine.h. steps.c has the
 * steps, wait.c the waiting callers, thread.c the engine's own thread.
 */
#include "engine/engine.h"

#include "base/constants.h"
#include "base/forked.h"
#include "base/time.h"
#include "engine/steps.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- for direct calls ---- */

int tutti__engine_spins(const tutti__engine_t *e)
{
    return e->spin;
}

void tutti__engine_settle(tutti__engine_t *e)
{
    /* Any thread may wait for the token; no thread keeps it for long. */
    tutti__token_await(&e->token);
    tutti__engine_step(e, TUTTI__STEP_BRIEF);
    tutti__engine_yield(e, TUTTI__STEP_BRIEF);
}

tutti_status_t tutti__engine_kill(tutti__engine_t *e, tutti_status_t status, const char *text)
{
    (void)tutti__watch_end(e->env.watch, status, text);
    tutti__engine_settle(e);
    return tutti__watch_alive(e->env.watch);
}

void tutti__engine_cancel(tutti__engine_t *e, uint32_t first, uint32_t number)
{
    tutti__token_await(&e->token);
    tutti__watch_cancel(e->env.watch, first, number);
    tutti__engine_yield(e, TUTTI__STEP_BRIEF);
}

void tutti__engine_drain(tutti__engine_t *e)
{
    /* If a peer is late with requests that were handed over, the engine's thread ends the
       communicator. If the caller's own work is late, this function waits for it without a limit:
       freeing device memory also waits for this work. */
    while (atomic_load(&e->signals.given) > 0 && !tutti__watch_has_ended(e->env.watch))
        usleep(TUTTI__DRAIN_NAP_US);
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
    e->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (e->alarm < 0)
        return tutti__fail_errno("timerfd_create");
    status = add_fd(e, e->env.machine->doorbell[e->env.machine->me]);
    if (status == TUTTI_OK)
        status = add_fd(e, e->alarm);
    if (status == TUTTI_OK && e->size > 1)
        status = add_fd(e, tutti__side_fd(e->env.boot));
    return status;
}

void tutti__engine_release(tutti__engine_t *e)
{
    int refs = atomic_fetch_sub(&e->refs, 1);

    assert(refs > 0);
    if (refs != 1)
        return;
    tutti__watch_close(e->env.watch);
    tutti__mutex_destroy(&e->pending.lock);
    free(e);
}

/* The caller owns the token and keeps it; no other thread uses the engine any more. */
static void destroy(tutti__engine_t *e)
{
    tutti__owned_t *own = tutti__owned(e);

    tutti__help_close(e);
    tutti__stuck_close(&own->stalls.stuck);
    tutti__agreed_close(&own->agreed);
    tutti__lanes_close(&own->lanes);
    tutti__events_close(&e->events);
    tutti__pending_close(&e->pending);
    if (e->epfd >= 0)
        close(e->epfd);
    if (e->alarm >= 0)
        close(e->alarm);
    tutti__spares_close(&e->spares);
    tutti__engine_release(e);
}

/* Connect the engine's parts. Open all parts that may fail to open on this rank alone. */
static tutti_status_t open_parts(tutti__engine_t *e, tutti__owned_t *own)
{
    tutti_status_t status;

    tutti__pending_open(&e->pending, e->env.watch, &e->events, &own->semaphores);
    e->pending.is_threadless = !tutti__thread_is_needed(e);
    e->pending.stats = e->env.stats;
    tutti__lanes_open(&own->lanes, &e->env, &e->pending, &e->signals);
    own->semaphores = (tutti__semaphores_t){ .env = &e->env,
                                             .events = &e->events,
                                             .pending = &e->pending,
                                             .lanes = &own->lanes,
                                             .signals = &e->signals };
    own->stalls.agreed = own->stalls.stuck.agreed = &own->agreed;
    status =
        tutti__nameless_open(&e->pending.nameless, e->rank, e->size, e->env.exec->device == NULL);
    if (status == TUTTI_OK)
        status = tutti__events_open(&e->events, e->env.exec->device);
    if (status == TUTTI_OK && e->env.exec->device != NULL)
        status = tutti__semaphore_open(&own->semaphores);
    own->lanes.awaits_input = e->has_semaphores = own->semaphores.words != NULL;
    return status;
}

static tutti__engine_t *make(const tutti__engine_env_t *env)
{
    const tutti__topo_t *topo = tutti__boot_topo(env->boot);
    tutti__engine_t *e = aligned_alloc(TUTTI__FALSE_SHARING_BYTES,
                                       TUTTI__ROUND_UP(sizeof(*e), TUTTI__FALSE_SHARING_BYTES));

    if (e == NULL)
        return NULL;
    memset(e, 0, sizeof(*e));
    e->env = *env;
    e->generation = tutti__fork_generation();
    e->rank = topo->rank;
    e->size = topo->size;
    e->epfd = e->alarm = -1;
    atomic_store(&e->alarm_us, TUTTI__ALARM_US);
    e->spin = !topo->oversubscribed;
    atomic_store(&e->refs, 1);
    return e;
}

/* The rest of engine_open. Takes over the token, and gives it back before the thread starts. */
static tutti_status_t open_with_token(tutti__engine_t *e)
{
    tutti__owned_t *own = tutti__owned(e);
    tutti_status_t status;

    status = open_parts(e, own);
    tutti__help_open(e);
    status = tutti__boot_agree(e->env.boot, status);
    if (status == TUTTI_OK)
        status = tutti__agreed_open(&own->agreed, &e->env, &e->pending, &own->lanes);
    if (status == TUTTI_OK)
        status = open_epoll(e);
    tutti__token_leave(&e->token);
    if (status == TUTTI_OK)
        status = tutti__thread_start(e);
    return tutti__boot_agree(e->env.boot, status);
}

tutti_status_t tutti__engine_open(const tutti__engine_env_t *env, tutti__engine_t **ret_engine)
{
    tutti__engine_t *e = make(env);
    tutti_status_t status = TUTTI_OK;

    if (e == NULL) {
        /* The other ranks call boot_agree twice, so this rank does the same. */
        status = tutti__boot_agree(env->boot, tutti__fail(TUTTI_ERR_NO_MEMORY, "engine"));
        status = tutti__boot_agree(env->boot, status);
        tutti__watch_close(env->watch);
        return status;
    }
    tutti__links_listen(e->env.watch, (tutti__receiver_t){ tutti__engine_message, e });
    tutti__token_await(&e->token);
    status = open_with_token(e);
    if (status != TUTTI_OK) {
        tutti__thread_stop(e);
        tutti__token_await(&e->token);
        destroy(e);
        return status;
    }
    *ret_engine = e;
    return TUTTI_OK;
}

/* Send a goodbye, and end all requests of this rank. */
static void end_all(tutti__engine_t *e)
{
    tutti__owned_t *own;

    tutti__token_await(&e->token);
    own = tutti__owned(e);
    atomic_store(&e->news, 1);
    tutti__engine_step(e, TUTTI__STEP_BRIEF);
    /* If this step has ended the communicator, the next step tells the neighbours. */
    if (tutti__watch_has_ended(e->env.watch))
        tutti__engine_step(e, TUTTI__STEP_BRIEF);
    if (!tutti__watch_has_ended(e->env.watch))
        tutti__watch_drain(e->env.watch, own->lanes.plan_progress,
                           tutti__now_ns() + TUTTI__FLUSH_MS * 1000000u);
    /* Send the backlog before the goodbye. If a peer does not read the backlog in time, it receives
       only the goodbye. */
    tutti__links_flush_all(e->env.watch, tutti__now_ns() + TUTTI__FLUSH_MS * 1000000u);
    /* Requests that were handed over to CUDA streams can no longer report errors, so let them
       complete. */
    if (tutti__lanes_use_device(&own->lanes))
        tutti__completion_drain(&own->lanes.completions,
                                tutti__now_ns() + TUTTI__FLUSH_MS * 1000000u);
    tutti__engine_push(e);
    /* After a death no goodbye is sent, because peers must receive the report of the death. */
    if (tutti__watch_has_ended(e->env.watch))
        tutti__engine_step(e, TUTTI__STEP_BRIEF);
    else
        tutti__watch_leave(e->env.watch, own->lanes.plan_progress);
    tutti__lanes_clear(&own->lanes);
    /* Clear these lists before the requests end, because the program may free an ended request. */
    tutti__agreed_clear(&own->agreed);
    tutti__pending_finish_all(&e->pending, NULL, TUTTI_ERR_SHUTDOWN,
                              tutti__watch_closed_text(e->env.watch));
    tutti__engine_sleeping(e, 0);
    tutti__token_leave(&e->token);
    /* A callback may not close a communicator, so this thread is in no callback. */
    (void)tutti__pending_callbacks(&e->pending);
}

void tutti__engine_stop(tutti__engine_t *e)
{
    tutti__pending_refuse(&e->pending);
    atomic_store(&e->closed, 1);
    tutti__thread_stop(e);
    end_all(e);
}

void tutti__engine_close(tutti__engine_t *e)
{
    if (e == NULL)
        return;
    if (!atomic_load(&e->closed))
        tutti__engine_stop(e);
    /* All requests are done, so the threads in tutti_wait return soon. */
    while (atomic_load(&e->pending.inside) > 0)
        sched_yield();
    tutti__token_await(&e->token);
    destroy(e);
}
