/* SPDX-License-Identifier: BSD-3-Clause */
/* libcudart: devices and memory. */
#include "cuda_libs/inside.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_MANAGED 64

typedef struct {
    void *begin; /* NULL: free */
    size_t bytes;
} managed_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int visible;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects `managed` */
static managed_t managed[MOST_MANAGED];

/* ---- devices ---- */

static void look(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    visible = list == NULL ? PRETEND_DEVICES : *list != '\0';
    for (; list != NULL && *list != '\0'; list++)
        visible += *list == ',';
    if (visible > PRETEND_DEVICES)
        visible = PRETEND_DEVICES;
}

int device_visible(void)
{
    pthread_once(&once, look);
    return visible;
}

static int check_device(int device)
{
    return device >= 0 && device < device_visible() ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_visible();
    return rt_end(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

/* After this call the thread uses the device, which then has a context. */
cudaError_t cudaSetDevice(int device)
{
    int code = check_device(device);

    if (code == cudaSuccess)
        code = err_code(pretend_device()->use(device), cudaErrorInitializationError);
    return rt_end(code);
}

/* This function makes no context. */
cudaError_t cudaGetDevice(int *device)
{
    int mine = pretend_device()->current();

    *device = mine < 0 ? 0 : mine;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    int code = check_device(device);

    if (code == cudaSuccess && attr == cudaDevAttrMultiProcessorCount)
        *value = 1;
    else if (code == cudaSuccess && attr == cudaDevAttrComputeCapabilityMajor)
        *value = 8;
    else if (code == cudaSuccess && attr == cudaDevAttrComputeCapabilityMinor)
        *value = 0;
    else if (code == cudaSuccess)
        code = err_say(cudaErrorInvalidValue, "cudaDeviceGetAttribute: not %d", (int)attr);
    return rt_end(code);
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    int code = check_device(device);

    if (code == cudaSuccess && len < 13)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess)
        snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", (unsigned)device + 1);
    return rt_end(code);
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    int code = rt_begin("cudaMalloc");

    if (code == cudaSuccess)
        code = capture_forbids("cudaMalloc");
    if (code == cudaSuccess && size == 0)
        *devPtr = NULL;
    else if (code == cudaSuccess)
        code = err_code(memory_alloc(size, devPtr), cudaErrorUnknown);
    return rt_end(code);
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    int code = rt_begin("cudaHostAlloc");

    if (code == cudaSuccess)
        code = capture_forbids("cudaHostAlloc");
    /* Without this flag the other devices of the process could not access the memory. */
    if (code == cudaSuccess && flags != cudaHostAllocPortable)
        code = err_say(cudaErrorNotSupported, "cudaHostAlloc: not portable");
    if (code == cudaSuccess)
        code = err_code(memory_host_alloc(size, pHost), cudaErrorUnknown);
    return rt_end(code);
}

/* Returns the entry of a pointer, or for NULL a free entry. Returns NULL if there is none. Call it
   with the lock held. */
static managed_t *find_managed(const void *begin)
{
    for (int i = 0; i < MOST_MANAGED; i++)
        if (managed[i].begin == begin)
            return &managed[i];
    return NULL;
}

int memory_is_managed(const void *ptr)
{
    int found = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_MANAGED && !found; i++)
        found = (uintptr_t)ptr - (uintptr_t)managed[i].begin < managed[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    int code = rt_begin("cudaMallocManaged");
    managed_t *entry;

    if (code == cudaSuccess && flags != cudaMemAttachGlobal)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess)
        code = err_code(memory_host_alloc(size, devPtr), cudaErrorUnknown);
    if (code != cudaSuccess)
        return rt_end(code);
    pthread_mutex_lock(&lock);
    entry = find_managed(NULL);
    if (entry != NULL)
        *entry = (managed_t){ *devPtr, size };
    pthread_mutex_unlock(&lock);
    if (entry == NULL)
        err_fatal("cudaMallocManaged: too many");
    return cudaSuccess;
}

/* Returns 0 if ptr is not managed memory. */
static int drop_managed(void *ptr)
{
    managed_t *entry;

    pthread_mutex_lock(&lock);
    entry = find_managed(ptr);
    if (entry != NULL)
        *entry = (managed_t){ NULL, 0 };
    pthread_mutex_unlock(&lock);
    if (entry != NULL)
        memory_host_free(ptr);
    return entry != NULL;
}

/* cudaFree(NULL) only makes a context. */
cudaError_t cudaFree(void *devPtr)
{
    int code = rt_begin("cudaFree");

    if (code == cudaSuccess)
        code = capture_forbids("cudaFree");
    if (code != cudaSuccess || devPtr == NULL || drop_managed(devPtr))
        return rt_end(code);
    if (memory_where(devPtr).kind != TUTTI__MEM_DEVICE)
        return rt_end(err_say(cudaErrorInvalidValue, "cudaFree: %p is not its memory", devPtr));
    memory_free(devPtr);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *ptr)
{
    int code = rt_begin("cudaFreeHost");

    if (code == cudaSuccess)
        code = capture_forbids("cudaFreeHost");
    if (code != cudaSuccess || ptr == NULL)
        return rt_end(code);
    if (memory_where(ptr).kind != TUTTI__MEM_PINNED)
        return rt_end(err_say(cudaErrorInvalidValue, "cudaFreeHost: %p is not pinned", ptr));
    memory_host_free(ptr);
    return cudaSuccess;
}
