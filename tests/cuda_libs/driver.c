/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcuda: the thread's context, modules, launches, semaphores, and the attributes of pointers.
 *
 * A launch copies its parameter. The addresses in the parameter are checked when the stream
 * executes the launch. An address outside the device's memory, or an overrun, breaks the device,
 * like CUDA's error 700.
 */
#include "cuda_libs/inside.h"

#include "cuda_libs/kernels.h"
#include "reduce/cuda/kernel_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC 0xba55ed50u
#define MOST_FUNCTIONS 64
#define MOST_THREADS 1024
#define TRAINER_WORDS 32 /* most words of 8 bytes in a kernel's arguments */

struct CUfunc_st {
    int device;
    const kernel_t *kernel; /* NULL: a kernel of the trainer */
    const trainer_kernel_t *trainer;
    int is_sum;
    size_t from_bytes, to_bytes; /* size of an element */
};

struct CUmod_st {
    int device, nfunctions;
    struct CUfunc_st functions[MOST_FUNCTIONS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the modules */

typedef struct {
    const struct CUfunc_st *function;
    unsigned blocks, threads;
    uint32_t count; /* elements; for kernels of the trainer only */
    union {
        tutti__pack_args_t pack;
        tutti__sum_args_t sum;
        uint64_t words[TRAINER_WORDS];
    } args;
} launch_item_t;

/* ---- context ---- */

CUresult cuDriverGetVersion(int *driverVersion)
{
    *driverVersion = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static int check_context(const char *what)
{
    return pretend_device()->current() >= 0
               ? CUDA_SUCCESS
               : err_say(CUDA_ERROR_INVALID_CONTEXT, "%s: the thread has no context", what);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    int code = check_context("cuCtxGetDevice");

    if (code == CUDA_SUCCESS)
        *device = pretend_device()->current();
    return (CUresult)code;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    if (dev < 0 || dev >= device_visible() || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)len, "pretended");
    return CUDA_SUCCESS;
}

/* ---- modules ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    int code = check_context("cuModuleLoadData"), device = pretend_device()->current();
    uint32_t magic;

    if (code == CUDA_SUCCESS)
        code = capture_forbids("cuModuleLoadData");
    if (code != CUDA_SUCCESS)
        return (CUresult)code;
    memcpy(&magic, image, sizeof(magic));
    if (magic != FATBIN_MAGIC)
        return (CUresult)err_say(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: no fatbin");
    *module = calloc(1, sizeof(**module));
    if (*module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*module)->device = device;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    int code = check_context("cuModuleUnload");

    if (code == CUDA_SUCCESS)
        free(hmod);
    return (CUresult)code;
}

/* A kernel's name contains its types. */
static struct CUfunc_st describe(const char *name, int device)
{
    struct CUfunc_st f = { device, kernel_find(name), trainer_find(name), 0, 1, 1 };
    unsigned from, to;

    if (sscanf(name, "tutti_cast_%u_%u", &from, &to) == 2) {
        f.from_bytes = tutti_dtype_bytes((tutti_dtype_t)from);
        f.to_bytes = tutti_dtype_bytes((tutti_dtype_t)to);
    } else if (sscanf(name, "tutti_sum_%u", &from) == 1) {
        f.is_sum = 1;
        f.from_bytes = f.to_bytes = tutti_dtype_bytes((tutti_dtype_t)from);
    }
    return f;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    const struct CUfunc_st described = describe(name, hmod->device);
    int code = CUDA_SUCCESS;

    if (described.kernel == NULL && described.trainer == NULL)
        return (CUresult)err_say(CUDA_ERROR_NOT_FOUND, "cuModuleGetFunction: no %s", name);
    pthread_mutex_lock(&lock);
    if (hmod->nfunctions == MOST_FUNCTIONS) {
        code = err_say(CUDA_ERROR_OUT_OF_MEMORY, "cuModuleGetFunction: too many");
    } else {
        *hfunc = &hmod->functions[hmod->nfunctions++];
        **hfunc = described;
    }
    pthread_mutex_unlock(&lock);
    return (CUresult)code;
}

/* ---- launches ---- */

int kernel_sees(const char *what, const void **at, size_t bytes)
{
    char words[WORDS_BYTES], *view;
    device_t *device;

    if (device_mine("a kernel", &device) != TUTTI_OK)
        return 0;
    if (memory_view(device, VIEW_KERNEL, *at, bytes, &view, words) == TUTTI_OK) {
        *at = view;
        return 1;
    }
    device_trouble(device, "a kernel %s: %s", what, words);
    return 0;
}

static int see_pieces(const struct CUfunc_st *f, tutti__pack_args_t *args)
{
    for (uint32_t i = 0; i < args->npieces; i++) {
        const void *dst = args->dst[i];

        if (!kernel_sees("reads", &args->src[i], args->count[i] * f->from_bytes) ||
            !kernel_sees("writes", &dst, args->count[i] * f->to_bytes))
            return 0;
        args->dst[i] = (void *)(uintptr_t)dst;
    }
    return 1;
}

static int see_arrays(const struct CUfunc_st *f, tutti__sum_args_t *args)
{
    const void *dst = args->dst;

    for (uint32_t i = 0; i < args->nsrcs; i++)
        if (!kernel_sees("reads", &args->src[i], args->count * f->from_bytes))
            return 0;
    if (!kernel_sees("writes", &dst, args->count * f->to_bytes))
        return 0;
    args->dst = (void *)(uintptr_t)dst;
    return 1;
}

/* Only the kernel has the lengths of the arrays, so every value that is an address of the device is
   replaced by its view. None of the trainer's numbers looks like an address
   (examples/train_kernels.h). */
static void see_words(const struct CUfunc_st *f, uint64_t *words)
{
    for (size_t i = 0; i < trainer_bytes(f->trainer) / sizeof(*words); i++) {
        void *view = pretend_view((void *)(uintptr_t)words[i]);

        if (view != NULL)
            words[i] = (uintptr_t)view;
    }
}

static void run(void *item)
{
    launch_item_t *launch = item;
    const struct CUfunc_st *f = launch->function;

    if (f->kernel == NULL) {
        see_words(f, launch->args.words);
        trainer_run(f->trainer, launch->blocks, launch->threads, &launch->args, launch->count);
        return;
    }
    if (f->is_sum ? see_arrays(f, &launch->args.sum) : see_pieces(f, &launch->args.pack))
        kernel_run(f->kernel, launch->blocks, launch->threads, &launch->args);
}

static int check_launch(CUfunction f, unsigned blocks, unsigned threads, unsigned others)
{
    int code = check_context("cuLaunchKernel");

    if (code == CUDA_SUCCESS && (f == NULL || (f->kernel == NULL && f->trainer == NULL)))
        code = err_say(CUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: this is no function");
    if (code == CUDA_SUCCESS && f->device != pretend_device()->current())
        code = err_say(CUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: a function of device %d on %d",
                       f->device, pretend_device()->current());
    if (code == CUDA_SUCCESS &&
        (blocks == 0 || threads == 0 || threads > MOST_THREADS || others != 1))
        code = err_say(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: %u blocks of %u threads", blocks,
                       threads);
    return code;
}

static void take_params(launch_item_t *item, void **params)
{
    const struct CUfunc_st *f = item->function;

    if (f->kernel != NULL) {
        memcpy(&item->args, params[0],
               f->is_sum ? sizeof(item->args.sum) : sizeof(item->args.pack));
        return;
    }
    if (trainer_bytes(f->trainer) > sizeof(item->args.words))
        err_fatal("cuLaunchKernel: the arguments have no room");
    memcpy(&item->args, params[0], trainer_bytes(f->trainer));
    memcpy(&item->count, params[1], sizeof(item->count));
}

/* Unlike other calls, this one accepts only streams of the context's device. */
CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra)
{
    int code = check_launch(f, gridDimX, blockDimX, gridDimY * gridDimZ * blockDimY * blockDimZ);
    launch_item_t item = { f, gridDimX, blockDimX, 0, { .pack = { .npieces = 0 } } };
    visit_t visit;

    if (code == CUDA_SUCCESS && (sharedMemBytes != 0 || kernelParams == NULL || extra != NULL))
        code = err_say(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: not its parameters");
    if (code == CUDA_SUCCESS)
        code = visit_stream("cuLaunchKernel", hStream, &visit);
    if (code != CUDA_SUCCESS)
        return (CUresult)code;
    visit_end(&visit);
    take_params(&item, kernelParams);
    code =
        err_code(pretend_launch(visit.stream, run, &item, sizeof(item)), CUDA_ERROR_INVALID_HANDLE);
    return (CUresult)code;
}

/* ---- semaphores and pointers ---- */

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags)
{
    const void *word = (const void *)(uintptr_t)addr;
    int code = check_context("cuStreamWaitValue32");
    visit_t visit;

    if (code == CUDA_SUCCESS && (flags != CU_STREAM_WAIT_VALUE_GEQ || addr % 4 != 0 ||
                                 memory_where(word).kind != TUTTI__MEM_PINNED))
        code = err_say(CUDA_ERROR_INVALID_VALUE, "cuStreamWaitValue32: no word of pinned memory");
    if (code == CUDA_SUCCESS)
        code = visit_stream("cuStreamWaitValue32", stream, &visit);
    if (code != CUDA_SUCCESS)
        return (CUresult)code;
    code = err_code(word_await(visit.stream, word, value), CUDA_ERROR_INVALID_HANDLE);
    visit_end(&visit);
    return (CUresult)code;
}

/* Memory that is not CUDA's has no attributes: type 0, device -2. The address just behind an
   allocation of CUDA is not CUDA's. */
static int answer(CUpointer_attribute attribute, const void *ptr, void *ret)
{
    tutti__where_t where = memory_where(ptr);
    int is_managed = where.kind == TUTTI__MEM_PINNED && memory_is_managed(ptr);

    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)ret = where.kind == TUTTI__MEM_DEVICE || is_managed ? CU_MEMORYTYPE_DEVICE
                           : where.kind == TUTTI__MEM_PINNED             ? CU_MEMORYTYPE_HOST
                                                                         : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)ret = (unsigned)is_managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)ret = where.kind == TUTTI__MEM_HOST ? -2 : where.device;
        return CUDA_SUCCESS;
    default:
        return err_say(CUDA_ERROR_INVALID_VALUE, "cuPointerGetAttributes: not %d", (int)attribute);
    }
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr)
{
    int code = check_context("cuPointerGetAttributes");

    for (unsigned i = 0; i < numAttributes && code == CUDA_SUCCESS; i++)
        code = answer(attributes[i], (const void *)(uintptr_t)ptr, data[i]);
    return (CUresult)code;
}
