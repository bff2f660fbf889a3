/* SPDX-License-Identifier: BSD-3-Clause */
/* The asynchronous collectives and messages. submission.c and the engine do the work. */
#include "api/call_args.h"
#include "api/submission.h"

static inline tutti_status_t submit(tutti__call_t call, tutti_comm_t *comm, const char *name,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                     size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                     tutti_comm_t *comm, const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    return submit(tutti__reduce_args(TUTTI_CALL_ALLREDUCE, sendbuf, recvbuf, count, dtype, op, 0),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_reduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                  size_t count, tutti_dtype_t dtype, tutti_op_t op, int root,
                                  tutti_comm_t *comm, const tutti_async_options_t *options,
                                  tutti_request_t **ret_request)
{
    return submit(tutti__reduce_args(TUTTI_CALL_REDUCE, sendbuf, recvbuf, count, dtype, op, root),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_broadcast_async(const char *name, void *buffer, size_t count,
                                     tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                     const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_BROADCAST, NULL, buffer, count, dtype, root), comm,
                  name, options, ret_request);
}

tutti_status_t tutti_reduce_scatter_async(const char *name, const void *sendbuf, void *recvbuf,
                                          size_t recvcount, tutti_dtype_t dtype, tutti_op_t op,
                                          tutti_comm_t *comm, const tutti_async_options_t *options,
                                          tutti_request_t **ret_request)
{
    return submit(
        tutti__reduce_args(TUTTI_CALL_REDUCE_SCATTER, sendbuf, recvbuf, recvcount, dtype, op, 0),
        comm, name, options, ret_request);
}

tutti_status_t tutti_allgather_async(const char *name, const void *sendbuf, void *recvbuf,
                                     size_t sendcount, tutti_dtype_t dtype, tutti_comm_t *comm,
                                     const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_ALLGATHER, sendbuf, recvbuf, sendcount, dtype, 0),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_gather_async(const char *name, const void *sendbuf, void *recvbuf,
                                  size_t sendcount, tutti_dtype_t dtype, int root,
                                  tutti_comm_t *comm, const tutti_async_options_t *options,
                                  tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_GATHER, sendbuf, recvbuf, sendcount, dtype, root),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_scatter_async(const char *name, const void *sendbuf, void *recvbuf,
                                   size_t recvcount, tutti_dtype_t dtype, int root,
                                   tutti_comm_t *comm, const tutti_async_options_t *options,
                                   tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_SCATTER, sendbuf, recvbuf, recvcount, dtype, root),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_alltoall_async(const char *name, const void *sendbuf, void *recvbuf,
                                    size_t count, tutti_dtype_t dtype, tutti_comm_t *comm,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_ALLTOALL, sendbuf, recvbuf, count, dtype, 0), comm,
                  name, options, ret_request);
}

tutti_status_t tutti_scan_async(const char *name, const void *sendbuf, void *recvbuf, size_t count,
                                tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm,
                                const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    return submit(tutti__reduce_args(TUTTI_CALL_SCAN, sendbuf, recvbuf, count, dtype, op, 0), comm,
                  name, options, ret_request);
}

tutti_status_t tutti_exscan_async(const char *name, const void *sendbuf, void *recvbuf,
                                  size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                  tutti_comm_t *comm, const tutti_async_options_t *options,
                                  tutti_request_t **ret_request)
{
    return submit(tutti__reduce_args(TUTTI_CALL_EXSCAN, sendbuf, recvbuf, count, dtype, op, 0),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_barrier_async(const char *name, tutti_comm_t *comm,
                                   const tutti_async_options_t *options,
                                   tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_BARRIER, NULL, NULL, 0, (tutti_dtype_t)0, 0), comm,
                  name, options, ret_request);
}

/* ---- parts of different lengths ---- */

tutti_status_t tutti_reduce_scatterv_async(const char *name, const void *sendbuf, void *recvbuf,
                                           const size_t *recvcounts, tutti_dtype_t dtype,
                                           tutti_op_t op, tutti_comm_t *comm,
                                           const tutti_async_options_t *options,
                                           tutti_request_t **ret_request)
{
    return submit(tutti__scatterv_reduce_args(sendbuf, recvbuf, recvcounts, dtype, op), comm, name,
                  options, ret_request);
}

tutti_status_t tutti_allgatherv_async(const char *name, const void *sendbuf, size_t sendcount,
                                      void *recvbuf, const size_t *recvcounts, const size_t *displs,
                                      tutti_dtype_t dtype, tutti_comm_t *comm,
                                      const tutti_async_options_t *options,
                                      tutti_request_t **ret_request)
{
    return submit(tutti__parts_args(TUTTI_CALL_ALLGATHERV, sendbuf, NULL, NULL, recvbuf, recvcounts,
                                    displs, sendcount, dtype, 0),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_gatherv_async(const char *name, const void *sendbuf, size_t sendcount,
                                   void *recvbuf, const size_t *recvcounts, const size_t *displs,
                                   tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                   const tutti_async_options_t *options,
                                   tutti_request_t **ret_request)
{
    return submit(tutti__parts_args(TUTTI_CALL_GATHERV, sendbuf, NULL, NULL, recvbuf, recvcounts,
                                    displs, sendcount, dtype, root),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_scatterv_async(const char *name, const void *sendbuf, const size_t *sendcounts,
                                    const size_t *displs, void *recvbuf, size_t recvcount,
                                    tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    return submit(tutti__parts_args(TUTTI_CALL_SCATTERV, sendbuf, sendcounts, displs, recvbuf, NULL,
                                    NULL, recvcount, dtype, root),
                  comm, name, options, ret_request);
}

tutti_status_t tutti_alltoallv_async(const char *name, const void *sendbuf,
                                     const size_t *sendcounts, const size_t *senddispls,
                                     void *recvbuf, const size_t *recvcounts,
                                     const size_t *recvdispls, tutti_dtype_t dtype,
                                     tutti_comm_t *comm, const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    return submit(tutti__parts_args(TUTTI_CALL_ALLTOALLV, sendbuf, sendcounts, senddispls, recvbuf,
                                    recvcounts, recvdispls, 0, dtype, 0),
                  comm, name, options, ret_request);
}

/* ---- messages ---- */

tutti_status_t tutti_send_async(const char *name, const void *buffer, size_t count,
                                tutti_dtype_t dtype, int dest, tutti_comm_t *comm,
                                const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_SEND, buffer, NULL, count, dtype, dest), comm, name,
                  options, ret_request);
}

tutti_status_t tutti_recv_async(const char *name, void *buffer, size_t count, tutti_dtype_t dtype,
                                int source, tutti_comm_t *comm,
                                const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    return submit(tutti__move_args(TUTTI_CALL_RECV, NULL, buffer, count, dtype, source), comm, name,
                  options, ret_request);
}

tutti_status_t tutti_sendrecv_async(const char *name, const void *sendbuf, size_t sendcount,
                                    int dest, void *recvbuf, size_t recvcount, int source,
                                    tutti_dtype_t dtype, tutti_comm_t *comm,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    return submit(tutti__sendrecv_args(sendbuf, sendcount, dest, recvbuf, recvcount, source, dtype),
                  comm, name, options, ret_request);
}
