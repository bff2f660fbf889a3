/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's open and close, and its functions for direct calls. See engine.h. token.c has the
 * steps, wait.c the callers, thread.c the thread.
 */
#include "engine/engine.h"

#include "base/constants.h"
#include "base/forked.h"
#include "base/time.h"
#include "engine/state.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- for direct calls ---- */

int tutti__engine_spins(const tutti__engine_t *e)
{
    return e->spin;
}

void tutti__engine_settle(tutti__engine_t *e)
{
    /* Any thread may wait for the token; no thread keeps it for long. */
    tutti__token_await(e);
    tutti__engine_step(e, TUTTI__STEP_BRIEF);
    tutti__token_leave(e, TUTTI__STEP_BRIEF);
}

tutti_status_t tutti__engine_kill(tutti__engine_t *e, tutti_status_t status, const char *text)
{
    (void)tutti__watch_end(e->watch, status, text);
    tutti__engine_settle(e);
    return tutti__watch_alive(e->watch);
}

void tutti__engine_cancel(tutti__engine_t *e, uint32_t first, uint32_t number)
{
    tutti__token_await(e);
    tutti__watch_cancel(e->watch, first, number);
    tutti__token_leave(e, TUTTI__STEP_BRIEF);
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
    status = add_fd(e, e->env.machine->doorbell[e->env.machine->me]);
    if (status == TUTTI_OK && e->size > 1)
        status = add_fd(e, tutti__side_fd(e->env.boot));
    return status;
}

void tutti__engine_release(tutti__engine_t *e)
{
    if (atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    tutti__watch_close(e->watch);
    free(e);
}

static void destroy(tutti__engine_t *e)
{
    tutti__help_close(e);
    tutti__agreed_close(e);
    tutti__lanes_close(e);
    tutti__cache_fini(&e->cache);
    tutti__cache_fini(&e->device_cache);
    tutti__events_close(e);
    if (e->epfd >= 0)
        close(e->epfd);
    free(e->names.bucket);
    e->names.bucket = NULL;
    e->names.nbuckets = 0;
    tutti__mutex_destroy(&e->queue_lock);
    tutti__engine_release(e);
}

/* The largest bucket in host memory. */
static uint64_t fusion_bytes(const tutti__engine_env_t *env)
{
    if (env->conf->fusion_bytes != TUTTI__CONF_AUTO)
        return env->conf->fusion_bytes;
    return env->shape->nhosts == 1 ? TUTTI__FUSE_HOST_BYTES : TUTTI__FUSE_HOSTS_BYTES;
}

tutti_status_t tutti__engine_open(const tutti__engine_env_t *env, tutti__engine_t **ret_engine)
{
    const tutti__topo_t *topo = tutti__boot_topo(env->boot);
    tutti__engine_t *e = aligned_alloc(TUTTI__FALSE_SHARING_BYTES,
                                       TUTTI__ROUND_UP(sizeof(*e), TUTTI__FALSE_SHARING_BYTES));
    tutti_status_t status = TUTTI_OK;

    if (e == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "engine");
        status = tutti__boot_agree(env->boot, status);
        tutti__watch_close(env->watch);
        return status;
    }
    memset(e, 0, sizeof(*e));
    e->env = *env;
    e->generation = tutti__fork_generation();
    e->rank = topo->rank;
    e->size = topo->size;
    e->watch = env->watch;
    e->parent = tutti__links_parent(e->watch);
    tutti__links_listen(e->watch, (tutti__receiver_t){ tutti__engine_message, e });
    e->epfd = -1;
    e->spin = !topo->oversubscribed;
    e->fusion_bytes = fusion_bytes(env);
    atomic_store(&e->refs, 1);
    tutti__mutex_init(&e->queue_lock, TUTTI__LOCK_ENGINE_QUEUE);
    tutti__help_open(e);
    e->calls = (tutti__call_env_t){ .exec = env->exec,
                                    .shape = env->shape,
                                    .conf = env->conf,
                                    .watch = env->watch,
                                    .boot = env->boot,
                                    .cache = &e->cache,
                                    .device_cache = &e->device_cache,
                                    .is_agreed = 1 };
    tutti__lanes_open(e);
    /* Buckets depend on timing until plans are learned, but results must not. */
    tutti__cache_init(&e->cache, env->shape, e->rank, env->conf->algorithm,
                      env->conf->strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__STEADY_ASSOCIATION,
                      env->conf->check ? (uint32_t)env->conf->credits : 0);
    tutti__cache_init(&e->device_cache, env->shape, e->rank, env->conf->algorithm,
                      e->cache.association, e->cache.prove);
    tutti__cache_for_device(
        &e->device_cache,
        &(tutti__device_limits_t){ env->conf->device_staged_bytes, env->conf->stage_bytes });
    e->device_cache.flat = env->exec->device != NULL && env->exec->device->flat != NULL;
    if (env->exec->device != NULL)
        status = tutti__events_open(e);
    if (status == TUTTI_OK && env->exec->device != NULL)
        status = tutti__semaphore_open(e);
    status = tutti__boot_agree(env->boot, status);
    if (status == TUTTI_OK)
        status = tutti__agreed_open(e);
    if (status == TUTTI_OK)
        status = open_epoll(e);
    if (status == TUTTI_OK)
        status = tutti__thread_start(e);
    status = tutti__boot_agree(env->boot, status);
    if (status != TUTTI_OK) {
        tutti__thread_stop(e);
        destroy(e);
        return status;
    }
    *ret_engine = e;
    return TUTTI_OK;
}

/* Send a goodbye, and end all requests of this rank. */
static void end_all(tutti__engine_t *e)
{
    tutti__token_await(e);
    atomic_store(&e->news, 1);
    tutti__engine_step(e, TUTTI__STEP_BRIEF);
    /* This step may have ended the communicator. */
    tutti__watch_tell(e->watch);
    /* Messages from the backlog go before the goodbye; a peer that does not read loses them. */
    tutti__links_flush_all(e->watch, tutti__now_ns() + TUTTI__FLUSH_MS * 1000000u);
    /* Requests that were handed over to streams can no longer report errors, so let
       them complete. */
    tutti__completion_drain(e, tutti__now_ns() + TUTTI__FLUSH_MS * 1000000u);
    /* After a death no goodbye is sent, because peers must receive the report of the death. */
    if (!tutti__watch_has_ended(e->watch))
        tutti__watch_leave(e->watch);
    tutti__lanes_clear(e);
    tutti__request_finish_all(e, NULL, TUTTI_ERR_SHUTDOWN, tutti__watch_closed_text(e->watch));
    tutti__engine_sleeping(e, 0);
    atomic_store(&e->token, 0);
    tutti__request_callbacks(e);
}

void tutti__engine_close(tutti__engine_t *e)
{
    if (e == NULL)
        return;
    tutti__mutex_lock(&e->queue_lock);
    atomic_store(&e->closed, 1);
    tutti__mutex_unlock(&e->queue_lock);
    tutti__thread_stop(e);
    end_all(e);
    /* Threads in tutti_wait find their requests done and leave. */
    while (atomic_load(&e->inside) > 0)
        sched_yield();
    destroy(e);
}
