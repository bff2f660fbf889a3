/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group is made, used and freed while its parent's work is on the device: running, or queued in a
 * stream after work of the caller. Groups have unequal sizes, hosts have unequal numbers of ranks,
 * and some ranks are in no group. The parent's calls complete.
 *
 * Making a group allocates memory, and this waits for the device. During this wait no work can be
 * launched there, and the work that is already there waits for other ranks.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/device/device_job.h"

#include "base/time.h"

#include <tutti/comm.h>
#include <tutti/cuda.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TENSORS = 4,
    COUNT = 20000,
    PARTS = 2,
    BOUND_S = 20
};

typedef struct {
    device_job_t job;
    float *tensor[TENSORS];
    char *small; /* for the calls of groups */
    float *host;
} mine_t;

static void begin(mine_t *m, rank_t *self)
{
    size_t bytes = COUNT * sizeof(float);

    device_begin(&m->job, self, (TENSORS + 1) * bytes);
    m->host = malloc(bytes);
    for (int t = 0; t < TENSORS; t++) {
        m->tensor[t] = (float *)(void *)(m->job.memory + (size_t)t * bytes);
        for (int i = 0; i < COUNT; i++)
            m->host[i] = (float)(self->rank + t + i % 10);
        pretend_write(m->tensor[t], m->host, bytes);
    }
    m->small = m->job.memory + TENSORS * bytes;
    CHECK_OK(tutti_barrier(self->comm));
}

static void end(mine_t *m)
{
    int size = m->job.self->size;

    for (int t = 0; t < TENSORS; t++) {
        pretend_read(m->host, m->tensor[t], COUNT * sizeof(float));
        for (int i = 0; i < COUNT; i++)
            CHECK_INT(m->host[i], size * (size - 1) / 2 + size * (t + i % 10));
    }
    free(m->host);
    device_end(&m->job);
}

static void sum_up(const mine_t *m, tutti_comm_t *comm)
{
    tutti_request_t *request;
    int32_t one = 1;

    for (int i = 0; i < 4; i++) {
        pretend_write(m->small, &one, sizeof(one));
        if (i % 2) {
            CHECK_OK(tutti_allreduce(m->small, m->small, 1, TUTTI_INT32, TUTTI_SUM, comm));
        } else {
            CHECK_OK(tutti_allreduce_async("s", m->small, m->small, 1, TUTTI_INT32, TUTTI_SUM, comm,
                                           NULL, &request));
            CHECK_OK(tutti_wait(request, -1));
        }
        pretend_read(&one, m->small, sizeof(one));
        CHECK_INT(one, tutti_size(comm));
        one = 1;
    }
}

/* Groups of one rank and of the rest, of even and odd ranks, and a group without rank 0. */
static void make_parts(const mine_t *m)
{
    const rank_t *self = m->job.self;
    const int colors[] = { self->rank == self->size - 1, self->rank % 2,
                           self->rank == 0 ? TUTTI_COLOR_NONE : 0 };

    for (size_t i = 0; i < sizeof(colors) / sizeof(*colors); i++) {
        tutti_comm_t *part = NULL;

        CHECK_OK(tutti_comm_split(self->comm, colors[i], i % 2 ? -self->rank : 0, &part));
        if (part == NULL)
            continue;
        sum_up(m, part);
        CHECK_OK(tutti_comm_free(part));
    }
}

/* When the ranks begin to make the groups, asynchronous calls are running. */
static void at_work(rank_t *self)
{
    uint64_t begun, limit = tutti__now_ns() + BOUND_S * 1000000000ull;
    tutti_request_t *request[TENSORS];
    char name[16];
    int done;
    mine_t m;

    begin(&m, self);
    pretend_rates(0, COUNT * sizeof(float) * 4.0); /* 0.25 s a tensor */
    CHECK_OK(tutti_barrier(self->comm));
    begun = tutti__now_ns();
    for (int t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof(name), "t%d", t);
        CHECK_OK(tutti_allreduce_async(name, m.tensor[t], m.tensor[t], COUNT, TUTTI_FLOAT32,
                                       TUTTI_SUM, self->comm, NULL, &request[t]));
    }
    while (pretend_counts(self->rank, PRETEND_NCCL_CALLS) == 0 && tutti__now_ns() < limit)
        usleep(1000);
    CHECK(pretend_counts(self->rank, PRETEND_NCCL_CALLS) > 0);
    CHECK_OK(tutti_test(request[TENSORS - 1], &done));
    CHECK(!done || tutti__now_ns() - begun > 800000000u); /* a late rank cannot check this */
    make_parts(&m);
    for (int t = 0; t < TENSORS; t++)
        CHECK_OK(tutti_wait(request[t], -1));
    CHECK(tutti__now_ns() < limit);
    pretend_rates(0, 0);
    end(&m);
}

