/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_reduce, sum, to rank 0.
 */
#include "harness/peers.h"

static int run_direct(const bench_call_t *call)
{
    tutti_status_t status = tutti_reduce(call->sendbuf, call->recvbuf, call->count,
                                         call->type->dtype, TUTTI_SUM, 0, call->world->comm);

    return bench_check(call->world, status, "tutti_reduce");
}

static int run_async(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status =
        tutti_reduce_async("bench", call->sendbuf, call->recvbuf, call->count, call->type->dtype,
                           TUTTI_SUM, 0, call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_reduce_async");
}

static double bus_factor(int ranks)
{
    (void)ranks;
    return 1.0;
}

/* n inputs are read, one output written. */
static double traffic(int ranks, int in_place)
{
    (void)in_place;
    return ranks + 1.0;
}

static size_t count_wrong(const bench_call_t *call)
{
    if (call->world->rank != 0)
        return 0;
    return bench_wrong_sum(call->recvbuf, call->type, 0, call->count, call->world->size);
}

int main(int argc, char **argv)
{
    static const bench_collective_t collective = {
        .send = BENCH_COUNT,
        .recv = BENCH_COUNT,
        .in_place = BENCH_SAME_BUFFER,
        .sums = 1,
        .same_everywhere = 0,
        .bus_factor = bus_factor,
        .traffic = traffic,
        .fill = bench_fill_send,
        .count_wrong = count_wrong,
    };
    static const bench_program_t program = {
        .name = "tutti_reduce",
        .title = "Reduce",
        .collective = &collective,
        .contestants = {
            { NULL, "Tutti", run_direct },
            { "async", "Async", run_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_reduce) },
            { "naive", "Naive", BENCH_MPI(bench_naive_reduce) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_reduce) },
            { "nccl", "NCCL", bench_nccl_reduce },
        },
    };

    return bench_main(argc, argv, &program);
}
