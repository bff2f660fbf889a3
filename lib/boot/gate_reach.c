/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding the way to a gate on another host. See gate.h.
 *
 * The errors of one address say little, since it may be somebody else's; so an attempt goes on
 * until time is up, unless who knows the token has refused, this process itself is at its limits,
 * or nobody listens at any address.
 */
#include "boot/gate.h"

#include <stdio.h>
#include <unistd.h>

/* How long an address is tried in the first round. */
#define FIRST_TRY_MS 1000u
#define LONGEST_TRY_MS 60000u
/* Between rounds, at most. */
#define PAUSE_MS 250u

/* Try one address until try_deadline. */
static tutti_status_t try_address(const tutti__gate_t *gate, const tutti__net_addr_t *addr,
                                  uint32_t host, uint64_t try_deadline, int *ret_fd)
{
    tutti_status_t status;
    int fd;

    status = tutti__net_tcp_connect(addr, try_deadline, &fd);
    if (status != TUTTI_OK)
        return status;
    status = tutti__net_tcp_options(fd);
    if (status == TUTTI_OK)
        status = tutti__gate_knock(gate, fd, host, try_deadline);
    if (status != TUTTI_OK) {
        close(fd);
        /* Somebody was there. */
        return status == TUTTI_ERR_TRANSPORT ? TUTTI_ERR_PEER_LOST : status;
    }
    *ret_fd = fd;
    return TUTTI_OK;
}

/* No other address will do better. */
static int is_final(tutti_status_t status)
{
    return status == TUTTI_OK || status == TUTTI_ERR_INVALID_ARGUMENT || status == TUTTI_ERR_ABI ||
           status == TUTTI_ERR_NO_MEMORY || status == TUTTI_ERR_SHUTDOWN;
}

/* One round. *ret_alone: nobody listens at any address. */
static tutti_status_t try_all(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs,
                              uint32_t host, unsigned try_ms, uint64_t deadline, int *ret_alone,
                              int *ret_fd)
{
    tutti_status_t status = TUTTI_ERR_TIMEOUT;

    *ret_alone = 1;
    for (uint32_t i = 0; i < addrs->count; i++) {
        uint64_t try_deadline = tutti__net_deadline(try_ms);

        status =
            try_address(gate, &addrs->addr[i], host, TUTTI__MIN(try_deadline, deadline), ret_fd);
        if (is_final(status))
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
    unsigned try_ms = FIRST_TRY_MS, pause_ms = 10;
    tutti_status_t status = TUTTI_OK;
    int alone;

    for (;;) {
        status = try_all(gate, addrs, host, try_ms, deadline, &alone, ret_fd);
        if (is_final(status))
            return status;
        if (alone && !patient)
            return unreachable(TUTTI_ERR_TRANSPORT, gate, addrs, host);
        if (tutti__net_left_ms(deadline) == 0)
            return unreachable(TUTTI_ERR_TIMEOUT, gate, addrs, host);
        pause_ms = TUTTI__MIN(2 * pause_ms, PAUSE_MS);
        tutti__net_sleep_ms(TUTTI__MIN(pause_ms, (unsigned)tutti__net_left_ms(deadline)));
        status = tutti__net_still();
        if (status != TUTTI_OK)
            return status;
        try_ms = TUTTI__MIN(2 * try_ms, LONGEST_TRY_MS);
    }
}