static void wait_for(const mine_t *m, tutti__dstream_t *stream)
{
    tutti__devent_t *event;
    tutti_status_t status;

    CHECK_OK(m->job.ops->event_make(&event));
    CHECK_OK(m->job.ops->record(event, stream));
    while ((status = m->job.ops->query(event)) == TUTTI__AGAIN)
        usleep(100);
    CHECK_OK(status);
    m->job.ops->event_drop(event);
}

static void nap(void *us)
{
    usleep(*(useconds_t *)us);
}

/* Calls are only queued in a stream, after work of the caller's that takes a different time
   on each rank. */
static void queued(rank_t *self)
{
    uint64_t limit = tutti__now_ns() + BOUND_S * 1000000000ull;
    struct CUstream_st *handle;
    tutti__dstream_t *stream;
    useconds_t us = 400000 * (useconds_t)(self->rank + 1);
    mine_t m;

    begin(&m, self);
    CHECK_OK(m.job.ops->stream_make(0, &stream));
    handle = (struct CUstream_st *)(void *)stream;
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(pretend_launch(stream, nap, &us, sizeof(us)));
    for (int t = 0; t < TENSORS; t++)
        CHECK_OK(tutti_cuda_allreduce(m.tensor[t], m.tensor[t], COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                      self->comm, handle));
    make_parts(&m);
    wait_for(&m, stream);
    CHECK(tutti__now_ns() < limit);
    m.job.ops->stream_drop(stream);
    end(&m);
}

/* ---- another thread continues with calls ---- */

typedef struct {
    const mine_t *m;
    tutti_comm_t *comm;
    char *memory;
} user_t;

static void *go_on(void *arg)
{
    const user_t *u = arg;
    mine_t m = *u->m;

    CHECK_OK(m.job.ops->use(m.job.self->rank));
    m.small = u->memory;
    for (int i = 0; i < 12; i++)
        sum_up(&m, u->comm);
    return NULL;
}

static void amid(rank_t *self)
{
    pthread_t thread[PARTS];
    user_t user[PARTS];
    mine_t m;

    begin(&m, self);
    for (int i = 0; i < PARTS; i++) {
        user[i] = (user_t){ &m, NULL, m.small + 256 * (i + 1) };
        CHECK_OK(tutti_comm_split(self->comm, 0, i ? self->rank : -self->rank, &user[i].comm));
    }
    for (int t = 0; t < TENSORS; t++)
        CHECK_OK(
            tutti_allreduce(m.tensor[t], m.tensor[t], COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    pretend_delays(7, 300);
    for (int i = 0; i < PARTS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, go_on, &user[i]), 0);
    make_parts(&m);
    for (int i = 0; i < PARTS; i++)
        pthread_join(thread[i], NULL);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays(0, 0);
    for (int i = 0; i < PARTS; i++)
        CHECK_OK(tutti_comm_free(user[i].comm));
    end(&m);
}

int main(void)
{
    static const rank_fn_t jobs[] = { at_work, queued, amid };
    static const char *const hosts[] = { "aaa", "aabbb", "aaab" };
    int failures = 0;
    size_t places = test_is_long("hosts with three and one ranks") ? 3 : 2;

    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
        for (size_t h = 0; h < places; h++)
            failures += device_run(jobs[i], (int)strlen(hosts[h]), hosts[h], 1);
    if (ranks_can_fork())
        failures += device_run(amid, 3, NULL, 0);
    return failures != 0;
}
