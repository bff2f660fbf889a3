/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of the CUDA module, tutti/cuda.so. These files are not linked into the library.
 *
 *      node/nccl/cuda_module.c   the table that the module exports; errors and logs of all parts
 *      node/nccl/nccl_lib.c      NCCL; only this file and nccl_find.c include its header
 *      node/nccl/nccl_find.c     finds NCCL when the module is opened
 *      mem/cuda/runtime.c        the runtime, libcudart; the only file that includes its header
 *      mem/cuda/driver.c         the driver, libcuda; the only file that includes its header
 *      mem/cuda/libs.c           opens runtime, driver and NCCL when the module is opened
 *      reduce/cuda/              kernels, and their launch
 *
 * No part links CUDA or NCCL: headers provide types, dlsym provides functions. So the module opens
 * with the CUDA version that it was built with, 12 or 13, and with later versions. If a library is
 * missing, opening returns a message. Structures of CUDA that have grown between versions, such as
 * cudaPointerAttributes, are not used.
 *
 * Threads: see device.h. There are four locks: cuda_module.c has one for opening, driver.c one for
 * loading kernels, nccl_lib.c one for its list of closing communicators, and runtime.c one for the
 * memory of semaphores. All other data are constant after opening.
 */
#ifndef TUTTI__MEM_CUDA_CUDA_PARTS_H
#define TUTTI__MEM_CUDA_CUDA_PARTS_H

#include "base/compiler.h"
#include "mem/device.h"

/* Size of a text with the reason why a library cannot be used. */
#define TUTTI__CUDA_REASON_BYTES 384

/* ---- node/nccl/cuda_module.c ---- */

