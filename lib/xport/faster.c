/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses between UCX and MPI for messages between hosts, when the world is made. The leader
 * (lowest rank) of each host takes part; the other ranks wait for the choice.
 *
 *      1. reach     leader 0 --> leader 1 --> leader 2 --> leader 0        over UCX
 *      2. measure   leader 0 <-> leader 1     eight round trips over each, alternating
 *      3. exchange  all ranks receive leader 0's figures, and decide alike
 *
 * 1. If a leader cannot send or receive its message within TUTTI__FASTER_REACH_NS, MPI is taken.
 *    Perhaps UCX does not support this network, or a firewall blocks UCX. The first message makes
 *    the connection for later calls.
 * 2. If MPI's shortest round trip is clearly shorter, MPI is taken, otherwise UCX. If only MPI
 *    supports the fast network (Omni-Path, EFA, Slingshot), UCX's round trip takes several times as
 *    long as MPI's. If both use the same network, UCX's round trip took 0.55 to 0.99 of MPI's
 *    (docs/decisions.md). If eight round trips take longer than TUTTI__FASTER_NS, the ranks share
 *    their processors with other work, so UCX is taken without figures. Leader 0 ends the
 *    measurement.
 *
 * The choice changes no bits of results: schedules do not depend on the transport, and a schedule
 * adds in an order that does not depend on the length of messages.
 *
 * Runs on the thread that makes the communicator, over lane 0.
 */
#include "xport/faster.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIGNATURE = 0x70726f62
};

/* Static, because until close the transport may read the word of a message that was not sent. */
static const uint64_t go_on = 1, stop = 2;

/* A sending end and a receiving end of one transport. */
typedef struct {
    tutti__xport_t *xport;
    tutti__chan_t *to, *from;
} line_t;

/* The lines between leaders 0 and 1. */
typedef struct {
    line_t ucx, mpi;
    uint64_t ucx_until, mpi_until; /* UCX's deadline is later, because `stop` is sent over UCX */
} pair_t;

typedef struct {
    const tutti__topo_t *topo;
    uint32_t host;
    tutti__xport_t *ucx, *mpi;
} probe_t;

/* A rank's report. */
typedef struct {
    uint32_t reached, trips;
    uint64_t ucx_ns, mpi_ns; /* the shortest round trips; 0: none */
    uint64_t reach_ns, took_ns;
} result_t;

static uint32_t leader_of(const tutti__topo_t *topo, uint32_t host)
{
    return topo->by_host[topo->host_first[host]];
}

/* ---- messages ---- */

static tutti_status_t open_line(tutti__xport_t *xport, uint32_t to, uint32_t from, line_t *ret_line)
{
    const tutti__chan_key_t out = { .peer = to }, in = { .peer = from };
    tutti_status_t status;

    ret_line->xport = xport;
    status = xport->ops->open_send(xport, &out, &ret_line->to);
    if (status == TUTTI_OK)
        status = xport->ops->open_recv(xport, &in, &ret_line->from);
    return status;
}

/* Let other threads run. TIMEOUT: the deadline has passed. */
static tutti_status_t pause_until(uint64_t deadline_ns)
{
    if (tutti__now_ns() > deadline_ns)
        return TUTTI_ERR_TIMEOUT;
    sched_yield();
    return TUTTI__AGAIN;
}

static tutti_status_t put(const line_t *line, const uint64_t *word, uint64_t deadline_ns)
{
    const tutti__xport_ops_t *ops = line->xport->ops;
    tutti__hint_t hint;
    tutti_status_t status;
    int pending = 0;

    do {
        status = ops->send(line->to, word, sizeof(*word), SIGNATURE, &pending, &hint);
        if (status == TUTTI__AGAIN)
            status = pause_until(deadline_ns);
    } while (status == TUTTI__AGAIN);
    if (status != TUTTI_OK || !pending)
        return status;
    do {
        status = ops->flush(line->to, &hint);
        if (status == TUTTI__AGAIN)
            status = pause_until(deadline_ns);
    } while (status == TUTTI__AGAIN);
    return status;
}

static tutti_status_t get(const line_t *line, uint64_t deadline_ns, uint64_t *ret_word)
{
    const tutti__xport_ops_t *ops = line->xport->ops;
    tutti_status_t status = ops->expect != NULL ? ops->expect(line->from, 1) : TUTTI_OK;
    const void *data;
    tutti__hint_t hint;

    while (status == TUTTI_OK) {
        status = ops->view(line->from, sizeof(*ret_word), SIGNATURE, &data, &hint);
        if (status == TUTTI_OK)
            break;
        if (status == TUTTI__AGAIN)
            status = pause_until(deadline_ns);
        if (status == TUTTI__AGAIN)
            status = TUTTI_OK;
    }
    if (status != TUTTI_OK)
        return status;
    memcpy(ret_word, data, sizeof(*ret_word));
    ops->release(line->from);
    return TUTTI_OK;
}

/* ---- reaching ---- */

/* Send a message to the next host's leader, and receive one from the previous host's leader. */
static tutti_status_t reach(const probe_t *p, uint64_t deadline_ns)
{
    uint32_t n = p->topo->nhosts;
    uint64_t word;
    line_t line;
    tutti_status_t status;

    status = open_line(p->ucx, leader_of(p->topo, (p->host + 1) % n),
                       leader_of(p->topo, (p->host + n - 1) % n), &line);
    if (status == TUTTI_OK)
        status = put(&line, &go_on, deadline_ns);
    if (status == TUTTI_OK)
        status = get(&line, deadline_ns, &word);
    return status;
}

