/* SPDX-License-Identifier: BSD-3-Clause */
/* The direct collectives and messages. blocking.c does the work. */
#include "api/blocking.h"
#include "api/call_args.h"
#include "base/names.h"
#include "base/status.h"

tutti_status_t tutti_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                               tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__reduce_args(TUTTI_CALL_ALLREDUCE, sendbuf, recvbuf, count, dtype, op, 0));
}

tutti_status_t tutti_allreduce_scaled(const void *sendbuf, void *recvbuf, size_t count,
                                      tutti_dtype_t dtype, tutti_op_t op, double prescale,
                                      double postscale, tutti_comm_t *comm)
{
    tutti__call_t call =
        tutti__reduce_args(TUTTI_CALL_ALLREDUCE, sendbuf, recvbuf, count, dtype, op, 0);

    if (prescale != 0)
        call.prescale = prescale;
    if (postscale != 0)
        call.postscale = postscale;
    /* If the type cannot be scaled, any factor is an error, even 1. */
    if (tutti_dtype_bytes(dtype) != 0 && !tutti__reduce_scales(dtype))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s cannot be scaled", tutti__dtype_name(dtype));
    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_reduce(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                            tutti_op_t op, int root, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__reduce_args(TUTTI_CALL_REDUCE, sendbuf, recvbuf, count, dtype, op, root));
}

tutti_status_t tutti_reduce_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                    tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    return tutti__comm_make(comm, tutti__reduce_args(TUTTI_CALL_REDUCE_SCATTER, sendbuf, recvbuf,
                                                     recvcount, dtype, op, 0));
}

tutti_status_t tutti_allgather(const void *sendbuf, void *recvbuf, size_t sendcount,
                               tutti_dtype_t dtype, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__move_args(TUTTI_CALL_ALLGATHER, sendbuf, recvbuf, sendcount, dtype, 0));
}

tutti_status_t tutti_gather(const void *sendbuf, void *recvbuf, size_t sendcount,
                            tutti_dtype_t dtype, int root, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__move_args(TUTTI_CALL_GATHER, sendbuf, recvbuf, sendcount, dtype, root));
}

tutti_status_t tutti_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                             tutti_dtype_t dtype, int root, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__move_args(TUTTI_CALL_SCATTER, sendbuf, recvbuf, recvcount, dtype, root));
}

tutti_status_t tutti_alltoall(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                              tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__move_args(TUTTI_CALL_ALLTOALL, sendbuf, recvbuf, count, dtype, 0));
}

tutti_status_t tutti_scan(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                          tutti_op_t op, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__reduce_args(TUTTI_CALL_SCAN, sendbuf, recvbuf, count, dtype, op, 0));
}

tutti_status_t tutti_exscan(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                            tutti_op_t op, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__reduce_args(TUTTI_CALL_EXSCAN, sendbuf, recvbuf, count, dtype, op, 0));
}

tutti_status_t tutti_broadcast(void *buffer, size_t count, tutti_dtype_t dtype, int root,
                               tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__move_args(TUTTI_CALL_BROADCAST, NULL, buffer, count, dtype, root));
}

tutti_status_t tutti_barrier(tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__move_args(TUTTI_CALL_BARRIER, NULL, NULL, 0, (tutti_dtype_t)0, 0));
}

/* ---- parts of different lengths ---- */

tutti_status_t tutti_reduce_scatterv(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                                     tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__scatterv_reduce_args(sendbuf, recvbuf, recvcounts, dtype, op));
}

tutti_status_t tutti_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                const size_t *recvcounts, const size_t *displs, tutti_dtype_t dtype,
                                tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__parts_args(TUTTI_CALL_ALLGATHERV, sendbuf, NULL, NULL, recvbuf,
                                              recvcounts, displs, sendcount, dtype, 0));
}

tutti_status_t tutti_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                             const size_t *recvcounts, const size_t *displs, tutti_dtype_t dtype,
                             int root, tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__parts_args(TUTTI_CALL_GATHERV, sendbuf, NULL, NULL, recvbuf,
                                              recvcounts, displs, sendcount, dtype, root));
}

tutti_status_t tutti_scatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs,
                              void *recvbuf, size_t recvcount, tutti_dtype_t dtype, int root,
                              tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__parts_args(TUTTI_CALL_SCATTERV, sendbuf, sendcounts, displs,
                                              recvbuf, NULL, NULL, recvcount, dtype, root));
}

tutti_status_t tutti_alltoallv(const void *sendbuf, const size_t *sendcounts,
                               const size_t *senddispls, void *recvbuf, const size_t *recvcounts,
                               const size_t *recvdispls, tutti_dtype_t dtype, tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__parts_args(TUTTI_CALL_ALLTOALLV, sendbuf, sendcounts, senddispls,
                                              recvbuf, recvcounts, recvdispls, 0, dtype, 0));
}

/* ---- messages ---- */

tutti_status_t tutti_send(const void *buffer, size_t count, tutti_dtype_t dtype, int dest,
                          tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__move_args(TUTTI_CALL_SEND, buffer, NULL, count, dtype, dest));
}

tutti_status_t tutti_recv(void *buffer, size_t count, tutti_dtype_t dtype, int source,
                          tutti_comm_t *comm)
{
    return tutti__comm_make(comm,
                            tutti__move_args(TUTTI_CALL_RECV, NULL, buffer, count, dtype, source));
}

tutti_status_t tutti_sendrecv(const void *sendbuf, size_t sendcount, int dest, void *recvbuf,
                              size_t recvcount, int source, tutti_dtype_t dtype, tutti_comm_t *comm)
{
    return tutti__comm_make(
        comm, tutti__sendrecv_args(sendbuf, sendcount, dest, recvbuf, recvcount, source, dtype));
}
