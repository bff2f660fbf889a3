/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's open and close, and its functions for direct calls. See engine.h. token.c has the
 * steps, wait.c the callers, thread.c the thread.
 */
#include "engine/engine.h"

#include "base/forked.h"
#include "base/time.h"
#include "engine/state.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* How long closing waits for space in peers' rings, and for the device. */
#define FLUSH_MS 200u

/* ---- for direct calls ---- */

tutti_status_t tutti__engine_alive(tutti__engine_t *e)
{
    int dead = atomic_load_explicit(&e->dead, memory_order_acquire);

    if (TUTTI__LIKELY(dead == 0))
        return TUTTI_OK;
    return tutti__fail((tutti_status_t)dead, "%s", e->dead_text);
}

tutti_status_t tutti__engine_state(const tutti__engine_t *e, const char **ret_text)
{
    /* Pairs with the store in watch.c. The text does not change after it. */
    int dead = atomic_load_explicit(&e->dead, memory_order_acquire);

    *ret_text = dead == 0 ? "" : e->dead_text;
    return (tutti_status_t)dead;
}

int tutti__engine_has_left(tutti__engine_t *e, uint32_t rank)
{
    /* On this machine its status page says so even if the ranks that would report it have left. */
    return atomic_load(&e->left[rank]) || tutti__watch_page(e, rank) >= TUTTI__PAGE_ENDED;
}

tutti_status_t tutti__engine_kill(tutti__engine_t *e, tutti_status_t status, const char *text)
{
    char left[128];

    if (status == TUTTI_ERR_SHUTDOWN && tutti__watch_left(e, TUTTI__NOBODY, left, sizeof(left)))
        text = left;
    /* Any thread may wait for the token; no thread keeps it for long. */
    tutti__token_await(e);
    tutti__watch_dead(e, status, text);
    tutti__engine_step(e, TUTTI__STEP_BRIEF);
    tutti__token_leave(e, TUTTI__STEP_BRIEF);
    return tutti__engine_alive(e);
}

void tutti__engine_cancel(tutti__engine_t *e, uint32_t first, uint32_t number)
{
    tutti__cancel_msg_t msg = { first, number };

    tutti__token_await(e);
    tutti__watch_cancel(e, -1, &msg, sizeof(msg));
    tutti__token_leave(e, TUTTI__STEP_BRIEF);
}

int tutti__engine_cancelled(tutti__engine_t *e, uint32_t first, uint32_t number)
{
    return atomic_load(&e->cancelled[first]) == number;
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

static void destroy(tutti__engine_t *e)
{
    tutti__agreed_close(e);
    tutti__lanes_close(e);
    tutti__links_close(e);
    tutti__cache_fini(&e->cache);
    tutti__cache_fini(&e->device_cache);
    tutti__events_close(e);
    if (e->epfd >= 0)
        close(e->epfd);
    free(e->names.bucket);
    e->names.bucket = NULL;
    e->names.nbuckets = 0;
    tutti__mutex_destroy(&e->queue_lock);
    free(e->left);
    free(e->cancelled);
    e->left = NULL;
    if (atomic_fetch_sub(&e->refs, 1) == 1)
        free(e);
}

/*
 * The largest bucket. On one host it should stay in the caches between packing, reducing and
 * unpacking: ResNet-50's gradients, 2 ranks on a Zen 5 guest, took 9.2 ms with 256 KiB, 8.1 with 1
 * MiB, 11 with 4, 27 with 64. Between hosts larger buckets save messages; not measured yet.
 */
static uint64_t fusion_bytes(const tutti__engine_env_t *env)
{
    if (env->conf->fusion_bytes != TUTTI__CONF_AUTO)
        return env->conf->fusion_bytes;
    return env->shape->nhosts == 1 ? (uint64_t)1 << 20 : (uint64_t)64 << 20;
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
    e->fusion_bytes = fusion_bytes(env);
    atomic_store(&e->refs, 1);
    tutti__mutex_init(&e->queue_lock, TUTTI__LOCK_ENGINE_QUEUE);
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
    e->left = calloc(e->size, sizeof(*e->left));
    e->cancelled = calloc(e->size, sizeof(*e->cancelled));
    if (e->left == NULL || e->cancelled == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "engine for %u ranks", e->size);
    if (status == TUTTI_OK && env->exec->device != NULL)
        status = tutti__events_open(e);
    if (status == TUTTI_OK && env->exec->device != NULL)
        status = tutti__semaphore_open(e);
    status = tutti__boot_agree(env->boot, status);
    if (status == TUTTI_OK)
        status = tutti__links_open(e);
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

/* Messages from the backlog go before the goodbye; a peer that does not read loses them. */
static void flush_all(tutti__engine_t *e)
{
    uint64_t limit = tutti__now_ns() + FLUSH_MS * 1000000u;
    size_t left;

    do {
        left = 0;
        tutti__links_flush(e);
        for (uint32_t i = 0; i < e->nlinks; i++)
            left += e->link[i].lost ? 0 : e->link[i].backlog_bytes;
        if (left > 0)
            sched_yield();
    } while (left > 0 && tutti__now_ns() < limit);
}

/* Send a goodbye, and end all requests of this rank. */
static void end_all(tutti__engine_t *e)
{
    tutti__token_await(e);
    atomic_store(&e->news, 1);
    tutti__engine_step(e, TUTTI__STEP_BRIEF);
    flush_all(e);
    /* Requests that were handed over to streams can no longer report errors, so let
       them complete. */
    tutti__completion_drain(e, tutti__now_ns() + FLUSH_MS * 1000000u);
    /* After a death no goodbye is sent, because peers must receive the report of the death. */
    if (!atomic_load(&e->dead)) {
        tutti__watch_set_page(e, TUTTI__PAGE_LEFT);
        tutti__watch_bye(e, -1, e->rank);
    }
    tutti__lanes_clear(e, TUTTI__STEP_WAITER);
    tutti__request_finish_all(e, NULL, TUTTI_ERR_SHUTDOWN, tutti__watch_closed(e));
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
