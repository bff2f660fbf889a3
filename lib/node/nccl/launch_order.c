/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launch order: one order in which all lanes of all communicators call NCCL.
 * See nccl.h.
 *
 * The list `nodes` has all nodes of the process, because a launch must also wait for the earlier
 * launches of other communicators on the same device.
 */
#include "node/nccl/nccl.h"

#include "base/lock.h"

/* An entry has three fields: ticket, number, lane. The low bits of the number suffice to
   distinguish the entries in the ring. */
#define TICKET_SHIFT 16
#define NUMBER_SHIFT 8
#define BYTE 0xffu

/* Protects the list. */
static tutti__mutex_t lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_MODULE);
static tutti__nccl_node_t *nodes;

void tutti__nccl_order_join(tutti__nccl_node_t *self)
{
    tutti__mutex_lock(&lock);
    self->next_node = nodes;
    nodes = self;
    tutti__mutex_unlock(&lock);
}

void tutti__nccl_order_leave(tutti__nccl_node_t *self)
{
    tutti__nccl_node_t **at = &nodes;

    tutti__mutex_lock(&lock);
    while (*at != NULL && *at != self)
        at = &(*at)->next_node;
    if (*at != NULL)
        *at = self->next_node;
    tutti__mutex_unlock(&lock);
}

/* The entry of a node's next launch; 0: the node's leader has not written this entry yet. */
static uint64_t next_entry(tutti__nccl_node_t *node)
{
    uint64_t number = tutti__load64_acquire(&node->number);
    uint64_t entry = tutti__load64_acquire(&node->order->entry[number % TUTTI__NCCL_RING]);

    return (entry >> NUMBER_SHIFT & BYTE) == (number & BYTE) ? entry : 0;
}

/* May the lane get the next launch number? On a flat node, launch number k goes to the call with
   sequence number k (nccl.h). On other nodes the first lane that asks gets the next number. */
static int may_number(tutti__nccl_node_t *self, uint32_t lane)
{
    uint64_t sequence = self->lane[lane].sequence;

    return sequence == 0 || sequence == tutti__load64_acquire(&self->number);
}

/* On the leader: give the next number to the lane. Returns 0 if another communicator's leader holds
   the lock. */
static int give(tutti__nccl_node_t *self, uint32_t lane)
{
    tutti__nccl_order_t *tickets = self->tickets;
    uint64_t number = tutti__load64_acquire(&self->number), ticket;
    uint32_t is_free = 0;

    if (!atomic_compare_exchange_strong_explicit(&tickets->lock, &is_free, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return 0;
    ticket = tutti__load64_acquire(&tickets->last) + 1;
    tutti__store64_release(&tickets->last, ticket);
    tutti__store64_release(&self->order->entry[number % TUTTI__NCCL_RING],
                           ticket << TICKET_SHIFT | (number & BYTE) << NUMBER_SHIFT | lane);
    tutti__store_release(&tickets->lock, 0);
    return 1;
}

/* Does another communicator have an earlier entry to launch on this rank? */
static int is_behind(tutti__nccl_node_t *self, uint64_t entry)
{
    int found = 0;

    tutti__mutex_lock(&lock);
    for (tutti__nccl_node_t *n = nodes; n != NULL && !found; n = n->next_node) {
        uint64_t other = n == self || n->tickets != self->tickets ? 0 : next_entry(n);

        /* A dead node launches nothing more, so do not wait for it. */
        found = other != 0 && other < entry && tutti__load_acquire(&n->gate) <= TUTTI__NCCL_INSIDE;
    }
    tutti__mutex_unlock(&lock);
    return found;
}

int tutti__nccl_is_next(tutti__nccl_node_t *self, uint32_t lane, tutti__hint_t *hint)
{
    uint64_t entry;

    if (self->launching)
        return 0;
    entry = next_entry(self);
    if (entry == 0 && self->leads && may_number(self, lane) && give(self, lane))
        entry = next_entry(self);
    if (entry == 0 && !self->leads)
        hint->peer = self->leader;
    return entry != 0 && (entry & BYTE) == lane && !is_behind(self, entry);
}
