/* SPDX-License-Identifier: BSD-3-Clause */
/* The decisions of an open gate: which guests are admitted, and when the gate fails.
   See gate_host.h. */
#include "boot/gate_host.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The gate rejects a knock with a larger number of ranks. */
#define MOST_RANKS (1u << 24)
/* The number of descriptors that the gate needs besides the ranks' connections. */
#define SPARE_FILES 4u

void tutti__gate_fail(tutti__gate_host_t *host, tutti_status_t status)
{
    if (host->failed != TUTTI_OK)
        return;
    host->failed = status;
    snprintf(host->text, sizeof(host->text), "%s", tutti_last_error());
    /* If tutti__net_failed has sent the error to the other ranks, no more ranks will connect. */
    host->deadline = TUTTI__MIN(
        host->deadline, tutti__net_deadline(tutti__net_failed(status) ? 0 : TUTTI__GATE_GRACE_MS));
}

void tutti__gate_stop_awaiting(tutti__gate_host_t *host, uint32_t r)
{
    if (r >= host->size || host->fds[r] != TUTTI__GATE_AWAITED)
        return;
    host->fds[r] = TUTTI__GATE_NOBODY;
    host->awaited--;
}

void tutti__gate_lose(tutti__gate_host_t *host, uint32_t rank)
{
    tutti__gate_fail(host, tutti__fail(TUTTI_ERR_PEER_LOST, "rank %u ended while ranks met", rank));
    tutti__gate_stop_awaiting(host, rank);
}

int tutti__gate_is_stranger(const tutti__gate_t *gate, const tutti__gate_guest_t *guest)
{
    const tutti__gate_knock_t *knock = &guest->knock;

    return knock->magic != TUTTI__GATE_MAGIC || knock->purpose != (uint32_t)gate->purpose ||
           !(gate->pass != NULL || tutti__gate_same_token(knock->token, gate->token.knock));
}

/* A refused guest has not proved that it belongs to this job, so the answer has no token. */
tutti_status_t tutti__gate_check_pass(const tutti__gate_t *gate, tutti__gate_guest_t *guest)
{
    const tutti__gate_knock_t *knock = &guest->knock;
    tutti__gate_token_t token;
    tutti_status_t status;

    memset(&guest->token, 0, sizeof(guest->token));
    status = tutti__pass_tokens(gate->pass, &guest->greeting, &guest->hello, knock->rank,
                                knock->size, &token);
    if (status != TUTTI_OK)
        return status;
    if (!tutti__gate_same_token(knock->token, token.knock))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "rank %u has another job secret than rank 0",
                           knock->rank);
    status = tutti__pass_judge_hello(gate->pass, &guest->hello, knock->rank);
    if (status == TUTTI_OK)
        guest->token = token;
    return status;
}

/* Take the number of ranks from the first guest's knock. */
static tutti_status_t take_size(tutti__gate_host_t *host, const tutti__gate_knock_t *knock)
{
    tutti_status_t status;

    if (knock->size == 0 || knock->size > MOST_RANKS || knock->rank >= knock->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", knock->rank,
                           knock->size);
    /* Check the limit of descriptors before any rank is admitted. */
    status = tutti__net_files_left(knock->size + SPARE_FILES);
    if (status != TUTTI_OK)
        return tutti__fail(status, "the process that made the unique id cannot admit %u ranks: %s",
                           knock->size, tutti_last_error());
    host->fds = malloc(knock->size * sizeof(*host->fds));
    if (host->fds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "gate for %u ranks", knock->size);
    *host->ret_fds = host->fds;
    for (uint32_t r = 0; r < knock->size; r++)
        host->fds[r] = TUTTI__GATE_AWAITED;
    host->rank = knock->rank;
    host->size = host->awaited = knock->size;
    host->begin_ns = tutti__now_ns();
    host->deadline = tutti__net_deadline(host->timeout_ms);
    return TUTTI_OK;
}

