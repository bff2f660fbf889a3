/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What Tutti is compared with. MPI's only where there is one: name them inside BENCH_MPI().
 */
#ifndef TUTTI_BENCH_PEERS_H
#define TUTTI_BENCH_PEERS_H

#include "bench.h"

/* nccl.c: NCCL's own, on device memory, after bench_nccl_open (device.h). */
int bench_nccl_allreduce(const bench_call_t *call);
int bench_nccl_reduce(const bench_call_t *call);
int bench_nccl_reduce_scatter(const bench_call_t *call);
int bench_nccl_allgather(const bench_call_t *call);
int bench_nccl_broadcast(const bench_call_t *call);
int bench_nccl_alltoall(const bench_call_t *call);
int bench_nccl_barrier(const bench_call_t *call);

/* mpi.c: does this MPI, which runs, say that it takes memory of such a device? */
int bench_mpi_takes(const char *device);

#ifdef HAVE_MPI

MPI_Datatype bench_mpi_type(const bench_type_t *type);

/* mpi.c: MPI's own. */
int bench_mpi_allreduce(const bench_call_t *call);
int bench_mpi_iallreduce(const bench_call_t *call);
int bench_mpi_reduce(const bench_call_t *call);
int bench_mpi_reduce_scatter(const bench_call_t *call);
int bench_mpi_allgather(const bench_call_t *call);
int bench_mpi_broadcast(const bench_call_t *call);
int bench_mpi_alltoall(const bench_call_t *call);
int bench_mpi_barrier(const bench_call_t *call);

/* naive.c: by hand, with MPI_Isend and MPI_Irecv. */
int bench_naive_allreduce(const bench_call_t *call);
int bench_naive_reduce(const bench_call_t *call);
int bench_naive_reduce_scatter(const bench_call_t *call);
int bench_naive_allgather(const bench_call_t *call);
int bench_naive_broadcast(const bench_call_t *call);
int bench_naive_alltoall(const bench_call_t *call);
int bench_naive_barrier(const bench_call_t *call);

#endif

#ifdef HAVE_UCC

/* ucc.c: UCC's own, in a team of all ranks that is made at the first call; name them inside
   BENCH_UCC(). bench_ucc_close ends it, if it was made, on all ranks and before MPI. */
int bench_ucc_allreduce(const bench_call_t *call);
int bench_ucc_reduce(const bench_call_t *call);
int bench_ucc_reduce_scatter(const bench_call_t *call);
int bench_ucc_allgather(const bench_call_t *call);
int bench_ucc_broadcast(const bench_call_t *call);
int bench_ucc_alltoall(const bench_call_t *call);
int bench_ucc_barrier(const bench_call_t *call);
void bench_ucc_close(void);

#endif
#endif
