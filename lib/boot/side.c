/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel: links to the neighbours in the tree, and detection of deaths.
 *
 * One epoll descriptor watches each link's socket, and a pidfd for each neighbour of this machine.
 * It is level-triggered, so a poll may leave events for the next poll. If this rank's parent has
 * left, tutti__side_watch adds the other processes of the machine.
 *
 * If a neighbour dies, its stream usually ends. The stream does not end if a forked child of the
 * neighbour holds the socket (fork.c prevents most cases), so a rank watches pidfds as well. Before
 * a neighbour is reported lost, its stream is read to the end. So its last messages (the reason of
 * a failure, or an orderly end) are delivered first. If a rank that is not a neighbour ends, its
 * own neighbours report this.
 *
 * Only the owner of the engine's token calls this file after set-up. The calls never block, except
 * for tutti__side_end, which may wait for a short time.
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
    /* These tables are large enough: a rank has at most one link to each other rank. */
    side->links = calloc((size_t)topo->size + 1, sizeof(*side->links));
    side->watches = calloc((size_t)topo->size + 1, sizeof(*side->watches));
    side->piece = malloc(TUTTI__SIDE_PIECE_BYTES);
    if (side->links == NULL || side->watches == NULL || side->piece == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "side channel of %u ranks", topo->size);
    for (uint32_t i = 0; i <= topo->size; i++) {
        side->links[i].fd = -1;
        side->links[i].last = &side->links[i].first;
    }
    side->parent = -1;
    return TUTTI_OK;
}

/* Watch a rank's process. If this is not possible, or the process is on another machine, only the
   end of a neighbour's stream shows its death. link: to the rank, or TUTTI__NO_LINK. */
static tutti_status_t watch(tutti__boot_t *boot, uint32_t rank, uint32_t link)
{
    tutti__side_t *side = &boot->side;
    tutti__side_watch_t *w = &side->watches[side->nwatches];
    const uint32_t *machine_of = boot->topo->machine_of;
    int pid = boot->peers[rank].pid;

    /* The first pid namespace has the same number on every machine, so `pid` may belong to another
       machine. */
    if (pid <= 0 || pid == (int)boot->owner || machine_of[rank] != machine_of[boot->topo->rank])
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
    w->link = link;
    w->rank = rank;
    return add_to_epoll(side, w->pidfd, TUTTI__ABOUT_WATCH, side->nwatches++);
}

tutti_status_t tutti__side_watch(tutti__boot_t *boot, uint32_t rank)
{
    return watch(boot, rank, TUTTI__NO_LINK);
}

tutti_status_t tutti__side_start(tutti__boot_t *boot)
{
    tutti__side_t *side = &boot->side;
    tutti_status_t status = TUTTI_OK;

    side->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (side->epfd < 0)
        return tutti__fail_errno("epoll_create1");
    for (uint32_t i = 0; i < side->nlinks && status == TUTTI_OK; i++) {
        status = add_to_epoll(side, side->links[i].fd, TUTTI__ABOUT_LINK, i);
        if (status == TUTTI_OK)
            status = watch(boot, side->links[i].rank, i);
    }
    return status;
}

/* Clear *fd before the close. After the close another thread may get the same number. If *fd still
   had this number, fork.c in a forked child would close that thread's file. */
static void close_fd(int *fd)
{
    int old = *fd;

    *fd = -1;
    if (old >= 0)
        close(old);
}

/* Close *fd, but first remove it from the epoll descriptor. If a forked child has a copy of *fd,
   close() does not remove *fd, and the epoll descriptor would stay readable. */
static void stop_polling(const tutti__side_t *side, int *fd)
{
    if (*fd >= 0)
        epoll_ctl(side->epfd, EPOLL_CTL_DEL, *fd, NULL);
    close_fd(fd);
}

static void lose(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index)
{
    tutti__side_link_t *link = &side->links[index];

    tutti__side_drop(link);
    tutti__frame_clear(&link->in);
    stop_polling(side, &link->fd);
    TUTTI__LOG(TUTTI__LOG_DEBUG, "%s is gone", tutti__boot_rank_name(side->boot, link->rank));
    events->lost(events->arg, index);
}

/* Deliver the messages that are complete after this piece of the stream. */
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

/* Read up to `pieces` pieces of a link, or until the socket has no more bytes. The next poll reads
   the rest. If the stream has ended, the link is lost. */
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

/* A watched process has ended. */
static void handle_watch(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index)
{
    tutti__side_watch_t *w = &side->watches[index];

    if (w->pidfd < 0)
        return;
    stop_polling(side, &w->pidfd);
    if (w->link == TUTTI__NO_LINK) {
        events->ended(events->arg, w->rank);
        return;
    }
    read_link(side, events, w->link, ~0u);
    if (side->links[w->link].fd >= 0)
        lose(side, events, w->link);
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
        }
    }
    return TUTTI_OK;
}

void tutti__side_check(tutti__boot_t *boot, uint64_t now)
{
    tutti__side_t *side = &boot->side;

    if (now - side->checked_ns < TUTTI__SIDE_CHECK_NS)
        return;
    side->checked_ns = now;
    for (uint32_t i = 0; i < side->nlinks; i++)
        if (side->links[i].fd >= 0 && !side->links[i].local)
            tutti__net_tcp_check(side->links[i].fd, &side->links[i].patient);
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
 * Read the unread bytes before the close: otherwise TCP would send a reset, and the peer would lose
 * this rank's last messages.
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
    free(side->piece);
    *side = (tutti__side_t){ .epfd = -1, .parent = -1 };
}
