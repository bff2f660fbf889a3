/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More control messages than a link's ring can hold, while their reader or writer has no pending
 * request and therefore sleeps: all messages must arrive, and every rank must wake up for them. If
 * a rank leaves while a neighbour is stopped, it is reported as having left, not as lost. Also
 * 10,000 tensors that are pending at the same time.
 */
#include "base/time.h"
#include "engine/state.h"
#include "ranks.h"
#include "watch/watch.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    REJECTS = 2000,
    MESSAGES = 4000,
    MANY = 10000,
    GROUP = 3000,
    NAME = 160
};

/* Rank 0 has all its errors, and nothing pending, while it still has to send the rest of the
   errors. */
static void rejects(rank_t *self)
{
    tutti_request_t *r[REJECTS];
    float x[REJECTS][2];
    char name[NAME];

    memset(x, 0, sizeof(x));
    for (int i = 0; i < REJECTS; i++) {
        snprintf(name, sizeof(name), "gradient of layer number %d, of the network", i);
        CHECK_OK(tutti_allreduce_async(name, x[i], x[i], 1 + (self->rank == self->size - 1),
                                       TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r[i]));
    }
    for (int i = 0; i < REJECTS; i++)
        CHECK_STATUS(tutti_wait(r[i], -1), TUTTI_ERR_MISMATCH);
    CHECK_OK(tutti_barrier(self->comm));
}

/* Messages between ranks 1 and 2: rank 0 coordinates them, but takes no part in them. */
static void messages(rank_t *self)
{
    tutti_request_t **r = calloc(MESSAGES, sizeof(*r));
    float *x = calloc(MESSAGES, sizeof(*x));
    char name[NAME];

    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; self->rank > 0 && i < MESSAGES; i++) {
        snprintf(name, sizeof(name),
                 "a message of a pipeline, whose number is %d, from one stage to the next, and so "
                 "on, as names are in programs that have many layers",
                 i);
        if (self->rank == 1)
            CHECK_OK(tutti_send_async(name, &x[i], 1, TUTTI_FLOAT32, 2, self->comm, NULL, &r[i]));
        else
            CHECK_OK(tutti_recv_async(name, &x[i], 1, TUTTI_FLOAT32, 1, self->comm, NULL, &r[i]));
    }
    if (self->rank > 0)
        CHECK_OK(tutti_wait_all(r, MESSAGES, -1));
    CHECK_OK(tutti_barrier(self->comm));
    free(x);
    free(r);
}

/* Submit all tensors, in an order of this rank's own. */
static void submit_many(const rank_t *self, int *x, tutti_request_t **ret_requests)
{
    char name[NAME];

    for (int i = 0; i < MANY; i++) {
        int t = (i * 7919 + self->rank * 1013) % MANY; /* 7919 is prime */

        x[t] = self->rank + t;
        snprintf(name, sizeof(name), "gradient of layer number %d, of the network", t);
        CHECK_OK(tutti_allreduce_async(name, &x[t], &x[t], 1, TUTTI_INT32, TUTTI_SUM, self->comm,
                                       NULL, &ret_requests[t]));
    }
}

/* Tensors outside a group. All of them are pending when the last rank begins to submit. */
static void many(rank_t *self)
{
    tutti_request_t **r = calloc(MANY, sizeof(*r));
    int *x = calloc(MANY, sizeof(*x)), is_last = self->rank == self->size - 1;

    for (int step = 0; step < 2; step++) {
        if (!is_last)
            submit_many(self, x, r);
        CHECK_INT(tutti__pending_count(&self->inside->engine->pending), is_last ? 0 : MANY);
        CHECK_OK(tutti_barrier(self->comm));
        if (is_last)
            submit_many(self, x, r);
        CHECK_OK(tutti_wait_all(r, MANY, -1));
        for (int t = 0; t < MANY; t++)
            CHECK_INT(x[t], self->size * (self->size - 1) / 2 + self->size * t);
    }
    free(x);
    free(r);
}

/* ---- large groups that are partly submitted ---- */

/* The first tensor has its own name; returns tutti_submit's status. */
static tutti_status_t submit_group(rank_t *self, const char *first, tutti_request_t **ret_requests)
{
    static __thread float x[GROUP];
    static __thread char name[GROUP][NAME];
    static __thread tutti_call_t call[GROUP];

    for (int i = 0; i < GROUP; i++) {
        snprintf(name[i], NAME, i > 0 ? "gradient of layer number %d, of the network" : "%d", i);
        call[i] = ranks_sum(i == 0 && first != NULL ? first : name[i], &x[i], 1);
    }
    return tutti_submit(call, GROUP, self->comm, ret_requests);
}

