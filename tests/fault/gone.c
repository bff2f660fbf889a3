/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are alive but do not take part: a rank gives up with tutti_abort, is stopped, leaves
 * without tutti_finalize, or forks.
 */
#include "fault/fault.h"

#include "base/time.h"
#include "long.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum {
    DIRECT_SMALL,
    DIRECT_LARGE,
    ASYNC,
    ASYNC_LARGE,
    BARRIER,
    WAYS
} way_t;

static const char *const way_names[WAYS] = { "small direct", "large direct", "async", "large async",
                                             "barrier" };

typedef struct {
    way_t way;
    int victim;
} plan_t;

enum {
    LARGE = 300000
};

/* A call that needs every rank. */
static tutti_status_t call(rank_t *self, way_t way)
{
    size_t count = way == DIRECT_LARGE || way == ASYNC_LARGE ? LARGE : 4;
    float *x = calloc(count, sizeof(*x));
    tutti_request_t *request;
    tutti_status_t status;

    switch (way) {
    case BARRIER:
        status = tutti_barrier(self->comm);
        break;
    case ASYNC:
    case ASYNC_LARGE:
        status = tutti_allreduce_async("gradient", x, x, count, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &request);
        if (status == TUTTI_OK)
            status = tutti_wait(request, -1);
        break;
    default:
        status = tutti_allreduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, self->comm);
    }
    free(x);
    return status;
}

/* Wait until all ranks are here. Then no rank is in an earlier call. */
static void gather(rank_t *self)
{
    for (int way = 0; way < WAYS; way++)
        CHECK_OK(call(self, (way_t)way));
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->ready) < self->size)
        usleep(1000);
}

static void check_said(const char *text)
{
    if (strstr(tutti_last_error(), text) == NULL)
        ranks_fail(__FILE__, __LINE__, "'%s' does not say '%s'", tutti_last_error(), text);
}

/* ---- tutti_abort ---- */

static void aborts(rank_t *self)
{
    const plan_t *plan = self->arg;

    gather(self);
    if (self->rank == plan->victim) {
        usleep(50000);
        atomic_store(&board->when_ns, tutti__now_ns());
        CHECK_OK(tutti_abort(self->comm, "the disk is full"));
    } else {
        CHECK_STATUS(call(self, plan->way), TUTTI_ERR_PEER_LOST);
        check_said("the disk is full");
        CHECK(board_age_s() < SOON_S);
    }
    check_dead(self, TUTTI_ERR_PEER_LOST, "the disk is full");
    /* The first reason is kept. */
    CHECK_OK(tutti_abort(self->comm, "another one"));
    check_dead(self, TUTTI_ERR_PEER_LOST, "the disk is full");
}

/* ---- a stopped rank ---- */

/*
 * Does the error name the victim as the rank that the others wait for? On several hosts the error
 * of a direct call is from the first rank that timed out. It names the rank for which this rank has
 * waited, which may be another waiting rank. For a named tensor, rank 0 knows only which host has
 * not announced the tensor, not which rank of this host.
 */
static int names(rank_t *self, const plan_t *plan)
{
    const uint32_t *host_of = self->inside->topo->host_of;
    int async = plan->way == ASYNC || plan->way == ASYNC_LARGE;
    int chain = self->inside->topo->nhosts > 1 && !async;
    char text[32];

    if (async && strstr(tutti_last_error(), "'gradient'") == NULL)
        return 0;
    for (int r = 0; r < self->size; r++) {
        int counts = self->inside->topo->nhosts > 1 && host_of[r] == host_of[plan->victim];

        if (r != plan->victim && !counts && !chain)
            continue;
        snprintf(text, sizeof(text), "rank %d", r);
        /* In "rank 3 waited" rank 3 is the waiting rank, so this does not count. */
        for (const char *at = tutti_last_error(); (at = strstr(at, text)) != NULL; at++)
            if (strncmp(at + strlen(text), " waited", 7) != 0)
                return 1;
    }
    return 0;
}

