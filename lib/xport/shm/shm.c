/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels over shared memory between ranks of one machine.
 *
 * A channel is a ring of slots in the receiver's arena: the sender copies a message into a free
 * slot, which captures it, and the receiver reduces or copies straight out of the slot. Two
 * counters, each written by one side, on lines of their own:
 *
 *      head (sender)  messages written         full:  head - tail == credits
 *      tail (receiver) messages given back     empty: head == tail
 *
 * Rings are made when the receiver first opens its end. It then writes the ring's page number into
 * its table, at (lane, stream, sender); a sender that comes earlier finds 0 and tries again.
 *
 * Who may be wrong: a message carries its length and its call's signature, so two ranks in
 * different calls find out at the first message.
 */
#include "xport/shm/shm.h"

#include "base/status.h"
#include "sched/sched.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t head;
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t tail;
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) char slots[];
} ring_t;

typedef struct {
    uint64_t bytes;
    uint32_t signature, unused;
    TUTTI__ALIGNED(TUTTI__LINE_BYTES) char data[];
} slot_t;

typedef struct shm_xport shm_xport_t;

struct tutti__chan {
    shm_xport_t *xport;
    tutti__chan_key_t key;
    uint32_t peer; /* index among the machine's ranks */
    int is_recv;
    ring_t *ring;   /* NULL: the receiver has not made it yet */
    uint32_t count; /* my counter: head of a sender, tail of a receiver */
    tutti__chan_t *next;
};

struct shm_xport {
    tutti__xport_t xport;
    const tutti__machine_t *machine;
    size_t slot_bytes; /* of a message */
    uint32_t credits;
    tutti__word_t **table;              /* [machine ranks] each rank's channel table */
    tutti__chan_t *chans[TUTTI__LANES]; /* one list per lane, since lanes have different threads */
};

static shm_xport_t *self(tutti__xport_t *xport)
{
    return (shm_xport_t *)xport;
}

size_t tutti__xport_shm_table_bytes(uint32_t nranks)
{
    return sizeof(tutti__word_t) * TUTTI__LANES * TUTTI__SCHED_STREAMS * nranks;
}

static size_t slot_stride(const shm_xport_t *x)
{
    return TUTTI__ROUND_UP(sizeof(slot_t) + x->slot_bytes, TUTTI__FALSE_SHARING_BYTES);
}

static slot_t *slot_at(const tutti__chan_t *chan, uint32_t count)
{
    return (slot_t *)(chan->ring->slots +
                      (count % chan->xport->credits) * slot_stride(chan->xport));
}

/* The receiver's table entry for a channel. */
static tutti__word_t *table_entry(const shm_xport_t *x, const tutti__chan_key_t *key,
                                  uint32_t sender, uint32_t receiver)
{
    return &x->table[receiver]
                    [(key->lane * TUTTI__SCHED_STREAMS + key->stream) * x->machine->nranks +
                     sender];
}

/* Write a word that the peer of this channel may wait for. */
static void publish(const tutti__chan_t *chan, tutti__word_t *word, uint32_t value)
{
    tutti__store_release(word, value);
    if (chan->key.lane == 0) {
        tutti__machine_written(chan->xport->machine, word);
        return;
    }
    /* Pairs with the fence between `sleeping = 1` and the engine's last look. */
    tutti__fence();
    tutti__machine_ring(chan->xport->machine, chan->peer);
}

static tutti_status_t wait_for(const tutti__chan_t *chan, tutti__word_t *word, uint32_t value,
                               tutti__stuck_t *stuck)
{
    stuck->word = word;
    stuck->value = value;
    stuck->peer = (int32_t)chan->key.peer;
    return TUTTI__AGAIN;
}

/* ---- opening ends ---- */

