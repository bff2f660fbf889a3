/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The star's two sides. See star.h.
 *
 *     rank r -- ask {number, left_ms, bytes}, its bytes ----------> rank 0
 *     rank r <-- answer {status, text, bytes}, all ranks' bytes --- rank 0
 *
 * If an answer's status is not TUTTI_OK, all ranks get the same answer, and the meeting ends. So if
 * a rank is missing, all other ranks receive a text that names this rank. Ranks other than 0 wait a
 * little longer than their deadline. An ask contains the time for which its sender will wait
 * (left_ms). Rank 0 gives up before the first sender, so that all senders receive the answer.
 *
 * An allgather is one step. Rank 0 watches all connections during a step, and between steps
 * whenever star_still is called. If a rank has ended, rank 0 sends this error to all ranks in the
 * current or next step, without waiting for the asks. If rank 0 cannot send an answer to a rank,
 * that rank is lost. The other ranks still receive the answer, and the error in the next step.
 *
 * Runs on the calling thread. No wait lasts longer than about 2 s after the deadline.
 */
#include "boot/star.h"

#include "base/constants.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How many descriptors rank 0 opens while it waits for ranks, besides the connections. */
#define SPARE_FILES 4u

typedef struct {
    uint32_t number;  /* number of the allgather, from 1 */
    uint32_t left_ms; /* time for which the sender will wait for the answer; 0: unknown */
    uint64_t bytes;
} ask_t;

typedef struct {
    int32_t status;
    uint32_t unused;
    uint64_t bytes; /* length of the data that follow the answer */
    char text[240];
} answer_t;

typedef struct {
    uint32_t rank, size;
    uint32_t nfds;         /* length of fds, polls, asks and have. Rank 0: size; other ranks: 1 */
    int *fds;              /* rank 0: own entry is NOBODY; other ranks: the connection to rank 0 */
    uint32_t number;       /* number of the last allgather */
    uint64_t patience_ms;  /* other ranks: added to the timeout of an allgather */
    tutti_status_t failed; /* the status that ended the meeting, or will end it in the next step */
    char text[TUTTI__ERROR_BYTES];
    int in_step; /* 1: in a step, which watches the connections, or in star_still */
    /* For rank 0, during a step: */
    uint64_t deadline;
    struct pollfd *polls; /* fd < 0: rank 0, a lost rank, or a rank that has the whole answer */
    ask_t *asks;          /* the asks that are being received */
    size_t *have;         /* of each rank: first the received bytes of ask and data, then the sent
                             bytes of answer and data */
} star_t;

uint64_t tutti__star_patience(uint64_t deadline)
{
    return deadline + TUTTI__MIN((uint64_t)tutti__net_left_ms(deadline) / 4, 2000u) * 1000000u;
}

/* Keep the first failure, whose text is the thread's last error. */
static tutti_status_t fail_star(star_t *star, tutti_status_t status)
{
    if (status != TUTTI_OK && star->failed == TUTTI_OK) {
        star->failed = status;
        snprintf(star->text, sizeof(star->text), "%s", tutti_last_error());
    }
    return status;
}

static void close_fds(star_t *star)
{
    for (uint32_t i = 0; star->fds != NULL && i < star->nfds; i++) {
        if (star->fds[i] >= 0)
            close(star->fds[i]);
        star->fds[i] = TUTTI__GATE_NOBODY;
    }
}

static void star_settle(void *ctx)
{
    star_t *star = ctx;

    close_fds(star);
    if (star->failed != TUTTI_OK)
        return;
    star->failed = TUTTI_ERR_INTERNAL;
    snprintf(star->text, sizeof(star->text), "setting up is over");
}

static void star_close(void *ctx)
{
    star_t *star = ctx;

    if (star == NULL)
        return;
    close_fds(star);
    free(star->fds);
    free(star->polls);
    free(star->asks);
    free(star->have);
    free(star);
}

/* Rank 0: close the connection of rank r, which takes no further part. The reason is the status and
   the thread's last error. */