static void stops(rank_t *self)
{
    const plan_t *plan = self->arg;
    unsigned long long none = 0;
    double began;

    /* The short timeout is set only here. Before this point ranks on a busy machine need more
       time. */
    gather(self);
    self->inside->conf.shared.timeout_ms = 500;
    if (self->rank == plan->victim) {
        tutti_status_t status;

        atomic_store(&board->pid, (int)getpid());
        kill(getpid(), SIGSTOP);
        /* Messages of the other ranks may still complete a call. */
        do {
            status = call(self, plan->way);
        } while (status == TUTTI_OK);
        CHECK_STATUS(status, TUTTI_ERR_TIMEOUT);
        check_dead(self, TUTTI_ERR_TIMEOUT, "");
        return;
    }
    while (atomic_load(&board->pid) == 0)
        usleep(1000);
    began = wall_ms();
    /* The first deadline ends the call on all ranks. */
    atomic_compare_exchange_strong(&board->when_ns, &none, tutti__now_ns());
    CHECK_STATUS(call(self, plan->way), TUTTI_ERR_TIMEOUT);
    CHECK(board_age_s() >= 0.2);
    CHECK(wall_ms() - began < SOON_S * 1e3);
    if (!names(self, plan)) {
        kill(atomic_load(&board->pid), SIGKILL);
        ranks_fail(__FILE__, __LINE__, "'%s' does not name rank %d", tutti_last_error(),
                   plan->victim);
    }
    check_dead(self, TUTTI_ERR_TIMEOUT, "rank");
    /* The last survivor lets the victim continue; the victim must get the same error. */
    if (atomic_fetch_add(&board->done, 1) + 2 == self->size)
        kill(atomic_load(&board->pid), SIGCONT);
    for (int i = 0; i < 5000 && atomic_load(&board->done) + 1 < self->size; i++)
        usleep(1000);
}

/* A wait that ends by its timeout has no side effect: the request completes when the late rank
   makes its call. */
static void comes_late(rank_t *self)
{
    const plan_t *plan = self->arg;
    tutti_request_t *request;
    float x = 1;
    int done = 1;

    gather(self);
    if (self->rank == plan->victim)
        while (atomic_load(&board->done) + 1 < self->size)
            usleep(1000);
    CHECK_OK(tutti_allreduce_async("late", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &request));
    if (self->rank != plan->victim) {
        CHECK_STATUS(tutti_wait(request, 30), TUTTI_ERR_TIMEOUT);
        check_said("'late'");
        CHECK_STATUS(tutti_wait(request, 0), TUTTI_ERR_TIMEOUT);
        CHECK_OK(tutti_test(request, &done));
        CHECK_INT(done, 0);
        atomic_fetch_add(&board->done, 1);
    }
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(x, self->size);
    gather(self);
}

/* ---- leaving without tutti_finalize ---- */

static void leaves(rank_t *self)
{
    const plan_t *plan = self->arg;
    char name[32];

    snprintf(name, sizeof(name), "rank %d was lost", plan->victim);
    gather(self);
    if (self->rank == plan->victim) {
        usleep(30000);
        atomic_store(&board->when_ns, tutti__now_ns());
        _exit(0);
    }
    CHECK_STATUS(call(self, plan->way), TUTTI_ERR_PEER_LOST);
    CHECK(board_age_s() < SOON_S);
    check_said(name);
    check_dead(self, TUTTI_ERR_PEER_LOST, name);
}

/* ---- fork ---- */

static void in_child(rank_t *self, tutti_request_t *pending)
{
    int done;

    check_dead(self, TUTTI_ERR_SHUTDOWN, "forked");
    CHECK_STATUS(tutti_test(pending, &done), TUTTI_ERR_SHUTDOWN);
    CHECK_STATUS(tutti_wait(pending, -1), TUTTI_ERR_SHUTDOWN);
    CHECK_STATUS(tutti_abort(self->comm, "child"), TUTTI_ERR_SHUTDOWN);
    CHECK_STATUS(tutti_mem_free(self->comm, NULL), TUTTI_ERR_SHUTDOWN);
    CHECK_INT(tutti_rank(self->comm), self->rank);
}

