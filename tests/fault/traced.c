/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces of 2 and 3 ranks, on one host and on two; traces that the program starts and stops; the
 * trace of a rank that forks. Each trace must be JSON. For every tensor and rank it must have the
 * submission, the agreement, the packing of the bucket, the unpacking, the end and the wait, in
 * this order. Clocks are aligned: no tensor is agreed on before the last rank has submitted it. A
 * bucket of a learned plan has the same events, but its tensors count as agreed on when this rank
 * has submitted all of them. traced.py reads the traces.
 */
#include "fault/fault.h"

#include "base/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 3
#define TENSORS 5

static char folder[64], path[96];

static void quiet(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->log_level = TUTTI__LOG_NONE;
}

static void quiet_agreed(tutti__conf_t *conf, int rank)
{
    quiet(conf, rank);
    conf->shared.plans = 0;
}

static void quiet_traced(tutti__conf_t *conf, int rank)
{
    quiet(conf, rank);
    if (rank == 0)
        long_path(conf->shared.trace, path);
}

/* Submit several tensors, one after the other (n is 1), or all n at once, as a submission group:
   they are one bucket. */
static void submit_by(rank_t *self, int n)
{
    static float x[TENSORS][100];
    char name[TENSORS][32];
    tutti_call_t calls[TENSORS];
    tutti_request_t *requests[TENSORS];

    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof(name[i]), "layer%d.weight", i);
        calls[i] = (tutti_call_t){ .size = sizeof(calls[i]),
                                   .kind = TUTTI_CALL_ALLREDUCE,
                                   .name = name[i],
                                   .sendbuf = x[i],
                                   .recvbuf = x[i],
                                   .count = 100,
                                   .dtype = TUTTI_FLOAT32,
                                   .op = TUTTI_SUM };
    }
    for (int i = 0; i < TENSORS; i += n)
        CHECK_OK(tutti_submit(&calls[i], (size_t)n, self->comm, &requests[i]));
    for (int i = 0; i < TENSORS; i++)
        CHECK_OK(tutti_wait(requests[i], -1));
}

static void step(rank_t *self)
{
    submit_by(self, TENSORS);
}

static void steps(rank_t *self)
{
    for (int i = 0; i < STEPS; i++)
        step(self);
}

/* Only the middle part is traced. */
static void start_and_stop(rank_t *self)
{
    step(self);
    CHECK_OK(tutti_trace_start(path));
    CHECK_STATUS(tutti_trace_start(path), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_barrier(self->comm));
    steps(self);
    CHECK_OK(tutti_trace_stop());
    CHECK_OK(tutti_trace_stop());
    step(self);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_STATUS(tutti_trace_start("/nowhere/at/all"), TUTTI_ERR_SYSTEM);
    CHECK_STATUS(tutti_trace_start(NULL), TUTTI_ERR_INVALID_ARGUMENT);
}

/* Trace STEPS steps; Returns 1 if all steps were planned on all ranks. */
static int trace_planned(rank_t *self)
{
    tutti_stats_t before = TUTTI_STATS_INIT, after = TUTTI_STATS_INIT;
    int all;

    for (int i = 0; i < 40; i++)
        submit_by(self, 1);
    CHECK_OK(tutti_comm_get_stats(self->comm, &before));
    CHECK_OK(tutti_trace_start(path));
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < STEPS; i++)
        submit_by(self, 1);
    CHECK_OK(tutti_trace_stop());
    CHECK_OK(tutti_comm_get_stats(self->comm, &after));
    all = after.plan_hits == before.plan_hits + STEPS;
    CHECK_OK(tutti_allreduce(&all, &all, 1, TUTTI_INT32, TUTTI_MIN, self->comm));
    return all;
}

/* All traced steps are planned. If a thread pauses for long between two tensors, the plan stops,
   and the trace is repeated. */
static void planned(rank_t *self)
{
    int tries = 0;

    while (!trace_planned(self) && ++tries < 10) {
    }
    CHECK(tries < 10);
}

