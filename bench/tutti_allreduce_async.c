/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_allreduce_async with its tutti_wait. --peer mpi: MPI_Iallreduce with MPI_Wait.
 */
#include "harness/allreduce.h"
#include "harness/peers.h"

int main(int argc, char **argv)
{
    static const bench_program_t program = {
        .name = "tutti_allreduce_async",
        .title = "Non-blocking Allreduce",
        .collective = &bench_allreduce,
        .contestants = {
            { NULL, "Tutti", bench_allreduce_async },
            { "ordered", "Ordered", bench_allreduce_ordered },
            { "direct", "Direct", bench_allreduce_direct },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_iallreduce) },
            { "naive", "Naive", BENCH_MPI(bench_naive_allreduce) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_allreduce) },
            { "nccl", "NCCL", bench_nccl_allreduce },
        },
    };

    return bench_main(argc, argv, &program);
}
