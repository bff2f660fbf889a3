/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank is killed in tutti_init, before its k-th call that uses a socket: all others end soon with
 * an error that names it. A call is counted only if the others can already name this rank.
 *
 *   starting             some places
 *   starting all [way]   all places, for an idle machine: survivors must end within 2 s;
 *                        TUTTI_TEST_VERBOSE=1 prints the outcome of each
 */
#include "fault/startup.h"

#include "long.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Survivors must end within this time. On a busy machine the limit is far below the ranks' own
   deadline, and far above the time that the survivors need. */
#define SOON_S 50.0
#define SOON_IDLE_S 2.0
#define TIMEOUT_S 60
/* Only every STRIDE-th place is tried. */
#define STRIDE_QUICK 61
#define STRIDE_LONG 5

static int victim, place, maker;
static double soon_s = SOON_S;
static way_t way;

/*
 * Can the others name the victim? They can if it has sent data, with these exceptions. With a name
 * or env://, rank 0 may die before another rank connects. Then this rank cannot distinguish the
 * death from a late rank 0. With an id, the maker's first message does not have its rank. With
 * env://, no rank's first message has its number.
 */
static int is_known(void)
{
    if (way == BY_NAME && victim == 0)
        return atomic_load(&hall->accepted) >= 2;
    /* Rank 0 has sent a greeting and an answer to one rank, and a greeting to the other. */
    if (way == BY_ENV && victim == 0)
        return atomic_load(&hall->sent) >= 3;
    for (int r = 0; r < 3 && way == BY_ID && victim == maker; r++)
        if (r != victim && atomic_load(&hall->got[r]) < 2)
            return 0;
    return atomic_load(&hall->sent) > (way == BY_ENV);
}

static void die_there(const char *name)
{
    struct timespec now;

    if (strcmp(name, "listening") == 0 || !is_known() ||
        atomic_fetch_add(&hall->calls, 1) + 1 < place || !startup_seal_fate(DIES))
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&hall->fault_ns,
                 (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec);
    kill(getpid(), SIGKILL);
}

static void before(int rank)
{
    if (rank == victim)
        on_call = die_there;
}

typedef struct {
    int places, late, unnamed;
    double longest_s;
} tally_t;

/* Judge the survivors' outcomes. Returns 0 if the victim did not reach this place. */
static int judge(const startup_t *job, int hung, tally_t *tally)
{
    static int verbose = -1;
    unsigned long long fault_ns = atomic_load(&hall->fault_ns);
    char name[16];

    if (verbose < 0)
        verbose = getenv("TUTTI_TEST_VERBOSE") != NULL;
    if (fault_ns == 0)
        return 0;
    tally->places++;
    snprintf(name, sizeof(name), "rank %d", victim);
    for (int r = 0; r < job->size; r++) {
        const outcome_t *out = &hall->outcome[r];
        double took_s;
        int late, unnamed;

        if (r == victim)
            continue;
        took_s = ((double)out->ended_ns - (double)fault_ns) * 1e-9;
        late = hung || !out->ended || took_s > soon_s;
        /* The ranks share a network, so a message that names containers as the cause is wrong. */
        unnamed = out->status == TUTTI_OK || strstr(out->text, name) == NULL ||
                  strstr(out->text, "containers") != NULL;
        tally->late += late;
        tally->unnamed += unnamed;
        if (took_s > tally->longest_s)
            tally->longest_s = took_s;
        if (late || unnamed || verbose)
            fprintf(stderr,
                    "%s by %s, hosts %s, rank %d killed at %d: rank %d after %.3f s: %d, %s\n",
                    late || unnamed ? "FAILED:" : "well:", way_names[job->way], job->hosts, victim,
                    place, r, took_s, out->status, out->text);
    }
    return 1;
}

/* Kill one rank at every `stride`-th place. */
static void try_places(startup_t *job, int rank, int stride, tally_t *tally)
{
    victim = rank;
    for (place = 1 + rand() % stride; place < 1000; place += stride)
        if (!judge(job, startup_run(job), tally))
            return;
}

int main(int argc, char **argv)
{
    static const char *const hosts[] = { "aaa", "aab", "abc" };
    int stride = 1, failures = 0;

    if (!ranks_can_fork())
        return 77;
    if (argc > 1)
        soon_s = SOON_IDLE_S;
    else
        stride =
            test_is_long("eleven of twelve places of the long form") ? STRIDE_LONG : STRIDE_QUICK;
    startup_open();
    for (way = 0; way < WAYS; way++) {
        if (argc > 2 && strcmp(argv[2], way_names[way]) != 0)
            continue;
        for (int h = 0; h < 3; h++) {
            tally_t tally = { 0 };

            maker = h;
            for (int rank = 0; rank < 3; rank++) {
                startup_t job = { .way = way,
                                  .size = 3,
                                  .hosts = hosts[h],
                                  .maker = maker,
                                  .timeout_s = TIMEOUT_S,
                                  .limit_s = TIMEOUT_S + 20,
                                  .before = before };

                try_places(&job, rank, stride, &tally);
            }
            fprintf(stderr,
                    "by %s, hosts %s: %d places, %d late, %d without the name, longest "
                    "%.3f s\n",
                    way_names[way], hosts[h], tally.places, tally.late, tally.unnamed,
                    tally.longest_s);
            failures += tally.late + tally.unnamed;
        }
    }
    return failures != 0;
}
