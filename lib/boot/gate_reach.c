/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's side of the gate: knocking, and finding a gate on another host. See gate.h.
 *
 * An error at one address proves little, because the address may belong to another process. So an
 * attempt goes on until its deadline, unless a gate with the job's token has refused, this process
 * is at its limits, or no process listens at any address.
 */
#include "boot/gate.h"

#include "base/constants.h"
#include "boot/gate_wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Wait for the gate's answer, and judge it. *ret_refused: a gate with the token has refused. */
static tutti_status_t hear_answer(const tutti__gate_t *gate, int fd, uint32_t host,
                                  uint64_t deadline, int *ret_refused)
{
    const uint32_t later = TUTTI__GATE_LATER;
    tutti__gate_answer_t answer;
    tutti_status_t status;

    status = tutti__net_recv(fd, host, &answer, sizeof(answer), deadline);
    if (status != TUTTI_OK) {
        /* Without this message the gate would consider this rank dead. */
        (void)send(fd, &later, sizeof(later), MSG_NOSIGNAL | MSG_DONTWAIT);
        return status;
    }
    if (answer.magic != TUTTI__GATE_MAGIC ||
        !tutti__gate_same_token(answer.token, gate->token.answer))
        return tutti__fail(TUTTI_ERR_TRANSPORT,
                           host == TUTTI__NET_MAKER ? "the process that answered is not of this job"
                                                    : "the process that answered instead of rank "
                                                      "%u is not of this job",
                           host);
    *ret_refused = answer.status != TUTTI_OK;
    if (*ret_refused)
        return tutti__fail((tutti_status_t)answer.status, "%.*s", (int)sizeof(answer.text),
                           answer.text);
    return TUTTI_OK;
}

static tutti_status_t knock_at(const tutti__gate_t *gate, int fd, uint32_t host, uint64_t deadline,
                               int *ret_refused)
{
    const uint32_t confirm = TUTTI__GATE_CONFIRM;
    tutti__gate_knock_t knock = { .magic = TUTTI__GATE_MAGIC,
                                  .layout = TUTTI__BOOT_LAYOUT,
                                  .purpose = gate->purpose,
                                  .number = gate->number,
                                  .rank = gate->rank,
                                  .size = gate->size };
    tutti_status_t status;

    status = tutti__net_same_user(fd);
    if (status != TUTTI_OK)
        return status;
    memcpy(knock.token, gate->token.knock, sizeof(knock.token));
    status = tutti__net_send(fd, host, &knock, sizeof(knock), deadline);
    if (status == TUTTI_OK)
        status = hear_answer(gate, fd, host, deadline, ret_refused);
    return status == TUTTI_OK ? tutti__net_send(fd, host, &confirm, sizeof(confirm), deadline)
                              : status;
}

tutti_status_t tutti__gate_knock(const tutti__gate_t *gate, int fd, uint32_t host,
                                 uint64_t deadline)
{
    int refused;

    return knock_at(gate, fd, host, deadline, &refused);
}

/* Try one address until try_deadline. */
static tutti_status_t try_address(const tutti__gate_t *gate, const tutti__net_addr_t *addr,
                                  uint32_t host, uint64_t try_deadline, int *ret_refused,
                                  int *ret_fd)
{
    tutti_status_t status;
    int fd;

    status = tutti__net_tcp_connect(addr, try_deadline, &fd);
    if (status != TUTTI_OK)
        return status;
    status = tutti__net_tcp_options(fd);
    if (status == TUTTI_OK)
        status = knock_at(gate, fd, host, try_deadline, ret_refused);
    if (status != TUTTI_OK) {
        close(fd);
        /* A process was listening there, so this is not TRANSPORT. */
        return status == TUTTI_ERR_TRANSPORT && !*ret_refused ? TUTTI_ERR_PEER_LOST : status;
    }
    *ret_fd = fd;
    return TUTTI_OK;
}

/* The other addresses would give the same result. */
static int is_final(tutti_status_t status)
{
    return status == TUTTI_OK || status == TUTTI_ERR_INVALID_ARGUMENT || status == TUTTI_ERR_ABI ||
           status == TUTTI_ERR_NO_MEMORY || status == TUTTI_ERR_SHUTDOWN;
}

/* One round. *ret_alone: no process listens at any address. *ret_final: the result is final. */
static tutti_status_t try_all(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs,
                              uint32_t host, unsigned try_ms, uint64_t deadline, int *ret_alone,
                              int *ret_final, int *ret_fd)
{
    tutti_status_t status = TUTTI_ERR_TIMEOUT;

    *ret_alone = 1;
    *ret_final = 0;
    for (uint32_t i = 0; i < addrs->count; i++) {
        uint64_t try_deadline = tutti__net_deadline(try_ms);

        status = try_address(gate, &addrs->addr[i], host, TUTTI__MIN(try_deadline, deadline),
                             ret_final, ret_fd);
        *ret_final |= is_final(status);
        if (*ret_final)
            return status;
        *ret_alone &= status == TUTTI_ERR_TRANSPORT;
    }
    return status;
}

static tutti_status_t unreachable(tutti_status_t status, const tutti__gate_t *gate,
                                  const tutti__net_addrs_t *addrs, uint32_t host)
{
    char text[200] = "", where[64], who[40] = "the process that made the unique id";
    size_t used = 0;

    for (uint32_t i = 0; i < addrs->count && used < sizeof(text); i++) {
        tutti__net_addr_text(&addrs->addr[i], where, sizeof(where));
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %s", where);
    }
    if (host != TUTTI__NET_MAKER)
        snprintf(who, sizeof(who), "rank %u", host);
    return tutti__fail(status,
                       "rank %u cannot reach %s at%s (last: %s); TUTTI_INTERFACE names the "
                       "network interface to use",
                       gate->rank, who, text, tutti_last_error());
}

tutti_status_t tutti__gate_reach(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs,
                                 uint32_t host, int patient, uint64_t deadline, int *ret_fd)
{
    unsigned try_ms = TUTTI__REACH_FIRST_MS, pause_ms = TUTTI__REACH_PAUSE_MS;
    tutti_status_t status = TUTTI_OK;
    int alone, final;

    for (;;) {
        status = try_all(gate, addrs, host, try_ms, deadline, &alone, &final, ret_fd);
        if (final)
            return status;
        if (alone && !patient)
            return unreachable(TUTTI_ERR_TRANSPORT, gate, addrs, host);
        if (tutti__net_left_ms(deadline) == 0)
            return unreachable(TUTTI_ERR_TIMEOUT, gate, addrs, host);
        pause_ms = TUTTI__MIN(2 * pause_ms, TUTTI__REACH_PAUSE_MOST_MS);
        tutti__net_sleep_ms(TUTTI__MIN(pause_ms, (unsigned)tutti__net_left_ms(deadline)));
        status = tutti__net_still();
        if (status != TUTTI_OK)
            return status;
        try_ms = TUTTI__MIN(2 * try_ms, TUTTI__REACH_MOST_MS);
    }
}
