/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages between neighbours. See links.h. */
#include "watch/watch_inside.h"

#include "base/time.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t kind, bytes;
} frame_t;

/* ---- opening ---- */

/* If a parent and its child in the tree are on one host, the child makes both rings in its arena:
   the ring up, then the ring down. */
static tutti_status_t make_pipes(tutti__watcher_t *w, uint64_t *ret_offset)
{
    void *pipes;
    tutti_status_t status;

    *ret_offset = 0;
    if (w->parent < 0 || !tutti__side_is_local(w->boot, (uint32_t)w->parent))
        return TUTTI_OK;
    status = tutti__arena_alloc(w->machine->arena, 2 * sizeof(tutti__pipe_t), &pipes);
    if (status == TUTTI_OK)
        tutti__arena_offset(w->machine->arena, pipes, 1, ret_offset);
    return status;
}

static void find_pipes(tutti__watcher_t *w, tutti__link_t *link, int is_parent,
                       const uint64_t *offsets)
{
    uint32_t child = is_parent ? w->rank : link->rank;
    uint32_t child_index = (uint32_t)w->machine->index_of[child];
    tutti__pipe_t *up = (tutti__pipe_t *)(w->machine->base[child_index] + offsets[child]);

    link->index = (uint32_t)w->machine->index_of[link->rank];
    link->out = is_parent ? up : up + 1;
    link->in = is_parent ? up + 1 : up;
}

