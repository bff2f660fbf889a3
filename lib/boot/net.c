/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting on sockets, and Unix sockets. See net.h; TCP is in net_tcp.c.
 */
#include "boot/net.h"

#include "base/constants.h"
#include "base/time.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The longest wait: longer waits are shortened to this time (three years). */
#define LONGEST_MS 100000000000u

#define CHECKS 2

static __thread struct {
    tutti__net_check_t *check[CHECKS];
    void *arg[CHECKS];
    tutti__net_failed_t *failed;
    void *failed_arg;
} watch;

void tutti__net_watch(tutti__net_check_t *check, void *arg)
{
    watch.check[0] = check;
    watch.arg[0] = arg;
}

void tutti__net_watch_meeting(tutti__net_check_t *check, void *arg)
{
    watch.check[1] = check;
    watch.arg[1] = arg;
}

tutti_status_t tutti__net_still(void)
{
    tutti_status_t status = TUTTI_OK;

    for (int i = 0; i < CHECKS && status == TUTTI_OK; i++)
        if (watch.check[i] != NULL)
            status = watch.check[i](watch.arg[i]);
    return status;
}

void tutti__net_watch_failures(tutti__net_failed_t *failed, void *arg)
{
    watch.failed = failed;
    watch.failed_arg = arg;
}

int tutti__net_failed(tutti_status_t status)
{
    if (watch.failed == NULL)
        return 0;
    watch.failed(watch.failed_arg, status);
    return 1;
}

uint64_t tutti__net_span(uint64_t timeout_ms)
{
    return TUTTI__MIN(timeout_ms, LONGEST_MS) * 1000000u;
}

uint64_t tutti__net_deadline(uint64_t timeout_ms)
{
    return tutti__now_ns() + tutti__net_span(timeout_ms);
}

int tutti__net_left_ms(uint64_t deadline)
{
    uint64_t now = tutti__now_ns(), left_ms;

    if (now >= deadline)
        return 0;
    left_ms = (deadline - now + 999999u) / 1000000u;
    return (int)TUTTI__MIN(left_ms, 1000000000u);
}

void tutti__net_sleep_ms(unsigned ms)
{
    poll(NULL, 0, (int)ms);
}

/* tutti__net_files_left holds this lock while its trial descriptors are open. During this time
   other threads may find no free descriptor. */
static pthread_mutex_t trial = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t trial_once = PTHREAD_ONCE_INIT;

static void lock_trial(void)
{
    pthread_mutex_lock(&trial);
}

static void unlock_trial(void)
{
    pthread_mutex_unlock(&trial);
}

/* Let a fork wait for the end of a trial. Otherwise the child would inherit the lock in its locked
   state, and the open descriptors of the trial. */
static void register_trial(void)
{
    pthread_atfork(lock_trial, unlock_trial, unlock_trial);
}

/* Raise the soft limit of descriptors only as far as needed: a program that uses select() needs low
   descriptor numbers. Call this with `trial` held. Returns 0 if this is not possible. */
static int raise_limit(uint32_t by)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return 0;
    limit.rlim_cur += TUTTI__MIN((rlim_t)by, limit.rlim_max - limit.rlim_cur);
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 1;
    errno = EMFILE; /* the caller reports this error, not that of setrlimit */
    return 0;
}

static tutti_status_t too_few(uint32_t count, uint32_t opened)
{
    struct rlimit limit = { 0, 0 };
    int error = errno;

    getrlimit(RLIMIT_NOFILE, &limit);
    errno = error;
    return tutti__fail_errno(
        "%u more files are needed, %u can be opened; the limit is %llu (ulimit "
        "-n)",
        count, opened, (unsigned long long)limit.rlim_cur);
}

/* The limit of descriptors does not show how many descriptors are free. So this function opens
   `count` descriptors as a trial, and closes them again. */
tutti_status_t tutti__net_files_left(uint32_t count)
{
    int *fds = calloc(count, sizeof(*fds));
    tutti_status_t status = TUTTI_OK;
    uint32_t opened = 0;

    if (fds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "table of %u descriptors", count);
    pthread_once(&trial_once, register_trial);
    lock_trial();
    while (opened < count && status == TUTTI_OK) {
        fds[opened] = eventfd(0, EFD_CLOEXEC);
        if (fds[opened] >= 0)
            opened++;
        else if (errno != EMFILE || !raise_limit(count - opened))
            status = too_few(count, opened);
    }
    while (opened > 0)
        close(fds[--opened]);
    unlock_trial();
    free(fds);
    return status;
}

