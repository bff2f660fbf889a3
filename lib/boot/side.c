/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel: links to the neighbours in the tree, and who died.
 *
 * One epoll descriptor holds all: each link's socket, a pidfd for each watched process, a timer.
 * Level-triggered, so a poll may leave something for the next one.
 *
 * A dead neighbour usually shows as the end of its stream. It does not if it left a forked child
 * that holds the socket; hence the pidfds. Before a neighbour is reported its stream is read to the
 * end: its last words (why it gives up, that it just ended well) come first. For that reason too
 * the end of a process that is no neighbour, but on my host, is reported only GRACE_MS later: its
 * last words come over the leader, and are lost only if the leader is dead or stuck as well.
 *
 * Belongs to whoever owns the engine's token. Never blocks, except a short while when it ends.
 */
#include "base/log.h"
#include "base/time.h"
#include "boot/inside.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)64 << 10)
/* Pieces read from one link before the others have their turn. */
#define PIECES 16
#define EVENTS 64
#define GRACE_MS 100u
/* What a link may hold back for a peer that does not read: far above what control needs. */
#define WAITING_BYTES ((size_t)256 << 20)
/* How long the end waits for messages to leave. */
#define LINGER_MS 200u

struct tutti__side_wait {
    tutti__side_wait_t *next;
    size_t bytes, sent;
    char data[];
};

/* What an epoll event is about: these in the upper half, an index in the lower. */
enum { ABOUT_LINK, ABOUT_WATCH, ABOUT_TIMER };

static tutti_status_t add_to_epoll(tutti__side_t *side, int fd, uint32_t about, uint32_t index)
{
    struct epoll_event event = { .events = EPOLLIN,
                                 .data.u64 = (uint64_t)about << 32 | index };

    if (epoll_ctl(side->epfd, EPOLL_CTL_ADD, fd, &event) != 0)
        return tutti__fail_errno("epoll_ctl");
    return TUTTI_OK;
}

tutti_status_t tutti__side_begin(tutti__boot_t *boot)
{
    const tutti__topo_t *topo = boot->topo;
    tutti__side_t *side = &boot->side;

    /* More links than any rank can have, for simplicity: all ranks of my host, and all hosts. */
    side->links = calloc((size_t)topo->size + 1, sizeof(*side->links));
    side->gone = calloc(topo->size, 1);
    side->piece = malloc(PIECE_BYTES);
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

/* Watch a process. One that cannot be watched is still noticed by its socket. */
static tutti_status_t watch(tutti__boot_t *boot, uint32_t rank)
{
    tutti__side_t *side = &boot->side;
    tutti__side_watch_t *w = &side->watches[side->nwatches];
    int pid = boot->peers[rank].pid;

    if (pid <= 0 || pid == (int)boot->owner)
        return TUTTI_OK;
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (w->pidfd < 0 && errno == ESRCH)
        return tutti__fail(TUTTI_ERR_PEER_LOST, "rank %u, process %d, has ended", rank, pid);
    if (w->pidfd < 0) {
        TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u, process %d, cannot be watched: error %d", rank, pid,
                   errno);
        return TUTTI_OK;
    }
    w->rank = rank;
    w->link = link_to(side, rank);
    return add_to_epoll(side, w->pidfd, ABOUT_WATCH, side->nwatches++);
}

/* All ranks of my host, and neighbours on other hosts that are this machine in truth. */
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
    status = add_to_epoll(side, side->timer, ABOUT_TIMER, 0);
    for (uint32_t i = 0; i < side->nlinks && status == TUTTI_OK; i++)
        status = add_to_epoll(side, side->links[i].fd, ABOUT_LINK, i);
    return status == TUTTI_OK ? watch_all(boot) : status;
}

/* --- sending --- */

static void drop_waiting(tutti__side_link_t *link)
{
    while (link->first != NULL) {
        tutti__side_wait_t *next = link->first->next;

        free(link->first);
        link->first = next;
    }
    link->last = &link->first;
    link->waiting_bytes = 0;
}

