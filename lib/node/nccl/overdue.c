/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that nobody waits for: queued in a stream, their call has returned, so no deadline of
 * a call sees that one never ends.
 *
 *      stream:  ... caller's work | begun | NCCL's calls | ended | ...
 *
 * A queued operation has two events. Its time counts from when somebody finds that `begun` has
 * come: what the caller's own work takes before does not count. What it waits for then are other
 * ranks, which may be at long work of their own: like for any call, they have the deadline for it.
 *
 * Set-up makes room for OVERDUE operations. Whoever has more of them in flight pays for more room:
 * each may be the one that never ends, so all are kept. Making events waits for nobody.
 *
 * NCCL's health is asked for as well while something is queued: its errors show in its own call
 * only, and its work does not end then.
 *
 * Rejected: one pair of events for whatever is queued last. An operation that is queued behind one
 * that never ends would take them away.
 */
#include "node/nccl/nccl.h"

#include <stdlib.h>

struct tutti__nccl_overdue {
    tutti__devent_t *begun, *ended;
    unsigned tag;
    uint64_t since_ns; /* when `begun` was found; 0: not yet */
};

static tutti__nccl_overdue_t *at(const tutti__nccl_node_t *self, uint32_t index)
{
    return &self->overdue[index & (self->overdue_room - 1)];
}

/* The ring is full, or there is none. What fails leaves it to close. */
static tutti_status_t make_room(tutti__nccl_node_t *self, uint32_t room)
{
    tutti__nccl_overdue_t *before = self->overdue;
    tutti__nccl_overdue_t *ring = calloc(room, sizeof(*ring));
    tutti_status_t status = TUTTI_OK;

    if (ring == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/nccl");
    for (uint32_t i = self->overdue_first; i != self->overdue_end; i++)
        ring[i & (room - 1)] = *at(self, i);
    self->overdue = ring;
    self->overdue_room = room;
    free(before);
    for (uint32_t i = 0; i < room && status == TUTTI_OK; i++) {
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
    return make_room(self, TUTTI__NCCL_OVERDUE);
}

void tutti__nccl_overdue_close(tutti__nccl_node_t *self)
{
    for (uint32_t i = 0; i < self->overdue_room; i++) {
        if (self->overdue[i].begun != NULL)
            self->ops->event_drop(self->overdue[i].begun);
        if (self->overdue[i].ended != NULL)
            self->ops->event_drop(self->overdue[i].ended);
    }
    free(self->overdue);
    self->overdue = NULL;
    self->overdue_room = 0;
}

/* ---- inside the gate ---- */

/* What the device says of the first that has not ended; TUTTI_OK: all have. */
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
    if (self->overdue_end - self->overdue_first == self->overdue_room)
        status = forget_ended(self);
    if (status == TUTTI__AGAIN && self->overdue_end - self->overdue_first == self->overdue_room)
        status = make_room(self, 2 * self->overdue_room);
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

/* ---- the watch ---- */

/* Of the first one that has not ended. */
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

    /* Why it is dead is said by whoever found out. */
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
