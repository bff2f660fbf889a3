/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's kernels (lib/reduce/cuda/kernels.cu) on the host, one launch at a time. */
#include "cuda_libs/kernels.h"

#include <pthread.h>

#include "unit/cuda/host_kernels.inc"

extern "C" const kernel_t *kernel_find(const char *name)
{
    return find_kernel(name);
}

extern "C" void kernel_run(const kernel_t *kernel, unsigned blocks, unsigned threads,
                           const void *args)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    run_kernel(kernel, blocks, threads, args);
    pthread_mutex_unlock(&lock);
}
