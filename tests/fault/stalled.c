/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stall warnings. A rank that waits reports the call and the rank that it waits for. It reports
 * after TUTTI_STALL_WARNING seconds, and again as long as the wait lasts, in direct and
 * asynchronous calls. If the late rank never makes the call, the error at the deadline names the
 * call and the rank.
 *
 * The late rank reads the waiter's warnings, and comes when they are there. So most cases do not
 * depend on the speed of the machine; the others run again if a warning was late.
 */
#include "fault/fault.h"

#include "base/constants.h"
#include "base/log.h"
#include "engine/steps.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Longest wait for a warning. */
#define LIMIT_MS 90000
/* Warnings that each case waits for. */
#define WARNINGS 2

/* Two files that both processes share; during a case, each rank's stderr goes to one of them. */
static int said_by[2];
static int real_stderr;

static void to_file(int rank)
{
    CHECK(ftruncate(said_by[rank], 0) == 0 && lseek(said_by[rank], 0, SEEK_SET) == 0);
    real_stderr = dup(2);
    dup2(said_by[rank], 2);
}

static void to_stderr(void)
{
    dup2(real_stderr, 2);
    close(real_stderr);
}

static void read_said(int rank, char *text, size_t bytes)
{
    ssize_t n = pread(said_by[rank], text, bytes - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
}

static int count(const char *text, const char *part)
{
    int n = 0;

    while ((text = strstr(text, part)) != NULL) {
        n++;
        text += strlen(part);
    }
    return n;
}

/* Wait until a rank has written `part` n times. */
static void await_said(int rank, const char *part, int n)
{
    double began = wall_ms();
    char text[8192] = "";

    while (count(text, part) < n) {
        if (wall_ms() - began > LIMIT_MS)
            ranks_fail(__FILE__, __LINE__, "rank %d did not say '%s' %d times, but: %s", rank, part,
                       n, text);
        usleep(10000);
        read_said(rank, text, sizeof(text));
    }
}

/* The time for which a rank has waited, from its first warning with `part`: the number after
   `before`. */
static double first_wait_s(int rank, const char *part, const char *before)
{
    char text[8192], *at;

    read_said(rank, text, sizeof(text));
    at = strstr(text, part);
    if (at == NULL)
        ranks_fail(__FILE__, __LINE__, "rank %d did not say '%s', but: %s", rank, part, text);
    while (at > text && at[-1] != '\n')
        at--;
    at = strstr(at, before);
    CHECK(at != NULL);
    return atof(at + strlen(before));
}

/* ---- direct calls ---- */

static void half_a_second(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 500;
    conf->log_level = TUTTI__LOG_WARN;
}

static void direct(rank_t *self)
{
    static const char words[] = "in an allreduce of 5 elements of float32, sum (direct) for rank 0";
    float x[5] = { 1 };

    if (self->rank == 0)
        await_said(1, words, WARNINGS);
    else
        to_file(1);
    CHECK_OK(tutti_allreduce(x, x, 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    if (self->rank == 1) {
        to_stderr();
        CHECK(first_wait_s(1, words, "has waited ") >= 0.5);
    }
    CHECK_OK(tutti_barrier(self->comm));
    /* If the same call is made again, the time of its wait begins at 0. */
    if (self->rank == 0)
        await_said(1, "in a barrier (direct) for rank 0", WARNINGS);
    else
        to_file(1);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1)
        to_stderr();
}

/* ---- asynchronous calls ---- */

static tutti_request_t *submit(rank_t *self, const char *name, float *x)
{
    tutti_request_t *request;

    CHECK_OK(
        tutti_allreduce_async(name, x, x, 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &request));
    return request;
}

static void reduce(rank_t *self, const char *name)
{
    float x[5] = { 1 };

    CHECK_OK(tutti_wait(submit(self, name, x), -1));
}

/* One rank is late with a tensor. Rank 0 names it; rank 1 reports that it waits for rank 0. */
static void late(rank_t *self, int rank)
{
    static const char by_0[] = "tensor 'late' (an allreduce of 5 elements of float32, sum) waits";
    static const char by_1[] = "tensor 'late' (an allreduce of 5 elements of float32, sum): rank 0 "
                               "has not reported";
    char missing[64];

    snprintf(missing, sizeof(missing), "rank %d has not submitted it", rank);
    CHECK_OK(tutti_barrier(self->comm));
    to_file(self->rank);
    if (self->rank == rank) {
        await_said(0, by_0, WARNINGS);
        await_said(0, missing, WARNINGS);
        if (rank == 0)
            await_said(1, by_1, WARNINGS);
    }
    reduce(self, "late");
    to_stderr();
}

/* One rank is late with n tensors. The other rank's warning names some of them, and has the number
   of the others. */
static void late_with(rank_t *self, int rank, int n, const char *words)
{
    tutti_request_t *request[TUTTI__NAMED + 1];
    float x[TUTTI__NAMED + 1][5] = { { 1 } };
    char name[16];

    CHECK(n <= TUTTI__NAMED + 1);
    CHECK_OK(tutti_barrier(self->comm));
    to_file(self->rank);
    if (self->rank == rank)
        await_said(1 - rank, words, 1);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "late %d", i);
        request[i] = submit(self, name, x[i]);
    }
    CHECK_OK(tutti_wait_all(request, (size_t)n, -1));
    to_stderr();
}

