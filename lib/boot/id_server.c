/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unique ids: making one, serving its meeting, and meeting by it. See meet.h.
 *
 * Any rank may have made the id, or its parent, while rank 0 is the one that hosts. So the maker
 * only introduces: it waits until all have come, takes rank 0's place, and hands it to everybody.
 *
 *     rank r -- knock as r of n ---------> maker        (see gate.h)
 *     rank 0 -- {status, text, place} ---> maker
 *     rank r <-- {status, text, place} --- maker        then rank r joins rank 0
 *
 * One thread for each id, since ranks come when they like. After the meeting it goes on to answer,
 * so that a second use is an error with words and not a wait for nobody. It ends with
 * tutti_finalize, or with the process. A forked child lets go of the sockets, which are its
 * parent's.
 *
 * Tried: no thread, the maker serves while it is in tutti_init. But then the maker must be a rank,
 * and a launcher that makes the id and forks its ranks is not.
 */
#include "boot/meet.h"

#include "base/log.h"
#include "base/status.h"
#include "boot/star.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long a rank may take for what it says, once it is there. */
#define SPEAK_MS 10000u

/* What rank 0 tells, and what all are told. */
typedef struct {
    int32_t status;
    char text[252];
    tutti__venue_t place;
} word_t;

typedef struct server {
    struct server *next;
    tutti__gate_t gate;
    int door, stop;
    uint64_t timeout_ms;
    int *fds; /* the thread's, while ranks meet; here for leak checkers in forked children */
    pthread_t thread;
} server_t;

