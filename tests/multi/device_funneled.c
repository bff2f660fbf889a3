/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Below MPI_THREAD_MULTIPLE the engine's thread leaves messages between hosts alone. So a direct
 * call on device memory, whose turn comes after that of an asynchronous one, has to do that one's
 * work itself, also another communicator's: nobody else may.
 *
 * The transport between the hosts is one of shared memory that refuses the engine's thread.
 */
#include "multi/coll_case.h"
#include "multi/device_job.h"

#include <string.h>
#include <unistd.h>

enum {
    COUNT = 5000,
    ROUNDS = 40
};

static int not_the_engine(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    return !is_engine;
}

/* Before anything is in flight. */
static void refuse_the_engine(tutti_comm_t *comm, tutti__xport_ops_t *ops)
{
    *ops = *comm->shm->ops;
    ops->may_progress = not_the_engine;
    comm->shm->ops = ops;
}

/* Let the asynchronous call go on for a while, on this rank alone. */
static void look(tutti_request_t *request, int times)
{
    int done = 0;

    for (int i = 0; i < times && !done; i++) {
        CHECK_OK(tutti_test(request, &done));
        usleep(300);
    }
}

static void one_round(rank_t *self, tutti_comm_t *async, float *a, int round)
{
    tutti_request_t *request;

    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_allreduce_async("x", a, a + COUNT, COUNT, TUTTI_FLOAT32, TUTTI_SUM, async, NULL,
                                   &request));
    /* One that has begun, and one that has come as far as it can. */
    look(request, self->rank % 2 ? 1 + round % 7 : 20 + round % 5);
    CHECK_OK(tutti_allreduce(a, a + 2 * COUNT, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_wait(request, -1));
}

static void funneled(rank_t *self)
{
    static tutti__xport_ops_t ops[PRETEND_RANKS], part_ops[PRETEND_RANKS]; /* until the end */
    tutti_comm_t *part;
    device_job_t job;

    device_begin(&job, self, 3 * COUNT * sizeof(float));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    refuse_the_engine(self->comm, &ops[self->rank]);
    refuse_the_engine(part, &part_ops[self->rank]);
    for (int i = 0; i < ROUNDS; i++)
        one_round(self, i % 2 ? part : self->comm, (float *)(void *)job.memory, i);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

static void settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.timeout_ms = 5000;
}

int main(void)
{
    job_t job = { .size = 4, .hosts = "aabb", .threads = 1, .fn = funneled, .settings = settings };

    return device_run_job(&job) != 0;
}
