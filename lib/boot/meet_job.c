/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting by the variables of env:// or of a launcher, without MPI. See meet.h.
 *
 * All ranks take a TCP port from their variables, and rank 0 listens at this port. A gate (gate.h)
 * with a pass (pass.h) admits the connections. The other ranks try to connect until rank 0 listens.
 * The meeting is a star (star.h).
 *
 *     usually                          rank 0 listens at MASTER_ADDR:MASTER_PORT, or at TUTTI_PORT
 *     torchrun's agent uses this port  rank 0 listens at the first free port of the next 16 ports;
 *                                      the other ranks try these ports in turn
 *
 * Rank 0's port may be in use: by an earlier rank 0 that is about to end, by another job, or by a
 * second process with rank 0. So rank 0 tries again for a while, and also knocks at the port. If a
 * rank 0 of the same job answers, both processes receive an error.
 *
 * If a gate of another job refuses a rank, the rank tries again for a while, because the gate may
 * belong to an earlier rank 0 that is about to end.
 *
 * Runs on the calling thread.
 */
#include "boot/meet.h"

#include "base/constants.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/time.h"
#include "boot/waiting.h"
#include "boot/pass.h"
#include "boot/star.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const tutti__conf_job_t *job;
    tutti__gate_t gate;
    uint64_t begin_ns, deadline;
    uint32_t first_port, nports;
    char ports[16]; /* for messages: "29500", "29501-29516" */
} way_t;

static double waited_s(const way_t *way)
{
    return (double)(tutti__now_ns() - way->begin_ns) * 1e-9;
}

/* ---- rank 0 ---- */

/*
 * Choose the address at which rank 0 listens. If the name is "localhost" or an address in digits,
 * rank 0 listens only at this address; if it is a loopback address, other hosts cannot connect. For
 * any other name, rank 0 listens at all addresses of its host: on rank 0's own host, the name may
 * lead to a loopback address (Debian's 127.0.1.1), to a router or to a service.
 */
static void choose_address(const char *name, tutti__net_addr_t *ret_addr)
{
    tutti__net_addrs_t addrs;
    int is_local = strcmp(name, "localhost") == 0;

    *ret_addr = (tutti__net_addr_t){ 0, 6, { 0 } };
    if ((is_local || tutti__net_is_literal(name)) && tutti__net_resolve(name, &addrs) == TUTTI_OK)
        *ret_addr = addrs.addr[0];
}

/* Listen at addr, or at all addresses if addr is not an address of this machine. */
static tutti_status_t listen_there(tutti__net_addr_t *addr, int *ret_fd)
{
    tutti_status_t status = tutti__net_tcp_listen_at(addr, ret_fd);

    if (status != TUTTI_ERR_UNSUPPORTED)
        return status;
    memset(addr->ip, 0, sizeof(addr->ip));
    addr->family = 6;
    status = tutti__net_tcp_listen_at(addr, ret_fd);
    if (status != TUTTI_ERR_UNSUPPORTED)
        return status;
    addr->family = 4; /* no IPv6 on this machine */
    return tutti__net_tcp_listen_at(addr, ret_fd);
}

/* Knock at the port, because another process uses it. INVALID_ARGUMENT: another rank 0 of this job
   has answered. AGAIN: no gate of this job has answered. */
static tutti_status_t ask_other(const way_t *way, const tutti__net_addr_t *addr)
{
    tutti__net_addr_t there = *addr;
    tutti__gate_round_t round = { .addrs = &there, .count = 1, .try_ms = TUTTI__JOB_SEARCH_MS };
    tutti_status_t status;
    int fd = -1;

    if (addr->family == 6 && !tutti__net_is_loopback(addr)) {
        there.family = 4;
        memcpy(there.ip, "\x7f\0\0\1", 4);
    }
    status = tutti__gate_try(&way->gate, &round, 0, way->deadline, &fd);
    if (status == TUTTI_OK)
        close(fd);
    return round.is_final && status != TUTTI_OK ? status : TUTTI__AGAIN;
}

