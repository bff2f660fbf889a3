/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In the middle of tutti_comm_split, after all ranks have checked their limits, one rank cannot
 * open another file. All ranks of its group receive the number of this rank and the reason at once.
 * Other groups are made, and the parent remains usable.
 *
 * This file replaces the calls that open a file: on the selected rank and thread the n-th call
 * fails.
 */
#include "fault/fault.h"

#include "base/compiler.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Files that this thread may still open; -1: any number. */
static __thread int files_left = -1;

static int may_open(void)
{
    if (files_left == 0) {
        errno = EMFILE;
        return 0;
    }
    files_left -= files_left > 0;
    return 1;
}

int socket(int domain, int type, int protocol)
{
    return may_open() ? (int)syscall(SYS_socket, domain, type, protocol) : -1;
}

/* The kernel allocates a descriptor before it checks for a connection. */
int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *restrict addr_bytes, int flags)
{
    int taken;

    if (files_left == 0)
        return may_open() - 1;
    taken = (int)syscall(SYS_accept4, fd, addr.__sockaddr__, addr_bytes, flags);
    if (taken >= 0)
        may_open();
    return taken;
}

/* Calls without EFD_NONBLOCK are the library's check of the limit, and are not counted. */
int eventfd(unsigned count, int flags)
{
    if ((flags & EFD_NONBLOCK) != 0 && !may_open())
        return -1;
    return (int)syscall(SYS_eventfd2, count, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    return may_open() ? (int)syscall(SYS_memfd_create, name, flags) : -1;
}

int epoll_create1(int flags)
{
    return may_open() ? (int)syscall(SYS_epoll_create1, flags) : -1;
}

int timerfd_create(clockid_t clock, int flags)
{
    return may_open() ? (int)syscall(SYS_timerfd_create, clock, flags) : -1;
}

static void sum_up(tutti_comm_t *comm)
{
    int x = 1;

    CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_INT(x, tutti_size(comm));
}

/* Split once; in this call `victim` can open only n files. Returns 1 on the ranks of the victim's
   group if this group was made. */
static int split_once(rank_t *self, int victim, int n, int color, int victims_color)
{
    tutti_comm_t *comm = self->comm;
    double began = wall_ms();
    tutti_status_t status;
    char who[16];

    snprintf(who, sizeof(who), "rank %d: ", victim);
    if (self->rank == victim)
        files_left = n;
    status = tutti_comm_split(self->comm, color, 0, &comm);
    files_left = -1;
    if (status == TUTTI_OK) {
        sum_up(comm);
        /* Ranks that are threads share mappings, so no rank may free them before all ranks are
           done. */
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_comm_free(comm));
    } else {
        CHECK_INT(color, victims_color);
        CHECK_STATUS(status, TUTTI_ERR_NO_MEMORY);
        if (strncmp(tutti_last_error(), who, strlen(who)) != 0 ||
            strstr(tutti_last_error(), "Too many open files") == NULL)
            ranks_fail(__FILE__, __LINE__, "'%s' does not say that %s lacks files",
                       tutti_last_error(), who);
        CHECK(comm == self->comm);
        CHECK_OK(tutti_barrier(self->comm));
    }
    if (wall_ms() - began > SOON_S * 1e3)
        ranks_fail(__FILE__, __LINE__, "%s%d files: %.0f ms until '%s'", who, n, wall_ms() - began,
                   status == TUTTI_OK ? "success" : tutti_last_error());
    sum_up(self->comm);
    return status == TUTTI_OK && color == victims_color;
}

/* Allow one more file in each split, until a split succeeds. */
static void each_file(rank_t *self)
{
    static const int victims[] = { 0, 1, -1 };

    for (int halves = 0; halves < 2; halves++) {
        for (size_t v = 0; v < sizeof(victims) / sizeof(victims[0]); v++) {
            int victim = victims[v] < 0 ? self->size - 1 : victims[v], made = 0, n = 0;

            for (; !made && n < 100; n++) {
                made = split_once(self, victim, n, halves ? self->rank % 2 : 0,
                                  halves ? victim % 2 : 0);
                CHECK_OK(tutti_allreduce(&made, &made, 1, TUTTI_INT32, TUTTI_MAX, self->comm));
            }
            CHECK(n > 5 && n < 100);
        }
    }
}

int main(void)
{
    static const char *const hosts[] = { NULL, "aabb", "abab" };
    int failures = 0, can_fork = ranks_can_fork();

    board_open();
    for (size_t h = 0; h < sizeof(hosts) / sizeof(hosts[0]); h++) {
        for (int threads = !can_fork; threads < 2; threads++) {
            job_t job = { .size = 4, .hosts = hosts[h], .threads = threads };

            job.fn = each_file;
            RUN_JOB(failures, &job);
        }
    }
    return failures != 0;
}
