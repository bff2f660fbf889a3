/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_ALGORITHM=allreduce:nccl-flat in cases that must fail: calls that differ between hosts;
 * ranks that die before, in and after the launch sequencer (call/sequencer.h); and jobs that cannot
 * open this algorithm.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define FLAT "allreduce:nccl-flat"
#define MEMORY 8192

/* ---- calls that differ ---- */

/* All ranks contribute 1. */
static void check_works(rank_t *self, char *memory)
{
    int32_t x = 1;

    pretend_write(memory, &x, sizeof(x));
    CHECK_OK(tutti_allreduce(memory, memory, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
    pretend_read(&x, memory, sizeof(x));
    CHECK_INT(x, self->size);
}

static void mismatch(rank_t *self)
{
    size_t count = self->rank == self->size - 1 ? 11 : 10;
    tutti_status_t status;
    device_job_t job;

    device_begin(&job, self, MEMORY);
    check_works(self, job.memory);
    CHECK_OK(tutti_barrier(self->comm));
    status = tutti_allreduce(job.memory, job.memory, count, TUTTI_INT32, TUTTI_SUM, self->comm);
    if (!self->inside->conf.shared.compare) {
        /* The difference is detected in the launch sequencer, not by NCCL. Some ranks have already
           left the launch sequencer with an error. */
        CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER_LOST);
        job.ops->free(job.memory);
        return;
    }
    CHECK_INT(status, TUTTI_ERR_MISMATCH);
    CHECK_WORDS("rank 0 has");
    check_works(self, job.memory);
    device_end(&job);
}

/* ---- deaths ---- */

static int death_us;
static atomic_uint slow_aborts;

/* Counts the aborts for which the library has stopped to wait. */
static void count_slow(void *arg, tutti_log_level_t level, const char *text)
{
    (void)arg, (void)level;
    if (strstr(text, "aborting NCCL") != NULL)
        atomic_fetch_add(&slow_aborts, 1);
}

/* Rank 1 dies some time after the others have begun: in the launch sequencer, in the launch, in
   flight, or with a device that hangs (death_us 0). */
static void die(rank_t *self)
{
    struct itimerval timer = { { 0, 0 }, { 0, death_us > 0 ? death_us : 300000 } };
    tutti_status_t status;
    uint64_t begin = tutti__now_ns();
    tutti_request_t *request;
    device_job_t job;
    char *other;

    CHECK_OK(tutti_log_set_callback(count_slow, NULL));
    device_begin(&job, self, MEMORY);
    other = job.memory + MEMORY / 2;
    check_works(self, job.memory);
    /* After this barrier all ranks have begun. A rank that is slow to leave the barrier may already
       get the error that rank 1 is lost. */
    status = tutti_barrier(self->comm);
    if (death_us == 0)
        pretend_hang(self->rank, 0);
    if (self->rank == 1) {
        signal(SIGALRM, SIG_DFL);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
    while (status == TUTTI_OK) {
        tutti_status_t waited;

        status = tutti_allreduce_async("t", other, other, 10, TUTTI_INT32, TUTTI_SUM, self->comm,
                                       NULL, &request);
        if (status != TUTTI_OK)
            break;
        status = tutti_allreduce(job.memory, job.memory, 100, TUTTI_INT32, TUTTI_SUM, self->comm);
        waited = tutti_wait(request, -1);
        status = status == TUTTI_OK ? waited : status;
    }
    CHECK_INT(status, TUTTI_ERR_PEER_LOST);
    CHECK(tutti__now_ns() - begin < 50000000000u);
    if (death_us > 0)
        CHECK_INT((int)atomic_load(&slow_aborts), 0);
    job.ops->free(job.memory);
}

static int run_deaths(void)
{
    static const int after_us[] = { 0, 1, 500, 3000, 10000, 25000 };
    job_t job = { .size = 4, .hosts = "aabb", .algorithm = FLAT, .fn = die, .killed = 1 << 1 };
    int failures = 0;

    for (size_t i = 0; i < COUNT_OF(after_us); i++) {
        death_us = after_us[i];
        failures += device_run_job(&job);
    }
    return failures;
}

/* ---- opening ---- */

typedef struct {
    const char *words;
    int has_device, is_strict, is_shared, number;
} refusal_t;

/* All ranks get an error, and no object of the device is left. */
static void cannot_open(rank_t *self)
{
    const refusal_t *refusal = self->arg;
    tutti__comm_t *comm = NULL;
    tutti__conf_t conf;
    tutti__meet_t meet;
    char name[64];

    tutti__conf_defaults(&conf);
    if (refusal->has_device)
        device_settings(&conf, self->rank);
    if (refusal->is_shared)
        conf.device_id = 0;
    conf.shared.strict = refusal->is_strict;
    conf.log_level = TUTTI__LOG_NONE;
    snprintf(conf.host_id, sizeof(conf.host_id), "host-%d", self->rank);
    snprintf(conf.shared.algorithm, sizeof(conf.shared.algorithm), FLAT);
    snprintf(name, sizeof(name), "tutti-flat-%d-%d", ranks_tag(), refusal->number);
    CHECK_OK(tutti__meet_local(name, (uint32_t)self->rank, (uint32_t)self->size, 60000, &meet));
    CHECK_STATUS(tutti__comm_open(&meet, NULL, &conf, &comm), TUTTI_ERR_UNSUPPORTED);
    CHECK_WORDS(FLAT);
    CHECK_WORDS(refusal->words);
}

static int run_refusals(void)
{
    static refusal_t refusals[] = {
        { "there is no NCCL", 1, 0, 0, 1 },
        { "there is no device", 0, 0, 0, 2 },
        { "TUTTI_DETERMINISTIC=strict", 1, 1, 0, 3 },
        { "ranks 0 and 1 use the same GPU", 1, 0, 1, 4 },
    };
    int failures = 0;

    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        job_t job = { .size = 2, .threads = 1, .fn = cannot_open, .arg = &refusals[i] };

        /* The first refusal precedes all preparation, so there is no NCCL. */
        if (i > 0)
            failures += pretend_prepare(2) != 0;
        tutti__module_lend_device(pretend_device());
        RUN_JOB(failures, &job);
        failures += pretend_reset() != 0;
    }
    return failures;
}

/* ---- jobs ---- */

int main(void)
{
    job_t differ = { .size = 4, .hosts = "aabb", .algorithm = FLAT, .threads = 1, .fn = mismatch };
    int failures = run_refusals();

    failures += device_run_job(&differ);
    differ.settings = device_uncompared;
    failures += device_run_job(&differ);
    if (ranks_can_fork())
        failures += run_deaths();
    return failures != 0;
}
