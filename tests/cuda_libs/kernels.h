/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of kernels.cu, on the host (kernels.cc). */
#ifndef TUTTI_TESTS_CUDA_LIBS_KERNELS_H
#define TUTTI_TESTS_CUDA_LIBS_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct host_kernel kernel_t;

/* NULL: there is none of this name. */
const kernel_t *kernel_find(const char *name);
/* All threads of all blocks; args: the parameter, with addresses that the host can read. Any
   thread. */
void kernel_run(const kernel_t *kernel, unsigned blocks, unsigned threads, const void *args);

#ifdef __cplusplus
}
#endif

#endif
