/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults while all ranks follow a learned plan: a rank is killed, stopped, or exits without
 * tutti_finalize; or it continues, but no longer submits one of the plan's tensors. The errors and
 * warnings of the other ranks name this rank, as they do without plans.
 */
#include "fault/fault.h"
#include "long.h"

#include "base/log.h"
#include "base/time.h"
#include "engine/state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    TENSORS = 6,
    COUNT = 512,
    STEPS = 8
};

/* The part of its step that the victim has submitted at the fault. */
typedef enum {
    BETWEEN,   /* no tensor */
    ONE,       /* no tensor, and the plan is one bucket */
    MIDDLE,    /* a part of a bucket */
    IN_FLIGHT, /* all tensors: its buckets wait for the other ranks */
    PLACES
} place_t;

typedef enum {
    KILLED,
    EXITS,
    STOPPED,
    ABSENT, /* it continues, but makes no calls */
    WAITS,  /* it waits for other tensors of the plan */
    FAULTS
} fault_t;

static const char *const place_names[PLACES] = { "between steps", "between buckets", "in a bucket",
                                                 "in flight" };
static const char *const fault_names[FAULTS] = { "is killed", "exits", "is stopped", "is absent",
                                                 "waits" };

typedef struct {
    fault_t fault;
    place_t place;
    int victim;
} plan_t;

/* The stderr of all ranks of a job goes to this file. */
static int said;
static int real_stderr;
/* The limit of a bucket, in bytes. */
static size_t bucket;

#define STALL_MS 250
#define TIMEOUT_MS 1000

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = STALL_MS;
    conf->shared.fusion_bytes = bucket;
    conf->log_level = TUTTI__LOG_WARN;
}

static tutti_request_t *submit(rank_t *self, int t, float *x)
{
    tutti_request_t *request = NULL;
    char name[16];

    snprintf(name, sizeof(name), "tensor %d", t);
    /* This may fail, because the victim may already have died. */
    if (tutti_allreduce_async(name, x, x, COUNT, TUTTI_FLOAT32, TUTTI_MAX, self->comm, NULL,
                              &request) != TUTTI_OK)
        return NULL;
    return request;
}

static void follow_plan(rank_t *self, const plan_t *plan, float (*x)[COUNT])
{
    const tutti__owned_t *own = &self->inside->engine->its_owners;

    for (int step = 0; step < STEPS; step++) {
        tutti_request_t *request[TENSORS];

        for (int t = 0; t < TENSORS; t++)
            request[t] = submit(self, t, x[t]);
        CHECK_OK(tutti_wait_all(request, TENSORS, -1));
    }
    /* On a busy machine a slow rank may have stopped a plan, so there may be more than one. */
    CHECK(own->agreed.plan.plans >= 1);
    if (own->agreed.plan.runs)
        CHECK((own->agreed.plan.plan.nbuckets == 1) == (plan->place == ONE));
    /* After this wait no rank is in an earlier call. */
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->ready) < self->size)
        usleep(1000);
    self->inside->conf.shared.timeout_ms = TIMEOUT_MS;
}

/* ---- the victim ---- */

static void end_victim(rank_t *self, const plan_t *plan)
{
    tutti_request_t *request;
    float x[COUNT];

    atomic_store(&board->pid, (int)getpid());
    atomic_store(&board->when_ns, tutti__now_ns());
    if (plan->fault == KILLED)
        kill(getpid(), SIGKILL);
    if (plan->fault == EXITS)
        _exit(0);
    if (plan->fault == STOPPED)
        kill(getpid(), SIGSTOP);
    for (int i = 0; plan->fault == ABSENT && i < 60000; i++) {
        if (atomic_load(&board->done) + 1 == self->size)
            break;
        usleep(1000);
    }
    /* This submission fails, or its request does: the communicator has ended, or ends soon. */
    request = submit(self, TENSORS, x);
    if (request != NULL)
        CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_TIMEOUT);
}

