/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP between hosts: this machine's addresses, listening, connecting.
 */
#include "boot/net.h"

#include "base/constants.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Convert an interface's address. Returns 0 if the address cannot be used between hosts. */
static int take_address(const struct sockaddr *sa, tutti__net_addr_t *ret_addr)
{
    memset(ret_addr, 0, sizeof(*ret_addr));
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;

        ret_addr->family = 4;
        memcpy(ret_addr->ip, &in->sin_addr, 4);
        return 1;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;

        /* A link-local address would need an interface number of the connecting host. */
        if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
            return 0;
        ret_addr->family = 6;
        memcpy(ret_addr->ip, &in6->sin6_addr, 16);
        return 1;
    }
    return 0;
}

static int is_wanted(const struct ifaddrs *ifa, const char *interface, int loopback, int family)
{
    if (ifa->ifa_addr == NULL || ifa->ifa_addr->sa_family != family || !(ifa->ifa_flags & IFF_UP))
        return 0;
    if (interface[0] != '\0')
        return strcmp(ifa->ifa_name, interface) == 0;
    return !!(ifa->ifa_flags & IFF_LOOPBACK) == !!loopback;
}

tutti_status_t tutti__net_addrs(const char *interface, int loopback, tutti__net_addrs_t *ret_addrs)
{
    static const int families[] = { AF_INET, AF_INET6 };
    tutti__net_addrs_t addrs = { 0 };
    struct ifaddrs *list;

    if (getifaddrs(&list) != 0)
        return tutti__fail_errno("list network interfaces");
    for (size_t f = 0; f < 2; f++)
        for (const struct ifaddrs *ifa = list; ifa != NULL; ifa = ifa->ifa_next)
            if (addrs.count < TUTTI__NET_ADDRS && is_wanted(ifa, interface, loopback, families[f]))
                addrs.count += take_address(ifa->ifa_addr, &addrs.addr[addrs.count]);
    freeifaddrs(list);
    if (addrs.count == 0 && interface[0] != '\0')
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "TUTTI_INTERFACE=%s: no such interface, or it has no address",
                           interface);
    if (addrs.count == 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "no network interface is up; hosts cannot connect");
    *ret_addrs = addrs;
    return TUTTI_OK;
}

static socklen_t make_sockaddr(const tutti__net_addr_t *addr, struct sockaddr_storage *ret_sa)
{
    memset(ret_sa, 0, sizeof(*ret_sa));
    if (addr->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)ret_sa;

        in->sin_family = AF_INET;
        in->sin_port = htons(addr->port);
        memcpy(&in->sin_addr, addr->ip, 4);
        return sizeof(*in);
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret_sa;

        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(addr->port);
        memcpy(&in6->sin6_addr, addr->ip, 16);
        return sizeof(*in6);
    }
}

void tutti__net_addr_text(const tutti__net_addr_t *addr, char *ret_text, size_t text_bytes)
{
    char ip[INET6_ADDRSTRLEN] = "?";

    inet_ntop(addr->family == 4 ? AF_INET : AF_INET6, addr->ip, ip, sizeof(ip));
    snprintf(ret_text, text_bytes, addr->family == 4 ? "%s:%u" : "[%s]:%u", ip, addr->port);
}

static tutti_status_t tcp_socket(int domain, int *ret_fd)
{
    int fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return tutti__fail_errno("tcp socket");
    *ret_fd = fd;
    return TUTTI_OK;
}

/* Make a listening socket at an address. fixed 1: the caller has chosen the port; set SO_REUSEADDR,
   because connections of an earlier process at this port may still be in TIME_WAIT. */
static tutti_status_t listen_at(const tutti__net_addr_t *addr, int fixed,
                                struct sockaddr_storage *ret_sa, int *ret_fd)
{
    int fd = -1, off = 0, on = 1;
    tutti_status_t status;
    socklen_t sa_bytes;