/* One rank is late in tutti_join. Only rank 0 receives the reports of the ranks that have
   joined. */
static void late_join(rank_t *self, int rank)
{
    const char *words = rank == 1 ? "in tutti_join: rank 1 has not called tutti_join"
                                  : "in tutti_join: not all ranks have called tutti_join";
    int last;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == rank)
        await_said(1 - rank, words, WARNINGS);
    else
        to_file(self->rank);
    CHECK_OK(tutti_join(self->comm, &last));
    if (self->rank != rank) {
        to_stderr();
        CHECK(first_wait_s(self->rank, words, "has waited ") >= 0.5);
    }
    reduce(self, "after the join");
}

/* Rank 1 announces a tensor, and then holds its engine's token: its lanes make no progress. */
static void announce_and_stay(rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    float x[5] = { 1 };
    tutti_request_t *request = submit(self, "stuck", x);

    tutti__token_await(&e->token);
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    CHECK_INT(atomic_load(&e->pending.queued), 0);
    atomic_store(&board->ready, 1);
    await_said(0, "rank 1 does not go on", WARNINGS);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
    CHECK_OK(tutti_wait(request, -1));
}

/* more: the words of rank 0's report that follow the name of the rank that does not continue. */
static void in_lane(rank_t *self, const char *more)
{
    char words[256];
    double began = wall_ms();

    if (self->rank == 1) {
        announce_and_stay(self);
        return;
    }
    to_file(0);
    while (atomic_load(&board->ready) == 0 && wall_ms() - began < LIMIT_MS)
        usleep(1000);
    reduce(self, "stuck");
    to_stderr();
    snprintf(words, sizeof(words),
             "for tensor 'stuck' (an allreduce of 5 elements of float32, "
             "sum): rank 1 does not go on%s\n",
             more);
    CHECK(first_wait_s(0, words, "has waited ") >= 0.5);
}

static void in_a_lane(rank_t *self)
{
    in_lane(self, "");
}

