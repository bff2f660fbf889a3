/* SPDX-License-Identifier: BSD-3-Clause */
/* The asynchronous collectives. submit.c and the engine do the work. */
#include "api/submit.h"

tutti_status_t tutti_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                     size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                     tutti_comm_t *comm, const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLREDUCE,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_reduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                  size_t count, tutti_dtype_t dtype, tutti_op_t op, int root,
                                  tutti_comm_t *comm, const tutti_async_options_t *options,
                                  tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_REDUCE,
                           .dtype = dtype,
                           .op = op,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_broadcast_async(const char *name, void *buffer, size_t count,
                                     tutti_dtype_t dtype, int root, tutti_comm_t *comm,
                                     const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_BROADCAST,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .recvbuf = buffer,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_reduce_scatter_async(const char *name, const void *sendbuf, void *recvbuf,
                                          size_t recvcount, tutti_dtype_t dtype, tutti_op_t op,
                                          tutti_comm_t *comm, const tutti_async_options_t *options,
                                          tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_REDUCE_SCATTER,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = recvcount };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_allgather_async(const char *name, const void *sendbuf, void *recvbuf,
                                     size_t sendcount, tutti_dtype_t dtype, tutti_comm_t *comm,
                                     const tutti_async_options_t *options,
                                     tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLGATHER,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_gather_async(const char *name, const void *sendbuf, void *recvbuf,
                                  size_t sendcount, tutti_dtype_t dtype, int root,
                                  tutti_comm_t *comm, const tutti_async_options_t *options,
                                  tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_GATHER,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_scatter_async(const char *name, const void *sendbuf, void *recvbuf,
                                   size_t recvcount, tutti_dtype_t dtype, int root,
                                   tutti_comm_t *comm, const tutti_async_options_t *options,
                                   tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SCATTER,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = recvcount };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_alltoall_async(const char *name, const void *sendbuf, void *recvbuf,
                                    size_t count, tutti_dtype_t dtype, tutti_comm_t *comm,
                                    const tutti_async_options_t *options,
                                    tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLTOALL,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_scan_async(const char *name, const void *sendbuf, void *recvbuf, size_t count,
                                tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm,
                                const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SCAN,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_exscan_async(const char *name, const void *sendbuf, void *recvbuf,
                                  size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                  tutti_comm_t *comm, const tutti_async_options_t *options,
                                  tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_EXSCAN,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}

tutti_status_t tutti_barrier_async(const char *name, tutti_comm_t *comm,
                                   const tutti_async_options_t *options,
                                   tutti_request_t **ret_request)
{
    tutti__call_t call = { .kind = TUTTI_CALL_BARRIER };

    return tutti__submit_one(comm, name, &call, options, ret_request);
}
