/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport over MPI: channels are tags on the meeting's communicator.
 *
 * All messages are MPI_BYTE. A channel is a source and a tag; MPI keeps such messages in order:
 *
 *      tag = 64 * (number of the transport at the receiver) + 8 * lane + stream
 *
 * The world and each group have a transport. All transports use the same MPI communicator, that of
 * the meeting. Only a receiver must distinguish transports. So each rank numbers its own
 * transports, and senders use the receiver's number. Ranks of different groups need not agree on
 * numbers, even if several groups are made at the same time.
 *
 * Numbers are not reused. A peer that has not been told of the end of a transport may still send to
 * it. The next transport with the same number would receive this message. MPI guarantees tags for
 * 512 transports; real MPIs have enough for at least 2^17.
 *
 * Messages have no signature (xport.h), so only a wrong length shows that the ranks' calls differ.
 * A signature would need a header in each message (a copy), or bits of the tag. With a signature in
 * the tag, no receive would match another call's message: the call would wait for ever.
 *
 * The thread that steps a call's schedule calls these functions, if may_progress() allows it. Only
 * cancel(), keeps() and close() wait: for messages in flight, a tenth of a second for each lane.
 */
#include "xport/mpi/mpi_module.h"

#include "base/constants.h"
#include "base/time.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STREAMS = 8,
    TAGS_PER_XPORT = 64, /* 8 lanes x 8 streams */
    PROBE_TAG = 32767,   /* lane 7, stream 7: no message has this tag */
};

_Static_assert(TUTTI__LANES <= 8, "lanes fit in a tag");
_Static_assert(TUTTI__DEVICE_LANES < 8, "lane 7 has no GPU-direct streams, which are 4 to 7");

static void xport_close(tutti__xport_t *base);
static void xport_cancel(tutti__xport_t *base, uint32_t lane);
static int xport_keeps(tutti__xport_t *base);

static tutti__mpi_xport_t *mine(tutti__xport_t *base)
{
    return (tutti__mpi_xport_t *)base;
}

static tutti_status_t open_end(tutti__mpi_xport_t *xport, const tutti__chan_key_t *key,
                               int receives, tutti__chan_t **ret_chan)
{
    tutti__chan_t *chan;
    tutti_status_t status;
    uint32_t number;

    if (key->lane >= TUTTI__LANES || key->stream >= MAX_STREAMS || key->peer >= xport->size)
        return tutti__mpi_fail(TUTTI_ERR_INTERNAL, "mpi: no channel of lane %u, peer %u, stream %u",
                               key->lane, key->peer, key->stream);
    tutti__mpi_lock();
    chan = xport->chans[key->lane];
    while (chan != NULL && (chan->key.peer != key->peer || chan->key.stream != key->stream ||
                            chan->receives != receives))
        chan = chan->next;
    tutti__mpi_leave();
    if (chan == NULL) {
        status = tutti__mpi_chan_open(xport, key, receives, &chan);
        if (status != TUTTI_OK)
            return status;
        number = xport->number[receives ? xport->rank : key->peer];
        chan->mpi_rank = (int)xport->world[key->peer];
        chan->tag = (int)(number * TAGS_PER_XPORT + key->lane * MAX_STREAMS + key->stream);
        tutti__mpi_lock();
        chan->next = xport->chans[key->lane];
        xport->chans[key->lane] = chan;
        tutti__mpi_leave();
    }
    if (receives && key->slot_bytes > 0) {
        status = tutti__mpi_chan_lend(chan, key);
        if (status != TUTTI_OK)
            return status;
    }
    *ret_chan = chan;
    return TUTTI_OK;
}

static tutti_status_t open_send(tutti__xport_t *base, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(mine(base), key, 0, ret_chan);
}

static tutti_status_t open_recv(tutti__xport_t *base, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(mine(base), key, 1, ret_chan);
}

/* Probe for a message that cannot exist: MPI makes progress in each probe. The probe's source is
   this rank, so MPI checks one queue; with MPI_ANY_SOURCE it would check a queue for each peer. */
static tutti_status_t xport_progress(tutti__xport_t *base)
{
    tutti__mpi_meet_t *meet = mine(base)->meet;
    tutti_status_t status = tutti__mpi_enter(meet->rank);
    int there;
    int code;

    if (status != TUTTI_OK)
        return status;
    code = PMPI_Iprobe((int)meet->rank, PROBE_TAG, meet->comm, &there, MPI_STATUS_IGNORE);
    tutti__mpi_leave();
    return code == MPI_SUCCESS ? TUTTI_OK : tutti__mpi_fail_code(code, "MPI_Iprobe");
}

static int xport_may_progress(tutti__xport_t *base, int is_engine)
{
    (void)base;
    return tutti__mpi_may_call(is_engine);
}

