/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places: rank 0 listens, and the other ranks connect and show the place's token. See meet.h.
 *
 * Over TCP any process can connect, so a process is admitted only if it shows the token. The token
 * is sent unencrypted, like all messages between ranks. So a process that can read the job's
 * network traffic, or the store, can join the job.
 */
#include "boot/meet.h"

#include "boot/star.h"

#include <string.h>
#include <unistd.h>

static tutti_status_t listen_tcp(const char *interface, tutti__venue_t *place, int *ret_door)
{
    tutti_status_t status = tutti__net_addrs(interface, 0, &place->addrs);

    /* Without a network, all ranks must be on this machine: use the loopback interface. */
    if (status == TUTTI_ERR_UNSUPPORTED && interface[0] == '\0')
        status = tutti__net_addrs("", 1, &place->addrs);
    return status == TUTTI_OK ? tutti__net_tcp_listen(&place->addrs, ret_door) : status;
}

tutti_status_t tutti__venue_open(const char *interface, int on_machine, tutti__venue_t *ret_place,
                                 int *ret_door)
{
    tutti__venue_t place;
    tutti_status_t status;

    memset(&place, 0, sizeof(place));
    place.layout = TUTTI__BOOT_LAYOUT;
    place.over_tcp = !on_machine;
    status = tutti__net_random(&place.token, sizeof(place.token));
    if (status == TUTTI_OK && on_machine)
        status = tutti__net_random(place.name, sizeof(place.name));
    if (status == TUTTI_OK)
        status = on_machine ? tutti__net_unix_listen(place.name, sizeof(place.name), ret_door)
                            : listen_tcp(interface, &place, ret_door);
    if (status == TUTTI_OK)
        *ret_place = place;
    return status;
}

static tutti__gate_t make_gate(const tutti__venue_t *place, uint32_t rank, uint32_t size)
{
    return (tutti__gate_t){
        .purpose = TUTTI__GATE_MEET, .rank = rank, .size = size, .strict = 1, .token = place->token
    };
}

static const char *name_of(const tutti__venue_t *place)
{
    return place->over_tcp ? "tcp" : "machine";
}

tutti_status_t tutti__venue_host(const tutti__venue_t *place, int door, uint32_t size,
                                 uint64_t deadline, tutti__meet_t *ret_meet)
{
    tutti__gate_t gate = make_gate(place, 0, size);

    return tutti__star_host(&gate, name_of(place), door, deadline, ret_meet);
}

static tutti_status_t reach_unix(const tutti__gate_t *gate, const tutti__venue_t *place,
                                 uint64_t deadline, int *ret_fd)
{
    tutti_status_t status;
    int fd;

    status = tutti__net_unix_connect(place->name, sizeof(place->name), 0, deadline, &fd);
    if (status != TUTTI_OK)
        return tutti__fail(status, "rank 0 is not there: %s", tutti_last_error());
    status = tutti__gate_knock(gate, fd, 0, deadline);
    if (status != TUTTI_OK) {
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return TUTTI_OK;
}

/* Check a place, which may come from a store into which any process can write. */
static tutti_status_t check_place(const tutti__venue_t *place)
{
    if (place->layout != TUTTI__BOOT_LAYOUT)
        return tutti__fail(TUTTI_ERR_ABI, "rank 0's place has layout %u, this rank has %u",
                           place->layout, TUTTI__BOOT_LAYOUT);
    if (place->over_tcp && (place->addrs.count == 0 || place->addrs.count > TUTTI__NET_ADDRS))
        return tutti__fail(TUTTI_ERR_TRANSPORT, "rank 0's place has %u addresses",
                           place->addrs.count);
    return TUTTI_OK;
}

tutti_status_t tutti__venue_join(const tutti__venue_t *place, uint32_t rank, uint32_t size,
                                 uint64_t deadline, tutti__meet_t *ret_meet)
{
    uint64_t until = tutti__star_patience(deadline);
    tutti__gate_t gate = make_gate(place, rank, size);
    tutti_status_t status = check_place(place);
    int fd;

    if (status != TUTTI_OK)
        return status;
    gate.until = until;
    status = place->over_tcp ? tutti__gate_reach(&gate, &place->addrs, 0, 0, until, &fd)
                             : reach_unix(&gate, place, until, &fd);
    if (status != TUTTI_OK)
        return status;
    return tutti__star_join(&gate, name_of(place), fd, deadline, until, ret_meet);
}
