/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work that is queued in a stream never ends on one rank's device. No call waits for this work.
 * Still the communicator ends by the deadline, or at once if NCCL reports a failure. If long work
 * of the caller comes first, that time does not count.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"
#include "node/nccl/nccl.h"

#include <tutti/cuda.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COUNT = 1000,
    TIMEOUT_MS = 2000,
    LONG_MS = 200000, /* longer than any wait in this test */
    BEHIND = 300      /* more calls than the initial space holds */
};

static struct CUstream_st *handle(tutti__dstream_t *stream)
{
    return (struct CUstream_st *)(void *)stream;
}

/* The communicator ends, although no rank makes a call. */
static void check_ends(rank_t *self, tutti_status_t expected)
{
    uint64_t limit = tutti__now_ns() + 40000000000u; /* processors may be busy */
    tutti_status_t status;

    while ((status = tutti__watch_alive(self->inside->watch)) == TUTTI_OK &&
           tutti__now_ns() < limit)
        usleep(10000);
    CHECK_INT(status, expected);
    CHECK_WORDS("queued in a stream");
    if (expected == TUTTI_ERR_TRANSPORT)
        CHECK_WORDS("a link is down");
    do {
        usleep(1000);
        status = tutti__nccl_node_settle(self->inside->device.node);
    } while (status != TUTTI_ERR_TRANSPORT && tutti__now_ns() < limit);
    CHECK_INT(status, TUTTI_ERR_TRANSPORT);
}

/* Queue `count` calls, or fewer if submitting them takes longer than the deadline. */
static void queue(rank_t *self, void *a, int count, tutti__dstream_t *stream)
{
    tutti_status_t status = TUTTI_OK;

    for (int i = 0; i < count && status == TUTTI_OK; i++)
        status =
            tutti_cuda_allreduce(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm, handle(stream));
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_TIMEOUT);
}

static void hangs(rank_t *self, int is_async, int behind, int is_sick)
{
    tutti__dstream_t *stream;
    tutti_request_t *request;
    device_job_t job;
    void *a;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    a = job.memory;
    CHECK_OK(job.ops->stream_make(0, &stream));
    CHECK_OK(
        tutti_cuda_allreduce(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm, handle(stream)));
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1)
        pretend_hang(1, 0);
    ranks_set_deadline(self, self->comm, is_sick ? LONG_MS : TIMEOUT_MS);
    if (is_async) {
        CHECK_OK(tutti_allreduce_async("x", a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                       &request));
        CHECK_OK(tutti_cuda_wait(request, -1, handle(stream)));
    }
    queue(self, a, 1 - is_async + behind, stream);
    if (is_sick && self->rank == 1)
        pretend_sick(1);
    check_ends(self, is_sick ? TUTTI_ERR_TRANSPORT : TUTTI_ERR_TIMEOUT);
    job.ops->stream_drop(stream);
    job.ops->free(job.memory);
}

static void direct(rank_t *self)
{
    hangs(self, 0, 0, 0);
}

static void handed_over(rank_t *self)
{
    hangs(self, 1, 0, 0);
}

static void many(rank_t *self)
{
    hangs(self, 0, BEHIND, 0);
}

static void sick(rank_t *self)
{
    hangs(self, 0, 0, 1);
}

/* The last of many calls never ends. All of them follow a copy of the caller's. All calls but the
   last one have completed. */
static void last(rank_t *self)
{
    tutti__dstream_t *stream;
    device_job_t job;
    void *pinned, *a;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    a = job.memory;
    CHECK_OK(job.ops->stream_make(0, &stream));
    CHECK_OK(job.ops->host_alloc(COUNT * sizeof(float), &pinned));
    memset(pinned, 0, COUNT * sizeof(float));
    pretend_rates(COUNT * sizeof(float) * 1000. / (2 * TIMEOUT_MS), 0);
    if (self->rank == 1)
        pretend_hang(1, BEHIND);
    ranks_set_deadline(self, self->comm, TIMEOUT_MS);
    CHECK_OK(job.ops->copy(a, pinned, COUNT * sizeof(float), stream));
    queue(self, a, BEHIND + 1, stream);
    check_ends(self, TUTTI_ERR_TIMEOUT);
    job.ops->stream_drop(stream);
    job.ops->host_free(pinned);
    job.ops->free(job.memory);
}

/* Each of several calls follows copies of the caller's that take twice the deadline. */
static void slow_user(rank_t *self)
{
    tutti__dstream_t *stream;
    tutti__devent_t *done;
    device_job_t job;
    void *pinned;
    float *a, one = 1;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    a = (float *)(void *)job.memory;
    CHECK_OK(job.ops->stream_make(0, &stream));
    CHECK_OK(job.ops->event_make(&done));
    CHECK_OK(job.ops->host_alloc(COUNT * sizeof(float), &pinned));
    memcpy(pinned, &one, sizeof(one));
    pretend_rates(COUNT * sizeof(float) * 1000. / (2 * TIMEOUT_MS), 0);
    ranks_set_deadline(self, self->comm, TIMEOUT_MS);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(job.ops->copy(a, pinned, COUNT * sizeof(float), stream));
        CHECK_OK(tutti_cuda_allreduce(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                      handle(stream)));
    }
    CHECK_OK(job.ops->record(done, stream));
    usleep(5 * TIMEOUT_MS * 1000);
    ranks_set_deadline(self, self->comm, LONG_MS);
    CHECK_OK(tutti_barrier(self->comm));
    /* On a busy machine the pretend device takes longer. */
    for (int i = 0; i < 600 && job.ops->query(done) == TUTTI__AGAIN; i++)
        usleep(100000);
    CHECK_OK(job.ops->query(done));
    pretend_read(&one, a, sizeof(one));
    CHECK(one == (float)self->size);
    job.ops->event_drop(done);
    job.ops->stream_drop(stream);
    job.ops->host_free(pinned);
    job.ops->free(job.memory);
}

int main(void)
{
    static const rank_fn_t jobs[] = { direct, handed_over, many, last, slow_user, sick };
    int failures = 0;

    for (int i = 0; i < 6; i++) {
        job_t job = { .size = 2, .threads = 1, .fn = jobs[i], .settings = device_settings };

        failures += device_run_job(&job);
    }
    return failures != 0;
}
