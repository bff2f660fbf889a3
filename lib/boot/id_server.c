/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes unique ids, and serves the meeting of each id. See meet.h; meet_id.c is the ranks' side.
 *
 * Any rank, or the parent of the ranks, may have made the id, but rank 0 hosts the meeting. So the
 * maker only introduces the ranks: it waits until all ranks have connected, receives rank 0's
 * place (its address and token), and sends the place to all ranks.
 *
 *     rank r -- knock as r of n ---------> maker        (see gate.h)
 *     rank 0 -- {status, text, place} ---> maker
 *     rank r <-- {status, text, place} --- maker        then rank r joins rank 0
 *     rank r -- {status, text} ----------> maker        rank r has joined, or has failed
 *
 * Until all ranks have joined, the maker watches the connections. The ranks that have joined wait
 * in rank 0's meeting for the missing ranks. So if a rank ends before its last message, or cannot
 * join, the maker reports this to the other ranks. If the maker is itself a rank, the maker also
 * sends its own rank number. So if the maker ends, the other ranks can name it.
 *
 * Each id has a thread, because ranks may connect at any time. After the meeting the thread still
 * answers: a rank that uses the id again receives an error at once. The thread ends with
 * tutti_finalize or with the process. A forked child closes its copies of the sockets.
 *
 * Tried: no thread; the maker serves the id during tutti_init. This works only if the maker is a
 * rank. But a launcher that makes the id and forks the ranks is not a rank.
 */
#include "boot/id_wire.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/status.h"
#include "boot/waiting.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct server {
    struct server *next;
    tutti__gate_t gate;
    int door, stop;
    uint64_t timeout_ms, stall_ms;
    _Atomic uint32_t rank; /* this process's rank in the meeting; set by tutti__meet_id */
    /* The ranks' connections, which the thread uses while ranks meet. The pointer is here, so that
       a leak checker in a forked child finds the memory. */
    int *fds;
    pthread_t thread;
} server_t;

/* Protects the list `servers`. fork() holds this lock while it copies the process. tutti__id_create
   holds the lock while it opens the sockets and starts the thread; other code holds the lock only
   for short times. The holder takes no other lock than the log's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static server_t *servers;
static server_t *inherited; /* in a forked child: the parent's servers, for leak checkers */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static int is_stream(int fd)
{
    int type = 0;
    socklen_t bytes = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

static int local_port(int fd)
{
    struct sockaddr_storage addr;
    socklen_t bytes = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) != 0)
        return -1;
    if (addr.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&addr)->sin_port);
    return addr.ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)&addr)->sin6_port) : -1;
}

/* In a forked child: close the accepted sockets, which have the port of the listening socket. The
   child compares the ports of all its stream sockets. It does not read the thread's list of
   sockets, because the thread may have been writing this list when the process forked. */
static void close_accepted(int door)
{
    int port = local_port(door);
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (dir != NULL && port > 0 && (entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);

        if (fd > STDERR_FILENO && fd != door && is_stream(fd) && local_port(fd) == port)
            close(fd);
    }
    if (dir != NULL)
        closedir(dir);
}

/* In a forked child: close the sockets of the servers. If the child kept a rank's connection open,
   this rank would not detect the maker's end. */
static void in_child(void)
{
    for (server_t *server = servers; server != NULL; server = server->next) {
        close_accepted(server->door);
        close(server->door);
        close(server->stop);
    }
    if (servers != NULL)
        inherited = servers;
    servers = NULL;
    pthread_mutex_unlock(&lock);
}