static void run_victim(rank_t *self, const plan_t *plan, float (*x)[COUNT])
{
    tutti_request_t *request[TENSORS] = { NULL };
    tutti_status_t status = TUTTI_OK;
    int n = plan->place <= ONE ? 0 : plan->place == MIDDLE ? TENSORS / 2 - 1 : TENSORS;

    /* Tensor 0 is not submitted. */
    for (int t = 1; t <= n && t < TENSORS; t++)
        request[t] = submit(self, t, x[t]);
    if (plan->place == IN_FLIGHT && plan->fault != ABSENT && plan->fault != WAITS)
        request[0] = submit(self, 0, x[0]);
    if (plan->fault != WAITS) {
        end_victim(self, plan);
    } else {
        atomic_store(&board->pid, (int)getpid());
        atomic_store(&board->when_ns, tutti__now_ns());
    }
    for (int t = 0; t < TENSORS; t++) {
        tutti_status_t s = request[t] != NULL ? tutti_wait(request[t], -1) : TUTTI_OK;

        status = s != TUTTI_OK ? s : status;
    }
    if (plan->fault == STOPPED || plan->fault == ABSENT)
        check_dead(self, TUTTI_ERR_TIMEOUT, "");
    if (plan->fault == WAITS)
        for (int i = 0; i < 60000 && atomic_load(&board->done) + 1 < self->size; i++)
            usleep(1000);
}

/* ---- the others ---- */

static int has_said(const char *text)
{
    static char all[1 << 16];
    ssize_t n = pread(said, all, sizeof(all) - 1, 0);

    all[n < 0 ? 0 : n] = '\0';
    return strstr(all, text) != NULL;
}

static int dies(const plan_t *plan)
{
    return plan->fault == KILLED || plan->fault == EXITS;
}

static void want_words(const plan_t *plan, char *text, size_t bytes)
{
    const char *what = dies(plan)               ? "was lost"
                       : plan->fault == STOPPED ? "does not"
                                                : "has not submitted it";

    snprintf(text, bytes, "rank %d %s", plan->victim, what);
}

/* On several hosts rank 0 has only the host that has not announced a tensor. So its error may name
   any rank of the victim's host. */
static int names_host(rank_t *self, const plan_t *plan, const char *error)
{
    const tutti__topo_t *topo = self->inside->topo;
    char text[32];

    /* If rank 0 is the victim, it waits for no tensor, so its thread only warns. The error of
       another rank may then name only rank 0. */
    if (plan->victim == 0 && strstr(error, "rank 0 has not reported") != NULL)
        return 1;
    for (int r = 0; r < self->size && topo->nhosts > 1; r++) {
        snprintf(text, sizeof(text), "rank %d ", r);
        /* In "rank 3 waited" rank 3 is the waiting rank, so this does not count. */
        for (const char *at = error; (at = strstr(at, text)) != NULL; at++)
            if (topo->host_of[r] == topo->host_of[plan->victim] &&
                strncmp(at + strlen(text), "waited", 6) != 0)
                return 1;
    }
    return 0;
}

/* After a death, each error names the victim. After other faults, the error or a warning before it
   names the victim: on a busy machine a rank may reach its deadline before it has received other
   ranks' reports. */
static void check_words(rank_t *self, const plan_t *plan)
{
    const char *error = tutti_last_error();
    char want[80];

    want_words(plan, want, sizeof(want));
    if (strstr(error, want) == NULL &&
        (dies(plan) || (!names_host(self, plan, error) && !has_said(want))))
        ranks_fail(__FILE__, __LINE__, "rank %d: '%s' does not say '%s'", self->rank, error, want);
    if (!dies(plan) && strstr(error, "'tensor ") == NULL)
        ranks_fail(__FILE__, __LINE__, "rank %d: '%s' names no tensor", self->rank, error);
}

static void check_time(const plan_t *plan)
{
    CHECK(board_age_s() < SOON_S + (dies(plan) ? 0 : TIMEOUT_MS / 1e3));
}

