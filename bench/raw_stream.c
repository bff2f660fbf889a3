/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of a link between two hosts: one TCP connection, both directions at once.
 *
 * An allreduce of n bytes over two ranks sends n bytes each way, whatever its algorithm. This
 * program moves the same bytes between two processes and does nothing else: one thread each, which
 * writes and reads without blocking until all bytes have left and arrived. A library with one
 * connection and one thread cannot be faster than this time plus the time of the additions.
 *
 *     tests/hosts/cluster.sh run --pin --hosts 2 --launcher env bench/raw_stream -m 256K:16M
 *
 * The processes read RANK (under mpirun OMPI_COMM_WORLD_RANK), MASTER_ADDR (127.0.0.1 if not set)
 * and MASTER_PORT (29500). Rank 0 listens, and prints.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TRIES = 500, /* to connect, 20 ms apart */
    MOST_ITERATIONS = 100000
};

static int fail(const char *what)
{
    fprintf(stderr, "raw_stream: %s: %s\n", what, errno != 0 ? strerror(errno) : "wrong");
    return 1;
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the connection ---- */

static int listen_once(const char *port)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), fd;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&any, sizeof(any)) != 0 || listen(listener, 1) != 0)
        return -1;
    fd = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}

static int try_connect(const struct addrinfo *to)
{
    int fd = socket(to->ai_family, to->ai_socktype, to->ai_protocol);

    if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Repeats the attempt, because rank 0 may not listen yet. */
static int connect_to(const char *host, const char *port)
{
    const struct addrinfo want = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
    struct addrinfo *to;
    int fd = -1;

    if (getaddrinfo(host, port, &want, &to) != 0)
        return -1;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = try_connect(to);
        if (fd < 0)
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    freeaddrinfo(to);
    return fd;
}

/* ---- moving ---- */

/* Subtract the bytes that a read or a write has moved. 0: it has moved none. */
static int advance(ssize_t moved, size_t *left)
{
    if (moved > 0)
        *left -= (size_t)moved;
    return moved > 0;
}

/* All bytes out, and all bytes in. 1: the connection has failed. */
static int exchange(int fd, const char *out, char *in, size_t bytes)
{
    size_t unsent = bytes, missing = bytes;

    while (unsent > 0 || missing > 0) {
        int moved = 0;

        errno = 0;
        if (unsent > 0)
            moved |= advance(send(fd, out + bytes - unsent, unsent, MSG_NOSIGNAL | MSG_DONTWAIT),
                             &unsent);
        if (missing > 0)
            moved |= advance(recv(fd, in + bytes - missing, missing, MSG_DONTWAIT), &missing);
        if (!moved && errno != EAGAIN && errno != EINTR)
            return 1;
        if (!moved)
            sched_yield();
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int measure(int fd, size_t bytes, int iterations, int prints)
{
    double *us = calloc((size_t)iterations, sizeof(*us));
    char *out = malloc(bytes), *in = malloc(bytes);
    int failed = us == NULL || out == NULL || in == NULL;

    if (!failed) {
        memset(out, 1, bytes);
        memset(in, 2, bytes);
    }
    for (int i = -iterations / 10 - 1; i < iterations && !failed; i++) {
        double start = now_us();

        failed = exchange(fd, out, in, bytes);
        if (i >= 0)
            us[i] = now_us() - start;
    }
    if (!failed && prints) {
        qsort(us, (size_t)iterations, sizeof(*us), by_value);
        printf("%-10zu %12.2f %12.2f\n", bytes, us[0], us[iterations / 2]);
        fflush(stdout);
    }
    free(us);
    free(out);
    free(in);
    return failed;
}

/* ---- options ---- */

static size_t parse_bytes(const char *text, const char **ret_end)
{
    static const char units[] = "KMG";
    char *end;
    size_t bytes = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;

    if (unit != NULL) {
        bytes <<= 10 * (unit - units + 1);
        end++;
    }
    *ret_end = end;
    return bytes;
}

/* 0: the text is no number from 1 to MOST_ITERATIONS. */
static int parse_iterations(const char *text)
{
    char *end;
    long iterations = strtol(text, &end, 10);

    return *end == '\0' && iterations > 0 && iterations <= MOST_ITERATIONS ? (int)iterations : 0;
}

static int usage(void)
{
    fprintf(stderr, "Usage: raw_stream [-m [MIN:]MAX] [-i ITERATIONS]\n");
    return 2;
}

static int parse(int argc, char **argv, size_t *ret_min, size_t *ret_max, int *ret_iterations)
{
    const char *end = "";
    int c;

    while ((c = getopt(argc, argv, "m:i:")) != -1) {
        if (c == 'm') {
            *ret_min = *ret_max = parse_bytes(optarg, &end);
            if (*end == ':')
                *ret_max = parse_bytes(end + 1, &end);
            else
                *ret_min = 4;
        } else if (c == 'i') {
            *ret_iterations = parse_iterations(optarg);
        } else {
            return 0;
        }
    }
    return *end == '\0' && *ret_min > 0 && *ret_max >= *ret_min && *ret_iterations > 0;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    size_t min = 4, max = 16 << 20;
    int iterations = 100, is_first, fd, one = 1;

    if (!parse(argc, argv, &min, &max, &iterations))
        return usage();
    rank = rank != NULL ? rank : getenv("OMPI_COMM_WORLD_RANK");
    host = host != NULL ? host : "127.0.0.1";
    port = port != NULL ? port : "29500";
    is_first = rank == NULL || strcmp(rank, "0") == 0;
    fd = is_first ? listen_once(port) : connect_to(host, port);
    if (fd < 0)
        return fail("connecting");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (is_first)
        printf("# Two-way stream over one TCP connection, Size bytes each way\n%-10s %12s %12s\n",
               "# Size", "Min(us)", "Median(us)");
    for (size_t bytes = min; bytes <= max; bytes *= 2)
        if (measure(fd, bytes, iterations, is_first))
            return fail("moving data");
    close(fd);
    return 0;
}
