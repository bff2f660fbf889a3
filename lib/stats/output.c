/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The statistics that a process shows: the table of a communicator, the file and the endpoint.
 *
 * File and endpoint show all communicators of the process, because a process has one file name and
 * one port, but may have many communicators: a world and its groups, or a framework's connected
 * communicators. The newest TUTTI__STATS_ENDED communicators that have ended are shown until the
 * last communicator ends, so that a collector does not lose their last counters.
 *
 * One thread, "tutti-stats", serves the file and the endpoint. The thread exists only if one of the
 * two is wanted. It sleeps until the next write of the file, or until a client connects. Tried: the
 * engine's thread. With one rank there is no such thread, and a file system that hangs would stop
 * the job's progress.
 *
 * All sockets are non-blocking, so a slow client delays no other client. A client that does not
 * finish in time is disconnected. After a failure there is one warning: statistics never end a job.
 * If the thread cannot be started, or its poll fails, the endpoint is closed, and the file is
 * written at the end only.
 *
 * A forked child has no such thread. The child closes the sockets, which belong to its parent, and
 * forgets its parent's communicators. The child's own communicators start a new output.
 */
#include "stats/stats_inside.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/time.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Held while a communicator enters or leaves the list, while the thread is joined, and across a
   fork. */
static pthread_mutex_t change = PTHREAD_MUTEX_INITIALIZER;
/* Protects the variables below. Exceptions: `change` protects is_started, has_thread and `thread`;
   `file` changes only while the thread does not run; while the thread runs, only the thread uses
   has_warned. This lock is taken after `change`, and held across a fork. While it is held, only the
   locks of counters are taken. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tutti__stats_t *list;      /* all communicators, oldest first */
static tutti__stats_t *inherited; /* in a child: its parent's list, for leak checkers */
static unsigned live, ended;      /* communicators in the list */
static unsigned last_id;
static char file[4200]; /* "": none */
static int door = -1, stop = -1;
static uint64_t no_client_before_ns; /* after a failure of accept4: when to accept clients again */
static int is_started, has_thread, has_warned;
static pthread_t thread;
static tutti__http_client_t clients[TUTTI__HTTP_CLIENTS]; /* later answers reuse `answer` */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- forks ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&change);
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&change);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void in_child(void)
{
    close_fd(&door);
    close_fd(&stop);
    for (int i = 0; i < TUTTI__HTTP_CLIENTS; i++)
        close_fd(&clients[i].fd);
    if (list != NULL)
        inherited = list;
    list = NULL;
    live = ended = 0;
    is_started = has_thread = has_warned = 0;
    file[0] = '\0';
    after_fork();
}

static void prepare(void)
{
    for (int i = 0; i < TUTTI__HTTP_CLIENTS; i++)
        clients[i].fd = -1;
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- the file ---- */

/* %r in the name stands for the rank. A name without %r is for rank 0 only. */
static void name_file(const tutti__stats_want_t *want)
{
    size_t n = 0;
    int has_rank = 0;

    for (const char *at = want->file; *at != '\0' && n + 16 < sizeof(file); at++) {
        if (at[0] == '%' && at[1] == 'r') {
            n += (size_t)snprintf(file + n, sizeof(file) - n, "%u", want->rank);
            has_rank = 1;
            at++;
        } else {
            file[n++] = *at;
        }
    }
    file[has_rank || want->rank == 0 ? n : 0] = '\0';
}

static void warn(const char *what, const char *name)
{
    if (!has_warned)
        TUTTI__LOG(TUTTI__LOG_WARN, "statistics: %s %s: %s", what, name, strerror(errno));
    has_warned = 1;
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        text += n;
        bytes -= (size_t)n;
    }
    return 1;
}

/* Readers see the old file or the new file, never a part. The caller does not hold `lock`. */
static void write_file(void)
{
    char temporary[sizeof(file) + 8];
    tutti__stats_text_t text = { .at = NULL };
    int fd, is_written;

    pthread_mutex_lock(&lock);
    tutti__stats_metrics(list, &text);
    pthread_mutex_unlock(&lock);
    snprintf(temporary, sizeof(temporary), "%s.tmp", file);
    fd = text.failed ? -1 : open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (text.failed)
        errno = ENOMEM;
    is_written = fd >= 0 && write_all(fd, text.at, text.bytes);
    if (fd >= 0)
        is_written &= close(fd) == 0;
    if (!is_written || rename(temporary, file) != 0)
        warn("cannot write", file);
    else
        has_warned = 0;
    free(text.at);
}

/* ---- clients; the caller holds `lock`, except for close_door ---- */

static void close_client(tutti__http_client_t *client)
{
    close_fd(&client->fd);
}

/* Disconnect all clients, and refuse new clients. The caller does not hold `lock`. */
static void close_door(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < TUTTI__HTTP_CLIENTS; i++) {
        close_client(&clients[i]);
        free(clients[i].answer.at);
        clients[i].answer = (tutti__stats_text_t){ .at = NULL };
    }
    close_fd(&door);
    pthread_mutex_unlock(&lock);
}

