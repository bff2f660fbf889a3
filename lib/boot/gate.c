/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's side of the gate: the loop of an open gate. See gate.h; gate_judge.c has the
 * decisions, gate_reach.c the guests' side.
 *
 * The host serves all connections at once from one poll(), because a guest that sends nothing must
 * not delay the others. There are three kinds of connections:
 *
 *   stranger  has not sent a whole knock with the job's token. Strangers use a fixed number
 *             of places in turn, and a later stranger may replace an earlier one. So a flood
 *             of connections costs a bounded number of descriptors. A rank that lost its
 *             place tries again.
 *   guest     has shown the job's token. It keeps its place until it confirms.
 *   rank      has been admitted. The host watches its connection: if the rank ends while others are
 *             still awaited, the gate fails.
 *
 * Usually the knock has arrived when its connection is accepted. In this case the rank needs no
 * stranger's place.
 *
 * A strict gate that fails stays open for a second and sends the reason to each rank that still
 * comes. Without this message, such a rank would find no gate and wait until its own deadline.
 */
#include "boot/gate.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"
#include "boot/gate_host.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Indices in the list for poll(). */
#define DOOR 0u
#define STOP 1u
#define FIRST 2u

/* ---- connections ---- */

/* shutdown(), because a child forked meanwhile may hold the descriptor. */
static void close_guest(tutti__gate_guest_t *guest)
{
    if (guest->fd < 0)
        return;
    shutdown(guest->fd, SHUT_WR);
    close(guest->fd);
    guest->fd = -1;
}

/* The last guest moves to the place of guest i. */
static void remove_guest(tutti__gate_host_t *host, uint32_t i)
{
    host->guest[i] = host->guest[--host->nguests];
}

static uint32_t drop_strangers(tutti__gate_host_t *host)
{
    uint32_t dropped = 0;

    for (uint32_t i = 0; i < TUTTI__GATE_STRANGERS; i++) {
        dropped += host->stranger[i].fd >= 0;
        close_guest(&host->stranger[i]);
    }
    return dropped;
}

/* Only guests with the token are kept here, so their number needs no limit. */
static tutti_status_t keep_guest(tutti__gate_host_t *host, const tutti__gate_guest_t *guest)
{
    if (host->nguests == host->room) {
        uint32_t room = host->room == 0 ? 16 : 2 * host->room;
        tutti__gate_guest_t *guests = realloc(host->guest, room * sizeof(*guests));

        if (guests == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "gate with %u guests", room);
        host->guest = guests;
        host->room = room;
    }
    host->guest[host->nguests++] = *guest;
    return TUTTI_OK;
}

/* Where the guest's next message goes. */
static char *find_room(tutti__gate_guest_t *guest, size_t *ret_bytes)
{
    switch (guest->stage) {
    case TUTTI__GATE_SENDS_HELLO:
        *ret_bytes = sizeof(guest->hello);
        return (char *)&guest->hello;
    case TUTTI__GATE_SENDS_KNOCK:
        *ret_bytes = sizeof(guest->knock);
        return (char *)&guest->knock;
    default:
        *ret_bytes = sizeof(guest->confirm);
        return (char *)&guest->confirm;
    }
}

/* Continue to read; 1: complete, 0: incomplete, -1: the connection has ended. */
static int read_guest(tutti__gate_guest_t *guest)
{
    size_t bytes;
    char *at = find_room(guest, &bytes);
    ssize_t n = recv(guest->fd, at + guest->have, bytes - guest->have, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    if (n > 0)
        guest->have += (size_t)n;
    return guest->have == bytes;
}

/* Send a guest the reason why it is not admitted, and close its connection. */
static void refuse(tutti__gate_host_t *host, tutti__gate_guest_t *guest, tutti_status_t status)
{
    (void)tutti__gate_answer(guest, status);
    close_guest(guest);
    if (host->gate->strict)
        tutti__gate_fail(host, status);
    if (host->failed != TUTTI_OK)
        tutti__gate_stop_awaiting(host, guest->knock.rank);
}

/* A guest has ended without its last message. */
static void suspect(tutti__gate_host_t *host, const tutti__gate_guest_t *guest)
{
    if (host->suspect_due != 0 || guest->knock.rank >= host->size ||
        host->fds[guest->knock.rank] != TUTTI__GATE_AWAITED)
        return;
    host->suspect = guest->knock.rank;
    host->suspect_due = tutti__net_deadline(TUTTI__GATE_AGAIN_MS);
}

/* ---- admitting ---- */

/* Detect that a guest's host has vanished while other ranks are awaited. */
static tutti_status_t notice_lost_host(int fd)
{
    int family;
    socklen_t bytes = sizeof(family);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0)
        return tutti__fail_errno("the family of a socket");
    return family == AF_UNIX ? TUTTI_OK : tutti__net_tcp_options(fd);
}

