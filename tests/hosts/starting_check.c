/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * starting_check VICTIM PLACE: every rank of a job under mpirun runs this program. starting.sh
 * starts it. Rank VICTIM is killed in tutti_init, before the library's PLACE-th call that uses a
 * socket. PLACE may also be "+N": before the N-th such call after MPI_Init; or "connect": before
 * the first connect() after MPI_Init. The program prints "rank R of N: started" and exits with 0 if
 * tutti_init and a barrier succeed.
 *
 * This program replaces the calls that use sockets. Calls of MPI and of other libraries do not
 * count.
 */
#include <tutti/tutti.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int place; /* on the victim; 0 on other ranks */
static int at_connect, after_mpi;
static atomic_int calls;

/* Is MPI initialised? dlsym finds MPI's function, because the library makes MPI's names global. */
static int mpi_runs(void)
{
    int (*initialized)(int *flag) = NULL;
    int flag = 0;

    *(void **)&initialized = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    return initialized != NULL && initialized(&flag) == 0 && flag;
}

static void tell_of(void *caller, int is_connect)
{
    Dl_info info;
    int call;

    if (place == 0 || dladdr(caller, &info) == 0 || strstr(info.dli_fname, "libtutti") == NULL)
        return;
    if (after_mpi && !mpi_runs())
        return;
    call = atomic_fetch_add(&calls, 1) + 1;
    if (at_connect ? is_connect : call == place)
        kill(getpid(), SIGKILL);
}

static void tell(void *caller)
{
    tell_of(caller, 0);
}

/* These functions must be visible to libtutti.so, although the build hides symbols. */
#pragma GCC visibility push(default)

int socket(int domain, int type, int protocol)
{
    tell(__builtin_return_address(0));
    return (int)syscall(SYS_socket, domain, type, protocol);
}

int bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t bytes)
{
    tell(__builtin_return_address(0));
    return (int)syscall(SYS_bind, fd, addr.__sockaddr__, bytes);
}

int listen(int fd, int backlog)
{
    tell(__builtin_return_address(0));
    return (int)syscall(SYS_listen, fd, backlog);
}

int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t bytes)
{
    tell_of(__builtin_return_address(0), 1);
    return (int)syscall(SYS_connect, fd, addr.__sockaddr__, bytes);
}

int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *restrict bytes, int flags)
{
    tell(__builtin_return_address(0));
    return (int)syscall(SYS_accept4, fd, addr.__sockaddr__, bytes, flags);
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    tell(__builtin_return_address(0));
    return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    tell(__builtin_return_address(0));
    return syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    tell(__builtin_return_address(0));
    return syscall(SYS_sendmsg, fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    tell(__builtin_return_address(0));
    return syscall(SYS_recvmsg, fd, msg, flags);
}

#pragma GCC visibility pop

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    tutti_status_t status;

    if (argc != 3 || rank == NULL)
        return 2;
    if (strcmp(rank, argv[1]) == 0) {
        at_connect = strcmp(argv[2], "connect") == 0;
        after_mpi = at_connect || argv[2][0] == '+';
        place = at_connect ? 1 : atoi(argv[2]);
    }
    status = tutti_init(NULL);
    place = at_connect = 0;
    if (status == TUTTI_OK)
        status = tutti_barrier(tutti_world());
    if (status != TUTTI_OK)
        fprintf(stderr, "rank %s: %s\n", rank, tutti_last_error());
    else
        printf("rank %d of %d: started\n", tutti_rank(tutti_world()), tutti_size(tutti_world()));
    tutti_finalize();
    return status != TUTTI_OK;
}