/* If accept4 fails, for example because the process has no descriptor left, the client stays in the
   socket's backlog, and poll would return at once. So the next try is some time later. */
static void accept_clients(void)
{
    int fd;

    for (int i = 0; i < TUTTI__HTTP_CLIENTS; i++) {
        tutti__http_client_t *client = &clients[i];

        if (client->fd >= 0)
            continue;
        fd = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                no_client_before_ns = tutti__now_ns() + TUTTI__STATS_CLIENT_MS * 1000000u;
            return;
        }
        client->fd = fd;
        client->is_answered = 0;
        client->got = client->sent = 0;
        client->until_ns = tutti__now_ns() + TUTTI__STATS_CLIENT_MS * 1000000u;
    }
}

static void answer(tutti__http_client_t *client, tutti__http_asks_t asks)
{
    tutti__stats_text_t metrics = { .at = NULL };

    if (asks == TUTTI__HTTP_METRICS)
        tutti__stats_metrics(list, &metrics);
    client->answer.bytes = 0;
    client->answer.failed = 0;
    if (!metrics.failed)
        tutti__http_answer(asks, &metrics, &client->answer);
    free(metrics.at);
    client->is_answered = 1;
    if (metrics.failed || client->answer.failed)
        close_client(client);
}

/* Read the next bytes of a client's request. */
static void receive(tutti__http_client_t *client)
{
    ssize_t n = recv(client->fd, client->request + client->got,
                     sizeof(client->request) - client->got, MSG_DONTWAIT);
    tutti__http_asks_t asks;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_client(client);
        return;
    }
    client->got += (size_t)n;
    asks = tutti__http_parse(client->request, client->got, client->got == sizeof(client->request));
    if (asks != TUTTI__HTTP_MORE)
        answer(client, asks);
}

/* Send as much of the answer as the socket takes. After the last byte, read what the client has
   sent behind its request, at most 16 pieces, and close the connection: closing a socket with
   unread bytes would discard the answer. */
static void reply(tutti__http_client_t *client)
{
    const tutti__stats_text_t *text = &client->answer;
    ssize_t n = send(client->fd, text->at + client->sent, text->bytes - client->sent,
                     MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        client->sent += (size_t)n;
    if (n >= 0 && client->sent < text->bytes)
        return;
    for (int i = 0; i < 16; i++)
        if (recv(client->fd, client->request, sizeof(client->request), MSG_DONTWAIT) <= 0)
            break;
    close_client(client);
}

static void serve(tutti__http_client_t *client, uint64_t now)
{
    if (!client->is_answered)
        receive(client);
    if (client->fd >= 0 && client->is_answered)
        reply(client);
    if (client->fd >= 0 && now >= client->until_ns)
        close_client(client);
}

/* ---- the thread ---- */

enum {
    STOP,
    DOOR,
    FIRST_CLIENT,
    POLLS = FIRST_CLIENT + TUTTI__HTTP_CLIENTS
};

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return TUTTI__MIN(a, b);
}

/* List the descriptors on which the thread sleeps. If a client must be disconnected, or may be
   accepted, before *ret_until, set *ret_until to that time. If all places are taken, new clients
   wait in the socket's backlog. */
static void look(struct pollfd polls[POLLS], uint64_t *ret_until)
{
    int is_free = 0, is_early;

    pthread_mutex_lock(&lock);
    is_early = tutti__now_ns() < no_client_before_ns;
    if (is_early)
        *ret_until = sooner(*ret_until, no_client_before_ns);
    for (int i = 0; i < TUTTI__HTTP_CLIENTS; i++) {
        const tutti__http_client_t *client = &clients[i];

        is_free |= client->fd < 0;
        polls[FIRST_CLIENT + i] =
            (struct pollfd){ client->fd, client->is_answered ? POLLOUT : POLLIN, 0 };
        if (client->fd >= 0)
            *ret_until = sooner(*ret_until, client->until_ns);
    }
    polls[STOP] = (struct pollfd){ stop, POLLIN, 0 };
    polls[DOOR] = (struct pollfd){ is_free && !is_early ? door : -1, POLLIN, 0 };
    pthread_mutex_unlock(&lock);
}

static void serve_all(const struct pollfd polls[POLLS])
{
    uint64_t now = tutti__now_ns();

    pthread_mutex_lock(&lock);
    for (int i = 0; i < TUTTI__HTTP_CLIENTS; i++)
        if (clients[i].fd >= 0 && (polls[FIRST_CLIENT + i].revents || now >= clients[i].until_ns))
            serve(&clients[i], now);
    if (polls[DOOR].revents)
        accept_clients();
    pthread_mutex_unlock(&lock);
}

/* The timeout of poll, in milliseconds; -1: none. */
static int limit_ms(uint64_t until)
{
    uint64_t now = tutti__now_ns();

    if (until == UINT64_MAX)
        return -1;
    return until <= now ? 0 : (int)TUTTI__MIN((until - now) / 1000000u + 1, TUTTI__STATS_FILE_MS);
}

