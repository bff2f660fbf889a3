/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations that only users' schedules have: operations on more blocks than ranks, and
 * operations on several blocks with displacements.
 */
#include "multi/direct/coll_case.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/tutti-user-node-XXXXXX";

enum {
    BLOCKS = 8192,
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

/* ---- more blocks than ranks ---- */

/* A slot of this size has fewer elements than the schedule has blocks. */
static void smallest_chunk(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.node_chunk_bytes = 4096;
}

static void many_blocks(rank_t *self)
{
    case_t small = {
        TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT32, TUTTI_SUM, 3 * BLOCKS + 5, 0, APART, PRIVATE
    };
    case_t large = {
        TUTTI_CALL_ALLREDUCE, TUTTI_INT64_INT64, TUTTI_MAXLOC, BLOCKS, 0, IN_PLACE, PRIVATE
    };
    area_t area;

    area_open(&area, self, AREA_BYTES);
    case_run(&area, &small, TUTTI_OK);
    case_run(&area, &large, TUTTI_OK);
    area_close(&area);
}

static int run_many_blocks(int threads)
{
    job_t job = { .size = 2, .threads = threads, .settings = smallest_chunk, .fn = many_blocks };
    char algorithm[64], body[256];
    int failures = 0;

    snprintf(algorithm, sizeof(algorithm), "allreduce:@%s", path);
    job.algorithm = algorithm;
    snprintf(body, sizeof(body),
             "NODE_REDUCE_SCATTER IN[0:%d] -> OUT[0:%d] in 2 parts, finish\n"
             "NODE_ALLGATHER OUT[0:%d] -> OUT[0:%d] in 2 parts",
             BLOCKS, BLOCKS, BLOCKS, BLOCKS);
    write_schedules(job.size, BLOCKS, body);
    RUN_JOB(failures, &job);
    return failures;
}

/* ---- blocks with displacements ---- */

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
    recv = malloc(2 * all * sizeof(*recv)); /* the second half must not change */
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
    failures += run_many_blocks(threads);
    for (int size = 2; size <= 4; size++)
        failures += run_gathers(size, threads);
    unlink(path);
    return failures != 0;
}
