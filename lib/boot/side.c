/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel: links to the neighbours in the tree, and detection of deaths.
 *
 * One epoll descriptor has each link's socket, a pidfd for each watched process, and a timer. It is
 * level-triggered, so a poll may leave events for the next one.
 *
 * If a neighbour dies, its stream usually ends. It does not end if a forked child of the neighbour
 * holds the socket (fork.c prevents most cases); so a rank watches pidfds as well. Before a
 * neighbour is reported lost, its stream is read to the end, so its last messages (the reason of a
 * failure, or an orderly end) are delivered first. If a process of this host is not a neighbour,
 * its last messages come through the leader: so its end is reported TUTTI__SIDE_DEATH_MS later.
 * These messages are lost only if the leader is dead or stuck as well.
 *
 * Belongs to the owner of the engine's token. Never blocks, except for a short while when it ends.
 */
#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"
#include "boot/boot_inside.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

static tutti_status_t add_to_epoll(tutti__side_t *side, int fd, uint32_t about, uint32_t index)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = (uint64_t)about << 32 | index };

    if (epoll_ctl(side->epfd, EPOLL_CTL_ADD, fd, &event) != 0)
        return tutti__fail_errno("epoll_ctl");
    return TUTTI_OK;
}

tutti_status_t tutti__side_begin(tutti__boot_t *boot)
{
    const tutti__topo_t *topo = boot->topo;
    tutti__side_t *side = &boot->side;

    side->boot = boot;
    /* More than enough: a rank has at most one link to each other rank. */
    side->links = calloc((size_t)topo->size + 1, sizeof(*side->links));
    side->gone = calloc(topo->size, 1);
    side->piece = malloc(TUTTI__SIDE_PIECE_BYTES);
    if (side->links == NULL || side->gone == NULL || side->piece == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "side channel of %u ranks", topo->size);
    for (uint32_t i = 0; i <= topo->size; i++) {
        side->links[i].fd = -1;
        side->links[i].last = &side->links[i].first;
    }
    side->parent = -1;
    return TUTTI_OK;
}

static int link_to(const tutti__side_t *side, uint32_t rank)
{
    for (uint32_t i = 0; i < side->nlinks; i++)
        if (side->links[i].rank == rank)
            return (int)i;
    return -1;
}

/* Watch a process. If this is not possible, only the end of its stream shows its death. */
static tutti_status_t watch(tutti__boot_t *boot, uint32_t rank)
{
    tutti__side_t *side = &boot->side;
    tutti__side_watch_t *w = &side->watches[side->nwatches];
    int pid = boot->peers[rank].pid;

    if (pid <= 0 || pid == (int)boot->owner)
        return TUTTI_OK;
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (w->pidfd < 0 && errno == ESRCH)
        return tutti__fail(TUTTI_ERR_PEER_LOST, "%s, process %d, has ended",
                           tutti__boot_rank_name(boot, rank), pid);
    if (w->pidfd < 0) {
        TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u, process %d, cannot be watched: error %d", rank, pid,
                   errno);
        return TUTTI_OK;
    }
    w->rank = rank;
    w->link = link_to(side, rank);
    return add_to_epoll(side, w->pidfd, TUTTI__ABOUT_WATCH, side->nwatches++);
}

/* Watch all ranks of this host, and neighbours on pretended hosts, which are on this machine. */
static tutti_status_t watch_all(tutti__boot_t *boot)
{
    const tutti__topo_t *topo = boot->topo;
    tutti__side_t *side = &boot->side;

    side->watches = calloc(topo->size, sizeof(*side->watches));
    if (side->watches == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "side channel of %u ranks", topo->size);
    for (uint32_t r = 0; r < topo->size; r++) {
        tutti_status_t status;

        if (r == topo->rank || topo->machine_of[r] != topo->machine_of[topo->rank])
            continue;
        if (topo->host_of[r] != topo->host_of[topo->rank] && link_to(side, r) < 0)
            continue;
        status = watch(boot, r);
        if (status != TUTTI_OK)
            return status;
    }
    return TUTTI_OK;
}

