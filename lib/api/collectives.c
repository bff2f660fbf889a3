/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct collectives with equal parts. direct.c does the work. */
#include "api/direct.h"

#include "base/names.h"
#include "base/status.h"

tutti_status_t tutti_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                               tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLREDUCE,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_allreduce_scaled(const void *sendbuf, void *recvbuf, size_t count,
                                      tutti_dtype_t dtype, tutti_op_t op, double prescale,
                                      double postscale, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLREDUCE,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count,
                           TUTTI__UNSCALED };

    if (prescale != 0)
        call.prescale = prescale;
    if (postscale != 0)
        call.postscale = postscale;
    /* An error for any factors, also 1. */
    if (tutti_dtype_bytes(dtype) != 0 && !tutti__reduce_scales(dtype))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s cannot be scaled", tutti__dtype_name(dtype));
    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_reduce(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                            tutti_op_t op, int root, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_REDUCE,
                           .dtype = dtype,
                           .op = op,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_reduce_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                    tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_REDUCE_SCATTER,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = recvcount,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_allgather(const void *sendbuf, void *recvbuf, size_t sendcount,
                               tutti_dtype_t dtype, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLGATHER,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_gather(const void *sendbuf, void *recvbuf, size_t sendcount,
                            tutti_dtype_t dtype, int root, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_GATHER,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                             tutti_dtype_t dtype, int root, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SCATTER,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = recvcount,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_alltoall(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                              tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_ALLTOALL,
                           .dtype = dtype,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_scan(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                          tutti_op_t op, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SCAN,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_exscan(const void *sendbuf, void *recvbuf, size_t count, tutti_dtype_t dtype,
                            tutti_op_t op, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_EXSCAN,
                           .dtype = dtype,
                           .op = op,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_broadcast(void *buffer, size_t count, tutti_dtype_t dtype, int root,
                               tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_BROADCAST,
                           .dtype = dtype,
                           .root = (uint32_t)root,
                           .recvbuf = buffer,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_barrier(tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_BARRIER, TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}
