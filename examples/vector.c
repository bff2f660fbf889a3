/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of different lengths, the v forms: `mpirun -np 3 ./vector`, or with any number of ranks up
 * to 64.
 *
 *     collect   the lists of all ranks, on all ranks: allgatherv
 *     exchange  a part of different length from each rank to each rank: alltoallv
 *     share     a sum over all ranks, of which each rank keeps its part: reduce_scatterv
 *
 * To build it with an installed library:
 *
 *     cc vector.c $(pkg-config --cflags --libs tutti) -o vector
 */
#include <stdint.h>
#include <stdio.h>

#include <tutti/tutti.h>

#define MAX_RANKS 64
#define MAX_TOTAL (MAX_RANKS * (MAX_RANKS + 1) / 2)

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "counts are sent as TUTTI_UINT64");

/* Rank r has r + 1 numbers: 100 r, 100 r + 1, ... *ret_total: the sum of all lengths. */
static tutti_status_t collect(tutti_comm_t *world, int32_t *all, size_t *ret_total)
{
    const size_t size = (size_t)tutti_size(world), rank = (size_t)tutti_rank(world);
    size_t counts[MAX_RANKS];
    int32_t mine[MAX_RANKS];

    *ret_total = 0;
    for (size_t r = 0; r < size; r++) {
        counts[r] = r + 1;
        *ret_total += counts[r];
    }
    for (size_t i = 0; i < counts[rank]; i++)
        mine[i] = (int32_t)(100 * rank + i);

    /* displs NULL: the parts follow each other without gaps */
    return tutti_allgatherv(mine, counts[rank], all, counts, NULL, TUTTI_INT32, world);
}

/*
 * Rank r sends its number (r + d) modulo 3 times to rank d. The receivers get the counts first, by
 * an alltoall.
 */
static tutti_status_t exchange(tutti_comm_t *world, size_t *ret_count, int32_t *ret_sum)
{
    const size_t size = (size_t)tutti_size(world), rank = (size_t)tutti_rank(world);
    size_t sendcounts[MAX_RANKS], recvcounts[MAX_RANKS];
    int32_t sent[2 * MAX_RANKS], received[2 * MAX_RANKS];
    tutti_status_t status;

    for (size_t i = 0; i < 2 * size; i++)
        sent[i] = (int32_t)rank;
    for (size_t d = 0; d < size; d++)
        sendcounts[d] = (rank + d) % 3;

    status = tutti_alltoall(sendcounts, recvcounts, 1, TUTTI_UINT64, world);
    if (status == TUTTI_OK)
        status =
            tutti_alltoallv(sent, sendcounts, NULL, received, recvcounts, NULL, TUTTI_INT32, world);
    if (status != TUTTI_OK)
        return status;

    *ret_count = 0;
    *ret_sum = 0;
    for (size_t r = 0; r < size; r++)
        *ret_count += recvcounts[r];
    for (size_t i = 0; i < *ret_count; i++)
        *ret_sum += received[i];
    return TUTTI_OK;
}

/* Add up 0, 1, 2, ... over all ranks; rank r keeps r + 1 of the sums. */
static tutti_status_t share(tutti_comm_t *world, float *ret_part)
{
    const size_t size = (size_t)tutti_size(world);
    static float values[MAX_TOTAL];
    size_t counts[MAX_RANKS], total = 0;

    for (size_t r = 0; r < size; r++) {
        counts[r] = r + 1;
        total += counts[r];
    }
    for (size_t i = 0; i < total; i++)
        values[i] = (float)i;
    return tutti_reduce_scatterv(values, ret_part, counts, TUTTI_FLOAT32, TUTTI_SUM, world);
}

int main(void)
{
    static int32_t all[MAX_TOTAL];
    float part[MAX_RANKS];
    size_t total, count;
    tutti_comm_t *world;
    int32_t sum;
    int rank;

    if (tutti_init(NULL) != TUTTI_OK)
        goto failed;
    world = tutti_world();
    rank = tutti_rank(world);
    if (tutti_size(world) > MAX_RANKS) {
        fprintf(stderr, "vector: more than %d ranks\n", MAX_RANKS);
        tutti_finalize();
        return 1;
    }

    if (collect(world, all, &total) != TUTTI_OK || exchange(world, &count, &sum) != TUTTI_OK ||
        share(world, part) != TUTTI_OK)
        goto failed;
    printf("rank %d of %d: %zu numbers, the last is %d; received %zu, their sum is %d; kept %d, "
           "the last is %g\n",
           rank, tutti_size(world), total, (int)all[total - 1], count, (int)sum, rank + 1,
           part[rank]);

    if (tutti_finalize() != TUTTI_OK)
        goto failed;
    return 0;

failed:
    fprintf(stderr, "vector: %s\n", tutti_last_error());
    tutti_finalize();
    return 1;
}
