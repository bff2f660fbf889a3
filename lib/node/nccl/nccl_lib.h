/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's functions, as the CUDA module has found them: filled in by nccl_find.c, called by
 * nccl_lib.c. For these two only.
 */
#ifndef TUTTI__NODE_NCCL_NCCL_LIB_H
#define TUTTI__NODE_NCCL_NCCL_LIB_H

#include "mem/cuda/cuda_parts.h"

#include <nccl.h>

#define TUTTI__NCCL_LIST(X)                                                                        \
    X(ncclAllGather)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclBroadcast)                                                                               \
    X(ncclCommAbort)                                                                               \
    X(ncclCommCount)                                                                               \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetVersion)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclGroupStart)                                                                              \
    X(ncclRecv)                                                                                    \
    X(ncclReduce)                                                                                  \
    X(ncclReduceScatter)                                                                           \
    X(ncclSend)

/* Not in the headers of 2.18, nor in its library. */
#define TUTTI__NCCL_OPTIONAL(X)                                                                    \
    X(ncclCommDeregister, (const ncclComm_t comm, void *handle))                                   \
    X(ncclCommRegister, (const ncclComm_t comm, void *ptr, size_t bytes, void **ret_handle))       \
    X(ncclMemAlloc, (void **ret_ptr, size_t bytes))                                                \
    X(ncclMemFree, (void *ptr))

typedef struct {
#define SLOT(name) __typeof__(name) *name;
    TUTTI__NCCL_LIST(SLOT)
#undef SLOT
#define SLOT(name, params) ncclResult_t(*name) params;
    TUTTI__NCCL_OPTIONAL(SLOT)
#undef SLOT
    int registers; /* all of OPTIONAL is there */
    int version;   /* 0: there is none */
    char reason[TUTTI__CUDA_REASON_BYTES];
} tutti__nccl_lib_t;

/* Not written after opening. */
extern tutti__nccl_lib_t tutti__nccl_lib;

#endif