static tutti_status_t drop(star_t *star, uint32_t r, tutti_status_t status)
{
    close(star->fds[r]);
    star->fds[r] = TUTTI__GATE_NOBODY;
    return fail_star(star, status);
}

/* Rank 0: drop rank r, whose connection has ended. */
static tutti_status_t lose(star_t *star, uint32_t r)
{
    return drop(star, r, tutti__fail(TUTTI_ERR_PEER_LOST, "rank %u ended while ranks met", r));
}

/* Rank 0: drop rank r, because send() has failed. The reason is that of a check of net.h, or else
   the errno `error`. */
static void drop_broken(star_t *star, uint32_t r, int error)
{
    tutti_status_t status = tutti__net_still();

    if (status != TUTTI_OK) {
        drop(star, r, status);
    } else if (tutti__net_is_lost(error)) {
        lose(star, r);
    } else {
        errno = error;
        drop(star, r, tutti__fail_errno("send to rank %u", r));
    }
}

/* Rank 0: send as much of the answer as rank r's socket takes. Returns 0 if a part is left, 1 if
   all was sent, or if rank r is lost. */
static int send_some(star_t *star, uint32_t r, const answer_t *answer, const char *data)
{
    size_t *sent = &star->have[r], bytes = sizeof(*answer) + answer->bytes;

    while (*sent < bytes) {
        int in_answer = *sent < sizeof(*answer);
        const char *at = in_answer ? (const char *)answer + *sent : data + *sent - sizeof(*answer);
        size_t left = (in_answer ? sizeof(*answer) : bytes) - *sent;
        ssize_t n = send(star->fds[r], at, left, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            *sent += (size_t)n;
        } else if (errno == EAGAIN) {
            return 0;
        } else if (errno != EINTR) {
            drop_broken(star, r, errno);
            return 1;
        }
    }
    return 1;
}

/* Rank 0: send the answer to all connected ranks at the same time, because a stopped rank must not
   delay the answer to the other ranks. */
static void send_all(star_t *star, const answer_t *answer, const char *data, uint64_t deadline)
{
    tutti_status_t status = TUTTI_OK;
    uint32_t left = 0;
    int ready = 1;

    for (uint32_t r = 0; r < star->size; r++) {
        star->polls[r] = (struct pollfd){ r == 0 ? -1 : star->fds[r], POLLOUT, POLLOUT };
        star->have[r] = 0;
        left += star->polls[r].fd >= 0;
    }
    while (left > 0 && status == TUTTI_OK && ready > 0) {
        for (uint32_t r = 1; r < star->size; r++) {
            struct pollfd *pfd = &star->polls[r];

            if (pfd->fd < 0 || pfd->revents == 0 || !send_some(star, r, answer, data))
                continue;
            pfd->fd = -1;
            left--;
        }
        if (left > 0)
            status = tutti__net_poll(star->polls, star->size, deadline, &ready);
    }
    /* Some ranks do not read, or a check of net.h has ended the wait: then use the check's
       reason. */
    for (uint32_t r = 1; left > 0 && r < star->size; r++)
        if (star->polls[r].fd >= 0)
            drop(star, r,
                 status != TUTTI_OK
                     ? status
                     : tutti__fail(TUTTI_ERR_TIMEOUT, "rank %u did not read an answer in time", r));
}

/* Rank 0: send the outcome of a step to all connected ranks. If a rank cannot be reached, the rank
   is lost, but the outcome does not change, because other ranks may have received it. */
static tutti_status_t answer_all(star_t *star, tutti_status_t status, const void *data,
                                 size_t bytes, uint64_t deadline)
{
    answer_t answer = { .status = (int32_t)status };

    if (status != TUTTI_OK)
        snprintf(answer.text, sizeof(answer.text), "%s", tutti_last_error());
    else
        answer.bytes = bytes;
    send_all(star, &answer, data, deadline);
    /* Sending may have changed the thread's last error, so set it again. */
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail(status, "%s", answer.text);
}

