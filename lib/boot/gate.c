/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's side of the gate: the loop of an open gate. See gate.h. gate_guests.c has the
 * connections and their messages, gate_judge.c the decisions, and gate_reach.c the guests' side.
 *
 * The host serves all connections at once from one poll(), because a guest that sends nothing must
 * not delay other guests. There are three kinds of connections:
 *
 *   stranger  has not sent a whole knock with the job's token. Strangers use a fixed number of
 *             places in turn, and a later stranger may replace an earlier stranger. So a flood of
 *             connections costs a bounded number of descriptors. A rank that has lost its place
 *             connects again.
 *   guest     has shown the job's token. A guest keeps its place until it confirms.
 *   rank      has been admitted. The host watches the rank's connection: if the rank ends while
 *             the host still waits for other ranks, the gate fails.
 *
 * Usually the knock has already arrived when the host accepts the connection. Such a connection
 * does not occupy a stranger's place.
 *
 * After a failure a strict gate stays open for a second, and sends the reason to late ranks.
 * Otherwise a late rank would find no gate, and wait until its own deadline.
 */
#include "boot/gate.h"

#include "base/constants.h"
#include "base/time.h"
#include "boot/gate_host.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Indices in the list for poll(). */
#define DOOR 0u
#define STOP 1u
#define FIRST 2u

static void add_poll(tutti__gate_host_t *host, int fd, short events, uint32_t about)
{
    if (fd < 0 && host->npolls >= FIRST)
        return;
    host->polls[host->npolls] = (struct pollfd){ fd, events, 0 };
    host->about[host->npolls++] = about;
}

static tutti_status_t reserve(tutti__gate_host_t *host, uint32_t capacity)
{
    struct pollfd *polls;
    uint32_t *about;

    if (capacity <= host->polls_capacity)
        return TUTTI_OK;
    capacity *= 2;
    polls = realloc(host->polls, capacity * sizeof(*polls));
    host->polls = polls != NULL ? polls : host->polls;
    about = realloc(host->about, capacity * sizeof(*about));
    host->about = about != NULL ? about : host->about;
    if (polls == NULL || about == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "gate for %u ranks", host->size);
    host->polls_capacity = capacity;
    return TUTTI_OK;
}

/* Make the list of the descriptors for poll(). */
static tutti_status_t list_polls(tutti__gate_host_t *host)
{
    tutti_status_t status =
        reserve(host, FIRST + TUTTI__GATE_STRANGERS + host->nguests + host->size);

    if (status != TUTTI_OK)
        return status;
    host->npolls = 0;
    add_poll(host, host->door, POLLIN, 0);
    /* After a failure, ignore `stop`: the gate must first report the error to the other ranks. */
    add_poll(host, host->failed == TUTTI_OK || host->refuses ? host->stop : -1, POLLIN, 0);
    for (uint32_t i = 0; i < TUTTI__GATE_STRANGERS; i++)
        add_poll(host, host->stranger[i].fd, POLLIN, i);
    host->listed_strangers = host->npolls - FIRST;
    for (uint32_t i = 0; i < host->nguests; i++)
        add_poll(host, host->guest[i].fd, POLLIN, i);
    /* Wait only for the end of a rank's connection, because the rank's data are for the caller. */
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
    /* Begin with the last guest, because the last guest moves to the place of a removed guest. */
    for (uint32_t i = ranks; i-- > guests;)
        if (host->polls[i].revents != 0)
            tutti__gate_hear_guest(host, host->about[i]);
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
            status = tutti__gate_hear_stranger(host, &host->stranger[host->about[i]]);
    if (status == TUTTI_OK && host->polls[DOOR].revents != 0)
        status = tutti__gate_welcome(host, &accepted);
    if (status == TUTTI_OK && host->refuses && accepted > 0)
        status = tutti__net_poll(&host->polls[STOP], 1, tutti__net_deadline(TUTTI__GATE_REST_MS),
                                 &ready);
    return status;
}

/* If a warning is due, log the ranks that have not connected. Returns the time when this function
   must be called again. A gate without a size does not warn before the first knock, because the
   number of ranks is unknown. After a failure the gate does not warn. */
static uint64_t warn_of_missing(tutti__gate_host_t *host)
{
    double waited_s;

    if (host->size == 0 || host->failed != TUTTI_OK)
        return UINT64_MAX;
    if (tutti__waiting_now(&host->waiting, &waited_s))
        tutti__gate_warn(host, waited_s);
    return host->waiting.due;
}

static tutti_status_t serve(tutti__gate_host_t *host)
{
    while (host->awaited > 0) {
        int late = tutti__net_left_ms(host->deadline) == 0, ready;
        uint64_t until = warn_of_missing(host);
        tutti_status_t status;

        until = TUTTI__MIN(until, host->deadline);
        if (host->suspect_due != 0)
            until = TUTTI__MIN(until, host->suspect_due);
        status = list_polls(host);
        if (status != TUTTI_OK)
            return status;
        /* If a check of net.h ends this wait, the gate does not report the check's error: the other
           ranks already have this error. */
        status = tutti__net_poll(host->polls, host->npolls, until, &ready);
        /* If events arrive all the time, tutti__net_poll does not call the checks. */
        if (status == TUTTI_OK && ready > 0 && tutti__net_left_ms(host->ask_due) == 0) {
            host->ask_due = tutti__net_deadline(TUTTI__GATE_CHECK_MS);
            status = tutti__net_still();
        }
        /* Prefer the check's error to the gate's PEER_LOST. The check may name the rank that has
           failed first; perhaps the lost rank has only given up because of this failure. */
        if (status != TUTTI_OK)
            return host->failed == TUTTI_OK || host->failed == TUTTI_ERR_PEER_LOST
                       ? status
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
            return tutti__gate_missing(host);
    }
    return host->failed == TUTTI_OK ? TUTTI_OK : tutti__fail(host->failed, "%s", host->text);
}

static void begin(tutti__gate_host_t *host, const tutti__gate_t *gate, int door, int stop)
{
    memset(host, 0, sizeof(*host));
    host->gate = gate;
    host->rank = gate->rank;
    host->begin_ns = tutti__now_ns();
    host->door = door;
    host->stop = stop;
    for (uint32_t i = 0; i < TUTTI__GATE_STRANGERS; i++)
        host->stranger[i].fd = -1;
}

static void end(tutti__gate_host_t *host)
{
    tutti__gate_drop_strangers(host);
    for (uint32_t i = 0; i < host->nguests; i++)
        tutti__gate_close(&host->guest[i]);
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
    host.awaited = 1; /* so that serve() does not end by itself */
    while (status != TUTTI_ERR_SHUTDOWN) {
        status = serve(&host);
        /* If no descriptor is free for a guest, the guest stays in the kernel's queue during this
           sleep. */
        if (status != TUTTI_ERR_SHUTDOWN)
            tutti__net_sleep_ms(TUTTI__GATE_NO_FILE_MS);
    }
    end(&host);
}
