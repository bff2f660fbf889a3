/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives of the pretended NCCL. The messages of one call progress concurrently, but the
 * messages of one pair of ranks progress in order. A send ends when its receiver has all data.
 *
 * Two kinds of deadlocks are detected: a peer has continued to a collective, or two ranks both send
 * or both receive.
 */
#include "pretend/nccl_inside.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const tutti__nccl_call_t *call;
    char *view;
    size_t bytes, sent;
    int is_posted, is_done;
} message_t;

typedef struct {
    tutti__nccl_t *nccl;
    size_t n, left, moved; /* moved: number of bytes, for the rate */
    message_t *messages;
} messages_t;

/* The following functions are called with the slot's lock held. They return 1 if they made
   progress. */

static int step_send(messages_t *all, message_t *m)
{
    tutti__nccl_t *nccl = all->nccl;
    uint32_t to = m->call->root;
    chan_t *chan = &nccl->slot->chans[nccl->rank][to];

    if (!m->is_posted) {
        m->is_posted = 1;
        chan->count = m->call->count;
        chan->dtype = (int)m->call->dtype;
        chan->is_registered = register_find(nccl, m->call->src).number != 0;
        chan->taken = chan->len = 0;
        chan->sent++;
        return 1;
    }
    if (chan->received == chan->sent) {
        m->is_done = 1;
        nccl->slot->members[nccl->rank].sends[to]--;
        return 1;
    }
    if (chan->len > 0 || m->sent == m->bytes)
        return 0;
    chan->len = TUTTI__MIN(m->bytes - m->sent, (size_t)PIECE_BYTES);
    memcpy(shared_channel(nccl, nccl->rank, to), m->view + m->sent, chan->len);
    m->sent += chan->len;
    return 1;
}

/* Returns -1 if the message does not fit. */
static int step_recv(messages_t *all, message_t *m)
{
    tutti__nccl_t *nccl = all->nccl;
    uint32_t from = m->call->root;
    chan_t *chan = &nccl->slot->chans[from][nccl->rank];

    if (chan->sent == chan->received)
        return 0;
    if (chan->count != m->call->count || chan->dtype != (int)m->call->dtype ||
        chan->is_registered != (register_find(nccl, m->call->dst).number != 0))
        return -1;
    if (chan->len == 0 && chan->taken < m->bytes)
        return 0;
    if (chan->len > 0)
        memcpy(m->view + chan->taken, shared_channel(nccl, from, nccl->rank), chan->len);
    chan->taken += chan->len;
    all->moved += chan->len;
    chan->len = 0;
    if (chan->taken == m->bytes) {
        chan->received++;
        m->is_done = 1;
        nccl->slot->members[nccl->rank].recvs[from]--;
    }
    return 1;
}

/* Is there an earlier message to or from the same rank? */
static int is_behind(const messages_t *all, const message_t *m)
{
    for (const message_t *e = all->messages; e < m; e++)
        if (!e->is_done && e->call->kind == m->call->kind && e->call->root == m->call->root)
            return 1;
    return 0;
}

/* The reason why the peer will never take part, or NULL. */
static const char *never(const messages_t *all, const message_t *m)
{
    const tutti__nccl_t *nccl = all->nccl;
    const member_t *me = &nccl->slot->members[nccl->rank];
    const member_t *peer = &nccl->slot->members[m->call->root];
    uint32_t rank = nccl->rank, other = m->call->root;

    if (rank == other)
        return (me->sends[rank] > 0) != (me->recvs[rank] > 0) ? "to or from itself only" : NULL;
    if (peer->begun > me->begun)
        return "and the peer is in a collective call";
    if (m->call->kind == TUTTI__NCCL_SEND)
        return peer->recvs[rank] == 0 && peer->sends[rank] > 0 && me->recvs[other] == 0
                   ? "and the peer sends, too"
                   : NULL;
    return peer->sends[rank] == 0 && peer->recvs[rank] > 0 && me->sends[other] == 0
               ? "and the peer receives, too"
               : NULL;
}

/* Make one round over all messages. Returns -1 for a failure, 0 for no progress. */
static int step(messages_t *all)
{
    tutti__nccl_t *nccl = all->nccl;
    slot_t *slot = nccl->slot;
    const char *why = NULL;
    message_t *m = NULL;
    size_t theirs = 0;
    int done = 0, one = 0;

    shared_lock(&slot->lock);
    for (size_t i = 0; i < all->n && one >= 0; i++) {
        m = &all->messages[i];
        if (m->is_done || is_behind(all, m))
            continue;
        one = m->call->kind == TUTTI__NCCL_SEND ? step_send(all, m) : step_recv(all, m);
        done |= one;
        all->left -= (size_t)m->is_done;
    }
    if (one < 0)
        theirs = slot->chans[m->call->root][nccl->rank].count;
    for (size_t i = 0; i < all->n && done == 0 && why == NULL; i++) {
        m = &all->messages[i];
        why = m->is_done ? NULL : never(all, m);
    }
    pthread_mutex_unlock(&slot->lock);
    if (one < 0)
        nccl_fail(
            nccl,
            "recv of %zu from rank %u, which sends %zu, or another type, or registered memory",
            m->call->count, (unsigned)m->call->root, theirs);
    else if (why != NULL)
        nccl_fail(nccl, "%s, peer %u, %s", m->call->kind == TUTTI__NCCL_SEND ? "send" : "recv",
                  (unsigned)m->call->root, why);
    if (one < 0 || why != NULL)
        return -1;
    return all->left > 0 && nccl_is_over(nccl) ? -1 : done;
}

static int begin(messages_t *all, const tutti__nccl_call_t *calls)
{
    tutti__nccl_t *nccl = all->nccl;
    member_t *me = &nccl->slot->members[nccl->rank];

    for (size_t i = 0; i < all->n; i++) {
        message_t *m = &all->messages[i];
        int sends = calls[i].kind == TUTTI__NCCL_SEND;

        m->call = &calls[i];
        m->bytes = calls[i].count * tutti_dtype_bytes(calls[i].dtype);
        if (!nccl_view(nccl, sends ? "send" : "recv", sends ? calls[i].src : calls[i].dst, m->bytes,
                       &m->view))
            return 0;
    }
    shared_lock(&nccl->slot->lock);
    for (size_t i = 0; i < all->n; i++) {
        if (calls[i].kind == TUTTI__NCCL_SEND)
            me->sends[calls[i].root]++;
        else
            me->recvs[calls[i].root]++;
    }
    pthread_mutex_unlock(&nccl->slot->lock);
    return 1;
}

int nccl_messages(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls)
{
    messages_t all = { nccl, ncalls, ncalls, 0, calloc(ncalls, sizeof(message_t)) };
    uint64_t begin_ns = tutti__now_ns();
    unsigned tries = 0;
    int done = all.messages != NULL && begin(&all, calls) ? 1 : -1;

    while (done >= 0 && all.left > 0) {
        done = step(&all);
        if (done > 0)
            tries = 0;
        else if (done == 0)
            shared_nap(&tries);
        stream_pace(begin_ns, all.moved, atomic_load(&pretend_options.nccl_rate));
    }
    free(all.messages);
    return done >= 0;
}
