/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting through the launcher's process manager (pm.h), without MPI. Rank 0 stores its addresses
 * and a random token in the process manager; the other ranks read both and connect. See meet.h.
 *
 * Advantages over the launcher's variables: rank 0 may be on any host, rank 0 listens at a free
 * port, and no other job has the token.
 *
 * The exchange through the process manager has no deadline and cannot be ended from outside. So a
 * separate thread performs the exchange. After the timeout the calling thread returns, and the
 * separate thread continues to wait.
 */
#include "base/atomic.h"
#include "base/constants.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "boot/meet.h"
#include "boot/waiting.h"
#include "boot/pm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rank 0's entry in the process manager, which stores it as hexadecimal digits. */
typedef struct {
    int32_t status;
    union {
        tutti_unique_id_t id;
        char text[sizeof(tutti_unique_id_t)]; /* the reason why rank 0 cannot listen */
    } is;
} entry_t;

_Static_assert(2 * sizeof(entry_t) < TUTTI__PM_TEXT_BYTES, "a place has outgrown its text");

enum {
    AT_WORK,
    DONE,
    ALONE /* the caller has given up, so the thread frees the exchange */
};

typedef struct {
    const tutti__pm_t *pm;
    uint32_t rank;
    atomic_int state;
    char key[32], text[TUTTI__PM_TEXT_BYTES];
    tutti_status_t status;
    char error[TUTTI__ERROR_BYTES];
} exchange_t;

/* Used by the thread that makes the world; there is one such thread at a time. */
static struct {
    const tutti__pm_t *pm; /* the connected process manager */
    pid_t pid;             /* the process that connected; a forked child is not connected */
    unsigned meetings;     /* number of meetings so far; each meeting has its own key */
    int is_stuck;          /* a thread may wait for ever in share(), so close() would also wait */
} used;

static void close_at_exit(void)
{
    if (used.pm != NULL && used.pid == getpid() && !used.is_stuck)
        used.pm->close();
}

/* ---- the exchange ---- */

static void *thread_main(void *arg)
{
    exchange_t *exchange = arg;

    exchange->status = exchange->pm->share(exchange->key, exchange->rank, exchange->text);
    if (exchange->status != TUTTI_OK)
        snprintf(exchange->error, sizeof(exchange->error), "%s", tutti_last_error());
    if (atomic_exchange(&exchange->state, DONE) == ALONE)
        free(exchange);
    return NULL;
}

static tutti_status_t await(exchange_t *exchange, uint64_t deadline)
{
    tutti__waiting_t waiting = { 0, 0 };
    tutti_status_t status = TUTTI_OK;
    double waited_s;

    while (atomic_load(&exchange->state) == AT_WORK && status == TUTTI_OK) {
        if (tutti__waiting_now(&waiting, &waited_s))
            TUTTI__LOG(TUTTI__LOG_WARN,
                       "rank %u has waited %.1f s: not all ranks have called tutti_init; the ranks "
                       "meet by %s",
                       exchange->rank, waited_s, exchange->pm->name);
        tutti__net_sleep_ms(TUTTI__PM_PAUSE_MS);
        if (tutti__net_left_ms(deadline) == 0)
            status = tutti__fail(TUTTI_ERR_TIMEOUT,
                                 "rank %u: not all ranks have called tutti_init within "
                                 "TUTTI_TIMEOUT; the ranks meet by %s",
                                 exchange->rank, exchange->pm->name);
        else
            status = tutti__net_still();
    }
    return atomic_load(&exchange->state) == DONE ? TUTTI_OK : status;
}

/* Pass rank 0's entry to all ranks. */
static tutti_status_t share(const tutti__pm_t *pm, uint32_t rank, uint64_t deadline, entry_t *entry)
{
    exchange_t *exchange = calloc(1, sizeof(*exchange));
    unsigned char *bytes = (unsigned char *)entry;
    tutti_status_t status;

    if (exchange == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "an exchange by %s", pm->name);
    exchange->pm = pm;
    exchange->rank = rank;
    snprintf(exchange->key, sizeof(exchange->key), "tutti.place.%u", used.meetings++);
    for (size_t i = 0; i < sizeof(*entry); i++)
        snprintf(exchange->text + 2 * i, 3, "%02x", bytes[i]);
    if (tutti__thread_launch(thread_main, exchange, NULL) != 0) {
        free(exchange);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no thread for an exchange by %s", pm->name);
    }
    status = await(exchange, deadline);
    if (status != TUTTI_OK) {
        if (atomic_exchange(&exchange->state, ALONE) == DONE)
            free(exchange);
        else
            used.is_stuck = 1;
        return status;
    }
    status = exchange->status;
    if (status != TUTTI_OK)
        status = tutti__fail(status, "%s", exchange->error);
    else if (strlen(exchange->text) != 2 * sizeof(*entry))
        status =
            tutti__fail(TUTTI_ERR_ABI, "rank 0 has left no place of this version in %s", pm->name);
    for (size_t i = 0; i < sizeof(*entry) && status == TUTTI_OK; i++)
        if (sscanf(exchange->text + 2 * i, "%2hhx", &bytes[i]) != 1)
            status = tutti__fail(TUTTI_ERR_ABI, "%s has damaged rank 0's place", pm->name);
    free(exchange);
    return status;
}