/* Ask epoll for room in the socket while something waits for it. */
static tutti_status_t want_room(tutti__side_t *side, const tutti__side_link_t *link, int wanted)
{
    struct epoll_event event = { .events = EPOLLIN | (wanted ? EPOLLOUT : 0),
                                 .data.u64 = (uint64_t)ABOUT_LINK << 32 |
                                             (uint64_t)(link - side->links) };

    if (epoll_ctl(side->epfd, EPOLL_CTL_MOD, link->fd, &event) != 0)
        return tutti__fail_errno("epoll_ctl");
    return TUTTI_OK;
}

/* Give up sending on a link. Reading goes on to the end of what has come, and finds the link lost. */
static void deafen(tutti__side_link_t *link)
{
    link->deaf = 1;
    drop_waiting(link);
    shutdown(link->fd, SHUT_RDWR);
}

/* Send now; the bytes taken, 0 if there is no room. A broken link becomes deaf and takes all. */
static size_t send_now(tutti__side_link_t *link, struct iovec *iov, size_t niov, size_t bytes)
{
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = niov };
    ssize_t n;

    do {
        n = sendmsg(link->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        return (size_t)n;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        return 0;
    TUTTI__LOG(TUTTI__LOG_DEBUG, "link to rank %u cannot send: error %d", link->rank, errno);
    deafen(link);
    return bytes;
}

static void send_waiting(tutti__side_link_t *link)
{
    while (link->first != NULL) {
        tutti__side_wait_t *w = link->first;
        struct iovec iov = { w->data + w->sent, w->bytes - w->sent };
        size_t n = send_now(link, &iov, 1, iov.iov_len);

        if (link->deaf || n == 0)
            return;
        w->sent += n;
        link->waiting_bytes -= n;
        if (w->sent < w->bytes)
            continue;
        link->first = w->next;
        if (link->first == NULL)
            link->last = &link->first;
        free(w);
    }
}

/* Keep what is left of head and body after `sent` bytes. */
static tutti_status_t keep(tutti__side_link_t *link, const tutti__frame_head_t *head,
                           const char *body, size_t sent)
{
    size_t head_sent = TUTTI__MIN(sent, sizeof(*head)), body_sent = sent - head_sent;
    size_t head_left = sizeof(*head) - head_sent, body_left = head->bytes - body_sent;
    tutti__side_wait_t *w;

    if (link->waiting_bytes + head_left + body_left > WAITING_BYTES)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "rank %u reads nothing; %zu bytes wait for it",
                           link->rank, link->waiting_bytes);
    w = malloc(sizeof(*w) + head_left + body_left);
    if (w == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "message of %u bytes for rank %u", head->bytes,
                           link->rank);
    *w = (tutti__side_wait_t){ NULL, head_left + body_left, 0 };
    memcpy(w->data, (const char *)head + head_sent, head_left);
    if (body_left > 0)
        memcpy(w->data + head_left, body + body_sent, body_left);
    *link->last = w;
    link->last = &w->next;
    link->waiting_bytes += w->bytes;
    return TUTTI_OK;
}

tutti_status_t tutti__side_send(tutti__boot_t *boot, uint32_t index, uint32_t kind,
                                const void *body, size_t bytes)
{
    tutti__side_link_t *link = &boot->side.links[index];
    tutti__frame_head_t head = { (uint32_t)bytes, kind };
    struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)body, bytes } };
    size_t all = sizeof(head) + bytes, sent = 0;
    tutti_status_t status;

    assert(index < boot->side.nlinks);
    if (bytes > TUTTI__FRAME_BYTES)
        return tutti__fail(TUTTI_ERR_INTERNAL, "message of %zu bytes on the side channel", bytes);
    if (link->fd < 0 || link->deaf)
        return TUTTI_OK;
    if (link->first == NULL)
        sent = send_now(link, iov, 2, all);
    if (sent == all)
        return TUTTI_OK;
    status = keep(link, &head, body, sent);
    if (status != TUTTI_OK) {
        /* Half a message must not be followed by another one. */
        if (sent > 0)
            deafen(link);
        return status;
    }
    return link->first->next == NULL ? want_room(&boot->side, link, 1) : TUTTI_OK;
}

/* --- what comes --- */

