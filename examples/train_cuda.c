/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU by CUDA: driver, runtime and cuBLAS, opened only if --device asks for them. So the trainer
 * can be built, and run, without CUDA.
 *
 * For the same reason, the few CUDA functions in use are declared here: the headers of CUDA or
 * cuBLAS may be missing. The binary interface is the same in CUDA 12 and 13. The kernels are in an
 * image for the driver (train_kernels.cu), which only nvcc can make. Without nvcc, train_cuda_image
 * is empty, and there is no GPU.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_device.h"
#include "train_kernels.h"

#ifdef TRAIN_CUDA_IMAGE
extern const unsigned char train_cuda_image[];
static const void *const image = train_cuda_image;
#else
static const void *const image = NULL;
#endif

#define THREADS 256            /* of a block */
#define BLOCKS_PER_PROCESSOR 8 /* 2048 threads, the most that fit */
#define REASON_BYTES 300

enum {
    COPY_TO_DEVICE = 1,
    COPY_TO_HOST = 2,
    STREAM_NON_BLOCKING = 1,
    ATTRIBUTE_PROCESSORS = 16,
    ATTRIBUTE_MAJOR = 75,
    OPERATION_NONE = 0,
    OPERATION_TURN = 1,
    TYPE_FP32 = 0,
    TYPE_FP16 = 2,
    TYPE_BF16 = 14,
    COMPUTE_FP32 = 68,
    ANY_ALGORITHM = -1
};

/* Result, name, parameters. All results but the texts are ints; 0 is success. */
#define DRIVER(X)                                                                                  \
    X(int, cuGetErrorString, (int code, const char **ret_text))                                    \
    X(int, cuDeviceGetName, (char *ret_name, int bytes, int device))                               \
    X(int, cuModuleLoadData, (void **ret_module, const void *from))                                \
    X(int, cuModuleUnload, (void *module))                                                         \
    X(int, cuModuleGetFunction, (void **ret_function, void *module, const char *name))             \
    X(int, cuLaunchKernel,                                                                         \
      (void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,                    \
       unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,          \
       void *stream, void **args, void **extra))

#define RUNTIME(X)                                                                                 \
    X(const char *, cudaGetErrorString, (int code))                                                \
    X(int, cudaGetDeviceCount, (int *ret_count))                                                   \
    X(int, cudaSetDevice, (int device))                                                            \
    X(int, cudaDeviceGetAttribute, (int *ret_value, int attribute, int device))                    \
    X(int, cudaStreamCreateWithFlags, (void **ret_stream, unsigned flags))                         \
    X(int, cudaStreamSynchronize, (void *stream))                                                  \
    X(int, cudaStreamDestroy, (void *stream))                                                      \
    X(int, cudaMalloc, (void **ret_memory, size_t bytes))                                          \
    X(int, cudaFree, (void *memory))                                                               \
    X(int, cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream))    \
    X(int, cudaMemsetAsync, (void *memory, int value, size_t bytes, void *stream))

#define BLAS(X)                                                                                    \
    X(const char *, cublasGetStatusString, (int code))                                             \
    X(int, cublasCreate_v2, (void **ret_handle))                                                   \
    X(int, cublasDestroy_v2, (void *handle))                                                       \
    X(int, cublasSetStream_v2, (void *handle, void *stream))                                       \
    X(int, cublasGemmEx,                                                                           \
      (void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha,               \
       const void *a, int a_type, int a_stride, const void *b, int b_type, int b_stride,           \
       const void *beta, void *c, int c_type, int c_stride, int compute, int algorithm))

#define DECLARE(result, name, parameters) result(*name) parameters;
typedef struct {
    DRIVER(DECLARE)
    RUNTIME(DECLARE)
    BLAS(DECLARE)
} functions_t;

#define LISTED(result, name, parameters) { #name, offsetof(functions_t, name) },
typedef struct {
    const char *name;
    size_t offset;
} symbol_t;

static const symbol_t driver[] = { DRIVER(LISTED) };
static const symbol_t runtime[] = { RUNTIME(LISTED) };
static const symbol_t blas[] = { BLAS(LISTED) };

static const struct {
    const char *what;
    const char *files[4]; /* the newest first, then NULL */
    const symbol_t *symbols;
    size_t count;
} libraries[] = {
    { "the CUDA driver", { "libcuda.so.1" }, driver, sizeof(driver) / sizeof(driver[0]) },
    { "the CUDA runtime",
      { "libcudart.so.13", "libcudart.so.12", "libcudart.so" },
      runtime,
      sizeof(runtime) / sizeof(runtime[0]) },
    { "cuBLAS",
      { "libcublas.so.13", "libcublas.so.12", "libcublas.so" },
      blas,
      sizeof(blas) / sizeof(blas[0]) },
};

#define LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

typedef struct {
    train_device_t base; /* must be first: pointers to it are cast */
    functions_t cuda;
    void *opened[LIBRARIES];
    void *module, *blas;
    void *kernels[TRAIN_KERNEL_COUNT];
    unsigned most_blocks;
} cuda_t;

