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
 *     rank r -- {status, text} ----------> maker        has joined, or why not
 *
 * Until all have joined, the maker watches the connections. If a rank ends without that last
 * message, or cannot join, the maker reports it to the others, which wait for that rank at rank 0.
 * If the maker is a rank, it sends its number, so that the others can name the maker if it ends.
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

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
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
/* How long a rank that cannot join waits for the maker's message, which may have the reason. */
#define REASON_MS 1000u

/* Descriptors that a rank needs to meet; rank 0 has one more for each rank. */
#define SPARE_FILES 4u

#define NO_RANK UINT32_MAX

/* From rank 0 to the maker, and from the maker to all ranks. TUTTI__AGAIN: only `maker` counts. */
typedef struct {
    int32_t status;
    uint32_t maker; /* a rank, or NO_RANK */
    char text[248];
    tutti__venue_t place;
} word_t;

/* A rank's last message to the maker. */
typedef struct {
    int32_t status;
    char text[252];
} report_t;

typedef struct server {
    struct server *next;
    tutti__gate_t gate;
    int door, stop;
    uint64_t timeout_ms;
    _Atomic uint32_t rank; /* of this process in the meeting, once it has called tutti__meet_id */
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

/* A socket that was accepted at a door has the door's port. Ask the sockets: the thread's lists may
   be half written. */
static void close_accepted(int door)
{
    int port = local_port(door);
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (dir != NULL && port > 0 && (entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);

        if (fd > STDERR_FILENO && fd != door && local_port(fd) == port)
            close(fd);
    }
    if (dir != NULL)
        closedir(dir);
}

/* As long as a child has a rank's connection, that rank does not notice the maker's end. */
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

/* ---- the maker ---- */

/* Send to all ranks that have come. The meeting itself finds a rank that has ended meanwhile. */
static void tell_all(const int *fds, uint32_t size, const word_t *word)
{
    for (uint32_t r = 0; r < size; r++)
        if (fds[r] >= 0)
            (void)tutti__net_send(fds[r], r, word, sizeof(*word), tutti__net_deadline(SPEAK_MS));
}

/* The gate has admitted `rank`: if the maker is a rank, send its number. */
static void introduce_maker(void *arg, uint32_t rank, const int *fds, uint32_t size)
{
    server_t *server = arg;
    word_t word = { .status = TUTTI__AGAIN, .maker = server->rank };

    if (word.maker >= size)
        return;
    if (rank == word.maker)
        tell_all(fds, size, &word);
    else
        tell_all(&fds[rank], 1, &word);
}

static void set_word(word_t *word, tutti_status_t status, const char *text)
{
    word->status = (int32_t)status;
    snprintf(word->text, sizeof(word->text), "%.246s", text);
}

/* Rank r has ended, or has sent its last message. TUTTI_OK: it has joined. */
static tutti_status_t hear_report(int fd, uint32_t r)
{
    report_t report;
    tutti_status_t status =
        tutti__net_recv(fd, r, &report, sizeof(report), tutti__net_deadline(SPEAK_MS));

    if (status == TUTTI_ERR_PEER_LOST)
        return tutti__fail(status, "rank %u ended while ranks met", r);
    if (status == TUTTI_OK && report.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)report.status, "%.*s", (int)sizeof(report.text),
                           report.text);
    return status;
}

/* Close the connection of a rank that goes on, or that needs no further message. */
static void close_rank(int *fd)
{
    if (*fd < 0)
        return;
    shutdown(*fd, SHUT_WR); /* a child forked meanwhile may hold it open */
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
            status = hear_report(server->fds[r], r);
            close_rank(&server->fds[r]);
            if (status != TUTTI_OK)
                return status;
            left--;
        }
        /* After the deadline each rank reports the missing ranks itself. */
        if (left > 0 && (ready == 0 || polls[size].revents != 0))
            return TUTTI_OK;
    }
    return TUTTI_OK;
}

/* All ranks have received the place: watch them join. */
static void follow(server_t *server, uint32_t size, word_t *word)
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
    word_t word;

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
    server->gate = (tutti__gate_t){ .purpose = TUTTI__GATE_ID,
                                    .strict = 1,
                                    .token = id->token,
                                    .came = introduce_maker,
                                    .came_arg = server };
    server->rank = NO_RANK;
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

