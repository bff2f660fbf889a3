/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_ALGORITHM=allreduce:nccl-flat on pretended hosts: direct and asynchronous calls, in
 * streams, from several threads at once in different orders on different ranks, with groups of one
 * host at the same time; with late ranks, joined ranks, and calls that NCCL does not serve.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/device/device_job.h"

#include <tutti/cuda.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLAT "allreduce:nccl-flat"

enum {
    CASE_BYTES = 1 << 17,
    THREADS = 4,
    ROUNDS = 25,
    COUNT = 300,
    NAMES = 5,
    PART_BYTES = 4096,
    AREA = 4 * NAMES * PART_BYTES
};

/* ---- direct calls ---- */

static void one_case(area_t *area, tutti_dtype_t dtype, tutti_op_t op, size_t count, int is_nccls)
{
    for (int place = 0; place < PLACES; place++) {
        case_t c = { TUTTI_CALL_ALLREDUCE, dtype, op, count, 0, (place_t)place, DEVICE };
        unsigned calls = pretend_counts(area->self->rank, PRETEND_NCCL_CALLS);
        unsigned copies = pretend_counts(area->self->rank, PRETEND_COPIES);

        case_run(area, &c, TUTTI_OK);
        if (count == 0 || !is_nccls)
            continue;
        /* The library made a single call of NCCL. */
        CHECK_INT(pretend_counts(area->self->rank, PRETEND_NCCL_CALLS) - calls, 1);
        CHECK_INT(pretend_counts(area->self->rank, PRETEND_COPIES) - copies, 0);
    }
}

static void direct(rank_t *self)
{
    static const size_t counts[] = { 1, 0, 37, 5000 };
    device_job_t job;
    area_t area;

    device_begin(&job, self, 2 * CASE_BYTES);
    area_open(&area, self, CASE_BYTES);
    area.device = job.memory;
    area.read = pretend_read;
    area.write = pretend_write;
    device_forbid_alloc(self, 1);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        one_case(&area, TUTTI_FLOAT32, TUTTI_SUM, counts[i], 1);
        one_case(&area, TUTTI_FLOAT64, TUTTI_AVG, counts[i], 1);
        one_case(&area, TUTTI_INT32, TUTTI_AVG, counts[i], 1);
        one_case(&area, TUTTI_BFLOAT16, TUTTI_MAX, counts[i], 1);
        one_case(&area, TUTTI_INT64, TUTTI_PROD, counts[i], 1);
        one_case(&area, TUTTI_INT16, TUTTI_SUM, counts[i], 0);
        case_works(self);
    }
    device_forbid_alloc(self, 0);
    area_close(&area);
    device_end(&job);
}

/* ---- calls with known sums ---- */

typedef struct {
    rank_t *self;
    tutti_comm_t *comm;
    char *memory; /* [AREA] */
    int round;
} user_t;

static char *part(const user_t *u, int i)
{
    return u->memory + (size_t)i * PART_BYTES;
}

/* Each tensor has a different length, so that exchanged calls are detected. */
static size_t length(int i)
{
    return COUNT + (size_t)i;
}

static void fill(const user_t *u, int i)
{
    int32_t in[COUNT + 2 * NAMES];

    for (size_t k = 0; k < length(i); k++)
        in[k] = tutti_rank(u->comm) + (int)k + i + u->round;
    pretend_write(part(u, i), in, length(i) * sizeof(*in));
}

static void check_sum(const user_t *u, int i)
{
    int size = tutti_size(u->comm);
    int32_t out[COUNT + 2 * NAMES];

    pretend_read(out, part(u, i), length(i) * sizeof(*out));
    for (size_t k = 0; k < length(i); k++)
        CHECK_INT(out[k], size * ((int)k + i + u->round) + size * (size - 1) / 2);
}

static tutti_status_t sum_direct(const user_t *u, int i)
{
    return tutti_allreduce(part(u, i), part(u, i), length(i), TUTTI_INT32, TUTTI_SUM, u->comm);
}

static void *use_direct(void *arg)
{
    user_t *u = arg;

    CHECK_OK(pretend_device()->use(u->self->rank));
    for (u->round = 0; u->round < ROUNDS; u->round++) {
        fill(u, u->round % NAMES);
        CHECK_OK(sum_direct(u, u->round % NAMES));
        check_sum(u, u->round % NAMES);
    }
    return NULL;
}

static tutti_request_t *submit(const user_t *u, int i)
{
    tutti_request_t *request;
    char name[16];

    snprintf(name, sizeof(name), "t%d", i);
    CHECK_OK(tutti_allreduce_async(name, part(u, i), part(u, i), length(i), TUTTI_INT32, TUTTI_SUM,
                                   u->comm, NULL, &request));
    return request;
}

/* Each rank submits in a different order. */
static void *use_async(void *arg)
{
    user_t *u = arg;

    CHECK_OK(pretend_device()->use(u->self->rank));
    for (u->round = 0; u->round < ROUNDS; u->round++) {
        tutti_request_t *requests[NAMES];

        for (int i = 0; i < NAMES; i++)
            fill(u, i);
        for (int k = 0; k < NAMES; k++) {
            int i = (k + u->self->rank) % NAMES;

            requests[i] = submit(u, i);
        }
        for (int k = NAMES - 1; k >= 0; k--)
            CHECK_OK(tutti_wait(requests[(k + u->self->rank) % NAMES], -1));
        for (int i = 0; i < NAMES; i++)
            check_sum(u, i);
    }
    return NULL;
}