tutti_status_t tutti__cuda_fail(tutti_status_t status, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Log a failure that cannot be returned, such as the failure of a free. */
void tutti__cuda_note(const char *fmt, ...) TUTTI__PRINTF(1, 2);

/* ---- mem/cuda/libs.c ---- */

typedef struct {
    const char *name;
    void **slot; /* where to store the function's address */
} tutti__cuda_symbol_t;

/* Open the first file of the list that the process has loaded. If no file is loaded, open the first
   file that can be opened. Find all symbols in the opened file. On failure return NULL and a
   reason, which begins with `what`. */
void *tutti__cuda_open_lib(const char *what, const char *const *files, size_t nfiles,
                           const tutti__cuda_symbol_t *symbols, size_t nsymbols, char *ret_reason);
void tutti__cuda_close_lib(void *lib);

/* For the tables LIST(X), which contain X(function) for each function: the function's name. */
#define TUTTI__CUDA_TEXT_(name) #name
#define TUTTI__CUDA_TEXT(name) TUTTI__CUDA_TEXT_(name)

/* ---- mem/cuda/driver.c ---- */

/* Returns 0 and a reason if there is no driver, or an old one. *ret_version: 13000 for 13.0. */
int tutti__cuda_driver_open(int *ret_version, char *ret_reason);
void tutti__cuda_driver_close(void);
/* Load the kernels into `device`, the calling thread's device, unless they are already loaded. */
tutti_status_t tutti__cuda_load(int device);
/* Launch a kernel on the calling thread's device. `args`: the kernel's only parameter. */
tutti_status_t tutti__cuda_launch(int device, unsigned kernel, unsigned blocks, unsigned threads,
                                  void *args, tutti__dstream_t *stream);
tutti__where_t tutti__cuda_where(const void *ptr);
/* The second part of tutti__cuda_await, after the check of the stream's priority. */
tutti_status_t tutti__cuda_wait_word(tutti__dstream_t *stream, const void *word, uint32_t value);
int tutti__cuda_current_device(void);
/* Returns 1 if the calling thread uses this device, and the device's kernels are loaded. Takes no
   lock, and is allowed while a CUDA graph is captured. */
int tutti__cuda_is_ready(int device);

/* ---- mem/cuda/runtime.c ---- */

int tutti__cuda_runtime_open(int driver_version, int *ret_version, char *ret_reason);
void tutti__cuda_runtime_close(void);
tutti_status_t tutti__cuda_count(int *ret_count);
tutti_status_t tutti__cuda_use(int device);
/* The thread's device, and the number of thread blocks that fill it. */
tutti_status_t tutti__cuda_current(int *ret_device, unsigned *ret_blocks);
void tutti__cuda_identity(int device, char ret_identity[TUTTI__DEVICE_IDENTITY_BYTES]);
/* The lowest compute capability of all devices, 90 for 9.0; 0: unknown. */
int tutti__cuda_capability(void);
tutti_status_t tutti__cuda_alloc(size_t bytes, void **ret_ptr);
void tutti__cuda_free(void *ptr);
tutti_status_t tutti__cuda_host_alloc(size_t bytes, void **ret_ptr);
void tutti__cuda_host_free(void *ptr);
tutti_status_t tutti__cuda_stream_make(int is_urgent, tutti__dstream_t **ret_stream);
void tutti__cuda_stream_drop(tutti__dstream_t *stream);
int tutti__cuda_stream_captures(tutti__dstream_t *stream);
tutti_status_t tutti__cuda_event_make(tutti__devent_t **ret_event);
void tutti__cuda_event_drop(tutti__devent_t *event);
tutti_status_t tutti__cuda_record(tutti__devent_t *event, tutti__dstream_t *stream);
tutti_status_t tutti__cuda_wait(tutti__dstream_t *stream, tutti__devent_t *event);
tutti_status_t tutti__cuda_query(tutti__devent_t *event);
tutti_status_t tutti__cuda_timer_make(tutti__devent_t **ret_timer);
tutti_status_t tutti__cuda_elapsed(tutti__devent_t *start, tutti__devent_t *stop, double *ret_us);
tutti_status_t tutti__cuda_words(void **ret_words);
tutti_status_t tutti__cuda_await(tutti__dstream_t *stream, const void *word, uint32_t value);
tutti_status_t tutti__cuda_copy(void *dst, const void *src, size_t bytes, tutti__dstream_t *stream);

/* ---- reduce/cuda/launch.c, image.c ---- */

#define TUTTI__CUDA_KERNELS 49
#define TUTTI__CUDA_NAME_BYTES 32
void tutti__cuda_kernel_name(unsigned kernel, char *ret_name);
/* A copy of tutti_dtype_bytes, which the module does not link; 0: not a type. */
size_t tutti__cuda_dtype_bytes(tutti_dtype_t dtype);
tutti_status_t tutti__cuda_pack(const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from,
                                tutti_dtype_t to, double scale, tutti__dstream_t *stream);
tutti_status_t tutti__cuda_sum(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                               tutti_dtype_t dtype, uint32_t divisor, tutti__dstream_t *stream);
/* The kernels' code for all architectures, compiled from kernels.cu by nvcc. */
extern const unsigned char tutti__cuda_image[];

/* ---- node/nccl/nccl_find.c ---- */

/* Returns 0 and a reason if NCCL cannot be used. In this case the functions below fail with
   UNSUPPORTED and this reason. */
int tutti__cuda_nccl_find(int *ret_version, char *ret_reason);
/* Returns 1 if this NCCL has the functions that register buffers (2.19 and later). */
int tutti__cuda_nccl_registers(void);

/* ---- node/nccl/nccl_lib.c ---- */

int tutti__cuda_nccl_serves(tutti_dtype_t dtype, tutti_op_t op);
tutti_status_t tutti__cuda_nccl_id(tutti__nccl_id_t *ret_id);
tutti_status_t tutti__cuda_nccl_open(const tutti__nccl_id_t *id, uint32_t rank, uint32_t size,
                                     int is_blocking, tutti__nccl_t **ret_nccl);
int tutti__cuda_nccl_binds(void);
tutti_status_t tutti__cuda_nccl_poll(tutti__nccl_t *nccl);
tutti_status_t tutti__cuda_nccl_call(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls,
                                     size_t ncalls, tutti__dstream_t *stream);
tutti_status_t tutti__cuda_nccl_alloc(size_t bytes, void **ret_ptr);
void tutti__cuda_nccl_free(void *ptr);
tutti_status_t tutti__cuda_nccl_register(tutti__nccl_t *nccl, void *ptr, size_t bytes,
                                         tutti__nccl_reg_t **ret_reg);
void tutti__cuda_nccl_deregister(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg);
void tutti__cuda_nccl_close(tutti__nccl_t *nccl);
void tutti__cuda_nccl_abort(tutti__nccl_t *nccl);

#endif
