/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct messages between two ranks. direct.c does the work. */
#include "api/direct.h"

tutti_status_t tutti_send(const void *buffer, size_t count, tutti_dtype_t dtype, int dest,
                          tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SEND,
                           .dtype = dtype,
                           .root = (uint32_t)dest,
                           .sendbuf = buffer,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_recv(void *buffer, size_t count, tutti_dtype_t dtype, int source,
                          tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_RECV,
                           .dtype = dtype,
                           .root = (uint32_t)source,
                           .recvbuf = buffer,
                           .count = count,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}

tutti_status_t tutti_sendrecv(const void *sendbuf, size_t sendcount, int dest, void *recvbuf,
                              size_t recvcount, int source, tutti_dtype_t dtype, tutti_comm_t *comm)
{
    tutti__call_t call = { .kind = TUTTI_CALL_SENDRECV,
                           .dtype = dtype,
                           .root = (uint32_t)dest,
                           .source = (uint32_t)source,
                           .sendbuf = sendbuf,
                           .recvbuf = recvbuf,
                           .count = sendcount,
                           .recvcount = recvcount,
                           TUTTI__UNSCALED };

    return tutti__comm_call(comm, &call);
}