/* Protects the list. Held across a fork, else for a few instructions; nothing is taken inside. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static server_t *servers;
static server_t *inherited; /* in a child: its parent's, kept where leak checkers find them */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (server_t *server = servers; server != NULL; server = server->next) {
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

/* ---- the maker ---- */

/* To all that have come; who has gone meanwhile is missed in the meeting itself. */
static void tell_all(const int *fds, uint32_t size, const word_t *word)
{
    for (uint32_t r = 0; r < size; r++)
        if (fds[r] >= 0)
            (void)tutti__net_send(fds[r], r, word, sizeof(*word), tutti__net_deadline(SPEAK_MS));
}

static void introduce(server_t *server, word_t *ret_word)
{
    tutti_status_t status;
    uint32_t size;

    memset(ret_word, 0, sizeof(*ret_word));
    status = tutti__gate_admit_all(&server->gate, server->door, server->stop, server->timeout_ms,
                                   &size, &server->fds);
    if (status == TUTTI_OK)
        status = tutti__net_recv(server->fds[0], 0, ret_word, sizeof(*ret_word),
                                 tutti__net_deadline(SPEAK_MS));
    if (status != TUTTI_OK) {
        ret_word->status = (int32_t)status;
        snprintf(ret_word->text, sizeof(ret_word->text), "%.250s",
                 status == TUTTI_ERR_SHUTDOWN
                     ? "the process that made the unique id has called tutti_finalize"
                     : tutti_last_error());
    }
    tell_all(server->fds, size, ret_word);
    for (uint32_t r = 0; r < size; r++) {
        if (server->fds[r] < 0)
            continue;
        shutdown(server->fds[r], SHUT_WR); /* a child forked meanwhile may hold it, too */
        close(server->fds[r]);
    }
    free(server->fds);
    server->fds = NULL;
}

static void *server_main(void *arg)
{
    server_t *server = arg;
    char text[400];
    word_t word;

    introduce(server, &word);
    if (word.status == TUTTI_ERR_SHUTDOWN)
        return NULL;
    if (word.status == TUTTI_OK)
        snprintf(text, sizeof(text), "the unique id was used already: it serves one tutti_init");
    else
        snprintf(text, sizeof(text), "the unique id was used already, and that failed: %.252s",
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

/* All signals are the application's. */
static tutti_status_t start_thread(server_t *server)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&server->thread, NULL, server_main, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return tutti__fail_errno("the unique id's thread");
    }
    pthread_setname_np(server->thread, "tutti-id");
    return TUTTI_OK;
}

/* Listen; under the lock, as all that a fork must find in the list. */
static tutti_status_t open_server(server_t *server, const tutti__conf_t *conf, tutti__id_t *id)
{
    tutti_status_t status = tutti__net_addrs(conf->interface, 0, &id->addrs);

    /* A machine without a network has ranks of its own only. */
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
    server->gate = (tutti__gate_t){ .purpose = TUTTI__GATE_ID, .strict = 1, .token = id->token };
    server->timeout_ms = conf->shared.timeout_ms;
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

/* Servers stay in the list, where a fork finds them, until their sockets are closed. */
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

/* ---- the ranks ---- */

static tutti_status_t reach_maker(const tutti__id_t *id, const tutti__gate_t *gate,
                                  uint64_t deadline, int *ret_fd)
{
    tutti_status_t status =
        tutti__gate_reach(gate, &id->addrs, TUTTI__NET_MAKER, 0, deadline, ret_fd);

    if (status == TUTTI_ERR_TRANSPORT)
        return tutti__fail(status,
                           "the process that made the unique id has ended, or has called "
                           "tutti_finalize: %s",
                           tutti_last_error());
    return status;
}

/* The meeting failed when I was half inside; whoever comes now is told why. */
static tutti_status_t ask_why(const tutti__id_t *id, const tutti__gate_t *gate, uint64_t deadline)
{
    tutti_status_t status;
    int fd;

    status = reach_maker(id, gate, deadline, &fd);
    if (status != TUTTI_OK)
        return status;
    close(fd);
    return tutti__fail(TUTTI_ERR_PEER_LOST, "the process that made the unique id gave up");
}

/* What the maker says, given what I say. Rank 0 has opened a place, or says why not. */
static tutti_status_t ask_maker(const tutti__id_t *id, uint32_t rank, uint32_t size,
                                const word_t *mine, uint64_t deadline, word_t *ret_word)
{
    tutti__gate_t gate = {
        .purpose = TUTTI__GATE_ID, .rank = rank, .size = size, .token = id->token
    };
    tutti_status_t status;
    int fd;

    status = reach_maker(id, &gate, deadline, &fd);
    if (status != TUTTI_OK)
        return status;
    if (rank == 0)
        status = tutti__net_send(fd, TUTTI__NET_MAKER, mine, sizeof(*mine), deadline);
    /* It may have told why it ended the meeting before it closed. */
    if (status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST)
        status = tutti__net_recv(fd, TUTTI__NET_MAKER, ret_word, sizeof(*ret_word), deadline);
    close(fd);
    if (status == TUTTI_ERR_PEER_LOST)
        status = ask_why(id, &gate, deadline);
    if (status == TUTTI_OK && ret_word->status != TUTTI_OK)
        status = tutti__fail((tutti_status_t)ret_word->status, "%.*s", (int)sizeof(ret_word->text),
                             ret_word->text);
    return status;
}

tutti_status_t tutti__meet_id(const tutti_unique_id_t *bytes, const tutti__conf_t *conf,
                              uint32_t rank, uint32_t size, tutti__meet_t *ret_meet)
{
    uint64_t timeout_ms = conf->shared.timeout_ms;
    uint64_t deadline = tutti__net_deadline(tutti__star_patience(timeout_ms));
    tutti_status_t status, mine_status = TUTTI_OK;
    word_t mine, word;
    tutti__id_t id;
    int door = -1;

    status = tutti__id_decode(bytes, &id);
    if (status != TUTTI_OK)
        return status;
    memset(&mine, 0, sizeof(mine));
    if (rank == 0)
        mine_status = tutti__venue_open(conf->interface, 0, &mine.place, &door);
    if (mine_status != TUTTI_OK) {
        mine.status = (int32_t)mine_status;
        snprintf(mine.text, sizeof(mine.text), "rank 0: %.240s", tutti_last_error());
    }
    status = ask_maker(&id, rank, size, &mine, deadline, &word);
    if (status != TUTTI_OK) {
        if (door >= 0)
            close(door);
        return status;
    }
    return rank == 0 ? tutti__venue_host(&mine.place, door, size, timeout_ms, ret_meet)
                     : tutti__venue_join(&word.place, rank, size, timeout_ms, ret_meet);
}
