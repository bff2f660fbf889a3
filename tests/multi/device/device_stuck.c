/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On one rank's device NCCL's abort never returns. All ranks still end with an error, within a
 * bound, and can end the communicator and the process. Another communicator's work continues, but
 * no new object is made on that device. A further test has an abort that returns late.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"
#include "node/nccl/nccl.h"

#include <unistd.h>

enum {
    RANKS = 3,
    STUCK = 1, /* this rank's device */
    COUNT = 1000,
    TIMEOUT_MS = 500,
    BOUND_MS = 30000 /* added to the deadline: the abort is waited for for 3 s */
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

/* From here on work on one device hangs until it is aborted, and then the abort hangs as well. */
static void begin_stuck(const device_job_t *job, tutti_comm_t *comm, int is_async)
{
    CHECK_OK(work(job, comm, is_async));
    CHECK_OK(tutti_barrier(comm));
    pretend_hang(STUCK, 0);
    pretend_hang_abort(STUCK);
    CHECK_OK(tutti_barrier(comm));
}

/* After this function the communicator ends and the process exits; the job's time limit applies to
   both. */
static void hint(rank_t *self)
{
    int is_async = self->arg != NULL;
    uint64_t begin;
    tutti_status_t status;
    device_job_t job;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    begin_stuck(&job, self->comm, is_async);
    ranks_set_deadline(self, self->comm, TIMEOUT_MS);
    begin = tutti__now_ns();
    do
        status = work(&job, self->comm, is_async);
    while (status == TUTTI_OK);
    CHECK_INT(status, TUTTI_ERR_TIMEOUT);
    CHECK(tutti__now_ns() - begin < (TIMEOUT_MS + BOUND_MS) * 1000000ull);
    /* No memory of the stuck device can be freed. */
    if (self->rank != STUCK)
        job.ops->free(job.memory);
}

/* End a group while its device is stuck. */
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

/* NCCL is stuck in a group, which is freed; the world continues, and no further group can be
   made. */
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
    CHECK_WORDS("an abort of NCCL there has not returned");
    sum_up(&job, self->comm);
}

/* The abort returns after the other ranks have stopped waiting. Then all calls work again. */
static void late(rank_t *self)
{
    tutti_comm_t *part;
    device_job_t job;

    device_begin(&job, self, 2 * COUNT * sizeof(float));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    end_part(&job, part);
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < 6000 && self->rank == STUCK && !tutti__nccl_is_stuck(STUCK); i++)
        usleep(10000);
    CHECK_INT(tutti__nccl_is_stuck(self->rank), self->rank == STUCK);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_hang(STUCK, -1);
    pretend_hang_abort(-1);
    for (int i = 0; i < 6000 && tutti__nccl_is_stuck(self->rank); i++)
        usleep(10000);
    CHECK(!tutti__nccl_is_stuck(self->rank));
    CHECK_OK(tutti_comm_free(part));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    sum_up(&job, part);
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

int main(void)
{
    job_t job = { .size = RANKS, .settings = device_settings };
    int failures = 0;

    for (int i = 0; i < 2 && ranks_can_fork(); i++) {
        job.fn = hint;
        job.arg = i > 0 ? &job : NULL;
        job.hosts = i > 0 ? "aab" : NULL;
        failures += device_run_job(&job);
    }
    job.hosts = NULL;
    job.fn = stuck_part;
    if (ranks_can_fork())
        failures += device_run_job(&job);
    job.fn = late;
    job.threads = 1;
    failures += device_run_job(&job);
    return failures != 0;
}
