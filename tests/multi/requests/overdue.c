/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests with a deadline of their own. It passes while a thread waits, and while no thread waits;
 * it is far longer or far shorter than the communicator's deadline. Other communicators still work.
 */
#include "ranks.h"

#include "base/time.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SHORT_MS = 300
};

/* The job's own deadlines are 120 s, so they do not cause an end before this time. */
#define IN_TIME_NS 60000000000u

static const char *const names[] = { "late", NULL }; /* with agreement; without agreement */

static tutti_async_options_t within(int timeout_ms)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

    options.timeout_ms = timeout_ms;
    return options;
}

static tutti_comm_t *group(const rank_t *self)
{
    tutti_comm_t *comm;

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
    return comm;
}

static void free_group(const rank_t *self, tutti_comm_t *comm)
{
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
}

/* Rank 0 does not make the call. The others call tutti_wait, or tutti_wait_any, or do not wait
   before the end. */
static void waited(rank_t *self)
{
    for (int n = 0; n < 6; n++) {
        const char *name = names[n % 2];
        tutti_async_options_t options = within(SHORT_MS);
        tutti_comm_t *comm = group(self);
        tutti_request_t *request = NULL;
        uint64_t begin = tutti__now_ns();
        tutti_status_t status = TUTTI_OK;
        size_t index;
        int x = 1, done = 0;

        if (self->rank > 0) {
            CHECK_OK(tutti_allreduce_async(name, &x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, &options,
                                           &request));
            if (n / 2 == 0) {
                status = tutti_wait(request, -1);
            } else if (n / 2 == 1) {
                status = tutti_wait_any(&request, 1, -1, &index);
            } else {
                while (!done && tutti__now_ns() - begin < IN_TIME_NS) {
                    usleep(1000);
                    CHECK_OK(tutti_comm_state(comm, &status, NULL, 0));
                    done = status != TUTTI_OK;
                }
                CHECK(done);
                status = tutti_wait(request, -1);
            }
            CHECK_INT(status, TUTTI_ERR_TIMEOUT);
            CHECK_WORDS(name != NULL ? "'late'" : "'call 1 without a name'");
            CHECK_WORDS("rank 0");
            CHECK(tutti__now_ns() - begin < IN_TIME_NS);
        }
        free_group(self, comm);
    }
}

/* A program that makes many short waits. Each wait returns TIMEOUT, which only means that the
   request is not done. The request's own deadline still ends the communicator. */
static void polled(rank_t *self)
{
    tutti_async_options_t options = within(SHORT_MS);
    tutti_comm_t *comm = group(self);
    uint64_t begin = tutti__now_ns();
    tutti_status_t status = TUTTI_ERR_TIMEOUT;
    tutti_request_t *request;
    int x = 1;

    if (self->rank > 0) {
        CHECK_OK(tutti_allreduce_async("late", &x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, &options,
                                       &request));
        while (status == TUTTI_ERR_TIMEOUT && tutti__now_ns() - begin < IN_TIME_NS)
            status = tutti_wait(request, 20);
        CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
        CHECK_WORDS("the communicator ended at a deadline: ");
        CHECK_WORDS("for tensor 'late', whose own deadline has passed");
    }
    free_group(self, comm);
}

/* In a communicator of one rank the library has no thread. Its request waits for another call of
   the same program, which only calls tutti_test. */
static void alone(rank_t *self)
{
    static const size_t one = 1;
    tutti_async_options_t options = within(SHORT_MS);
    tutti_status_t status = TUTTI_OK;
    uint64_t begin = tutti__now_ns();
    tutti_request_t *request;
    tutti_comm_t *comm;
    int x = 1, done = 0;

    CHECK_OK(tutti_comm_split(self->comm, self->rank, 0, &comm));
    CHECK_OK(tutti_alltoallv_async("v", &x, &one, NULL, NULL, NULL, NULL, TUTTI_INT32, comm,
                                   &options, &request));
    while (status == TUTTI_OK && !done && tutti__now_ns() - begin < IN_TIME_NS)
        status = tutti_test(request, &done);
    CHECK_INT(status, TUTTI_ERR_TIMEOUT);
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_TIMEOUT);
    free_group(self, comm);
}

/* The program does not wait; only this callback is told of the end. */
static void note(void *arg, tutti_status_t status)
{
    atomic_store((atomic_int *)arg, (int)status);
}

static void told(rank_t *self)
{
    for (int n = 0; n < 2; n++) {
        tutti_async_options_t options = within(SHORT_MS);
        tutti_comm_t *comm = group(self);
        tutti_request_t *request;
        uint64_t begin = tutti__now_ns();
        atomic_int status = -1;
        int x = 1;

        options.callback = note;
        options.callback_arg = &status;
        if (self->rank > 0) {
            CHECK_OK(tutti_allreduce_async(names[n], &x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm,
                                           &options, &request));
            while (atomic_load(&status) == -1 && tutti__now_ns() - begin < IN_TIME_NS)
                usleep(1000);
            CHECK_INT(atomic_load(&status), TUTTI_ERR_TIMEOUT);
            CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_TIMEOUT);
        }
        free_group(self, comm);
    }
}

/* Deadlines that are longer than the communicator's deadline, and do not pass. Many requests, some
   of them without a deadline of their own, are done in time. */
static void in_time(rank_t *self)
{
    enum {
        N = 200
    };
    tutti_comm_t *comm = group(self);
    tutti_request_t *requests[N];
    int x[N];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            tutti_async_options_t options = within(i % 3 == 0 ? 0 : 60000 + 1000 * (i % 7));
            char name[16];

            snprintf(name, sizeof(name), "t%d", i);
            x[i] = i;
            CHECK_OK(tutti_allreduce_async(i % 2 ? name : NULL, &x[i], &x[i], 1, TUTTI_INT32,
                                           TUTTI_SUM, comm, &options, &requests[i]));
        }
        CHECK_OK(tutti_wait_all(requests, N, -1));
        for (int i = 0; i < N; i++)
            CHECK_INT(x[i], self->size * i);
    }
    free_group(self, comm);
}

/* The wait's own timeout ends only the wait. The request's deadline is longer than the
   communicator's deadline. */
static void impatient(rank_t *self)
{
    tutti_comm_t *comm = group(self);
    tutti_async_options_t options = within(60000);
    tutti_request_t *request;
    int x = 1;

    ranks_set_deadline(self, comm, 3000);
    if (self->rank > 0) {
        CHECK_OK(tutti_allreduce_async("slow", &x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, &options,
                                       &request));
        CHECK_STATUS(tutti_wait(request, 20), TUTTI_ERR_TIMEOUT);
    }
    CHECK_OK(tutti_barrier(self->comm));
    /* This takes longer than the communicator's 3 s. */
    if (self->rank == 0) {
        usleep(4000000);
        CHECK_OK(tutti_allreduce_async("slow", &x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, &options,
                                       &request));
    }
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(x, self->size);
    CHECK_OK(tutti_comm_free(comm));
}

int main(void)
{
    static const rank_fn_t cases[] = { waited, polled, told, in_time, alone };
    static const char *const hosts[] = { NULL, "aab" };
    int failures = 0;

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (size_t h = 0; h < 2; h++) {
            job_t job = {
                .size = 3, .threads = !ranks_can_fork(), .hosts = hosts[h], .fn = cases[c]
            };

            RUN_JOB(failures, &job);
        }
    RUN_JOB(failures, (&(job_t){ .size = 2, .threads = !ranks_can_fork(), .fn = impatient }));
    return failures != 0;
}
