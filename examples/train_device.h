/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPU functions that the trainer needs: memory, copies, kernels, matrix products, all in the
 * order of one stream. train_cuda.c implements them by CUDA; tests have a device on the host.
 *
 * On failure a function returns false, with the reason in `error`. One thread makes all calls of a
 * device.
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_compute.h"

typedef struct {
    /* memory of zeros; free waits for work that uses it */
    bool (*alloc)(train_device_t *device, size_t bytes, void **ret_memory, train_error_t *error);
    void (*free)(train_device_t *device, void *memory);

    /* after put, `from` may be changed; get waits */
    bool (*put)(train_device_t *device, void *memory, const void *from, size_t bytes,
                train_error_t *error);
    bool (*get)(train_device_t *device, void *to, const void *memory, size_t bytes,
                train_error_t *error);
    bool (*zero)(train_device_t *device, void *memory, size_t bytes, train_error_t *error);
    bool (*sync)(train_device_t *device, train_error_t *error);

    /* run a TRAIN_KERNEL_ for the elements 0 to count - 1; its arguments are copied */
    bool (*launch)(train_device_t *device, unsigned kernel, const void *args, uint32_t count,
                   train_error_t *error);

    /* sums are computed in float, for any precision */
    bool (*product)(train_device_t *device, train_precision_t precision,
                    const train_product_t *product, train_error_t *error);

    void (*close)(train_device_t *device);
} train_device_ops_t;

struct train_device {
    const train_device_ops_t *ops;
    char name[100]; /* such as "cuda:0 (NVIDIA H100)" */
    void *stream;   /* its handle: cudaStream_t */
};

/*
 * Open the GPU with the number `local_rank` modulo the number of GPUs. Its `close` closes it.
 *
 * False if there is no GPU, or if a library is missing; `error` names it.
 */
bool train_cuda_open(int local_rank, train_precision_t precision, train_device_t **ret_device,
                     train_error_t *error);

#endif