tutti_status_t tutti__side_start(tutti__boot_t *boot)
{
    tutti__side_t *side = &boot->side;
    tutti_status_t status;

    side->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (side->epfd < 0)
        return tutti__fail_errno("epoll_create1");
    side->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (side->timer < 0)
        return tutti__fail_errno("timerfd_create");
    status = add_to_epoll(side, side->timer, TUTTI__ABOUT_TIMER, 0);
    for (uint32_t i = 0; i < side->nlinks && status == TUTTI_OK; i++)
        status = add_to_epoll(side, side->links[i].fd, TUTTI__ABOUT_LINK, i);
    return status == TUTTI_OK ? watch_all(boot) : status;
}

static void report(tutti__side_t *side, const tutti__side_events_t *events, int link, uint32_t rank)
{
    if (side->gone[rank])
        return;
    side->gone[rank] = 1;
    TUTTI__LOG(TUTTI__LOG_DEBUG, "%s is gone", tutti__boot_rank_name(side->boot, rank));
    events->lost(events->arg, link, rank);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void lose(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index)
{
    tutti__side_link_t *link = &side->links[index];

    tutti__side_drop(link);
    tutti__frame_clear(&link->in);
    close_fd(&link->fd);
    report(side, events, (int)index, link->rank);
}

/* Pass on the whole messages in a piece of the stream. */
static tutti_status_t deliver(tutti__side_link_t *link, const tutti__side_events_t *events,
                              uint32_t index, const char *piece, size_t bytes)
{
    for (;;) {
        tutti_status_t status = tutti__frame_take(&link->in, &piece, &bytes);

        if (status == TUTTI__AGAIN)
            return TUTTI_OK;
        if (status != TUTTI_OK)
            return status;
        events->message(events->arg, index, link->in.head.kind, link->in.body, link->in.head.bytes);
    }
}

/* Read up to `pieces` pieces of a link, or until the socket has no more bytes; the next poll
   continues. At the end of its stream the link is lost. */
static void read_link(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index,
                      unsigned pieces)
{
    tutti__side_link_t *link = &side->links[index];

    while (link->fd >= 0 && pieces > 0) {
        ssize_t n = recv(link->fd, side->piece, TUTTI__SIDE_PIECE_BYTES, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            TUTTI__LOG(TUTTI__LOG_DEBUG, "link to %s broke: error %d",
                       tutti__boot_rank_name(side->boot, link->rank), errno);
        if (n <= 0) {
            lose(side, events, index);
            return;
        }
        if (deliver(link, events, index, side->piece, (size_t)n) != TUTTI_OK) {
            TUTTI__LOG(TUTTI__LOG_ERROR, "%s sent an invalid message: %s",
                       tutti__boot_rank_name(side->boot, link->rank), tutti_last_error());
            lose(side, events, index);
            return;
        }
        pieces--;
    }
}

static void handle_link(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index,
                        uint32_t what)
{
    tutti__side_link_t *link = &side->links[index];

    if (link->fd >= 0 && (what & EPOLLOUT))
        tutti__side_flush(side, link);
    if (link->fd >= 0 && (what & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        read_link(side, events, index, TUTTI__SIDE_PIECES);
}

static void set_timer(tutti__side_t *side)
{
    struct itimerspec spec = { 0 };
    uint64_t due_ns = 0;

    for (uint32_t i = 0; i < side->nwatches; i++)
        if (side->watches[i].due_ns != 0 && (due_ns == 0 || side->watches[i].due_ns < due_ns))
            due_ns = side->watches[i].due_ns;
    spec.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
    spec.it_value.tv_nsec = (long)(due_ns % 1000000000u);
    timerfd_settime(side->timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* A watched process has ended. */
static void handle_watch(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index)
{
    tutti__side_watch_t *w = &side->watches[index];

    if (w->pidfd < 0)
        return;
    close_fd(&w->pidfd);
    if (side->gone[w->rank])
        return;
    if (w->link < 0) {
        w->due_ns = tutti__now_ns() + TUTTI__SIDE_DEATH_MS * 1000000u;
        set_timer(side);
        return;
    }
    read_link(side, events, (uint32_t)w->link, ~0u);
    if (side->links[w->link].fd >= 0)
        lose(side, events, (uint32_t)w->link);
}

static void handle_timer(tutti__side_t *side, const tutti__side_events_t *events)
{
    uint64_t now = tutti__now_ns();

    for (uint32_t i = 0; i < side->nwatches; i++) {
        if (side->watches[i].due_ns == 0 || side->watches[i].due_ns > now)
            continue;
        side->watches[i].due_ns = 0;
        report(side, events, -1, side->watches[i].rank);
    }
    set_timer(side); /* also makes the timer's descriptor unreadable */
}

tutti_status_t tutti__side_poll(tutti__boot_t *boot, const tutti__side_events_t *events)
{
    struct epoll_event list[TUTTI__SIDE_EVENTS];
    tutti__side_t *side = &boot->side;
    int n = epoll_wait(side->epfd, list, TUTTI__SIDE_EVENTS, 0);

    if (n < 0 && errno != EINTR)
        return tutti__fail_errno("epoll_wait");
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)list[i].data.u64;

        switch (list[i].data.u64 >> 32) {
        case TUTTI__ABOUT_LINK:
            handle_link(side, events, index, list[i].events);
            break;
        case TUTTI__ABOUT_WATCH:
            handle_watch(side, events, index);
            break;
        case TUTTI__ABOUT_TIMER:
            handle_timer(side, events);
            break;
        }
    }
    return TUTTI_OK;
}

uint32_t tutti__side_links(const tutti__boot_t *boot)
{
    return boot->side.nlinks;
}

int tutti__side_parent(const tutti__boot_t *boot)
{
    return boot->side.parent;
}

uint32_t tutti__side_rank(const tutti__boot_t *boot, uint32_t link)
{
    assert(link < boot->side.nlinks);
    return boot->side.links[link].rank;
}

int tutti__side_is_local(const tutti__boot_t *boot, uint32_t link)
{
    assert(link < boot->side.nlinks);
    return boot->side.links[link].local;
}

int tutti__side_fd(const tutti__boot_t *boot)
{
    return boot->side.epfd;
}

/*
 * Close a link in order. close() alone is not enough, because a forked child may hold the socket.
 * Unread bytes are read first: otherwise TCP would answer the close with a reset, and the peer
 * would lose this rank's last messages.
 */
static void hang_up(tutti__side_t *side, tutti__side_link_t *link, uint64_t deadline)
{
    struct pollfd pfd = { link->fd, POLLOUT, 0 };

    while (link->first != NULL && tutti__net_left_ms(deadline) > 0) {
        poll(&pfd, 1, tutti__net_left_ms(deadline));
        tutti__side_flush(side, link);
    }
    shutdown(link->fd, SHUT_WR);
    for (unsigned i = 0; i < TUTTI__SIDE_PIECES; i++)
        if (recv(link->fd, side->piece, TUTTI__SIDE_PIECE_BYTES, MSG_DONTWAIT) <= 0)
            break;
}

/* Only close(): in a forked child, epoll_ctl and shutdown would change the parent's state. */
void tutti__side_let_go(tutti__side_t *side)
{
    for (uint32_t i = 0; i < side->nlinks; i++)
        close_fd(&side->links[i].fd);
    for (uint32_t i = 0; i < side->nwatches; i++)
        close_fd(&side->watches[i].pidfd);
    close_fd(&side->timer);
    close_fd(&side->epfd);
}

void tutti__side_end(tutti__boot_t *boot)
{
    tutti__side_t *side = &boot->side;
    uint64_t deadline = tutti__net_deadline(TUTTI__SIDE_LINGER_MS);

    for (uint32_t i = 0; i < side->nlinks; i++) {
        tutti__side_link_t *link = &side->links[i];

        if (link->fd >= 0 && boot->owner == getpid())
            hang_up(side, link, deadline);
        tutti__side_drop(link);
        tutti__frame_clear(&link->in);
    }
    tutti__side_let_go(side);
    free(side->links);
    free(side->watches);
    free(side->gone);
    free(side->piece);
    *side = (tutti__side_t){ .epfd = -1, .timer = -1, .parent = -1 };
}