static void run_other(rank_t *self, const plan_t *plan, float (*x)[COUNT])
{
    tutti_status_t want = dies(plan) ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_TIMEOUT;
    tutti_request_t *request[TENSORS];

    while (atomic_load(&board->pid) == 0)
        usleep(100);
    for (int t = 0; t < TENSORS; t++) {
        request[t] = submit(self, t, x[t]);
        if (request[t] == NULL && dies(plan))
            check_words(self, plan);
    }
    /* the victim does not submit tensor 0. */
    for (int t = 0; t < TENSORS; t++) {
        if (request[t] == NULL)
            continue;
        /* If the victim has submitted all tensors of a bucket, the bucket may be served. */
        if (t == 0 || plan->fault == STOPPED || dies(plan)) {
            tutti_status_t status = tutti_wait(request[t], -1);

            if (status == TUTTI_OK && (plan->place == MIDDLE || plan->place == IN_FLIGHT))
                continue;
            CHECK_STATUS(status, want);
            check_words(self, plan);
        } else {
            (void)tutti_wait(request[t], -1);
        }
    }
    check_time(plan);
    check_dead(self, want, "rank");
    /* The last survivor lets the victim continue; the victim must get the same error. */
    if (atomic_fetch_add(&board->done, 1) + 2 == self->size && plan->fault == STOPPED)
        kill(atomic_load(&board->pid), SIGCONT);
}

static void run(rank_t *self)
{
    const plan_t *plan = self->arg;
    static float x[TENSORS][COUNT];

    real_stderr = dup(2);
    dup2(said, 2);
    follow_plan(self, plan, x);
    if (self->rank == plan->victim)
        run_victim(self, plan, x);
    else
        run_other(self, plan, x);
    dup2(real_stderr, 2);
}

/* ---- all faults ---- */

static int run_one(const plan_t *plan, int size, const char *hosts)
{
    plan_t copy = *plan;
    job_t job = { .size = size,
                  .hosts = hosts,
                  .fn = run,
                  .arg = &copy,
                  .settings = settings,
                  .killed = plan->fault == KILLED ? 1u << plan->victim : 0 };
    char text[4096];
    ssize_t n;

    board_clear();
    bucket = (plan->place == ONE ? 64 : 2) * COUNT * sizeof(float);
    CHECK(ftruncate(said, 0) == 0 && lseek(said, 0, SEEK_SET) == 0);
    if (ranks_run(&job) == 0)
        return 0;
    n = pread(said, text, sizeof(text) - 1, 0);
    fprintf(stderr, "%.*s\nFAILED: rank %d of %d %s %s, hosts %s\n", (int)(n > 0 ? n : 0), text,
            plan->victim, size, fault_names[plan->fault], place_names[plan->place],
            hosts != NULL ? hosts : "one");
    return 1;
}

/* All ranks must receive the report of the victim before the deadline. On a busy machine the report
   may be late; the error then names another rank. So a case with a deadline may be tried three
   times. */
static int run_case(const plan_t *plan, int size, const char *hosts)
{
    int tries = dies(plan) ? 1 : 3;

    while (tries > 0 && run_one(plan, size, hosts) != 0)
        tries--;
    return tries == 0;
}

int main(int argc, char **argv)
{
    static const struct {
        int size, victim;
        const char *hosts;
    } jobs[] = { { 2, 1, NULL },  { 3, 0, NULL },    { 5, 2, NULL },   { 2, 0, "ab" },
                 { 3, 2, "aab" }, { 5, 3, "aaabb" }, { 5, 4, "aaabb" } };
    int failures = 0, whole;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    whole = test_is_long("four of five faults that wait for a deadline");
    board_open();
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    said = memfd_create("said", 0);
    for (int f = 0, n = 0; f < FAULTS; f++) {
        /* With an argument: only faults whose names begin with it. */
        if (argc > 1 && strncmp(fault_names[f], argv[1], strlen(argv[1])) != 0)
            continue;
        for (int place = 0; place < PLACES; place++)
            for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
                plan_t plan = { (fault_t)f, (place_t)place, jobs[i].victim };

                /* A rank that has submitted no tensor cannot wait. */
                if (plan.fault == WAITS && plan.place <= ONE)
                    continue;
                if (whole || argc > 1 || dies(&plan) || n++ % 5 == 0)
                    failures += run_case(&plan, jobs[i].size, jobs[i].hosts);
            }
    }
    return failures != 0;
}
