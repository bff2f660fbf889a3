/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns the arguments of a public function into the structure of a call. Checks nothing. */
#ifndef TUTTI__API_CALL_ARGS_H
#define TUTTI__API_CALL_ARGS_H

#include "call/call.h"

/* Calls that move data: collectives with equal parts, and messages. root: the root, or a message's
   peer. */
static inline tutti__call_t tutti__move_args(tutti_call_kind_t kind, const void *sendbuf,
                                             void *recvbuf, size_t count, tutti_dtype_t dtype,
                                             int root)
{
    return (tutti__call_t){ .kind = kind,
                            .dtype = dtype,
                            .root = (uint32_t)root,
                            .sendbuf = sendbuf,
                            .recvbuf = recvbuf,
                            .count = count,
                            .prescale = 1,
                            .postscale = 1 };
}

/* Reductions. root: 0 for a kind without a root. */
static inline tutti__call_t tutti__reduce_args(tutti_call_kind_t kind, const void *sendbuf,
                                               void *recvbuf, size_t count, tutti_dtype_t dtype,
                                               tutti_op_t op, int root)
{
    tutti__call_t call = tutti__move_args(kind, sendbuf, recvbuf, count, dtype, root);

    call.op = op;
    return call;
}

/* Collectives with parts of different lengths. count: the call's sendcount or recvcount; 0 if the
   call has neither. */
static inline tutti__call_t tutti__parts_args(tutti_call_kind_t kind, const void *sendbuf,
                                              const size_t *sendcounts, const size_t *senddispls,
                                              void *recvbuf, const size_t *recvcounts,
                                              const size_t *recvdispls, size_t count,
                                              tutti_dtype_t dtype, int root)
{
    tutti__call_t call = tutti__move_args(kind, sendbuf, recvbuf, count, dtype, root);

    call.sendcounts = sendcounts;
    call.senddispls = senddispls;
    call.recvcounts = recvcounts;
    call.recvdispls = recvdispls;
    return call;
}

static inline tutti__call_t tutti__scatterv_reduce_args(const void *sendbuf, void *recvbuf,
                                                        const size_t *recvcounts,
                                                        tutti_dtype_t dtype, tutti_op_t op)
{
    tutti__call_t call =
        tutti__reduce_args(TUTTI_CALL_REDUCE_SCATTERV, sendbuf, recvbuf, 0, dtype, op, 0);

    call.recvcounts = recvcounts;
    return call;
}

static inline tutti__call_t tutti__sendrecv_args(const void *sendbuf, size_t sendcount, int dest,
                                                 void *recvbuf, size_t recvcount, int source,
                                                 tutti_dtype_t dtype)
{
    tutti__call_t call =
        tutti__move_args(TUTTI_CALL_SENDRECV, sendbuf, recvbuf, sendcount, dtype, dest);

    call.source = (uint32_t)source;
    call.recvcount = recvcount;
    return call;
}

#endif
