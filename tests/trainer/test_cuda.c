/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's use of CUDA. Functions of this file stand for the libraries. The tests check the
 * opened libraries, the text for a missing library, each return code, the selected GPU, the launch
 * of kernels, and matrix products as cuBLAS documents them.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *fake_open(const char *file, int flags);
static void *fake_symbol(void *library, const char *name);
static char *fake_error(void);

#define dlopen fake_open
#define dlsym fake_symbol
#define dlerror fake_error
#define TRAIN_CUDA_IMAGE
#include "train_cuda.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

const unsigned char train_cuda_image[] = "kernels";

#define GPUS 2
#define PROCESSORS 3

/* The libraries' properties, and the calls made. */
static struct {
    const char *missing_file, *missing_symbol;
    const char *failing; /* function */
    int gpus, major;
    int calls; /* number of calls that could have failed */
    int open_things;
    int device;
    unsigned blocks, threads;
    uint32_t count;
    const void *function;
    float argument;
    int type, c_type;
} fake;

static void *stream_there = &fake.calls, *blas_there = &fake.device;

/* ---- the libraries ---- */

static int answer(const char *name)
{
    fake.calls++;
    return fake.failing != NULL && strcmp(fake.failing, name) == 0 ? 7 : 0;
}

static int fake_cuGetErrorString(int code, const char **ret_text)
{
    *ret_text = "a driver's error";
    return code == 7 ? 0 : 1;
}

static int fake_cuDeviceGetName(char *ret_name, int bytes, int device)
{
    snprintf(ret_name, (size_t)bytes, "model %d", device);
    return answer("cuDeviceGetName");
}

static int fake_cuModuleLoadData(void **ret_module, const void *from)
{
    const int code = answer("cuModuleLoadData");

    assert_ptr_equal(from, train_cuda_image);
    fake.open_things += code == 0;
    *ret_module = code == 0 ? &fake : NULL;
    return code;
}

static int fake_cuModuleUnload(void *module)
{
    assert_ptr_equal(module, &fake);
    fake.open_things--;
    return 0;
}

static int fake_cuModuleGetFunction(void **ret_function, void *module, const char *name)
{
    static char names[TRAIN_KERNEL_COUNT][32];
    static unsigned next;

    assert_ptr_equal(module, &fake);
    snprintf(names[next % TRAIN_KERNEL_COUNT], sizeof(names[0]), "%s", name);
    *ret_function = names[next++ % TRAIN_KERNEL_COUNT];
    return answer("cuModuleGetFunction");
}

static int fake_cuLaunchKernel(void *function, unsigned blocks_x, unsigned blocks_y,
                               unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                               unsigned threads_z, unsigned shared_bytes, void *stream, void **args,
                               void **extra)
{
    assert_ptr_equal(stream, stream_there);
    assert_true(blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1);
    assert_true(shared_bytes == 0 && extra == NULL);
    fake.function = function;
    fake.blocks = blocks_x;
    fake.threads = threads_x;
    fake.argument = ((const train_unscale_args_t *)args[0])->factor;
    fake.count = *(const uint32_t *)args[1];
    return answer("cuLaunchKernel");
}

static const char *fake_cudaGetErrorString(int code)
{
    return code == 7 ? "a runtime's error" : "?";
}

static int fake_cudaGetDeviceCount(int *ret_count)
{
    *ret_count = fake.gpus;
    return answer("cudaGetDeviceCount");
}

static int fake_cudaSetDevice(int device)
{
    fake.device = device;
    return answer("cudaSetDevice");
}

static int fake_cudaDeviceGetAttribute(int *ret_value, int attribute, int device)
{
    assert_int_equal(device, fake.device);
    *ret_value = attribute == ATTRIBUTE_PROCESSORS ? PROCESSORS : fake.major;
    return answer("cudaDeviceGetAttribute");
}

static int fake_cudaStreamCreateWithFlags(void **ret_stream, unsigned flags)
{
    const int code = answer("cudaStreamCreateWithFlags");

    assert_int_equal(flags, STREAM_NON_BLOCKING);
    fake.open_things += code == 0;
    *ret_stream = code == 0 ? stream_there : NULL;
    return code;
}

