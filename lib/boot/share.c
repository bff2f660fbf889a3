/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passes file descriptors between the ranks of one machine.
 *
 * Each call makes a star around the machine's lowest rank. The other ranks connect to its Unix
 * socket, send their descriptors, and receive the descriptors of all ranks, in the order of ranks.
 * The kernel takes at most 253 descriptors in one message (SCM_MAX_FD), so the ranks send portions.
 *
 *     rank r -- ask {nfds}, its descriptors --------------> lowest rank
 *     rank r <-- answer {status, text}, all descriptors --- lowest rank
 *
 * This also works if the ranks' TUTTI_HOST_IDs differ, and between threads of one process.
 */
#include "boot/boot_inside.h"

#include "base/constants.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTION 250u

typedef struct {
    int32_t status;
    uint32_t nfds; /* number of descriptors of each rank */
    char text[240];
} answer_t;

/* Buffer for the control part of one portion, aligned as the kernel requires. */
typedef union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(PORTION * sizeof(int))];
} control_t;

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Send one portion: the number of descriptors as data, and the descriptors. */
static tutti_status_t send_portion(int fd, uint32_t rank, const int *fds, uint32_t n,
                                   uint64_t deadline)
{
    struct iovec iov = { &n, sizeof(n) };
    control_t control = { 0 };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(head), fds, n * sizeof(int));
    for (;;) {
        ssize_t sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        tutti_status_t status;

        if (sent == (ssize_t)sizeof(n))
            return TUTTI_OK;
        if (sent >= 0)
            return tutti__fail(TUTTI_ERR_SYSTEM, "half a message to rank %u", rank);
        if (errno == EINTR)
            continue;
        if (errno == EPIPE || errno == ECONNRESET)
            return tutti__fail(TUTTI_ERR_PEER_LOST, "rank %u ended while descriptors were passed",
                               rank);
        /* The kernel's limit of descriptors in flight is reached for this user: wait until other
           ranks have received some descriptors. */
        if (errno == ETOOMANYREFS && tutti__net_left_ms(deadline) > 0) {
            tutti__net_sleep_ms(TUTTI__RESOURCE_NAP_MS);
            continue;
        }
        if (errno != EAGAIN)
            return tutti__fail_errno("pass descriptors to rank %u", rank);
        status = tutti__net_wait(fd, rank, POLLOUT, deadline);
        if (status != TUTTI_OK)
            return status;
    }
}

/* Take up to n descriptors of a received message, and close all further descriptors. Returns the
   number of descriptors in the message. */
static uint32_t take_fds(struct msghdr *msg, int *ret_fds, uint32_t n)
{
    uint32_t taken = 0;

    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head != NULL; head = CMSG_NXTHDR(msg, head)) {
        size_t bytes = head->cmsg_len - CMSG_LEN(0);

        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < bytes / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
            if (taken < n)
                ret_fds[taken] = fd;
            else
                close(fd);
            taken++;
        }
    }
    return taken;
}

static tutti_status_t recv_portion(int fd, uint32_t rank, int *ret_fds, uint32_t n,
                                   uint64_t deadline)
{
    for (;;) {
        uint32_t told = 0, taken;
        struct iovec iov = { &told, sizeof(told) };
        control_t control;
        struct msghdr msg = { .msg_iov = &iov,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control) };
        ssize_t got = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        tutti_status_t status;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            status = tutti__net_wait(fd, rank, POLLIN, deadline);
            if (status != TUTTI_OK)
                return status;
            continue;
        }
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return tutti__fail(TUTTI_ERR_PEER_LOST, "rank %u ended while descriptors were passed",
                               rank);
        if (got < 0)
            return tutti__fail_errno("receive descriptors from rank %u", rank);
        taken = take_fds(&msg, ret_fds, n);
        if (msg.msg_flags & MSG_CTRUNC)
            return tutti__fail(TUTTI_ERR_NO_MEMORY,
                               "too many open files: only %u of %u descriptors "
                               "from rank %u could be received",
                               taken, n, rank);
        if (told != n || taken != n)
            return tutti__fail(TUTTI_ERR_INTERNAL, "%u descriptors from rank %u, not %u", taken,
                               rank, n);
        return TUTTI_OK;
    }
}

static tutti_status_t send_fds(int fd, uint32_t rank, const int *fds, size_t n, uint64_t deadline)
{
    tutti_status_t status = TUTTI_OK;

    for (size_t at = 0; at < n && status == TUTTI_OK; at += PORTION)
        status = send_portion(fd, rank, fds + at, (uint32_t)TUTTI__MIN(n - at, PORTION), deadline);
    return status;
}

static tutti_status_t recv_fds(int fd, uint32_t rank, int *ret_fds, size_t n, uint64_t deadline)
{
    tutti_status_t status = TUTTI_OK;

    for (size_t at = 0; at < n && status == TUTTI_OK; at += PORTION)
        status =
            recv_portion(fd, rank, ret_fds + at, (uint32_t)TUTTI__MIN(n - at, PORTION), deadline);
    return status;
}

