/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls in streams (tutti/cuda.h) on the pretend device: earlier work of the stream writes their
 * input, later work reads their results, and the host does not wait for this work.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"

#include <tutti/cuda.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STREAMS = 2,
    CALLS = 12,
    MOST = 6000,     /* elements of one call: several chunks */
    LARGE = 16384,   /* elements of a call that takes long */
    DELAY_US = 400,  /* before each piece of work */
    SOON_US = 50000, /* an event without dependences completes within this time */
    ROOM = CALLS * 2 * MOST * (int)sizeof(float)
};

typedef struct {
    device_job_t job;
    tutti__dstream_t *stream[STREAMS];
    tutti__devent_t *end[STREAMS];
    float *host; /* pinned, ROOM bytes */
} user_t;

static struct CUstream_st *cuda(tutti__dstream_t *stream)
{
    return (struct CUstream_st *)(void *)stream;
}

static void begin(user_t *u, rank_t *self)
{
    void *host;

    device_begin(&u->job, self, ROOM);
    CHECK_OK(u->job.ops->host_alloc(ROOM, &host));
    u->host = host;
    for (int s = 0; s < STREAMS; s++) {
        CHECK_OK(u->job.ops->stream_make(0, &u->stream[s]));
        CHECK_OK(u->job.ops->event_make(&u->end[s]));
    }
}

static void wait_for(user_t *u, int s)
{
    tutti_status_t status;

    CHECK_OK(u->job.ops->record(u->end[s], u->stream[s]));
    while ((status = u->job.ops->query(u->end[s])) == TUTTI__AGAIN)
        usleep(100);
    CHECK_OK(status);
}

static void end(user_t *u)
{
    CHECK_OK(tutti_barrier(u->job.self->comm));
    /* All calls of NCCL are in one stream, also if the callers use several streams: a group of NCCL
       calls would make the callers' streams wait for each other. */
    CHECK_INT(pretend_counts(u->job.self->rank, PRETEND_OTHER_STREAM), 0);
    for (int s = 0; s < STREAMS; s++) {
        wait_for(u, s);
        u->job.ops->stream_drop(u->stream[s]);
        u->job.ops->event_drop(u->end[s]);
    }
    u->job.ops->host_free(u->host);
    device_end(&u->job);
}

static float value(int rank, int call, size_t i)
{
    return (float)(rank + 3 * call + (int)(i % 13));
}

static float sum(int size, int call, size_t i)
{
    return (float)(size * (size - 1) / 2) + (float)size * value(0, call, i);
}

/* ---- one after another ---- */

/* The part of memory that call k uses. */
static float *part(user_t *u, int k)
{
    return (float *)(void *)u->job.memory + (size_t)k * 2 * MOST;
}

static float *host_part(user_t *u, int k)
{
    return u->host + (size_t)k * 2 * MOST;
}

static tutti_status_t make(user_t *u, int k, size_t count, tutti__dstream_t *stream)
{
    tutti_comm_t *comm = u->job.self->comm;
    tutti_call_t call;

    if (k % 2 == 0)
        return tutti_cuda_allreduce(part(u, k), part(u, k), count, TUTTI_FLOAT32, TUTTI_SUM, comm,
                                    cuda(stream));
    call = ranks_sum(NULL, part(u, k), count);
    return tutti_cuda_run(&call, comm, cuda(stream));
}

/* The streams are late; the host waits only at the end. */
static void in_a_row(rank_t *self)
{
    const tutti__device_ops_t *ops = pretend_device();
    size_t counts[CALLS];
    user_t u;

    begin(&u, self);
    CHECK_INT(tutti_cuda_device(self->comm), self->rank);
    pretend_delays(77, DELAY_US);
    device_forbid_alloc(self, 1);
    for (int k = 0; k < CALLS; k++) {
        tutti__dstream_t *stream = u.stream[k % 3 % STREAMS];
        float *x = part(&u, k), *y = host_part(&u, k);

        counts[k] = k % 4 == 3 ? MOST : (size_t)k + 1;
        for (size_t i = 0; i < counts[k]; i++)
            y[i] = value(self->rank, k, i);
        CHECK_OK(ops->copy(x, y, counts[k] * sizeof(float), stream));
        CHECK_OK(make(&u, k, counts[k], stream));
        CHECK_OK(ops->copy(y + MOST, x, counts[k] * sizeof(float), stream));
        CHECK_OK(ops->copy(x, y, sizeof(float), stream)); /* later work must not change the
                                                             result */
    }
    for (int s = 0; s < STREAMS; s++)
        wait_for(&u, s);
    for (int k = 0; k < CALLS; k++)
        for (size_t i = 0; i < counts[k]; i++)
            if (host_part(&u, k)[MOST + i] != sum(self->size, k, i))
                ranks_fail(__FILE__, __LINE__, "call %d, element %zu: %g, wanted %g", k, i,
                           (double)host_part(&u, k)[MOST + i], (double)sum(self->size, k, i));
    device_forbid_alloc(self, 0);
    end(&u);
}

