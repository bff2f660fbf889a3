/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_CMA_BYTES: ranks that read each other's memory. All collectives with private and shared
 * buffers, in place and not; a rank whose kernel refuses, so that all copy; from which size on; a
 * buffer that cannot be read.
 */
#include "multi/coll_case.h"
#include "node/shm/shm.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Of this rank. */
static __thread struct {
    int refuses;
    size_t most, bytes; /* in one call; in all */
} kernel = { 0, 1000, 0 };

/* In the C library's stead. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto,
                         const struct iovec *from, unsigned long nfrom, unsigned long flags)
{
    struct iovec part = *to;
    ssize_t n;

    if (kernel.refuses) {
        errno = EPERM;
        return -1;
    }
    part.iov_len = TUTTI__MIN(part.iov_len, kernel.most);
    n = syscall(SYS_process_vm_readv, pid, &part, nto, from, nfrom, flags);
    kernel.bytes += n > 0 ? (size_t)n : 0;
    return n;
}

static void pulls(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.cma_bytes = 0;
}

static void second_refuses(tutti__conf_t *conf, int rank)
{
    pulls(conf, rank);
    kernel.refuses = rank == 1;
}

/* Did this rank read anything for a large call of this kind? */
static int reads(area_t *area, tutti_call_kind_t kind)
{
    case_t c = { kind, TUTTI_INT32, TUTTI_SUM, 9001, 0, APART, PRIVATE };
    size_t before = kernel.bytes;

    case_run(area, &c, TUTTI_OK);
    return kernel.bytes > before;
}

static const tutti_call_kind_t pulled_kinds[] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE,
                                                  TUTTI_CALL_BROADCAST, TUTTI_CALL_REDUCE_SCATTER,
                                                  TUTTI_CALL_ALLGATHER, TUTTI_CALL_ALLTOALL };

static void all_ways(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < COUNT_OF(pulled_kinds) && self->inside->shape.nhosts == 1; k++) {
        int is_root = pulled_kinds[k] == TUTTI_CALL_BROADCAST && self->rank == 0;

        CHECK_INT(reads(&area, pulled_kinds[k]), self->size > 1 && !is_root);
    }
    for (size_t k = 0; k < COUNT_OF(pulled_kinds); k++)
        case_in_all_ways(&area, pulled_kinds[k]);
    area_close(&area);
}

/* Since one may not. */
static void nobody_reads(rank_t *self)
{
    area_t area;

    CHECK(((tutti__shm_t *)self->inside->node)->pull_bytes == UINT64_MAX);
    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < COUNT_OF(pulled_kinds); k++)
        CHECK_INT(reads(&area, pulled_kinds[k]), 0);
    area_close(&area);
}

static void threshold(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.cma_bytes = 1 << 20;
}

static void from_a_size_on(rank_t *self)
{
    area_t area;
    case_t c = { TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT32, TUTTI_SUM, (1 << 18) - 1, 0, APART, PRIVATE };

    area_open(&area, self, 2 << 20);
    kernel.most = SIZE_MAX;
    kernel.bytes = 0;
    case_run(&area, &c, TUTTI_OK);
    CHECK_INT(kernel.bytes, 0);
    c.count++;
    case_run(&area, &c, TUTTI_OK);
    CHECK(kernel.bytes >= 1 << 19);
    area_close(&area);
}

/* Rank 1's half that rank 0 reduces is not readable, neither for rank 1 itself. arg: shared, how
   many ranks are through; a slow one may read the other's memory as long as it is not. */
static void no_buffer(rank_t *self)
{
    atomic_int *through = self->arg;
    size_t half = 1 << 16;
    char *buf = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static char result[1 << 17];
    tutti_status_t status;

    CHECK(buf != MAP_FAILED);
    CHECK(self->rank != 1 || mprotect(buf, half, PROT_NONE) == 0);
    status = tutti_allreduce(buf, result, 2 * half, TUTTI_UINT8, TUTTI_SUM, self->comm);
    CHECK_INT(status, TUTTI_ERR_SYSTEM);
    CHECK(strstr(tutti_last_error(), "memory of rank 1") != NULL);
    atomic_fetch_add(through, 1);
    while (atomic_load(through) < self->size)
        usleep(1000);
    munmap(buf, 2 * half);
}

int main(void)
{
    job_t job = { .settings = pulls };
    int failures = 0;

    for (job.size = 1; job.size <= 5; job.size += 1 + (job.size == 3)) {
        for (job.threads = !ranks_can_fork(); job.threads < 2; job.threads++) {
            job.settings = pulls;
            job.fn = all_ways;
            RUN_JOB(failures, &job);
            job.settings = second_refuses;
            job.fn = nobody_reads;
            if (job.size > 1)
                RUN_JOB(failures, &job);
            job.settings = threshold;
            job.fn = from_a_size_on;
            if (job.size == 2)
                RUN_JOB(failures, &job);
        }
    }
    job = (job_t){ .size = 2, .settings = pulls, .fn = no_buffer };
    job.arg = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    failures += job.arg == MAP_FAILED;
    if (ranks_can_fork() && failures == 0)
        RUN_JOB(failures, &job);
    job = (job_t){ .size = 5, .hosts = "aabab", .settings = pulls, .fn = all_ways };
    job.threads = !ranks_can_fork();
    RUN_JOB(failures, &job);
    return failures != 0;
}