void tutti__net_files_settle(void)
{
    lock_trial();
    unlock_trial();
}

tutti_status_t tutti__net_random(void *ret_bytes, size_t bytes)
{
    char *at = ret_bytes;

    while (bytes > 0) {
        ssize_t n = getrandom(at, bytes, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tutti__fail_errno("getrandom");
        at += n;
        bytes -= (size_t)n;
    }
    return TUTTI_OK;
}

void tutti__net_list_ranks(const unsigned char *listed, uint32_t size, char *ret_text,
                           size_t text_bytes)
{
    enum {
        SHOWN = 12
    };
    uint32_t count = 0, done = 0;
    size_t used;

    for (uint32_t r = 0; r < size; r++)
        count += listed[r] != 0;
    used = (size_t)snprintf(ret_text, text_bytes, count == 1 ? "rank" : "ranks");
    for (uint32_t r = 0; r < size && done < SHOWN && used < text_bytes; r++) {
        const char *before = done == 0 ? " " : done + 1 == count ? " and " : ", ";

        if (!listed[r])
            continue;
        used += (size_t)snprintf(ret_text + used, text_bytes - used, "%s%u", before, r);
        done++;
    }
    if (done < count && used < text_bytes)
        snprintf(ret_text + used, text_bytes - used, " and %u more", count - done);
}

/* Returns the name of the other end for messages: "rank 3", or the maker of the unique id. */
static const char *name_peer(uint32_t rank, char *text, size_t text_bytes)
{
    if (rank == TUTTI__NET_MAKER)
        return "the process that made the unique id";
    snprintf(text, text_bytes, "rank %u", rank);
    return text;
}

tutti_status_t tutti__net_poll(struct pollfd *fds, uint32_t nfds, uint64_t deadline, int *ret_ready)
{
    int is_watched = watch.check[0] != NULL || watch.check[1] != NULL;

    for (;;) {
        int left_ms = tutti__net_left_ms(deadline);
        int n = poll(fds, nfds, is_watched ? TUTTI__MIN(left_ms, TUTTI__NET_CHECK_MS) : left_ms);
        tutti_status_t status;

        if (n < 0 && errno != EINTR)
            return tutti__fail_errno("poll");
        if (n > 0 || left_ms == 0) {
            *ret_ready = TUTTI__MAX(n, 0);
            return TUTTI_OK;
        }
        status = tutti__net_still();
        if (status != TUTTI_OK)
            return status;
    }
}

tutti_status_t tutti__net_wait(int fd, uint32_t rank, short events, uint64_t deadline)
{
    struct pollfd pfd = { fd, events, 0 };
    tutti_status_t status;
    char who[24];
    int ready;

    status = tutti__net_poll(&pfd, 1, deadline, &ready);
    if (status != TUTTI_OK || ready > 0)
        return status;
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not answer in time",
                       name_peer(rank, who, sizeof(who)));
}

static tutti_status_t closed(uint32_t rank)
{
    char who[24];

    return tutti__fail(TUTTI_ERR_PEER_LOST, "%s closed its connection",
                       name_peer(rank, who, sizeof(who)));
}

int tutti__net_is_lost(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH ||
           error == ENETUNREACH || error == EHOSTDOWN;
}

static tutti_status_t broken(uint32_t rank, const char *what)
{
    char who[24];

    if (tutti__net_is_lost(errno))
        return closed(rank);
    return tutti__fail_errno("%s %s", what, name_peer(rank, who, sizeof(who)));
}

tutti_status_t tutti__net_send(int fd, uint32_t rank, const void *data, size_t bytes,
                               uint64_t deadline)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        tutti_status_t status;

        if (n >= 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            status = tutti__net_wait(fd, rank, POLLOUT, deadline);
            if (status != TUTTI_OK)
                return status;
        } else if (errno != EINTR) {
            return broken(rank, "send to");
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti__net_recv(int fd, uint32_t rank, void *ret_data, size_t bytes,
                               uint64_t deadline)
{
    char *at = ret_data;

    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
        tutti_status_t status;

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n == 0) {
            return closed(rank);
        } else if (errno == EAGAIN) {
            status = tutti__net_wait(fd, rank, POLLIN, deadline);
            if (status != TUTTI_OK)
                return status;
        } else if (errno != EINTR) {
            return broken(rank, "receive from");
        }
    }
    return TUTTI_OK;
}