static void report(tutti__side_t *side, const tutti__side_events_t *events, int link, uint32_t rank)
{
    if (side->gone[rank])
        return;
    side->gone[rank] = 1;
    TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u is gone", rank);
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

    drop_waiting(link);
    tutti__frame_clear(&link->in);
    close_fd(&link->fd);
    report(side, events, (int)index, link->rank);
}

/* Hand on the whole messages in a piece of the stream. */
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

/*
 * Read up to `pieces` pieces of a link; loses it at its end.
 *
 * Stops after a short piece without asking for another: the next poll will.
 */
static void read_link(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index,
                      unsigned pieces)
{
    tutti__side_link_t *link = &side->links[index];

    while (link->fd >= 0 && pieces > 0) {
        ssize_t n = recv(link->fd, side->piece, PIECE_BYTES, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            TUTTI__LOG(TUTTI__LOG_DEBUG, "link to rank %u broke: error %d", link->rank, errno);
        if (n <= 0) {
            lose(side, events, index);
            return;
        }
        if (deliver(link, events, index, side->piece, (size_t)n) != TUTTI_OK) {
            TUTTI__LOG(TUTTI__LOG_ERROR, "rank %u sent what it must not: %s", link->rank,
                       tutti_last_error());
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

    if (link->fd >= 0 && (what & EPOLLOUT)) {
        send_waiting(link);
        if (link->first == NULL)
            want_room(side, link, 0);
    }
    if (link->fd >= 0 && (what & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        read_link(side, events, index, PIECES);
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

/* A process ended. */
static void handle_watch(tutti__side_t *side, const tutti__side_events_t *events, uint32_t index)
{
    tutti__side_watch_t *w = &side->watches[index];

    if (w->pidfd < 0)
        return;
    close_fd(&w->pidfd);
    if (side->gone[w->rank])
        return;
    if (w->link < 0) {
        w->due_ns = tutti__now_ns() + GRACE_MS * 1000000u;
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
    set_timer(side); /* also ends its being readable */
}

tutti_status_t tutti__side_poll(tutti__boot_t *boot, const tutti__side_events_t *events)
{
    struct epoll_event list[EVENTS];
    tutti__side_t *side = &boot->side;
    int n = epoll_wait(side->epfd, list, EVENTS, 0);

    if (n < 0 && errno != EINTR)
        return tutti__fail_errno("epoll_wait");
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)list[i].data.u64;

        switch (list[i].data.u64 >> 32) {
        case ABOUT_LINK:
            handle_link(side, events, index, list[i].events);
            break;
        case ABOUT_WATCH:
            handle_watch(side, events, index);
            break;
        case ABOUT_TIMER:
            handle_timer(side, events);
            break;
        }
    }
    return TUTTI_OK;
}

/* --- the rest --- */

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
 * Say goodbye on a link. Not only close(): a forked child may hold the socket. What came unread is
 * read, because TCP would answer a close with a reset, and that takes our last words from the peer.
 */
static void hang_up(tutti__side_t *side, tutti__side_link_t *link, uint64_t deadline)
{
    struct pollfd pfd = { link->fd, POLLOUT, 0 };

    while (link->first != NULL && tutti__net_left_ms(deadline) > 0) {
        poll(&pfd, 1, tutti__net_left_ms(deadline));
        send_waiting(link);
    }
    shutdown(link->fd, SHUT_WR);
    for (unsigned i = 0; i < PIECES; i++)
        if (recv(link->fd, side->piece, PIECE_BYTES, MSG_DONTWAIT) <= 0)
            break;
}

/* Nothing but close(): epoll_ctl and shutdown would change what the parent still uses. */
void tutti__side_forked(tutti__boot_t *boot)
{
    tutti__side_t *side = &boot->side;

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
    uint64_t deadline = tutti__net_deadline(LINGER_MS);

    for (uint32_t i = 0; i < side->nlinks; i++) {
        tutti__side_link_t *link = &side->links[i];

        if (link->fd >= 0 && boot->owner == getpid())
            hang_up(side, link, deadline);
        drop_waiting(link);
        tutti__frame_clear(&link->in);
    }
    tutti__side_forked(boot);
    free(side->links);
    free(side->watches);
    free(side->gone);
    free(side->piece);
    *side = (tutti__side_t){ .epfd = -1, .timer = -1, .parent = -1 };
}
