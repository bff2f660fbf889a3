/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries of CUDA and NCCL for machines without a GPU: one shared object, which replaces libcuda,
 * libcudart, libcublas and libnccl, over the pretend device (tests/pretend/). With it the real
 * module, tutti/cuda.so, moves and reduces data, and the trainer trains. The shared object has the
 * functions that the module, the trainer and the tests of tests/gpu/ call.
 *
 *      errors.c       codes and texts; uncleared errors
 *      driver.c       libcuda: context, modules, launches, pointers
 *      kernels.cc     the library's kernels on the host
 *      trainer.cc     the trainer's kernels on the host
 *      blas.c         libcublas: one product
 *      runtime.c      libcudart: devices and memory
 *      streams.c      streams, events, copies
 *      capture.c      captured streams, and the calls that are forbidden during a capture
 *      nccl.c         communicators
 *      nccl_calls.c   calls and groups
 *
 * CUDA_VISIBLE_DEVICES determines the number of devices. TUTTI_TEST_PRETEND names the file that a
 * job's ranks share; without it the ranks are threads of this process. TUTTI_TEST_NCCL_VERSION sets
 * NCCL's version: 22605 for 2.26.5. If the real libraries would hang or do something unintended,
 * these libraries return an error with a text, or end the process if no call can return the error.
 */
#ifndef TUTTI_TESTS_CUDA_LIBS_INSIDE_H
#define TUTTI_TESTS_CUDA_LIBS_INSIDE_H

#include "pretend/nccl_inside.h"

/* Only the declarations of these headers are exported. */
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
ncclResult_t ncclGroupStart(void); /* NCCL's header declares these functions without prototypes */
ncclResult_t ncclGroupEnd(void);
#pragma GCC visibility pop

/* The first word of a valid handle; destroying the handle clears it. */
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
    atomic_int is_busy; /* 1: no caller has received the report that the last call is complete */
    int is_final, polls;
};

/* ---- errors.c: codes of CUresult and cudaError_t, which have the same numbers ---- */

/* Set a code and its text. */
int err_say(int code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Returns the code for a result of the pretend device, and keeps the result's text. SYSTEM becomes
   `otherwise`, unless the device is broken. */
int err_code(tutti_status_t status, int otherwise);
/* End the process, because no call can return the error. */
void err_fatal(const char *fmt, ...) TUTTI__PRINTF(1, 2) __attribute__((noreturn));

/* Each function of the runtime that needs a context begins with rt_begin, which makes one. All
   functions end with rt_end, which keeps the last error. */
cudaError_t rt_begin(const char *what);
cudaError_t rt_end(int code);

/* Like err_say, with NCCL's code. */
ncclResult_t nccl_say(ncclResult_t code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
ncclResult_t nccl_code(tutti_status_t status);

/* ---- driver.c ---- */

/* For kernels in a stream: replace a caller's address by the device's view. Returns 0 if the device
   is broken. */
int kernel_sees(const char *what, const void **at, size_t bytes);

/* ---- nccl.c ---- */

/* Check that comm is a communicator, and is not in progress. */
ncclResult_t comm_ready(const char *what, ncclComm_t comm);

/* ---- runtime.c ---- */

/* The number of devices. */
int device_visible(void);
/* Returns 1 if ptr is from cudaMallocManaged. */
int memory_is_managed(const void *ptr);

/* ---- streams.c ---- */

/* From visit_stream to visit_end the thread uses the device of the object. */
typedef struct {
    tutti__dstream_t *stream;
    int before;
} visit_t;

/* Returns 0 or a code. For the stream NULL, the thread's device is used. */
int visit_stream(const char *what, cudaStream_t handle, visit_t *ret_visit);
void visit_device(device_t *device, visit_t *ret_visit);
void visit_end(const visit_t *visit);

/* ---- capture.c ---- */

/* Returns 0 if the thread may make a call that is unsafe while other threads capture. Otherwise the
   captures of these threads become invalid. */
int capture_forbids(const char *what);
void capture_forget(cudaStream_t handle);

#endif