/* For the machine's lowest rank: receive all ranks' descriptors from the connections in `links`. */
static tutti_status_t collect(tutti__boot_t *boot, const int *links, const int *fds, uint32_t nfds,
                              int *ret_fds, uint64_t deadline)
{
    const tutti__topo_t *topo = boot->topo;
    tutti_status_t status;
    int *at = ret_fds;

    for (uint32_t i = 0; i < nfds; i++) {
        at[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (at[i] < 0)
            return tutti__fail_errno("duplicate descriptor %d", fds[i]);
    }
    for (uint32_t r = topo->rank + 1; r < topo->size; r++) {
        uint32_t theirs;

        if (links[r] < 0)
            continue;
        at += nfds;
        status = tutti__net_recv(links[r], r, &theirs, sizeof(theirs), deadline);
        if (status != TUTTI_OK)
            return status;
        if (theirs != nfds)
            return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u passes %u descriptors, rank %u %u", r,
                               theirs, topo->rank, nfds);
        status = recv_fds(links[r], r, at, nfds, deadline);
        if (status != TUTTI_OK)
            return status;
    }
    return TUTTI_OK;
}

/* For the machine's lowest rank: send the outcome and all descriptors to all ranks. */
static tutti_status_t hand_out(tutti__boot_t *boot, const int *links, tutti_status_t status,
                               const int *all, uint32_t nfds, uint64_t deadline)
{
    const tutti__topo_t *topo = boot->topo;
    answer_t answer = { .status = (int32_t)status, .nfds = nfds };
    tutti_status_t result = status;

    if (status != TUTTI_OK)
        snprintf(answer.text, sizeof(answer.text), "%s", tutti_last_error());
    for (uint32_t r = 0; r < topo->size; r++) {
        tutti_status_t sent;

        if (links[r] < 0)
            continue;
        sent = tutti__net_send(links[r], r, &answer, sizeof(answer), deadline);
        if (sent == TUTTI_OK && status == TUTTI_OK)
            sent = send_fds(links[r], r, all, (size_t)nfds * topo->machine_ranks, deadline);
        if (result == TUTTI_OK)
            result = sent;
    }
    return status == TUTTI_OK ? result : tutti__fail(status, "%s", answer.text);
}

static tutti_status_t be_center(tutti__boot_t *boot, const tutti__gate_t *gate, const int *fds,
                                uint32_t nfds, int *ret_fds, uint64_t deadline)
{
    const tutti__topo_t *topo = boot->topo;
    int *links = malloc(topo->size * sizeof(*links));
    tutti_status_t status;

    if (links == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "connections of %u ranks", topo->size);
    for (uint32_t r = 0; r < topo->size; r++)
        links[r] = r != topo->rank && topo->machine_of[r] == topo->machine_of[topo->rank]
                       ? TUTTI__GATE_AWAITED
                       : TUTTI__GATE_NOBODY;
    /* If the machine has only one rank, boot->door is -1, and no socket is needed. */
    status = tutti__gate_admit(gate, boot->door, links, deadline);
    if (status == TUTTI_OK)
        status = collect(boot, links, fds, nfds, ret_fds, deadline);
    status = hand_out(boot, links, status, ret_fds, nfds, deadline);
    close_all(links, topo->size);
    free(links);
    return status;
}

static tutti_status_t ask_center(tutti__boot_t *boot, uint32_t center, const tutti__gate_t *gate,
                                 const int *fds, uint32_t nfds, int *ret_fds, uint64_t deadline)
{
    answer_t answer;
    tutti_status_t status;
    int link = -1;

    status = tutti__net_unix_connect(boot->peers[center].door, sizeof(boot->peers[center].door), 0,
                                     deadline, &link);
    if (status != TUTTI_OK)
        return tutti__fail(status, "rank %u on the same machine: %s", center, tutti_last_error());
    status = tutti__gate_knock(gate, link, center, deadline);
    if (status != TUTTI_OK)
        goto close_link;
    status = tutti__net_send(link, center, &nfds, sizeof(nfds), deadline);
    if (status == TUTTI_OK)
        status = send_fds(link, center, fds, nfds, deadline);
    /* Even if rank `center` has closed the connection, it may have sent the reason before. */
    if (status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST)
        status = tutti__net_recv(link, center, &answer, sizeof(answer), deadline);
    if (status == TUTTI_OK && answer.status != TUTTI_OK)
        status = tutti__fail((tutti_status_t)answer.status, "%.*s", (int)sizeof(answer.text),
                             answer.text);
    if (status == TUTTI_OK)
        status =
            recv_fds(link, center, ret_fds, (size_t)nfds * boot->topo->machine_ranks, deadline);

close_link:
    close(link);
    return status;
}

tutti_status_t tutti__boot_share_fds(tutti__boot_t *boot, const int *fds, uint32_t nfds,
                                     int *ret_fds, int *ret_pids)
{
    const tutti__topo_t *topo = boot->topo;
    size_t n = (size_t)nfds * topo->machine_ranks;
    tutti__gate_t gate = { .purpose = TUTTI__GATE_SHARE,
                           .number = ++boot->shares,
                           .rank = topo->rank,
                           .size = topo->size,
                           .token = boot->token };
    uint64_t deadline = tutti__boot_step_deadline(boot);
    tutti_status_t status;
    uint32_t center = 0;

    for (size_t i = 0; i < n; i++)
        ret_fds[i] = -1;
    while (topo->machine_of[center] != topo->machine_of[topo->rank])
        center++;
    status = center == topo->rank ? be_center(boot, &gate, fds, nfds, ret_fds, deadline)
                                  : ask_center(boot, center, &gate, fds, nfds, ret_fds, deadline);
    if (status != TUTTI_OK) {
        close_all(ret_fds, n);
        return status;
    }
    for (uint32_t r = center, i = 0; r < topo->size; r++)
        if (topo->machine_of[r] == topo->machine_of[topo->rank])
            ret_pids[i++] = boot->peers[r].pid;
    return TUTTI_OK;
}