/* Between hosts a rank waits for a message of another rank. */
static void in_a_message(rank_t *self)
{
    float x[5] = { 1 };

    /* A rank's first message waits until the peer has opened the channel. */
    CHECK_OK(tutti_allreduce(x, x, 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    if (self->rank == 0)
        to_file(0);
    else
        await_said(0,
                   "in an allreduce of 5 elements of float32, sum (direct) for rank 1: 0 of 1 "
                   "messages from it have come; step 3 of 4 waits for 36 bytes",
                   1);
    CHECK_OK(tutti_allreduce(x, x, 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    if (self->rank == 0)
        to_stderr();
    in_lane(self, ": 0 of 1 messages to it have gone; step 2 of 4 has 20 bytes");
}

/* A whole process is stopped; the other process names its rank. */
static void stopped(rank_t *self, int rank)
{
    char words[80];
    pid_t me = getpid(), waker;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != rank) {
        to_file(self->rank);
        reduce(self, "stopped");
        to_stderr();
        return;
    }
    snprintf(words, sizeof(words), "rank %d does not go on: its process %d is stopped", rank, me);
    waker = ranks_fork();
    if (waker == 0) {
        await_said(1 - rank, words, WARNINGS);
        _exit(kill(me, SIGCONT) != 0);
    }
    raise(SIGSTOP);
    reduce(self, "stopped");
}

static void asynchronous(rank_t *self)
{
    late(self, 1);
    late(self, 0);
    late_with(self, 0, 2, "; 1 more request waits");
    late_with(self, 1, TUTTI__NAMED + 1, "1 more tensor waits");
    late_join(self, 1);
    late_join(self, 0);
    stopped(self, 1);
    stopped(self, 0);
    in_a_lane(self);
}

/* ---- times ---- */

static void six_seconds(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 6000;
    conf->log_level = TUTTI__LOG_WARN;
}

static void check_on_time(const char *words, const char *before)
{
    double s = first_wait_s(0, words, before);

    atomic_store(&board->done, s > 10); /* for run() */
    if (s < 6 || s > 10)
        ranks_fail(__FILE__, __LINE__, "'%s' after %.1f s, and not 6", words, s);
}

/*
 * The warning comes one interval after the beginning of the wait. Checks at fixed times, one
 * interval apart and the first after half an interval, would come at 3, 9 and 15 s, and would
 * report this wait only after 11.4 s.
 */
static void after_one_interval(rank_t *self)
{
    static const char words[] = "rank 1 has not submitted it";

    usleep(3600000);
    if (self->rank == 1) {
        await_said(0, words, 1);
        reduce(self, "when");
        return;
    }
    to_file(0);
    reduce(self, "when");
    to_stderr();
    check_on_time(words, "waits for ");
}

static void direct_after_one_interval(rank_t *self)
{
    static const char words[] = "in a barrier (direct) for rank 1";

    usleep(3600000);
    if (self->rank == 1)
        await_said(0, words, 1);
    else
        to_file(0);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0) {
        to_stderr();
        check_on_time(words, "has waited ");
    }
}

/* ---- repeated warnings ---- */

static void impatient(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 0;
    conf->shared.timeout_ms = 4000;
    conf->log_level = TUTTI__LOG_WARN;
}

static void never(rank_t *self)
{
    char text[4096];
    float x = 1;

    if (self->rank == 0) {
        await_said(1, "rank 1 waited 4 s", 1);
        return;
    }
    to_file(1);
    CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_TIMEOUT);
    to_stderr();
    CHECK(strstr(tutti_last_error(), "in an allreduce (direct) for rank 0") != NULL);
    read_said(1, text, sizeof(text));
    CHECK_INT(count(text, "has waited"), 0); /* TUTTI_STALL_WARNING=0 */
}

/* A job runs again if check_on_time has found a late warning: the thread that warns may have been
   scheduled late. */
static int run(const job_t *job)
{
    for (int try = 1;; try++) {
        int failures = 0;

        board_clear();
        RUN_JOB(failures, job);
        if (failures == 0 || !atomic_load(&board->done) || try == 3)
            return failures;
    }
}

int main(void)
{
    job_t job = { .size = 2 };
    static const struct {
        void (*settings)(tutti__conf_t *conf, int rank);
        rank_fn_t fn;
        const char *hosts;
    } cases[] = {
        { half_a_second, direct, NULL },
        { half_a_second, asynchronous, NULL },
        { half_a_second, in_a_message, "ab" },
        { six_seconds, after_one_interval, NULL },
        { six_seconds, direct_after_one_interval, NULL },
        { impatient, never, NULL },
    };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    board_open();
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    for (int r = 0; r < 2; r++)
        said_by[r] = memfd_create("said", 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        job.settings = cases[i].settings;
        job.fn = cases[i].fn;
        job.hosts = cases[i].hosts;
        failures += run(&job);
    }
    return failures != 0;
}
