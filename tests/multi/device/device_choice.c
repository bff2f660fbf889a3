/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces on the device memory of several hosts: by NCCL inside hosts, or in host memory. Tests
 * the choice, for direct calls and in the engine. Results must be correct in both ways, and have
 * the same bits where this is promised. A further job has devices whose NCCL serves different
 * types.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 100,      /* elements */
    LARGE = 12000,    /* of 4 bytes: two such buffers do not fit STAGE */
    BYTES = 4 * LARGE /* of a buffer */
};

/* ---- calls ---- */

typedef enum {
    DIRECT,
    ASYNC
} how_t;

/* Values whose sums are rounded. Element i is the same in every call. */
static void fill(float *x, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        x[i] = 1.0f / (float)(3 + rank * 7 + (int)(i % 91)) * (float)(1 << rank % 3);
}

static unsigned nccl_calls(const device_job_t *job)
{
    return pretend_counts(job->self->rank, PRETEND_NCCL_CALLS);
}

/* Make one allreduce. Returns 1 if NCCL took part. */
static int reduce(device_job_t *job, how_t how, size_t count, tutti_dtype_t dtype, float *ret_sum)
{
    unsigned before = nccl_calls(job);
    tutti_comm_t *comm = job->self->comm;
    char *recv = job->memory + BYTES;
    tutti_request_t *request;
    float x[LARGE];

    fill(x, count, job->self->rank);
    pretend_write(job->memory, x, 4 * count);
    if (how == DIRECT) {
        CHECK_OK(tutti_allreduce(job->memory, recv, count, dtype, TUTTI_SUM, comm));
    } else {
        CHECK_OK(tutti_allreduce_async("x", job->memory, recv, count, dtype, TUTTI_SUM, comm, NULL,
                                       &request));
        CHECK_OK(tutti_wait(request, -1));
    }
    pretend_read(ret_sum, recv, 4 * count);
    return nccl_calls(job) != before;
}

static void check_sum(const device_job_t *job, const float *sum, size_t count)
{
    float x[LARGE];
    double want[LARGE] = { 0 };

    for (int r = 0; r < job->self->size; r++) {
        fill(x, count, r);
        for (size_t i = 0; i < count; i++)
            want[i] += (double)x[i];
    }
    for (size_t i = 0; i < count; i++)
        CHECK((double)sum[i] > want[i] - 1e-5 && (double)sum[i] < want[i] + 1e-5);
}

/* For which sizes does NCCL take part? A rank that is alone on its host calls NCCL as well. */
static void expect(rank_t *self, how_t how, int small, int large, int same_bits)
{
    float few[LARGE], many[LARGE];
    device_job_t job;

    device_begin(&job, self, 2 * (size_t)BYTES);
    device_forbid_alloc(self, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(reduce(&job, how, SMALL, TUTTI_FLOAT32, few), small);
        check_sum(&job, few, SMALL);
        CHECK_INT(reduce(&job, how, LARGE, TUTTI_FLOAT32, many), large);
        check_sum(&job, many, LARGE);
        if (same_bits)
            CHECK(memcmp(few, many, sizeof(float) * SMALL) == 0);
    }
    device_forbid_alloc(self, 0);
    device_end(&job);
}

static void both_by_size(rank_t *self)
{
    expect(self, DIRECT, 0, 1, 1);
    expect(self, ASYNC, 0, 1, 1);
}

/* A bucket may have any size, and the two ways sum three ranks with different bits. So only direct
   calls are chosen by size. */
static void direct_by_size(rank_t *self)
{
    expect(self, DIRECT, 0, 1, 0);
    expect(self, ASYNC, 1, 1, 0);
}

static void never_staged(rank_t *self)
{
    expect(self, DIRECT, 1, 1, 1);
    expect(self, ASYNC, 1, 1, 1);
}

static void all_staged(rank_t *self)
{
    expect(self, DIRECT, 0, 0, 1);
    expect(self, ASYNC, 0, 0, 1);
}

