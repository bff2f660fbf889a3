/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures a cluster's links without the library: cluster_wire BYTES. It is started as a rank by
 * cluster.sh's launcher env. Each rank except 0 sends BYTES to rank 0 over TCP, one rank after the
 * other, and then exchanges single bytes with rank 0. Each of these ranks prints
 *
 *     rank R sent BYTES in T us, round trip U us
 *
 * T: the time until rank 0 has received all bytes. U: the shortest round trip.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUND_TRIPS = 20
};

static char buffer[1 << 16];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static const char *setting(const char *name)
{
    const char *text = getenv(name);

    if (text == NULL) {
        fprintf(stderr, "%s is not set\n", name);
        exit(1);
    }
    return text;
}

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void give(int fd, size_t bytes)
{
    while (bytes > 0) {
        size_t part = bytes < sizeof(buffer) ? bytes : sizeof(buffer);
        ssize_t done = send(fd, buffer, part, MSG_NOSIGNAL);

        if (done <= 0)
            fail("send");
        bytes -= (size_t)done;
    }
}

static void take(int fd, size_t bytes)
{
    while (bytes > 0) {
        size_t part = bytes < sizeof(buffer) ? bytes : sizeof(buffer);
        ssize_t done = recv(fd, buffer, part, 0);

        if (done <= 0)
            fail("recv");
        bytes -= (size_t)done;
    }
}

static void at_once(int fd)
{
    int yes = 1;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
        fail("TCP_NODELAY");
}

static int open_listener(const struct addrinfo *address, int backlog)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, backlog) != 0)
        fail("listen");
    return fd;
}

/* Rank 0: serves the others in the order in which they have connected. */
static void serve(const struct addrinfo *address, int peers, size_t bytes)
{
    int listener = open_listener(address, peers);

    for (int i = 0; i < peers; i++) {
        int fd = accept(listener, NULL, NULL);

        if (fd < 0)
            fail("accept");
        at_once(fd);
        give(fd, 1);
        take(fd, bytes);
        give(fd, 1);
        for (int k = 0; k < ROUND_TRIPS; k++) {
            take(fd, 1);
            give(fd, 1);
        }
        close(fd);
    }
}

static int reach(const struct addrinfo *address)
{
    for (int tries = 0; tries < 3000; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    fail("connect");
    return -1;
}

static void call(const struct addrinfo *address, size_t bytes)
{
    int fd = reach(address);
    int64_t began, took_us, shortest = INT64_MAX;

    at_once(fd);
    take(fd, 1);
    began = now_us();
    give(fd, bytes);
    take(fd, 1);
    took_us = now_us() - began;
    for (int k = 0; k < ROUND_TRIPS; k++) {
        began = now_us();
        give(fd, 1);
        take(fd, 1);
        if (now_us() - began < shortest)
            shortest = now_us() - began;
    }
    printf("rank %s sent %zu in %lld us, round trip %lld us\n", setting("RANK"), bytes,
           (long long)took_us, (long long)shortest);
    close(fd);
}

int main(int argc, char **argv)
{
    const struct addrinfo want = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    struct addrinfo *address;

    if (getaddrinfo(setting("MASTER_ADDR"), setting("MASTER_PORT"), &want, &address) != 0)
        fail("MASTER_ADDR");
    if (atoi(setting("RANK")) == 0)
        serve(address, atoi(setting("WORLD_SIZE")) - 1, bytes);
    else
        call(address, bytes);
    freeaddrinfo(address);
    return 0;
}