tutti_status_t tutti__links_open(tutti__watcher_t *w)
{
    uint64_t mine = 0, *offsets = calloc(w->size, sizeof(*offsets));
    tutti_status_t status = TUTTI_OK;

    w->nlinks = tutti__side_links(w->boot);
    w->parent = tutti__side_parent(w->boot);
    w->link = calloc(w->nlinks + 1, sizeof(*w->link));
    if (w->link == NULL || offsets == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "links to %u ranks", w->nlinks);
    if (status == TUTTI_OK)
        status = make_pipes(w, &mine);
    status = tutti__boot_agree(w->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(w->boot, &mine, sizeof(mine), offsets);
    for (uint32_t i = 0; status == TUTTI_OK && i < w->nlinks; i++) {
        tutti__link_t *link = &w->link[i];

        link->rank = tutti__side_rank(w->boot, i);
        link->local = tutti__side_is_local(w->boot, i);
        if (link->local)
            find_pipes(w, link, (int)i == w->parent, offsets);
        else
            w->remote = 1;
    }
    free(offsets);
    return status;
}

void tutti__links_close(tutti__watcher_t *w)
{
    for (uint32_t i = 0; w->link != NULL && i < w->nlinks; i++)
        free(w->link[i].backlog);
    free(w->link);
    w->link = NULL;
    w->nlinks = 0;
}

uint32_t tutti__links_count(const tutti__watch_t *watch)
{
    return tutti__watcher_read(watch)->nlinks;
}

int tutti__links_parent(const tutti__watch_t *watch)
{
    return tutti__watcher_read(watch)->parent;
}

uint32_t tutti__links_rank(const tutti__watch_t *watch, uint32_t link, int *ret_local)
{
    const tutti__link_t *its = &tutti__watcher_read(watch)->link[link];

    *ret_local = its->local;
    return its->rank;
}

int tutti__links_remote(const tutti__watch_t *watch)
{
    return tutti__watcher_read(watch)->remote;
}

/* ---- writing ---- */

static void copy_to_ring(tutti__pipe_t *pipe, uint32_t at, const void *data, size_t bytes)
{
    size_t first = TUTTI__PIPE_BYTES - at % TUTTI__PIPE_BYTES;

    first = TUTTI__MIN(first, bytes);
    memcpy(pipe->bytes + at % TUTTI__PIPE_BYTES, data, first);
    memcpy(pipe->bytes, (const char *)data + first, bytes - first);
}

static int has_space(const tutti__link_t *link, size_t bytes)
{
    return TUTTI__PIPE_BYTES - (link->head - tutti__load_acquire(&link->out->tail)) >= bytes;
}

static int add_backlog(tutti__link_t *link, const void *data, size_t bytes)
{
    if (link->backlog_sent > 0 && link->backlog_capacity - link->backlog_bytes < bytes) {
        link->backlog_bytes -= link->backlog_sent;
        memmove(link->backlog, link->backlog + link->backlog_sent, link->backlog_bytes);
        link->backlog_sent = 0;
    }
    if (link->backlog_capacity - link->backlog_bytes < bytes) {
        size_t capacity = 2 * (link->backlog_capacity + bytes);
        char *larger = realloc(link->backlog, capacity);

        if (larger == NULL)
            return 0;
        link->backlog = larger;
        link->backlog_capacity = capacity;
    }
    memcpy(link->backlog + link->backlog_bytes, data, bytes);
    link->backlog_bytes += bytes;
    return 1;
}

/* Copy whole frames from the backlog to the ring, while there is space. */
static void send_backlog(tutti__link_t *link)
{
    while (link->backlog_sent < link->backlog_bytes) {
        frame_t frame;
        size_t bytes;

        memcpy(&frame, link->backlog + link->backlog_sent, sizeof(frame));
        bytes = sizeof(frame) + TUTTI__ROUND_UP(frame.bytes, 8);
        assert(link->backlog_sent + bytes <= link->backlog_bytes);
        if (!has_space(link, bytes))
            return;
        copy_to_ring(link->out, link->head, link->backlog + link->backlog_sent, bytes);
        link->head += (uint32_t)bytes;
        link->backlog_sent += bytes;
    }
    link->backlog_sent = link->backlog_bytes = 0;
}

/* Do messages of this kind use the side channel? If there is a backlog, a goodbye follows the
   backlog through the ring, so that the order is kept. Even an idle peer then reads the ring,
   because this rank rings the peer's doorbell for frames of a backlog. This concerns only goodbyes
   that this rank forwards. This rank's own goodbye uses the side channel, because
   tutti__watch_leave drops the backlog. */
static int by_side(const tutti__link_t *link, uint32_t kind)
{
    return !link->local ||
           (kind >= TUTTI__LINK_KINDS && (kind != TUTTI__WATCH_BYE || link->backlog_bytes == 0));
}

static void fail(tutti__watcher_t *w, tutti_status_t status, const char *text)
{
    tutti__watch_end_from(w, -1, status, text);
}

void tutti__links_send(tutti__watch_t *watch, uint32_t index, uint32_t kind, const void *body,
                       size_t body_bytes, int urgent)
{
    tutti__watcher_t *w = tutti__watcher(watch);
    char message[sizeof(frame_t) + TUTTI__LINK_BYTES];
    tutti__link_t *link = &w->link[index];
    frame_t frame = { kind, (uint32_t)body_bytes };
    size_t bytes = sizeof(frame) + TUTTI__ROUND_UP(body_bytes, 8);

    assert(index < w->nlinks && body_bytes <= TUTTI__LINK_BYTES);
    if (link->lost)
        return;
    link->urgent |= urgent;
    if (by_side(link, kind)) {
        tutti_status_t status = tutti__side_send(w->boot, index, kind, body, body_bytes);

        if (status != TUTTI_OK)
            fail(w, status, tutti_last_error());
        return;
    }
    memset(message + bytes - 8, 0, 8);
    memcpy(message, &frame, sizeof(frame));
    memcpy(message + sizeof(frame), body, body_bytes);
    if (link->backlog_bytes == 0 && has_space(link, bytes)) {
        copy_to_ring(link->out, link->head, message, bytes);
        link->head += (uint32_t)bytes;
        return;
    }
    /* Ring the doorbell later, because a peer without pending requests does not read the ring. */
    link->urgent = 1;
    if (!add_backlog(link, message, bytes))
        fail(w, TUTTI_ERR_NO_MEMORY, "no memory for control messages");
}

/* Ring a peer's doorbell if the peer sleeps. A peer without pending requests does not set
   `sleeping`, so after an urgent message always ring the doorbell. */
static void ring(const tutti__watcher_t *w, tutti__link_t *link)
{
    if (link->urgent)
        tutti__machine_ring_always(w->machine, link->index);
    else
        tutti__machine_ring(w->machine, link->index);
    link->urgent = 0;
}

void tutti__links_flush(tutti__watch_t *watch)
{
    tutti__watcher_t *w = tutti__watcher(watch);

    for (uint32_t i = 0; i < w->nlinks; i++) {
        tutti__link_t *link = &w->link[i];

        if (!link->local)
            continue;
        /* As in tutti__links_send: a peer without pending requests must also read these frames. */
        if (link->backlog_bytes > 0) {
            uint32_t before = link->head;

            send_backlog(link);
            link->urgent |= link->head != before;
        }
        if (link->head == atomic_load_explicit(&link->out->head, memory_order_relaxed)) {
            if (link->urgent)
                ring(w, link);
            continue;
        }
        tutti__store_release(&link->out->head, link->head);
        /* This fence pairs with the peer's fence between the store of `sleeping` and the last poll
           before the peer's engine sleeps. */
        tutti__fence();
        ring(w, link);
    }
}

static size_t backlog(const tutti__watcher_t *w)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < w->nlinks; i++)
        bytes += w->link[i].lost ? 0 : w->link[i].backlog_bytes;
    return bytes;
}

