/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks cost that have nothing to do; started by cluster_idle.sh on a cluster.
 *
 *     idle_check quiet S   no call for S seconds: the host's interface carries only the probes of
 *                          TCP's keepalive, at most one a second for each connection and end, which
 *                          have no data
 *     idle_check late MS   the last rank comes two seconds late to a barrier: meanwhile each of the
 *                          others uses at most so many milliseconds of a processor
 *
 * Prints "rank R of N: CASE passed", with the figures.
 */
#include <tutti/tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* An empty segment with its time stamps and the frame around it. */
enum {
    EMPTY_BYTES = 66,
    LATE_S = 2
};

static int rank = -1, size;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, rank, #cond);              \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == TUTTI_OK, "%s", tutti_last_error())

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void sleep_s(double seconds)
{
    double until = now_s() + seconds;

    while (now_s() < until)
        usleep(10000);
}

/* Of eth0: "tx_packets" and so on. */
static long statistic(const char *name)
{
    char path[128];
    long value = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/class/net/eth0/statistics/%s", name);
    file = fopen(path, "r");
    CHECK(file != NULL && fscanf(file, "%ld", &value) == 1, "no %s", path);
    fclose(file);
    return value;
}

/* Rank 0's host has a connection to each other host, and these have one. */
static void quiet(double seconds)
{
    int connections = tutti_host_rank(tutti_world()) == 0 ? tutti_host_count(tutti_world()) - 1 : 1;
    long packets, bytes, most;
    double began, took;

    OK(tutti_barrier(tutti_world()));
    sleep_s(1); /* for the last acknowledgements */
    began = now_s();
    packets = statistic("tx_packets");
    bytes = statistic("tx_bytes");
    sleep_s(seconds);
    packets = statistic("tx_packets") - packets;
    bytes = statistic("tx_bytes") - bytes;
    took = now_s() - began;
    /* A probe, and the answer to the other end's. */
    most = (long)(2 * (took + 1)) * connections;
    printf("rank %d: %ld packets, %ld bytes in %.1f s\n", rank, packets, bytes, took);
    CHECK(packets <= most, "%ld packets, of %d connections, in %.1f s", packets, connections, took);
    CHECK(bytes <= packets * EMPTY_BYTES, "%ld bytes in %ld packets", bytes, packets);
    CHECK(packets >= (long)(took / 2) * connections, "%ld packets in %.1f s", packets, took);
    OK(tutti_barrier(tutti_world()));
}

static double used_ms(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

static void late(double most_ms)
{
    double before, took_ms;

    for (int i = 0; i < 10; i++)
        OK(tutti_barrier(tutti_world()));
    if (rank == size - 1)
        sleep_s(LATE_S);
    before = used_ms();
    OK(tutti_barrier(tutti_world()));
    took_ms = used_ms() - before;
    if (rank == size - 1)
        return;
    printf("rank %d: %.1f ms of a processor in %d s\n", rank, took_ms, LATE_S);
    CHECK(took_ms <= most_ms, "%.1f ms", took_ms);
}

int main(int argc, char **argv)
{
    double number = argc == 3 ? atof(argv[2]) : 0;

    CHECK(argc == 3, "usage: idle_check quiet|late NUMBER");
    OK(tutti_init(NULL));
    rank = tutti_rank(tutti_world());
    size = tutti_size(tutti_world());
    if (strcmp(argv[1], "quiet") == 0)
        quiet(number);
    else
        late(number);
    OK(tutti_finalize());
    printf("rank %d of %d: %s passed\n", rank, size, argv[1]);
    return 0;
}
