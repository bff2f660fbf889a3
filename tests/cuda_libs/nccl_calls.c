/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libnccl: calls. Every call is in a group, even a single call, and is launched when the group
 * ends. In this library a group has one communicator and one stream, as Tutti uses it. Collectives
 * without elements are omitted, as in the real library.
 */
#include "cuda_libs/inside.h"

#include <stdlib.h>
#include <string.h>

/* The thread's group. */
static _Thread_local struct {
    int depth;
    ncclResult_t error; /* the group's first error */
    ncclComm_t comm;
    cudaStream_t stream;
    size_t n, room;
    tutti__nccl_call_t *calls; /* freed at the end of each group */
} group;

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

/* ---- types and operations ---- */

/* E4M3 and E5M2. Older headers do not have these types. */
static int is_float8(ncclDataType_t type)
{
    return (int)type == 10 || (int)type == 11;
}

/* Elements of float8 are only moved, as bytes. */
static tutti_dtype_t type_of(ncclDataType_t type)
{
    switch ((int)type) {
    case ncclInt8:
        return TUTTI_INT8;
    case ncclUint8:
    case 10:
    case 11:
        return TUTTI_UINT8;
    case ncclInt32:
        return TUTTI_INT32;
    case ncclUint32:
        return TUTTI_UINT32;
    case ncclInt64:
        return TUTTI_INT64;
    case ncclUint64:
        return TUTTI_UINT64;
    case ncclFloat16:
        return TUTTI_FLOAT16;
    case ncclFloat32:
        return TUTTI_FLOAT32;
    case ncclFloat64:
        return TUTTI_FLOAT64;
    case 9:
        return TUTTI_BFLOAT16;
    default:
        return (tutti_dtype_t)0;
    }
}

static tutti_op_t op_of(ncclRedOp_t op)
{
    switch ((int)op) {
    case ncclSum:
        return TUTTI_SUM;
    case ncclProd:
        return TUTTI_PROD;
    case ncclMax:
        return TUTTI_MAX;
    case ncclMin:
        return TUTTI_MIN;
    case ncclAvg:
        return TUTTI_AVG;
    default:
        return (tutti_op_t)0;
    }
}

/* ---- a call ---- */

static int is_message(const tutti__nccl_call_t *call)
{
    return call->kind == TUTTI__NCCL_SEND || call->kind == TUTTI__NCCL_RECV;
}

static ncclResult_t check(const char *what, const tutti__nccl_call_t *call, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t code = comm_ready(what, comm);

    if (code != ncclSuccess)
        return code;
    if (comm->is_final)
        return nccl_say(ncclInvalidArgument, "%s: the communicator was finalized", what);
    if (call->dtype == 0 || call->op == 0)
        return nccl_say(ncclInvalidArgument, "%s: type %d, or its operation", what, (int)type);
    /* This also applies to calls that only move elements, as in taskAppend of NCCL's enqueue.cc. */
    if (!is_message(call) && call->count > 0 && is_float8(type))
        return nccl_say(ncclInvalidArgument,
                        "%s: FP8 reduction support begins with sm90 capable devices", what);
    if ((int)call->root < 0 || (int)call->root >= comm->size)
        return nccl_say(ncclInvalidArgument, "%s: there is no rank %d", what, (int)call->root);
    if (group.n > 0 && (group.comm != comm || group.stream != stream))
        return nccl_say(ncclInvalidUsage, "%s: another communicator or stream in a group", what);
    return ncclSuccess;
}

static ncclResult_t append(const tutti__nccl_call_t *call, ncclComm_t comm, cudaStream_t stream)
{
    if (call->count == 0 && !is_message(call))
        return ncclSuccess;
    if (group.n == group.room) {
        size_t room = group.room == 0 ? 16 : 2 * group.room;
        tutti__nccl_call_t *calls = realloc(group.calls, room * sizeof(*calls));

        if (calls == NULL)
            return ncclSystemError;
        group.calls = calls;
        group.room = room;
    }
    group.comm = comm;
    group.stream = stream;
    group.calls[group.n++] = *call;
    return ncclSuccess;
}

/* If op is NULL, the call only moves data. */
static ncclResult_t queue(const char *what, tutti__nccl_call_t call, ncclDataType_t type,
                          const ncclRedOp_t *op, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t code, ended;

    (void)ncclGroupStart();
    call.dtype = type_of(type);
    call.op = op == NULL ? TUTTI_SUM : op_of(*op);
    code = check(what, &call, type, comm, stream);
    if (code == ncclSuccess)
        code = append(&call, comm, stream);
    if (code != ncclSuccess && group.error == ncclSuccess)
        group.error = code;
    ended = ncclGroupEnd();
    return code == ncclSuccess ? ended : code;
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_ALLREDUCE, sendbuff, recvbuff, count, 0, 0, 0 };

    return queue("ncclAllReduce", call, datatype, &op, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    tutti__nccl_call_t call = {
        TUTTI__NCCL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, 0, 0, 0
    };

    return queue("ncclReduceScatter", call, datatype, &op, comm, stream);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_ALLGATHER, sendbuff, recvbuff, sendcount, 0, 0, 0 };

    return queue("ncclAllGather", call, datatype, NULL, comm, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_BROADCAST, sendbuff, recvbuff, count, 0, 0,
                                (uint32_t)root };

    return queue("ncclBroadcast", call, datatype, NULL, comm, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    tutti__nccl_call_t call = {
        TUTTI__NCCL_REDUCE, sendbuff, recvbuff, count, 0, 0, (uint32_t)root
    };

    return queue("ncclReduce", call, datatype, &op, comm, stream);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_SEND, sendbuff, NULL, count, 0, 0, (uint32_t)peer };

    return queue("ncclSend", call, datatype, NULL, comm, stream);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_RECV, NULL, recvbuff, count, 0, 0, (uint32_t)peer };

    return queue("ncclRecv", call, datatype, NULL, comm, stream);
}

/* ---- a group ---- */

static ncclResult_t launch(void)
{
    ncclComm_t comm = group.comm;
    ncclResult_t code;
    visit_t visit;

    if (visit_stream("ncclGroupEnd", group.stream, &visit) != cudaSuccess)
        return nccl_say(ncclUnhandledCudaError, "ncclGroupEnd: %s",
                        cudaGetErrorString(cudaErrorInvalidResourceHandle));
    device_set_mine(comm->nccl->device);
    code = nccl_code(nccl_call(comm->nccl, group.calls, group.n, visit.stream));
    visit_end(&visit);
    if (code != ncclSuccess || comm->is_blocking)
        return code;
    atomic_store(&comm->is_busy, 1);
    return ncclInProgress;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t code;

    if (group.depth == 0)
        return nccl_say(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
    if (--group.depth > 0)
        return ncclSuccess;
    code = group.error;
    if (code == ncclSuccess && group.n > 0)
        code = launch();
    free(group.calls);
    memset(&group, 0, sizeof(group));
    return code;
}
