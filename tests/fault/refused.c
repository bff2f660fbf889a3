/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel or a container's seccomp filter that refuses epoll_pwait2: older Docker profiles return
 * EPERM, Linux before 5.11 returns ENOSYS. An idle rank must still sleep, and must still detect a
 * peer's death.
 */
#include "fault/fault.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

/* Most milliseconds of processor time in an idle second. Measured: 0 to 1; a spinning thread uses
   all the time that it can get. */
#define IDLE_MS 100

/* From now on epoll_pwait2 returns `error` in this process. Returns 0 if filters are not allowed
   here. */
static int refuse(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static int refusal;

/* Called before the communicator's thread starts. */
static void with_filter(tutti__conf_t *conf, int rank)
{
    (void)conf;
    if (!refuse(refusal))
        ranks_fail(__FILE__, __LINE__, "rank %d: no seccomp filter: %s", rank, strerror(errno));
    CHECK_INT(syscall(SYS_epoll_pwait2, -1, NULL, 0, NULL, NULL, 0), -1);
    CHECK_INT(errno, refusal);
}

static void idle(rank_t *self)
{
    double began;

    CHECK_OK(tutti_barrier(self->comm));
    usleep(100000);
    began = cpu_ms();
    usleep(1000000);
    began = cpu_ms() - began;
    if (began > IDLE_MS)
        ranks_fail(__FILE__, __LINE__, "an idle second took %.0f ms of processor time", began);
    if (self->rank == 1)
        raise(SIGKILL);
    began = wall_ms();
    while (tutti__watch_alive(self->inside->watch) == TUTTI_OK) {
        CHECK(wall_ms() - began < SOON_S * 1e3);
        usleep(1000);
    }
    check_dead(self, TUTTI_ERR_PEER_LOST, "rank 1 was lost");
}

/* Tries it in a child process, because a filter cannot be removed. */
static int can_filter(void)
{
    int status = 0;
    pid_t pid = ranks_fork();

    if (pid == 0)
        _exit(refuse(EPERM) ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int main(void)
{
    static const int refusals[] = { EPERM, ENOSYS };
    job_t job = { .size = 2, .settings = with_filter, .fn = idle, .killed = 1 << 1 };
    int failures = 0;

    if (!ranks_can_fork() || !can_filter()) {
        fprintf(stderr, "ranks must be processes that may have seccomp filters\n");
        return 77;
    }
    board_open();
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        refusal = refusals[i];
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
