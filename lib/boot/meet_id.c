/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting by a unique id: a rank connects to the id's maker, then to rank 0. See id_server.c. */
#include "base/constants.h"
#include "boot/id_wire.h"
#include "boot/star.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The number of descriptors that a rank needs to meet. Rank 0 needs one more for each rank. */
#define SPARE_FILES 4u

/* A rank on its way from the maker to rank 0. */
typedef struct {
    const tutti__id_t *id;
    tutti__gate_t gate;
    uint64_t deadline;
    int fd;         /* to the maker; -1: no connection to the maker */
    uint32_t maker; /* a rank, or TUTTI__NO_RANK */
    /* For maker_still. asking: prevents recursion, because a wait in maker_still calls maker_still.
       told, text: the reason that the maker has reported; later calls return it. */
    int asking;
    tutti_status_t told;
    char text[TUTTI__ERROR_BYTES];
} way_t;

static tutti_status_t reach_maker(way_t *way)
{
    tutti_status_t status = tutti__gate_reach(&way->gate, &way->id->addrs, TUTTI__NET_MAKER, 0,
                                              way->deadline, &way->fd);

    if (status == TUTTI_ERR_TRANSPORT && way->maker != TUTTI__NO_RANK)
        return tutti__fail(TUTTI_ERR_PEER_LOST,
                           "rank %u, which made the unique id, ended while ranks met", way->maker);
    if (status == TUTTI_ERR_TRANSPORT)
        return tutti__fail(status,
                           "the process that made the unique id has ended, or has called "
                           "tutti_finalize: %s",
                           tutti_last_error());
    return status;
}

/* Called after the maker has closed this rank's connection: knock again, to receive the reason. */
static tutti_status_t ask_why(way_t *way)
{
    tutti_status_t status;

    close(way->fd);
    way->fd = -1;
    status = reach_maker(way);
    if (status != TUTTI_OK)
        return status;
    return tutti__fail(TUTTI_ERR_PEER_LOST, "the process that made the unique id gave up");
}

/* Receive the maker's next message. If no message arrives, ret_word->status is TUTTI_OK. */
static tutti_status_t hear_maker(way_t *way, tutti__id_word_t *ret_word, uint64_t deadline)
{
    tutti_status_t status;

    do {
        status = tutti__net_recv(way->fd, TUTTI__NET_MAKER, ret_word, sizeof(*ret_word), deadline);
        if (status == TUTTI_OK)
            way->maker = ret_word->maker;
    } while (status == TUTTI_OK && ret_word->status == TUTTI__AGAIN);
    if (status != TUTTI_OK)
        ret_word->status = TUTTI_OK;
    else if (ret_word->status != TUTTI_OK)
        status = tutti__fail((tutti_status_t)ret_word->status, "%.*s", (int)sizeof(ret_word->text),
                             ret_word->text);
    return status;
}

/* Exchange messages with the maker. Rank 0 sends its place, or the reason why it has none. */
static tutti_status_t ask_maker(way_t *way, const tutti__id_word_t *mine,
                                tutti__id_word_t *ret_word)
{
    tutti_status_t status = reach_maker(way);

    if (status != TUTTI_OK)
        return status;
    if (way->gate.rank == 0)
        status = tutti__net_send(way->fd, TUTTI__NET_MAKER, mine, sizeof(*mine), way->deadline);
    /* Even if the maker has closed the connection, it may have sent the reason before: read it. */
    if (status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST)
        status = hear_maker(way, ret_word, way->deadline);
    if (status == TUTTI_ERR_PEER_LOST && ret_word->status == TUTTI_OK)
        status = ask_why(way);
    return status;
}

/* A check of net.h, for the time in which this rank joins rank 0. In this time the maker sends a
   message only if the meeting has failed; the message has the reason. */
static tutti_status_t maker_still(void *arg)
{
    way_t *way = arg;
    struct pollfd pfd = { way->fd, POLLIN, 0 };
    tutti_status_t status;
    tutti__id_word_t word;

    if (way->told != TUTTI_OK)
        return tutti__fail(way->told, "%s", way->text);
    if (way->asking || way->fd < 0 || poll(&pfd, 1, 0) <= 0)
        return TUTTI_OK;
    way->asking = 1;
    status = hear_maker(way, &word, tutti__net_deadline(TUTTI__REASON_MS));
    way->asking = 0;
    if (status == TUTTI_OK)
        return TUTTI_OK;
    /* The maker sends nothing after this message. */
    close(way->fd);
    way->fd = -1;
    if (status == TUTTI_ERR_PEER_LOST && word.status == TUTTI_OK) {
        if (way->maker == TUTTI__NO_RANK)
            return TUTTI_OK;
        tutti__fail(status, "rank %u, which made the unique id, ended while ranks met", way->maker);
    }
    way->told = status;
    snprintf(way->text, sizeof(way->text), "%s", tutti_last_error());
    return status;
}