/* Open MPI and MPICH have MPIX_Query_cuda_support, and similar functions for other devices. dlsym
   is used, because older versions lack the functions, and not all headers declare them. */
static tutti_status_t xport_take_device(tutti__xport_t *base, const char *device)
{
    tutti_status_t status;
    int (*query)(void);
    char name[64];
    void *found;
    int takes = 0;

    snprintf(name, sizeof(name), "MPIX_Query_%s_support", device);
    found = dlsym(RTLD_DEFAULT, name);
    if (found != NULL) {
        status = tutti__mpi_enter(mine(base)->meet->rank);
        if (status != TUTTI_OK)
            return status;
        memcpy(&query, &found, sizeof(query));
        takes = query() > 0;
        tutti__mpi_leave();
    }
    if (takes)
        return TUTTI_OK;
    return tutti__mpi_fail(TUTTI_ERR_UNSUPPORTED,
                           "mpi: this MPI does not report that it accepts %s memory (%s)", device,
                           name);
}

static const tutti__xport_ops_t ops = {
    .name = "mpi",
    .purpose = "messages over the MPI that started the job",
    .close = xport_close,
    .open_send = open_send,
    .open_recv = open_recv,
    .send = tutti__mpi_chan_send,
    .flush = tutti__mpi_chan_flush,
    .expect = tutti__mpi_chan_expect,
    .view = tutti__mpi_chan_view,
    .length = tutti__mpi_chan_length,
    .release = tutti__mpi_chan_release,
    .progress = xport_progress,
    .may_progress = xport_may_progress,
    .cancel = xport_cancel,
    .take_device = xport_take_device,
    .keeps = xport_keeps,
};

static void for_lane(tutti__mpi_xport_t *xport, uint32_t lane, void (*act)(tutti__chan_t *chan))
{
    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL; chan = chan->next)
        act(chan);
}

static uint32_t lane_pending(tutti__mpi_xport_t *xport, uint32_t lane)
{
    uint32_t pending = 0;

    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL; chan = chan->next)
        pending += tutti__mpi_chan_pending(chan);
    return pending;
}

/* Test the messages of a lane that ends. Returns the number in flight; 0 if MPI has ended. */
static uint32_t look(tutti__mpi_xport_t *xport, uint32_t lane)
{
    uint32_t pending = 0;

    tutti__mpi_lock();
    if (!tutti__mpi_is_gone())
        pending = lane_pending(xport, lane);
    tutti__mpi_leave();
    return pending;
}

/*
 * Abandon the messages in flight of a lane.
 *
 * A receive can be cancelled unless its message is arriving. A send cannot be cancelled: Open MPI
 * ignores the attempt, and MPI 4 deprecates it. So this function waits for sends, but only for
 * TUTTI__MPI_GIVE_UP_NS, because a peer may be dead. The other messages are abandoned: their
 * requests are freed, and MPI may complete the messages later. Until then MPI may still read the
 * sent block, and no call prevents this. So the communicator never frees its own blocks (`keeps`).
 */
static void end_lane(tutti__mpi_xport_t *xport, uint32_t lane)
{
    uint64_t start = tutti__now_ns();
    uint32_t pending;

    tutti__mpi_lock();
    if (!tutti__mpi_is_gone())
        for_lane(xport, lane, tutti__mpi_chan_cancel);
    tutti__mpi_leave();
    /* Do not wait if this thread is not allowed to call MPI: it could not test the messages. */
    while ((pending = look(xport, lane)) > 0 && tutti__mpi_may_call(0) &&
           tutti__now_ns() - start < TUTTI__MPI_GIVE_UP_NS)
        sched_yield();
    if (pending == 0)
        return;
    tutti__mpi_lock();
    if (!tutti__mpi_is_gone())
        for_lane(xport, lane, tutti__mpi_chan_abandon);
    xport->meet->stale = 1;
    tutti__mpi_leave();
    tutti__mpi_log(TUTTI__LOG_DEBUG, "mpi: lane %u: %u messages abandoned", lane, pending);
}

static void mark_cancelled(tutti__chan_t *chan)
{
    if (chan->status == TUTTI_OK)
        chan->status = TUTTI_ERR_TRANSPORT;
}

/* End the lane, because late messages of the failed call look like messages of later calls. */
static void xport_cancel(tutti__xport_t *base, uint32_t lane)
{
    tutti__mpi_xport_t *xport = mine(base);

    if (lane >= TUTTI__LANES)
        return;
    end_lane(xport, lane);
    tutti__mpi_lock();
    for_lane(xport, lane, mark_cancelled);
    xport->meet->stale = 1;
    tutti__mpi_leave();
}