static void register_handlers(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

/* Send a message to all ranks that have connected. Ignore errors of sending, because the meeting
   detects the end of a rank. */
static void tell_all(const int *fds, uint32_t size, const tutti__id_word_t *word)
{
    for (uint32_t r = 0; r < size; r++)
        if (fds[r] >= 0)
            (void)tutti__net_send(fds[r], r, word, sizeof(*word),
                                  tutti__net_deadline(TUTTI__ID_MESSAGE_MS));
}

/* The gate has admitted `rank`. If the maker is a rank, send the maker's rank number: to all ranks
   if `rank` is the maker, otherwise to `rank`. */
static void introduce_maker(void *arg, uint32_t rank, const int *fds, uint32_t size)
{
    server_t *server = arg;
    tutti__id_word_t word = { .status = TUTTI__AGAIN, .maker = server->rank };

    if (word.maker >= size)
        return;
    if (rank == word.maker)
        tell_all(fds, size, &word);
    else
        tell_all(&fds[rank], 1, &word);
}

static void set_word(tutti__id_word_t *word, tutti_status_t status, const char *text)
{
    word->status = (int32_t)status;
    snprintf(word->text, sizeof(word->text), "%.246s", text);
}

/* Receive rank r's last message, or detect rank r's end. Returns TUTTI_OK if rank r has joined. */
static tutti_status_t receive_report(int fd, uint32_t r)
{
    tutti__id_report_t report;
    tutti_status_t status =
        tutti__net_recv(fd, r, &report, sizeof(report), tutti__net_deadline(TUTTI__ID_MESSAGE_MS));

    if (status == TUTTI_ERR_PEER_LOST)
        return tutti__fail(status, "rank %u ended while ranks met", r);
    if (status == TUTTI_OK && report.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)report.status, "%.*s", (int)sizeof(report.text),
                           report.text);
    return status;
}

/* Close the connection of a rank that needs no further message. */
static void close_rank(int *fd)
{
    if (*fd < 0)
        return;
    shutdown(*fd, SHUT_WR); /* a forked child may hold the socket open */
    close(*fd);
    *fd = TUTTI__GATE_NOBODY;
}

/* Wait until all ranks have joined rank 0, or a rank has failed. polls: [size + 1] */
static tutti_status_t await_reports(server_t *server, uint32_t size, struct pollfd *polls,
                                    uint64_t deadline)
{
    uint32_t left = size;

    polls[size] = (struct pollfd){ server->stop, POLLIN, 0 };
    while (left > 0) {
        tutti_status_t status;
        int ready;

        for (uint32_t r = 0; r < size; r++)
            polls[r] = (struct pollfd){ server->fds[r], POLLIN, 0 };
        status = tutti__net_poll(polls, size + 1, deadline, &ready);
        if (status != TUTTI_OK)
            return status;
        for (uint32_t r = 0; r < size; r++) {
            if (polls[r].fd < 0 || polls[r].revents == 0)
                continue;
            status = receive_report(server->fds[r], r);
            close_rank(&server->fds[r]);
            if (status != TUTTI_OK)
                return status;
            left--;
        }
        /* After the deadline the maker does not report: each rank itself detects the missing
           ranks. */
        if (left > 0 && (ready == 0 || polls[size].revents != 0))
            return TUTTI_OK;
    }
    return TUTTI_OK;
}

/* After all ranks have received the place: watch the ranks join. */
static void follow(server_t *server, uint32_t size, tutti__id_word_t *word)
{
    struct pollfd *polls = calloc((size_t)size + 1, sizeof(*polls));
    tutti_status_t status = TUTTI_OK;

    if (polls != NULL)
        status = await_reports(server, size, polls, tutti__net_deadline(server->timeout_ms));
    free(polls);
    if (status == TUTTI_OK)
        return;
    set_word(word, status, tutti_last_error());
    tell_all(server->fds, size, word);
}

static void introduce(server_t *server, tutti__id_word_t *ret_word)
{
    tutti_status_t status;
    uint32_t size;

    memset(ret_word, 0, sizeof(*ret_word));
    status = tutti__gate_admit_all(&server->gate, server->door, server->stop, server->timeout_ms,
                                   &size, &server->fds);
    if (status == TUTTI_OK)
        status = tutti__net_recv(server->fds[0], 0, ret_word, sizeof(*ret_word),
                                 tutti__net_deadline(TUTTI__ID_MESSAGE_MS));
    if (status == TUTTI_ERR_SHUTDOWN)
        set_word(ret_word, status, "the process that made the unique id has called tutti_finalize");
    else if (status != TUTTI_OK)
        set_word(ret_word, status, tutti_last_error());
    ret_word->maker = server->rank;
    tell_all(server->fds, size, ret_word);
    if (ret_word->status == TUTTI_OK)
        follow(server, size, ret_word);
    for (uint32_t r = 0; r < size; r++)
        close_rank(&server->fds[r]);
    free(server->fds);
    server->fds = NULL;
}

