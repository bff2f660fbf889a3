/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines of work that is queued in CUDA streams, and for which no call waits: direct calls in a
 * CUDA stream, and requests that were handed over to a CUDA stream. If NCCL's work never ends
 * because a peer is stuck, the communicator ends after the deadline, plus 1.5 s, plus at most an
 * eighth of the deadline. node/nccl/overdue.c finds this work. An error that NCCL itself reports
 * ends the communicator within seconds. Only the engine's thread calls these functions.
 */
#include "engine/queued.h"

#include "base/constants.h"
#include "base/time.h"

#include <assert.h>

static uint64_t period_ns(const tutti__engine_env_t *env)
{
    uint64_t period = env->conf->timeout_ms * 1000000u / TUTTI__CHECKS_PER_DEADLINE;

    return TUTTI__MIN(period, TUTTI__CHECK_MOST_NS);
}

int64_t tutti__queued_nap_us(const tutti__engine_env_t *env)
{
    const tutti__exec_device_t *device = env->exec->device;

    if (device == NULL || device->node == NULL)
        return -1;
    return tutti__watch_has_failed(env->watch) ? TUTTI__CHECK_FAILED_US
                                               : (int64_t)(period_ns(env) / 1000);
}

static tutti_status_t look(const tutti__engine_env_t *env, uint64_t now, uint64_t limit_ns,
                           unsigned *ret_tag)
{
    const tutti__exec_device_t *device = env->exec->device;
    int before = tutti__device_enter(env->exec->device);
    tutti_status_t status = device->node->device_ops->overdue(device->node, now, limit_ns, ret_tag);

    if (status == TUTTI_OK && device->all_node != NULL)
        status = device->all_node->device_ops->overdue(device->all_node, now, limit_ns, ret_tag);
    tutti__device_leave(env->exec->device, before);
    return status;
}

static void fail(const tutti__engine_env_t *env, tutti_status_t status, unsigned tag)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "%s, %s, queued in a stream of device %d: %.300s",
             tutti__boot_rank_name(env->boot, env->exec->rank), tutti__tag_name(tag),
             env->exec->device->device, tutti_last_error());
    tutti__watch_fail(env->watch, status, text);
}

int tutti__queued_check(const tutti__engine_env_t *env, uint64_t *checked_ns)
{
    const tutti__exec_device_t *device = env->exec->device;
    uint64_t now = tutti__now_ns(),
             limit_ns = env->conf->timeout_ms * 1000000u + TUTTI__QUEUED_GRACE_NS;
    char text[TUTTI__ERROR_BYTES], halted[160];
    tutti_status_t status;
    int is_halted;
    unsigned tag;

    if (device == NULL || device->node == NULL || tutti__watch_has_ended(env->watch))
        return 0;
    if (tutti__watch_has_failed(env->watch)) {
        tutti__watch_end_unexplained(env->watch);
        return 1;
    }
    assert(*checked_ns <= now);
    if (now - *checked_ns < period_ns(env))
        return 0;
    *checked_ns = now;
    status = look(env, now, limit_ns, &tag);
    if (status == TUTTI_OK)
        return 0;
    if (status != TUTTI_ERR_TIMEOUT) {
        fail(env, status, tag);
        return tutti__watch_has_failed(env->watch);
    }
    is_halted = tutti__watch_halted(env->watch, halted, sizeof(halted));
    snprintf(text, sizeof(text), "%s: device %d has been at %s, queued in a stream, for %.3g s: %s",
             tutti__boot_rank_name(env->boot, env->exec->rank), device->device,
             tutti__tag_name(tag), (double)limit_ns / 1e9,
             is_halted ? halted : "another rank has not reached it on its device");
    tutti__watch_end(env->watch, TUTTI_ERR_TIMEOUT, text);
    return 0;
}
