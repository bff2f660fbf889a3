/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the round-trip time to other hosts, which TCP measures on the side channel. This file
 * includes <linux/tcp.h>, because glibc's tcp_info has no tcpi_min_rtt. <linux/tcp.h> conflicts
 * with <netinet/tcp.h>, so this code has a file of its own.
 */
#include "boot/boot_inside.h"

#include "base/compiler.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* Returns the round trip in microseconds; 0: it is unknown, or the socket is not TCP. */
static uint32_t rtt_us(int fd)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);

    memset(&info, 0, sizeof(info));
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt))
        return 0;
    return info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt;
}

uint64_t tutti__boot_rtt_ns(const tutti__boot_t *boot)
{
    uint64_t most_us = 0;

    for (uint32_t i = 0; i < boot->side.nlinks; i++) {
        const tutti__side_link_t *link = &boot->side.links[i];

        if (!link->local)
            most_us = TUTTI__MAX(most_us, (uint64_t)rtt_us(link->fd));
    }
    return most_us * 1000;
}
