/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a direct call waits.
 *
 * It spins for about as long as waking a sleeper costs, if there are processors enough; then it
 * yields, which is all that ranks sharing a core need: each of them runs once per call; then it
 * sleeps on the very word that is waited for. Only a sleeper looks after deadlines and dead peers.
 */
#include "api/direct.h"

#include "base/log.h"
#include "base/status.h"
#include "base/time.h"

#include <sched.h>
#include <unistd.h>

/* A close look at a peer's word takes some 20 ns with its pause, and each look is
   TUTTI__CLOSE_LOOKS of them: so with a processor of its own a rank spins for about 1.5 ms. */
#define SPIN_LOOKS 1500
#define YIELD_LOOKS 100
/*
 * Ranks that share processors yield for about as long as it takes to be woken, whichever peers
 * they wait for in the same stage of a call: one turn of four to eight ranks. Longer they would be
 * in the way of those that they wait for.
 * Tried, with 8 ranks on one processor, 8 bytes after an MPI barrier: 100 yields for each word,
 * 43 us instead of 25; no yields, 61. On two processors both take 15 us; less than a turn, 25.
 * Once for all stages: 0.35 of MPI's time from 512 bytes to 4 MiB instead of 0.25.
 */
#define YIELD_NS 12000u
/*
 * Sleeps are bounded: see machine.h on wake-ups that can be missed, and deaths are looked after.
 * They grow with what has been waited, so a missed wake-up costs little of that, and who waits for
 * two seconds wakes a hundred times and not a thousand.
 */
#define SLEEP_US 2000
#define SLEEP_MOST_US 50000
#define SLEEP_SHARE 16
#define POLL_SLEEP_US 20
/* How long who does not know the culprit waits for one that does. */
#define NEWS_MS 500

/* The rank or ranks that p waits for, or its device. */
static const char *whom(const tutti__comm_t *comm, const tutti__patience_t *p)
{
    if (p->stuck.peer < 0)
        return p->tag & TUTTI__TAG_ON_DEVICE ? "its device" : "other ranks";
    return tutti__boot_rank_name(comm->boot, (uint32_t)p->stuck.peer);
}

/* The deadline has passed. Nobody knows whom a device waits for, so news of those who know better
   are waited for; a rank that is stopped is better to say than one that waits for it. */
static tutti_status_t give_up(tutti__comm_t *comm, const tutti__patience_t *p)
{
    char halted[160] = "";
    tutti_status_t status = TUTTI_OK;

    if (!tutti__engine_halted(comm->engine, halted, sizeof(halted)) &&
        (p->tag & TUTTI__TAG_ON_DEVICE))
        for (int ms = 0; ms < NEWS_MS && status == TUTTI_OK; ms++) {
            usleep(1000);
            status = tutti__engine_alive(comm->engine);
        }
    if (status != TUTTI_OK)
        return status;
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s waited %.3g s in %s (direct) for %s%s%s",
                       tutti__boot_rank_name(comm->boot, comm->topo->rank),
                       (double)comm->conf.shared.timeout_ms / 1000, tutti__tag_name(p->tag),
                       whom(comm, p), halted[0] != '\0' ? "; " : "", halted);
}

/* The wait has lasted for another TUTTI_STALL_WARNING seconds. */
static void warn(const tutti__comm_t *comm, const tutti__patience_t *p, uint64_t waited_ns)
{
    char call[160], halted[160];
    double s = (double)waited_ns / 1e9;
    int is_halted = tutti__engine_halted(comm->engine, halted, sizeof(halted));

    if (comm->call != NULL)
        tutti__engine_call_text(comm->engine, comm->call, call, sizeof(call));
    else
        snprintf(call, sizeof(call), "%s", tutti__tag_name(p->tag));
    TUTTI__LOG(TUTTI__LOG_WARN, "%s has waited %.*f s in %s (direct) for %s%s%s",
               tutti__boot_rank_name(comm->boot, comm->topo->rank), s < 10 ? 1 : 0, s, call,
               whom(comm, p), is_halted ? "; " : "", is_halted ? halted : "");
}

/* Peers that are dead, have left, or are too late. */
static tutti_status_t check_peers(tutti__comm_t *comm, tutti__patience_t *p)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    uint64_t now = tutti__now_ns(), stall_ns = conf->stall_ms * 1000000u;
    tutti_status_t status = tutti__engine_alive(comm->engine);

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

/* Peers write a stage's words to one place, each in its own arena. (Not so announcements of two
   ranks, but there is one word for a stage then.) */
static uintptr_t place_of(const tutti__comm_t *comm, const tutti__stuck_t *stuck)
{
    int32_t index = stuck->peer < 0 ? -1 : comm->machine->index_of[stuck->peer];

    return (uintptr_t)stuck->word - (index < 0 ? 0 : (uintptr_t)comm->machine->base[index]);
}

/* Stay awake, if it has not lasted too long: 0 if it has. */
static int bide(const tutti__comm_t *comm, tutti__patience_t *p)
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

static uint32_t sleep_us(const tutti__patience_t *p)
{
    uint64_t us = p->since_ns == 0 ? 0 : (tutti__now_ns() - p->since_ns) / 1000 / SLEEP_SHARE;

    return (uint32_t)TUTTI__MIN(TUTTI__MAX(us, SLEEP_US), SLEEP_MOST_US);
}

tutti_status_t tutti__patience_bide(tutti__comm_t *comm, tutti__patience_t *p,
                                    const tutti__stuck_t *now)
{
    uintptr_t place = place_of(comm, now);
    int32_t index;

    if (place != p->place || now->value != p->stuck.value)
        p->yielded_ns = 0;
    if (now->word != p->stuck.word || now->value != p->stuck.value) {
        p->looks = 0;
        p->since_ns = 0;
        p->warned = 0;
    }
    p->stuck = *now;
    p->place = place;
    p->looks++;
    tutti__comm_help(comm);
    if (bide(comm, p))
        return TUTTI_OK;
    index = now->peer < 0 ? -1 : comm->machine->index_of[now->peer];
    if (now->word != NULL && index >= 0)
        tutti__machine_sleep(comm->machine, (uint32_t)index, now->word, now->value, sleep_us(p));
    else
        usleep(POLL_SLEEP_US);
    return check_peers(comm, p);
}
