/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU, as far as the trainer needs one: memory, copies, kernels, matrix products, all in the
 * order of one stream. train_cuda.c is one by CUDA; tests have one that is the host.
 *
 * Each returns false with its reason in `error`. All of one device are called by one thread.
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_compute.h"

typedef struct {
    /* zeros; free waits for what uses it */
    bool (*alloc)(train_device_t *device, size_t bytes, void **ret_memory, train_error_t *error);
    void (*free)(train_device_t *device, void *memory);

    /* `from` may be changed on return; get has waited */
    bool (*put)(train_device_t *device, void *memory, const void *from, size_t bytes,
                train_error_t *error);
    bool (*get)(train_device_t *device, void *to, const void *memory, size_t bytes,
                train_error_t *error);
    bool (*zero)(train_device_t *device, void *memory, size_t bytes, train_error_t *error);
    bool (*sync)(train_device_t *device, train_error_t *error);

    /* a TRAIN_KERNEL_ with its arguments, which are copied, for 0 to count - 1 */
    bool (*launch)(train_device_t *device, unsigned kernel, const void *args, uint32_t count,
                   train_error_t *error);

    /* sums are made in float, whatever the numbers */
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
 * Open the GPU of number `local_rank` modulo how many there are. Its `close` closes it.
 *
 * False if there is none, or not all that is needed for it; the reason says which.
 */
bool train_cuda_open(int local_rank, train_precision_t precision, train_device_t **ret_device,
                     train_error_t *error);

#endif