/* Rank 2 leaves. Any number of rank 1's tensors may have arrived at rank 0: the error must report
   the departure, not a lack of memory. */
static void leaves(rank_t *self)
{
    static __thread tutti_request_t *r[GROUP];
    tutti_status_t status;
    float y = 1;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 2) {
        usleep(*(const unsigned *)self->arg);
        return;
    }
    if (self->rank == 1) {
        status = submit_group(self, NULL, r);
        if (status != TUTTI_OK) {
            CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
            return;
        }
        for (int i = 0; i < GROUP; i++)
            CHECK_STATUS(tutti_wait(r[i], -1), TUTTI_ERR_SHUTDOWN);
        return;
    }
    for (int i = 0; i < 2; i++) {
        status = tutti_allreduce_async("other", &y, &y, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, r);
        if (status == TUTTI_OK)
            status = tutti_wait(r[0], -1);
        CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
        usleep(200000);
    }
}

/* The process ids of the job's ranks. */
static atomic_int *pid_of;

/* Elements of pid_of after the pids: the numbers of ranks that have reached these states. */
enum {
    HAVE_A = 4, /* ranks that have submitted "A" */
    IS_STOPPED, /* rank 0 is stopped */
    HAS_GROUP   /* rank 2 has submitted its group */
};

static void await(int what, int n)
{
    for (int i = 0; i < 60000 && atomic_load(&pid_of[what]) < n; i++)
        usleep(1000);
    CHECK(atomic_load(&pid_of[what]) >= n);
}

/* Ranks 0 and 1 submit different calls with a name of rank 2's group, while rank 0 has received
   only a part of this group. Rank 3 arranges this. The whole group must end, and no other
   request. */
