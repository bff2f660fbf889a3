/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages between neighbours of the tree: byte rings inside a host, the side channel
 * between hosts. Both keep the order on a link.
 *
 * A ring has one writer and one reader. A frame is a head and a body, rounded up to 8 bytes; frames
 * wrap around. If a frame finds no space, it waits in a backlog, and later steps try again. So
 * sending never blocks. It fails only without memory, which ends the communicator.
 */
#include "engine/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    uint32_t kind, bytes;
} frame_t;

/* ---- opening ---- */

/* The child of each local pair makes both rings in its arena: first up, then down. */
static tutti_status_t make_pipes(tutti__engine_t *e, uint64_t *ret_offset)
{
    void *pipes;
    tutti_status_t status;

    *ret_offset = 0;
    if (e->parent < 0 || !tutti__side_is_local(e->env.boot, (uint32_t)e->parent))
        return TUTTI_OK;
    status = tutti__arena_alloc(e->env.machine->arena, 2 * sizeof(tutti__pipe_t), &pipes);
    if (status == TUTTI_OK)
        tutti__arena_offset(e->env.machine->arena, pipes, 1, ret_offset);
    return status;
}

static void find_pipes(tutti__engine_t *e, tutti__link_t *link, int is_parent,
                       const uint64_t *offsets)
{
    uint32_t child = is_parent ? e->rank : link->rank;
    uint32_t child_index = (uint32_t)e->env.machine->index_of[child];
    tutti__pipe_t *up = (tutti__pipe_t *)(e->env.machine->base[child_index] + offsets[child]);

    link->index = (uint32_t)e->env.machine->index_of[link->rank];
    link->out = is_parent ? up : up + 1;
    link->in = is_parent ? up + 1 : up;
}