static void *thread_main(void *arg)
{
    uint64_t due = file[0] != '\0' ? 0 : UINT64_MAX;
    struct pollfd polls[POLLS];

    (void)arg;
    tutti__thread_set_own();
    for (;;) {
        uint64_t until = due;

        look(polls, &until);
        if (poll(polls, POLLS, limit_ms(until)) < 0) {
            if (errno == EINTR)
                continue;
            warn("cannot wait", "for clients");
            close_door();
            return NULL;
        }
        if (polls[STOP].revents)
            return NULL;
        serve_all(polls);
        if (tutti__now_ns() < due)
            continue;
        write_file();
        due = tutti__now_ns() + TUTTI__STATS_FILE_MS * 1000000u;
    }
}

/* ---- start and end; under `change` ---- */

static void open_door(const tutti__stats_want_t *want)
{
    int64_t port = (int64_t)want->port + want->local_rank;
    char name[48];
    int fd;

    snprintf(name, sizeof(name), "127.0.0.1:%lld", (long long)port);
    errno = EADDRNOTAVAIL;
    fd = port > 65535 ? -1 : tutti__http_listen((int)port);
    if (fd < 0)
        warn("cannot listen at", name);
    pthread_mutex_lock(&lock);
    door = fd;
    no_client_before_ns = 0;
    pthread_mutex_unlock(&lock);
}

static void start(const tutti__stats_want_t *want)
{
    int error;

    is_started = 1;
    has_warned = 0;
    name_file(want);
    if (want->port >= 0)
        open_door(want);
    if (file[0] == '\0' && door < 0)
        return;
    pthread_mutex_lock(&lock);
    stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_unlock(&lock);
    error = stop < 0 ? errno : tutti__thread_launch(thread_main, NULL, &thread);
    has_thread = error == 0;
    if (has_thread) {
        pthread_setname_np(thread, "tutti-stats");
        return;
    }
    errno = error;
    warn("cannot start", "their thread");
    close_door(); /* otherwise clients would connect, and wait for an answer */
}

static void end(void)
{
    uint64_t word = 1;
    tutti__stats_t *next;

    if (has_thread && write(stop, &word, sizeof(word)) == sizeof(word))
        pthread_join(thread, NULL);
    is_started = has_thread = 0;
    if (file[0] != '\0')
        write_file();
    close_door();
    pthread_mutex_lock(&lock);
    close_fd(&stop);
    for (; list != NULL; list = next) {
        next = list->next;
        tutti__stats_free(list);
    }
    live = ended = 0;
    file[0] = '\0';
    pthread_mutex_unlock(&lock);
}

/* Forget the oldest communicator that has ended. The caller holds `lock`. */
static void forget_oldest(void)
{
    tutti__stats_t **at = &list, *oldest;

    while (!(*at)->has_ended)
        at = &(*at)->next;
    oldest = *at;
    *at = oldest->next;
    tutti__stats_free(oldest);
    ended--;
}

static void enter(tutti__stats_t *stats, const tutti__stats_want_t *want)
{
    tutti__stats_t **at = &list;

    pthread_once(&once, prepare); /* first, so that no fork copies `change` while it is held */
    pthread_mutex_lock(&change);
    if (!is_started)
        start(want);
    pthread_mutex_lock(&lock);
    stats->id = ++last_id;
    stats->is_listed = 1;
    while (*at != NULL)
        at = &(*at)->next;
    *at = stats;
    live++;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&change);
}

static void leave(tutti__stats_t *stats)
{
    int is_last;

    pthread_mutex_lock(&change);
    pthread_mutex_lock(&lock);
    assert(live > 0 && !stats->has_ended);
    stats->has_ended = 1;
    live--;
    ended++;
    is_last = live == 0;
    if (!is_last && ended > TUTTI__STATS_ENDED)
        forget_oldest();
    pthread_mutex_unlock(&lock);
    if (is_last)
        end();
    pthread_mutex_unlock(&change);
}

/* ---- one communicator ---- */

tutti__stats_t *tutti__stats_open(const tutti__stats_want_t *want)
{
    tutti__stats_t *stats = calloc(1, sizeof(*stats));

    if (stats == NULL)
        return NULL;
    tutti__mutex_init(&stats->phases.lock, TUTTI__LOCK_STATS);
    stats->opened_ns = stats->phases.since_ns = tutti__now_ns();
    stats->is_timed = want->is_timed;
    stats->prints = want->prints;
    stats->rank = want->rank;
    stats->size = want->size;
    snprintf(stats->name, sizeof(stats->name), "%s", want->name);
    if (want->file[0] != '\0' || want->port >= 0)
        enter(stats, want);
    return stats;
}

void tutti__stats_close(tutti__stats_t *stats)
{
    tutti__stats_text_t text = { .at = NULL };

    if (stats == NULL)
        return;
    tutti__stats_in_flight(stats, 0);
    if (stats->prints)
        tutti__stats_summary(stats, &text);
    if (text.at != NULL)
        tutti__log_text(text.at);
    free(text.at);
    if (stats->is_listed)
        leave(stats);
    else
        tutti__stats_free(stats);
}