void tutti__mpi_xport_drop(tutti__mpi_xport_t *xport)
{
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++) {
        for_lane(xport, lane, tutti__mpi_chan_cancel);
        if (lane_pending(xport, lane) > 0)
            for_lane(xport, lane, tutti__mpi_chan_abandon);
    }
}

/* End all lanes. If a lane's thread was not allowed to call MPI when the communicator ended, the
   lane still has posted receives. MPI could write a message into memory that is freed next. */
static int xport_keeps(tutti__xport_t *base)
{
    tutti__mpi_xport_t *xport = mine(base);
    int keeps;

    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++)
        end_lane(xport, lane);
    tutti__mpi_lock();
    keeps = xport->keeps;
    tutti__mpi_leave();
    return keeps;
}

static void xport_close(tutti__xport_t *base)
{
    tutti__mpi_xport_t *xport = mine(base);
    tutti__chan_t *chan;

    if (xport == NULL)
        return;
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++)
        end_lane(xport, lane);
    tutti__mpi_lock();
    tutti__mpi_remove_xport(xport);
    tutti__mpi_leave();
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++) {
        while ((chan = xport->chans[lane]) != NULL) {
            xport->chans[lane] = chan->next;
            tutti__mpi_chan_free(chan);
        }
    }
    free(xport->world);
    free(xport);
}

tutti_status_t tutti__mpi_take_number(const tutti__meet_t *meet, uint32_t *ret_number)
{
    tutti__mpi_meet_t *over = meet->ctx;
    uint32_t numbers = ((uint32_t)tutti__mpi_most_tag() + 1) / TAGS_PER_XPORT;
    uint32_t number;

    tutti__mpi_lock();
    number = over->next_number;
    over->next_number += number < numbers;
    tutti__mpi_leave();
    if (number >= numbers)
        return tutti__mpi_fail(TUTTI_ERR_UNSUPPORTED,
                               "mpi: more than %u communicators were made: this MPI's tags are "
                               "used up",
                               numbers);
    *ret_number = number;
    return TUTTI_OK;
}

/* Allocate a transport and its tables in one piece of memory. */
static tutti__mpi_xport_t *make(uint32_t size)
{
    tutti__mpi_xport_t *xport = calloc(1, sizeof(*xport));

    if (xport == NULL)
        return NULL;
    xport->size = size;
    xport->world = malloc(2 * (size_t)size * sizeof(*xport->world));
    if (xport->world == NULL) {
        free(xport);
        return NULL;
    }
    xport->number = xport->world + size;
    return xport;
}

tutti_status_t tutti__mpi_xport_open_part(const tutti__meet_t *meet, const tutti__part_t *part,
                                          size_t slot_bytes, uint32_t credits,
                                          tutti__xport_t **ret_xport)
{
    tutti__mpi_meet_t *over = meet->ctx;
    tutti__mpi_xport_t *xport;

    if (slot_bytes == 0 || slot_bytes > INT_MAX || credits == 0)
        return tutti__mpi_fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "mpi: slots of %zu bytes, %u credits: both must be at least 1, and "
                               "a slot below 2 GiB",
                               slot_bytes, credits);
    if (over->comm == MPI_COMM_NULL)
        return tutti__mpi_fail(TUTTI_ERR_INTERNAL, "mpi: a transport before the first allgather");
    xport = make(part->size);
    if (xport == NULL)
        return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: out of memory");
    xport->base.ops = &ops;
    xport->base.most_bytes = slot_bytes;
    xport->meet = over;
    xport->slot_bytes = slot_bytes;
    xport->credits = credits;
    xport->rank = part->rank;
    memcpy(xport->world, part->world, part->size * sizeof(*part->world));
    memcpy(xport->number, part->number, part->size * sizeof(*part->number));
    tutti__mpi_lock();
    tutti__mpi_add_xport(xport);
    tutti__mpi_leave();
    *ret_xport = &xport->base;
    return TUTTI_OK;
}

/* For transports between all ranks, numbers are not exchanged: all ranks open these transports in
   the same order, so their numbers are equal. */
tutti_status_t tutti__mpi_xport_open(const tutti__meet_t *meet, size_t slot_bytes, uint32_t credits,
                                     tutti__xport_t **ret_xport)
{
    uint32_t *tables = malloc(2 * (size_t)meet->size * sizeof(*tables)), mine = 0;
    tutti__part_t part = { meet->rank, meet->size, tables, tables + meet->size };
    tutti_status_t status;

    if (tables == NULL)
        return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: out of memory");
    status = tutti__mpi_take_number(meet, &mine);
    for (uint32_t r = 0; r < meet->size; r++) {
        tables[r] = r;
        tables[meet->size + r] = mine;
    }
    if (status == TUTTI_OK)
        status = tutti__mpi_xport_open_part(meet, &part, slot_bytes, credits, ret_xport);
    free(tables);
    return status;
}