static cuda_t *cuda_of(train_device_t *device)
{
    return (cuda_t *)(void *)device;
}

/* ---- return codes ---- */

static bool check_driver(const cuda_t *self, int code, const char *what, train_error_t *error)
{
    const char *text = NULL;

    if (code == 0)
        return true;
    if (self->cuda.cuGetErrorString(code, &text) != 0 || text == NULL)
        text = "unknown error";
    return train_fail(error, "%s: %s: %s (%d)", self->base.name, what, text, code);
}

static bool check_runtime(const cuda_t *self, int code, const char *what, train_error_t *error)
{
    return code == 0 || train_fail(error, "%s: %s: %s (%d)", self->base.name, what,
                                   self->cuda.cudaGetErrorString(code), code);
}

static bool check_blas(const cuda_t *self, int code, const char *what, train_error_t *error)
{
    return code == 0 || train_fail(error, "%s: %s: %s (%d)", self->base.name, what,
                                   self->cuda.cublasGetStatusString(code), code);
}

/* Report an error while the program ends, where it has no other consequence. */
static void warn(const cuda_t *self, int code, const char *what)
{
    if (code != 0)
        fprintf(stderr, "example_train: %s: %s failed with %d\n", self->base.name, what, code);
}

/* ---- operations ---- */

static bool zero(train_device_t *device, void *memory, size_t bytes, train_error_t *error)
{
    cuda_t *self = cuda_of(device);

    return check_runtime(self, self->cuda.cudaMemsetAsync(memory, 0, bytes, device->stream),
                         "cudaMemsetAsync", error);
}

static bool alloc(train_device_t *device, size_t bytes, void **ret_memory, train_error_t *error)
{
    cuda_t *self = cuda_of(device);
    char what[64];

    snprintf(what, sizeof(what), "allocating %zu bytes", bytes);
    return check_runtime(self, self->cuda.cudaMalloc(ret_memory, bytes), what, error) &&
           zero(device, *ret_memory, bytes, error);
}

static void free_memory(train_device_t *device, void *memory)
{
    cuda_t *self = cuda_of(device);

    warn(self, self->cuda.cudaFree(memory), "cudaFree");
}

static bool sync(train_device_t *device, train_error_t *error)
{
    cuda_t *self = cuda_of(device);

    return check_runtime(self, self->cuda.cudaStreamSynchronize(device->stream),
                         "cudaStreamSynchronize", error);
}

/* The source is not pinned, so on return CUDA has copied it, at least into memory of its own. */
static bool put(train_device_t *device, void *memory, const void *from, size_t bytes,
                train_error_t *error)
{
    cuda_t *self = cuda_of(device);

    return check_runtime(
        self, self->cuda.cudaMemcpyAsync(memory, from, bytes, COPY_TO_DEVICE, device->stream),
        "copying to the device", error);
}

static bool get(train_device_t *device, void *to, const void *memory, size_t bytes,
                train_error_t *error)
{
    cuda_t *self = cuda_of(device);

    return check_runtime(
               self, self->cuda.cudaMemcpyAsync(to, memory, bytes, COPY_TO_HOST, device->stream),
               "copying to the host", error) &&
           sync(device, error);
}

static bool launch(train_device_t *device, unsigned kernel, const void *args, uint32_t count,
                   train_error_t *error)
{
    cuda_t *self = cuda_of(device);
    void *pointers[] = { (void *)args, &count }; /* read during the launch */
    const unsigned wanted = (count - 1) / THREADS + 1;
    const unsigned blocks = wanted < self->most_blocks ? wanted : self->most_blocks;

    return check_driver(self,
                        self->cuda.cuLaunchKernel(self->kernels[kernel], blocks, 1, 1, THREADS, 1,
                                                  1, 0, device->stream, pointers, NULL),
                        "cuLaunchKernel", error);
}

/* cuBLAS stores matrices by columns, the trainer by rows. So a matrix of the trainer is its
   transpose for cuBLAS, which computes c' = b' a'. */
static bool product(train_device_t *device, train_precision_t precision, const train_product_t *p,
                    train_error_t *error)
{
    static const int types[] = { TYPE_FP32, TYPE_BF16, TYPE_FP16 };
    cuda_t *self = cuda_of(device);
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    const int type = types[precision], c_type = p->floats ? TYPE_FP32 : type;
    const float one = 1.0f;

    return check_blas(
        self,
        self->cuda.cublasGemmEx(self->blas, p->turn_b ? OPERATION_TURN : OPERATION_NONE,
                                p->turn_a ? OPERATION_TURN : OPERATION_NONE, n, m, k, &one, p->b,
                                type, p->turn_b ? k : n, p->a, type, p->turn_a ? m : k, &p->beta,
                                p->c, c_type, n, COMPUTE_FP32, ANY_ALGORITHM),
        "cublasGemmEx", error);
}

