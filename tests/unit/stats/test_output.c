/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of the statistics cannot be made, or it cannot poll. Then the process ends its output
 * as usual, and clients are refused at once: no socket listens without a thread that accepts.
 */
#include "stats/stats.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LIMIT_S = 60
};

static int launch_error, eventfd_error; /* 0: the call succeeds */
static atomic_int poll_error, polls;

/* ---- calls that fail ---- */

int __real_tutti__thread_launch(void *(*run)(void *arg), void *arg, pthread_t *ret_thread);
int __wrap_tutti__thread_launch(void *(*run)(void *arg), void *arg, pthread_t *ret_thread);

int __wrap_tutti__thread_launch(void *(*run)(void *arg), void *arg, pthread_t *ret_thread)
{
    return launch_error != 0 ? launch_error : __real_tutti__thread_launch(run, arg, ret_thread);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);

int __wrap_eventfd(unsigned value, int flags)
{
    if (eventfd_error == 0)
        return __real_eventfd(value, flags);
    errno = eventfd_error;
    return -1;
}

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int error = atomic_load(&poll_error);

    atomic_fetch_add(&polls, 1);
    if (error == 0)
        return __real_poll(fds, n, timeout_ms);
    errno = error;
    return -1;
}

/* ---- helpers ---- */

static struct sockaddr_in address(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)port) };
}

/* Another port in each call, below those that the system gives to outgoing connections. */
static int free_port(void)
{
    static int port;
    int rc = -1, fd, on = 1;

    if (port == 0)
        port = 20000 + getpid() % 5000 * 2;
    while (rc != 0) {
        struct sockaddr_in at = address(++port);

        assert_true(port < 32000);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        rc = bind(fd, (struct sockaddr *)&at, sizeof(at));
        close(fd);
    }
    return port;
}

static int is_refused(int port)
{
    struct sockaddr_in at = address(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int rc = connect(fd, (struct sockaddr *)&at, sizeof(at)), error = errno;

    close(fd);
    return rc < 0 && error == ECONNREFUSED;
}

static tutti__stats_t *open_stats(int port)
{
    const tutti__stats_want_t want = { .size = 1, .name = "world", .file = "", .port = port };
    tutti__stats_t *stats = tutti__stats_open(&want);

    assert_non_null(stats);
    return stats;
}

/* ---- tests ---- */

static void test_served(void **state)
{
    int port = free_port();
    tutti__stats_t *stats = open_stats(port);

    (void)state;
    assert_false(is_refused(port));
    tutti__stats_close(stats);
    assert_true(is_refused(port));
}

static void test_no_thread(void **state)
{
    int port = free_port();
    tutti__stats_t *stats;

    (void)state;
    launch_error = EAGAIN;
    stats = open_stats(port);
    launch_error = 0;
    assert_true(is_refused(port));
    tutti__stats_close(stats);
}

static void test_no_eventfd(void **state)
{
    int port = free_port();
    tutti__stats_t *stats;

    (void)state;
    eventfd_error = EMFILE;
    stats = open_stats(port);
    eventfd_error = 0;
    assert_true(is_refused(port));
    tutti__stats_close(stats);
}

/* Start with a poll that fails, and wait until it has failed. */
static tutti__stats_t *open_failing(int port, int error)
{
    tutti__stats_t *stats;

    atomic_store(&polls, 0);
    atomic_store(&poll_error, error);
    stats = open_stats(port);
    while (atomic_load(&polls) == 0)
        usleep(1000);
    return stats;
}

static void test_failing_poll(void **state)
{
    int port = free_port();
    tutti__stats_t *stats;

    (void)state;
    alarm(LIMIT_S);
    stats = open_failing(port, EINVAL);
    while (!is_refused(port))
        usleep(1000);
    tutti__stats_close(stats);
    alarm(0);
    atomic_store(&poll_error, 0);
}

/* The thread goes on after an interruption. */
static void test_interrupted_poll(void **state)
{
    int port = free_port();
    tutti__stats_t *stats;

    (void)state;
    alarm(LIMIT_S);
    stats = open_failing(port, EINTR);
    atomic_store(&poll_error, 0);
    assert_false(is_refused(port));
    tutti__stats_close(stats);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_served),           cmocka_unit_test(test_no_thread),
        cmocka_unit_test(test_no_eventfd),       cmocka_unit_test(test_failing_poll),
        cmocka_unit_test(test_interrupted_poll),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
