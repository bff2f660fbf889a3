/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on one machine meet at an abstract Unix socket whose name they were all told.
 *
 * For tests and for programs that fork their ranks, or make them threads. Rank 0 listens, lets
 * everybody in through a strict gate (see gate.h), and from then on serves: each allgather is one
 * message from every rank to rank 0 and one answer back.
 *
 *     rank r -- ask {number, bytes}, my bytes ------------------> rank 0
 *     rank r <-- answer {status, text, bytes}, everyone's bytes -- rank 0
 *
 * An answer with a status other than TUTTI_OK, equal on all ranks, ends the meeting: that is how
 * all of them learn which rank did not come. The others wait a little longer than rank 0 for that.
 *
 * Runs on the thread that calls; blocks until the deadline.
 */
#include "base/status.h"
#include "base/time.h"
#include "boot/boot.h"
#include "boot/gate.h"
#include "boot/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
    uint32_t number, unused; /* of this allgather, from 1 */
    uint64_t bytes;
} ask_t;

typedef struct {
    int32_t status;
    uint32_t unused;
    uint64_t bytes; /* that follow */
    char text[240];
} answer_t;

typedef struct {
    uint32_t rank, size;
    int *fds;              /* rank 0: [size], its own is NOBODY; others: [1], that to rank 0 */
    uint32_t number;       /* of the last allgather */
    tutti_status_t failed; /* what ended the meeting */
    ask_t *asks;           /* rank 0: [size] what is being received */
    size_t *have;          /* rank 0: [size] bytes received of ask and data */
} local_t;

static uint64_t patience(uint64_t timeout_ms)
{
    return timeout_ms + TUTTI__MIN(timeout_ms / 4, 2000u);
}

static void local_close(void *ctx)
{
    local_t *local = ctx;

    if (local == NULL)
        return;
    for (uint32_t i = 0; local->fds != NULL && i < (local->rank == 0 ? local->size : 1); i++)
        if (local->fds[i] >= 0)
            close(local->fds[i]);
    free(local->fds);
    free(local->asks);
    free(local->have);
    free(local);
}

/* Rank 0: the outcome to all that are here; the first failure to send is the result. */
static tutti_status_t answer_all(local_t *local, tutti_status_t status, const void *data,
                                 size_t bytes, uint64_t deadline)
{
    answer_t answer = { .status = (int32_t)status };
    tutti_status_t result = status;

    if (status != TUTTI_OK)
        snprintf(answer.text, sizeof(answer.text), "%s", tutti_last_error());
    else
        answer.bytes = bytes;
    for (uint32_t r = 1; r < local->size; r++) {
        tutti_status_t sent;

        if (local->fds[r] < 0)
            continue;
        sent = tutti__net_send(local->fds[r], r, &answer, sizeof(answer), deadline);
        if (sent == TUTTI_OK && answer.bytes > 0)
            sent = tutti__net_send(local->fds[r], r, data, answer.bytes, deadline);
        if (result == TUTTI_OK)
            result = sent;
    }
    /* Sending may have set another text. */
    return status == TUTTI_OK ? result : tutti__fail(status, "%s", answer.text);
}

/* Others: the outcome, and everyone's bytes. */
static tutti_status_t hear_answer(local_t *local, void *ret_all, size_t bytes, uint64_t deadline)
{
    answer_t answer;
    tutti_status_t status;

    status = tutti__net_recv(local->fds[0], 0, &answer, sizeof(answer), deadline);
    if (status != TUTTI_OK)
        return status;
    if (answer.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)answer.status, "%.*s", (int)sizeof(answer.text),
                           answer.text);
    if (answer.bytes != bytes)
        return tutti__fail(TUTTI_ERR_INTERNAL, "rank 0 answers %llu bytes, not %zu",
                           (unsigned long long)answer.bytes, bytes);
    return tutti__net_recv(local->fds[0], 0, ret_all, bytes, deadline);
}