/* ---- the meeting ---- */

static tutti_status_t host(const tutti__pm_t *pm, const char *interface, uint32_t size,
                           uint64_t deadline, tutti__meet_t *ret_meet)
{
    tutti__venue_t place;
    entry_t entry;
    int door = -1;
    tutti_status_t status = tutti__venue_open(interface, 0, &place, &door), shared;

    memset(&entry, 0, sizeof(entry));
    entry.status = (int32_t)status;
    if (status == TUTTI_OK)
        tutti__id_encode(&(tutti__id_t){ place.addrs, place.token }, &entry.is.id);
    else
        snprintf(entry.is.text, sizeof(entry.is.text), "%.120s", tutti_last_error());
    shared = share(pm, 0, deadline, &entry);
    if (status != TUTTI_OK)
        return tutti__fail(status, "rank 0: %s", entry.is.text);
    if (shared != TUTTI_OK) {
        close(door);
        return shared;
    }
    TUTTI__LOG(TUTTI__LOG_INFO, "%u ranks meet by %s", size, pm->name);
    return tutti__venue_host(&place, door, size, deadline, ret_meet);
}

static tutti_status_t join(const tutti__pm_t *pm, uint32_t rank, uint32_t size, uint64_t deadline,
                           tutti__meet_t *ret_meet)
{
    tutti__venue_t place = { .layout = TUTTI__BOOT_LAYOUT, .over_tcp = 1 };
    tutti__id_t id;
    entry_t entry;
    tutti_status_t status;

    memset(&entry, 0, sizeof(entry));
    status = share(pm, rank, deadline, &entry);
    if (status != TUTTI_OK)
        return status;
    if (entry.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)entry.status, "rank 0: %.*s", (int)sizeof(entry.is.text),
                           entry.is.text);
    status = tutti__id_decode(&entry.is.id, &id);
    if (status != TUTTI_OK)
        return status;
    place.addrs = id.addrs;
    place.token = id.token;
    TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u of %u looks for rank 0, by %s", rank, size, pm->name);
    return tutti__venue_join(&place, rank, size, deadline, ret_meet);
}

/* Block all signals while connecting: threads that PMIx or PMI-2 starts inherit this mask. */
static tutti_status_t connect(const tutti__pm_t *pm, uint32_t *ret_rank, uint32_t *ret_size)
{
    tutti_status_t status;
    sigset_t all, before;

    if (used.pm != NULL && used.pid != getpid())
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "this process was forked after its parent had connected to %s",
                           used.pm->name);
    if (used.pm != NULL && (used.pm != pm || used.is_stuck))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "an earlier meeting by %s has not ended",
                           used.pm->name);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status = pm->open(ret_rank, ret_size);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == TUTTI_OK && used.pm == NULL) {
        used.pm = pm;
        used.pid = getpid();
        atexit(close_at_exit);
    }
    return status;
}

tutti_status_t tutti__meet_pm(const tutti__conf_t *conf, tutti__conf_pm_t kind,
                              const tutti__conf_job_t *job, tutti__meet_t *ret_meet)
{
    const tutti__pm_t *pm = kind == TUTTI__CONF_PMIX ? &tutti__pm_pmix : &tutti__pm_pmi2;
    uint64_t deadline = tutti__net_deadline(conf->shared.timeout_ms);
    uint32_t rank, size;
    tutti_status_t status = connect(pm, &rank, &size);

    if (status != TUTTI_OK)
        return status;
    /* The sizes can differ if mpirun has started srun, which has started this process: then the
       variables are mpirun's, but the process manager is srun's. */
    if (job != NULL && job->size != size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s tells of %u ranks, %s of %u; TUTTI_BOOT=env uses the variables",
                           pm->name, size, job->source, job->size);
    if (size == 1) {
        tutti__meet_self(ret_meet);
        return TUTTI_OK;
    }
    return rank == 0 ? host(pm, conf->interface, size, deadline, ret_meet)
                     : join(pm, rank, size, deadline, ret_meet);
}
