/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries of CUDA and NCCL for machines without a GPU: one shared object, which stands for
 * libcuda, libcudart, libcublas and libnccl, over the pretend device (tests/pretend/). So the real
 * module, tutti/cuda.so, moves and reduces data, and the trainer trains. Has what these and the
 * tests of tests/gpu/ call.
 *
 *      errors.c       codes and words; errors left behind
 *      driver.c       libcuda: context, modules, launches, pointers
 *      kernels.cc     the library's kernels on the host
 *      trainer.cc     the trainer's
 *      blas.c         libcublas: one product
 *      runtime.c      libcudart: devices and memory
 *      streams.c      streams, events, copies
 *      capture.c      streams that are captured, and who may do what meanwhile
 *      nccl.c         communicators
 *      nccl_calls.c   calls and groups
 *
 * CUDA_VISIBLE_DEVICES says how many devices there are; TUTTI_TEST_PRETEND names the file that a
 * job's ranks share, else they are threads of this process; TUTTI_TEST_NCCL_VERSION: 22605 for
 * 2.26.5. Stricter than the real ones where those would hang, or do something else than was meant:
 * that is an error with words, or the process's end if there is nobody to tell.
 */
#ifndef TUTTI_TESTS_CUDA_LIBS_INSIDE_H
#define TUTTI_TESTS_CUDA_LIBS_INSIDE_H

#include "pretend/nccl_inside.h"

/* What these declare, and no more, is exported. */
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
ncclResult_t ncclGroupStart(void); /* there without parameters */
ncclResult_t ncclGroupEnd(void);
#pragma GCC visibility pop

/* A handle's first word: it is one, and not yet destroyed. */
enum {
    STREAM_MAGIC = 0x73747265,
    EVENT_MAGIC = 0x6576656e,
    GRAPH_MAGIC = 0x67726170,
    COMM_MAGIC = 0x636f6d6d,
    BLAS_MAGIC = 0x626c6173
};

struct CUstream_st {
    int magic, priority;
    tutti__dstream_t *stream;
};

struct CUevent_st {
    int magic;
    tutti__devent_t *event;
};

struct ncclComm {
    int magic, rank, size, is_blocking;
    tutti__nccl_t *nccl;
    atomic_int is_busy; /* nobody has been told that the last call is through */
    int is_final, polls;
};

/* ---- errors.c: codes are CUresult's and cudaError_t's, which agree ---- */

/* A code with words. */
int err_say(int code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Of the pretend device's answer, whose words it keeps. SYSTEM is `otherwise`, unless the device
   is broken. */
int err_code(tutti_status_t status, int otherwise);
/* Nobody can be told: ends the process. */
void err_fatal(const char *fmt, ...) TUTTI__PRINTF(1, 2) __attribute__((noreturn));

/* Each function of the runtime that needs a context begins with the first, which makes one, and
   all end with the second, which keeps the last error. */
cudaError_t rt_begin(const char *what);
cudaError_t rt_end(int code);

/* The same for NCCL. */
ncclResult_t nccl_say(ncclResult_t code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
ncclResult_t nccl_code(tutti_status_t status);

/* ---- driver.c ---- */

/* For what runs in a stream: in place of a caller's address the device's view. 0: the device is
   broken. */
int kernel_sees(const char *what, const void **at, size_t bytes);

/* ---- nccl.c ---- */

/* Is it one, and not in progress? */
ncclResult_t comm_ready(const char *what, ncclComm_t comm);

/* ---- runtime.c ---- */

/* How many devices there are. */
int device_visible(void);
/* 1: cudaMallocManaged's. */
int memory_is_managed(const void *ptr);

/* ---- streams.c ---- */

/* A thread on the device of what it deals with, until it leaves. */
typedef struct {
    tutti__dstream_t *stream;
    int before;
} visit_t;

/* 0, or a code. Of the stream NULL the device is the thread's. */
int visit_stream(const char *what, cudaStream_t handle, visit_t *ret_visit);
void visit_device(device_t *device, visit_t *ret_visit);
void visit_end(const visit_t *visit);

/* ---- capture.c ---- */

/* 0: the thread may make a call that is unsafe while others capture. Else their captures are
   spoiled. */
int capture_forbids(const char *what);
void capture_forget(cudaStream_t handle);

#endif
