/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels over shared memory between ranks of one machine.
 *
 * A channel is a ring of slots in the receiver's arena, the memory that the rank shares with its
 * machine. The sender copies a message into a free slot. After that the caller may overwrite the
 * sent buffer. The receiver reduces or copies directly from the slot. There are two counters on
 * separate cache lines. Each counter is written by one side:
 *
 *      head (sender)    messages written       full:  head - tail == credits
 *      tail (receiver)  messages released      empty: head == tail
 *
 * When the receiver first opens its end, it makes the ring. It writes the ring's page number into
 * its channel table, at (lane, stream, sender). Before that a sender reads 0 and tries again.
 *
 * A message carries its length and its call's signature, so ranks with different calls detect the
 * mismatch at the first message.
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

/*
 * One end. The peer writes the cache line of its counter. So this rank reads the peer's counter
 * again only if the last value, `seen`, does not allow this rank to continue. The structure also
 * has copies of the transport's fields that are needed for each message.
 */
struct tutti__chan {
    ring_t *ring;   /* NULL: the receiver has not made it yet */
    uint32_t count; /* own counter: a sender's head, a receiver's tail */
    uint32_t seen;  /* the peer's counter, as last read */
    uint32_t credits;
    size_t stride;                /* distance of slots */
    const tutti__word_t *waiters; /* lane 0: number of threads that sleep on words which this rank
                                     writes; other lanes: NULL */
    shm_xport_t *xport;
    tutti__chan_key_t key;
    uint32_t peer; /* index among the machine's ranks */
};

struct shm_xport {
    tutti__xport_t xport;
    const tutti__machine_t *machine;
    size_t slot_bytes; /* longest message */
    uint32_t credits;
    tutti__word_t **table; /* [machine ranks] each rank's channel table */
    tutti__chan_t **ends;  /* [lanes][streams][sends, receives][machine ranks], NULL: not open. No
                              lock: one thread at a time uses a lane */
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

/* The slot at this end's own counter. */
static slot_t *slot_of(const tutti__chan_t *chan)
{
    return (slot_t *)(chan->ring->slots + (chan->count & (chan->credits - 1)) * chan->stride);
}

static size_t ends_count(const shm_xport_t *x)
{
    return (size_t)TUTTI__LANES * TUTTI__SCHED_STREAMS * 2 * x->machine->nranks;
}

static tutti__chan_t **end_entry(const shm_xport_t *x, const tutti__chan_key_t *key, int is_recv)
{
    size_t line = (key->lane * TUTTI__SCHED_STREAMS + key->stream) * 2 + (is_recv != 0);

    return &x->ends[line * x->machine->nranks + (uint32_t)x->machine->index_of[key->peer]];
}

/* The receiver's table entry for a channel. */
static tutti__word_t *table_entry(const shm_xport_t *x, const tutti__chan_key_t *key,
                                  uint32_t sender, uint32_t receiver)
{
    return &x->table[receiver]
                    [(key->lane * TUTTI__SCHED_STREAMS + key->stream) * x->machine->nranks +
                     sender];
}

/* Write a word for which the peer of this channel may wait. */
static void publish(const tutti__chan_t *chan, tutti__word_t *word, uint32_t value)
{
    tutti__store_release(word, value);
    if (TUTTI__LIKELY(chan->waiters != NULL)) {
        if (TUTTI__UNLIKELY(tutti__load_relaxed(chan->waiters) != 0))
            tutti__machine_wake(chan->xport->machine, word);
        return;
    }
    /* This fence pairs with the peer's fence between the store of `sleeping` and the last poll
       before the peer's engine sleeps. */
    tutti__fence();
    tutti__machine_ring(chan->xport->machine, chan->peer);
}

static tutti_status_t wait_for(const tutti__chan_t *chan, tutti__word_t *word, uint32_t value,
                               tutti__hint_t *hint)
{
    hint->word = word;
    hint->value = value;
    hint->peer = (int32_t)chan->key.peer;
    return TUTTI__AGAIN;
}

/* ---- opening ends ---- */

static tutti_status_t open_end(tutti__xport_t *xport, const tutti__chan_key_t *key, int is_recv,
                               tutti__chan_t **ret_chan)
{
    shm_xport_t *x = self(xport);
    tutti__chan_t **entry = end_entry(x, key, is_recv), *chan;

    if (*entry != NULL) {
        *ret_chan = *entry;
        return TUTTI_OK;
    }
    chan = calloc(1, sizeof(*chan));
    if (chan == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "channel with rank %u", key->peer);
    chan->credits = x->credits;
    chan->stride = slot_stride(x);
    if (key->lane == 0)
        chan->waiters = &x->machine->page[x->machine->me]->waiters;
    chan->xport = x;
    chan->key = *key;
    chan->peer = (uint32_t)x->machine->index_of[key->peer];
    *entry = chan;
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

/* Find the ring. AGAIN: the receiver has not made it yet. */
static tutti_status_t find_ring(tutti__chan_t *chan, tutti__hint_t *hint)
{
    const shm_xport_t *x = chan->xport;
    tutti__word_t *entry = table_entry(x, &chan->key, x->machine->me, chan->peer);
    uint32_t page = tutti__load_acquire(entry);

    if (page == 0)
        return wait_for(chan, entry, 0, hint);
    chan->ring = (ring_t *)(x->machine->base[chan->peer] + (size_t)page * PAGE_BYTES);
    return TUTTI_OK;
}

/* ---- messages ---- */

static tutti_status_t chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    slot_t *slot;

    if (TUTTI__UNLIKELY(chan->ring == NULL) && find_ring(chan, hint) != TUTTI_OK)
        return TUTTI__AGAIN;
    if (chan->count - chan->seen == chan->credits) {
        /* Pairs with the release in chan_release: the receiver has finished reading the slot. */
        chan->seen = tutti__load_acquire(&chan->ring->tail);
        if (chan->count - chan->seen == chan->credits)
            return wait_for(chan, &chan->ring->tail, chan->seen, hint);
    }
    slot = slot_of(chan);
    slot->bytes = bytes;
    slot->signature = signature;
    memcpy(slot->data, data, bytes);
    publish(chan, &chan->ring->head, ++chan->count);
    *ret_pending = 0;
    return TUTTI_OK;
}

static tutti_status_t chan_flush(tutti__chan_t *chan, tutti__hint_t *hint)
{
    (void)chan;
    (void)hint;
    return TUTTI_OK;
}

static tutti_status_t mismatch(const tutti__chan_t *chan, const slot_t *slot, size_t bytes)
{
    if (slot->bytes != bytes && bytes != TUTTI__ANY_BYTES)
        return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u sent %llu bytes where %zu were expected",
                           chan->key.peer, (unsigned long long)slot->bytes, bytes);
    return tutti__fail(TUTTI_ERR_MISMATCH,
                       "rank %u has another collective, type, operation or count", chan->key.peer);
}

