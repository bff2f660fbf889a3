/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --peer mpi: MPI's collective of the same name.
 */
#include "harness/peers.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_MPI

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

/* Asks Open MPI or MPICH; 0 for other MPIs. */
int bench_mpi_takes(const char *device)
{
    int takes = 0;

#if defined(MPIX_CUDA_AWARE_SUPPORT)
    takes = MPIX_Query_cuda_support();
#elif defined(MPIX_GPU_SUPPORT_CUDA)
    if (MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &takes) != MPI_SUCCESS)
        takes = 0;
#endif
    return takes && strcmp(device, "cuda") == 0;
}

MPI_Datatype bench_mpi_type(const bench_type_t *type)
{
    switch (type->dtype) {
    case TUTTI_FLOAT32:
        return MPI_FLOAT;
    case TUTTI_FLOAT64:
        return MPI_DOUBLE;
    case TUTTI_INT32:
        return MPI_INT32_T;
    case TUTTI_INT64:
        return MPI_INT64_T;
    case TUTTI_INT8:
        return MPI_SIGNED_CHAR;
    case TUTTI_UINT8:
        return MPI_UINT8_T;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static const void *from(const bench_call_t *call)
{
    return call->in_place ? MPI_IN_PLACE : call->sendbuf;
}

int bench_mpi_allreduce(const bench_call_t *call)
{
    return MPI_Allreduce(from(call), call->recvbuf, (int)call->count, bench_mpi_type(call->type),
                         MPI_SUM, MPI_COMM_WORLD);
}

int bench_mpi_iallreduce(const bench_call_t *call)
{
    MPI_Request request;
    int status = MPI_Iallreduce(from(call), call->recvbuf, (int)call->count,
                                bench_mpi_type(call->type), MPI_SUM, MPI_COMM_WORLD, &request);

    return status != 0 ? status : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int bench_mpi_reduce(const bench_call_t *call)
{
    const void *sendbuf = call->world->rank == 0 ? from(call) : call->sendbuf;

    return MPI_Reduce(sendbuf, call->recvbuf, (int)call->count, bench_mpi_type(call->type), MPI_SUM,
                      0, MPI_COMM_WORLD);
}

/* As in OSU, MPI_Reduce_scatter is called for equal parts as well. */
int bench_mpi_reduce_scatter(const bench_call_t *call)
{
    static int *counts;
    int size = call->world->size;

    if (counts == NULL)
        counts = bench_allocate((size_t)size, sizeof(*counts));
    for (int i = 0; i < size; i++)
        counts[i] = (int)bench_share(call->count, size, i);
    return MPI_Reduce_scatter(from(call), call->recvbuf, counts, bench_mpi_type(call->type),
                              MPI_SUM, MPI_COMM_WORLD);
}

int bench_mpi_allgather(const bench_call_t *call)
{
    MPI_Datatype type = bench_mpi_type(call->type);

    return MPI_Allgather(from(call), (int)call->count, type, call->recvbuf, (int)call->count, type,
                         MPI_COMM_WORLD);
}

int bench_mpi_broadcast(const bench_call_t *call)
{
    return MPI_Bcast(call->recvbuf, (int)call->count, bench_mpi_type(call->type), 0,
                     MPI_COMM_WORLD);
}

int bench_mpi_alltoall(const bench_call_t *call)
{
    MPI_Datatype type = bench_mpi_type(call->type);

    return MPI_Alltoall(from(call), (int)call->count, type, call->recvbuf, (int)call->count, type,
                        MPI_COMM_WORLD);
}

int bench_mpi_barrier(const bench_call_t *call)
{
    (void)call;
    return MPI_Barrier(MPI_COMM_WORLD);
}

#else

int bench_mpi_takes(const char *device)
{
    (void)device;
    return 0;
}

#endif
