/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's functions: nccl_find.c finds and stores them, nccl_lib.c calls them. Only these two files
 * include this header.
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

/* Functions that NCCL 2.18 has neither in its headers nor in its library. */
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
    int registers; /* 1: all optional functions were found */
    int version;   /* 0: no NCCL was found */
    char reason[TUTTI__CUDA_REASON_BYTES];
} tutti__nccl_lib_t;

/* Constant after opening. */
extern tutti__nccl_lib_t tutti__nccl_lib;

#endif