/* An abstract address begins with a 0 byte and has an explicit length. */
static socklen_t unix_address(const void *name, size_t name_bytes, struct sockaddr_un *ret_addr)
{
    memset(ret_addr, 0, sizeof(*ret_addr));
    ret_addr->sun_family = AF_UNIX;
    memcpy(ret_addr->sun_path + 1, name, name_bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + name_bytes);
}

static tutti_status_t unix_socket(size_t name_bytes, int *ret_fd)
{
    int fd = -1;

    if (name_bytes > TUTTI__NET_NAME_BYTES)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a socket's name has at most %d bytes",
                           TUTTI__NET_NAME_BYTES);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return tutti__fail_errno("unix socket");
    *ret_fd = fd;
    return TUTTI_OK;
}

tutti_status_t tutti__net_unix_listen(const void *name, size_t name_bytes, int *ret_fd)
{
    struct sockaddr_un addr;
    tutti_status_t status;
    int fd = -1;

    status = unix_socket(name_bytes, &fd);
    if (status != TUTTI_OK)
        return status;
    if (bind(fd, (struct sockaddr *)&addr, unix_address(name, name_bytes, &addr)) != 0) {
        status = tutti__fail_errno("bind unix socket");
        goto close_fd;
    }
    if (listen(fd, SOMAXCONN) != 0) {
        status = tutti__fail_errno("listen on unix socket");
        goto close_fd;
    }
    *ret_fd = fd;
    return TUTTI_OK;

close_fd:
    close(fd);
    return status;
}

/* connect() of a Unix socket succeeds or fails at once. EAGAIN: the listener's queue is full. */
tutti_status_t tutti__net_unix_connect(const void *name, size_t name_bytes, int patient,
                                       uint64_t deadline, int *ret_fd)
{
    struct sockaddr_un addr;
    socklen_t addr_bytes;
    tutti_status_t status;
    unsigned pause_ms = TUTTI__UNIX_PAUSE_MS;
    int fd = -1;

    status = unix_socket(name_bytes, &fd);
    if (status != TUTTI_OK)
        return status;
    addr_bytes = unix_address(name, name_bytes, &addr);
    while (connect(fd, (struct sockaddr *)&addr, addr_bytes) != 0) {
        if (errno != EAGAIN && errno != EINTR && !(errno == ECONNREFUSED && patient)) {
            status = tutti__fail_errno("connect unix socket");
            /* The listener has ended: it opens its socket before it sends the socket's name. */
            if (errno == ECONNREFUSED)
                status = TUTTI_ERR_PEER_LOST;
            goto close_fd;
        }
        if (tutti__net_left_ms(deadline) == 0) {
            status = tutti__fail(TUTTI_ERR_TIMEOUT, "nobody listened at the unix socket in time");
            goto close_fd;
        }
        tutti__net_sleep_ms(pause_ms);
        status = tutti__net_still();
        if (status != TUTTI_OK)
            goto close_fd;
        pause_ms = TUTTI__MIN(2 * pause_ms, TUTTI__UNIX_PAUSE_MOST_MS);
    }
    *ret_fd = fd;
    return TUTTI_OK;

close_fd:
    close(fd);
    return status;
}

tutti_status_t tutti__net_same_user(int fd)
{
    struct ucred cred = { 0 };
    socklen_t bytes = sizeof(cred);
    int domain = 0;
    socklen_t domain_bytes = sizeof(domain);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0)
        return tutti__fail_errno("SO_DOMAIN");
    if (domain != AF_UNIX)
        return TUTTI_OK;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
        return tutti__fail_errno("SO_PEERCRED");
    if (cred.uid != geteuid())
        return tutti__fail(TUTTI_ERR_TRANSPORT, "the unix socket's other end belongs to user %u",
                           (unsigned)cred.uid);
    return TUTTI_OK;
}