/* Report to the maker whether this rank has joined; the maker reports a failure to the other ranks.
   If the maker has already reported another rank's failure, return that failure. */
static tutti_status_t report(way_t *way, tutti_status_t status)
{
    tutti__id_report_t mine = { .status = (int32_t)status };
    struct pollfd pfd = { way->fd, POLLIN, 0 };
    int follows = status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_TRANSPORT;
    int ready = 0;

    if (way->fd < 0)
        return status;
    snprintf(mine.text, sizeof(mine.text), "%s", status == TUTTI_OK ? "" : tutti_last_error());
    if (follows && way->gate.rank != 0 &&
        tutti__net_poll(&pfd, 1, tutti__net_deadline(TUTTI__REASON_MS), &ready) == TUTTI_OK &&
        ready > 0) {
        tutti_status_t reason = maker_still(way);

        if (reason != TUTTI_OK)
            return reason;
        if (way->fd < 0)
            return tutti__fail(status, "%s", mine.text);
    }
    (void)tutti__net_send(way->fd, TUTTI__NET_MAKER, &mine, sizeof(mine),
                          tutti__net_deadline(TUTTI__REASON_MS));
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail(status, "%s", mine.text);
}

static tutti_status_t join(way_t *way, const tutti__id_word_t *mine, int *door, uint64_t deadline,
                           tutti__meet_t *ret_meet)
{
    uint32_t rank = way->gate.rank, size = way->gate.size;
    tutti_status_t status;
    tutti__id_word_t word = { 0 };

    status = ask_maker(way, mine, &word);
    if (status != TUTTI_OK && mine->status != TUTTI_OK)
        return tutti__fail((tutti_status_t)mine->status, "%s", mine->text);
    if (status != TUTTI_OK)
        return status;
    tutti__net_watch_meeting(maker_still, way);
    if (rank == 0) {
        status = tutti__venue_host(&mine->place, *door, size, deadline, ret_meet);
        *door = -1;
    } else {
        status = tutti__venue_join(&word.place, rank, size, deadline, ret_meet);
    }
    tutti__net_watch_meeting(NULL, NULL);
    return report(way, status);
}

tutti_status_t tutti__meet_id(const tutti_unique_id_t *bytes, const tutti__conf_t *conf,
                              uint32_t rank, uint32_t size, tutti__meet_t *ret_meet)
{
    uint64_t deadline = tutti__net_deadline(conf->shared.timeout_ms);
    tutti_status_t status, mine_status = TUTTI_OK;
    tutti__id_word_t mine;
    tutti__id_t id;
    way_t way = { .id = &id, .fd = -1, .maker = TUTTI__NO_RANK };
    int door = -1;

    status = tutti__id_decode(bytes, &id);
    if (status != TUTTI_OK)
        return status;
    tutti__id_set_rank(&id, rank);
    way.deadline = tutti__star_patience(deadline);
    way.gate = (tutti__gate_t){ .purpose = TUTTI__GATE_ID,
                                .rank = rank,
                                .size = size,
                                .until = way.deadline,
                                .token = id.token };
    memset(&mine, 0, sizeof(mine));
    mine_status = tutti__net_files_left(rank == 0 ? size + SPARE_FILES : SPARE_FILES);
    if (mine_status == TUTTI_OK && rank == 0)
        mine_status = tutti__venue_open(conf->interface, 0, &mine.place, &door);
    else if (mine_status != TUTTI_OK && rank != 0)
        return mine_status;
    if (mine_status != TUTTI_OK) {
        mine.status = (int32_t)mine_status;
        snprintf(mine.text, sizeof(mine.text), "rank 0: %.236s", tutti_last_error());
    }
    status = join(&way, &mine, &door, deadline, ret_meet);
    if (door >= 0)
        close(door);
    if (way.fd >= 0)
        close(way.fd);
    return status;
}
