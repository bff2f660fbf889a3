/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_reduce_scatter, sum; the size is the sum of all parts, as in OSU. If the number
 * of elements is not a multiple of the number of ranks, tutti_reduce_scatterv is used, and the
 * first ranks get one more.
 */
#include "harness/peers.h"

#include <stdlib.h>

/* NULL: all parts are equal. */
static const size_t *part_counts(const bench_call_t *call)
{
    static size_t *counts;
    int size = call->world->size;

    if (call->count % (size_t)size == 0)
        return NULL;
    if (counts == NULL)
        counts = bench_allocate((size_t)size, sizeof(*counts));
    for (int i = 0; i < size; i++)
        counts[i] = bench_share(call->count, size, i);
    return counts;
}

static int run_direct(const bench_call_t *call)
{
    const size_t *counts = part_counts(call);
    tutti_status_t status;

    if (counts == NULL)
        status = tutti_reduce_scatter(call->sendbuf, call->recvbuf,
                                      call->count / (size_t)call->world->size, call->type->dtype,
                                      TUTTI_SUM, call->world->comm);
    else
        status = tutti_reduce_scatterv(call->sendbuf, call->recvbuf, counts, call->type->dtype,
                                       TUTTI_SUM, call->world->comm);
    return bench_check(call->world, status, "tutti_reduce_scatter");
}

static int run_async(const bench_call_t *call)
{
    const size_t *counts = part_counts(call);
    tutti_request_t *request = NULL;
    tutti_status_t status;

    if (counts == NULL)
        status = tutti_reduce_scatter_async(
            "bench", call->sendbuf, call->recvbuf, call->count / (size_t)call->world->size,
            call->type->dtype, TUTTI_SUM, call->world->comm, NULL, &request);
    else
        status = tutti_reduce_scatterv_async("bench", call->sendbuf, call->recvbuf, counts,
                                             call->type->dtype, TUTTI_SUM, call->world->comm, NULL,
                                             &request);
    return bench_check_wait(call->world, status, request, "tutti_reduce_scatter_async");
}

/* Each rank sends all parts but its own. */
static double bus_factor(int ranks)
{
    return (ranks - 1.0) / ranks;
}

/* n inputs are read; n parts are written, together as long as one input. */
static double traffic(int ranks, int in_place)
{
    (void)in_place;
    return ranks + 1.0;
}

static size_t count_wrong(const bench_call_t *call)
{
    int size = call->world->size;
    int rank = call->world->rank;

    return bench_wrong_sum(call->recvbuf, call->type, bench_share_begin(call->count, size, rank),
                           bench_share(call->count, size, rank), size);
}

int main(int argc, char **argv)
{
    static const bench_collective_t collective = {
        .send = BENCH_COUNT,
        .recv = BENCH_SHARE,
        .in_place = BENCH_SAME_BUFFER,
        .sums = 1,
        .bus_factor = bus_factor,
        .traffic = traffic,
        .fill = bench_fill_send,
        .count_wrong = count_wrong,
    };
    static const bench_program_t program = {
        .name = "tutti_reduce_scatter",
        .title = "Reduce_scatter",
        .collective = &collective,
        .contestants = {
            { NULL, "Tutti", run_direct },
            { "async", "Async", run_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_reduce_scatter) },
            { "naive", "Naive", BENCH_MPI(bench_naive_reduce_scatter) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_reduce_scatter) },
            { "nccl", "NCCL", bench_nccl_reduce_scatter },
        },
    };

    return bench_main(argc, argv, &program);
}