/* No chunk of the schedule on the device fits STAGE. */
static void without_room(rank_t *self)
{
    float direct[LARGE], async[LARGE];
    device_job_t job;

    self->inside->device.stage_bytes = 64;
    device_begin(&job, self, 2 * (size_t)BYTES);
    CHECK_INT(reduce(&job, DIRECT, SMALL, TUTTI_FLOAT32, direct), 0);
    check_sum(&job, direct, SMALL);
    CHECK_INT(reduce(&job, ASYNC, SMALL, TUTTI_FLOAT32, async), 0);
    CHECK(memcmp(direct, async, sizeof(float) * SMALL) == 0);
    device_end(&job);
}

/* Calls in place and out of place, of several types. */
static void cases(rank_t *self)
{
    static const tutti_dtype_t types[] = { TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_INT64 };
    static const size_t counts[] = { 1, 37, 2000, 9000 };
    device_job_t job;
    area_t area;

    device_begin(&job, self, (size_t)1 << 18);
    area_open(&area, self, (size_t)1 << 17);
    area.device = job.memory;
    area.read = pretend_read;
    area.write = pretend_write;
    device_forbid_alloc(self, 1);
    for (size_t t = 0; t < COUNT_OF(types); t++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int place = 0; place < PLACES; place++) {
                case_t c = {
                    TUTTI_CALL_ALLREDUCE, types[t], place % 2 ? TUTTI_AVG : TUTTI_SUM, counts[i], 0,
                    (place_t)place,       DEVICE
                };

                case_run(&area, &c, TUTTI_OK);
            }
    device_forbid_alloc(self, 0);
    area_close(&area);
    device_end(&job);
}

/* ---- devices that differ ---- */

static void check_type(device_job_t *job, how_t how, tutti_dtype_t dtype, int by_nccl)
{
    float sum[LARGE];

    CHECK_INT(reduce(job, how, SMALL, dtype, sum), by_nccl);
    if (dtype == TUTTI_FLOAT32)
        check_sum(job, sum, SMALL);
}

static void not_alike(rank_t *self)
{
    device_job_t job;

    device_begin(&job, self, 2 * (size_t)BYTES);
    for (int i = 0; i < 3; i++) {
        check_type(&job, DIRECT, TUTTI_FLOAT32, 0);
        check_type(&job, ASYNC, TUTTI_FLOAT32, 0);
        check_type(&job, DIRECT, TUTTI_INT32, 1);
        check_type(&job, ASYNC, TUTTI_INT32, 1);
    }
    device_end(&job);
}

/* ---- jobs ---- */

static void auto_settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.device_staged_bytes = TUTTI__CONF_AUTO;
}

static void forced_settings(tutti__conf_t *conf, int rank)
{
    auto_settings(conf, rank);
    strcpy(conf->shared.algorithm, "allreduce:hierarchical");
}

static void wide_settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.device_staged_bytes = (uint64_t)1 << 30;
}

static void strict_settings(tutti__conf_t *conf, int rank)
{
    auto_settings(conf, rank);
    conf->shared.strict = 1;
}

static void unlike_settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    if (rank == 1)
        pretend_lacks(1, TUTTI_FLOAT32);
}

static int run(rank_fn_t fn, int size, const char *hosts,
               void (*settings)(tutti__conf_t *conf, int rank))
{
    int failures = 0;

    for (int threads = !ranks_can_fork(); threads < 2; threads++) {
        job_t job = {
            .size = size, .hosts = hosts, .threads = threads, .settings = settings, .fn = fn
        };

        failures += device_run_job(&job);
    }
    return failures;
}

int main(void)
{
    int failures = 0;

    failures += run(both_by_size, 4, "aabb", auto_settings);
    failures += run(both_by_size, 4, "aabb", strict_settings);
    failures += run(direct_by_size, 6, "aaabbb", auto_settings);
    failures += run(never_staged, 2, NULL, auto_settings);
    failures += run(never_staged, 4, "aabb", device_settings);
    failures += run(never_staged, 4, "aabb", forced_settings);
    failures += run(all_staged, 4, "aabb", wide_settings);
    failures += run(all_staged, 3, NULL, strict_settings);
    failures += run(all_staged, 5, "aaabb", strict_settings);
    failures += run(without_room, 4, "aabb", device_settings);
    failures += run(cases, 4, "aabb", auto_settings);
    failures += run(cases, 3, "aab", auto_settings);
    failures += run(not_alike, 3, NULL, unlike_settings);
    failures += run(not_alike, 4, "aabb", unlike_settings);
    return failures != 0;
}
