/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces the library's calls that use sockets, as startup.h describes. Each first calls the
   test's on_call. */
#include "fault/startup.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void (*on_call)(const char *name);

static void tell(const char *name)
{
    int error = errno;

    if (on_call != NULL)
        on_call(name);
    errno = error;
}

int socket(int domain, int type, int protocol)
{
    tell("socket");
    return (int)syscall(SYS_socket, domain, type, protocol);
}

int bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t bytes)
{
    tell("bind");
    return (int)syscall(SYS_bind, fd, addr.__sockaddr__, bytes);
}

/* Publishes the port, if it is a TCP port. */
int listen(int fd, int backlog)
{
    struct sockaddr_in6 addr; /* an IPv4 address has its port at the same place */
    socklen_t bytes = sizeof(addr);
    int code;

    tell("listen");
    code = (int)syscall(SYS_listen, fd, backlog);
    memset(&addr, 0, sizeof(addr));
    if (code == 0 && syscall(SYS_getsockname, fd, &addr, &bytes) == 0 &&
        (addr.sin6_family == AF_INET || addr.sin6_family == AF_INET6) &&
        atomic_load(&hall->nports) < MOST_PORTS) {
        int i = atomic_fetch_add(&hall->nports, 1);

        if (i < MOST_PORTS)
            atomic_store(&hall->port[i], ntohs(addr.sin6_port));
        tell("listening");
    }
    return code;
}

int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t bytes)
{
    tell("connect");
    return (int)syscall(SYS_connect, fd, addr.__sockaddr__, bytes);
}

int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *restrict bytes, int flags)
{
    int taken;

    tell("accept4");
    taken = (int)syscall(SYS_accept4, fd, addr.__sockaddr__, bytes, flags);
    if (on_call != NULL && taken >= 0)
        atomic_fetch_add(&hall->accepted, 1);
    return taken;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    ssize_t n;

    tell("send");
    n = syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
    if (on_call != NULL && n > 0)
        atomic_fetch_add(&hall->sent, 1);
    return n;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    ssize_t n;

    tell("recv");
    n = syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
    if (startup_rank >= 0 && n > 0)
        atomic_fetch_add(&hall->got[startup_rank], 1);
    return n;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    tell("sendmsg");
    return syscall(SYS_sendmsg, fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    tell("recvmsg");
    return syscall(SYS_recvmsg, fd, msg, flags);
}
