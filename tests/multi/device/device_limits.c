/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of containers. If /dev/shm is full on one rank when NCCL connects, all ranks get the error
 * at once, with NCCL's text, although NCCL only waits on the other ranks. If no memory can be
 * locked (ulimit -l 0), all calls still work.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"

#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    RANKS = 3,
    BOUND_MS = 40000,
    COUNT = 100000
};

/* ---- /dev/shm ---- */

static void add_on(const device_job_t *job, tutti_comm_t *comm)
{
    int32_t one = 1;

    pretend_write(job->memory, &one, sizeof(one));
    CHECK_OK(tutti_allreduce(job->memory, job->memory, 1, TUTTI_INT32, TUTTI_SUM, comm));
    pretend_read(&one, job->memory, sizeof(one));
    CHECK_INT(one, tutti_size(comm));
}

static void no_space(rank_t *self)
{
    uint64_t begin = tutti__now_ns();
    tutti_comm_t *part = NULL;
    device_job_t job;

    device_begin(&job, self, 64);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_no_space(1);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_STATUS(tutti_comm_split(self->comm, 0, 0, &part), TUTTI_ERR_TRANSPORT);
    CHECK_WORDS("rank 1: ");
    CHECK_WORDS("/dev/shm/nccl-pretend: No space left on device");
    CHECK(part == NULL);
    CHECK(tutti__now_ns() - begin < BOUND_MS * 1000000ull);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_no_space(-1);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    add_on(&job, part);
    CHECK_OK(tutti_comm_free(part));
    add_on(&job, self->comm);
    device_end(&job);
}

/* ---- ulimit -l ---- */

/* The limit does not apply to a process that may lock memory, so that capability is dropped as
   well. Returns 0 on success. */
static int forbid_locking(void)
{
    const struct rlimit none = { 0, 0 };
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    char page[4096];

    memset(data, 0, sizeof(data));
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || syscall(SYS_capget, &header, data) != 0)
        return 1;
    data[CAP_IPC_LOCK / 32].effective &= ~(1u << CAP_IPC_LOCK % 32);
    if (syscall(SYS_capset, &header, data) != 0)
        return 1;
    return syscall(SYS_mlock, page, sizeof(page)) == 0; /* sanitizers make mlock do nothing */
}

/* Short and long calls on host memory, on the device, and in a group. */
static void locks_nothing(rank_t *self)
{
    int32_t *ones = malloc(COUNT * sizeof(*ones));
    tutti_comm_t *part;
    device_job_t job;

    device_begin(&job, self, 64);
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    CHECK_OK(tutti_allreduce(ones, ones, COUNT, TUTTI_INT32, TUTTI_SUM, self->comm));
    CHECK_INT(ones[COUNT - 1], self->size);
    free(ones);
    case_works(self);
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    add_on(&job, part);
    CHECK_OK(tutti_comm_free(part));
    add_on(&job, self->comm);
    device_end(&job);
}

int main(void)
{
    int failures = 0;

    failures += device_run(no_space, RANKS, NULL, 1);
    failures += device_run(no_space, RANKS, "aab", 1);
    /* This limit holds for the rest of the process, so this test is the last one. */
    if (forbid_locking() != 0) {
        fprintf(stderr, "memory can be locked all the same; the rest is skipped\n");
        return failures != 0 ? 1 : 77;
    }
    failures += device_run(locks_nothing, RANKS, "aab", 1);
    if (ranks_can_fork())
        failures += device_run(locks_nothing, RANKS, NULL, 0);
    return failures != 0;
}