/* ---- measuring ---- */

static tutti_status_t trip(const line_t *line, uint64_t deadline_ns, uint64_t *shortest_ns)
{
    uint64_t begin = tutti__now_ns(), word, ns;
    tutti_status_t status = put(line, &go_on, deadline_ns);

    if (status == TUTTI_OK)
        status = get(line, deadline_ns, &word);
    ns = tutti__now_ns() - begin;
    if (status == TUTTI_OK && (*shortest_ns == 0 || ns < *shortest_ns))
        *shortest_ns = ns;
    return status;
}

/* Leader 0's part. The first round trips make the connections, and are not counted. If a round trip
   over MPI fails or is late, the measurement ends. Returns the status of the messages over UCX. */
static tutti_status_t measure(const pair_t *pair, result_t *result)
{
    uint64_t unused = 0, begin;
    tutti_status_t status = trip(&pair->ucx, pair->ucx_until, &unused);
    int answers = status == TUTTI_OK && trip(&pair->mpi, pair->mpi_until, &unused) == TUTTI_OK;

    begin = tutti__now_ns();
    while (status == TUTTI_OK && answers && result->trips < TUTTI__FASTER_TRIPS &&
           tutti__now_ns() - begin < TUTTI__FASTER_NS) {
        status = trip(&pair->ucx, pair->ucx_until, &result->ucx_ns);
        answers =
            status == TUTTI_OK && trip(&pair->mpi, pair->mpi_until, &result->mpi_ns) == TUTTI_OK;
        result->trips += (uint32_t)answers;
    }
    result->took_ns = tutti__now_ns() - begin;
    return status == TUTTI_OK ? put(&pair->ucx, &stop, pair->ucx_until) : status;
}

/* Leader 1's part. */
static tutti_status_t answer(const pair_t *pair)
{
    uint64_t word = go_on, unused;
    tutti_status_t status;
    int answers = 1;

    for (;;) {
        status = get(&pair->ucx, pair->ucx_until, &word);
        if (status != TUTTI_OK || word == stop)
            return status;
        status = put(&pair->ucx, &go_on, pair->ucx_until);
        if (status != TUTTI_OK)
            return status;
        answers = answers && get(&pair->mpi, pair->mpi_until, &unused) == TUTTI_OK &&
                  put(&pair->mpi, &go_on, pair->mpi_until) == TUTTI_OK;
    }
}

/* A leader's part. Returns the status of the messages over UCX. */
static tutti_status_t take_part(const probe_t *p, result_t *result)
{
    uint64_t begin = tutti__now_ns(), until = begin + TUTTI__FASTER_REACH_NS;
    pair_t pair = { .ucx_until = until + TUTTI__FASTER_REACH_NS, .mpi_until = until };
    uint32_t other = leader_of(p->topo, p->host == 0);
    tutti_status_t status = reach(p, until);

    result->reach_ns = tutti__now_ns() - begin;
    if (status != TUTTI_OK || p->host > 1)
        return status;
    status = open_line(p->ucx, other, other, &pair.ucx);
    if (status == TUTTI_OK)
        status = open_line(p->mpi, other, other, &pair.mpi);
    if (status != TUTTI_OK)
        return status;
    return p->host == 0 ? measure(&pair, result) : answer(&pair);
}

/* ---- the decision ---- */

int tutti__faster_takes_ucx(uint32_t trips, uint64_t ucx_ns, uint64_t mpi_ns)
{
    return trips < TUTTI__FASTER_TRIPS || ucx_ns * 2 <= mpi_ns * TUTTI__FASTER_MARGIN_HALVES;
}

static int decide(const tutti__topo_t *topo, const result_t *all)
{
    const result_t *first = &all[0];
    int takes_ucx = tutti__faster_takes_ucx(first->trips, first->ucx_ns, first->mpi_ns);

    for (uint32_t h = 0; h < topo->nhosts; h++) {
        if (all[leader_of(topo, h)].reached)
            continue;
        if (topo->rank == 0)
            TUTTI__LOG(TUTTI__LOG_INFO,
                       "transport auto: mpi, because a message over ucx did not pass in time to or "
                       "from host %s",
                       topo->host_name[h]);
        return 0;
    }
    if (topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_INFO,
                   "transport auto: %s; the shortest of %u round trips between two hosts took "
                   "%.1f us over ucx, %.1f us over mpi; all took %.1f ms, and ucx connected within "
                   "%.1f ms",
                   takes_ucx ? "ucx" : "mpi", first->trips, (double)first->ucx_ns / 1e3,
                   (double)first->mpi_ns / 1e3, (double)first->took_ns / 1e6,
                   (double)first->reach_ns / 1e6);
    return takes_ucx;
}

tutti_status_t tutti__xport_faster(tutti__boot_t *boot, tutti__xport_t *ucx, tutti__xport_t *mpi,
                                   int *ret_takes_ucx)
{
    const tutti__topo_t *topo = tutti__boot_topo(boot);
    const probe_t p = { topo, topo->host_of[topo->rank], ucx, mpi };
    result_t mine = { .reached = 1 }, *all = calloc(topo->size, sizeof(*all));
    tutti_status_t status = TUTTI_OK;

    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "the probe of %u ranks", topo->size);
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK && topo->rank == leader_of(topo, p.host))
        mine.reached = take_part(&p, &mine) == TUTTI_OK;
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(boot, &mine, sizeof(mine), all);
    if (status == TUTTI_OK)
        *ret_takes_ucx = decide(topo, all);
    free(all);
    return status;
}