/* Rank 0: send the error to a process whose rank has connected already. The connection's send
   buffer is empty, so the answer fits. */
static void dismiss(int fd, tutti_status_t status)
{
    answer_t answer = { .status = (int32_t)status };

    snprintf(answer.text, sizeof(answer.text), "%s", tutti_last_error());
    (void)send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Other ranks: receive the outcome and the bytes of all ranks. */
static tutti_status_t hear_answer(star_t *star, void *ret_all, size_t bytes, uint64_t deadline)
{
    answer_t answer;
    tutti_status_t status;

    status = tutti__net_recv(star->fds[0], 0, &answer, sizeof(answer), deadline);
    if (status != TUTTI_OK)
        return status;
    if (answer.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)answer.status, "%.*s", (int)sizeof(answer.text),
                           answer.text);
    if (answer.bytes != bytes)
        return tutti__fail(TUTTI_ERR_INTERNAL, "rank 0 answers %llu bytes, not %zu",
                           (unsigned long long)answer.bytes, bytes);
    return tutti__net_recv(star->fds[0], 0, ret_all, bytes, deadline);
}

static tutti_status_t missing(const star_t *star, size_t bytes)
{
    unsigned char *listed = calloc(star->size, 1);
    char text[160] = "some ranks";

    for (uint32_t r = 1; listed != NULL && r < star->size; r++)
        listed[r] = star->have[r] < sizeof(ask_t) + bytes;
    if (listed != NULL)
        tutti__net_list_ranks(listed, star->size, text, sizeof(text));
    free(listed);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not come to step %u of setting up in time", text,
                       star->number);
}

/* Rank 0: does rank r take part in the same step, with the same number of bytes? */
static tutti_status_t judge(const star_t *star, uint32_t r, size_t bytes)
{
    const ask_t *ask = &star->asks[r];

    if (ask->number != star->number)
        return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u is at step %u of setting up, rank 0 at %u",
                           r, ask->number, star->number);
    if (ask->bytes != bytes)
        return tutti__fail(
            TUTTI_ERR_MISMATCH,
            "rank %u gave %llu bytes where rank 0 gave %zu, at step %u of setting up", r,
            (unsigned long long)ask->bytes, bytes, star->number);
    return TUTTI_OK;
}

