/* SPDX-License-Identifier: BSD-3-Clause */
/* See device_job.h. */
#include "multi/device/device_job.h"

#include <stdlib.h>

void device_settings(tutti__conf_t *conf, int rank)
{
    snprintf(conf->device, sizeof(conf->device), "pretend");
    conf->device_id = rank;
    conf->shared.stage_bytes = 65536;
    conf->shared.device_chunk_bytes = 4096;
    conf->shared.fusion_bytes = 65536;
    conf->shared.chunk_bytes = 4096;
    conf->shared.device_staged_bytes = 0; /* device_choice.c tests other values */
    /* A developer may set TUTTI_TEST_STREAM_WAIT, for tests that do not select the kind of wait. */
    conf->shared.stream_wait = getenv("TUTTI_TEST_STREAM_WAIT") != NULL;
}

void device_quiet(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->log_level = TUTTI__LOG_NONE;
}

void device_uncompared(tutti__conf_t *conf, int rank)
{
    device_quiet(conf, rank);
    conf->shared.compare = 0;
}

int device_run_job(job_t *job)
{
    int failures = pretend_prepare(job->size) != 0, left;

    if (job->settings == NULL)
        job->settings = device_settings;
    tutti__module_lend_device(pretend_device());
    RUN_JOB(failures, job);
    left = pretend_reset();
    if (left != 0)
        fprintf(stderr, "FAILED: %d ranks left %d things on devices\n", job->size, left);
    return failures + (left != 0);
}

int device_run(rank_fn_t fn, int size, const char *hosts, int threads)
{
    job_t job = { .size = size, .hosts = hosts, .threads = threads, .fn = fn };

    return device_run_job(&job);
}

void device_begin(device_job_t *job, rank_t *self, size_t bytes)
{
    void *memory;

    *job = (device_job_t){ .self = self, .ops = pretend_device() };
    CHECK_OK(job->ops->use(self->rank));
    CHECK_OK(job->ops->alloc(bytes, &memory));
    job->memory = memory;
}

void device_end(device_job_t *job)
{
    CHECK_OK(tutti_barrier(job->self->comm));
    job->ops->free(job->memory);
}

void device_forbid_alloc(rank_t *self, int forbidden)
{
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_INT(pretend_counts(self->rank, PRETEND_FORBIDDEN), 0);
    pretend_forbid_alloc(forbidden);
    CHECK_OK(tutti_barrier(self->comm));
}