    status = tcp_socket(addr->family == 4 ? AF_INET : AF_INET6, &fd);
    if (status != TUTTI_OK)
        return errno == EAFNOSUPPORT ? TUTTI_ERR_UNSUPPORTED : status;
    if (addr->family == 6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) {
        status = tutti__fail_errno("IPV6_V6ONLY");
        goto close_fd;
    }
    if (fixed && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
        status = tutti__fail_errno("SO_REUSEADDR");
        goto close_fd;
    }
    sa_bytes = make_sockaddr(addr, ret_sa);
    if (bind(fd, (struct sockaddr *)ret_sa, sa_bytes) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)ret_sa, &sa_bytes) != 0) {
        int error = errno;

        status = tutti__fail_errno("listen on tcp");
        if (fixed && error == EADDRINUSE)
            status = TUTTI__AGAIN;
        else if (fixed && error == EADDRNOTAVAIL)
            status = TUTTI_ERR_UNSUPPORTED;
        goto close_fd;
    }
    *ret_fd = fd;
    return TUTTI_OK;

close_fd:
    close(fd);
    return status;
}

tutti_status_t tutti__net_tcp_listen_at(const tutti__net_addr_t *addr, int *ret_fd)
{
    struct sockaddr_storage sa;

    return listen_at(addr, 1, &sa, ret_fd);
}

/*
 * One socket serves all addresses. If there is only one address, the socket is bound to this
 * address, otherwise to a wildcard address. If one of the addresses is IPv6, the socket is bound to
 * the IPv6 wildcard, which serves both families.
 */
tutti_status_t tutti__net_tcp_listen(tutti__net_addrs_t *addrs, int *ret_fd)
{
    tutti__net_addr_t any = { 0, 4, { 0 } };
    struct sockaddr_storage sa;
    tutti_status_t status;

    for (uint32_t i = 0; i < addrs->count; i++)
        any.family = TUTTI__MAX(any.family, addrs->addr[i].family);
    if (addrs->count == 1)
        any = addrs->addr[0];
    status = listen_at(&any, 0, &sa, ret_fd);
    for (uint32_t i = 0; i < addrs->count && status == TUTTI_OK; i++)
        addrs->addr[i].port = ntohs(any.family == 4 ? ((struct sockaddr_in *)&sa)->sin_port
                                                    : ((struct sockaddr_in6 *)&sa)->sin6_port);
    return status;
}

/* ---- names ---- */

int tutti__net_is_loopback(const tutti__net_addr_t *addr)
{
    struct in6_addr ip;

    if (addr->family == 4)
        return addr->ip[0] == 127;
    memcpy(&ip, addr->ip, sizeof(ip));
    return IN6_IS_ADDR_LOOPBACK(&ip);
}

int tutti__net_is_literal(const char *name)
{
    unsigned char ip[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1;
}

/* The list has the IPv4 addresses first, as in tutti__net_addrs. */
tutti_status_t tutti__net_resolve(const char *name, tutti__net_addrs_t *ret_addrs)
{
    static const int families[] = { AF_INET, AF_INET6 };
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    tutti__net_addrs_t addrs = { 0 };
    int error = getaddrinfo(name, NULL, &hints, &list);

    if (error == EAI_MEMORY)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "the address of %s", name);
    if (error != 0)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "%s has no address: %s", name, gai_strerror(error));
    for (size_t f = 0; f < 2; f++)
        for (const struct addrinfo *info = list; info != NULL; info = info->ai_next)
            if (info->ai_family == families[f] && addrs.count < TUTTI__NET_ADDRS)
                addrs.count += take_address(info->ai_addr, &addrs.addr[addrs.count]);
    freeaddrinfo(list);
    if (addrs.count == 0)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "%s has no address that other hosts can use", name);
    *ret_addrs = addrs;
    return TUTTI_OK;
}

/* Report why a connection failed: no process listens, there is no route, or another errno. */
static tutti_status_t no_connection(const char *where)
{
    switch (errno) {
    case ECONNREFUSED:
        return tutti__fail(TUTTI_ERR_TRANSPORT, "connect %s: nobody listens there", where);
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
        return tutti__fail(TUTTI_ERR_TRANSPORT, "connect %s: no network leads there", where);
    default:
        return tutti__fail_errno("connect %s", where);
    }
}

