/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels on the host, by name. Each call runs all threads of all blocks of a launch. Any thread
   may call. */
#ifndef TUTTI_TESTS_CUDA_LIBS_KERNELS_H
#define TUTTI_TESTS_CUDA_LIBS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the library's, of kernels.cu: kernels.cc ---- */

typedef struct host_kernel kernel_t;

/* Returns NULL if there is no kernel of this name. */
const kernel_t *kernel_find(const char *name);
/* args: the parameter, with addresses that the host can read. */
void kernel_run(const kernel_t *kernel, unsigned blocks, unsigned threads, const void *args);

/* ---- the trainer's, of train_kernels.cu: trainer.cc ---- */

typedef struct trainer_kernel trainer_kernel_t;

const trainer_kernel_t *trainer_find(const char *name);
/* The size of the kernel's first parameter. */
size_t trainer_bytes(const trainer_kernel_t *kernel);
void trainer_run(const trainer_kernel_t *kernel, unsigned blocks, unsigned threads,
                 const void *args, uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
