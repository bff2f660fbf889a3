/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An imitated libcuda, libcudart or libnccl. module.sh compiles this file once for each of them,
 * with -DDRIVER, -DRUNTIME or -DNCCL, and with -DVERSION. It needs no headers of CUDA or NCCL.
 * Functions do the minimum that the test can observe. The function that the variable STUB_FAIL
 * names returns an error. The thread's device and capture mode are in the variables STUB_DEVICE and
 * STUB_MODE, because the libraries share them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char *name)
{
    const char *wanted = getenv("STUB_FAIL");

    return wanted != NULL && strcmp(wanted, name) == 0;
}

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text != NULL ? atoi(text) : otherwise;
}

static int set_number(const char *variable, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    return setenv(variable, text, 1);
}

/* Could the running call invalidate a capture of another thread? It cannot in relaxed mode (2). */
static int spoils(void)
{
    return number("STUB_MODE", 0) != 2;
}

/* May a thread that is started here receive the application's signals? */
static int leaks_signals(void)
{
    sigset_t now;

    sigemptyset(&now);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return !sigismember(&now, SIGINT) || !sigismember(&now, SIGUSR1);
}

#define CALL(name, error, ...)                                                                     \
    int name(__VA_ARGS__)                                                                          \
    {                                                                                              \
        return fails(#name) ? error : 0;                                                           \
    }

#ifdef DRIVER
int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return fails("cuDriverGetVersion") ? 999 : 0;
}

int cuGetErrorName(int code, const char **name)
{
    (void)code;
    *name = "CUDA_ERROR_STUB";
    return 0;
}

int cuGetErrorString(int code, const char **text)
{
    (void)code;
    *text = "stub says no";
    return 0;
}

/* Prints the code in the image: a header, then entries of PTX (1) and machine code (2). */
int cuModuleLoadData(void **module, const unsigned char *image)
{
    uint64_t bytes;

    memcpy(&bytes, image + 8, sizeof(bytes));
    printf("image:");
    for (uint64_t at = 16; at < 16 + bytes;) {
        uint32_t kind = image[at] + 256u * image[at + 1], header, arch;
        uint64_t body;

        memcpy(&header, image + at + 4, sizeof(header));
        memcpy(&body, image + at + 8, sizeof(body));
        memcpy(&arch, image + at + 28, sizeof(arch));
        printf(" %s_%u", kind == 1 ? "compute" : "sm", arch);
        at += header + body;
    }
    printf("\n");
    *module = NULL;
    return fails("cuModuleLoadData") ? 209 : spoils() ? 900 : 0;
}

CALL(cuModuleGetFunction, 500, void **function, void *module, const char *name)
CALL(cuLaunchKernel, 701, void *function, unsigned x, unsigned y, unsigned z, unsigned a,
     unsigned b, unsigned c, unsigned shared, void *stream, void **params, void **extra)

/* STUB_VALUE: the least value for which a stream waits (GEQ, flag 0). */
int cuStreamWaitValue32_v2(void *stream, uint64_t word, unsigned value, unsigned flags)
{
    (void)stream;
    if (fails("no words"))
        return 801;
    return word == 0 || flags != 0 || fails("cuStreamWaitValue32")
               ? 1
               : set_number("STUB_VALUE", (int)value);
}

/* Addresses below 4096 stand for memory of device 1: 1 is pinned, 2 device memory, 3 managed. */
int cuCtxGetDevice(int *device)
{
    *device = number("STUB_DEVICE", -1);
    return fails("cuCtxGetDevice") || *device < 0 ? 201 : 0;
}

int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uint64_t ptr)
{
    (void)n;
    (void)attributes;
    *(unsigned *)values[0] = ptr == 1 ? 1 : ptr == 2 || ptr == 3 ? 2 : 0;
    *(unsigned *)values[1] = ptr == 3;
    *(int *)values[2] = ptr < 4096 ? 1 : -2;
    return fails("cuPointerGetAttributes") ? 201 : 0;
}
#endif

#ifdef RUNTIME
int cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return 0;
}

int cudaGetDeviceCount(int *count)
{
    *count = 2;
    return fails("cudaGetDeviceCount") ? 100 : 0;
}

int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 9 - device : 2; /* device 1 has compute capability 8.2 */
    return fails("cudaDeviceGetAttribute") ? 101 : 0;
}

int cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    snprintf(text, (size_t)bytes, "0000:0%d:00.0", device);
    return fails("cudaDeviceGetPCIBusId") ? 101 : 0;
}

const char *cudaGetErrorString(int code)
{
    return code == 100 ? "no GPU, says the stub" : code == 2 ? "out of memory" : "stub says no";
}

const char *cudaGetErrorName(int code)
{
    return code == 2 ? "cudaErrorMemoryAllocation" : "cudaErrorStub";
}

int cudaMalloc(void **ptr, size_t bytes)
{
    *ptr = malloc(bytes);
    return fails("cudaMalloc") || spoils() ? free(*ptr), 2 : 0;
}

int cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    *ptr = malloc(bytes);
    return fails("cudaHostAlloc") || flags != 1 || spoils() ? free(*ptr), 2 : 0;
}

int cudaFree(void *ptr)
{
    free(ptr);
    return fails("cudaFree") ? 1 : spoils() ? 900 : 0;
}

int cudaFreeHost(void *ptr)
{
    free(ptr);
    return fails("cudaFreeHost") ? 1 : spoils() ? 900 : 0;
}

/* Returns 600 if the event is not ready. */
int cudaEventQuery(void *event)
{
    (void)event;
    if (spoils())
        return 900;
    return fails("cudaEventQuery") ? 700 : fails("not ready") ? 600 : 0;
}

static unsigned event_flags; /* of the last event */

int cudaEventCreateWithFlags(void **event, unsigned flags)
{
    *event = &event_flags;
    event_flags = flags;
    return fails("cudaEventCreateWithFlags") ? 3 : 0;
}

/* An event with flags cannot be timed. */
int cudaEventElapsedTime(float *ms, void *start, void *stop)
{
    *ms = 1.5f;
    if (start != stop || event_flags != 0 || fails("cudaEventElapsedTime"))
        return 400;
    return fails("not ready") ? 600 : 0;
}

int cudaStreamIsCapturing(void *stream, int *captures)
{
    (void)stream;
    *captures = fails("captured");
    return fails("implicit") ? 906 : 0;
}

int cudaSetDevice(int device)
{
    return fails("cudaSetDevice") ? 101 : set_number("STUB_DEVICE", device);
}

int cudaGetDevice(int *device)
{
    *device = number("STUB_DEVICE", 0);
    return fails("cudaGetDevice") ? 101 : 0;
}

/* The mode is exchanged even if the function fails, so that the test sees the calls made in relaxed
   mode. */
int cudaThreadExchangeStreamCaptureMode(int *mode)
{
    int before = number("STUB_MODE", 0);

    set_number("STUB_MODE", *mode);
    *mode = before;
    return fails("cudaThreadExchangeStreamCaptureMode") ? 1 : 0;
}

#ifndef LACKS
CALL(cudaStreamWaitEvent, 400, void *stream, void *event, unsigned flags)
#endif
CALL(cudaGetLastError, 0, void)
int cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    *lowest = 0;
    *highest = fails("one priority") ? 0 : -5;
    return fails("cudaDeviceGetStreamPriorityRange") ? 3 : 0;
}

int cudaStreamGetPriority(void *stream, int *priority)
{
    (void)stream;
    *priority = fails("urgent") ? -5 : 0;
    return fails("cudaStreamGetPriority") ? 3 : 0;
}

CALL(cudaStreamCreateWithPriority, 3, void **stream, unsigned flags, int priority)
CALL(cudaStreamDestroy, 400, void *stream)
CALL(cudaEventDestroy, 400, void *event)
CALL(cudaEventRecord, 400, void *event, void *stream)
CALL(cudaMemcpyAsync, 1, void *dst, const void *src, size_t bytes, int kind, void *stream)
#endif

#ifdef NCCL
typedef struct {
    char bytes[128];
} id_t128;

static int depth, pending; /* pending: how often "in progress" (7) will be reported */

int ncclGetVersion(int *version)
{
    *version = VERSION;
    return fails("ncclGetVersion") ? 1 : 0;
}

const char *ncclGetErrorString(int code)
{
    return code == 1 ? "unhandled cuda error" : "stub says no";
}

const char *ncclGetLastError(void *comm)
{
    return comm == NULL ? "" : "and this is why";
}

