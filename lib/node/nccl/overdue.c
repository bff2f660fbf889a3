/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks operations for which no call waits: they were queued in a CUDA stream, and their call has
 * returned. If such an operation never ends, no call's deadline detects this, but these checks do.
 *
 *      stream:  ... caller's work | begun | NCCL's calls | ended | ...
 *
 * A queued operation has two events, `begun` and `ended`. The operation's time counts from the
 * check that finds `begun` complete, so the time of the caller's earlier work does not count. From
 * then on the operation waits for other ranks, which may be busy with long work of their own. As in
 * any call, the deadline limits this wait.
 *
 * Set-up makes space for TUTTI__NCCL_OVERDUE operations. If more operations are in flight, the call
 * that queues the next operation makes more space. No operation is left without events, because any
 * operation may never end. Making events does not wait for the device.
 *
 * While operations are queued, each check also asks NCCL for errors. After an error NCCL's work
 * never ends, and only NCCL's own query reports the error.
 *
 * Rejected: one pair of events for the last queued operation. A further operation, queued behind
 * an operation that never ends, would record the same events again.
 */
#include "node/nccl/nccl.h"

#include <stdlib.h>

struct tutti__nccl_overdue {
    tutti__devent_t *begun, *ended;
    unsigned tag;
    uint64_t since_ns; /* when `begun` was found complete; 0: not yet */
};

static tutti__nccl_overdue_t *at(const tutti__nccl_node_t *self, uint32_t index)
{
    return &self->overdue[index & (self->overdue_capacity - 1)];
}

/* Make a larger ring, or the first ring. After a failure, close frees the events made so far. */
static tutti_status_t reserve(tutti__nccl_node_t *self, uint32_t capacity)
{
    tutti__nccl_overdue_t *before = self->overdue;
    tutti__nccl_overdue_t *ring = calloc(capacity, sizeof(*ring));
    tutti_status_t status = TUTTI_OK;

    if (ring == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/nccl");
    for (uint32_t i = self->overdue_first; i != self->overdue_end; i++)
        ring[i & (capacity - 1)] = *at(self, i);
    self->overdue = ring;
    self->overdue_capacity = capacity;
    free(before);
    for (uint32_t i = 0; i < capacity && status == TUTTI_OK; i++) {
        if (ring[i].begun != NULL)
            continue;
        status = self->ops->event_make(&ring[i].begun);
        if (status == TUTTI_OK)
            status = self->ops->event_make(&ring[i].ended);
    }
    return status;
}

tutti_status_t tutti__nccl_overdue_open(tutti__nccl_node_t *self)
{
    return reserve(self, TUTTI__NCCL_OVERDUE);
}

void tutti__nccl_overdue_close(tutti__nccl_node_t *self)
{
    for (uint32_t i = 0; i < self->overdue_capacity; i++) {
        if (self->overdue[i].begun != NULL)
            self->ops->event_drop(self->overdue[i].begun);
        if (self->overdue[i].ended != NULL)
            self->ops->event_drop(self->overdue[i].ended);
    }
    free(self->overdue);
    self->overdue = NULL;
    self->overdue_capacity = 0;
}

/* ---- inside the gate ---- */

/* Remove completed operations. Returns the status of the first incomplete operation; TUTTI_OK: all
   have completed. */
static tutti_status_t forget_ended(tutti__nccl_node_t *self)
{
    tutti_status_t status = TUTTI_OK;

    while (self->overdue_first != self->overdue_end && status == TUTTI_OK) {
        status = self->ops->query(at(self, self->overdue_first)->ended);
        self->overdue_first += status == TUTTI_OK;
    }
    return status;
}

tutti_status_t tutti__nccl_overdue_begin(tutti__nccl_node_t *self, const tutti__node_call_t *call)
{
    tutti_status_t status = TUTTI_OK;

    self->overdue_open = 0;
    if (!call->queued)
        return TUTTI_OK;
    if (self->overdue_end - self->overdue_first == self->overdue_capacity)
        status = forget_ended(self);
    if (status == TUTTI__AGAIN && self->overdue_end - self->overdue_first == self->overdue_capacity)
        status = reserve(self, 2 * self->overdue_capacity);
    if (status != TUTTI_OK && status != TUTTI__AGAIN)
        return status;
    self->overdue_open = 1;
    at(self, self->overdue_end)->tag = call->tag;
    at(self, self->overdue_end)->since_ns = 0;
    return self->ops->record(at(self, self->overdue_end)->begun, self->stream);
}

tutti_status_t tutti__nccl_overdue_end(tutti__nccl_node_t *self)
{
    if (!self->overdue_open)
        return TUTTI_OK;
    self->overdue_open = 0;
    return self->ops->record(at(self, self->overdue_end++)->ended, self->stream);
}

/* ---- the check ---- */

/* Has the first incomplete operation been executing for too long? */
static tutti_status_t look(const tutti__nccl_node_t *self, tutti__nccl_overdue_t *first,
                           uint64_t now_ns, uint64_t limit_ns, int *ret_late)
{
    tutti_status_t status = TUTTI_OK;

    *ret_late = first->since_ns != 0 && now_ns - first->since_ns > limit_ns;
    if (first->since_ns == 0)
        status = self->ops->query(first->begun);
    if (first->since_ns == 0 && status == TUTTI_OK)
        first->since_ns = now_ns;
    return status;
}

tutti_status_t tutti__nccl_node_overdue(tutti__node_t *node, uint64_t now_ns, uint64_t limit_ns,
                                        unsigned *ret_tag)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;
    tutti_status_t status = TUTTI_OK;
    int late = 0;

    /* If the node is dead, the thread that found the error has reported it. */
    if (tutti__nccl_alive(self) != TUTTI_OK || !tutti__nccl_enter(self))
        return TUTTI_OK;
    status = forget_ended(self);
    *ret_tag = at(self, self->overdue_first)->tag;
    if (status == TUTTI__AGAIN) {
        status = look(self, at(self, self->overdue_first), now_ns, limit_ns, &late);
        if (status == TUTTI_OK || status == TUTTI__AGAIN)
            status = self->ops->nccl_poll(self->nccl);
    }
    status = tutti__nccl_leave(self, status);
    if (status != TUTTI_OK && status != TUTTI__AGAIN)
        return status;
    return late ? TUTTI_ERR_TIMEOUT : TUTTI_OK;
}