/* Judge a whole knock with the token. On return the guest has its answer, or its
   connection is closed. */
static tutti_status_t take_guest(tutti__gate_host_t *host, tutti__gate_guest_t *guest)
{
    tutti_status_t status = tutti__gate_judge(host, &guest->knock);

    if (status != TUTTI_OK) {
        refuse(host, guest, status);
        return TUTTI_OK;
    }
    if (host->suspect_due != 0 && host->suspect == guest->knock.rank)
        host->suspect_due = 0;
    if (!tutti__gate_answer(guest, TUTTI_OK)) {
        suspect(host, guest);
        close_guest(guest);
        return TUTTI_OK;
    }
    guest->stage = TUTTI__GATE_SENDS_CONFIRM;
    guest->have = 0;
    status = notice_lost_host(guest->fd);
    if (status == TUTTI_OK)
        status = keep_guest(host, guest);
    if (status != TUTTI_OK)
        close_guest(guest);
    return status;
}

/* The first of these lines is a warning. */
static void log_refusal(tutti__gate_host_t *host, const char *why)
{
    tutti__log_level_t level = host->nstrangers++ == 0 ? TUTTI__LOG_WARN : TUTTI__LOG_DEBUG;

    TUTTI__LOG(level, "refused a connection: %s", why);
}

