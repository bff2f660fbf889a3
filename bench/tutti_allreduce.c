/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_allreduce.
 */
#include "harness/allreduce.h"
#include "harness/peers.h"

int main(int argc, char **argv)
{
    static const bench_program_t program = {
        .name = "tutti_allreduce",
        .title = "Allreduce",
        .collective = &bench_allreduce,
        .contestants = {
            { NULL, "Tutti", bench_allreduce_direct },
            { "async", "Async", bench_allreduce_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_allreduce) },
            { "naive", "Naive", BENCH_MPI(bench_naive_allreduce) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_allreduce) },
            { "nccl", "NCCL", bench_nccl_allreduce },
        },
    };

    return bench_main(argc, argv, &program);
}