/* Checks that the configuration is non-blocking: the first int after size, magic and version. */
int ncclCommInitRankConfig(void **comm, int nranks, id_t128 id, int rank, void *config)
{
    int blocking;

    memcpy(&blocking, (char *)config + 16, sizeof(blocking));
    *comm = &depth;
    pending = 1;
    if (blocking != 0 || id.bytes[5] != 5 || rank >= nranks)
        return 4;
    return fails("ncclCommInitRankConfig") || leaks_signals() ? 1 : 7;
}

/* Reports that work is in progress, once or for ever. */
int ncclCommGetAsyncError(void *comm, int *error)
{
    (void)comm;
    *error = fails("asynchronous") ? 6 : fails("stuck") || pending > 0 ? 7 : 0;
    pending = 0;
    return fails("ncclCommGetAsyncError") ? 4 : 0;
}

int ncclGetUniqueId(id_t128 *id)
{
    memset(id, 5, sizeof(*id));
    return fails("ncclGetUniqueId") || leaks_signals() ? 2 : 0;
}

int ncclGroupStart(void)
{
    if (fails("ncclGroupStart"))
        return 3;
    depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    depth--;
    return fails("ncclGroupEnd") || depth != 0 || leaks_signals() ? 1 : 7;
}

#define GROUPED(name, ...)                                                                         \
    int name(__VA_ARGS__)                                                                          \
    {                                                                                              \
        return fails(#name) || depth != 1 ? 5 : 7;                                                 \
    }
GROUPED(ncclAllReduce, const void *src, void *dst, size_t count, int type, int op, void *comm,
        void *stream)
GROUPED(ncclReduceScatter, const void *src, void *dst, size_t count, int type, int op, void *comm,
        void *stream)
GROUPED(ncclBroadcast, const void *src, void *dst, size_t count, int type, int root, void *comm,
        void *stream)
GROUPED(ncclReduce, const void *src, void *dst, size_t count, int type, int op, int root,
        void *comm, void *stream)
GROUPED(ncclSend, const void *src, size_t count, int type, int peer, void *comm, void *stream)
GROUPED(ncclRecv, void *dst, size_t count, int type, int peer, void *comm, void *stream)

/* A type that NCCL does not have is moved as bytes. */
int ncclAllGather(const void *src, void *dst, size_t count, int type, void *comm, void *stream)
{
    (void)src, (void)dst, (void)comm, (void)stream;
    return fails("ncclAllGather") || depth != 1 || type != 1 || count != 6 ? 5 : 7;
}

#if VERSION >= 21900
/* The module allocates whole pages of 2 MiB. */
int ncclMemAlloc(void **ptr, size_t bytes)
{
    *ptr = &depth;
    return fails("ncclMemAlloc") || bytes % (2 << 20) != 0 ? 2 : 0;
}

CALL(ncclMemFree, 1, void *ptr)
CALL(ncclCommDeregister, 5, void *comm, void *handle)

/* STUB_FAIL="not local": as with NCCL_LOCAL_REGISTER=0 */
int ncclCommRegister(void *comm, void *ptr, size_t bytes, void **handle)
{
    (void)comm, (void)bytes;
    *handle = fails("not local") ? NULL : ptr;
    return fails("ncclCommRegister") ? 1 : fails("later") ? 7 : 0;
}
#endif

int ncclCommFinalize(void *comm)
{
    (void)comm;
    puts("finalize");
    pending = 1;
    return fails("ncclCommFinalize") || leaks_signals() ? 5 : 7;
}

int ncclCommDestroy(void *comm)
{
    (void)comm;
    puts("destroy");
    return fails("ncclCommDestroy") || leaks_signals() ? 5 : 0;
}

/* Waits for the job of the thread's last call. The call fails unless this job is done. */
int ncclCommCount(void *comm, int *count)
{
    (void)comm;
    *count = 2;
    puts("join");
    return fails("ncclCommCount") || pending ? 5 : 0;
}

/* Early versions do not wait for another thread's job. */
int ncclCommAbort(void *comm)
{
    (void)comm;
    puts(VERSION < 21900 && pending ? "abort amid a call" : "abort");
    return fails("ncclCommAbort") || leaks_signals() ? 5 : 0;
}
#endif
