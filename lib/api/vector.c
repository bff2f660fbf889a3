/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct collectives with parts of different lengths. direct.c does the work. */
#include "api/direct.h"

tutti_status_t tutti_reduce_scatterv(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                                     tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_REDUCE_SCATTERV,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .recvcounts = recvcounts,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                const size_t *recvcounts, const size_t *displs, tutti_dtype_t dtype,
                                tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLGATHERV,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           .recvcounts = recvcounts,
                           .recvdispls = displs,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                             const size_t *recvcounts, const size_t *displs, tutti_dtype_t dtype,
                             int root, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_GATHERV,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           .recvcounts = recvcounts,
                           .recvdispls = displs,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_scatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs,
                              void *recvbuf, size_t recvcount, tutti_dtype_t dtype, int root,
                              tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SCATTERV,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = recvcount,
                           .sendcounts = sendcounts,
                           .senddispls = displs,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_alltoallv(const void *sendbuf, const size_t *sendcounts,
                               const size_t *senddispls, void *recvbuf, const size_t *recvcounts,
                               const size_t *recvdispls, tutti_dtype_t dtype, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLTOALLV,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .sendcounts = sendcounts,
                           .senddispls = senddispls,
                           .recvcounts = recvcounts,
                           .recvdispls = recvdispls,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}
