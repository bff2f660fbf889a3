/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU that Tutti supports: train_cuda_open (examples/train_device.h) on the pretend device, whose
 * module the library has opened (tests/pretend/module.c). The host cannot access the device's
 * memory. Kernels and products are asynchronous work in the device's stream, with delays that
 * differ between ranks. So sums are correct only if they are made in the stream's order.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "host_kernels.h"
#include "pretend/pretend.h"
#include "train_device.h"

#define ARGUMENT_BYTES 256
#define PAUSE_US 100

/* The arguments of a kernel call. */
typedef struct {
    uint32_t kernel, count;
    uint64_t arguments[ARGUMENT_BYTES / sizeof(uint64_t)];
} kernel_t;

typedef struct {
    train_precision_t precision;
    train_product_t product;
} product_t;

typedef struct {
    void *memory;
    size_t bytes;
} zero_t;

static struct {
    void *module;
    const tutti__device_ops_t *ops;
    tutti__dstream_t *stream;
    tutti__devent_t *done;
    tutti_status_t (*launch)(tutti__dstream_t *stream, void (*run)(void *args), const void *args,
                             size_t bytes);
    void *(*view)(const void *ptr);
    unsigned (*counts)(int device, pretend_count_t what);
    int number;
} gpu;

static bool check(tutti_status_t status, const char *what, train_error_t *error)
{
    return status == TUTTI_OK || train_fail(error, "%s: %s", what, tutti_last_error());
}

/* ---- in the stream ---- */

static void run_zero(void *args)
{
    const zero_t *zero = args;

    memset(gpu.view(zero->memory), 0, zero->bytes);
}

/* Replace each device address in the arguments by an address that this thread can access. No number
   in a kernel's arguments looks like an address. */
static void run_kernel(void *args)
{
    kernel_t *call = args;

    for (size_t i = 0; i < ARGUMENT_BYTES / sizeof(uint64_t); i++) {
        void *view = gpu.view((void *)(uintptr_t)call->arguments[i]);

        if (view != NULL)
            call->arguments[i] = (uintptr_t)view;
    }
    host_kernel(call->kernel, call->arguments, call->count);
}

static void run_product(void *args)
{
    product_t *call = args;

    call->product.a = gpu.view(call->product.a);
    call->product.b = gpu.view(call->product.b);
    call->product.c = gpu.view(call->product.c);
    host_product(&call->product, call->precision);
}

/* ---- the device ---- */

static bool alloc(train_device_t *device, size_t bytes, void **ret_memory, train_error_t *error)
{
    (void)device;
    return check(gpu.ops->alloc(bytes, ret_memory), "alloc", error);
}

static void free_memory(train_device_t *device, void *memory)
{
    (void)device;
    gpu.ops->free(memory);
}

static bool sync(train_device_t *device, train_error_t *error)
{
    tutti_status_t status = gpu.ops->record(gpu.done, gpu.stream);

    (void)device;
    if (status == TUTTI_OK)
        while ((status = gpu.ops->query(gpu.done)) == TUTTI__AGAIN)
            sched_yield();
    return check(status, "sync", error);
}

static bool put(train_device_t *device, void *memory, const void *from, size_t bytes,
                train_error_t *error)
{
    return check(gpu.ops->copy(memory, from, bytes, gpu.stream), "copy", error) &&
           sync(device, error);
}

static bool get(train_device_t *device, void *to, const void *memory, size_t bytes,
                train_error_t *error)
{
    return put(device, to, memory, bytes, error);
}

static bool zero(train_device_t *device, void *memory, size_t bytes, train_error_t *error)
{
    const zero_t call = { memory, bytes };

    (void)device;
    return check(gpu.launch(gpu.stream, run_zero, &call, sizeof(call)), "zero", error);
}

static bool launch(train_device_t *device, unsigned kernel, const void *args, uint32_t count,
                   train_error_t *error)
{
    kernel_t call = { .kernel = kernel, .count = count };

    (void)device;
    if (host_kernel_bytes(kernel) > ARGUMENT_BYTES)
        return train_fail(error, "kernel %u: its arguments have no room", kernel);
    memcpy(call.arguments, args, host_kernel_bytes(kernel));
    return check(gpu.launch(gpu.stream, run_kernel, &call, sizeof(call)), "launch", error);
}

static bool product(train_device_t *device, train_precision_t precision, const train_product_t *p,
                    train_error_t *error)
{
    const product_t call = { precision, *p };

    (void)device;
    return check(gpu.launch(gpu.stream, run_product, &call, sizeof(call)), "product", error);
}

static void close_device(train_device_t *device)
{
    fprintf(stderr, "NCCL calls: %u\n", gpu.counts(gpu.number, PRETEND_NCCL_CALLS));
    gpu.ops->event_drop(gpu.done);
    gpu.ops->stream_drop(gpu.stream);
    free(device);
}

static const train_device_ops_t pretend_ops = {
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

/* Find the functions of pretend.h that this file uses. */
static bool load(int number, train_error_t *error)
{
    const char *folder = getenv("TUTTI_MODULE_DIR");
    const tutti__device_ops_t *(*device)(void);
    void (*delays)(unsigned seed, unsigned most_us);
    char path[4200];

    snprintf(path, sizeof(path), "%s/pretend.so", folder != NULL ? folder : ".");
    gpu.module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (gpu.module == NULL)
        return train_fail(error, "%s", dlerror());
    *(void **)&device = dlsym(gpu.module, "pretend_device");
    *(void **)&delays = dlsym(gpu.module, "pretend_delays");
    *(void **)&gpu.launch = dlsym(gpu.module, "pretend_launch");
    *(void **)&gpu.view = dlsym(gpu.module, "pretend_view");
    *(void **)&gpu.counts = dlsym(gpu.module, "pretend_counts");
    gpu.ops = device();
    gpu.number = number;
    delays((unsigned)number + 1, PAUSE_US);
    return true;
}

bool train_cuda_open(int local_rank, train_precision_t precision, train_device_t **ret_device,
                     train_error_t *error)
{
    train_device_t *device;

    (void)precision;
    if (!load(local_rank, error) || !check(gpu.ops->use(local_rank), "use", error) ||
        !check(gpu.ops->stream_make(0, &gpu.stream), "stream_make", error) ||
        !check(gpu.ops->event_make(&gpu.done), "event_make", error))
        return false;
    device = calloc(1, sizeof(*device));
    if (device == NULL)
        return train_fail(error, "not enough memory");
    device->ops = &pretend_ops;
    device->stream = gpu.stream;
    snprintf(device->name, sizeof(device->name), "cuda:%d (pretended)", local_rank);
    *ret_device = device;
    return true;
}
