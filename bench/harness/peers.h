/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers with which Tutti is compared. Functions that need MPI are named inside BENCH_MPI().
 */
#ifndef TUTTI_BENCH_PEERS_H
#define TUTTI_BENCH_PEERS_H

#include "harness/bench.h"

/* nccl.c: NCCL's collectives, on device memory, after bench_nccl_open (device.h). */
int bench_nccl_allreduce(const bench_call_t *call);
int bench_nccl_reduce(const bench_call_t *call);
int bench_nccl_reduce_scatter(const bench_call_t *call);
int bench_nccl_allgather(const bench_call_t *call);
int bench_nccl_broadcast(const bench_call_t *call);
int bench_nccl_alltoall(const bench_call_t *call);
int bench_nccl_barrier(const bench_call_t *call);

/* mpi.c: does the running MPI report that it takes memory of this device? */
int bench_mpi_takes(const char *device);

#ifdef HAVE_MPI

MPI_Datatype bench_mpi_type(const bench_type_t *type);

/* mpi.c: MPI's collectives. */
int bench_mpi_allreduce(const bench_call_t *call);
int bench_mpi_iallreduce(const bench_call_t *call);
int bench_mpi_reduce(const bench_call_t *call);
int bench_mpi_reduce_scatter(const bench_call_t *call);
int bench_mpi_allgather(const bench_call_t *call);
int bench_mpi_broadcast(const bench_call_t *call);
int bench_mpi_alltoall(const bench_call_t *call);
int bench_mpi_barrier(const bench_call_t *call);

/* naive.c: implementations by hand, with MPI_Isend and MPI_Irecv. */
int bench_naive_allreduce(const bench_call_t *call);
int bench_naive_reduce(const bench_call_t *call);
int bench_naive_reduce_scatter(const bench_call_t *call);
int bench_naive_allgather(const bench_call_t *call);
int bench_naive_broadcast(const bench_call_t *call);
int bench_naive_alltoall(const bench_call_t *call);
int bench_naive_barrier(const bench_call_t *call);

#endif

#ifdef HAVE_UCC

/* ucc.c: UCC's collectives, in a team of all ranks that the first call makes; named inside
   BENCH_UCC(). bench_ucc_close ends the team, if there is one, on all ranks, before MPI ends. */
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