/* If this process is the maker, give its rank to the server. */
static void tell_server(const tutti__id_t *id, uint32_t rank)
{
    pthread_mutex_lock(&lock);
    for (server_t *server = servers; server != NULL; server = server->next)
        if (memcmp(&server->gate.token, &id->token, sizeof(id->token)) == 0)
            server->rank = rank;
    pthread_mutex_unlock(&lock);
}

/* ---- the ranks ---- */

/* A rank on its way from the maker to rank 0. */
typedef struct {
    const tutti__id_t *id;
    tutti__gate_t gate;
    uint64_t deadline;
    int fd;         /* to the maker; -1: it has ended, and is none of the ranks */
    uint32_t maker; /* a rank, or NO_RANK */
    /* maker_still: the maker is being asked, which asks the watch again; and the maker's reason for
       each further question. */
    int asking;
    tutti_status_t told;
    char text[TUTTI__ERROR_BYTES];
} way_t;

static tutti_status_t reach_maker(way_t *way)
{
    tutti_status_t status = tutti__gate_reach(&way->gate, &way->id->addrs, TUTTI__NET_MAKER, 0,
                                              way->deadline, &way->fd);

    if (status == TUTTI_ERR_TRANSPORT && way->maker != NO_RANK)
        return tutti__fail(TUTTI_ERR_PEER_LOST,
                           "rank %u, which made the unique id, ended while ranks met", way->maker);
    if (status == TUTTI_ERR_TRANSPORT)
        return tutti__fail(status,
                           "the process that made the unique id has ended, or has called "
                           "tutti_finalize: %s",
                           tutti_last_error());
    return status;
}

/* The meeting has failed after this rank's knock. Knock again: the answer has the reason. */
static tutti_status_t ask_why(way_t *way)
{
    tutti_status_t status;

    close(way->fd);
    way->fd = -1;
    status = reach_maker(way);
    if (status != TUTTI_OK)
        return status;
    return tutti__fail(TUTTI_ERR_PEER_LOST, "the process that made the unique id gave up");
}

/* The maker's next message. If no message came, its status is TUTTI_OK. */
static tutti_status_t hear_maker(way_t *way, word_t *ret_word, uint64_t deadline)
{
    tutti_status_t status;

    do {
        status = tutti__net_recv(way->fd, TUTTI__NET_MAKER, ret_word, sizeof(*ret_word), deadline);
        if (status == TUTTI_OK)
            way->maker = ret_word->maker;
    } while (status == TUTTI_OK && ret_word->status == TUTTI__AGAIN);
    if (status != TUTTI_OK)
        ret_word->status = TUTTI_OK;
    else if (ret_word->status != TUTTI_OK)
        status = tutti__fail((tutti_status_t)ret_word->status, "%.*s", (int)sizeof(ret_word->text),
                             ret_word->text);
    return status;
}

/* Exchange messages with the maker. Rank 0 sends its place, or why it has none. */
static tutti_status_t ask_maker(way_t *way, const word_t *mine, word_t *ret_word)
{
    tutti_status_t status = reach_maker(way);

    if (status != TUTTI_OK)
        return status;
    if (way->gate.rank == 0)
        status = tutti__net_send(way->fd, TUTTI__NET_MAKER, mine, sizeof(*mine), way->deadline);
    /* It may have told why it ended the meeting before it closed. */
    if (status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST)
        status = hear_maker(way, ret_word, way->deadline);
    if (status == TUTTI_ERR_PEER_LOST && ret_word->status == TUTTI_OK)
        status = ask_why(way);
    return status;
}

