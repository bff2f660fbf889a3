/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one machine meet at an abstract Unix socket; the caller passes its name on all ranks.
 *
 * For tests, and for programs whose ranks are forked processes or threads. See star.h.
 */
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

static tutti_status_t join(const tutti__gate_t *gate, const char *name, uint64_t deadline,
                           tutti__meet_t *ret_meet)
{
    uint64_t until = tutti__star_patience(deadline);
    tutti_status_t status;
    int fd;

    status = tutti__net_unix_connect(name, strlen(name), 1, until, &fd);
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
    tutti__gate_t gate = { .purpose = TUTTI__GATE_MEET, .rank = rank, .size = size, .strict = 1 };
    uint64_t deadline = tutti__net_deadline(timeout_ms);

    if (size == 0 || rank >= size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", rank, size);
    return rank == 0 ? host(&gate, name, deadline, ret_meet)
                     : join(&gate, name, deadline, ret_meet);
}
