/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of all devices is one range of addresses, allocated from its beginning on, and
 * freed when the last device is closed. While it is locked, only a device's operations can read
 * or write it.
 */
#include "host_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host_kernels.h"

#define RANGE_BYTES ((size_t)4 << 30) /* size of the range of addresses */
#define LINE_BYTES 256

bool host_device_locked;
int host_device_fail_in;

static char *range;
static size_t used_bytes;
static int open_devices;

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
    host_kernel(kernel, args, count);
    return end(error);
}

static bool product(train_device_t *device, train_precision_t precision, const train_product_t *p,
                    train_error_t *error)
{
    (void)device;
    if (!begin(error))
        return false;
    host_product(p, precision);
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
