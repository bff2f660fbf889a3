/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All devices' memory is one range of addresses, given out from its beginning on, and given back
 * when the last device is closed. While it is locked, only a device's operations can read or write
 * it.
 */
#include "host_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE static inline
#include "train_kernels.inc"

#define RANGE_BYTES ((size_t)4 << 30) /* of addresses */
#define LINE_BYTES 256

bool host_device_locked;
int host_device_fail_in;

static char *range;
static size_t used_bytes;
static int open_devices;

#define RUN(name)                                                                                  \
    static void run_##name(const void *args, uint32_t count)                                       \
    {                                                                                              \
        for (uint32_t i = count; i-- > 0;)                                                         \
            name##_at(args, i);                                                                    \
    }
TRAIN_KERNELS(RUN)

#define ROW(name) run_##name,
static void (*const kernels[])(const void *args, uint32_t count) = { TRAIN_KERNELS(ROW) };

static bool begin(train_error_t *error)
{
    if (host_device_fail_in > 0 && --host_device_fail_in == 0)
        return train_fail(error, "the device does not want any more");
    return !host_device_locked || mprotect(range, used_bytes, PROT_READ | PROT_WRITE) == 0 ||
           train_fail(error, "mprotect");
}

static bool end(train_error_t *error)
{
    return !host_device_locked || mprotect(range, used_bytes, PROT_NONE) == 0 ||
           train_fail(error, "mprotect");
}

static bool alloc(train_device_t *device, size_t bytes, void **ret_memory, train_error_t *error)
{
    const size_t page = 4096, wanted = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;

    (void)device;
    if (wanted > RANGE_BYTES - used_bytes - page)
        return train_fail(error, "%s: allocating %zu bytes: no more memory", device->name, bytes);
    *ret_memory = range + used_bytes;
    used_bytes += wanted;
    return end(error);
}

static void free_memory(train_device_t *device, void *memory)
{
    (void)device;
    (void)memory;
}

static bool put(train_device_t *device, void *memory, const void *from, size_t bytes,
                train_error_t *error)
{
    (void)device;
    if (!begin(error))
        return false;
    memcpy(memory, from, bytes);
    return end(error);
}

static bool get(train_device_t *device, void *to, const void *memory, size_t bytes,
                train_error_t *error)
{
    return put(device, to, memory, bytes, error);
}

static bool zero(train_device_t *device, void *memory, size_t bytes, train_error_t *error)
{
    (void)device;
    if (!begin(error))
        return false;
    memset(memory, 0, bytes);
    return end(error);
}

static bool sync(train_device_t *device, train_error_t *error)
{
    (void)device;
    return begin(error) && end(error);
}

static bool launch(train_device_t *device, unsigned kernel, const void *args, uint32_t count,
                   train_error_t *error)
{
    (void)device;
    if (!begin(error))
        return false;
    kernels[kernel](args, count);
    return end(error);
}

static float element(const train_product_t *p, train_precision_t precision, size_t i, size_t j)
{
    double sum = 0.0;

    for (size_t l = 0; l < p->k; l++)
        sum += (double)load(p->a, precision, p->turn_a ? l * p->m + i : i * p->k + l) *
               (double)load(p->b, precision, p->turn_b ? j * p->k + l : l * p->n + j);
    return (float)sum;
}

static bool product(train_device_t *device, train_precision_t precision, const train_product_t *p,
                    train_error_t *error)
{
    const uint32_t kind = p->floats ? KIND_FP32 : precision;

    (void)device;
    if (!begin(error))
        return false;
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            const size_t at = i * p->n + j;
            float value = element(p, precision, i, j);

            if (p->beta != 0.0f)
                value += p->beta * load(p->c, kind, at);
            store(p->c, kind, at, value);
        }
    return end(error);
}

static void close_device(train_device_t *device)
{
    free(device);
    if (--open_devices == 0) {
        munmap(range, RANGE_BYTES);
        range = NULL;
        used_bytes = 0;
    }
}

static const train_device_ops_t host_ops = {
    .alloc = alloc,
    .free = free_memory,
    .put = put,
    .get = get,
    .zero = zero,
    .sync = sync,
    .launch = launch,
    .product = product,
    .close = close_device,
};

bool train_cuda_open(int local_rank, train_precision_t precision, train_device_t **ret_device,
                     train_error_t *error)
{
    const int access = host_device_locked ? PROT_NONE : PROT_READ | PROT_WRITE;
    train_device_t *device = calloc(1, sizeof(*device));

    (void)precision;
    if (range == NULL)
        range = mmap(NULL, RANGE_BYTES, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device == NULL || range == MAP_FAILED) {
        range = range == MAP_FAILED ? NULL : range;
        free(device);
        return train_fail(error, "not enough memory");
    }
    open_devices++;
    device->ops = &host_ops;
    snprintf(device->name, sizeof(device->name), "cuda:%d (the host)", local_rank % 2);
    *ret_device = device;
    return true;
}

float host_device_number(const void *numbers, train_precision_t precision, size_t i)
{
    return load(numbers, precision, i);
}