/* On one host the call returns while the device is busy. */
static void at_once(rank_t *self)
{
    const tutti__device_ops_t *ops = pretend_device();
    tutti_status_t status;
    uint64_t begun;
    float *got;
    user_t u;

    begin(&u, self);
    got = u.host + LARGE;
    for (size_t i = 0; i < LARGE; i++)
        u.host[i] = value(self->rank, 0, i);
    pretend_write(u.job.memory, u.host, LARGE * sizeof(float));
    CHECK_OK(tutti_barrier(self->comm));
    pretend_rates(0, LARGE * sizeof(float) * 2); /* some 0.5 s */
    begun = tutti__now_ns();
    CHECK_OK(tutti_cuda_allreduce(u.job.memory, u.job.memory, LARGE, TUTTI_FLOAT32, TUTTI_SUM,
                                  self->comm, cuda(u.stream[0])));
    CHECK_OK(ops->record(u.end[1], u.stream[0]));
    usleep(SOON_US);
    status = ops->query(u.end[1]);
    if (tutti__now_ns() - begun < 450000000u) /* if not, this rank itself was late */
        CHECK_INT(status, TUTTI__AGAIN);
    CHECK_OK(ops->copy(got, u.job.memory, LARGE * sizeof(float), u.stream[0]));
    wait_for(&u, 0);
    for (size_t i = 0; i < LARGE; i++)
        CHECK(got[i] == sum(self->size, 0, i));
    end(&u);
}

/* ---- in place ---- */

/* A reduce_scatter whose result replaces its operands. */
static void scatter(rank_t *self)
{
    const tutti__device_ops_t *ops = pretend_device();
    tutti_call_t call = TUTTI_CALL_INIT;
    size_t size = (size_t)self->size, count = 1000, all = count * size;
    user_t u;

    begin(&u, self);
    pretend_delays(5, DELAY_US);
    call.kind = TUTTI_CALL_REDUCE_SCATTER;
    call.dtype = TUTTI_FLOAT32;
    call.op = TUTTI_SUM;
    call.sendbuf = call.recvbuf = u.job.memory;
    call.count = count;
    for (int k = 0; k < 3; k++) {
        float *got = u.host + all;

        for (size_t i = 0; i < all; i++)
            u.host[i] = value(self->rank, k, i);
        CHECK_OK(ops->copy(u.job.memory, u.host, all * sizeof(float), u.stream[0]));
        CHECK_OK(tutti_cuda_run(&call, self->comm, cuda(u.stream[0])));
        CHECK_OK(ops->copy(got, u.job.memory, all * sizeof(float), u.stream[0]));
        wait_for(&u, 0);
        for (size_t i = 0; i < all; i++) {
            size_t at = count * (size_t)self->rank + i;
            float want = i < count ? sum(self->size, k, at) : value(self->rank, k, i);

            if (got[i] != want)
                ranks_fail(__FILE__, __LINE__, "call %d, element %zu: %g, wanted %g", k, i,
                           (double)got[i], (double)want);
        }
    }
    end(&u);
}

/* ---- asynchronous calls between ---- */

static void mixed(rank_t *self)
{
    const tutti__device_ops_t *ops = pretend_device();
    size_t count = 500, bytes = count * sizeof(float);
    user_t u;

    begin(&u, self);
    pretend_delays(9, DELAY_US);
    device_forbid_alloc(self, 1);
    for (int round = 0; round < 3; round++) {
        tutti_call_t calls[CALLS / 2];
        tutti_request_t *requests[CALLS / 2];
        char names[CALLS / 2][32];

        for (int k = 0; k < CALLS; k++)
            for (size_t i = 0; i < count; i++)
                host_part(&u, k)[i] = value(self->rank, k + round, i);
        for (int k = 0; k < CALLS / 2; k++) {
            snprintf(names[k], sizeof(names[k]), "mixed %d", k);
            calls[k] = ranks_sum(names[k], part(&u, k), count);
            CHECK_OK(ops->copy(part(&u, k), host_part(&u, k), bytes, u.stream[0]));
        }
        CHECK_OK(tutti_cuda_submit(calls, CALLS / 2, self->comm, cuda(u.stream[0]), requests));
        for (int k = CALLS / 2; k < CALLS; k++) {
            CHECK_OK(ops->copy(part(&u, k), host_part(&u, k), bytes, u.stream[1]));
            CHECK_OK(make(&u, k, count, u.stream[1]));
            CHECK_OK(ops->copy(host_part(&u, k), part(&u, k), bytes, u.stream[1]));
        }
        for (int k = 0; k < CALLS / 2; k++) {
            CHECK_OK(tutti_wait(requests[k], -1));
            pretend_read(host_part(&u, k), part(&u, k), bytes);
        }
        wait_for(&u, 1);
        for (int k = 0; k < CALLS; k++)
            for (size_t i = 0; i < count; i++)
                CHECK(host_part(&u, k)[i] == sum(self->size, k + round, i));
    }
    device_forbid_alloc(self, 0);
    end(&u);
}