/* Libraries stay open: the CUDA runtime cannot be unloaded safely. */
static void close_device(train_device_t *device)
{
    cuda_t *self = cuda_of(device);

    if (self->blas != NULL)
        warn(self, self->cuda.cublasDestroy_v2(self->blas), "cublasDestroy");
    if (self->module != NULL)
        warn(self, self->cuda.cuModuleUnload(self->module), "cuModuleUnload");
    if (device->stream != NULL)
        warn(self, self->cuda.cudaStreamDestroy(device->stream), "cudaStreamDestroy");
    free(self);
}

static const train_device_ops_t cuda_ops = {
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

/* ---- opening ---- */

/* Prefer a library that is already in the process, so that Tutti and the trainer use the same. */
static void *open_one(const char *const *files, char *ret_why)
{
    void *library = NULL;

    for (size_t i = 0; library == NULL && files[i] != NULL; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    for (size_t i = 0; library == NULL && files[i] != NULL; i++) {
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && i == 0) /* dlerror begins with the name */
            snprintf(ret_why, REASON_BYTES, "%s", dlerror());
    }
    return library;
}

static bool open_libraries(cuda_t *self, train_error_t *error)
{
    for (size_t i = 0; i < LIBRARIES; i++) {
        char why[REASON_BYTES] = "";

        self->opened[i] = open_one(libraries[i].files, why);
        if (self->opened[i] == NULL)
            return train_fail(error, "%s is missing: %s", libraries[i].what, why);
        for (size_t j = 0; j < libraries[i].count; j++) {
            const symbol_t *symbol = &libraries[i].symbols[j];
            void *function = dlsym(self->opened[i], symbol->name);

            if (function == NULL)
                return train_fail(error, "%s has no %s: it is too old", libraries[i].what,
                                  symbol->name);
            memcpy((char *)&self->cuda + symbol->offset, &function, sizeof(function));
        }
    }
    return true;
}

/* Choose a device, make it this thread's current device, and read its properties. */
static bool choose(cuda_t *self, int local_rank, train_precision_t precision, train_error_t *error)
{
    char model[64] = "";
    int count = 0, processors = 1, major = 0;

    snprintf(self->base.name, sizeof(self->base.name), "cuda");
    if (!check_runtime(self, self->cuda.cudaGetDeviceCount(&count), "looking for GPUs", error))
        return false;
    if (count == 0)
        return train_fail(error, "there is no GPU");

    const int device = local_rank % count;
    snprintf(self->base.name, sizeof(self->base.name), "cuda:%d", device);
    if (!check_runtime(self, self->cuda.cudaSetDevice(device), "cudaSetDevice", error) ||
        !check_runtime(self, self->cuda.cudaFree(NULL), "starting", error) ||
        !check_runtime(self,
                       self->cuda.cudaDeviceGetAttribute(&processors, ATTRIBUTE_PROCESSORS, device),
                       "cudaDeviceGetAttribute", error) ||
        !check_runtime(self, self->cuda.cudaDeviceGetAttribute(&major, ATTRIBUTE_MAJOR, device),
                       "cudaDeviceGetAttribute", error) ||
        !check_driver(self, self->cuda.cuDeviceGetName(model, sizeof(model), device),
                      "cuDeviceGetName", error))
        return false;
    model[sizeof(model) - 1] = '\0';
    snprintf(self->base.name, sizeof(self->base.name), "cuda:%d (%s)", device, model);
    self->most_blocks = (unsigned)processors * BLOCKS_PER_PROCESSOR;
    if (precision == TRAIN_BF16 && major < 8)
        return train_fail(error, "%s has no bf16; try --precision fp16", self->base.name);
    return true;
}

static bool load_kernels(cuda_t *self, train_error_t *error)
{
#define NAME(name) "train_" #name,
    static const char *const names[] = { TRAIN_KERNELS(NAME) };
#undef NAME

    if (!check_driver(self, self->cuda.cuModuleLoadData(&self->module, image),
                      "loading the kernels", error))
        return false;
    for (size_t i = 0; i < TRAIN_KERNEL_COUNT; i++)
        if (!check_driver(self,
                          self->cuda.cuModuleGetFunction(&self->kernels[i], self->module, names[i]),
                          names[i], error))
            return false;
    return true;
}

bool train_cuda_open(int local_rank, train_precision_t precision, train_device_t **ret_device,
                     train_error_t *error)
{
    cuda_t *self;

    if (image == NULL)
        return train_fail(error, "built without nvcc");
    self = calloc(1, sizeof(*self));
    if (self == NULL)
        return train_fail(error, "not enough memory");
    self->base.ops = &cuda_ops;
    if (!open_libraries(self, error) || !choose(self, local_rank, precision, error) ||
        !load_kernels(self, error) ||
        !check_runtime(
            self, self->cuda.cudaStreamCreateWithFlags(&self->base.stream, STREAM_NON_BLOCKING),
            "cudaStreamCreateWithFlags", error) ||
        !check_blas(self, self->cuda.cublasCreate_v2(&self->blas), "cublasCreate", error) ||
        !check_blas(self, self->cuda.cublasSetStream_v2(self->blas, self->base.stream),
                    "cublasSetStream", error)) {
        close_device(&self->base);
        return false;
    }
    *ret_device = &self->base;
    return true;
}