static tutti_status_t open_end(tutti__xport_t *xport, const tutti__chan_key_t *key, int is_recv,
                               tutti__chan_t **ret_chan)
{
    shm_xport_t *x = self(xport);
    tutti__chan_t *chan;

    for (chan = x->chans[key->lane]; chan != NULL; chan = chan->next) {
        if (chan->key.peer == key->peer && chan->key.stream == key->stream &&
            chan->is_recv == is_recv) {
            *ret_chan = chan;
            return TUTTI_OK;
        }
    }
    chan = calloc(1, sizeof(*chan));
    if (chan == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "channel with rank %u", key->peer);
    chan->xport = x;
    chan->key = *key;
    chan->peer = (uint32_t)x->machine->index_of[key->peer];
    chan->is_recv = is_recv;
    chan->next = x->chans[key->lane];
    x->chans[key->lane] = chan;
    *ret_chan = chan;
    return TUTTI_OK;
}

static tutti_status_t open_send(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(xport, key, 0, ret_chan);
}

static tutti_status_t open_recv(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    shm_xport_t *x = self(xport);
    tutti__chan_t *chan;
    uint64_t offset = 0;
    void *ring;
    tutti_status_t status = open_end(xport, key, 1, &chan);

    if (status != TUTTI_OK)
        return status;
    if (chan->ring == NULL) {
        status = tutti__arena_alloc(x->machine->arena, sizeof(ring_t) + x->credits * slot_stride(x),
                                    &ring);
        if (status != TUTTI_OK)
            return status;
        chan->ring = ring;
        tutti__arena_offset(x->machine->arena, ring, 1, &offset);
        publish(chan, table_entry(x, key, chan->peer, x->machine->me),
                (uint32_t)(offset / PAGE_BYTES));
    }
    *ret_chan = chan;
    return TUTTI_OK;
}

/* Has the receiver made the ring? */
static tutti_status_t find_ring(tutti__chan_t *chan, tutti__stuck_t *stuck)
{
    const shm_xport_t *x = chan->xport;
    tutti__word_t *entry = table_entry(x, &chan->key, x->machine->me, chan->peer);
    uint32_t page = tutti__load_acquire(entry);

    if (page == 0)
        return wait_for(chan, entry, 0, stuck);
    chan->ring = (ring_t *)(x->machine->base[chan->peer] + (size_t)page * PAGE_BYTES);
    return TUTTI_OK;
}

/* ---- messages ---- */

static tutti_status_t chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                uint32_t signature, int *ret_pending, tutti__stuck_t *stuck)
{
    uint32_t tail;
    slot_t *slot;

    if (chan->ring == NULL && find_ring(chan, stuck) != TUTTI_OK)
        return TUTTI__AGAIN;
    tail = tutti__load_acquire(&chan->ring->tail);
    if (chan->count - tail == chan->xport->credits)
        return wait_for(chan, &chan->ring->tail, tail, stuck);
    slot = slot_at(chan, chan->count);
    slot->bytes = bytes;
    slot->signature = signature;
    memcpy(slot->data, data, bytes);
    publish(chan, &chan->ring->head, ++chan->count);
    *ret_pending = 0;
    return TUTTI_OK;
}

static tutti_status_t chan_flush(tutti__chan_t *chan, tutti__stuck_t *stuck)
{
    (void)chan;
    (void)stuck;
    return TUTTI_OK;
}

static tutti_status_t chan_expect(tutti__chan_t *chan, size_t messages)
{
    (void)chan;
    (void)messages;
    return TUTTI_OK;
}

static tutti_status_t chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                const void **ret_data, tutti__stuck_t *stuck)
{
    uint32_t head = tutti__load_acquire(&chan->ring->head);
    slot_t *slot;

    if (head == chan->count)
        return wait_for(chan, &chan->ring->head, head, stuck);
    slot = slot_at(chan, chan->count);
    if (slot->bytes != bytes)
        return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u sent %llu bytes where %zu were expected",
                           chan->key.peer, (unsigned long long)slot->bytes, bytes);
    if (slot->signature != signature)
        return tutti__fail(TUTTI_ERR_MISMATCH,
                           "rank %u came with another collective, type, "
                           "operation or count",
                           chan->key.peer);
    *ret_data = slot->data;
    return TUTTI_OK;
}