static int fake_cudaStreamSynchronize(void *stream)
{
    assert_ptr_equal(stream, stream_there);
    return answer("cudaStreamSynchronize");
}

static int fake_cudaStreamDestroy(void *stream)
{
    assert_ptr_equal(stream, stream_there);
    fake.open_things--;
    return 0;
}

static int fake_cudaMalloc(void **ret_memory, size_t bytes)
{
    const int code = answer("cudaMalloc");

    *ret_memory = code == 0 ? malloc(bytes) : NULL;
    return code;
}

static int fake_cudaFree(void *memory)
{
    free(memory);
    return memory == NULL ? answer("cudaFree") : 0;
}

static int fake_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    assert_ptr_equal(stream, stream_there);
    assert_true(kind == COPY_TO_DEVICE || kind == COPY_TO_HOST);
    memcpy(to, from, bytes);
    return answer("cudaMemcpyAsync");
}

static int fake_cudaMemsetAsync(void *memory, int value, size_t bytes, void *stream)
{
    assert_ptr_equal(stream, stream_there);
    memset(memory, value, bytes);
    return answer("cudaMemsetAsync");
}

static const char *fake_cublasGetStatusString(int code)
{
    return code == 7 ? "cuBLAS's error" : "?";
}

static int fake_cublasCreate_v2(void **ret_handle)
{
    const int code = answer("cublasCreate_v2");

    fake.open_things += code == 0;
    *ret_handle = code == 0 ? blas_there : NULL;
    return code;
}

static int fake_cublasDestroy_v2(void *handle)
{
    assert_ptr_equal(handle, blas_there);
    fake.open_things--;
    return 0;
}

static int fake_cublasSetStream_v2(void *handle, void *stream)
{
    assert_true(handle == blas_there && stream == stream_there);
    return answer("cublasSetStream_v2");
}

/* Columns are contiguous, and a stride is the distance of two columns. Only floats are
   supported. */
static int fake_cublasGemmEx(void *handle, int turn_a, int turn_b, int m, int n, int k,
                             const void *alpha, const void *a, int a_type, int a_stride,
                             const void *b, int b_type, int b_stride, const void *beta, void *c,
                             int c_type, int c_stride, int compute, int algorithm)
{
    const float *from_a = a, *from_b = b;
    float *to = c;

    assert_true(handle == blas_there && compute == COMPUTE_FP32 && algorithm == ANY_ALGORITHM);
    assert_int_equal(a_type, b_type);
    assert_true(a_stride >= (turn_a ? k : m) && b_stride >= (turn_b ? n : k) && c_stride >= m);
    fake.type = a_type;
    fake.c_type = c_type;
    for (int i = 0; i < m && a_type == TYPE_FP32; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;

            for (int l = 0; l < k; l++)
                sum += from_a[turn_a ? i * a_stride + l : l * a_stride + i] *
                       from_b[turn_b ? l * b_stride + j : j * b_stride + l];
            sum *= *(const float *)alpha;
            if (*(const float *)beta != 0.0f)
                sum += *(const float *)beta * to[j * c_stride + i];
            to[j * c_stride + i] = sum;
        }
    return answer("cublasGemmEx");
}

/* ---- the loader ---- */

#define FAKE(result, name, parameters) { #name, (void *)fake_##name },
static const struct {
    const char *name;
    void *function;
} symbols[] = { DRIVER(FAKE) RUNTIME(FAKE) BLAS(FAKE) };

#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

static void *fake_open(const char *file, int flags)
{
    static char library;

    /* no library is loaded in the process yet, and the newest is not on the disk */
    if ((flags & RTLD_NOLOAD) != 0 || strstr(file, ".so.13") != NULL)
        return NULL;
    if (fake.missing_file != NULL &&
        strncmp(file, fake.missing_file, strlen(fake.missing_file)) == 0)
        return NULL;
    return &library;
}

static void *fake_symbol(void *library, const char *name)
{
    assert_non_null(library);
    for (size_t i = 0; i < SYMBOLS; i++)
        if (strcmp(symbols[i].name, name) == 0 &&
            (fake.missing_symbol == NULL || strcmp(name, fake.missing_symbol) != 0))
            return symbols[i].function;
    return NULL;
}

static char *fake_error(void)
{
    static char text[] = "the file: no such file";

    return text;
}

