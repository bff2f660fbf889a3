/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several communicators on one device, used by separate threads at the same time: direct and
 * asynchronous calls, and groups that are made and freed while others are busy. Also a communicator
 * that is freed while its work is still in a stream, or that is aborted during calls.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include <tutti/cuda.h>

#include <pthread.h>
#include <unistd.h>

enum {
    ROUNDS = 60,
    COUNT = 500,
    THREADS = 2,
    PAUSE_US = 200 /* leaves the processors to others */
};

typedef struct {
    rank_t *self;
    tutti_comm_t *comm;
    char *memory;
    int makes; /* 1: this thread makes and frees groups, again and again */
} user_t;

static void sum_up(const user_t *u, int round)
{
    int size = tutti_size(u->comm);
    int32_t in[COUNT], out[COUNT];
    void *send = u->memory, *recv = u->memory + 4096;
    tutti_request_t *request;

    for (int i = 0; i < COUNT; i++)
        in[i] = tutti_rank(u->comm) + i + round;
    pretend_write(send, in, sizeof(in));
    if (round % 2) {
        CHECK_OK(tutti_allreduce(send, recv, COUNT, TUTTI_INT32, TUTTI_SUM, u->comm));
    } else {
        CHECK_OK(tutti_allreduce_async("t", send, recv, COUNT, TUTTI_INT32, TUTTI_SUM, u->comm,
                                       NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
    }
    pretend_read(out, recv, sizeof(out));
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(out[i], size * (i + round) + size * (size - 1) / 2);
}

static void *use(void *arg)
{
    const user_t *u = arg;

    CHECK_OK(pretend_device()->use(u->self->rank));
    for (int round = 0; round < ROUNDS; round++) {
        user_t inner = *u;

        sum_up(u, round);
        if (!u->makes || round % 10 != 0)
            continue;
        CHECK_OK(tutti_comm_split(u->comm, 0, -u->self->rank, &inner.comm));
        sum_up(&inner, round);
        sum_up(&inner, round + 1);
        CHECK_OK(tutti_comm_free(inner.comm));
    }
    return NULL;
}

static void at_once(rank_t *self)
{
    user_t user[THREADS];
    pthread_t thread[THREADS];
    device_job_t job;

    device_begin(&job, self, THREADS * 8192);
    for (int i = 0; i < THREADS; i++) {
        user[i] = (user_t){ self, NULL, job.memory + 8192 * i, i };
        CHECK_OK(tutti_comm_split(self->comm, 0, i ? self->rank : -self->rank, &user[i].comm));
    }
    CHECK_OK(tutti_barrier(self->comm));
    pretend_slow_calls(20);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, use, &user[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK_OK(tutti_comm_free(user[i].comm));
    device_end(&job);
}

/* Queued calls complete, even if their communicator is freed early. */
static void free_early(rank_t *self)
{
    int32_t x = self->rank, sum;
    tutti__dstream_t *stream;
    tutti__devent_t *event;
    tutti_status_t status;
    tutti_comm_t *comm;
    device_job_t job;

    device_begin(&job, self, 64);
    CHECK_OK(job.ops->stream_make(0, &stream));
    CHECK_OK(job.ops->event_make(&event));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
        pretend_write(job.memory, &x, sizeof(x));
        CHECK_OK(tutti_barrier(self->comm));
        pretend_delays(7, 30000);
        CHECK_OK(tutti_cuda_allreduce(job.memory, job.memory, 1, TUTTI_INT32, TUTTI_SUM, comm,
                                      (struct CUstream_st *)(void *)stream));
        CHECK_OK(tutti_comm_free(comm));
        CHECK_OK(job.ops->record(event, stream));
        while ((status = job.ops->query(event)) == TUTTI__AGAIN)
            usleep(100);
        CHECK_OK(status);
        pretend_delays(0, 0);
        pretend_read(&sum, job.memory, sizeof(sum));
        CHECK_INT(sum, self->size * (self->size - 1) / 2);
    }
    job.ops->event_drop(event);
    job.ops->stream_drop(stream);
    device_end(&job);
}

/* ---- the end during calls ---- */

static void *go_on(void *arg)
{
    const user_t *u = arg;
    void *send = u->memory, *recv = u->memory + 4096;
    tutti_status_t status = TUTTI_OK;
    tutti_request_t *request;

    CHECK_OK(pretend_device()->use(u->self->rank));
    while (status == TUTTI_OK && !u->makes) {
        usleep(PAUSE_US);
        status = tutti_allreduce(send, recv, COUNT, TUTTI_INT32, TUTTI_SUM, u->comm);
    }
    while (status == TUTTI_OK) {
        usleep(PAUSE_US);
        status = tutti_allreduce_async("t", send, recv, COUNT, TUTTI_INT32, TUTTI_SUM, u->comm,
                                       NULL, &request);
        if (status == TUTTI_OK)
            status = tutti_wait(request, -1);
    }
    /* The abort may end NCCL before the engine reports it. The call waits for the report. */
    CHECK_INT(status, TUTTI_ERR_PEER_LOST);
    CHECK_WORDS("called tutti_abort: enough");
    return NULL;
}

/* A third thread ends one of two communicators; the other continues. */
static void abort_amid(rank_t *self)
{
    for (int i = 0; i < 10; i++) {
        pthread_t thread[THREADS];
        user_t user[THREADS], other;
        tutti_comm_t *comm;
        device_job_t job;

        CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
        device_begin(&job, self, (THREADS + 1) * 8192);
        pretend_delays(3, i % 2 ? 200 : 0);
        for (int t = 0; t < THREADS; t++) {
            user[t] = (user_t){ self, comm, job.memory + 8192 * t, t };
            CHECK_INT(pthread_create(&thread[t], NULL, go_on, &user[t]), 0);
        }
        other = (user_t){ self, self->comm, job.memory + 8192 * THREADS, 0 };
        for (int round = 0; round < 6; round++)
            sum_up(&other, round);
        if (self->rank == i % self->size)
            CHECK_OK(tutti_abort(comm, "enough"));
        for (int round = 0; round < 6; round++)
            sum_up(&other, round);
        for (int t = 0; t < THREADS; t++)
            pthread_join(thread[t], NULL);
        CHECK_OK(tutti_comm_free(comm));
        pretend_delays(0, 0);
        device_end(&job);
    }
}

/* With an NCCL whose calls belong to the calling thread until they are done. */
static int run_bound(job_t *ends)
{
    int failures = 0;

    pretend_bind_calls(1);
    failures += device_run(at_once, 3, NULL, 1);
    pretend_bind_calls(1);
    failures += device_run(at_once, 3, "aab", 1);
    pretend_bind_calls(1);
    failures += device_run_job(ends);
    return failures;
}

int main(void)
{
    job_t ends = { .size = 3, .threads = 1, .fn = abort_amid, .settings = device_quiet };
    int failures = 0;

    failures += device_run(at_once, 3, NULL, 1);
    failures += device_run(at_once, 3, "aab", 1);
    failures += device_run(free_early, 3, NULL, 1);
    failures += device_run_job(&ends);
    failures += run_bound(&ends);
    ends.hosts = "aab";
    failures += device_run_job(&ends);
    if (ranks_can_fork())
        failures += device_run(at_once, 2, NULL, 0);
    return failures != 0;
}
