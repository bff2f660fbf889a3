/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host's link goes down while all ranks are in an allreduce: each rank receives PEER_LOST with
 * the host's name. usage: down_check FOLDER. Rank 1 takes eth0 down, so its host must belong to a
 * cluster that a test has made (cluster.sh). Each rank writes its result into FOLDER, because the
 * launcher may end before the ranks.
 */
#include <tutti/tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    COUNT = 1 << 18,
    CALLS_BEFORE = 20,
    LIMIT_S = 40 /* it takes 4 to 5 on an idle machine */
};

static double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The ranks of the host whose link is down must report any other host. The other ranks must report
   that host. down_host: its number from 0. my_host: the number of this rank's host. */
static int is_right(int down_host, int my_host, tutti_status_t status, double waited_s)
{
    char wanted[64];

    if (my_host == down_host)
        snprintf(wanted, sizeof(wanted), "its process ended or its host, node");
    else
        snprintf(wanted, sizeof(wanted), "its process ended or its host, node%d, is gone",
                 down_host + 1);
    return status == TUTTI_ERR_PEER_LOST && strstr(tutti_last_error(), wanted) != NULL &&
           waited_s < LIMIT_S;
}

int main(int argc, char **argv)
{
    static float x[COUNT];
    tutti_status_t status = TUTTI_OK;
    int rank, down_host, my_host;
    double last_s = 0;
    char path[512];
    FILE *file;

    if (argc != 2 || tutti_init(NULL) != TUTTI_OK) {
        fprintf(stderr, "down_check: %s\n", argc != 2 ? "FOLDER?" : tutti_last_error());
        return 1;
    }
    rank = tutti_rank(tutti_world());
    down_host = my_host = tutti_host_rank(tutti_world());
    if (tutti_broadcast(&down_host, 1, TUTTI_INT32, 1, tutti_world()) != TUTTI_OK)
        return 1;
    for (int i = 0; status == TUTTI_OK; i++) {
        last_s = now_s();
        if (i == CALLS_BEFORE && rank == 1 && system("ip link set eth0 down") != 0)
            return 1;
        status = tutti_allreduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, tutti_world());
    }
    last_s = now_s() - last_s;
    snprintf(path, sizeof(path), "%s/rank%d", argv[1], rank);
    file = fopen(path, "w");
    if (file == NULL)
        return 1;
    fprintf(file, "rank %d %s after %.1f s: %s\n", rank,
            is_right(down_host, my_host, status, last_s) ? "passed" : "failed", last_s,
            tutti_last_error());
    fclose(file);
    _exit(0);
}