static tutti_status_t open_door(const way_t *way, tutti__net_addr_t *addr, int *ret_door)
{
    uint64_t until = TUTTI__MIN(tutti__net_deadline(TUTTI__JOB_PORT_MS), way->deadline);
    tutti_status_t status = TUTTI__AGAIN;

    for (;;) {
        for (uint32_t i = 0; i < way->nports && status == TUTTI__AGAIN; i++) {
            addr->port = (uint16_t)(way->first_port + i);
            status = listen_there(addr, ret_door);
        }
        if (status == TUTTI__AGAIN && way->nports == 1)
            status = ask_other(way, addr);
        if (status != TUTTI__AGAIN)
            return status;
        if (tutti__net_left_ms(until) == 0)
            return tutti__fail(TUTTI_ERR_SYSTEM,
                               "rank 0 cannot listen at port %s (%s), which another process uses; "
                               "TUTTI_PORT chooses another port, on all ranks",
                               way->ports, way->job->port_source);
        tutti__net_sleep_ms(TUTTI__JOB_PORT_PAUSE_MS);
        status = tutti__net_still();
        if (status != TUTTI_OK)
            return status;
        status = TUTTI__AGAIN;
    }
}

/* Look up rank 0's name, as the other ranks do. On another host the lookup may have another
   outcome, so a failure causes only a warning. */
static void check_name(const way_t *way)
{
    tutti__net_addrs_t addrs;

    if (!tutti__net_is_literal(way->job->addr) &&
        tutti__net_resolve(way->job->addr, &addrs) != TUTTI_OK)
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "rank 0's name: %s; a rank whose host finds no address either cannot connect",
                   tutti_last_error());
}

static tutti_status_t host(const way_t *way, tutti__meet_t *ret_meet)
{
    tutti__net_addr_t addr;
    tutti_status_t status;
    char where[64];
    int door = -1;

    choose_address(way->job->addr, &addr);
    status = open_door(way, &addr, &door);
    if (status != TUTTI_OK)
        return status;
    tutti__net_addr_text(&addr, where, sizeof(where));
    TUTTI__LOG(TUTTI__LOG_INFO, "rank 0 of %u listens at %s, by %s", way->job->size, where,
               way->job->source);
    if (way->gate.pass->secret.bytes == 0 && !tutti__net_is_loopback(&addr))
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "the job has no secret: any process that reaches port %u of this host can join "
                   "it; set TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE on all ranks",
                   addr.port);
    check_name(way);
    return tutti__star_host(&way->gate, "tcp", door, way->deadline, ret_meet);
}

/* ---- other ranks ---- */

/* List all addresses of rank 0's host, each with all ports. */
static tutti_status_t list_addresses(const way_t *way, tutti__net_addr_t *ret_list,
                                     uint32_t *ret_count)
{
    tutti__net_addrs_t addrs;
    tutti_status_t status = tutti__net_resolve(way->job->addr, &addrs);

    if (status != TUTTI_OK)
        return status;
    *ret_count = 0;
    for (uint32_t i = 0; i < addrs.count; i++) {
        for (uint32_t p = 0; p < way->nports; p++) {
            ret_list[*ret_count] = addrs.addr[i];
            ret_list[(*ret_count)++].port = (uint16_t)(way->first_port + p);
        }
    }
    return TUTTI_OK;
}

/* A rank's attempts to reach rank 0. */
typedef struct {
    tutti__net_addr_t list[TUTTI__NET_ADDRS * TUTTI__JOB_PORTS];
    tutti__gate_round_t round;
    tutti__waiting_t waiting;
    uint64_t lookup_due;            /* when the name is looked up again */
    uint64_t other_due;             /* when another job's refusal becomes final; 0: no refusal */
    uint64_t gone_due;              /* when rank 0 counts as ended; 0: not set */
    int is_greeted;                 /* a gate of this job has sent its greeting */
    int has_warned;                 /* this rank has warned of a failed lookup */
    char other[TUTTI__ERROR_BYTES]; /* text of another job's refusal */
    char last[TUTTI__ERROR_BYTES];  /* the last error */
} search_t;

