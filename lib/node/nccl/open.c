/* SPDX-License-Identifier: BSD-3-Clause */
/* Node operations by NCCL: opening, connecting, closing. Only open allocates device memory. */
#include "node/nccl/nccl.h"

#include "base/constants.h"

#include <assert.h>
#include <stdlib.h>

static void drop_device_parts(tutti__nccl_node_t *self)
{
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES; i++)
        if (self->lane[i].done != NULL)
            self->ops->event_drop(self->lane[i].done);
    tutti__nccl_overdue_close(self);
    if (tutti__nccl_is_stuck(self->device))
        return;
    if (self->stage != NULL)
        self->ops->free(self->stage);
    if (self->stream != NULL)
        self->ops->stream_drop(self->stream);
}

void tutti__nccl_close(tutti__node_t *node)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;

    if (self == NULL)
        return;
    tutti__nccl_order_leave(self);
    /* Even if this fails, free the other parts. */
    (void)self->ops->use(self->device);
    tutti__nccl_end(self);
    drop_device_parts(self);
    free(self->pieces);
    free(self->calls);
    free(self);
}

static tutti_status_t make_device_parts(tutti__nccl_node_t *self)
{
    tutti_status_t status;
    void *stage;

    status = self->ops->use(self->device);
    if (status == TUTTI_OK)
        status = self->ops->stream_make(1, &self->stream);
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES && status == TUTTI_OK; i++)
        status = self->ops->event_make(&self->lane[i].done);
    if (status == TUTTI_OK)
        status = tutti__nccl_overdue_open(self);
    /* The stage is not registered with NCCL. Only ranks that work in place use the stage, but in a
       call either all ranks or no rank must use a registered buffer. */
    if (status == TUTTI_OK && self->nlocal > 1) {
        status = self->ops->alloc(self->stage_share * self->nlocal, &stage);
        if (status == TUTTI_OK)
            self->stage = stage;
    }
    return status;
}

tutti_status_t tutti__nccl_node_open(const tutti__nccl_open_t *with, tutti__node_t **ret_node)
{
    tutti__nccl_node_t *self = calloc(1, sizeof(*self));
    tutti_status_t status;

    assert(with->stage_bytes / with->nlocal >= TUTTI__NCCL_STAGE_ALIGN);
    if (self == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/nccl");
    self->node.ops = &tutti__nccl_ops;
    self->node.device_ops = &tutti__nccl_device_ops;
    self->ops = with->ops;
    self->device = with->device;
    self->me = with->me;
    self->nlocal = with->nlocal;
    self->leader = with->leader;
    self->host = with->host;
    self->leads = with->flat ? (int32_t)with->me == with->leader : with->me == 0;
    self->order = with->order;
    self->tickets = with->tickets != NULL ? with->tickets : with->order;
    tutti__store64_release(&self->number, 1);
    self->stage_share =
        with->stage_bytes / with->nlocal / TUTTI__NCCL_STAGE_ALIGN * TUTTI__NCCL_STAGE_ALIGN;
    self->most_calls = TUTTI__MAX(2 * with->nlocal, TUTTI__NCCL_GROUP_CALLS);
    self->calls = calloc(self->most_calls, sizeof(*self->calls));
    self->pieces = calloc(with->nlocal, sizeof(*self->pieces));
    if (self->calls == NULL || self->pieces == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "node/nccl for %u ranks", with->nlocal);
        goto close;
    }
    status = make_device_parts(self);
    if (with->serves != NULL)
        self->serves = *with->serves;
    else if (status == TUTTI_OK)
        tutti__nccl_ask(self->ops, &self->serves);
    /* Connect to the other ranks last, and only if this rank has everything that it needs. */
    if (status == TUTTI_OK)
        status = self->ops->nccl_open(with->id, with->me, with->nlocal, 0, &self->nccl);
    if (status != TUTTI_OK)
        goto close;
    tutti__nccl_order_join(self);
    *ret_node = &self->node;
    return TUTTI_OK;

close:
    tutti__nccl_close(&self->node);
    return status;
}

tutti_status_t tutti__nccl_node_settle(tutti__node_t *node)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;
    tutti_status_t status = tutti__nccl_alive(self);

    if (status != TUTTI_OK)
        return status;
    if (!tutti__nccl_enter(self))
        return TUTTI__AGAIN;
    status = self->ops->use(self->device);
    if (status == TUTTI_OK)
        status = self->ops->nccl_poll(self->nccl);
    return tutti__nccl_leave(self, status);
}

tutti_status_t tutti__nccl_node_register(tutti__node_t *node, void *ptr, size_t bytes)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;
    tutti_status_t status = tutti__nccl_alive(self);

    assert(self->nregs < TUTTI__DEVICE_LANES);
    if (status != TUTTI_OK)
        return status;
    status = self->ops->nccl_register(self->nccl, ptr, bytes, &self->reg[self->nregs]);
    self->nregs += status == TUTTI_OK;
    return status;
}

/* After an abort this function does nothing, because NCCL has dropped the registrations. */
void tutti__nccl_node_unregister(tutti__node_t *node)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;

    while (self->nregs > 0 && self->nccl != NULL)
        self->ops->nccl_deregister(self->nccl, self->reg[--self->nregs]);
}

static uint64_t next_sequence(tutti__node_t *node)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;

    return atomic_fetch_add_explicit(&self->sequence, 1, memory_order_relaxed) + 1;
}

static void set_sequence(tutti__node_t *node, uint32_t lane, uint64_t sequence)
{
    ((tutti__nccl_node_t *)node)->lane[lane].sequence = sequence;
}

const tutti__sequencer_ops_t tutti__nccl_sequencer_ops = { .next = next_sequence,
                                                           .set = set_sequence };

tutti__nccl_order_t *tutti__nccl_node_tickets(const tutti__node_t *node)
{
    return node != NULL ? ((const tutti__nccl_node_t *)node)->tickets : NULL;
}

void tutti__nccl_node_ready(tutti__node_t *node, uint32_t lane, tutti__devent_t *event)
{
    ((tutti__nccl_node_t *)node)->lane[lane].ready = event;
}
