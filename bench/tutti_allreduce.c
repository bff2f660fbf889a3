/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of allreduce, sum: Tutti's direct call, its asynchronous call, MPI_Allreduce.
 */
#include "bench.h"

static int run_tutti(const bench_call_t *call)
{
    tutti_status_t status = tutti_allreduce(call->sendbuf, call->recvbuf, call->count,
                                            call->type->dtype, TUTTI_SUM, call->world->comm);

    return bench_check(call->world, status, "tutti_allreduce");
}

static int run_async(const bench_call_t *call)
{
    tutti_request_t *request;
    tutti_status_t status;

    status = tutti_allreduce_async("bench", call->sendbuf, call->recvbuf, call->count,
                                   call->type->dtype, TUTTI_SUM, call->world->comm, NULL, &request);
    if (status == TUTTI_OK)
        status = tutti_wait(request, -1);
    return bench_check(call->world, status, "tutti_allreduce_async");
}

#ifdef HAVE_MPI
static int run_mpi(const bench_call_t *call)
{
    const void *from = call->sendbuf == call->recvbuf ? MPI_IN_PLACE : call->sendbuf;

    return MPI_Allreduce(from, call->recvbuf, (int)call->count, bench_mpi_type(call->type), MPI_SUM,
                         MPI_COMM_WORLD);
}

static const bench_contestant_t mpi = { "MPI", run_mpi };
#endif

static const bench_contestant_t tutti = { "Tutti", run_tutti };
static const bench_contestant_t async = { "Async", run_async };

/* Each rank sends and receives 2 (n-1)/n of the buffer, however it is done. */
static double bus_factor(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static void fill(const bench_call_t *call)
{
    bench_fill((void *)(uintptr_t)call->sendbuf, call->type, 0, call->count, call->world->rank);
}

static size_t count_wrong(const bench_call_t *call)
{
    return bench_wrong_sum(call->recvbuf, call->type, 0, call->count, call->world->size);
}

int main(int argc, char **argv)
{
    static const bench_program_t program = {
        .title = "Allreduce",
        .tutti = &tutti,
        .async = &async,
#ifdef HAVE_MPI
        .mpi = &mpi,
#endif
        .bus_factor = bus_factor,
        .fill = fill,
        .count_wrong = count_wrong,
    };

    return bench_main(argc, argv, &program);
}
