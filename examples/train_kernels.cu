/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels for GPUs, train_NAME(arguments, count): the threads stride over the elements.
 *
 * Compile without floating-point contraction, so that the results equal those of the host.
 */
#include <stdint.h>

#define DEVICE static __device__ __forceinline__
#include "train_kernels.inc"

#define KERNEL(name)                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                              \
        train_##name(const __grid_constant__ train_##name##_args_t args, uint32_t count)           \
    {                                                                                              \
        const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;                                  \
                                                                                                   \
        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) \
            name##_at(&args, (uint32_t)i);                                                         \
    }
TRAIN_KERNELS(KERNEL)