/* A child of rank 0 makes its own world and its own trace. Then it makes a trace at the parent's
   path, so its part has the same name as the parent's part. */
static void in_child(void)
{
    char own[sizeof(path) + 8];

    setenv("TUTTI_BOOT", "self", 1);
    setenv("TUTTI_LOG", "none", 1);
    CHECK_OK(tutti_finalize());
    for (int i = 0; i < 2; i++) {
        snprintf(own, sizeof(own), "%s%s", path, i == 0 ? ".child" : "");
        setenv("TUTTI_TRACE", own, 1);
        CHECK_OK(tutti_init(NULL));
        CHECK_INT(tutti_size(tutti_world()), 1);
        CHECK_OK(tutti_barrier(tutti_world()));
        if (i == 0)
            CHECK_OK(tutti_finalize());
        CHECK_INT(access(own, F_OK), i == 0 ? 0 : -1);
    }
    _exit(0);
}

/* A rank forks while it is traced. */
static void fork_child(rank_t *self)
{
    int status = -1;
    pid_t pid;

    step(self);
    if (self->rank == 0) {
        pid = ranks_fork();
        if (pid == 0)
            in_child();
        CHECK_INT(waitpid(pid, &status, 0), pid);
        CHECK_INT(status, 0);
    }
    for (int i = 1; i < STEPS; i++)
        step(self);
    CHECK_OK(tutti_barrier(self->comm));
}

/* Both ranks are killed after both are done: the parts of the trace stay. */
static void die(rank_t *self)
{
    steps(self);
    atomic_fetch_add(&board->done, 1);
    while (atomic_load(&board->done) < self->size)
        usleep(1000);
    raise(SIGKILL);
}

/* traced.py FILE RANKS STEPS TENSORS HOSTS PLANNED */
static int is_right(const job_t *job, const char *source)
{
    char command[512];
    const char *parts = job->killed != 0 ? "./bench/tutti_report --trace %s %s.*.part && " : "";

    snprintf(command, sizeof(command), parts, path, path);
    snprintf(command + strlen(command), sizeof(command) - strlen(command),
             "python3 %s/tests/fault/traced.py %s %d %d %d %d %d", source, path, job->size, STEPS,
             TENSORS, job->hosts != NULL ? 2 : 1, job->fn == planned);
    return system(command) == 0;
}

int main(void)
{
    static const struct {
        int size;
        const char *hosts;
        unsigned killed;
        void (*settings)(tutti__conf_t *conf, int rank);
        rank_fn_t fn;
    } cases[] = {
        { 2, NULL, 0, quiet_traced, steps },
        { 3, "aab", 0, quiet_traced, steps },
        { 2, "ab", 0, quiet_agreed, start_and_stop },
        { 3, NULL, 0, quiet_agreed, start_and_stop },
        { 2, NULL, 0, quiet, planned },
        { 3, "aab", 0, quiet, planned },
        { 2, NULL, 3, quiet_traced, die },
        { 2, NULL, 0, quiet_traced, fork_child },
    };
    const char *source = getenv("srcdir");
    int failures = 0;

    if (!ranks_can_fork() || system("python3 -c 'import json' 2>/dev/null") != 0)
        return 77;
    strcpy(folder, "/tmp/tutti-traced-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/trace", folder);
    board_open();
    tutti__log_setup(TUTTI__LOG_NONE, -1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        job_t job = { .size = cases[i].size,
                      .hosts = cases[i].hosts,
                      .killed = cases[i].killed,
                      .settings = cases[i].settings,
                      .fn = cases[i].fn };
        char command[128];

        board_clear();
        RUN_JOB(failures, &job);
        if (!is_right(&job, source != NULL ? source : ".")) {
            fprintf(stderr, "FAILED: case %zu\n", i);
            failures++;
        }
        snprintf(command, sizeof(command), "rm -f %s/*", folder);
        failures += system(command) != 0;
    }
    rmdir(folder);
    return failures != 0;
}
