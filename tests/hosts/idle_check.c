/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost of idle ranks. cluster_idle.sh starts it on a cluster.
 *
 *     idle_check quiet S   no call for S seconds: the host's interface carries only the probes of
 *                          TCP's keepalive, which have no data: at most one a second for each end
 *                          of a connection
 *     idle_check late MS   the last rank enters a barrier two seconds late: while they wait, each
 *                          of the other ranks uses at most MS milliseconds of a processor
 *
 * Prints "rank R of N: CASE passed", with the figures.
 */
#include "checks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The size of an empty segment with its time stamps and the frame around it. */
enum {
    EMPTY_BYTES = 66,
    LATE_S = 2,
    TRIES = 4
};

static void sleep_s(double seconds)
{
    double until = now_ms() + seconds * 1e3;

    while (now_ms() < until)
        usleep(10000);
}

/* A statistic of eth0: "tx_packets" and so on. */
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

/* Make no call for so many seconds. Returns 1 if there were more packets than probes. Rank 0's host
   has a connection to each other host, and each of these hosts has only this connection. */
static int is_loud(double seconds)
{
    int connections = tutti_host_rank(tutti_world()) == 0 ? tutti_host_count(tutti_world()) - 1 : 1;
    long packets, bytes, most;
    double began, took;

    OK(tutti_barrier(tutti_world()));
    sleep_s(1); /* for the last acknowledgements */
    began = now_ms();
    packets = statistic("tx_packets");
    bytes = statistic("tx_bytes");
    sleep_s(seconds);
    packets = statistic("tx_packets") - packets;
    bytes = statistic("tx_bytes") - bytes;
    took = (now_ms() - began) / 1e3;
    /* A probe, and the answer to the other end's probe. */
    most = (long)(2 * (took + 1)) * connections;
    printf("rank %d: %ld packets, at most %ld, %ld bytes in %.1f s\n", rank, packets, most, bytes,
           took);
    CHECK(bytes <= packets * EMPTY_BYTES, "%ld bytes in %ld packets", bytes, packets);
    CHECK(packets >= (long)(took / 2) * connections, "%ld packets in %.1f s", packets, took);
    return packets > most;
}

/* If a busy machine answers a probe late, the kernel sends another probe. So the ranks repeat the
   measurement, but only if all packets were empty. */
static void quiet(double seconds)
{
    int loud = 1;

    for (int try = 0; try < TRIES && loud; try++) {
        int mine = is_loud(seconds);

        OK(tutti_allreduce(&mine, &loud, 1, TUTTI_INT32, TUTTI_MAX, tutti_world()));
    }
    CHECK(!loud, "more packets than probes, %d times", TRIES);
}

static double used_ms(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

/* Does this rank use more of its processor while it waits than most_ms in LATE_S seconds? */
static int is_busy(double most_ms)
{
    double before, began, took_ms, waited_s;

    for (int i = 0; i < 10; i++)
        OK(tutti_barrier(tutti_world()));
    if (rank == size - 1)
        sleep_s(LATE_S);
    before = used_ms();
    began = now_ms();
    OK(tutti_barrier(tutti_world()));
    took_ms = used_ms() - before;
    waited_s = (now_ms() - began) / 1e3;
    if (rank == size - 1)
        return 0;
    printf("rank %d: %.1f ms of a processor in %.1f s\n", rank, took_ms, waited_s);
    return took_ms > most_ms * waited_s / LATE_S;
}

/* A busy machine wakes ranks at bad times, so they try again. */
static void late(double most_ms)
{
    int busy = 1;

    for (int try = 0; try < TRIES && busy; try++) {
        int mine = is_busy(most_ms);

        OK(tutti_allreduce(&mine, &busy, 1, TUTTI_INT32, TUTTI_MAX, tutti_world()));
    }
    CHECK(!busy, "more than %.1f ms of a processor, %d times", most_ms, TRIES);
}

int main(int argc, char **argv)
{
    double number = argc == 3 ? atof(argv[2]) : 0;

    CHECK(argc == 3, "usage: idle_check quiet|late NUMBER");
    start_world();
    if (strcmp(argv[1], "quiet") == 0)
        quiet(number);
    else
        late(number);
    OK(tutti_finalize());
    printf("rank %d of %d: %s passed\n", rank, size, argv[1]);
    return 0;
}
