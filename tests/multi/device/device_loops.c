/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators with a device that are made and ended many times in one process, with calls of all
 * kinds in each: no object of the device, no descriptor and no thread is left, and the number of
 * mappings does not grow after the first rounds.
 */
#include "multi/direct/coll_case.h"
#include "entries.h"
#include "multi/device/device_job.h"

#include <tutti/cuda.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COUNT = 1000,
    PARTS = 50,
    WORLDS = 50,
    WARM = 5 /* rounds until caches and pools have their final size */
};

/* ---- the process's resources ---- */

typedef struct {
    int descriptors, threads, mappings;
} holdings_t;

static holdings_t look(void)
{
    holdings_t has = { open_files(), count_entries("/proc/self/task"), 0 };
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];

    /* Count only shared mappings, which are the library's: heaps and stacks of threads vary with
       malloc. */
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        has.mappings += strstr(line, "memfd:") != NULL;
    if (file != NULL)
        fclose(file);
    return has;
}

static int has_more(const holdings_t *before, const char *what)
{
    holdings_t now = look();

    /* A joined thread may exist for another moment. */
    for (int i = 0; i < 12000 && now.threads > before->threads; i++) {
        usleep(5000);
        now = look();
    }
    if (now.descriptors <= before->descriptors && now.threads <= before->threads &&
        now.mappings <= before->mappings)
        return 0;
    fprintf(stderr, "FAILED: %s: %d descriptors, %d threads, %d mappings; before %d, %d, %d\n",
            what, now.descriptors, now.threads, now.mappings, before->descriptors, before->threads,
            before->mappings);
    return 1;
}

/* ---- calls ---- */

/* Direct and asynchronous calls, by NCCL, staged, and queued. The last calls are in flight at the
   end. */
static void call_all(tutti_comm_t *comm, float *a, int n)
{
    tutti_request_t *request;

    CHECK_OK(tutti_allreduce(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    CHECK_OK(tutti_scan(a, a, COUNT, TUTTI_INT16, TUTTI_BXOR, comm));
    CHECK_OK(
        tutti_allreduce_async("x", a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    CHECK_OK(
        tutti_allreduce_async("y", a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request));
    CHECK_OK(tutti_cuda_wait(request, -1, NULL));
    if (n % 2)
        CHECK_OK(tutti_cuda_allreduce(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL));
}

static void parts(rank_t *self)
{
    holdings_t before = { 0, 0, 0 };
    device_job_t job;

    device_begin(&job, self, COUNT * sizeof(float));
    for (int i = 0; i < PARTS; i++) {
        tutti_comm_t *part;

        CHECK_OK(tutti_comm_split(self->comm, i % 3 == 0 ? self->rank % 2 : 0, 0, &part));
        call_all(part, (float *)(void *)job.memory, i);
        CHECK_OK(tutti_comm_free(part));
        CHECK_OK(tutti_barrier(self->comm));
        if (i == WARM && self->rank == 0)
            before = look();
        CHECK_OK(tutti_barrier(self->comm));
    }
    /* Threads of one process: the last barrier comes after all frees. */
    if (self->rank == 0)
        CHECK_INT(has_more(&before, "parts"), 0);
    CHECK_OK(tutti_barrier(self->comm));
    device_end(&job);
}

static void one_world(rank_t *self)
{
    device_job_t job;

    device_begin(&job, self, COUNT * sizeof(float));
    call_all(self->comm, (float *)(void *)job.memory, *(int *)self->arg);
    device_end(&job);
}

static int worlds(const char *hosts)
{
    holdings_t before = { 0, 0, 0 };
    int failures = 0;

    for (int i = 0; i < WORLDS; i++) {
        job_t job = { .size = 3, .hosts = hosts, .threads = 1, .fn = one_world, .arg = &i };

        failures += device_run_job(&job);
        if (i == WARM)
            before = look();
    }
    return failures + has_more(&before, "worlds");
}

int main(void)
{
    int failures = 0;

    failures += device_run(parts, 3, NULL, 1);
    failures += device_run(parts, 3, "aab", 1);
    failures += worlds(NULL);
    failures += worlds("aab");
    return failures != 0;
}