static void conduct(rank_t *self)
{
    tutti_request_t *r;
    float z = 0;

    await(HAVE_A, 3);
    usleep(100000);
    kill(pid_of[0], SIGSTOP);
    /* "A" is submitted last, while rank 0 is stopped, because rank 0 soon rejects a conflict. */
    CHECK_OK(tutti_allreduce_async("A", &z, &z, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    atomic_store(&pid_of[IS_STOPPED], 1);
    await(HAS_GROUP, 1);
    usleep(100000); /* the ring is full, the other messages wait on rank 2 */
    kill(pid_of[2], SIGSTOP);
    kill(pid_of[0], SIGCONT);
    usleep(800000);
    kill(pid_of[2], SIGCONT);
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
    CHECK_OK(tutti_barrier(self->comm));
}

static void stops(rank_t *self)
{
    static __thread tutti_request_t *r[GROUP + 1];
    float x[2][2] = { { 0 } };
    int done;

    pid_of[self->rank] = getpid();
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 3) {
        conduct(self);
        return;
    }
    if (self->rank < 2) {
        tutti_call_t call[2] = { ranks_sum("A", x[0], 1 + (size_t)self->rank),
                                 ranks_sum("Y", x[1], 1) };

        CHECK_OK(tutti_submit(call, 2, self->comm, r));
        atomic_fetch_add(&pid_of[HAVE_A], 1);
        CHECK_STATUS(tutti_wait(r[0], -1), TUTTI_ERR_MISMATCH);
        CHECK_STATUS(tutti_wait(r[1], -1), TUTTI_ERR_MISMATCH);
        CHECK_OK(tutti_barrier(self->comm));
        return;
    }
    CHECK_OK(tutti_allreduce_async("A", x[0], x[0], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &r[GROUP]));
    atomic_fetch_add(&pid_of[HAVE_A], 1);
    await(IS_STOPPED, 1);
    CHECK_OK(submit_group(self, "Y", r));
    /* The library's thread may not have run yet, so this thread also fills the ring. */
    for (int i = 0; i < 50; i++) {
        CHECK_OK(tutti_test(r[0], &done));
        usleep(1000);
    }
    atomic_store(&pid_of[HAS_GROUP], 1);
    CHECK_STATUS(tutti_wait(r[GROUP], -1), TUTTI_ERR_MISMATCH);
    for (int i = 0; i < GROUP; i++)
        CHECK_STATUS(tutti_wait(r[i], -1), TUTTI_ERR_MISMATCH);
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- a goodbye behind a backlog ---- */

static tutti_request_t *left_pending[REJECTS];

/* Called at the end of rank 1's process, after its communicator is closed. */
static void continue_rank_0(void)
{
    kill(pid_of[0], SIGCONT);
    for (int i = 0; i < REJECTS; i++)
        CHECK_STATUS(tutti_wait(left_pending[i], -1), TUTTI_ERR_SHUTDOWN);
}

/* While rank 0 is stopped, rank 1 submits more tensors than the ring holds, and leaves. */
static void leaves_stopped(rank_t *self)
{
    static float x[REJECTS];
    tutti_status_t state = TUTTI_OK;
    char name[NAME];

    if (self->rank == 0) {
        atomic_store(&pid_of[0], getpid());
        for (int i = 0; i < 60000 && !tutti__watch_any_left(self->inside->watch); i++) {
            usleep(1000);
            CHECK_OK(tutti_comm_state(self->comm, &state, NULL, 0));
            CHECK_INT(state, TUTTI_OK);
        }
        CHECK(tutti__watch_any_left(self->inside->watch));
        return;
    }
    await(0, 1);
    kill(pid_of[0], SIGSTOP);
    atexit(continue_rank_0);
    for (int i = 0; i < REJECTS; i++) {
        snprintf(name, sizeof(name), "gradient of layer number %d, of the network", i);
        CHECK_OK(tutti_allreduce_async(name, &x[i], &x[i], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &left_pending[i]));
    }
}

/* ---- a leader's goodbye, which rank 0 has sent back, behind a backlog ---- */

enum {
    LAST_DONE = 8
}; /* element of pid_of: rank 2 has been told of the departure */

static void continue_rank_2(void)
{
    kill(pid_of[2], SIGCONT);
}

static void submit_all(rank_t *self, size_t count, tutti_request_t **ret_requests)
{
    static float x[REJECTS][2];
    char name[NAME];

    for (int i = 0; i < REJECTS; i++) {
        snprintf(name, sizeof(name), "gradient of layer number %d, of the network", i);
        CHECK_OK(tutti_allreduce_async(name, x[i], x[i], count, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &ret_requests[i]));
    }
}

/* Rank 2, the child of leader 1, is stopped. Meanwhile rank 1 has more errors for rank 2 than the
   ring holds, and leaves. Rank 1 must be reported as having left, not as lost. */
static void leader_leaves(rank_t *self)
{
    static tutti_request_t *r[REJECTS];
    tutti_status_t state = TUTTI_OK;

    pid_of[self->rank] = getpid();
    if (self->rank == 2)
        submit_all(self, 2, r);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 2) {
        for (int i = 0; i < 60000 && !tutti__watch_any_left(self->inside->watch); i++)
            usleep(1000);
        CHECK(tutti__watch_any_left(self->inside->watch));
        CHECK_OK(tutti_comm_state(self->comm, &state, NULL, 0));
        CHECK_INT(state, TUTTI_OK);
        for (int i = 0; i < REJECTS; i++) {
            tutti_status_t status = tutti_wait(r[i], -1);

            CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_SHUTDOWN);
        }
        atomic_store(&pid_of[LAST_DONE], 1);
        return;
    }
    usleep(300000); /* by now rank 0 has received most of rank 2's tensors */
    if (self->rank == 1) {
        kill(pid_of[2], SIGSTOP);
        atexit(continue_rank_2);
    }
    CHECK_OK(tutti_sendrecv(NULL, 0, 1 - self->rank, NULL, 0, 1 - self->rank, TUTTI_FLOAT32,
                            self->comm));
    submit_all(self, 1, r);
    if (self->rank == 0)
        await(LAST_DONE, 1);
    else
        usleep(500000); /* by now rank 0 has rejected the tensors */
}

int main(void)
{
    static unsigned delays_us[] = { 100, 500, 1000, 2000, 5000 };
    int failures = 0;

    pid_of = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pid_of == MAP_FAILED)
        return 1;
    for (int i = 0; i < 6; i++) {
        job_t job = { .size = 2, .fn = rejects };

        RUN_JOB(failures, &job);
        job.size = 3;
        job.fn = messages;
        RUN_JOB(failures, &job);
        job.fn = leaves;
        job.arg = &delays_us[i % 5];
        RUN_JOB(failures, &job);
    }
    for (int i = 0; i < 3; i++) {
        static const char *const hosts[] = { "aa", "aab", "abc" };
        job_t job = { .size = (int)strlen(hosts[i]), .hosts = hosts[i], .fn = many };

        RUN_JOB(failures, &job);
    }
    for (int i = 0; i < 2; i++) {
        job_t job = { .size = 4, .fn = stops };

        memset(pid_of, 0, 4096);
        RUN_JOB(failures, &job);
        job.size = 2;
        job.fn = leaves_stopped;
        memset(pid_of, 0, 4096);
        RUN_JOB(failures, &job);
        job.size = 3;
        job.hosts = "abb";
        job.fn = leader_leaves;
        memset(pid_of, 0, 4096);
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
