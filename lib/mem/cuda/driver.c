/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver: loads the kernels into each device that is used, and finds the kind of memory
 * that a pointer points to.
 *
 * All kernels are loaded when a device is first used, never during a call: loading waits for all
 * work of the device, and NCCL's work in turn waits for other ranks. Getting a function from its
 * module loads the function, even if CUDA loads lazily. The kernels stay loaded until the process
 * ends.
 */
#include "mem/cuda/cuda_parts.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The oldest driver that is accepted: the later of CUDA 12.0 and the major version of the compiler
   that made the kernels. Older drivers refuse these kernels. */
#define OLDEST TUTTI__MAX(12000, CUDA_VERSION / 1000 * 1000)
#define MOST_DEVICES 64

/* Some of these names are macros, which stand for a later version of the function. */
#define LIST(X)                                                                                    \
    X(cuCtxGetDevice)                                                                              \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuLaunchKernel)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuModuleLoadData)                                                                            \
    X(cuPointerGetAttributes)                                                                      \
    X(cuStreamWaitValue32)

typedef struct {
    CUfunction functions[TUTTI__CUDA_KERNELS];
} kernels_t;

static struct {
#define SLOT(name) __typeof__(name) *name;
    LIST(SLOT)
#undef SLOT
    void *lib;
} cu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Each entry is written once, under lock. The release pairs with the acquire in find_loaded. */
static _Atomic(kernels_t *) loaded[MOST_DEVICES];

static tutti_status_t check(CUresult code, const char *what)
{
    const char *text = NULL, *name = NULL;

    if (TUTTI__LIKELY(code == CUDA_SUCCESS))
        return TUTTI_OK;
    if (cu.cuGetErrorString(code, &text) != CUDA_SUCCESS || text == NULL)
        text = "unknown error";
    if (cu.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL)
        name = "?";
    return tutti__cuda_fail(code == CUDA_ERROR_OUT_OF_MEMORY ? TUTTI_ERR_NO_MEMORY
                                                             : TUTTI_ERR_SYSTEM,
                            "cuda: %s: %s (%s, %d)", what, text, name, (int)code);
}

int tutti__cuda_driver_open(int *ret_version, char *ret_reason)
{
    static const char *const files[] = { "libcuda.so.1" };
    static const tutti__cuda_symbol_t symbols[] = {
#define SYMBOL(name) { TUTTI__CUDA_TEXT(name), (void **)&cu.name },
        LIST(SYMBOL)
#undef SYMBOL
    };
    const char *what = "the CUDA driver, libcuda.so.1";
    int version = 0;
    CUresult code;

    cu.lib = tutti__cuda_open_lib(what, files, 1, symbols, sizeof(symbols) / sizeof(*symbols),
                                  ret_reason);
    if (cu.lib == NULL)
        return 0;
    code = cu.cuDriverGetVersion(&version);
    if (code == CUDA_SUCCESS && version >= OLDEST) {
        *ret_version = version;
        return 1;
    }
    if (code != CUDA_SUCCESS)
        snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES, "%s: cuDriverGetVersion failed with %d",
                 what, (int)code);
    else
        snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES,
                 "%s: it is for CUDA %d.%d, %d.0 or later is needed, as tutti was built with %d.%d",
                 what, version / 1000, version % 1000 / 10, OLDEST / 1000, CUDA_VERSION / 1000,
                 CUDA_VERSION % 1000 / 10);
    tutti__cuda_driver_close();
    return 0;
}

void tutti__cuda_driver_close(void)
{
    tutti__cuda_close_lib(cu.lib);
    cu.lib = NULL;
}

static tutti_status_t load(kernels_t *kernels)
{
    char name[TUTTI__CUDA_NAME_BYTES], what[TUTTI__CUDA_NAME_BYTES + 32];
    tutti_status_t status;
    CUmodule module;
    CUresult code;

    code = cu.cuModuleLoadData(&module, tutti__cuda_image);
    if (code == CUDA_ERROR_NO_BINARY_FOR_GPU)
        return tutti__cuda_fail(
            TUTTI_ERR_UNSUPPORTED,
            "cuda: cuModuleLoadData: tutti was built without code for this GPU's architecture; "
            "with TUTTI_DEVICE=none no GPU is used");
    status = check(code, "cuModuleLoadData");
    for (unsigned k = 0; k < TUTTI__CUDA_KERNELS && status == TUTTI_OK; k++) {
        tutti__cuda_kernel_name(k, name);
        snprintf(what, sizeof(what), "cuModuleGetFunction: %s", name);
        status = check(cu.cuModuleGetFunction(&kernels->functions[k], module, name), what);
    }
    return status;
}