static tutti_status_t missing(const local_t *local, size_t bytes)
{
    unsigned char *listed = calloc(local->size, 1);
    char text[160] = "some ranks";

    for (uint32_t r = 1; listed != NULL && r < local->size; r++)
        listed[r] = local->have[r] < sizeof(ask_t) + bytes;
    if (listed != NULL)
        tutti__net_list_ranks(listed, local->size, text, sizeof(text));
    free(listed);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not come to step %u of setting up in time", text,
                       local->number);
}

/* Rank 0: does rank r take part in the same step, with as many bytes? */
static tutti_status_t judge(const local_t *local, uint32_t r, size_t bytes)
{
    const ask_t *ask = &local->asks[r];

    if (ask->number != local->number)
        return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u is at step %u of setting up, rank 0 at %u",
                           r, ask->number, local->number);
    if (ask->bytes != bytes)
        return tutti__fail(
            TUTTI_ERR_MISMATCH,
            "rank %u gave %llu bytes where rank 0 gave %zu, at step %u of setting up", r,
            (unsigned long long)ask->bytes, bytes, local->number);
    return TUTTI_OK;
}

/* Rank 0: read what has come from rank r. */
static tutti_status_t hear_rank(local_t *local, uint32_t r, char *all, size_t bytes)
{
    size_t *have = &local->have[r];

    while (*have < sizeof(ask_t) + bytes) {
        int in_ask = *have < sizeof(ask_t);
        char *at =
            in_ask ? (char *)&local->asks[r] + *have : all + r * bytes + *have - sizeof(ask_t);
        size_t room = in_ask ? sizeof(ask_t) - *have : sizeof(ask_t) + bytes - *have;
        ssize_t n = recv(local->fds[r], at, room, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return TUTTI_OK;
        if (n <= 0)
            return tutti__fail(TUTTI_ERR_PEER_LOST, "rank %u ended while ranks met", r);
        *have += (size_t)n;
        if (*have == sizeof(ask_t)) {
            tutti_status_t status = judge(local, r, bytes);

            if (status != TUTTI_OK)
                return status;
        }
    }
    return TUTTI_OK;
}

/* Rank 0: everyone's bytes. */
static tutti_status_t gather(local_t *local, char *all, size_t bytes, struct pollfd *polls,
                             uint64_t deadline)
{
    uint32_t waiting = local->size - 1;

    for (uint32_t r = 0; r < local->size; r++) {
        polls[r] = (struct pollfd){ r == 0 ? -1 : local->fds[r], POLLIN, 0 };
        local->have[r] = 0;
    }
    while (waiting > 0) {
        int left_ms = tutti__net_left_ms(deadline);
        int n = poll(polls, local->size, left_ms);

        if (n < 0 && errno != EINTR)
            return tutti__fail_errno("poll");
        if (n <= 0 && left_ms == 0)
            return missing(local, bytes);
        for (uint32_t r = 1; n > 0 && r < local->size; r++) {
            tutti_status_t status;

            if (polls[r].fd < 0 || polls[r].revents == 0)
                continue;
            status = hear_rank(local, r, all, bytes);
            if (status != TUTTI_OK)
                return status;
            if (local->have[r] == sizeof(ask_t) + bytes) {
                polls[r].fd = -1;
                waiting--;
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t serve(local_t *local, const void *mine, size_t bytes, void *ret_all,
                            uint64_t deadline)
{
    struct pollfd *polls = calloc(local->size, sizeof(*polls));
    char *all = malloc(local->size * bytes + 1);
    tutti_status_t status;

    if (polls == NULL || all == NULL) {
        status =
            tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes of each of %u ranks", bytes, local->size);
    } else {
        if (bytes > 0)
            memcpy(all, mine, bytes);
        status = gather(local, all, bytes, polls, deadline);
    }
    /* All are listening now, but a stopped one may leave its bytes in the socket for a while. */
    status = answer_all(local, status, all, local->size * bytes, deadline);
    if (status == TUTTI_OK && bytes > 0)
        memcpy(ret_all, all, local->size * bytes);
    free(polls);
    free(all);
    return status;
}

static tutti_status_t local_allgather(void *ctx, const void *mine, size_t bytes, void *ret_all,
                                      uint64_t timeout_ms)
{
    local_t *local = ctx;
    ask_t ask = { .number = ++local->number, .bytes = bytes };
    tutti_status_t status;
    uint64_t deadline;

    if (local->failed != TUTTI_OK)
        return tutti__fail(local->failed, "an earlier step of setting up failed");
    if (local->rank == 0) {
        status = serve(local, mine, bytes, ret_all, tutti__net_deadline(timeout_ms));
    } else {
        deadline = tutti__net_deadline(patience(timeout_ms));
        status = tutti__net_send(local->fds[0], 0, &ask, sizeof(ask), deadline);
        if (status == TUTTI_OK)
            status = tutti__net_send(local->fds[0], 0, mine, bytes, deadline);
        /* Rank 0 may have told why it ended the meeting before it closed. */
        if (status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST)
            status = hear_answer(local, ret_all, local->size * bytes, deadline);
    }
    local->failed = status;
    return status;
}

static tutti_status_t open_host(local_t *local, const char *name, const tutti__gate_t *gate,
                                uint64_t deadline)
{
    tutti_status_t status;
    int door;

    local->fds = malloc(local->size * sizeof(*local->fds));
    local->asks = calloc(local->size, sizeof(*local->asks));
    local->have = calloc(local->size, sizeof(*local->have));
    if (local->fds == NULL || local->asks == NULL || local->have == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "meeting of %u ranks", local->size);
    for (uint32_t r = 0; r < local->size; r++)
        local->fds[r] = r == 0 ? TUTTI__GATE_NOBODY : TUTTI__GATE_AWAITED;
    status = tutti__net_unix_listen(name, strlen(name), &door);
    if (status != TUTTI_OK)
        return tutti__fail(status, "meeting %s: %s", name, tutti_last_error());
    status = tutti__gate_admit(gate, door, local->fds, deadline);
    close(door);
    return answer_all(local, status, NULL, 0, tutti__net_deadline(1000));
}

static tutti_status_t open_guest(local_t *local, const char *name, const tutti__gate_t *gate,
                                 uint64_t deadline)
{
    tutti_status_t status;

    local->fds = malloc(sizeof(*local->fds));
    if (local->fds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "meeting of %u ranks", local->size);
    local->fds[0] = -1;
    status = tutti__net_unix_connect(name, strlen(name), 1, deadline, &local->fds[0]);
    if (status != TUTTI_OK)
        return tutti__fail(status, "meeting %s: rank 0 is not there: %s", name, tutti_last_error());
    status = tutti__gate_knock(gate, local->fds[0], 0, deadline);
    return status == TUTTI_OK ? hear_answer(local, NULL, 0, deadline) : status;
}

tutti_status_t tutti__meet_local(const char *name, uint32_t rank, uint32_t size,
                                 uint64_t timeout_ms, tutti__meet_t *ret_meet)
{
    tutti__gate_t gate = { .purpose = TUTTI__GATE_MEET, .rank = rank, .size = size, .strict = 1 };
    tutti_status_t status;
    local_t *local;

    if (size == 0 || rank >= size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", rank, size);
    local = calloc(1, sizeof(*local));
    if (local == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "meeting of %u ranks", size);
    local->rank = rank;
    local->size = size;
    if (rank == 0)
        status = open_host(local, name, &gate, tutti__net_deadline(timeout_ms));
    else
        status = open_guest(local, name, &gate, tutti__net_deadline(patience(timeout_ms)));
    if (status != TUTTI_OK) {
        local_close(local);
        return status;
    }
    *ret_meet = (tutti__meet_t){ "local", local, rank, size, local_allgather, local_close };
    return TUTTI_OK;
}