/* While this rank joins: a message of the maker is the reason of a failure. */
static tutti_status_t maker_still(void *arg)
{
    way_t *way = arg;
    struct pollfd pfd = { way->fd, POLLIN, 0 };
    tutti_status_t status;
    word_t word;

    if (way->told != TUTTI_OK)
        return tutti__fail(way->told, "%s", way->text);
    if (way->asking || way->fd < 0 || poll(&pfd, 1, 0) <= 0)
        return TUTTI_OK;
    way->asking = 1;
    status = hear_maker(way, &word, tutti__net_deadline(REASON_MS));
    way->asking = 0;
    if (status == TUTTI_OK)
        return TUTTI_OK;
    /* The maker sends nothing more. */
    close(way->fd);
    way->fd = -1;
    if (status == TUTTI_ERR_PEER_LOST && word.status == TUTTI_OK) {
        if (way->maker == NO_RANK)
            return TUTTI_OK;
        tutti__fail(status, "rank %u, which made the unique id, ended while ranks met", way->maker);
    }
    way->told = status;
    snprintf(way->text, sizeof(way->text), "%s", tutti_last_error());
    return status;
}

/* Report the outcome of joining to the maker, which passes it on; or take the others' failure. */
static tutti_status_t report(way_t *way, tutti_status_t status)
{
    report_t mine = { .status = (int32_t)status };
    struct pollfd pfd = { way->fd, POLLIN, 0 };
    int follows = status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_TRANSPORT;
    int ready = 0;

    if (way->fd < 0)
        return status;
    snprintf(mine.text, sizeof(mine.text), "%s", status == TUTTI_OK ? "" : tutti_last_error());
    if (follows && way->gate.rank != 0 &&
        tutti__net_poll(&pfd, 1, tutti__net_deadline(REASON_MS), &ready) == TUTTI_OK && ready > 0) {
        tutti_status_t reason = maker_still(way);

        if (reason != TUTTI_OK)
            return reason;
        if (way->fd < 0)
            return tutti__fail(status, "%s", mine.text);
    }
    (void)tutti__net_send(way->fd, TUTTI__NET_MAKER, &mine, sizeof(mine),
                          tutti__net_deadline(REASON_MS));
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail(status, "%s", mine.text);
}

static tutti_status_t join(way_t *way, const word_t *mine, int *door, uint64_t deadline,
                           tutti__meet_t *ret_meet)
{
    uint32_t rank = way->gate.rank, size = way->gate.size;
    tutti_status_t status;
    word_t word = { 0 };

    status = ask_maker(way, mine, &word);
    if (status != TUTTI_OK && mine->status != TUTTI_OK)
        return tutti__fail((tutti_status_t)mine->status, "%s", mine->text);
    if (status != TUTTI_OK)
        return status;
    tutti__net_watch_meeting(maker_still, way);
    if (rank == 0) {
        status = tutti__venue_host(&mine->place, *door, size, deadline, ret_meet);
        *door = -1;
    } else {
        status = tutti__venue_join(&word.place, rank, size, deadline, ret_meet);
    }
    tutti__net_watch_meeting(NULL, NULL);
    return report(way, status);
}

tutti_status_t tutti__meet_id(const tutti_unique_id_t *bytes, const tutti__conf_t *conf,
                              uint32_t rank, uint32_t size, tutti__meet_t *ret_meet)
{
    uint64_t deadline = tutti__net_deadline(conf->shared.timeout_ms);
    tutti_status_t status, mine_status = TUTTI_OK;
    word_t mine;
    tutti__id_t id;
    way_t way = { .id = &id, .fd = -1, .maker = NO_RANK };
    int door = -1;

    status = tutti__id_decode(bytes, &id);
    if (status != TUTTI_OK)
        return status;
    tell_server(&id, rank);
    way.gate =
        (tutti__gate_t){ .purpose = TUTTI__GATE_ID, .rank = rank, .size = size, .token = id.token };
    way.deadline = tutti__star_patience(deadline);
    memset(&mine, 0, sizeof(mine));
    mine_status = tutti__net_files_left(rank == 0 ? size + SPARE_FILES : SPARE_FILES);
    if (mine_status == TUTTI_OK && rank == 0)
        mine_status = tutti__venue_open(conf->interface, 0, &mine.place, &door);
    else if (mine_status != TUTTI_OK && rank != 0)
        return mine_status;
    if (mine_status != TUTTI_OK) {
        mine.status = (int32_t)mine_status;
        snprintf(mine.text, sizeof(mine.text), "rank 0: %.236s", tutti_last_error());
    }
    status = join(&way, &mine, &door, deadline, ret_meet);
    if (door >= 0)
        close(door);
    if (way.fd >= 0)
        close(way.fd);
    return status;
}
