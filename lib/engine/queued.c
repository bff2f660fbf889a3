/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watch over work that is queued in streams and that no call waits for: direct calls in a
 * stream, and requests that were handed over to a stream. If NCCL's work never ends because a peer
 * is stuck, the communicator ends after the deadline, plus at most an eighth of it and 1.5 s.
 * node/nccl/overdue.c defines this work. An error that NCCL itself reports ends the communicator
 * within seconds. Only the engine's thread calls this file.
 */
#include "engine/state.h"

#include "base/constants.h"
#include "base/time.h"

static uint64_t period_ns(const tutti__engine_t *e)
{
    uint64_t period = e->env.conf->timeout_ms * 1000000u / TUTTI__CHECKS_PER_DEADLINE;

    return TUTTI__MIN(period, TUTTI__CHECK_MOST_NS);
}

int64_t tutti__watch_queued_us(const tutti__engine_t *e)
{
    const tutti__exec_device_t *device = e->env.exec->device;

    if (device == NULL || device->node == NULL)
        return -1;
    return tutti__watch_has_failed(e->watch) ? TUTTI__CHECK_FAILED_US
                                             : (int64_t)(period_ns(e) / 1000);
}

static tutti_status_t look(tutti__engine_t *e, uint64_t now, uint64_t limit_ns, unsigned *ret_tag)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    int before = tutti__device_enter(e->env.exec->device);
    tutti_status_t status = device->node->device_ops->overdue(device->node, now, limit_ns, ret_tag);

    if (status == TUTTI_OK && device->flat != NULL)
        status = device->flat->device_ops->overdue(device->flat, now, limit_ns, ret_tag);
    tutti__device_leave(e->env.exec->device, before);
    return status;
}

static void fail(tutti__engine_t *e, tutti_status_t status, unsigned tag)
{
    char text[TUTTI__ERROR_BYTES];

    snprintf(text, sizeof(text), "%s, %s, queued in a stream of device %d: %.300s",
             tutti__boot_rank_name(e->env.boot, e->rank), tutti__tag_name(tag),
             e->env.exec->device->device, tutti_last_error());
    tutti__watch_fail(e->watch, status, text);
}

void tutti__watch_queued(tutti__engine_t *e)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    uint64_t now = tutti__now_ns(),
             limit_ns = e->env.conf->timeout_ms * 1000000u + TUTTI__QUEUED_GRACE_NS;
    char text[TUTTI__ERROR_BYTES], halted[160];
    tutti_status_t status;
    int is_halted;
    unsigned tag;

    if (device == NULL || device->node == NULL || tutti__watch_has_ended(e->watch))
        return;
    if (tutti__watch_has_failed(e->watch)) {
        atomic_store(&e->news, 1); /* the next step polls the sockets */
        tutti__watch_await_news(e->watch);
        return;
    }
    if (now - e->queued_ns < period_ns(e))
        return;
    e->queued_ns = now;
    status = look(e, now, limit_ns, &tag);
    if (status == TUTTI_OK)
        return;
    if (status != TUTTI_ERR_TIMEOUT) {
        fail(e, status, tag);
        return;
    }
    is_halted = tutti__watch_halted(e->watch, halted, sizeof(halted));
    snprintf(text, sizeof(text), "%s: device %d has been at %s, queued in a stream, for %.3g s: %s",
             tutti__boot_rank_name(e->env.boot, e->rank), device->device, tutti__tag_name(tag),
             (double)limit_ns / 1e9,
             is_halted ? halted : "another rank has not come to it on its device");
    tutti__watch_end(e->watch, TUTTI_ERR_TIMEOUT, text);
}
