/* SPDX-License-Identifier: BSD-3-Clause */
/* Node operations that only users' schedules have: on several blocks with places of their own. */
#include "multi/direct/coll_case.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/tutti-user-node-XXXXXX";

enum {
    GAP = 7,
    UNSENT = -1
};

/* Write the schedules of all ranks. body: their operations. */
static void write_schedules(int size, int blocks, const char *body)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        perror(path);
        exit(1);
    }
    for (int r = 0; r < size; r++)
        fprintf(file, "mine: rank %d of %d, blocks %d, scratch 0, blocks per message 1\n%s\n", r,
                size, blocks, body);
    fclose(file);
}

/* ---- places of their own ---- */

static int value(int rank, size_t i)
{
    return (int)(i % 1000) * 10 + rank;
}

/* On rank 0 the parts are contiguous. On other ranks there are gaps between the parts, and the last
   rank's part is the first. */
static void gather(rank_t *self, size_t most)
{
    size_t counts[MOST_RANKS], displs[MOST_RANKS], all = 0;
    int *send = malloc(most * sizeof(*send)), *recv, *wanted;

    for (int i = 0; i < self->size; i++) {
        int r = self->rank == 0 ? i : self->size - 1 - i;

        counts[r] = most - (size_t)r;
        displs[r] = all;
        all += counts[r] + (self->rank == 0 ? 0 : GAP);
    }
    recv = malloc(2 * all * sizeof(*recv)); /* as much again behind the last part */
    wanted = malloc(2 * all * sizeof(*wanted));
    CHECK(send != NULL && recv != NULL && wanted != NULL);
    for (size_t i = 0; i < 2 * all; i++)
        recv[i] = wanted[i] = UNSENT;
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < counts[r]; i++)
            wanted[displs[r] + i] = value(r, i);
    for (size_t i = 0; i < counts[self->rank]; i++)
        send[i] = value(self->rank, i);
    CHECK_OK(
        tutti_allgatherv(send, counts[self->rank], recv, counts, displs, TUTTI_INT32, self->comm));
    for (size_t i = 0; i < 2 * all; i++)
        if (recv[i] != wanted[i])
            ranks_fail(__FILE__, __LINE__, "%zu elements: element %zu of %zu is %d, wanted %d",
                       most, i, all, recv[i], wanted[i]);
    free(wanted);
    free(recv);
    free(send);
}

static void gathers(rank_t *self)
{
    for (size_t most = 10; most <= 100000; most *= 10)
        gather(self, most);
}

static int run_gathers(int size, int threads)
{
    job_t job = { .size = size, .threads = threads, .settings = small_pieces, .fn = gathers };
    char algorithm[64], body[256];
    int failures = 0;

    snprintf(algorithm, sizeof(algorithm), "allgatherv:@%s", path);
    job.algorithm = algorithm;
    snprintf(body, sizeof(body),
             "NODE_ALLGATHER IN[0:%d] -> OUT[0:%d] in %d parts\n"
             "NODE_BCAST OUT[0:%d] -> OUT[0:%d] of local rank %d",
             size, size, size, size, size, size - 1);
    write_schedules(size, size, body);
    RUN_JOB(failures, &job);
    return failures;
}

int main(void)
{
    int failures = 0, threads = !ranks_can_fork(), file = mkstemp(path);

    if (file < 0)
        return 1;
    close(file);
    for (int size = 2; size <= 4; size++)
        failures += run_gathers(size, threads);
    unlink(path);
    return failures != 0;
}