/* Returns the time when the search ends. If rank 0 has sent its greeting, this is `until`, because
   rank 0's answer may arrive after the deadline. Otherwise it is the deadline. */
static uint64_t end_of(const way_t *way, const search_t *search, uint64_t until)
{
    return search->is_greeted ? until : TUTTI__MIN(until, way->deadline);
}

/* Judge a round of attempts. Returns TUTTI_OK if the search continues. */
static tutti_status_t judge_round(const way_t *way, search_t *search, uint64_t until)
{
    const tutti__gate_round_t *round = &search->round;

    search->is_greeted |= round->is_greeted;
    until = end_of(way, search, until);
    if (round->other[0] != '\0') {
        snprintf(search->other, sizeof(search->other), "%s", round->other);
        search->other_due =
            search->other_due == 0 ? tutti__net_deadline(TUTTI__JOB_OTHER_MS) : search->other_due;
    } else if (round->is_alone) {
        search->other[0] = '\0'; /* the other job's gate has closed */
        search->other_due = 0;
    }
    if (!round->is_alone)
        search->gone_due = 0;
    else if (search->is_greeted && search->gone_due == 0)
        search->gone_due = tutti__net_deadline(TUTTI__JOB_GONE_MS);
    if (search->gone_due != 0 && tutti__net_left_ms(search->gone_due) == 0)
        return tutti__fail(TUTTI_ERR_PEER_LOST, "rank 0 ended while ranks met (%s)", search->last);
    /* With several ports, a job at a neighbouring port may have refused: continue. */
    if (search->other[0] != '\0' &&
        (tutti__net_left_ms(until) == 0 ||
         (way->nports == 1 && tutti__net_left_ms(search->other_due) == 0)))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "rank %u, at %s port %s: %.300s",
                           way->gate.rank, way->job->addr, way->ports, search->other);
    if (tutti__net_left_ms(until) == 0)
        return tutti__fail(TUTTI_ERR_TIMEOUT,
                           "rank %u cannot reach rank 0 at %s port %s (%s) within %.1f s: %.200s",
                           way->gate.rank, way->job->addr, way->ports, way->job->port_source,
                           waited_s(way), search->last);
    return tutti__net_still();
}

/* Called between two rounds: warn if the search has lasted for a long time. */
static void warn_of_wait(const way_t *way, search_t *search)
{
    double waited_s;

    if (tutti__waiting_now(&search->waiting, &waited_s))
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "rank %u has waited %.1f s for rank 0, which does not answer at %s port %s "
                   "(%s): %s",
                   way->gate.rank, waited_s, way->job->addr, way->ports, way->job->port_source,
                   search->last);
}

/* Called after a lookup of rank 0's name: warn once if it has failed. A later lookup may succeed,
   because often a cluster's name server has a host's name only after the host's start. */
static void warn_of_name(const way_t *way, search_t *search, tutti_status_t status)
{
    if (status != TUTTI_ERR_TRANSPORT || search->has_warned)
        return;
    search->has_warned = 1;
    TUTTI__LOG(TUTTI__LOG_WARN, "rank %u cannot find rank 0 yet: %s; it goes on trying",
               way->gate.rank, tutti_last_error());
}