static tutti_status_t chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                const void **ret_data, tutti__hint_t *hint)
{
    const slot_t *slot;

    if (chan->seen == chan->count) {
        /* Pairs with the release in chan_send. */
        chan->seen = tutti__load_acquire(&chan->ring->head);
        if (chan->seen == chan->count)
            return wait_for(chan, &chan->ring->head, chan->seen, hint);
    }
    slot = slot_of(chan);
    if (TUTTI__UNLIKELY((slot->bytes != bytes && bytes != TUTTI__ANY_BYTES) ||
                        slot->signature != signature))
        return mismatch(chan, slot, bytes);
    *ret_data = slot->data;
    return TUTTI_OK;
}

static size_t chan_length(const tutti__chan_t *chan)
{
    return slot_of(chan)->bytes;
}

static void chan_release(tutti__chan_t *chan)
{
    publish(chan, &chan->ring->tail, ++chan->count);
}

/* There is nothing to cancel, because all messages are in slots. */
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
    for (size_t i = 0; x->ends != NULL && i < ends_count(x); i++)
        free(x->ends[i]);
    /* Do not free the rings and the table in the arena: a slower peer may still read them. */
    free(x->ends);
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
    .expect = NULL,
    .view = chan_view,
    .length = chan_length,
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
    x->xport.most_bytes = slot_bytes;
    x->machine = machine;
    x->slot_bytes = slot_bytes;
    /* A power of two, so that the slots stay in order when the counters wrap around. */
    for (x->credits = 1; x->credits < credits; x->credits *= 2) {
    }
    x->table = calloc(machine->nranks, sizeof(*x->table));
    x->ends = calloc(ends_count(x), sizeof(*x->ends));
    if (x->table == NULL || x->ends == NULL) {
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
    const tutti__topo_t *topo = tutti__boot_topo(boot);
    uint32_t size = topo->size;
    uint64_t mine = 0, *all = calloc(size, sizeof(*all)), *offset;
    tutti__xport_t *xport = NULL;
    void *table = NULL;
    tutti_status_t status;

    if (topo->nhosts > 1)
        slot_bytes = tutti__xport_long(slot_bytes, size, TUTTI__XPORT_LONGER);
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