/* ---- tests ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.gpus = GPUS;
    fake.major = 9;
    return 0;
}

static train_device_t *open_there(int local_rank)
{
    train_error_t error = { "" };
    train_device_t *device = NULL;

    if (!train_cuda_open(local_rank, TRAIN_FP32, &device, &error))
        fail_msg("%s", error.text);
    return device;
}

/* Check that opening fails with this text, and that nothing stays open. */
static void refused(train_precision_t precision, const char *text)
{
    train_error_t error = { "" };
    train_device_t *device = NULL;

    assert_false(train_cuda_open(3, precision, &device, &error));
    assert_string_equal(error.text, text);
    assert_int_equal(fake.open_things, 0);
    assert_null(device);
}

static void names_what_is_missing(void **state)
{
    set_up(state);
    fake.missing_file = "libcuda.so";
    refused(TRAIN_FP32, "the CUDA driver is missing: the file: no such file");
    fake.missing_file = "libcudart";
    refused(TRAIN_FP32, "the CUDA runtime is missing: the file: no such file");
    fake.missing_file = "libcublas";
    refused(TRAIN_FP32, "cuBLAS is missing: the file: no such file");
    fake.missing_file = NULL;
    for (size_t i = 0; i < SYMBOLS; i++) {
        train_error_t error = { "" };
        train_device_t *device;

        fake.missing_symbol = symbols[i].name;
        assert_false(train_cuda_open(0, TRAIN_FP32, &device, &error));
        assert_non_null(strstr(error.text, symbols[i].name));
    }
    fake.missing_symbol = NULL;
    fake.gpus = 0;
    refused(TRAIN_FP32, "there is no GPU");
    fake.gpus = GPUS;
    fake.major = 7;
    refused(TRAIN_BF16, "cuda:1 (model 1) has no bf16; try --precision fp16");
}

static void chooses_by_rank(void **state)
{
    (void)state;
    for (int rank = 0; rank < 5; rank++) {
        char name[40];
        train_device_t *device = open_there(rank);

        snprintf(name, sizeof(name), "cuda:%d (model %d)", rank % GPUS, rank % GPUS);
        assert_string_equal(device->name, name);
        assert_int_equal(fake.device, rank % GPUS);
        device->ops->close(device);
        assert_int_equal(fake.open_things, 0);
    }
}

/* For each function that can fail, during opening and in each operation: let it fail once. */
static void looks_at_every_code(void **state)
{
    static const char *const opening[][2] = {
        { "cudaGetDeviceCount", "cuda: looking for GPUs: a runtime's error (7)" },
        { "cudaSetDevice", "cuda:1: cudaSetDevice: a runtime's error (7)" },
        { "cudaFree", "cuda:1: starting: a runtime's error (7)" },
        { "cudaDeviceGetAttribute", "cuda:1: cudaDeviceGetAttribute: a runtime's error (7)" },
        { "cuDeviceGetName", "cuda:1: cuDeviceGetName: a driver's error (7)" },
        { "cuModuleLoadData", "cuda:1 (model 1): loading the kernels: a driver's error (7)" },
        { "cuModuleGetFunction", "cuda:1 (model 1): train_narrow: a driver's error (7)" },
        { "cudaStreamCreateWithFlags",
          "cuda:1 (model 1): cudaStreamCreateWithFlags: a runtime's error (7)" },
        { "cublasCreate_v2", "cuda:1 (model 1): cublasCreate: cuBLAS's error (7)" },
        { "cublasSetStream_v2", "cuda:1 (model 1): cublasSetStream: cuBLAS's error (7)" },
    };
    const train_unscale_args_t args = { NULL, NULL, 2.5f, 0 };
    const train_product_t product = { .floats = true };
    void *memory;
    char room[8] = "";

    (void)state;
    for (size_t i = 0; i < sizeof(opening) / sizeof(opening[0]); i++) {
        fake.failing = opening[i][0];
        refused(TRAIN_FP32, opening[i][1]);
    }
    fake.failing = NULL;
    train_device_t *device = open_there(0);
    const train_device_ops_t *ops = device->ops;
    train_error_t error[7] = { { "" } };

    fake.failing = "cudaMalloc";
    assert_false(ops->alloc(device, 8, &memory, &error[0]));
    assert_non_null(strstr(error[0].text, "allocating 8 bytes: a runtime's error (7)"));
    fake.failing = "cudaMemsetAsync";
    assert_false(ops->zero(device, room, 8, &error[1]));
    fake.failing = "cudaMemcpyAsync";
    assert_false(ops->put(device, room, "1234567", 8, &error[2]));
    assert_false(ops->get(device, room, "1234567", 8, &error[3]));
    fake.failing = "cudaStreamSynchronize";
    assert_false(ops->sync(device, &error[4]));
    error[3].text[0] = '\0';
    assert_false(ops->get(device, room, "1234567", 8, &error[3]));
    fake.failing = "cuLaunchKernel";
    assert_false(ops->launch(device, TRAIN_KERNEL_unscale, &args, 1, &error[5]));
    assert_non_null(strstr(error[5].text, "cuLaunchKernel: a driver's error (7)"));
    fake.failing = "cublasGemmEx";
    assert_false(ops->product(device, TRAIN_BF16, &product, &error[6]));
    assert_non_null(strstr(error[6].text, "cublasGemmEx: cuBLAS's error (7)"));
    for (size_t i = 0; i < 7; i++)
        assert_true(strncmp(error[i].text, "cuda:0 (model 0): ", 18) == 0);
    ops->close(device);
}