void tutti__links_flush_all(tutti__watch_t *watch, uint64_t limit_ns)
{
    tutti__links_flush(watch);
    while (backlog(tutti__watcher(watch)) > 0 && tutti__now_ns() < limit_ns) {
        sched_yield();
        tutti__links_flush(watch);
    }
}

/* ---- reading ---- */

void tutti__links_listen(tutti__watch_t *watch, tutti__receiver_t receiver)
{
    tutti__watcher(watch)->receiver = receiver;
}

static void copy_from_ring(const tutti__pipe_t *pipe, uint32_t at, void *data, size_t bytes)
{
    size_t first = TUTTI__PIPE_BYTES - at % TUTTI__PIPE_BYTES;

    first = TUTTI__MIN(first, bytes);
    memcpy(data, pipe->bytes + at % TUTTI__PIPE_BYTES, first);
    memcpy((char *)data + first, pipe->bytes, bytes - first);
}

static void deliver(tutti__watcher_t *w, uint32_t link, uint32_t kind, const void *body,
                    size_t bytes)
{
    assert(link < w->nlinks && w->receiver.message != NULL);
    if (kind < TUTTI__LINK_KINDS)
        w->receiver.message(w->receiver.owner, link, kind, body, bytes);
    else
        tutti__watch_receive(w, link, kind, body, bytes);
}

int tutti__links_read(tutti__watcher_t *w, uint32_t index)
{
    tutti__link_t *link = &w->link[index];
    uint32_t head = tutti__load_acquire(&link->in->head);
    uint32_t tail = atomic_load_explicit(&link->in->tail, memory_order_relaxed);
    TUTTI__ALIGNED(8) char body[TUTTI__LINK_BYTES];
    /* If the writer has no space for a message, the ring is almost full. This call and the next
       call together read all bytes of the ring, so one of them reads more than a quarter. */
    int was_full = head - tail > TUTTI__PIPE_BYTES / 4;

    if (head == tail)
        return 0;
    while ((int32_t)(head - tail) > 0) {
        frame_t frame;

        copy_from_ring(link->in, tail, &frame, sizeof(frame));
        if (frame.bytes > sizeof(body)) {
            fail(w, TUTTI_ERR_INTERNAL, "a control message is damaged");
            break;
        }
        copy_from_ring(link->in, tail + (uint32_t)sizeof(frame), body, frame.bytes);
        tail += (uint32_t)(sizeof(frame) + TUTTI__ROUND_UP(frame.bytes, 8));
        tutti__store_release(&link->in->tail, tail);
        deliver(w, index, frame.kind, body, frame.bytes);
    }
    /* The writer may have a backlog. Wake the writer: without pending requests it does not poll. */
    if (was_full) {
        link->urgent = 1;
        ring(w, link);
    }
    return 1;
}

static void side_message(void *arg, uint32_t link, uint32_t kind, const void *body, size_t bytes)
{
    tutti__watcher_t *w = arg;

    /* The neighbour has written its earlier messages to the ring: read them before the goodbye. */
    if (kind == TUTTI__WATCH_BYE && w->link[link].local)
        tutti__links_read(w, link);
    deliver(w, link, kind, body, bytes);
}

/* A link is lost. First read the messages that the neighbour has written to the ring. */
static void side_lost(void *arg, uint32_t link)
{
    tutti__watcher_t *w = arg;

    if (w->link[link].local)
        tutti__links_read(w, link);
    w->link[link].lost = 1;
    tutti__watch_lost(w, link);
}

static void side_ended(void *arg, uint32_t rank)
{
    tutti__orphan_lost(arg, rank);
}

int tutti__links_poll(tutti__watch_t *watch, int side)
{
    tutti__watcher_t *w = tutti__watcher(watch);
    const tutti__side_events_t events = { w, side_message, side_lost, side_ended };
    int moved = 0;

    for (uint32_t i = 0; i < w->nlinks; i++)
        if (w->link[i].local)
            moved |= tutti__links_read(w, i);
    if (side && tutti__side_poll(w->boot, &events) != TUTTI_OK)
        fail(w, TUTTI_ERR_SYSTEM, tutti_last_error());
    if (TUTTI__UNLIKELY(side && w->is_orphan))
        tutti__orphan_poll(w);
    return moved;
}