/* Rank 0: read the bytes that have arrived from rank r. */
static tutti_status_t hear_rank(star_t *star, uint32_t r, char *all, size_t bytes)
{
    size_t *have = &star->have[r];

    while (*have < sizeof(ask_t) + bytes) {
        int in_ask = *have < sizeof(ask_t);
        char *at =
            in_ask ? (char *)&star->asks[r] + *have : all + r * bytes + *have - sizeof(ask_t);
        size_t capacity = in_ask ? sizeof(ask_t) - *have : sizeof(ask_t) + bytes - *have;
        ssize_t n = recv(star->fds[r], at, capacity, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return TUTTI_OK;
        if (n <= 0)
            return lose(star, r);
        *have += (size_t)n;
        if (*have == sizeof(ask_t)) {
            tutti_status_t status = judge(star, r, bytes);
            uint32_t left_ms = star->asks[r].left_ms;

            if (status != TUTTI_OK)
                return status;
            if (left_ms > 0)
                star->deadline = TUTTI__MIN(star->deadline, tutti__gate_decide_by(left_ms));
        }
    }
    return TUTTI_OK;
}

/* Rank 0: receive the bytes of all ranks. Ranks that have sent their bytes are still watched. */
static tutti_status_t gather(star_t *star, char *all, size_t bytes)
{
    struct pollfd *polls = star->polls;
    uint32_t waiting = star->size - 1;

    for (uint32_t r = 0; r < star->size; r++) {
        polls[r] = (struct pollfd){ r == 0 ? -1 : star->fds[r], POLLIN | POLLRDHUP, 0 };
        star->have[r] = 0;
    }
    while (waiting > 0) {
        tutti_status_t status;
        int ready;

        status = tutti__net_poll(polls, star->size, star->deadline, &ready);
        if (status != TUTTI_OK)
            return status;
        if (ready == 0)
            return missing(star, bytes);
        for (uint32_t r = 1; r < star->size; r++) {
            if (polls[r].fd < 0 || polls[r].revents == 0)
                continue;
            if (star->have[r] == sizeof(ask_t) + bytes)
                return lose(star, r);
            status = hear_rank(star, r, all, bytes);
            if (status != TUTTI_OK)
                return status;
            if (star->have[r] == sizeof(ask_t) + bytes) {
                polls[r].events = POLLRDHUP;
                waiting--;
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t serve(star_t *star, const void *mine, size_t bytes, void *ret_all)
{
    char *all = malloc(star->size * bytes + 1);
    tutti_status_t status;

    if (star->failed != TUTTI_OK) {
        status = tutti__fail(star->failed, "%s", star->text);
    } else if (all == NULL) {
        status =
            tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes of each of %u ranks", bytes, star->size);
    } else {
        if (bytes > 0)
            memcpy(all, mine, bytes);
        status = gather(star, all, bytes);
    }
    /* A successful send does not mean that the rank has received the answer: the answer to a
       stopped rank stays in the socket. Sending may always take STAR_MESSAGE_MS. */
    status = answer_all(star, status, all, star->size * bytes,
                        TUTTI__MAX(star->deadline, tutti__net_deadline(TUTTI__STAR_MESSAGE_MS)));
    if (status == TUTTI_OK && bytes > 0)
        memcpy(ret_all, all, star->size * bytes);
    free(all);
    return status;
}

/* Other ranks: send this rank's bytes, and receive the bytes of all ranks. */
static tutti_status_t ask(star_t *star, const void *mine, size_t bytes, void *ret_all,
                          uint64_t deadline)
{
    ask_t ask = { .number = star->number,
                  .left_ms = (uint32_t)TUTTI__MAX(tutti__net_left_ms(deadline), 1),
                  .bytes = bytes };
    tutti_status_t status = tutti__net_send(star->fds[0], 0, &ask, sizeof(ask), deadline);

    if (status == TUTTI_OK)
        status = tutti__net_send(star->fds[0], 0, mine, bytes, deadline);
    /* Even if rank 0 has closed the connection, it may have sent the reason before: read it. */
    if (status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST)
        status = hear_answer(star, ret_all, star->size * bytes, deadline);
    return status;
}

static tutti_status_t star_allgather(void *ctx, const void *mine, size_t bytes, void *ret_all,
                                     uint64_t timeout_ms)
{
    star_t *star = ctx;
    tutti_status_t status;

    star->number++;
    star->in_step = 1;
    star->deadline = tutti__net_deadline(timeout_ms);
    if (star->rank == 0)
        status = serve(star, mine, bytes, ret_all);
    else if (star->failed != TUTTI_OK)
        status = tutti__fail(star->failed, "%s", star->text);
    else
        status =
            ask(star, mine, bytes, ret_all, tutti__net_deadline(timeout_ms + star->patience_ms));
    star->in_step = 0;
    return fail_star(star, status);
}

/* Rank 0: has a connection ended? */
static tutti_status_t look_at_all(star_t *star)
{
    for (uint32_t r = 1; r < star->size; r++) {
        struct pollfd pfd = { star->fds[r], POLLRDHUP, 0 };

        if (pfd.fd >= 0 && poll(&pfd, 1, 0) > 0)
            lose(star, r);
    }
    return star->failed == TUTTI_OK ? TUTTI_OK : tutti__fail(star->failed, "%s", star->text);
}

/* Other ranks: has rank 0 reported a failure? Between steps rank 0 sends nothing else. */
static tutti_status_t look_at_root(star_t *star)
{
    struct pollfd pfd = { star->fds[0], POLLIN | POLLRDHUP, 0 };

    if (star->failed != TUTTI_OK)
        return tutti__fail(star->failed, "%s", star->text);
    if (poll(&pfd, 1, 0) <= 0)
        return TUTTI_OK;
    return fail_star(star, hear_answer(star, NULL, 0, tutti__net_deadline(TUTTI__STAR_MESSAGE_MS)));
}

static tutti_status_t star_still(void *ctx)
{
    star_t *star = ctx;
    tutti_status_t status;

    if (star->in_step)
        return TUTTI_OK;
    star->in_step = 1;
    status = star->rank == 0 ? look_at_all(star) : look_at_root(star);
    star->in_step = 0;
    return status;
}

/* Make a star with space for `nfds` connections. */
static tutti_status_t make(const tutti__gate_t *gate, uint32_t nfds, star_t **ret_star)
{
    star_t *star = calloc(1, sizeof(*star));

    if (star != NULL) {
        star->rank = gate->rank;
        star->size = gate->size;
        star->nfds = nfds;
        star->fds = malloc(nfds * sizeof(*star->fds));
        star->polls = calloc(nfds, sizeof(*star->polls));
        star->asks = calloc(nfds, sizeof(*star->asks));
        star->have = calloc(nfds, sizeof(*star->have));
        for (uint32_t i = 0; star->fds != NULL && i < nfds; i++)
            star->fds[i] = TUTTI__GATE_NOBODY;
    }
    if (star == NULL || star->fds == NULL || star->polls == NULL || star->asks == NULL ||
        star->have == NULL) {
        star_close(star);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "meeting of %u ranks", gate->size);
    }
    *ret_star = star;
    return TUTTI_OK;
}

/* After hosting or joining: return the star as a meeting. After an error, free the star. */
static tutti_status_t begin(star_t *star, const char *name, uint64_t deadline,
                            tutti_status_t status, tutti__meet_t *ret_meet)
{
    if (status != TUTTI_OK) {
        star_close(star);
        return status;
    }
    *ret_meet = (tutti__meet_t){ .name = name,
                                 .ctx = star,
                                 .rank = star->rank,
                                 .size = star->size,
                                 .deadline = deadline,
                                 .allgather = star_allgather,
                                 .still = star_still,
                                 .settle = star_settle,
                                 .close = star_close };
    return TUTTI_OK;
}

static tutti_status_t no_files(tutti_status_t status)
{
    return tutti__fail(status, "rank 0: %s", tutti_last_error());
}

tutti_status_t tutti__star_host(const tutti__gate_t *gate, const char *name, int door,
                                uint64_t deadline, tutti__meet_t *ret_meet)
{
    tutti__gate_t mine = *gate;
    tutti_status_t status;
    star_t *star;

    mine.dismiss = dismiss;
    status = make(gate, gate->size, &star);
    if (status != TUTTI_OK) {
        close(door);
        return status;
    }
    for (uint32_t r = 1; r < star->size; r++)
        star->fds[r] = TUTTI__GATE_AWAITED;
    /* Check the limit of descriptors before the other ranks wait. */
    status = tutti__net_files_left(gate->size + SPARE_FILES);
    if (status == TUTTI_OK)
        status = tutti__gate_admit(&mine, door, star->fds, deadline);
    else
        status = tutti__gate_turn_away(&mine, door, star->fds, no_files(status), deadline);
    close(door);
    status = answer_all(star, status, NULL, 0, tutti__net_deadline(TUTTI__STAR_MESSAGE_MS));
    return begin(star, name, deadline, status, ret_meet);
}

tutti_status_t tutti__star_join(const tutti__gate_t *gate, const char *name, int fd,
                                uint64_t deadline, uint64_t until, tutti__meet_t *ret_meet)
{
    tutti_status_t status;
    star_t *star;

    status = make(gate, 1, &star);
    if (status != TUTTI_OK) {
        close(fd);
        return status;
    }
    star->fds[0] = fd;
    star->patience_ms = (until - deadline) / 1000000u;
    status = hear_answer(star, NULL, 0, until);
    return begin(star, name, deadline, status, ret_meet);
}
