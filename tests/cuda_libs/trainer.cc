/* SPDX-License-Identifier: BSD-3-Clause */
/* The trainer's kernels (examples/train_kernels.cu) on the host, one launch at a time. */
#include "cuda_libs/kernels.h"

#include <pthread.h>
#include <string.h>

#include "unit/cuda/host_marks.inc"

#include "train_kernels.cu"

struct trainer_kernel {
    const char *name;
    size_t bytes;
    void (*run)(const void *args, uint32_t count);
};

#define RUN(name)                                                                                  \
    static void run_##name(const void *args, uint32_t count)                                       \
    {                                                                                              \
        train_##name(*(const train_##name##_args_t *)args, count);                                 \
    }
TRAIN_KERNELS(RUN)

#define ROW(name) { "train_" #name, sizeof(train_##name##_args_t), run_##name },
static const struct trainer_kernel kernels[] = { TRAIN_KERNELS(ROW) };

extern "C" const trainer_kernel_t *trainer_find(const char *name)
{
    for (auto &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return &kernel;
    return NULL;
}

extern "C" size_t trainer_bytes(const trainer_kernel_t *kernel)
{
    return kernel->bytes;
}

extern "C" void trainer_run(const trainer_kernel_t *kernel, unsigned blocks, unsigned threads,
                            const void *args, uint32_t count)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
            kernel->run(args, count);
    pthread_mutex_unlock(&lock);
}
