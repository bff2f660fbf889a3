/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_alltoall; the size is one rank's part for one other rank, as in OSU.
 */
#include "harness/peers.h"

static int run_direct(const bench_call_t *call)
{
    tutti_status_t status = tutti_alltoall(call->sendbuf, call->recvbuf, call->count,
                                           call->type->dtype, call->world->comm);

    return bench_check(call->world, status, "tutti_alltoall");
}

static int run_async(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status =
        tutti_alltoall_async("bench", call->sendbuf, call->recvbuf, call->count, call->type->dtype,
                             call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_alltoall_async");
}

/* Each rank has n parts, and sends all but one. */
static double bus_factor(int ranks)
{
    return ranks - 1.0;
}

/* n inputs and n outputs of n parts; in place, each rank's own part does not move. */
static double traffic(int ranks, int in_place)
{
    return 2.0 * ranks * (ranks - (in_place ? 1 : 0));
}

static void fill(const bench_call_t *call, bench_put_t put)
{
    put((void *)(uintptr_t)call->sendbuf, call->type, 0, call->count * (size_t)call->world->size,
        call->world->rank);
}

static size_t count_wrong(const bench_call_t *call)
{
    size_t first = call->count * (size_t)call->world->rank;
    const char *part = call->recvbuf;
    size_t wrong = 0;

    for (int i = 0; i < call->world->size; i++, part += call->count * call->type->bytes)
        wrong += bench_wrong(part, call->type, first, call->count, i);
    return wrong;
}

int main(int argc, char **argv)
{
    static const bench_collective_t collective = {
        .send = BENCH_ALL_RANKS,
        .recv = BENCH_ALL_RANKS,
        .in_place = BENCH_SAME_BUFFER,
        .sums = 0,
        .same_everywhere = 0,
        .bus_factor = bus_factor,
        .traffic = traffic,
        .fill = fill,
        .count_wrong = count_wrong,
    };
    static const bench_program_t program = {
        .name = "tutti_alltoall",
        .title = "All-to-All Personalized Exchange",
        .collective = &collective,
        .contestants = {
            { NULL, "Tutti", run_direct },
            { "async", "Async", run_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_alltoall) },
            { "naive", "Naive", BENCH_MPI(bench_naive_alltoall) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_alltoall) },
            { "nccl", "NCCL", bench_nccl_alltoall },
        },
    };

    return bench_main(argc, argv, &program);
}