/* ---- errors ---- */

/* The streams of all ranks are captured. If only some were, only some ranks of the host would enter
   a collective. */
static void captured(rank_t *self, user_t *u)
{
    tutti_call_t call = ranks_sum(NULL, u->job.memory, 8);
    tutti_request_t *request = NULL;
    unsigned calls = pretend_counts(self->rank, PRETEND_NCCL_CALLS);

    pretend_capture(u->stream[0], 1);
    CHECK_STATUS(make(u, 0, 8, u->stream[0]), TUTTI_ERR_UNSUPPORTED);
    CHECK_WORDS("captured into a graph");
    CHECK_STATUS(tutti_cuda_run(&call, self->comm, cuda(u->stream[0])), TUTTI_ERR_UNSUPPORTED);
    CHECK_WORDS("captured into a graph");
    call.name = "captured";
    CHECK_STATUS(tutti_cuda_submit(&call, 1, self->comm, cuda(u->stream[0]), &request),
                 TUTTI_ERR_UNSUPPORTED);
    CHECK_WORDS("captured into a graph");
    CHECK(request == NULL);
    pretend_capture(u->stream[0], 0);
    CHECK_INT(pretend_counts(self->rank, PRETEND_NCCL_CALLS), calls);
}

static void works(rank_t *self, user_t *u)
{
    float x = (float)self->rank + 1;

    case_works(self);
    pretend_write(u->job.memory, &x, sizeof(x));
    CHECK_OK(make(u, 0, 1, u->stream[0]));
    wait_for(u, 0);
    pretend_read(&x, u->job.memory, sizeof(x));
    CHECK(x == (float)(self->size * (self->size + 1) / 2));
}

static void errors(rank_t *self)
{
    float host[4] = { 0 };
    tutti_call_t call = TUTTI_CALL_INIT;
    tutti_request_t *request;
    void *elsewhere;
    user_t u;

    begin(&u, self);
    CHECK_INT(tutti_cuda_device(NULL), -1);
    CHECK_STATUS(tutti_cuda_allreduce(host, host, 4, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("host memory, but calls in a stream are for device memory");
    CHECK_STATUS(
        tutti_cuda_allreduce(u.job.memory, u.job.memory, 4, TUTTI_FLOAT32, TUTTI_SUM, NULL, NULL),
        TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_cuda_run(NULL, self->comm, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    call.kind = TUTTI_CALL_BARRIER;
    CHECK_STATUS(tutti_cuda_run(&call, self->comm, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("a barrier cannot be made in a stream");
    call.name = "barrier";
    CHECK_STATUS(tutti_cuda_run(&call, self->comm, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("call->name is not NULL");
    CHECK_STATUS(tutti_cuda_submit(&call, 1, self->comm, NULL, &request),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("a barrier cannot be made in a stream");
    CHECK_OK(u.job.ops->use(PRETEND_DEVICES - 1));
    CHECK_OK(u.job.ops->alloc(64, &elsewhere));
    CHECK_STATUS(tutti_cuda_allreduce(elsewhere, elsewhere, 4, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                      cuda(u.stream[0])),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("memory of device 15, but this communicator uses device");
    CHECK_INT(u.job.ops->current(), PRETEND_DEVICES - 1);
    u.job.ops->free(elsewhere);
    CHECK_OK(u.job.ops->use(self->rank));
    for (int i = 0; i < 2; i++) {
        captured(self, &u);
        works(self, &u);
    }
    end(&u);
}

static void no_device(rank_t *self)
{
    float x[2] = { 1, 1 };

    CHECK_INT(tutti_cuda_device(self->comm), -1);
    CHECK_STATUS(tutti_cuda_allreduce(x, x, 2, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL),
                 TUTTI_ERR_UNSUPPORTED);
    CHECK_WORDS("no device");
    case_works(self);
}

int main(void)
{
    static const char *const hosts[] = { NULL, "ab", "aabb" };
    job_t none = { .size = 2, .threads = 1, .fn = no_device };
    int failures = 0;

    for (int i = 0; i < 3; i++) {
        int size = hosts[i] == NULL ? 3 : (int)strlen(hosts[i]);

        for (int threads = i == 0 && ranks_can_fork() ? 0 : 1; threads < 2; threads++)
            failures += device_run(in_a_row, size, hosts[i], threads);
        failures += device_run(scatter, size, hosts[i], 1);
        failures += device_run(mixed, size, hosts[i], 1);
        failures += device_run(errors, size, hosts[i], 1);
    }
    failures += device_run(in_a_row, 1, NULL, 1);
    failures += device_run(at_once, 2, NULL, 1);
    failures += device_run(at_once, 3, NULL, 1);
    RUN_JOB(failures, &none);
    return failures != 0;
}
