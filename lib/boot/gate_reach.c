/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's side of the gate: knocks at a gate, and finds a gate on another host. See gate.h.
 *
 * An error at one address is not final, because another process may listen there. So a guest tries
 * the addresses until the deadline. The guest stops earlier if a gate with the job's token has
 * refused, if memory or descriptors are exhausted, or if no process listens at any address.
 */
#include "boot/gate.h"

#include "base/constants.h"
#include "base/log.h"
#include "boot/gate_wire.h"
#include "boot/waiting.h"
#include "boot/pass.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What an attempt to knock has found, besides its status. */
typedef struct {
    int is_refused; /* a gate with the token has refused; this is final */
    int is_other;   /* a gate of another job has refused; the last error has its text */
    int is_greeted; /* a gate with a pass has sent a greeting that names this job */
} verdict_t;

/* Replace unprintable characters: perhaps the sender of the text does not belong to this job. */
static void clean(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* Return the error for an answer without a valid token. */
static tutti_status_t wrong_token(const tutti__gate_t *gate, const tutti__gate_answer_t *answer,
                                  uint32_t host, verdict_t *verdict)
{
    char text[sizeof(answer->text)];

    if (gate->pass != NULL && answer->magic == TUTTI__GATE_MAGIC && answer->status != TUTTI_OK) {
        snprintf(text, sizeof(text), "%.*s", (int)sizeof(text) - 1, answer->text);
        clean(text);
        verdict->is_other = 1;
        return tutti__fail(TUTTI_ERR_PEER_LOST, "the process that listens there has refused: %s",
                           text);
    }
    return tutti__fail(TUTTI_ERR_TRANSPORT,
                       host == TUTTI__NET_MAKER ? "the process that answered is not of this job"
                                                : "the process that answered instead of rank "
                                                  "%u is not of this job",
                       host);
}

/* Wait for the gate's answer, and judge it. */
static tutti_status_t hear_answer(const tutti__gate_t *gate, const unsigned char *token, int fd,
                                  uint32_t host, uint64_t deadline, verdict_t *verdict)
{
    const uint32_t later = TUTTI__GATE_LATER;
    tutti__gate_answer_t answer;
    tutti_status_t status;

    status = tutti__net_recv(fd, host, &answer, sizeof(answer), deadline);
    if (status != TUTTI_OK) {
        /* Without this message, the gate would count this rank as dead. */
        (void)send(fd, &later, sizeof(later), MSG_NOSIGNAL | MSG_DONTWAIT);
        return status;
    }
    if (answer.magic != TUTTI__GATE_MAGIC || !tutti__gate_same_token(answer.token, token))
        return wrong_token(gate, &answer, host, verdict);
    verdict->is_refused = answer.status != TUTTI_OK;
    if (verdict->is_refused)
        return tutti__fail((tutti_status_t)answer.status, "%.*s", (int)sizeof(answer.text),
                           answer.text);
    return TUTTI_OK;
}

/* For a gate with a pass: receive the greeting, send the hello, make this connection's tokens. */
static tutti_status_t show_pass(const tutti__gate_t *gate, int fd, uint32_t host, uint64_t deadline,
                                tutti__gate_token_t *ret_token, verdict_t *verdict)
{
    tutti__gate_greeting_t greeting;
    tutti__gate_hello_t hello;
    tutti_status_t status;

    status = tutti__net_recv(fd, host, &greeting, sizeof(greeting), deadline);
    if (status != TUTTI_OK)
        return status;
    status = tutti__pass_judge_greeting(gate->pass, &greeting);
    if (status != TUTTI_OK) {
        verdict->is_other = greeting.magic == TUTTI__GATE_GREETING;
        return status;
    }
    /* If the gate belongs to another job, it will refuse the hello with a reason, or will close the
       connection without an answer. */
    verdict->is_greeted = tutti__pass_is_ours(gate->pass, &greeting);
    status = tutti__pass_hello(gate->pass, &hello);
    if (status == TUTTI_OK)
        status =
            tutti__pass_tokens(gate->pass, &greeting, &hello, gate->rank, gate->size, ret_token);
    return status == TUTTI_OK ? tutti__net_send(fd, host, &hello, sizeof(hello), deadline) : status;
}

static tutti_status_t knock_at(const tutti__gate_t *gate, int fd, uint32_t host, uint64_t deadline,
                               verdict_t *verdict)
{
    const uint32_t confirm = TUTTI__GATE_CONFIRM;
    tutti__gate_token_t token = gate->token;
    tutti__gate_knock_t knock = { .magic = TUTTI__GATE_MAGIC,
                                  .layout = TUTTI__BOOT_LAYOUT,
                                  .purpose = gate->purpose,
                                  .number = gate->number,
                                  .rank = gate->rank,
                                  .size = gate->size };
    tutti_status_t status;

    if (gate->until != 0)
        knock.left_ms = (uint32_t)TUTTI__MAX(tutti__net_left_ms(gate->until), 1);

    status = tutti__net_same_user(fd);
    if (status == TUTTI_OK && gate->pass != NULL)
        status = show_pass(gate, fd, host, deadline, &token, verdict);
    if (status != TUTTI_OK)
        return status;
    memcpy(knock.token, token.knock, sizeof(knock.token));
    status = tutti__net_send(fd, host, &knock, sizeof(knock), deadline);
    if (status == TUTTI_OK)
        status = hear_answer(gate, token.answer, fd, host, deadline, verdict);
    return status == TUTTI_OK ? tutti__net_send(fd, host, &confirm, sizeof(confirm), deadline)
                              : status;
}

tutti_status_t tutti__gate_knock(const tutti__gate_t *gate, int fd, uint32_t host,
                                 uint64_t deadline)
{
    verdict_t verdict = { 0, 0, 0 };

    return knock_at(gate, fd, host, deadline, &verdict);
}

/* Try one address until try_deadline. */
static tutti_status_t try_address(const tutti__gate_t *gate, const tutti__net_addr_t *addr,
                                  uint32_t host, uint64_t try_deadline, verdict_t *verdict,
                                  int *ret_fd)
{
    tutti_status_t status;
    int fd;

    status = tutti__net_tcp_connect(addr, try_deadline, &fd);
    if (status != TUTTI_OK)
        return status;
    status = tutti__net_tcp_options(fd);
    if (status == TUTTI_OK)
        status = knock_at(gate, fd, host, try_deadline, verdict);
    if (status != TUTTI_OK) {
        close(fd);
        /* Do not return TRANSPORT (no process listens): a process has accepted the connection. */
        return status == TUTTI_ERR_TRANSPORT && !verdict->is_refused ? TUTTI_ERR_PEER_LOST : status;
    }
    *ret_fd = fd;
    return TUTTI_OK;
}

/* Is this status final? After a final status no other address is tried. */
static int is_final(tutti_status_t status)
{
    return status == TUTTI_OK || status == TUTTI_ERR_INVALID_ARGUMENT || status == TUTTI_ERR_ABI ||
           status == TUTTI_ERR_NO_MEMORY || status == TUTTI_ERR_SHUTDOWN;
}

tutti_status_t tutti__gate_try(const tutti__gate_t *gate, tutti__gate_round_t *round, uint32_t host,
                               uint64_t deadline, int *ret_fd)
{
    tutti_status_t status = TUTTI_ERR_TIMEOUT;

    round->is_alone = 1;
    round->is_final = round->is_greeted = 0;
    round->other[0] = '\0';
    for (uint32_t i = 0; i < round->count; i++) {
        uint64_t try_deadline = tutti__net_deadline(round->try_ms);
        verdict_t verdict = { 0, 0, 0 };

        status = try_address(gate, &round->addrs[i], host, TUTTI__MIN(try_deadline, deadline),
                             &verdict, ret_fd);
        round->is_greeted |= verdict.is_greeted && !verdict.is_other;
        if (verdict.is_other)
            snprintf(round->other, sizeof(round->other), "%s", tutti_last_error());
        round->is_final = verdict.is_refused || (is_final(status) && !verdict.is_other);
        if (round->is_final)
            return status;
        round->is_alone &= status == TUTTI_ERR_TRANSPORT;
    }
    return status;
}

/* Write a text that names the gate that cannot be reached, and has the thread's last error. */
static void describe(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs, uint32_t host,
                     char *ret_text, size_t text_bytes)
{
    char places[200] = "", where[64], who[40] = "the process that made the unique id";
    size_t used = 0;

    for (uint32_t i = 0; i < addrs->count && used < sizeof(places); i++) {
        tutti__net_addr_text(&addrs->addr[i], where, sizeof(where));
        used += (size_t)snprintf(places + used, sizeof(places) - used, " %s", where);
    }
    if (host != TUTTI__NET_MAKER)
        snprintf(who, sizeof(who), "rank %u", host);
    snprintf(ret_text, text_bytes, "rank %u cannot reach %s at%s (last: %s)", gate->rank, who,
             places, tutti_last_error());
}

static tutti_status_t unreachable(tutti_status_t status, const tutti__gate_t *gate,
                                  const tutti__net_addrs_t *addrs, uint32_t host)
{
    char text[TUTTI__ERROR_BYTES];

    describe(gate, addrs, host, text, sizeof(text));
    return tutti__fail(status, "%s; TUTTI_INTERFACE names the network interface to use", text);
}

/* Called between two rounds of attempts: warn if the attempts have lasted for a long time. */
static void warn_of_wait(tutti__waiting_t *waiting, const tutti__gate_t *gate,
                         const tutti__net_addrs_t *addrs, uint32_t host)
{
    char text[TUTTI__ERROR_BYTES];
    double waited_s;

    if (!tutti__waiting_now(waiting, &waited_s))
        return;
    describe(gate, addrs, host, text, sizeof(text));
    TUTTI__LOG(TUTTI__LOG_WARN, "%s; it has tried for %.1f s", text, waited_s);
}

tutti_status_t tutti__gate_reach(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs,
                                 uint32_t host, int patient, uint64_t deadline, int *ret_fd)
{
    tutti__gate_round_t round = { .addrs = addrs->addr,
                                  .count = addrs->count,
                                  .try_ms = TUTTI__REACH_FIRST_MS };
    tutti__waiting_t waiting = { 0, 0 };
    tutti_status_t status = TUTTI_OK;
    unsigned pause_ms = TUTTI__REACH_PAUSE_MS;

    for (;;) {
        warn_of_wait(&waiting, gate, addrs, host);
        status = tutti__gate_try(gate, &round, host, deadline, ret_fd);
        if (round.is_final)
            return status;
        if (round.is_alone && !patient)
            return unreachable(TUTTI_ERR_TRANSPORT, gate, addrs, host);
        if (tutti__net_left_ms(deadline) == 0)
            return unreachable(TUTTI_ERR_TIMEOUT, gate, addrs, host);
        tutti__net_sleep_ms(TUTTI__MIN(pause_ms, (unsigned)tutti__net_left_ms(deadline)));
        pause_ms = TUTTI__MIN(2 * pause_ms, TUTTI__REACH_PAUSE_MOST_MS);
        status = tutti__net_still();
        if (status != TUTTI_OK)
            return status;
        round.try_ms = TUTTI__MIN(2 * round.try_ms, TUTTI__REACH_MOST_MS);
    }
}