static void launches_by_name(void **state)
{
    static const struct {
        uint32_t count;
        unsigned blocks;
    } cases[] = { { 1, 1 }, { 256, 1 }, { 257, 2 }, { UINT32_MAX, PROCESSORS * 8 } };
    const train_unscale_args_t args = { NULL, NULL, 2.5f, 0 };
    train_error_t error = { "" };
    train_device_t *device = open_there(0);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(
            device->ops->launch(device, TRAIN_KERNEL_unscale, &args, cases[i].count, &error));
        assert_string_equal((const char *)fake.function, "train_unscale");
        assert_int_equal(fake.blocks, cases[i].blocks);
        assert_int_equal(fake.threads, 256);
        assert_int_equal(fake.count, cases[i].count);
        assert_true(fake.argument == 2.5f);
    }
    device->ops->close(device);
}

static void multiplies_rows(void **state)
{
    enum {
        M = 3,
        N = 4,
        K = 5
    };
    static const int types[] = { TYPE_FP32, TYPE_BF16, TYPE_FP16 };
    float a[M * K], b[K * N], c[M * N], wanted[M * N];
    train_error_t error = { "" };
    train_device_t *device = open_there(0);
    train_compute_t cpu;

    (void)state;
    train_cpu_open(&cpu);
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i * i % 7);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i * 3 % 11);
    for (int way = 0; way < 8; way++) {
        train_product_t product = {
            .turn_a = way & 1,
            .turn_b = way & 2,
            .m = M,
            .n = N,
            .k = K,
            .a = a,
            .b = b,
            .beta = way & 4 ? 1.0f : 0.0f,
            .c = c,
        };

        for (int i = 0; i < M * N; i++)
            c[i] = wanted[i] = (float)i;
        assert_true(device->ops->product(device, TRAIN_FP32, &product, &error));
        product.c = wanted;
        cpu.ops->product(&cpu, &product);
        assert_memory_equal(c, wanted, sizeof(c)); /* whole numbers: exact */
    }
    for (int floats = 0; floats < 2; floats++)
        for (int precision = TRAIN_FP32; precision <= TRAIN_FP16; precision++) {
            const train_product_t product = {
                .m = 1, .n = 1, .k = 1, .a = a, .b = b, .c = c, .floats = floats
            };

            assert_true(
                device->ops->product(device, (train_precision_t)precision, &product, &error));
            assert_int_equal(fake.type, types[precision]);
            assert_int_equal(fake.c_type, floats ? TYPE_FP32 : types[precision]);
        }
    device->ops->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names_what_is_missing, set_up),
        cmocka_unit_test_setup(chooses_by_rank, set_up),
        cmocka_unit_test_setup(looks_at_every_code, set_up),
        cmocka_unit_test_setup(launches_by_name, set_up),
        cmocka_unit_test_setup(multiplies_rows, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