tutti_status_t tutti__gate_judge(tutti__gate_host_t *host, const tutti__gate_knock_t *knock)
{
    const tutti__gate_t *gate = host->gate;
    tutti_status_t status = TUTTI_OK;

    if (knock->layout != TUTTI__BOOT_LAYOUT)
        return tutti__fail(TUTTI_ERR_ABI, "rank %u has layout %u, rank %u has %u", knock->rank,
                           knock->layout, host->rank, TUTTI__BOOT_LAYOUT);
    if (host->failed != TUTTI_OK)
        return tutti__fail(host->failed, "%s", host->text);
    if (host->size == 0)
        status = take_size(host, knock);
    if (status != TUTTI_OK)
        return status;
    if (knock->size != host->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u was told of %u ranks, rank %u of %u", knock->rank, knock->size,
                           host->rank, host->size);
    if (knock->rank >= host->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", knock->rank,
                           host->size);
    if (host->fds[knock->rank] != TUTTI__GATE_AWAITED || knock->number != gate->number)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank %u", knock->rank);
    return TUTTI_OK;
}

/* An answer always fits into the socket, whose send buffer is empty. */
int tutti__gate_answer(const tutti__gate_guest_t *guest, tutti_status_t status)
{
    tutti__gate_answer_t answer = { .magic = TUTTI__GATE_MAGIC,
                                    .layout = TUTTI__BOOT_LAYOUT,
                                    .status = (int32_t)status };

    memcpy(answer.token, guest->token.answer, sizeof(answer.token));
    if (status != TUTTI_OK)
        snprintf(answer.text, sizeof(answer.text), "%s", tutti_last_error());
    return send(guest->fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(answer);
}

/* Write a text with the ranks that have not connected. */
static void list_missing(const tutti__gate_host_t *host, char *ret_text, size_t text_bytes)
{
    unsigned char *listed = calloc(host->size, 1);

    snprintf(ret_text, text_bytes, "some ranks");
    for (uint32_t r = 0; listed != NULL && r < host->size; r++)
        listed[r] = host->fds[r] == TUTTI__GATE_AWAITED;
    if (listed != NULL)
        tutti__net_list_ranks(listed, host->size, ret_text, text_bytes);
    free(listed);
}

void tutti__gate_warn(const tutti__gate_host_t *host, double waited_s)
{
    const char *have = host->awaited == 1 ? "has" : "have";
    char text[160];

    list_missing(host, text, sizeof(text));
    if (host->ret_fds != NULL)
        TUTTI__LOG(TUTTI__LOG_WARN, "the ranks of a unique id have waited %.1f s: %s %s not come",
                   waited_s, text, have);
    else
        TUTTI__LOG(TUTTI__LOG_WARN, "rank %u has waited %.1f s: %s %s not connected to it",
                   host->rank, waited_s, text, have);
}

uint64_t tutti__gate_decide_by(uint32_t left_ms)
{
    /* If T is the time until the rank's own deadline, left_ms is T + min(T / 4, 2 s): see
       tutti__star_patience. This function subtracts less than tutti__star_patience has added, so
       the result is later than the rank's own deadline. */
    return tutti__net_deadline(left_ms - TUTTI__MIN(left_ms / 6, TUTTI__STAR_MESSAGE_MS));
}

/* Returns a text for messages: the port at which a gate over TCP listens; "" for other gates. */
static const char *port_text(int door, char *text, size_t text_bytes)
{
    struct sockaddr_storage addr;
    socklen_t bytes = sizeof(addr);
    uint16_t port = 0;

    text[0] = '\0';
    if (getsockname(door, (struct sockaddr *)&addr, &bytes) != 0)
        return text;
    if (addr.ss_family == AF_INET)
        port = ((const struct sockaddr_in *)(const void *)&addr)->sin_port;
    else if (addr.ss_family == AF_INET6)
        port = ((const struct sockaddr_in6 *)(const void *)&addr)->sin6_port;
    if (port != 0)
        snprintf(text, text_bytes, " at port %u", ntohs(port));
    return text;
}

tutti_status_t tutti__gate_missing(const tutti__gate_host_t *host)
{
    double waited_s = (double)(tutti__now_ns() - host->begin_ns) * 1e-9;
    char text[160], port[16];

    list_missing(host, text, sizeof(text));
    if (host->ret_fds != NULL)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not come within %.1f s", text,
                           (double)(host->deadline - host->begin_ns) * 1e-9);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not connect to rank %u%s within %.1f s%s", text,
                       host->rank, port_text(host->door, port, sizeof(port)), waited_s,
                       host->nstrangers > 0 ? "; this rank has rejected other connections" : "");
}