/* ---- all at the same time ---- */

static void at_once(rank_t *self)
{
    static void *(*const uses[THREADS])(void *) = { use_direct, use_async, use_direct, use_async };
    pthread_t thread[THREADS];
    user_t user[THREADS];
    tutti_comm_t *host;
    device_job_t job;

    device_begin(&job, self, THREADS * AREA);
    CHECK_OK(tutti_comm_split(self->comm, tutti_host_rank(self->comm), 0, &host));
    pretend_slow_calls(20);
    pretend_delays(11, 100);
    for (int i = 0; i < THREADS; i++) {
        user[i] = (user_t){ self, i < 2 ? self->comm : host, job.memory + AREA * i, 0 };
        CHECK_INT(pthread_create(&thread[i], NULL, uses[i], &user[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    pretend_delays(0, 0);
    CHECK_OK(tutti_comm_free(host));
    device_end(&job);
}

/* ---- late ranks ---- */

/* No rank launches before all ranks have made the call, so that other work is not queued behind a
   launch that waits. This must also hold if calls are not compared; the comparison would wait for
   all ranks anyway. */
static void late(rank_t *self)
{
    int is_late = self->rank == self->size - 1;
    pthread_t thread;
    tutti_comm_t *host, *all;
    user_t user, other;
    device_job_t job;

    device_begin(&job, self, 2 * AREA);
    CHECK_OK(tutti_comm_split(self->comm, tutti_host_rank(self->comm), 0, &host));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &all));
    user = (user_t){ self, self->comm, job.memory, 0 };
    other = (user_t){ self, host, job.memory + AREA, 0 };
    CHECK_OK(tutti_barrier(self->comm));
    if (!is_late)
        CHECK_INT(pthread_create(&thread, NULL, use_direct, &user), 0);
    usleep(50000);
    CHECK_INT(pretend_counts(self->rank, PRETEND_NCCL_CALLS), 0);
    fill(&other, 0);
    CHECK_OK(sum_direct(&other, 0));
    check_sum(&other, 0);
    CHECK_INT(pretend_counts(self->rank, PRETEND_NCCL_CALLS), 1);
    CHECK_OK(tutti_barrier(all));
    if (is_late)
        use_direct(&user);
    else
        pthread_join(thread, NULL);
    CHECK_OK(tutti_comm_free(all));
    CHECK_OK(tutti_comm_free(host));
    device_end(&job);
}

/* ---- streams ---- */

static struct CUstream_st *cuda(tutti__dstream_t *stream)
{
    return (struct CUstream_st *)(void *)stream;
}

/* Calls one after another in a late stream: the host does not wait for these calls. */
static void streams(rank_t *self)
{
    int32_t x = self->rank, sum, want = self->rank;
    device_job_t job;
    tutti__dstream_t *stream;
    tutti__devent_t *end;
    tutti_status_t status;

    device_begin(&job, self, 64);
    CHECK_OK(job.ops->stream_make(0, &stream));
    CHECK_OK(job.ops->event_make(&end));
    pretend_write(job.memory, &x, sizeof(x));
    pretend_delays(5, 20000);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(tutti_cuda_allreduce(job.memory, job.memory, 1, TUTTI_INT32, TUTTI_SUM, self->comm,
                                      cuda(stream)));
        want = i == 0 ? self->size * (self->size - 1) / 2 : want * self->size;
    }
    CHECK_OK(job.ops->record(end, stream));
    while ((status = job.ops->query(end)) == TUTTI__AGAIN)
        usleep(100);
    CHECK_OK(status);
    pretend_delays(0, 0);
    pretend_read(&sum, job.memory, sizeof(sum));
    CHECK_INT(sum, want);
    job.ops->event_drop(end);
    job.ops->stream_drop(stream);
    device_end(&job);
}

/* Queued calls complete, even if the communicator is closed early. */
static void close_early(rank_t *self)
{
    int32_t x = self->rank, sum;
    tutti__dstream_t *stream;
    tutti__devent_t *end;
    tutti__conf_t conf = self->inside->conf;
    tutti__meet_t meet;
    tutti__comm_t *comm;
    tutti_status_t status;
    device_job_t job;

    device_begin(&job, self, 64);
    CHECK_OK(job.ops->stream_make(0, &stream));
    CHECK_OK(job.ops->event_make(&end));
    pretend_write(job.memory, &x, sizeof(x));
    CHECK_OK(
        tutti__meet_local(self->arg, (uint32_t)self->rank, (uint32_t)self->size, 60000, &meet));
    CHECK_OK(tutti__comm_open(&meet, NULL, &conf, &comm));
    CHECK(comm->device.all_node != NULL);
    pretend_delays(7, 30000);
    CHECK_OK(tutti_cuda_allreduce(job.memory, job.memory, 1, TUTTI_INT32, TUTTI_SUM, comm->handle,
                                  cuda(stream)));
    tutti__comm_close(comm);
    CHECK_OK(job.ops->record(end, stream));
    while ((status = job.ops->query(end)) == TUTTI__AGAIN)
        usleep(100);
    CHECK_OK(status);
    pretend_delays(0, 0);
    pretend_read(&sum, job.memory, sizeof(sum));
    CHECK_INT(sum, self->size * (self->size - 1) / 2);
    job.ops->event_drop(end);
    job.ops->stream_drop(stream);
    device_end(&job);
}

/* ---- groups ---- */

/* A group has no NCCL communicator of all its ranks. So the table selects its algorithm, even for
   device memory. */
static void groups(rank_t *self)
{
    device_job_t job;
    tutti_comm_t *comm;
    user_t user;

    device_begin(&job, self, AREA);
    CHECK(self->inside->device.all_node != NULL);
    CHECK_OK(tutti_comm_split(self->comm, 0, -self->rank, &comm));
    CHECK(ranks_inside(comm)->device.all_node == NULL);
    user = (user_t){ self, comm, job.memory, 0 };
    use_direct(&user);
    use_async(&user);
    CHECK_OK(tutti_comm_free(comm));
    device_end(&job);
}

/* ---- joined ranks ---- */

/* Rank r has r batches. A rank without batches takes part with zero contributions. */
static void joins(rank_t *self)
{
    int32_t in[COUNT], out[COUNT];
    device_job_t job;
    int last;

    device_begin(&job, self, AREA);
    for (int i = 0; i < COUNT; i++)
        in[i] = i;
    for (int step = 0; step < self->rank; step++) {
        tutti_request_t *request;

        pretend_write(job.memory, in, sizeof(in));
        CHECK_OK(tutti_allreduce_async("t", job.memory, job.memory, COUNT, TUTTI_INT32, TUTTI_SUM,
                                       self->comm, NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
        pretend_read(out, job.memory, sizeof(out));
        for (int i = 0; i < COUNT; i++)
            CHECK_INT(out[i], i * (self->size - 1 - step));
    }
    CHECK_OK(tutti_join(self->comm, &last));
    device_end(&job);
}

/* ---- calls that NCCL does not serve, and scaled ones ---- */

static void others(rank_t *self)
{
    tutti_async_options_t halve = TUTTI_ASYNC_OPTIONS_INIT;
    int16_t small = (int16_t)self->rank;
    int want = self->size * (self->size - 1) / 2;
    float x = (float)self->rank;
    tutti_request_t *request;
    device_job_t job;
    unsigned calls;

    device_begin(&job, self, AREA);
    halve.postscale = 0.5;
    pretend_write(job.memory, &small, sizeof(small));
    pretend_write(job.memory + 64, &x, sizeof(x));
    calls = pretend_counts(self->rank, PRETEND_NCCL_CALLS);
    CHECK_OK(tutti_allreduce_async("a", job.memory, job.memory, 1, TUTTI_INT16, TUTTI_SUM,
                                   self->comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(pretend_counts(self->rank, PRETEND_NCCL_CALLS), calls);
    CHECK_OK(tutti_allreduce_async("b", job.memory + 64, job.memory + 64, 1, TUTTI_FLOAT32,
                                   TUTTI_SUM, self->comm, &halve, &request));
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(pretend_counts(self->rank, PRETEND_NCCL_CALLS), calls + 1);
    pretend_read(&small, job.memory, sizeof(small));
    pretend_read(&x, job.memory + 64, sizeof(x));
    CHECK_INT(small, want);
    CHECK(x == 0.5f * (float)want);
    device_end(&job);
}

/* ---- jobs ---- */

static int run(rank_fn_t fn, const char *hosts, int threads)
{
    job_t job = { .settings = fn == late ? device_uncompared : NULL,
                  .size = (int)strlen(hosts),
                  .hosts = hosts,
                  .algorithm = FLAT,
                  .threads = threads,
                  .fn = fn };
    char name[64];

    snprintf(name, sizeof(name), "tutti-flat-%d", ranks_tag());
    job.arg = name;
    return device_run_job(&job);
}

int main(void)
{
    static const char *const hosts[] = { "ab", "aaabb", "abbcc" };
    int failures = 0, forks = ranks_can_fork();
    int whole = test_is_long("what differs only in that ranks are threads or processes");

    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        if (whole || !forks || i == 1)
            failures += run(direct, hosts[i], 1);
        if (forks && (whole || i != 1))
            failures += run(direct, hosts[i], 0);
    }
    for (int threads = !forks; threads < (whole || !forks ? 2 : 1); threads++) {
        failures += run(at_once, "aabb", threads);
        failures += run(at_once, "abbcc", threads);
        failures += run(streams, "aaabb", threads);
        failures += run(close_early, "aab", threads);
        failures += run(late, "aabb", threads);
        failures += run(groups, "aabb", threads);
        failures += run(joins, "abba", threads);
        failures += run(others, "aab", threads);
    }
    failures += run(direct, "aa", 1); /* one host: the same as `node` */
    return failures != 0;
}
