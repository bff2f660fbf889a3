/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous collectives with parts of different lengths, and messages. See async.c. */
#include "api/submit.h"

tutti_status_t tutti_reduce_scatterv_async(const char *name, const void *sendbuf, void *recvbuf,
                                           const size_t *recvcounts, tutti_dtype_t dtype,
                                           tutti_op_t op, tutti_comm_t *comm,
                                           const tutti_async_options_t *options,
                                           tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_REDUCE_SCATTERV,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .recvcounts = recvcounts };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_allgatherv_async(const char *name, const void *sendbuf, size_t sendcount,
                                      void *recvbuf, const size_t *recvcounts, const size_t *displs,
                                      tutti_dtype_t dtype, tutti_comm_t *comm,
                                      const tutti_async_options_t *options,
                                      tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLGATHERV,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           .recvcounts = recvcounts,
                           .recvdispls = displs };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_gatherv_async(const char *name, const void *sendbuf, size_t sendcount,
                                   void *recvbuf, const size_t *recvcounts, const size_t *displs,
                                   tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                   const tutti_async_options_t *options,
                                   tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_GATHERV,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           .recvcounts = recvcounts,
                           .recvdispls = displs };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_scatterv_async(const char *name, const void *sendbuf, const size_t *sendcounts,
                                    const size_t *displs, void *recvbuf, size_t recvcount,
                                    tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SCATTERV,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = recvcount,
                           .sendcounts = sendcounts,
                           .senddispls = displs };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_alltoallv_async(const char *name, const void *sendbuf,
                                     const size_t *sendcounts, const size_t *senddispls,
                                     void *recvbuf, const size_t *recvcounts,
                                     const size_t *recvdispls, tutti_dtype_t dtype,
                                     tutti_comm_t *comm, const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLTOALLV,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .sendcounts = sendcounts,
                           .senddispls = senddispls,
                           .recvcounts = recvcounts,
                           .recvdispls = recvdispls };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_send_async(const char *name, const void *buffer, size_t count,
                                tutti_dtype_t dtype, int dest, tutti_comm_t *comm,
                                const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SEND,
                           .dtype = dtype,
                           .root = (uint32_t)dest,
                           .sendbuf = buffer,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_recv_async(const char *name, void *buffer, size_t count, tutti_dtype_t dtype,
                                int source, tutti_comm_t *comm,
                                const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_RECV,
                           .dtype = dtype,
                           .root = (uint32_t)source,
                           .recvbuf = buffer,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_sendrecv_async(const char *name, const void *sendbuf, size_t sendcount,
                                    int dest, void *recvbuf, size_t recvcount, int source,
                                    tutti_dtype_t dtype, tutti_comm_t *comm,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SENDRECV,
                           .dtype = dtype,
                           .root = (uint32_t)dest,
                           .source = (uint32_t)source,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           .recvcount = recvcount };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}