tutti_status_t tutti__links_open(tutti__engine_t *e)
{
    uint64_t mine = 0, *offsets = calloc(e->size, sizeof(*offsets));
    tutti_status_t status = TUTTI_OK;

    e->nlinks = tutti__side_links(e->env.boot);
    e->parent = tutti__side_parent(e->env.boot);
    e->link = calloc(e->nlinks + 1, sizeof(*e->link));
    if (e->link == NULL || offsets == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "links to %u ranks", e->nlinks);
    if (status == TUTTI_OK)
        status = make_pipes(e, &mine);
    status = tutti__boot_agree(e->env.boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(e->env.boot, &mine, sizeof(mine), offsets);
    for (uint32_t i = 0; status == TUTTI_OK && i < e->nlinks; i++) {
        tutti__link_t *link = &e->link[i];

        link->rank = tutti__side_rank(e->env.boot, i);
        link->local = tutti__side_is_local(e->env.boot, i);
        if (link->local)
            find_pipes(e, link, (int)i == e->parent, offsets);
        else
            e->remote = 1;
    }
    free(offsets);
    return status;
}

void tutti__links_close(tutti__engine_t *e)
{
    for (uint32_t i = 0; e->link != NULL && i < e->nlinks; i++)
        free(e->link[i].backlog);
    free(e->link);
    e->link = NULL;
    e->nlinks = 0;
}

/* ---- writing ---- */

static void copy_to_ring(tutti__pipe_t *pipe, uint32_t at, const void *data, size_t bytes)
{
    size_t first = TUTTI__PIPE_BYTES - at % TUTTI__PIPE_BYTES;

    first = TUTTI__MIN(first, bytes);
    memcpy(pipe->bytes + at % TUTTI__PIPE_BYTES, data, first);
    memcpy(pipe->bytes, (const char *)data + first, bytes - first);
}

static int has_room(const tutti__link_t *link, size_t bytes)
{
    return TUTTI__PIPE_BYTES - (link->head - tutti__load_acquire(&link->out->tail)) >= bytes;
}

static int add_backlog(tutti__link_t *link, const void *data, size_t bytes)
{
    if (link->backlog_room - link->backlog_bytes < bytes) {
        size_t room = 2 * (link->backlog_room + bytes);
        char *larger = realloc(link->backlog, room);

        if (larger == NULL)
            return 0;
        link->backlog = larger;
        link->backlog_room = room;
    }
    memcpy(link->backlog + link->backlog_bytes, data, bytes);
    link->backlog_bytes += bytes;
    return 1;
}

/* Send whole frames, while there is space. */
static void send_backlog(tutti__link_t *link)
{
    while (link->backlog_sent < link->backlog_bytes) {
        frame_t frame;
        size_t bytes;

        memcpy(&frame, link->backlog + link->backlog_sent, sizeof(frame));
        bytes = sizeof(frame) + TUTTI__ROUND_UP(frame.bytes, 8);
        if (!has_room(link, bytes))
            return;
        copy_to_ring(link->out, link->head, link->backlog + link->backlog_sent, bytes);
        link->head += (uint32_t)bytes;
        link->backlog_sent += bytes;
    }
    link->backlog_sent = link->backlog_bytes = 0;
}

/* Does this kind take the side channel? See messages.h. */
static int by_side(const tutti__link_t *link, uint32_t kind)
{
    return !link->local || kind == TUTTI__MSG_DEAD || kind == TUTTI__MSG_CANCEL ||
           (kind == TUTTI__MSG_BYE && link->backlog_bytes == 0);
}

void tutti__link_send(tutti__engine_t *e, uint32_t index, uint32_t kind, const void *body,
                      size_t body_bytes)
{
    char message[sizeof(frame_t) + TUTTI__BODY_BYTES];
    tutti__link_t *link = &e->link[index];
    frame_t frame = { kind, (uint32_t)body_bytes };
    size_t bytes = sizeof(frame) + TUTTI__ROUND_UP(body_bytes, 8);

    if (link->lost)
        return;
    if (by_side(link, kind)) {
        if (tutti__side_send(e->env.boot, index, kind, body, body_bytes) != TUTTI_OK)
            tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for control messages");
        return;
    }
    memset(message + bytes - 8, 0, 8);
    memcpy(message, &frame, sizeof(frame));
    memcpy(message + sizeof(frame), body, body_bytes);
    if (link->backlog_bytes == 0 && has_room(link, bytes)) {
        copy_to_ring(link->out, link->head, message, bytes);
        link->head += (uint32_t)bytes;
        return;
    }
    /* Without a doorbell, a peer that has nothing pending would never read it. */
    link->urgent = 1;
    if (!add_backlog(link, message, bytes))
        tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for control messages");
}

/* Ring a peer's engine. A peer that has nothing pending does not set `sleeping`, so an urgent
   message rings always. */
static void ring(const tutti__engine_t *e, tutti__link_t *link)
{
    uint64_t one = 1;

    if (!link->urgent)
        tutti__machine_ring(e->env.machine, link->index);
    else if (write(e->env.machine->doorbell[link->index], &one, sizeof(one)) < 0)
        errno = 0;
    link->urgent = 0;
}

void tutti__links_flush(tutti__engine_t *e)
{
    for (uint32_t i = 0; i < e->nlinks; i++) {
        tutti__link_t *link = &e->link[i];

        if (!link->local)
            continue;
        /* As in link_send: a peer that has nothing pending must read the part that is sent now. */
        if (link->backlog_bytes > 0) {
            uint32_t before = link->head;

            send_backlog(link);
            link->urgent |= link->head != before;
        }
        if (link->head == atomic_load_explicit(&link->out->head, memory_order_relaxed)) {
            if (link->urgent)
                ring(e, link);
            continue;
        }
        tutti__store_release(&link->out->head, link->head);
        /* Pairs with the fence between `sleeping = 1` and the engine's last poll. */
        tutti__fence();
        ring(e, link);
    }
}

/* ---- reading ---- */

static void copy_from_ring(const tutti__pipe_t *pipe, uint32_t at, void *data, size_t bytes)
{
    size_t first = TUTTI__PIPE_BYTES - at % TUTTI__PIPE_BYTES;

    first = TUTTI__MIN(first, bytes);
    memcpy(data, pipe->bytes + at % TUTTI__PIPE_BYTES, first);
    memcpy((char *)data + first, pipe->bytes, bytes - first);
}

int tutti__link_read(tutti__engine_t *e, uint32_t index)
{
    tutti__link_t *link = &e->link[index];
    uint32_t head = tutti__load_acquire(&link->in->head);
    uint32_t tail = atomic_load_explicit(&link->in->tail, memory_order_relaxed);
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    /* A writer without space for a message sees at most the bytes that one read left and the next
       read finds. So one of the two reads finds more than this. */
    int was_full = head - tail > TUTTI__PIPE_BYTES / 4;

    if (head == tail)
        return 0;
    /* The handler of a goodbye reads further frames itself. */
    while ((int32_t)(head - tail) > 0) {
        frame_t frame;

        copy_from_ring(link->in, tail, &frame, sizeof(frame));
        if (frame.bytes > sizeof(body)) {
            tutti__watch_dead(e, TUTTI_ERR_INTERNAL, "a control message is damaged");
            break;
        }
        copy_from_ring(link->in, tail + (uint32_t)sizeof(frame), body, frame.bytes);
        tail += (uint32_t)(sizeof(frame) + TUTTI__ROUND_UP(frame.bytes, 8));
        tutti__store_release(&link->in->tail, tail);
        tutti__engine_message(e, (int)index, frame.kind, body, frame.bytes);
        tail = atomic_load_explicit(&link->in->tail, memory_order_relaxed);
    }
    /* The writer may have a backlog, and nothing pending, so it would not poll. */
    if (was_full) {
        link->urgent = 1;
        ring(e, link);
    }
    return 1;
}

static void side_message(void *arg, uint32_t link, uint32_t kind, const void *body, size_t bytes)
{
    tutti__engine_message(arg, (int)link, kind, body, bytes);
}

/* Messages that the lost rank has written come first. */
static void side_lost(void *arg, int link, uint32_t rank)
{
    tutti__engine_t *e = arg;

    if (link >= 0 && e->link[link].local)
        tutti__link_read(e, (uint32_t)link);
    if (link >= 0)
        e->link[link].lost = 1;
    tutti__watch_lost(e, link, rank);
}

int tutti__links_poll(tutti__engine_t *e, int side)
{
    const tutti__side_events_t events = { e, side_message, side_lost };
    int moved = 0;

    for (uint32_t i = 0; i < e->nlinks; i++)
        if (e->link[i].local)
            moved |= tutti__link_read(e, i);
    if (side && tutti__side_poll(e->env.boot, &events) != TUTTI_OK)
        tutti__watch_dead(e, TUTTI_ERR_SYSTEM, tutti_last_error());
    return moved;
}
