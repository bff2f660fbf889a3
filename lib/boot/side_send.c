/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's sending half.
 *
 * The part of a message for which the socket has space is sent at once; the rest is copied and
 * waits until epoll reports space. Errors are not reported here: a link that cannot send is marked
 * deaf and shut down. Then side.c reads the link to its end, so the peer's last messages still
 * arrive, and reports the link lost.
 */
#include "base/constants.h"
#include "base/log.h"
#include "boot/boot_inside.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

void tutti__side_drop(tutti__side_link_t *link)
{
    while (link->first != NULL) {
        tutti__side_wait_t *next = link->first->next;

        free(link->first);
        link->first = next;
    }
    link->last = &link->first;
    link->waiting_bytes = 0;
}

/* wanted 1: let epoll report space in the socket, because messages wait. */
static tutti_status_t want_writable(tutti__side_t *side, const tutti__side_link_t *link, int wanted)
{
    struct epoll_event event = { .events = EPOLLIN | (wanted ? EPOLLOUT : 0),
                                 .data.u64 = (uint64_t)TUTTI__ABOUT_LINK << 32 |
                                             (uint64_t)(link - side->links) };

    if (epoll_ctl(side->epfd, EPOLL_CTL_MOD, link->fd, &event) != 0)
        return tutti__fail_errno("epoll_ctl");
    return TUTTI_OK;
}

/* Give up sending on a link. */
static void deafen(tutti__side_link_t *link)
{
    link->deaf = 1;
    tutti__side_drop(link);
    shutdown(link->fd, SHUT_RDWR);
}

/* Send without waiting. Returns the bytes taken, 0 if there is no space. A broken link becomes deaf
   and takes all bytes. */
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

void tutti__side_flush(tutti__side_t *side, tutti__side_link_t *link)
{
    send_waiting(link);
    if (link->first == NULL)
        want_writable(side, link, 0);
}

/* Keep the part of head and body that follows `sent` bytes. */
static tutti_status_t keep(const tutti__boot_t *boot, tutti__side_link_t *link,
                           const tutti__frame_head_t *head, const char *body, size_t sent)
{
    size_t head_sent = TUTTI__MIN(sent, sizeof(*head)), body_sent = sent - head_sent;
    size_t head_left = sizeof(*head) - head_sent, body_left = head->bytes - body_sent;
    tutti__side_wait_t *w;

    if (link->waiting_bytes + head_left + body_left > TUTTI__SIDE_WAITING_BYTES)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%s reads nothing; %zu bytes wait for it",
                           tutti__boot_rank_name(boot, link->rank), link->waiting_bytes);
    w = malloc(sizeof(*w) + head_left + body_left);
    if (w == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "message of %u bytes for %s", head->bytes,
                           tutti__boot_rank_name(boot, link->rank));
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
    status = keep(boot, link, &head, body, sent);
    if (status != TUTTI_OK) {
        /* Part of this message was sent: no other message may follow on this link. */
        if (sent > 0)
            deafen(link);
        return status;
    }
    return link->first->next == NULL ? want_writable(&boot->side, link, 1) : TUTTI_OK;
}
