/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's abort that never returns, on one rank's device: all ranks end with an error all the same,
 * within a bound, and get through the end of the communicator and of the process; another
 * communicator's work goes on, but nothing new is made on that device. And one that returns late.
 */
#include "multi/coll_case.h"
#include "multi/device_job.h"

#include "base/time.h"
#include "node/nccl/nccl.h"

#include <unistd.h>

enum {
    RANKS = 3,
    STUCK = 1, /* this rank's device */
    COUNT = 1000,
    TIMEOUT_MS = 500,
    BOUND_MS = 6000 /* beyond it: the abort is waited for for 3 s */
};

static void sum_up(const device_job_t *job, tutti_comm_t *comm)
{
    char *at = job->memory + COUNT * sizeof(float);
    int32_t one = 1;

    pretend_write(at, &one, sizeof(one));
    CHECK_OK(tutti_allreduce(at, at, 1, TUTTI_INT32, TUTTI_SUM, comm));
    pretend_read(&one, at, sizeof(one));
    CHECK_INT(one, tutti_size(comm));
}

static tutti_status_t work(const device_job_t *job, tutti_comm_t *comm, int is_async)
{
    tutti_request_t *request;
    tutti_status_t status;

    if (!is_async)
        return tutti_allreduce(job->memory, job->memory, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm);
    status = tutti_allreduce_async("x", job->memory, job->memory, COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                   comm, NULL, &request);
    return status == TUTTI_OK ? tutti_wait(request, -1) : status;
}

/* From here on work of one device hangs until it is aborted, which hangs there, too. */
static void begin_stuck(const device_job_t *job, tutti_comm_t *comm, int is_async)
{
    CHECK_OK(work(job, comm, is_async));
    CHECK_OK(tutti_barrier(comm));
    pretend_hang(STUCK, 0);
    pretend_hang_abort(STUCK);
    CHECK_OK(tutti_barrier(comm));
}

/* The end, and what process exit does, come after this; the job's time limit is for them. */
static void stuck(rank_t *self)
{
    int is_async = self->arg != NULL;
    uint64_t begin;
    tutti_status_t status;
    device_job_t job;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    begin_stuck(&job, self->comm, is_async);
    begin = tutti__now_ns();
    do
        status = work(&job, self->comm, is_async);
    while (status == TUTTI_OK);
    CHECK_INT(status, TUTTI_ERR_TIMEOUT);
    CHECK(tutti__now_ns() - begin < (TIMEOUT_MS + BOUND_MS) * 1000000ull);
    /* Memory there can be freed by none. */
    if (self->rank != STUCK)
        job.ops->free(job.memory);
}

/* A part that is ended while it is stuck. */
static void end_part(const device_job_t *job, tutti_comm_t *part)
{
    uint64_t begin = tutti__now_ns();
    tutti_request_t *request;

    begin_stuck(job, part, 1);
    CHECK_OK(tutti_allreduce_async("y", job->memory, job->memory, COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                   part, NULL, &request));
    usleep(50000);
    if (job->self->rank == 0)
        CHECK_OK(tutti_abort(part, "enough"));
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_PEER_LOST);
    CHECK(tutti__now_ns() - begin < BOUND_MS * 1000000ull);
}

/* In a part, which is freed; the world goes on, and nobody gets another part. */
static void stuck_part(rank_t *self)
{
    tutti_comm_t *part, *another = NULL;
    device_job_t job;
    uint64_t begin;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    sum_up(&job, self->comm);
    end_part(&job, part);
    pretend_hang(STUCK, -1);
    sum_up(&job, self->comm);
    begin = tutti__now_ns();
    CHECK_OK(tutti_comm_free(part));
    CHECK(tutti__now_ns() - begin < BOUND_MS * 1000000ull);
    sum_up(&job, self->comm);
    CHECK_STATUS(tutti_comm_split(self->comm, 0, 0, &another), TUTTI_ERR_SYSTEM);
    check_words("an abort of NCCL there has not returned");
    sum_up(&job, self->comm);
}

/* The abort returns when others have waited for it in vain: all is as ever. */
static void late(rank_t *self)
{
    tutti_comm_t *part;
    device_job_t job;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    end_part(&job, part);
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < 500 && self->rank == STUCK && !tutti__nccl_is_stuck(STUCK); i++)
        usleep(10000);
    CHECK_INT(tutti__nccl_is_stuck(self->rank), self->rank == STUCK);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_hang(STUCK, -1);
    pretend_hang_abort(-1);
    for (int i = 0; i < 500 && tutti__nccl_is_stuck(self->rank); i++)
        usleep(10000);
    CHECK(!tutti__nccl_is_stuck(self->rank));
    CHECK_OK(tutti_comm_free(part));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    sum_up(&job, part);
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

static void settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.timeout_ms = TIMEOUT_MS;
}

int main(void)
{
    job_t job = { .size = RANKS, .timeout_s = 30, .settings = settings };
    int failures = 0;

    for (int i = 0; i < 2 && ranks_can_fork(); i++) {
        job.fn = stuck;
        job.arg = i > 0 ? &job : NULL;
        job.hosts = i > 0 ? "aab" : NULL;
        failures += device_run_job(&job);
    }
    job.hosts = NULL;
    job.fn = stuck_part;
    job.settings = device_settings;
    if (ranks_can_fork())
        failures += device_run_job(&job);
    job.fn = late;
    job.threads = 1;
    failures += device_run_job(&job);
    return failures != 0;
}
