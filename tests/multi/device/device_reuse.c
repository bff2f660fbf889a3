/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * After a call has returned an error, its buffers may be reused at once: no queued device work may
 * write there after that.
 *
 * A thread of rank 0 ends the communicator at a random time while calls run on slow devices. Then
 * the ranks write a pattern into all of their memory, and check that it stays.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include <tutti/cuda.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COUNT = 1000,
    TENSORS = 6,
    BYTES = 2 * TENSORS * COUNT * 4,
    MOST_US = 8000, /* delay of a piece of work; then all queued work of one call takes less than
                       100 ms */
    ROUNDS = 6
};

typedef struct {
    tutti_comm_t *comm;
    useconds_t us;
} killer_t;

static void *kill_later(void *arg)
{
    const killer_t *killer = arg;

    usleep(killer->us);
    tutti_abort(killer->comm, "enough");
    return NULL;
}

/* ---- calls until there is an error ---- */

static tutti_status_t direct(tutti_comm_t *comm, float *a, int round)
{
    float *b = a + TENSORS * COUNT;

    switch (round % 4) {
    case 0: /* NCCL, followed by a division */
        return tutti_allreduce(a, b, COUNT, TUTTI_INT32, TUTTI_AVG, comm);
    case 1: /* staged */
        return tutti_allreduce(a, b, COUNT, TUTTI_INT16, TUTTI_BXOR, comm);
    case 2: /* the content of its own part is restored */
        return tutti_reduce_scatter(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm);
    default:
        return tutti_alltoall(a, a, COUNT, TUTTI_FLOAT32, comm);
    }
}

static tutti_status_t asynchronous(tutti_comm_t *comm, float *a, int round)
{
    tutti_request_t *requests[TENSORS];
    tutti_status_t status = TUTTI_OK, waited;
    int is_staged = round % 3 == 1;
    char name[16];
    int n = 0;

    for (; n < TENSORS && status == TUTTI_OK; n++) {
        tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

        /* Two calls with equal length and scale are usually in one bucket. */
        options.postscale = !is_staged && n % 2 ? 0.5 : 0;
        snprintf(name, sizeof(name), "t%d", n);
        status =
            tutti_allreduce_async(name, a + n * COUNT, a + (TENSORS + n) * COUNT, COUNT,
                                  is_staged ? TUTTI_INT16 : TUTTI_FLOAT32,
                                  is_staged ? TUTTI_BXOR : TUTTI_SUM, comm, &options, &requests[n]);
        if (status != TUTTI_OK)
            break;
    }
    for (int i = 0; i < n; i++) {
        waited = tutti_wait(requests[i], -1);
        if (status == TUTTI_OK)
            status = waited;
    }
    return status;
}

/* ---- ranks ---- */

static void check_stays(rank_t *self, char *memory)
{
    static const char pattern = 0x5a;
    char *host = malloc(BYTES);

    memset(host, pattern, BYTES);
    pretend_write(memory, host, BYTES);
    usleep(150000);
    pretend_read(host, memory, BYTES);
    for (int i = 0; i < BYTES; i++)
        if (host[i] != pattern)
            ranks_fail(__FILE__, __LINE__, "rank %d: byte %d was written after the error",
                       self->rank, i);
    free(host);
}

static void one_round(rank_t *self)
{
    int round = *(int *)self->arg;
    killer_t killer = { self->comm, (useconds_t)(20000 + 7919 * round % 60000) };
    tutti_status_t status = TUTTI_OK;
    device_job_t job;
    pthread_t thread;

    device_begin(&job, self, BYTES);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays((unsigned)round + 1, MOST_US);
    if (self->rank == 0)
        CHECK_INT(pthread_create(&thread, NULL, kill_later, &killer), 0);
    while (status == TUTTI_OK)
        status = round / 4 % 2 ? asynchronous(self->comm, (float *)(void *)job.memory, round)
                               : direct(self->comm, (float *)(void *)job.memory, round);
    check_stays(self, job.memory);
    if (self->rank == 0)
        CHECK_INT(pthread_join(thread, NULL), 0);
    job.ops->free(job.memory);
}

int main(void)
{
    int failures = 0;

    for (int round = 0; round < 8 * ROUNDS; round++) {
        job_t job = { .size = 3,
                      .hosts = round % 3 == 2 ? "aab" : NULL,
                      .threads = 1,
                      .fn = one_round,
                      .settings = device_quiet,
                      .arg = &round };

        failures += device_run_job(&job);
    }
    return failures != 0;
}