static void *server_main(void *arg)
{
    server_t *server = arg;
    char text[400];
    tutti__id_word_t word;

    tutti__waiting_every(server->stall_ms);
    introduce(server, &word);
    if (word.status == TUTTI_ERR_SHUTDOWN)
        return NULL;
    if (word.status == TUTTI_OK)
        snprintf(text, sizeof(text), "the unique id was used already: it serves one tutti_init");
    else
        snprintf(text, sizeof(text), "the unique id was used already, and that failed: %.248s",
                 word.text);
    tutti__gate_refuse(&server->gate, server->door, server->stop, text);
    return NULL;
}

static void free_server(server_t *server)
{
    if (server->door >= 0)
        close(server->door);
    if (server->stop >= 0)
        close(server->stop);
    free(server);
}

static tutti_status_t start_thread(server_t *server)
{
    int error = tutti__thread_launch(server_main, server, &server->thread);

    if (error != 0) {
        errno = error;
        return tutti__fail_errno("the unique id's thread");
    }
    pthread_setname_np(server->thread, "tutti-id");
    return TUTTI_OK;
}

/* Listen, and start the thread. The caller holds the lock until the server is in the list. So a
   forked child finds all open sockets through the list. */
static tutti_status_t open_server(server_t *server, const tutti__conf_t *conf, tutti__id_t *id)
{
    tutti_status_t status = tutti__net_addrs(conf->interface, 0, &id->addrs);

    /* Without a network, all ranks must be on this machine: use the loopback interface. */
    if (status == TUTTI_ERR_UNSUPPORTED && conf->interface[0] == '\0')
        status = tutti__net_addrs("", 1, &id->addrs);
    if (status == TUTTI_OK)
        status = tutti__net_random(&id->token, sizeof(id->token));
    if (status == TUTTI_OK)
        status = tutti__net_tcp_listen(&id->addrs, &server->door);
    if (status != TUTTI_OK)
        return status;
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->stop < 0)
        return tutti__fail_errno("eventfd");
    server->gate = (tutti__gate_t){ .purpose = TUTTI__GATE_ID,
                                    .strict = 1,
                                    .token = id->token,
                                    .came = introduce_maker,
                                    .came_arg = server };
    server->rank = TUTTI__NO_RANK;
    server->timeout_ms = conf->shared.timeout_ms;
    server->stall_ms = conf->shared.stall_ms;
    return start_thread(server);
}

tutti_status_t tutti__id_create(const tutti__conf_t *conf, tutti_unique_id_t *ret_id)
{
    server_t *server = calloc(1, sizeof(*server));
    tutti_status_t status;
    tutti__id_t id;

    if (server == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "unique id");
    server->door = server->stop = -1;
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&lock);
    status = open_server(server, conf, &id);
    if (status == TUTTI_OK) {
        server->next = servers;
        servers = server;
    }
    pthread_mutex_unlock(&lock);
    if (status != TUTTI_OK) {
        free_server(server);
        return status;
    }
    tutti__id_encode(&id, ret_id);
    return TUTTI_OK;
}

static server_t *first_server(void)
{
    server_t *server;

    pthread_mutex_lock(&lock);
    server = servers;
    pthread_mutex_unlock(&lock);
    return server;
}

/* A server stays in the list until its sockets are closed, because a forked child closes them. */
void tutti__id_end_all(void)
{
    uint64_t one = 1;
    server_t *server;

    while ((server = first_server()) != NULL) {
        if (write(server->stop, &one, sizeof(one)) != sizeof(one))
            TUTTI__LOG(TUTTI__LOG_WARN, "a unique id's thread cannot be told to end");
        pthread_join(server->thread, NULL);
        pthread_mutex_lock(&lock);
        for (server_t **at = &servers; *at != NULL; at = &(*at)->next) {
            if (*at == server) {
                *at = server->next;
                break;
            }
        }
        free_server(server);
        pthread_mutex_unlock(&lock);
    }
}

void tutti__id_set_rank(const tutti__id_t *id, uint32_t rank)
{
    pthread_mutex_lock(&lock);
    for (server_t *server = servers; server != NULL; server = server->next)
        if (memcmp(&server->gate.token, &id->token, sizeof(id->token)) == 0)
            server->rank = rank;
    pthread_mutex_unlock(&lock);
}