static void chan_release(tutti__chan_t *chan)
{
    publish(chan, &chan->ring->tail, ++chan->count);
}

/* Nothing is in flight outside the slots. */
static void cancel(tutti__xport_t *xport, uint32_t lane)
{
    (void)xport;
    (void)lane;
}

static int may_progress(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    (void)is_engine;
    return 1;
}

/* ---- opening and closing the transport ---- */

static void shm_close(tutti__xport_t *xport)
{
    shm_xport_t *x = self(xport);

    if (x == NULL)
        return;
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++) {
        while (x->chans[lane] != NULL) {
            tutti__chan_t *chan = x->chans[lane];

            x->chans[lane] = chan->next;
            free(chan);
        }
    }
    /* Rings and table stay in the arena: a slower peer may still look. */
    free(x->table);
    free(x);
}

static const tutti__xport_ops_t shm_ops = {
    .name = "shm",
    .purpose = "rings of slots in shared memory, between ranks of one machine",
    .close = shm_close,
    .open_send = open_send,
    .open_recv = open_recv,
    .send = chan_send,
    .flush = chan_flush,
    .expect = chan_expect,
    .view = chan_view,
    .release = chan_release,
    .progress = NULL,
    .may_progress = may_progress,
    .cancel = cancel,
};

tutti_status_t tutti__xport_shm_attach(const tutti__machine_t *machine, const uint64_t *offset,
                                       size_t slot_bytes, uint32_t credits,
                                       tutti__xport_t **ret_xport)
{
    shm_xport_t *x = calloc(1, sizeof(*x));

    if (x == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "xport/shm");
    x->xport.ops = &shm_ops;
    x->machine = machine;
    x->slot_bytes = slot_bytes;
    /* A power of two, so that slots go on in turn when the counters wrap around. */
    for (x->credits = 1; x->credits < credits; x->credits *= 2) {
    }
    x->table = calloc(machine->nranks, sizeof(*x->table));
    if (x->table == NULL) {
        shm_close(&x->xport);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "xport/shm for %u ranks", machine->nranks);
    }
    for (uint32_t i = 0; i < machine->nranks; i++)
        x->table[i] = (tutti__word_t *)(machine->base[i] + offset[i]);
    *ret_xport = &x->xport;
    return TUTTI_OK;
}

tutti_status_t tutti__xport_shm_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                                     size_t slot_bytes, uint32_t credits,
                                     tutti__xport_t **ret_xport)
{
    uint32_t size = tutti__boot_topo(boot)->size;
    uint64_t mine = 0, *all = calloc(size, sizeof(*all)), *offset;
    tutti__xport_t *xport = NULL;
    void *table = NULL;
    tutti_status_t status;

    offset = calloc(machine->nranks, sizeof(*offset));
    if (all == NULL || offset == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "table for %u ranks", size);
    else
        status = tutti__arena_alloc(machine->arena, tutti__xport_shm_table_bytes(machine->nranks),
                                    &table);
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK)
        goto free_table;
    tutti__arena_offset(machine->arena, table, 1, &mine);
    status = tutti__boot_allgather(boot, &mine, sizeof(mine), all);
    if (status != TUTTI_OK)
        goto free_table;
    for (uint32_t i = 0; i < machine->nranks; i++)
        offset[i] = all[machine->rank[i]];
    status = tutti__xport_shm_attach(machine, offset, slot_bytes, credits, &xport);
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        *ret_xport = xport;
    else if (xport != NULL)
        shm_close(xport);

free_table:
    if (status != TUTTI_OK)
        tutti__arena_free(machine->arena, table);
    free(offset);
    free(all);
    return status;
}