/* A gate with a pass speaks first. 0: the connection is of no use. */
static int greet(const tutti__gate_host_t *host, tutti__gate_guest_t *guest)
{
    guest->stage = TUTTI__GATE_SENDS_KNOCK;
    guest->token = host->gate->token;
    if (host->gate->pass == NULL)
        return 1;
    guest->stage = TUTTI__GATE_SENDS_HELLO;
    return tutti__pass_greet(host->gate->pass, &guest->greeting) == TUTTI_OK &&
           send(guest->fd, &guest->greeting, sizeof(guest->greeting),
                MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(guest->greeting);
}

/* Is the whole message one of this library? If the guest has another job, it receives the
   reason. */
static int is_known(tutti__gate_host_t *host, tutti__gate_guest_t *guest)
{
    if (guest->stage == TUTTI__GATE_SENDS_HELLO && guest->hello.magic == TUTTI__GATE_HELLO &&
        guest->hello.layout == TUTTI__BOOT_LAYOUT)
        return 1;
    if (guest->stage == TUTTI__GATE_SENDS_HELLO || tutti__gate_is_stranger(host->gate, guest)) {
        log_refusal(host, "it is not of this job");
        return 0;
    }
    if (host->gate->pass == NULL || tutti__gate_check_pass(host->gate, guest) == TUTTI_OK)
        return 1;
    log_refusal(host, tutti_last_error());
    (void)tutti__gate_answer(guest, TUTTI_ERR_INVALID_ARGUMENT);
    return 0;
}

/* Read a stranger's messages, as far as they have arrived. */
static tutti_status_t hear_stranger(tutti__gate_host_t *host, tutti__gate_guest_t *guest)
{
    tutti__gate_guest_t known;

    for (;;) {
        int whole = read_guest(guest);

        if (whole == 0)
            return TUTTI_OK;
        if (whole < 0 || !is_known(host, guest)) {
            close_guest(guest);
            return TUTTI_OK;
        }
        if (guest->stage == TUTTI__GATE_SENDS_KNOCK)
            break;
        guest->stage = TUTTI__GATE_SENDS_KNOCK;
        guest->have = 0;
    }
    known = *guest;
    guest->fd = -1;
    return take_guest(host, &known);
}

static void let_in(tutti__gate_host_t *host, const tutti__gate_guest_t *guest)
{
    uint32_t rank = guest->knock.rank;

    if (host->suspect == rank)
        host->suspect_due = 0;
    host->fds[rank] = guest->fd;
    host->awaited--;
    if (host->gate->came != NULL)
        host->gate->came(host->gate->came_arg, rank, host->fds, host->size);
}

/* A guest has confirmed. Meanwhile another guest may have been admitted as the same rank. If
   the gate has failed meanwhile, this guest is still admitted: the caller reports the reason
   to all admitted ranks. */
static void take_confirmation(tutti__gate_host_t *host, tutti__gate_guest_t *guest)
{
    int awaited =
        guest->knock.rank < host->size && host->fds[guest->knock.rank] == TUTTI__GATE_AWAITED;
    tutti_status_t status = TUTTI_OK;

    if (!awaited || host->failed == TUTTI_OK)
        status = tutti__gate_judge(host, &guest->knock);
    if (status == TUTTI_OK) {
        let_in(host, guest);
        return;
    }
    if (host->gate->dismiss != NULL)
        host->gate->dismiss(guest->fd, status);
    close_guest(guest);
    if (host->gate->strict)
        tutti__gate_fail(host, status);
}

/* Read guest i's last message. */
static void hear_guest(tutti__gate_host_t *host, uint32_t i)
{
    tutti__gate_guest_t *guest = &host->guest[i];
    int whole = read_guest(guest);

    if (whole == 0)
        return;
    if (whole > 0 && guest->confirm == TUTTI__GATE_CONFIRM) {
        take_confirmation(host, guest);
    } else {
        if (whole < 0)
            suspect(host, guest);
        close_guest(guest);
    }
    remove_guest(host, i);
}

/* Accept at most TUTTI__GATE_STRANGERS connections, so that deadlines are still checked. */
static tutti_status_t welcome(tutti__gate_host_t *host, uint32_t *ret_accepted)
{
    for (*ret_accepted = 0; *ret_accepted < TUTTI__GATE_STRANGERS; ++*ret_accepted) {
        int fd = accept4(host->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        tutti__gate_guest_t *place = &host->stranger[host->next];
        tutti_status_t status;

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (fd < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) {
            /* An error of this connection only, or of a firewall. The listening socket
               may stay readable. */
            tutti__net_sleep_ms(TUTTI__RESOURCE_NAP_MS);
            break;
        }
        if (fd < 0) {
            status = tutti__fail_errno("accept a connection");
            if ((errno == EMFILE || errno == ENFILE) && drop_strangers(host) > 0)
                continue;
            if (errno == EMFILE && host->trials++ < TUTTI__GATE_TRIALS) {
                tutti__net_files_settle();
                continue;
            }
            return status;
        }
        host->trials = 0;
        if (tutti__net_same_user(fd) != TUTTI_OK) {
            log_refusal(host, tutti_last_error());
            close(fd);
            continue;
        }
        close_guest(place);
        *place = (tutti__gate_guest_t){ .fd = fd };
        if (!greet(host, place))
            close_guest(place);
        status = place->fd < 0 ? TUTTI_OK : hear_stranger(host, place);
        if (status != TUTTI_OK)
            return status;
        if (place->fd >= 0)
            host->next = (host->next + 1) % TUTTI__GATE_STRANGERS;
    }
    return TUTTI_OK;
}

/* ---- the loop ---- */

static void add_poll(tutti__gate_host_t *host, int fd, short events, uint32_t about)
{
    if (fd < 0 && host->npolls >= FIRST)
        return;
    host->polls[host->npolls] = (struct pollfd){ fd, events, 0 };
    host->about[host->npolls++] = about;
}

static tutti_status_t make_room(tutti__gate_host_t *host, uint32_t room)
{
    struct pollfd *polls;
    uint32_t *about;

    if (room <= host->polls_room)
        return TUTTI_OK;
    room *= 2;
    polls = realloc(host->polls, room * sizeof(*polls));
    host->polls = polls != NULL ? polls : host->polls;
    about = realloc(host->about, room * sizeof(*about));
    host->about = about != NULL ? about : host->about;
    if (polls == NULL || about == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "gate for %u ranks", host->size);
    host->polls_room = room;
    return TUTTI_OK;
}

/* List all descriptors to wait for. */
static tutti_status_t list_polls(tutti__gate_host_t *host)
{
    tutti_status_t status =
        make_room(host, FIRST + TUTTI__GATE_STRANGERS + host->nguests + host->size);

    if (status != TUTTI_OK)
        return status;
    host->npolls = 0;
    add_poll(host, host->door, POLLIN, 0);
    /* A gate that has failed must still report the error to the other ranks, and ends soon. */
    add_poll(host, host->failed == TUTTI_OK || host->refuses ? host->stop : -1, POLLIN, 0);
    for (uint32_t i = 0; i < TUTTI__GATE_STRANGERS; i++)
        add_poll(host, host->stranger[i].fd, POLLIN, i);
    host->listed_strangers = host->npolls - FIRST;
    for (uint32_t i = 0; i < host->nguests; i++)
        add_poll(host, host->guest[i].fd, POLLIN, i);
    /* A rank may have sent data already; only the end of its connection matters here. */
    for (uint32_t r = 0; r < host->size; r++)
        add_poll(host, host->fds[r], POLLRDHUP, r);
    return TUTTI_OK;
}

/* Handle the events of guests and of admitted ranks. */
static void hear_known(tutti__gate_host_t *host)
{
    uint32_t guests = FIRST + host->listed_strangers, ranks = guests + host->nguests;

    for (uint32_t i = ranks; i < host->npolls; i++) {
        uint32_t r = host->about[i];

        if (host->polls[i].revents == 0)
            continue;
        close(host->fds[r]);
        host->fds[r] = TUTTI__GATE_NOBODY;
        tutti__gate_lose(host, r);
    }
    /* From the last guest on, because remove_guest moves the last guest to the
       removed one's place. */
    for (uint32_t i = ranks; i-- > guests;)
        if (host->polls[i].revents != 0)
            hear_guest(host, host->about[i]);
}

/* Handle all events of one poll(). */
static tutti_status_t hear_all(tutti__gate_host_t *host)
{
    tutti_status_t status = TUTTI_OK;
    uint32_t accepted = 0;
    int ready;

    if (host->polls[STOP].revents != 0)
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "the gate was closed");
    hear_known(host);
    for (uint32_t i = FIRST; i < FIRST + host->listed_strangers && status == TUTTI_OK; i++)
        if (host->polls[i].revents != 0)
            status = hear_stranger(host, &host->stranger[host->about[i]]);
    if (status == TUTTI_OK && host->polls[DOOR].revents != 0)
        status = welcome(host, &accepted);
    if (status == TUTTI_OK && host->refuses && accepted > 0)
        status = tutti__net_poll(&host->polls[STOP], 1, tutti__net_deadline(TUTTI__GATE_REST_MS),
                                 &ready);
    return status;
}

static tutti_status_t serve(tutti__gate_host_t *host)
{
    uint64_t begin_ns = tutti__now_ns();

    while (host->awaited > 0) {
        int late = tutti__net_left_ms(host->deadline) == 0, ready;
        uint64_t until = host->deadline;
        tutti_status_t status;

        if (host->suspect_due != 0)
            until = TUTTI__MIN(until, host->suspect_due);
        status = list_polls(host);
        if (status != TUTTI_OK)
            return status;
        /* If the watch ends this wait, the other ranks already have its error. */
        status = tutti__net_poll(host->polls, host->npolls, until, &ready);
        /* tutti__net_poll asks the watch only if nothing arrives for a while. */
        if (status == TUTTI_OK && ready > 0 && tutti__net_left_ms(host->ask_due) == 0) {
            host->ask_due = tutti__net_deadline(TUTTI__GATE_CHECK_MS);
            status = tutti__net_still();
        }
        if (status != TUTTI_OK)
            return host->failed == TUTTI_OK || host->failed == TUTTI_ERR_PEER_LOST
                       ? status /* the lost rank may have given up because of the rank named here */
                       : tutti__fail(host->failed, "%s", host->text);
        if (ready > 0)
            status = hear_all(host);
        if (status != TUTTI_OK &&
            (!host->gate->strict || host->refuses || status == TUTTI_ERR_SHUTDOWN))
            return status;
        if (status != TUTTI_OK) {
            tutti__gate_fail(host, status);
            tutti__net_sleep_ms(TUTTI__GATE_REST_MS);
        }
        if (host->suspect_due != 0 && tutti__net_left_ms(host->suspect_due) == 0) {
            tutti__gate_lose(host, host->suspect);
            host->suspect_due = 0;
        }
        if (host->failed != TUTTI_OK && (late || !host->gate->strict))
            break;
        if (host->awaited > 0 && late)
            return tutti__gate_missing(host, begin_ns);
    }
    return host->failed == TUTTI_OK ? TUTTI_OK : tutti__fail(host->failed, "%s", host->text);
}

static void begin(tutti__gate_host_t *host, const tutti__gate_t *gate, int door, int stop)
{
    memset(host, 0, sizeof(*host));
    host->gate = gate;
    host->rank = gate->rank;
    host->door = door;
    host->stop = stop;
    for (uint32_t i = 0; i < TUTTI__GATE_STRANGERS; i++)
        host->stranger[i].fd = -1;
}

static void end(tutti__gate_host_t *host)
{
    drop_strangers(host);
    for (uint32_t i = 0; i < host->nguests; i++)
        close_guest(&host->guest[i]);
    free(host->guest);
    free(host->polls);
    free(host->about);
}

static void begin_with(tutti__gate_host_t *host, const tutti__gate_t *gate, int door, int *fds,
                       uint64_t deadline)
{
    begin(host, gate, door, -1);
    host->size = gate->size;
    host->fds = fds;
    host->deadline = deadline;
    for (uint32_t r = 0; r < gate->size; r++)
        host->awaited += fds[r] == TUTTI__GATE_AWAITED;
}

tutti_status_t tutti__gate_admit(const tutti__gate_t *gate, int door, int *fds, uint64_t deadline)
{
    tutti_status_t status;
    tutti__gate_host_t host;

    begin_with(&host, gate, door, fds, deadline);
    status = serve(&host);
    end(&host);
    return status;
}

tutti_status_t tutti__gate_turn_away(const tutti__gate_t *gate, int door, int *fds,
                                     tutti_status_t status, uint64_t deadline)
{
    tutti__gate_host_t host;

    begin_with(&host, gate, door, fds, deadline);
    tutti__gate_fail(&host, status);
    status = serve(&host);
    end(&host);
    return status;
}

tutti_status_t tutti__gate_admit_all(const tutti__gate_t *gate, int door, int stop,
                                     uint64_t timeout_ms, uint32_t *ret_size, int **ret_fds)
{
    tutti_status_t status;
    tutti__gate_host_t host;

    begin(&host, gate, door, stop);
    *ret_fds = NULL;
    host.ret_fds = ret_fds;
    host.timeout_ms = timeout_ms;
    host.deadline = UINT64_MAX; /* until the first guest's knock */
    host.awaited = 1;           /* the first guest */
    status = serve(&host);
    *ret_size = host.size;
    end(&host);
    return status;
}

void tutti__gate_refuse(const tutti__gate_t *gate, int door, int stop, const char *text)
{
    tutti_status_t status = TUTTI_OK;
    tutti__gate_host_t host;

    begin(&host, gate, door, stop);
    host.failed = TUTTI_ERR_INVALID_ARGUMENT;
    snprintf(host.text, sizeof(host.text), "%s", text);
    host.refuses = 1;
    host.deadline = UINT64_MAX;
    host.awaited = 1; /* so that the loop never ends by itself */
    while (status != TUTTI_ERR_SHUTDOWN) {
        status = serve(&host);
        /* If no descriptor is free for a guest, it waits in the kernel's queue. */
        if (status != TUTTI_ERR_SHUTDOWN)
            tutti__net_sleep_ms(TUTTI__GATE_NO_FILE_MS);
    }
    end(&host);
}