/* Wait for a pending connection. */
static tutti_status_t finish_connect(int fd, const char *where, uint64_t deadline)
{
    struct pollfd pfd = { fd, POLLOUT, 0 };
    socklen_t bytes = sizeof(int);
    int error = 0, ready;
    tutti_status_t status;

    status = tutti__net_poll(&pfd, 1, deadline, &ready);
    if (status != TUTTI_OK)
        return status;
    if (ready == 0)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "connect %s: no answer", where);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return tutti__fail_errno("connect %s", where);
    errno = error;
    return error == 0 ? TUTTI_OK : no_connection(where);
}

/* Is the socket connected to itself? This happens if no process listens at the port, and the kernel
   has given this port to the connecting socket. */
static int is_own_peer(int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t bytes = sizeof(here), bytes_there = sizeof(there);

    return getsockname(fd, (struct sockaddr *)&here, &bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &bytes_there) == 0 && bytes == bytes_there &&
           memcmp(&here, &there, bytes) == 0;
}

tutti_status_t tutti__net_tcp_connect(const tutti__net_addr_t *addr, uint64_t deadline, int *ret_fd)
{
    struct sockaddr_storage sa;
    socklen_t sa_bytes = make_sockaddr(addr, &sa);
    tutti_status_t status;
    char where[64];
    int fd = -1;

    tutti__net_addr_text(addr, where, sizeof(where));
    status = tcp_socket(sa.ss_family, &fd);
    if (status != TUTTI_OK)
        return errno == EAFNOSUPPORT ? no_connection(where) : status;
    if (connect(fd, (struct sockaddr *)&sa, sa_bytes) != 0) {
        status = errno == EINPROGRESS || errno == EINTR ? finish_connect(fd, where, deadline)
                                                        : no_connection(where);
        if (status != TUTTI_OK) {
            close(fd);
            return status;
        }
    }
    if (is_own_peer(fd)) {
        close(fd);
        errno = ECONNREFUSED;
        return no_connection(where);
    }
    *ret_fd = fd;
    return TUTTI_OK;
}

/*
 * The kernel sends keepalive probes, so Tutti itself sends nothing on an idle link. If a process is
 * stopped, the kernel of its host still answers the probes, so the process does not count as lost.
 * TCP_USER_TIMEOUT limits two waits: for the acknowledgement of sent bytes, and, from Linux 5.11
 * on, for space in the peer's receive buffer. The second wait may be long only because the peer's
 * process is stopped. So during this wait tutti__net_tcp_check disables the limit.
 */
tutti_status_t tutti__net_tcp_options(int fd)
{
    static const struct {
        int level, option, value;
    } list[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, TUTTI__TCP_IDLE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, TUTTI__TCP_INTERVAL_S },
        { IPPROTO_TCP, TCP_KEEPCNT, TUTTI__TCP_PROBES },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, TUTTI__TCP_USER_TIMEOUT_MS },
    };

    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
        if (setsockopt(fd, list[i].level, list[i].option, &list[i].value, sizeof(int)) != 0)
            return tutti__fail_errno("tcp option %d", list[i].option);
    return TUTTI_OK;
}

/* Are bytes not sent yet, only because the peer's receive buffer is full? In this case the peer's
   kernel still answers probes for space in the buffer. */
static int is_unread(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t bytes = sizeof(info);
    int unsent = 0;

    return ioctl(fd, SIOCOUTQNSD, &unsent) == 0 && unsent > 0 &&
           getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_unacked == 0 &&
           info.tcpi_probes < TUTTI__TCP_PROBES;
}

void tutti__net_tcp_check(int fd, int *patient)
{
    int unread = is_unread(fd), limit_ms = unread ? 0 : TUTTI__TCP_USER_TIMEOUT_MS;

    if (unread != *patient &&
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms)) == 0)
        *patient = unread;
}
