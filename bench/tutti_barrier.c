/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_barrier. Between two calls there is the harness's own barrier, as in OSU.
 * tutti_barrier has no buffers: -d is only for --peer nccl.
 */
#include "harness/peers.h"

static int run_direct(const bench_call_t *call)
{
    return bench_check(call->world, tutti_barrier(call->world->comm), "tutti_barrier");
}

static int run_async(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status = tutti_barrier_async("bench", call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_barrier_async");
}

/* A barrier has no data. */
static double bus_factor(int ranks)
{
    (void)ranks;
    return 0.0;
}

int main(int argc, char **argv)
{
    static const bench_collective_t collective = {
        .send = BENCH_NOTHING,
        .recv = BENCH_NOTHING,
        .bus_factor = bus_factor,
    };
    static const bench_program_t program = {
        .name = "tutti_barrier",
        .title = "Barrier",
        .collective = &collective,
        .contestants = {
            { NULL, "Tutti", run_direct },
            { "async", "Async", run_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_barrier) },
            { "naive", "Naive", BENCH_MPI(bench_naive_barrier) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_barrier) },
            { "nccl", "NCCL", bench_nccl_barrier },
        },
        .nccl_is = "NCCL has no barrier: an allreduce of one element, and a wait for it",
    };

    return bench_main(argc, argv, &program);
}
