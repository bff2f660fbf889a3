/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backoff of a waiting direct call.
 *
 * If each rank has a processor, it first spins for about as long as it takes to wake a sleeping
 * thread. Then it yields; this suffices for ranks that share a core, since each of them runs once
 * per call. Then it sleeps on the word that it waits for. Deadlines and deaths of peers are checked
 * only between sleeps.
 */
#include "api/direct.h"

#include "base/log.h"
#include "base/status.h"
#include "base/time.h"

#include <sched.h>
#include <unistd.h>

/* Polling a peer's word once takes some 20 ns with its pause, and a look is TUTTI__CLOSE_LOOKS
   polls: so a rank with a processor of its own spins for about 1.5 ms. */
#define SPIN_LOOKS 1500
#define YIELD_LOOKS 100
/*
 * If ranks share processors, a rank yields for about as long as a wake-up takes: one turn of four
 * to eight ranks. The time is counted per stage of a call, over all peers that the stage waits for.
 * Longer yielding would take processor time from these peers.
 * Tried, with 8 ranks on one processor, 8 bytes after an MPI barrier: 100 yields for each word take
 * 43 us instead of 25; no yields, 61. On two processors both take 15 us; less than a turn, 25.
 * One budget for all stages of a call: 0.35 of MPI's time from 512 bytes to 4 MiB, instead of 0.25.
 */
#define YIELD_NS 12000u
/*
 * Sleeps are bounded, because a wake-up can be missed (see machine.h), and because deaths are
 * checked between sleeps. They grow with the time waited so far: a missed wake-up costs a small
 * share of that time, and a wait of two seconds takes a hundred sleeps, not a thousand.
 */
#define SLEEP_US 2000
#define SLEEP_MOST_US 50000
#define SLEEP_SHARE 16
#define POLL_SLEEP_US 20
/* After a timeout on the device: how long to wait for a peer's report of the cause. */
#define NEWS_MS 500

/* The name of the rank or ranks that p waits for, or of its device. */
static const char *whom(const tutti__comm_t *comm, const tutti__backoff_t *p)
{
    if (p->hint.peer < 0)
        return p->tag & TUTTI__TAG_ON_DEVICE ? "its device" : "other ranks";
    return tutti__boot_rank_name(comm->boot, (uint32_t)p->hint.peer);
}

/* The deadline has passed. A device does not tell which rank it waits for, so wait for a peer's
   report. If a process is stopped, name its rank: other ranks may only be waiting for it. */
static tutti_status_t give_up(tutti__comm_t *comm, const tutti__backoff_t *p)
{
    char halted[160] = "";
    tutti_status_t status = TUTTI_OK;

    if (!tutti__watch_halted(comm->watch, halted, sizeof(halted)) &&
        (p->tag & TUTTI__TAG_ON_DEVICE))
        for (int ms = 0; ms < NEWS_MS && status == TUTTI_OK; ms++) {
            usleep(1000);
            status = tutti__watch_alive(comm->watch);
        }
    if (status != TUTTI_OK)
        return status;
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s waited %.3g s in %s (direct) for %s%s%s",
                       tutti__boot_rank_name(comm->boot, comm->topo->rank),
                       (double)comm->conf.shared.timeout_ms / 1000, tutti__tag_name(p->tag),
                       whom(comm, p), halted[0] != '\0' ? "; " : "", halted);
}

/* Warn after each TUTTI_STALL_WARNING seconds of a wait. */
static void warn(const tutti__comm_t *comm, const tutti__backoff_t *p, uint64_t waited_ns)
{
    char call[160], halted[160];
    double s = (double)waited_ns / 1e9;
    int is_halted = tutti__watch_halted(comm->watch, halted, sizeof(halted));

    if (comm->call != NULL)
        tutti__engine_call_text(comm->engine, comm->call, call, sizeof(call));
    else
        snprintf(call, sizeof(call), "%s", tutti__tag_name(p->tag));
    TUTTI__LOG(TUTTI__LOG_WARN, "%s has waited %.*f s in %s (direct) for %s%s%s",
               tutti__boot_rank_name(comm->boot, comm->topo->rank), s < 10 ? 1 : 0, s, call,
               whom(comm, p), is_halted ? "; " : "", is_halted ? halted : "");
}

/* An error if the communicator has ended or the deadline has passed; warns about long waits. */
static tutti_status_t check_peers(tutti__comm_t *comm, tutti__backoff_t *p)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    uint64_t now = tutti__now_ns(), stall_ns = conf->stall_ms * 1000000u;
    tutti_status_t status = tutti__watch_alive(comm->watch);

    if (status != TUTTI_OK)
        return status;
    if (p->since_ns == 0)
        p->since_ns = now;
    if (stall_ns > 0 && now - p->since_ns >= (p->warned + 1) * stall_ns) {
        p->warned = (now - p->since_ns) / stall_ns;
        warn(comm, p, now - p->since_ns);
    }
    if (now - p->since_ns < conf->timeout_ms * 1000000u)
        return TUTTI_OK;
    return give_up(comm, p);
}

/* The place of a word relative to its writer's arena. All peers write a stage's words at the same
   place of their arenas, so the place identifies the stage. (With two ranks, announcements are at
   other places, but then a stage has one word.) */
static uintptr_t place_of(const tutti__comm_t *comm, const tutti__hint_t *hint)
{
    int32_t index = hint->peer < 0 ? -1 : comm->machine->index_of[hint->peer];

    return (uintptr_t)hint->word - (index < 0 ? 0 : (uintptr_t)comm->machine->base[index]);
}

/* Spin or yield once. 0: the wait has lasted long enough to sleep. */
static int back_off(const tutti__comm_t *comm, tutti__backoff_t *p)
{
    uint64_t before;

    if (comm->spin) {
        if (p->looks >= SPIN_LOOKS + YIELD_LOOKS)
            return 0;
        if (p->looks < SPIN_LOOKS)
            tutti__pause();
        else
            sched_yield();
        return 1;
    }
    if (p->yielded_ns >= YIELD_NS)
        return 0;
    before = tutti__now_ns();
    sched_yield();
    p->yielded_ns += (uint32_t)TUTTI__MIN(tutti__now_ns() - before, YIELD_NS);
    return 1;
}

static uint32_t sleep_us(const tutti__backoff_t *p)
{
    uint64_t us = p->since_ns == 0 ? 0 : (tutti__now_ns() - p->since_ns) / 1000 / SLEEP_SHARE;

    return (uint32_t)TUTTI__MIN(TUTTI__MAX(us, SLEEP_US), SLEEP_MOST_US);
}

tutti_status_t tutti__backoff_step(tutti__comm_t *comm, tutti__backoff_t *p,
                                   const tutti__hint_t *now)
{
    uintptr_t place = place_of(comm, now);
    int32_t index;

    if (place != p->place || now->value != p->hint.value)
        p->yielded_ns = 0;
    if (now->word != p->hint.word || now->value != p->hint.value) {
        p->looks = 0;
        p->since_ns = 0;
        p->warned = 0;
    }
    p->hint = *now;
    p->place = place;
    p->looks++;
    tutti__comm_help(comm);
    if (back_off(comm, p))
        return TUTTI_OK;
    index = now->peer < 0 ? -1 : comm->machine->index_of[now->peer];
    if (now->word != NULL && index >= 0)
        tutti__machine_sleep(comm->machine, (uint32_t)index, now->word, now->value, sleep_us(p));
    else
        usleep(POLL_SLEEP_US);
    return check_peers(comm, p);
}
