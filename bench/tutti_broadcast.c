/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_broadcast, from rank 0.
 */
#include "harness/peers.h"

static int run_direct(const bench_call_t *call)
{
    tutti_status_t status =
        tutti_broadcast(call->recvbuf, call->count, call->type->dtype, 0, call->world->comm);

    return bench_check(call->world, status, "tutti_broadcast");
}

static int run_async(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status =
        tutti_broadcast_async("bench", call->recvbuf, call->count, call->type->dtype, 0,
                              call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_broadcast_async");
}

static double bus_factor(int ranks)
{
    (void)ranks;
    return 1.0;
}

/* One input is read, n - 1 outputs written. */
static double traffic(int ranks, int in_place)
{
    (void)in_place;
    return ranks;
}

static void fill(const bench_call_t *call, bench_put_t put)
{
    if (call->world->rank == 0)
        put(call->recvbuf, call->type, 0, call->count, 0);
}

static size_t count_wrong(const bench_call_t *call)
{
    return bench_wrong(call->recvbuf, call->type, 0, call->count, 0);
}

int main(int argc, char **argv)
{
    static const bench_collective_t collective = {
        .send = BENCH_NOTHING,
        .recv = BENCH_COUNT,
        .in_place = BENCH_NO_IN_PLACE,
        .sums = 0,
        .same_everywhere = 1,
        .bus_factor = bus_factor,
        .traffic = traffic,
        .fill = fill,
        .count_wrong = count_wrong,
    };
    static const bench_program_t program = {
        .name = "tutti_broadcast",
        .title = "Broadcast",
        .collective = &collective,
        .contestants = {
            { NULL, "Tutti", run_direct },
            { "async", "Async", run_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_broadcast) },
            { "naive", "Naive", BENCH_MPI(bench_naive_broadcast) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_broadcast) },
            { "nccl", "NCCL", bench_nccl_broadcast },
        },
    };

    return bench_main(argc, argv, &program);
}
