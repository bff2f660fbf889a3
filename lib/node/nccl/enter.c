/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lets one thread at a time call the device and NCCL; no thread ever waits for another.
 *
 * There are two words: one for the node (its gate), and one for all communicators of a device. If
 * one of these words is taken, a step returns TUTTI__AGAIN. A request to abort sets a bit in the
 * gate. From then on the gate admits no thread. If a thread is inside, this thread aborts NCCL when
 * it leaves; otherwise the thread that requests the abort aborts NCCL. So two threads never call
 * NCCL at once, and no thread calls NCCL after the abort.
 */
#include "node/nccl/nccl.h"

#include <string.h>

enum {
    INSIDE = TUTTI__NCCL_INSIDE, /* a thread is inside */
    ABORTED = 2,                 /* an abort was requested */
    FAILED = 4,                  /* a step has failed; self->status is the reason */
    ENDED = 8                    /* the abort is over: no thread calls the device any more */
};

/* Devices whose numbers are equal modulo DEVICES share an entry, so only one thread at a time uses
   these devices. Sharing has no other effect. */
#define DEVICES 32

static tutti__word_t in_use[DEVICES];

static tutti__word_t *device_word(const tutti__nccl_node_t *self)
{
    return &in_use[(unsigned)self->device % DEVICES];
}

/* If a word is free, take it and return 1. The acquire pairs with the release that frees the
   word. */
static int take(tutti__word_t *word)
{
    uint32_t open = 0;

    return atomic_compare_exchange_strong_explicit(word, &open, INSIDE, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Begin to abort NCCL, if this was not done before. */
static tutti__nccl_abort_t *begin_end(tutti__nccl_node_t *self, int *ret_begun)
{
    tutti__nccl_t *nccl = self->nccl;

    *ret_begun = nccl != NULL;
    self->nccl = NULL;
    return nccl != NULL ? tutti__nccl_abort_begin(self->ops, self->device, nccl) : NULL;
}

static void await_end(tutti__nccl_node_t *self, tutti__nccl_abort_t *job)
{
    tutti__nccl_abort_await(job);
    (void)self->ops->use(self->device); /* result not used: later calls return the same error */
    /* Record `done` behind all work in the stream. No step uses these events any more. */
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES; i++)
        (void)self->ops->record(self->lane[i].done, self->stream);
}

static void end_work(tutti__nccl_node_t *self)
{
    int begun;
    tutti__nccl_abort_t *job = begin_end(self, &begun);

    if (begun)
        await_end(self, job);
}

static tutti_status_t leave_node(tutti__nccl_node_t *self, tutti_status_t status)
{
    int failed = status != TUTTI_OK && status != TUTTI__AGAIN;
    uint32_t inside = INSIDE;

    if (failed) {
        self->status = status;
        strncpy(self->words, tutti_last_error(), sizeof(self->words) - 1);
    }
    if (!atomic_compare_exchange_strong_explicit(&self->gate, &inside, failed ? FAILED : 0,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        end_work(self);
        tutti__store_release(&self->gate, ABORTED | ENDED);
    }
    return status;
}

int tutti__nccl_enter(tutti__nccl_node_t *self)
{
    if (!take(&self->gate))
        return 0;
    if (take(device_word(self)))
        return 1;
    leave_node(self, TUTTI__AGAIN);
    return 0;
}

tutti_status_t tutti__nccl_leave(tutti__nccl_node_t *self, tutti_status_t status)
{
    tutti__store_release(device_word(self), 0);
    return leave_node(self, status);
}

tutti_status_t tutti__nccl_alive(tutti__nccl_node_t *self)
{
    uint32_t gate = tutti__load_acquire(&self->gate);

    if (!(gate & (ABORTED | FAILED)))
        return TUTTI_OK;
    if (!(gate & INSIDE) && self->status != TUTTI_OK)
        return tutti__fail(self->status, "%s", self->words);
    return tutti__fail(TUTTI_ERR_TRANSPORT, "NCCL's work was aborted");
}

int tutti__nccl_node_begin_abort(tutti__node_t *node)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;
    uint32_t before = atomic_fetch_or_explicit(&self->gate, ABORTED, memory_order_acq_rel);

    /* A thread that is inside begins the abort when it leaves. It leaves soon, because no step
       waits for the device. */
    if (before & (ABORTED | INSIDE))
        return 0;
    self->abort = begin_end(self, &self->abort_begun);
    return 1;
}

void tutti__nccl_node_end_abort(tutti__node_t *node)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;

    if (self->abort_begun)
        await_end(self, self->abort);
    self->abort = NULL;
    /* This release pairs with the acquire in tutti__nccl_node_queued. */
    atomic_fetch_or_explicit(&self->gate, ENDED, memory_order_release);
}

void tutti__nccl_node_abort(tutti__node_t *node)
{
    if (tutti__nccl_node_begin_abort(node))
        tutti__nccl_node_end_abort(node);
}

tutti_status_t tutti__nccl_node_queued(const tutti__node_t *node)
{
    const tutti__nccl_node_t *self = (const tutti__nccl_node_t *)node;
    tutti_status_t status = TUTTI_OK;

    if ((tutti__load_acquire(&self->gate) & (ABORTED | ENDED)) == ABORTED)
        return TUTTI__AGAIN;
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES && status == TUTTI_OK; i++)
        status = self->ops->query(self->lane[i].done);
    return status;
}

/* Has this node unfinished work on the device? Work of calls that have returned counts as well. */
static int is_busy(const tutti__nccl_node_t *self)
{
    for (uint32_t i = 0; i < TUTTI__DEVICE_LANES; i++) {
        const tutti__nccl_lane_t *lane = &self->lane[i];

        if (lane->phase == NCCL_LAUNCH || lane->phase == NCCL_FLIGHT)
            return 1;
        if (lane->done != NULL && self->ops->query(lane->done) == TUTTI__AGAIN)
            return 1;
    }
    return 0;
}

void tutti__nccl_end(tutti__nccl_node_t *self)
{
    if (tutti__load_acquire(&self->gate) != 0 || is_busy(self)) {
        end_work(self);
    } else if (self->nccl != NULL && tutti__nccl_is_stuck(self->device)) {
        /* Closing may wait for the stuck device, so abort instead. */
        tutti__nccl_abort_await(tutti__nccl_abort_begin(self->ops, self->device, self->nccl));
    } else if (self->nccl != NULL) {
        tutti__nccl_node_unregister(&self->node);
        self->ops->nccl_close(self->nccl);
    }
    self->nccl = NULL;
}