/* Children that end in every possible way, while a request is pending in the parent. */
static void forks(rank_t *self)
{
    const plan_t *plan = self->arg;

    gather(self);
    for (int round = 0; round < 3; round++) {
        tutti_request_t *request;
        float x = 1;
        int result;
        pid_t pid;

        CHECK_OK(tutti_allreduce_async("over a fork", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &request));
        if (plan->victim < 0 || self->rank == plan->victim) {
            pid = ranks_fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                in_child(self, request);
                if (round == 0)
                    _exit(0);
                if (round == 1)
                    execlp("true", "true", (char *)NULL);
                /* exit calls destructors and the functions of atexit. */
                exit(0);
            }
            CHECK_INT(waitpid(pid, &result, 0), pid);
            CHECK_INT(result, 0);
        }
        CHECK_OK(tutti_wait(request, -1));
        CHECK_INT(x, self->size);
        for (int way = 0; way < WAYS; way++)
            CHECK_OK(call(self, (way_t)way));
    }
}

/* A child of a killed rank still exists: the rank's death must still be detected. */
static void orphans(rank_t *self)
{
    const plan_t *plan = self->arg;
    char name[32];
    pid_t pid;

    snprintf(name, sizeof(name), "rank %d was lost", plan->victim);
    gather(self);
    if (self->rank == plan->victim) {
        pid = ranks_fork();
        if (pid == 0) {
            /* This child exists until the other ranks have detected the death, but only for a
               limited time. */
            for (int i = 0; i < 30000 && atomic_load(&board->done) + 1 < self->size; i++)
                usleep(1000);
            _exit(0);
        }
        CHECK(pid > 0);
        atomic_store(&board->when_ns, tutti__now_ns());
        kill(getpid(), SIGKILL);
    }
    CHECK_STATUS(call(self, plan->way), TUTTI_ERR_PEER_LOST);
    CHECK(board_age_s() < SOON_S);
    check_said(name);
    atomic_fetch_add(&board->done, 1);
}

/* ---- all faults ---- */

static const struct {
    const char *name;
    rank_fn_t fn;
    int ways; /* the first `ways` values of way_t are tried */
    int killed;
} faults[] = {
    { "aborts", aborts, WAYS, 0 },      { "stops", stops, ASYNC + 1, 0 },
    { "comes late", comes_late, 1, 0 }, { "leaves", leaves, WAYS, 0 },
    { "forks", forks, 1, 0 },           { "orphans", orphans, 2, 1 },
};

static int run_all(size_t fault, int size, const char *hosts, int victim)
{
    int failures = 0;

    for (int way = 0; way < faults[fault].ways; way++) {
        plan_t plan = { (way_t)way, victim };
        job_t job = { .size = size,
                      .hosts = hosts,
                      .fn = faults[fault].fn,
                      .arg = &plan,
                      .killed = faults[fault].killed ? 1u << victim : 0 };

        board_clear();
        if (ranks_run(&job) == 0)
            continue;
        failures++;
        fprintf(stderr, "FAILED: rank %d of %d %s, %s, hosts %s\n", victim, size,
                faults[fault].name, way_names[way], hosts != NULL ? hosts : "one");
    }
    return failures;
}

int main(int argc, char **argv)
{
    int failures = 0, whole;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    whole = test_is_long("5 ranks");
    board_open();
    for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
        /* With an argument: only faults whose names begin with it. */
        if (argc > 1 && strncmp(faults[f].name, argv[1], strlen(argv[1])) != 0)
            continue;
        failures += run_all(f, 2, NULL, 1);
        failures += run_all(f, 3, NULL, 0);
        if (whole)
            failures += run_all(f, 5, NULL, 2);
        if (whole)
            failures += run_all(f, 5, "aaabb", 3);
        failures += run_all(f, 4, "aabb", whole ? 3 : 2); /* 2 leads its host */
    }
    return failures != 0;
}
