/* SPDX-License-Identifier: BSD-3-Clause */
/* See pretend_job.h. */
#include "pretend_job.h"

#include <string.h>

int pretend_is_quick;

int run_pretend_jobs(rank_fn_t fn, int min_size)
{
    static const int sizes[] = { 1, 2, 3, 5 };
    int failures = 0;

    for (int threads = 0; threads < 2; threads++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s += pretend_is_quick ? 2 : 1) {
            job_t job = { .size = sizes[s], .threads = threads, .fn = fn };

            if (sizes[s] < min_size || (!threads && !ranks_can_fork()))
                continue;
            failures += pretend_prepare(sizes[s]) != 0;
            RUN_JOB(failures, &job);
            if (pretend_reset() != 0) {
                fprintf(stderr, "FAILED: %d ranks left something\n", sizes[s]);
                failures++;
            }
        }
    }
    return failures;
}

void gpu_id(gpu_t *gpu, tutti__nccl_id_t *ret_id)
{
    if (gpu->rank->rank == 0)
        CHECK_OK(gpu->ops->nccl_id(ret_id));
    CHECK_OK(tutti_broadcast(ret_id, sizeof(*ret_id), TUTTI_UINT8, 0, gpu->rank->comm));
}

tutti__nccl_t *gpu_open(gpu_t *gpu)
{
    tutti__nccl_id_t id;
    tutti__nccl_t *nccl;

    gpu_id(gpu, &id);
    CHECK_OK(
        gpu->ops->nccl_open(&id, (uint32_t)gpu->rank->rank, (uint32_t)gpu->rank->size, 0, &nccl));
    CHECK_STATUS(gpu->ops->nccl_poll(nccl), TUTTI__AGAIN);
    CHECK_OK(gpu_poll(gpu, nccl));
    /* A fast rank's planted mistake must not end the opening of a slow rank. */
    CHECK_OK(tutti_barrier(gpu->rank->comm));
    return nccl;
}

void gpu_begin(gpu_t *gpu, rank_t *self)
{
    memset(gpu, 0, sizeof(*gpu));
    gpu->rank = self;
    gpu->ops = pretend_device();
    CHECK_OK(gpu->ops->use(self->rank));
    CHECK_OK(gpu->ops->stream_make(1, &gpu->stream));
    CHECK_OK(gpu->ops->event_make(&gpu->event));
    gpu->nccl = gpu_open(gpu);
}

void gpu_end(gpu_t *gpu)
{
    /* A peer may still be using the NCCL communicator. */
    CHECK_OK(tutti_barrier(gpu->rank->comm));
    gpu->ops->nccl_close(gpu->nccl);
    gpu->ops->stream_drop(gpu->stream);
    gpu->ops->event_drop(gpu->event);
}

tutti_status_t gpu_poll(gpu_t *gpu, tutti__nccl_t *nccl)
{
    tutti_status_t status;

    while ((status = gpu->ops->nccl_poll(nccl)) == TUTTI__AGAIN)
        usleep(50);
    return status;
}

static tutti_status_t query(gpu_t *gpu)
{
    tutti_status_t status;

    while ((status = gpu->ops->query(gpu->event)) == TUTTI__AGAIN)
        usleep(50);
    return status;
}

tutti_status_t gpu_finish(gpu_t *gpu)
{
    tutti_status_t status = gpu->ops->record(gpu->event, gpu->stream);

    return status == TUTTI_OK ? query(gpu) : status;
}

tutti_status_t gpu_call(gpu_t *gpu, const tutti__nccl_call_t *calls, size_t ncalls)
{
    tutti_status_t status = gpu->ops->nccl_call(gpu->nccl, calls, ncalls, gpu->stream);

    if (status == TUTTI_OK)
        status = gpu_poll(gpu, gpu->nccl);
    return status == TUTTI_OK ? gpu_finish(gpu) : status;
}

static void expect_words(gpu_t *gpu, const char *words)
{
    if (strstr(tutti_last_error(), words) == NULL)
        ranks_fail(__FILE__, __LINE__, "rank %d: \"%s\" instead of \"%s\"", gpu->rank->rank,
                   tutti_last_error(), words);
}

void gpu_expect(gpu_t *gpu, tutti__nccl_t *nccl, const char *words)
{
    tutti_status_t status;

    while ((status = gpu->ops->nccl_poll(nccl)) == TUTTI__AGAIN || status == TUTTI_OK)
        usleep(50);
    CHECK_INT(status, TUTTI_ERR_TRANSPORT);
    expect_words(gpu, words);
}

void gpu_expect_event(gpu_t *gpu, const char *words)
{
    CHECK_INT(query(gpu), TUTTI_ERR_TRANSPORT);
    expect_words(gpu, words);
}

void plant_begin(plant_t *p, rank_t *self)
{
    gpu_begin(&p->gpu, self);
    CHECK_OK(p->gpu.ops->alloc(8 * PLANT_COUNT * (size_t)self->size, &p->buf));
    CHECK_OK(tutti_barrier(self->comm));
}

void plant_end(plant_t *p)
{
    gpu_end(&p->gpu);
    p->gpu.ops->free(p->buf);
}

tutti__nccl_call_t plant_allreduce(const plant_t *p)
{
    return (tutti__nccl_call_t){ TUTTI__NCCL_ALLREDUCE, p->buf,    p->buf, PLANT_COUNT,
                                 TUTTI_INT32,           TUTTI_SUM, 0 };
}

int plant_launch(plant_t *p, const tutti__nccl_call_t *call)
{
    const tutti__device_ops_t *ops = p->gpu.ops;

    return ops->nccl_call(p->gpu.nccl, call, 1, p->gpu.stream) == TUTTI_OK &&
           gpu_poll(&p->gpu, p->gpu.nccl) == TUTTI_OK &&
           ops->record(p->gpu.event, p->gpu.stream) == TUTTI_OK;
}