/* The kernels of a device; NULL if they are not loaded, or there is no such device. */
static kernels_t *find_loaded(int device)
{
    return device >= 0 && device < MOST_DEVICES
               ? atomic_load_explicit(&loaded[device], memory_order_acquire)
               : NULL;
}

static tutti_status_t load_once(int device)
{
    kernels_t *kernels;
    tutti_status_t status;

    if (find_loaded(device) != NULL)
        return TUTTI_OK;
    kernels = malloc(sizeof(*kernels));
    if (kernels == NULL)
        return tutti__cuda_fail(TUTTI_ERR_NO_MEMORY, "cuda: kernels of device %d", device);
    status = load(kernels);
    if (status == TUTTI_OK)
        atomic_store_explicit(&loaded[device], kernels, memory_order_release);
    else
        free(kernels);
    return status;
}

tutti_status_t tutti__cuda_load(int device)
{
    tutti_status_t status;

    if (device < 0 || device >= MOST_DEVICES)
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED,
                                "cuda: there is no support for device %d, only for devices 0 to %d",
                                device, MOST_DEVICES - 1);
    pthread_mutex_lock(&lock);
    status = load_once(device);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Does not use the runtime's <<<>>>, which stores an error globally instead of returning it. */
tutti_status_t tutti__cuda_launch(int device, unsigned kernel, unsigned blocks, unsigned threads,
                                  void *args, tutti__dstream_t *stream)
{
    const kernels_t *kernels = find_loaded(device);
    void *params[] = { args };

    if (kernels == NULL)
        return tutti__cuda_fail(TUTTI_ERR_SYSTEM,
                                "cuda: no kernels are loaded on device %d, which this thread uses",
                                device);
    return check(cu.cuLaunchKernel(kernels->functions[kernel], blocks, 1, 1, threads, 1, 1, 0,
                                   (CUstream)stream, params, NULL),
                 "cuLaunchKernel");
}

tutti__where_t tutti__cuda_where(const void *ptr)
{
    CUpointer_attribute attributes[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                         CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
    unsigned type = 0, is_managed = 0;
    int device = -1;
    void *values[] = { &type, &is_managed, &device };
    tutti__where_t where = { TUTTI__MEM_HOST, -1 };

    /* For memory that CUDA has not allocated or registered, this call returns zeros. If the thread
       has no context, the call returns an error. */
    if (ptr == NULL || cu.cuPointerGetAttributes(3, attributes, values,
                                                 (CUdeviceptr)(uintptr_t)ptr) != CUDA_SUCCESS)
        return where;
    if (type == CU_MEMORYTYPE_HOST || is_managed)
        where = (tutti__where_t){ TUTTI__MEM_PINNED, device };
    else if (type == CU_MEMORYTYPE_DEVICE)
        where = (tutti__where_t){ TUTTI__MEM_DEVICE, device };
    return where;
}

/* `word` is in pinned memory, which has the same address on the device as on the host. */
tutti_status_t tutti__cuda_wait_word(tutti__dstream_t *stream, const void *word, uint32_t value)
{
    CUresult code = cu.cuStreamWaitValue32((CUstream)stream, (CUdeviceptr)(uintptr_t)word, value,
                                           CU_STREAM_WAIT_VALUE_GEQ);

    return code == CUDA_ERROR_NOT_SUPPORTED ? TUTTI_ERR_UNSUPPORTED
                                            : check(code, "cuStreamWaitValue32");
}

/* Returns -1 for a thread without a context. In this case the runtime would return device 0. */
int tutti__cuda_current_device(void)
{
    CUdevice device;

    return cu.cuCtxGetDevice(&device) == CUDA_SUCCESS ? (int)device : -1;
}

int tutti__cuda_is_ready(int device)
{
    return find_loaded(device) != NULL && tutti__cuda_current_device() == device;
}
