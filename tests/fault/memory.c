/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If tutti_mem_alloc finds no memory, all ranks get the error, no memory leaks, and the
 * communicator stays usable.
 */
#include "fault/fault.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    MIB = 1 << 20
};

/* The communicator works as before. */
static void works(rank_t *self)
{
    enum {
        N = 100000
    };
    float *x;
    tutti_request_t *request;
    void *ptr;

    CHECK_OK(tutti_mem_alloc(self->comm, N * sizeof(*x), &ptr));
    x = ptr;
    for (int i = 0; i < N; i++) {
        CHECK(x[i] == 0);
        x[i] = (float)(i % 100 + self->rank);
    }
    CHECK_OK(tutti_allreduce(x, x, N, TUTTI_FLOAT32, TUTTI_MAX, self->comm));
    CHECK_OK(
        tutti_allreduce_async("x", x, x, N, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    for (int i = 0; i < N; i++)
        CHECK_INT(x[i], (i % 100 + self->size - 1) * self->size);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_mem_free(self->comm, ptr));
}

/* One rank requests more memory than exists; the others request little memory. */
static void refused(rank_t *self, int who, size_t bytes)
{
    void *ptr = self;

    CHECK_STATUS(tutti_mem_alloc(self->comm, self->rank == who ? bytes : MIB, &ptr),
                 TUTTI_ERR_NO_MEMORY);
    CHECK(ptr == self);
    CHECK(tutti_last_error()[0] != '\0');
    works(self);
}

/* On one rank files cannot grow, so its arena cannot grow. The kernel sends a signal at this limit,
   which must not kill the process. */
static void limited(rank_t *self)
{
    struct rlimit limit;
    int who = self->size / 2;

    CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
    if (self->rank == who) {
        struct rlimit small = { 48 * MIB, limit.rlim_max };

        CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    for (int i = 0; i < 3; i++)
        refused(self, who, 200 * MIB);
    if (self->rank == who)
        CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    works(self);
}

/* Sizes: more bytes than there are addresses, more than the machine has, and sizes whose sum
   overflows. */
static void absurd(rank_t *self)
{
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 4095, (size_t)1 << 62, (size_t)1 << 45 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        refused(self, self->size - 1, sizes[i]);
        refused(self, 0, sizes[i]);
    }
}

/* After a refused call no rank keeps memory: rank 0 requests too much, so the other ranks must free
   their 8 MiB. */
static void not_kept(rank_t *self)
{
    long before, after;

    before = proc_status("RssShmem:");
    for (int i = 0; i < 30; i++) {
        size_t bytes = self->rank == 0 ? SIZE_MAX / 2 : 8 * MIB;
        void *ptr = NULL;

        CHECK_STATUS(tutti_mem_alloc(self->comm, bytes, &ptr), TUTTI_ERR_NO_MEMORY);
    }
    after = proc_status("RssShmem:");
    if (after - before > 32 * 1024)
        ranks_fail(__FILE__, __LINE__, "shared memory grew from %ld to %ld KiB", before, after);
    works(self);
}

/* Zero bytes, double free, foreign pointers, and an allocation that is freed only when the
   communicator ends. */
static void oddities(rank_t *self)
{
    void *ptr = self, *none = self;
    char own;

    CHECK_OK(tutti_mem_alloc(self->comm, 0, &none));
    CHECK(none == NULL);
    CHECK_OK(tutti_mem_free(self->comm, NULL));
    CHECK_OK(tutti_mem_alloc(self->comm, self->rank == 0 ? 0 : 5, &ptr));
    CHECK((ptr == NULL) == (self->rank == 0));
    CHECK_INT((uintptr_t)ptr % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    CHECK_STATUS(tutti_mem_free(self->comm, &own), TUTTI_ERR_INVALID_ARGUMENT);
    if (ptr != NULL)
        CHECK_STATUS(tutti_mem_free(self->comm, (char *)ptr + 1), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_mem_free(self->comm, ptr));
    if (ptr != NULL)
        CHECK_STATUS(tutti_mem_free(self->comm, ptr), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_mem_alloc(self->comm, MIB, &ptr));
    works(self);
}

int main(void)
{
    static const rank_fn_t fns[] = { limited, absurd, not_kept, oddities };
    static const char *const hosts[] = { NULL, NULL, NULL, "aab" };
    static const int sizes[] = { 1, 2, 5, 3 };
    int failures = 0;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    board_open();
    for (size_t f = 0; f < sizeof(fns) / sizeof(fns[0]); f++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            job_t job = { .size = sizes[i], .hosts = hosts[i], .fn = fns[f] };

            if (ranks_run(&job) != 0) {
                fprintf(stderr, "FAILED: part %zu, %d ranks, hosts %s\n", f, sizes[i],
                        hosts[i] != NULL ? hosts[i] : "one");
                failures++;
            }
        }
    }
    return failures != 0;
}
