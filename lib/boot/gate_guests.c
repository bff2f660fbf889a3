/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connections of an open gate: strangers, guests and ranks; see gate.c. Each function handles
 * the messages of one connection that have arrived, and does not wait. See gate_host.h.
 */
#include "boot/gate_host.h"

#include "base/constants.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- connections ---- */

/* Call shutdown() as well, because a forked child may hold a copy of the descriptor. */
void tutti__gate_close(tutti__gate_guest_t *guest)
{
    if (guest->fd < 0)
        return;
    shutdown(guest->fd, SHUT_WR);
    close(guest->fd);
    guest->fd = -1;
}

/* Remove guest i from the list. The last guest gets index i. */
static void remove_guest(tutti__gate_host_t *host, uint32_t i)
{
    host->guest[i] = host->guest[--host->nguests];
}

uint32_t tutti__gate_drop_strangers(tutti__gate_host_t *host)
{
    uint32_t dropped = 0;

    for (uint32_t i = 0; i < TUTTI__GATE_STRANGERS; i++) {
        dropped += host->stranger[i].fd >= 0;
        tutti__gate_close(&host->stranger[i]);
    }
    return dropped;
}

/* Add a guest to the list. The guest has shown the token, so the list needs no limit. */
static tutti_status_t keep_guest(tutti__gate_host_t *host, const tutti__gate_guest_t *guest)
{
    if (host->nguests == host->capacity) {
        uint32_t capacity = host->capacity == 0 ? 16 : 2 * host->capacity;
        tutti__gate_guest_t *guests = realloc(host->guest, capacity * sizeof(*guests));

        if (guests == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "gate with %u guests", capacity);
        host->guest = guests;
        host->capacity = capacity;
    }
    host->guest[host->nguests++] = *guest;
    return TUTTI_OK;
}

/* Returns the buffer for the guest's next message. */
static char *find_free(tutti__gate_guest_t *guest, size_t *ret_bytes)
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

/* Continue to read a message. Returns 1: complete, 0: incomplete, -1: the connection has ended. */
static int read_guest(tutti__gate_guest_t *guest)
{
    size_t bytes;
    char *at = find_free(guest, &bytes);
    ssize_t n = recv(guest->fd, at + guest->have, bytes - guest->have, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    if (n > 0)
        guest->have += (size_t)n;
    return guest->have == bytes;
}

/* Send a guest the reason why the gate does not admit it, and close its connection. */
static void refuse(tutti__gate_host_t *host, tutti__gate_guest_t *guest, tutti_status_t status)
{
    (void)tutti__gate_answer(guest, status);
    tutti__gate_close(guest);
    if (host->gate->strict)
        tutti__gate_fail(host, status);
    if (host->failed != TUTTI_OK)
        tutti__gate_stop_awaiting(host, guest->knock.rank);
}

/* Note that a guest has ended before its last message. If the guest's rank does not knock again in
   time, the rank counts as dead. */
static void suspect(tutti__gate_host_t *host, const tutti__gate_guest_t *guest)
{
    if (host->suspect_due != 0 || guest->knock.rank >= host->size ||
        host->fds[guest->knock.rank] != TUTTI__GATE_AWAITED)
        return;
    host->suspect = guest->knock.rank;
    host->suspect_due = tutti__net_deadline(TUTTI__GATE_AGAIN_MS);
}

/* ---- admitting ---- */

/* Let the kernel detect that the guest's host is lost, while the gate waits for other ranks. */
static tutti_status_t notice_lost_host(int fd)
{
    int family;
    socklen_t bytes = sizeof(family);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0)
        return tutti__fail_errno("the family of a socket");
    return family == AF_UNIX ? TUTTI_OK : tutti__net_tcp_options(fd);
}

/* Judge a complete knock that has the token. Then send the answer, or close the connection. */
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
        tutti__gate_close(guest);
        return TUTTI_OK;
    }
    guest->stage = TUTTI__GATE_SENDS_CONFIRM;
    guest->have = 0;
    status = notice_lost_host(guest->fd);
    if (status == TUTTI_OK)
        status = keep_guest(host, guest);
    if (status != TUTTI_OK)
        tutti__gate_close(guest);
    return status;
}

/* Log the first refusal as a warning, and further refusals at level debug. */
static void log_refusal(tutti__gate_host_t *host, const char *why)
{
    tutti__log_level_t level = host->nstrangers++ == 0 ? TUTTI__LOG_WARN : TUTTI__LOG_DEBUG;

    TUTTI__LOG(level, "refused a connection: %s", why);
}

/* If the gate has a pass, send the greeting, because the guest sends nothing before it has received
   a greeting. Returns 0 if the greeting could not be sent. */
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

/* The guest's message is complete. Is it a message of Tutti, and from this job? If the guest's pass
   is wrong, send the guest the reason. */
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

tutti_status_t tutti__gate_hear_stranger(tutti__gate_host_t *host, tutti__gate_guest_t *guest)
{
    tutti__gate_guest_t known;

    for (;;) {
        int whole = read_guest(guest);

        if (whole == 0)
            return TUTTI_OK;
        if (whole < 0 || !is_known(host, guest)) {
            tutti__gate_close(guest);
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
    uint32_t rank = guest->knock.rank, left_ms = guest->knock.left_ms;

    if (host->suspect == rank)
        host->suspect_due = 0;
    /* The gate must give up before this rank gives up. Otherwise the gate would report this rank as
       lost, and not the missing ranks. */
    if (host->gate->strict && host->failed == TUTTI_OK && left_ms > 0)
        host->deadline = TUTTI__MIN(host->deadline, tutti__gate_decide_by(left_ms));
    host->fds[rank] = guest->fd;
    host->awaited--;
    if (host->gate->came != NULL)
        host->gate->came(host->gate->came_arg, rank, host->fds, host->size);
}

/* Admit a guest that has confirmed, unless another guest was admitted as the same rank after this
   guest's knock. If the gate has failed after the knock, this guest is still admitted, because the
   gate's caller reports the reason to all admitted ranks. */
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
    tutti__gate_close(guest);
    if (host->gate->strict)
        tutti__gate_fail(host, status);
}

void tutti__gate_hear_guest(tutti__gate_host_t *host, uint32_t i)
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
        tutti__gate_close(guest);
    }
    remove_guest(host, i);
}

tutti_status_t tutti__gate_welcome(tutti__gate_host_t *host, uint32_t *ret_accepted)
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
            /* The error concerns only this connection, or comes from a firewall. Sleep before the
               next attempt, because the listening socket may stay readable. */
            tutti__net_sleep_ms(TUTTI__RESOURCE_NAP_MS);
            break;
        }
        if (fd < 0) {
            status = tutti__fail_errno("accept a connection");
            if ((errno == EMFILE || errno == ENFILE) && tutti__gate_drop_strangers(host) > 0)
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
        tutti__gate_close(place);
        *place = (tutti__gate_guest_t){ .fd = fd };
        if (!greet(host, place))
            tutti__gate_close(place);
        status = place->fd < 0 ? TUTTI_OK : tutti__gate_hear_stranger(host, place);
        if (status != TUTTI_OK)
            return status;
        if (place->fd >= 0)
            host->next = (host->next + 1) % TUTTI__GATE_STRANGERS;
    }
    return TUTTI_OK;
}
