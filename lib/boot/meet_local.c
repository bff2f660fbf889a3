/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one machine meet at an abstract Unix socket. All ranks pass the same name of a socket.
 *
 * For tests, and for programs whose ranks are forked processes or threads. See star.h.
 */
#include "base/compiler.h"
#include "base/log.h"
#include "boot/waiting.h"
#include "boot/star.h"

#include <string.h>
#include <unistd.h>

static tutti_status_t host(const tutti__gate_t *gate, const char *name, uint64_t deadline,
                           tutti__meet_t *ret_meet)
{
    tutti_status_t status;
    int door;

    status = tutti__net_unix_listen(name, strlen(name), &door);
    if (status != TUTTI_OK)
        return tutti__fail(status, "meeting %s: %s", name, tutti_last_error());
    return tutti__star_host(gate, "local", door, deadline, ret_meet);
}

/* Connect to rank 0, as soon as it listens. */
static tutti_status_t reach(const tutti__gate_t *gate, const char *name, uint64_t until,
                            int *ret_fd)
{
    tutti__waiting_t waiting = { 0, 0 };
    tutti_status_t status;
    double waited_s;

    do {
        if (tutti__waiting_now(&waiting, &waited_s))
            TUTTI__LOG(TUTTI__LOG_WARN,
                       "rank %u has waited %.1f s for rank 0, which has not called tutti_init",
                       gate->rank, waited_s);
        status =
            tutti__net_unix_connect(name, strlen(name), 1, TUTTI__MIN(until, waiting.due), ret_fd);
    } while (status == TUTTI_ERR_TIMEOUT && tutti__net_left_ms(until) > 0);
    return status;
}

static tutti_status_t join(const tutti__gate_t *gate, const char *name, uint64_t deadline,
                           tutti__meet_t *ret_meet)
{
    uint64_t until = gate->until;
    tutti_status_t status;
    int fd;

    status = reach(gate, name, until, &fd);
    if (status != TUTTI_OK)
        return tutti__fail(status, "meeting %s: rank 0 is not there: %s", name, tutti_last_error());
    status = tutti__gate_knock(gate, fd, 0, until);
    if (status != TUTTI_OK) {
        close(fd);
        return status;
    }
    return tutti__star_join(gate, "local", fd, deadline, until, ret_meet);
}

tutti_status_t tutti__meet_local(const char *name, uint32_t rank, uint32_t size,
                                 uint64_t timeout_ms, tutti__meet_t *ret_meet)
{
    uint64_t deadline = tutti__net_deadline(timeout_ms);
    tutti__gate_t gate = { .purpose = TUTTI__GATE_MEET,
                           .rank = rank,
                           .size = size,
                           .strict = 1,
                           .until = tutti__star_patience(deadline) };

    if (size == 0 || rank >= size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", rank, size);
    return rank == 0 ? host(&gate, name, deadline, ret_meet)
                     : join(&gate, name, deadline, ret_meet);
}
