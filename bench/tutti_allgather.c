/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of tutti_allgather; the size is one rank's part, as in OSU.
 */
#include "harness/peers.h"

static int run_direct(const bench_call_t *call)
{
    tutti_status_t status = tutti_allgather(call->sendbuf, call->recvbuf, call->count,
                                            call->type->dtype, call->world->comm);

    return bench_check(call->world, status, "tutti_allgather");
}

static int run_async(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status =
        tutti_allgather_async("bench", call->sendbuf, call->recvbuf, call->count, call->type->dtype,
                              call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_allgather_async");
}

/* The result has n parts; each rank receives all but its own. */
static double bus_factor(int ranks)
{
    return ranks - 1.0;
}

/* n parts are read; n results of n parts are written. In place, each rank's own part is not
   written. */
static double traffic(int ranks, int in_place)
{
    return ranks + (double)ranks * (ranks - (in_place ? 1 : 0));
}

static size_t count_wrong(const bench_call_t *call)
{
    const char *part = call->recvbuf;
    size_t wrong = 0;

    for (int i = 0; i < call->world->size; i++, part += call->count * call->type->bytes)
        wrong += bench_wrong(part, call->type, 0, call->count, i);
    return wrong;
}

int main(int argc, char **argv)
{
    static const bench_collective_t collective = {
        .send = BENCH_COUNT,
        .recv = BENCH_ALL_RANKS,
        .in_place = BENCH_OWN_PART,
        .sums = 0,
        .same_everywhere = 1,
        .bus_factor = bus_factor,
        .traffic = traffic,
        .fill = bench_fill_send,
        .count_wrong = count_wrong,
    };
    static const bench_program_t program = {
        .name = "tutti_allgather",
        .title = "Allgather",
        .collective = &collective,
        .contestants = {
            { NULL, "Tutti", run_direct },
            { "async", "Async", run_async },
            { "mpi", "MPI", BENCH_MPI(bench_mpi_allgather) },
            { "naive", "Naive", BENCH_MPI(bench_naive_allgather) },
            { "ucc", "UCC", BENCH_UCC(bench_ucc_allgather) },
            { "nccl", "NCCL", bench_nccl_allgather },
        },
    };

    return bench_main(argc, argv, &program);
}
