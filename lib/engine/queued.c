/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watch over what is queued in streams, and waited for by no call: direct calls in a stream,
 * and requests that were handed over to one. NCCL's work that never ends, as a peer is stuck, ends
 * the communicator after the deadline, and an eighth of it and 1.5 s at most. What is meant by
 * work is in node/nccl/overdue.c. The thread's.
 */
#include "engine/state.h"

#include "base/time.h"
#include "node/nccl/nccl.h"

#define LOOKS_PER_DEADLINE 8
/* Whoever waits for a request all the same has the deadline, too, and says which tensor it is. */
#define GRACE_NS 1500000000u

static uint64_t period_ns(const tutti__engine_t *e)
{
    return e->env.conf->timeout_ms * 1000000u / LOOKS_PER_DEADLINE;
}

int64_t tutti__watch_queued_us(const tutti__engine_t *e)
{
    const tutti__exec_device_t *device = e->env.exec->device;

    return device != NULL && device->node != NULL ? (int64_t)(period_ns(e) / 1000) : -1;
}

void tutti__watch_queued(tutti__engine_t *e)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    uint64_t now = tutti__now_ns(), limit_ns = e->env.conf->timeout_ms * 1000000u + GRACE_NS;
    char text[TUTTI__ERROR_BYTES], halted[128];
    unsigned tag;
    int before, is_late, is_halted;

    if (device == NULL || device->node == NULL || now - e->queued_ns < period_ns(e) ||
        atomic_load(&e->dead))
        return;
    e->queued_ns = now;
    before = tutti__engine_use_device(e);
    is_late = tutti__nccl_node_overdue(device->node, now, limit_ns, &tag) ||
              (device->flat != NULL && tutti__nccl_node_overdue(device->flat, now, limit_ns, &tag));
    tutti__engine_give_back(e, before);
    if (!is_late)
        return;
    is_halted = tutti__engine_halted(e, halted, sizeof(halted));
    snprintf(text, sizeof(text),
             "rank %u: device %d has been at %s, queued in a stream, for %.3g s: %s", e->rank,
             device->device, tutti__tag_name(tag), (double)limit_ns / 1e9,
             is_halted ? halted : "another rank has not come to it on its device");
    tutti__watch_dead(e, TUTTI_ERR_TIMEOUT, text);
}