/* Try until a gate of this job has answered. */
static tutti_status_t reach(const way_t *way, uint64_t until, search_t *search, int *ret_fd)
{
    unsigned most_ms = way->nports == 1 ? TUTTI__JOB_TRY_MOST_MS : TUTTI__JOB_SEARCH_MOST_MS,
             pause_ms = TUTTI__REACH_PAUSE_MS;
    tutti__gate_round_t *round = &search->round;
    tutti_status_t status;

    round->addrs = search->list;
    round->try_ms = way->nports == 1 ? TUTTI__REACH_FIRST_MS : TUTTI__JOB_SEARCH_MS;
    for (;;) {
        warn_of_wait(way, search);
        status = TUTTI_OK;
        if (round->count == 0 || tutti__net_left_ms(search->lookup_due) == 0) {
            search->lookup_due = tutti__net_deadline(TUTTI__JOB_LOOKUP_MS);
            status = list_addresses(way, search->list, &round->count);
            warn_of_name(way, search, status);
        }
        if (round->count > 0)
            status = tutti__gate_try(&way->gate, round, 0, end_of(way, search, until), ret_fd);
        if (status == TUTTI_OK || (round->count > 0 && round->is_final) ||
            status == TUTTI_ERR_NO_MEMORY)
            return status;
        snprintf(search->last, sizeof(search->last), "%s", tutti_last_error());
        status = judge_round(way, search, until);
        if (status != TUTTI_OK)
            return status;
        tutti__net_sleep_ms(TUTTI__MIN(pause_ms, (unsigned)tutti__net_left_ms(until)));
        pause_ms = TUTTI__MIN(2 * pause_ms, TUTTI__REACH_PAUSE_MOST_MS);
        round->try_ms = TUTTI__MIN(2 * round->try_ms, most_ms);
    }
}

static tutti_status_t join(const way_t *way, tutti__meet_t *ret_meet)
{
    uint64_t until = way->gate.until;
    search_t search = { .lookup_due = 0 };
    tutti_status_t status;
    int fd;

    TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u of %u looks for rank 0 at %s port %s, by %s",
               way->gate.rank, way->gate.size, way->job->addr, way->ports, way->job->source);
    status = reach(way, until, &search, &fd);
    if (status != TUTTI_OK)
        return status;
    return tutti__star_join(&way->gate, "tcp", fd, way->deadline, until, ret_meet);
}

/* ---- both ---- */

/* Meet at a Unix socket whose name only this job uses. All ranks must be on this host. */
static tutti_status_t meet_here(const tutti__conf_t *conf, const tutti__conf_job_t *job,
                                tutti__meet_t *ret_meet)
{
    char name[TUTTI__NET_NAME_BYTES];

    snprintf(name, sizeof(name), "tutti-job-%u-%016llx-%llu", (unsigned)getuid(),
             (unsigned long long)tutti__hash(job->run, strlen(job->run)),
             (unsigned long long)job->restart);
    TUTTI__LOG(job->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
               "%u ranks meet on this host, by %s", job->size, job->source);
    return tutti__meet_local(name, job->rank, job->size, conf->shared.timeout_ms, ret_meet);
}

tutti_status_t tutti__meet_job(const tutti__conf_t *conf, const tutti__conf_job_t *job,
                               tutti__meet_t *ret_meet)
{
    way_t way = { .job = job, .begin_ns = tutti__now_ns() };
    tutti__pass_t pass;
    tutti_status_t status;

    if (job->addr[0] == '\0')
        return meet_here(conf, job, ret_meet);
    way.deadline = tutti__net_deadline(conf->shared.timeout_ms);
    way.first_port = job->port + (job->port_is_taken ? 1 : 0);
    way.nports = job->port_is_taken ? TUTTI__MIN(TUTTI__JOB_PORTS, 65535u - job->port) : 1;
    if (way.nports == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "there is no port above MASTER_PORT=%u; set TUTTI_PORT", job->port);
    snprintf(way.ports, sizeof(way.ports), way.nports == 1 ? "%u" : "%u-%u", way.first_port,
             way.first_port + way.nports - 1);
    status = tutti__pass_init(&pass, conf, job);
    way.gate = (tutti__gate_t){ .purpose = TUTTI__GATE_JOB,
                                .rank = job->rank,
                                .size = job->size,
                                .strict = 1,
                                .until = tutti__star_patience(way.deadline),
                                .pass = &pass };
    if (status == TUTTI_OK)
        status = job->rank == 0 ? host(&way, ret_meet) : join(&way, ret_meet);
    tutti__pass_clear(&pass);
    return status;
}
