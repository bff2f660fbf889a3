/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA runtime: devices, memory, streams, events, copies.
 *
 * CUDA streams and events have the runtime's types, so the application passes its own objects.
 *
 * Errors that are not permanent are cleared after their report (cudaGetLastError), so that the
 * application does not find them. CUDA forbids some calls while any thread captures a graph in a
 * mode that is not relaxed. Such a call would invalidate the application's capture, so the calling
 * thread's capture mode is made relaxed during the call.
 */
#include "mem/cuda/cuda_parts.h"

#include "base/constants.h"
#include "base/status.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define OLDEST 12000 /* CUDA 12.0 */
#define MOST_DEVICES 64

#define LIST(X)                                                                                    \
    X(cudaDeviceGetAttribute)                                                                      \
    X(cudaDeviceGetPCIBusId)                                                                       \
    X(cudaDeviceGetStreamPriorityRange)                                                            \
    X(cudaEventCreateWithFlags)                                                                    \
    X(cudaEventDestroy)                                                                            \
    X(cudaEventElapsedTime)                                                                        \
    X(cudaEventQuery)                                                                              \
    X(cudaEventRecord)                                                                             \
    X(cudaFree)                                                                                    \
    X(cudaFreeHost)                                                                                \
    X(cudaGetDevice)                                                                               \
    X(cudaGetDeviceCount)                                                                          \
    X(cudaGetErrorName)                                                                            \
    X(cudaGetErrorString)                                                                          \
    X(cudaGetLastError)                                                                            \
    X(cudaHostAlloc)                                                                               \
    X(cudaMalloc)                                                                                  \
    X(cudaMemcpyAsync)                                                                             \
    X(cudaRuntimeGetVersion)                                                                       \
    X(cudaSetDevice)                                                                               \
    X(cudaStreamCreateWithPriority)                                                                \
    X(cudaStreamDestroy)                                                                           \
    X(cudaStreamGetPriority)                                                                       \
    X(cudaStreamIsCapturing)                                                                       \
    X(cudaStreamWaitEvent)                                                                         \
    X(cudaThreadExchangeStreamCaptureMode)

static struct {
#define SLOT(name) __typeof__(name) *name;
    LIST(SLOT)
#undef SLOT
    void *lib;
    int ndevices;
    int capability;                /* the lowest of all devices */
    unsigned blocks[MOST_DEVICES]; /* thread blocks that fill each device */
} rt;

/* ---- errors ---- */

static tutti_status_t refused(cudaError_t code, const char *what)
{
    tutti_status_t status =
        code == cudaErrorMemoryAllocation ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_SYSTEM;

    (void)rt.cudaGetLastError();
    return tutti__cuda_fail(status, "cuda: %s: %s (%s, %d)", what, rt.cudaGetErrorString(code),
                            rt.cudaGetErrorName(code), (int)code);
}

static tutti_status_t check(cudaError_t code, const char *what)
{
    return TUTTI__LIKELY(code == cudaSuccess) ? TUTTI_OK : refused(code, what);
}

/* Log an error that cannot be returned. At exit the driver may have ended, which is no error. */
static void note(cudaError_t code, const char *what)
{
    if (TUTTI__LIKELY(code == cudaSuccess))
        return;
    (void)rt.cudaGetLastError();
    if (code != cudaErrorCudartUnloading)
        tutti__cuda_note("cuda: %s: %s", what, rt.cudaGetErrorString(code));
}

/* Exchange the thread's capture mode and *mode. Used before and after a CUDA call. */
static void swap_mode(enum cudaStreamCaptureMode *mode)
{
    note(rt.cudaThreadExchangeStreamCaptureMode(mode), "cudaThreadExchangeStreamCaptureMode");
}

/* ---- opening ---- */

static void *open_lib(int driver_version, char *ret_reason)
{
    static const char *const files[] = { "libcudart.so.13", "libcudart.so.12" };
    static const tutti__cuda_symbol_t symbols[] = {
#define SYMBOL(name) { TUTTI__CUDA_TEXT(name), (void **)&rt.name },
        LIST(SYMBOL)
#undef SYMBOL
    };
    size_t skip = driver_version < 13000; /* a driver does not support a later major version */

    return tutti__cuda_open_lib(
        skip ? "the CUDA runtime, libcudart.so.12" : "the CUDA runtime, libcudart.so.13 or .12",
        files + skip, 2 - skip, symbols, sizeof(symbols) / sizeof(*symbols), ret_reason);
}

static cudaError_t ask_devices(void)
{
    rt.capability = 0;
    for (int d = 0; d < rt.ndevices && d < MOST_DEVICES; d++) {
        int processors = 0, major = 0, minor = 0;
        cudaError_t code;

        code = rt.cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, d);
        if (code == cudaSuccess)
            code = rt.cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d);
        if (code == cudaSuccess)
            code = rt.cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d);
        if (code != cudaSuccess)
            return code;
        rt.blocks[d] = (unsigned)processors * TUTTI__CUDA_BLOCKS;
        if (rt.capability == 0 || 10 * major + minor < rt.capability)
            rt.capability = 10 * major + minor;
    }
    return cudaSuccess;
}

int tutti__cuda_runtime_open(int driver_version, int *ret_version, char *ret_reason)
{
    const char *what = "cudaRuntimeGetVersion";
    cudaError_t code;
    int version = 0;

    rt.lib = open_lib(driver_version, ret_reason);
    if (rt.lib == NULL)
        return 0;
    code = rt.cudaRuntimeGetVersion(&version);
    if (code == cudaSuccess && version < OLDEST) {
        snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES,
                 "the CUDA runtime, libcudart.so: it is CUDA %d.%d, 12.0 or later is needed",
                 version / 1000, version % 1000 / 10);
        goto close_lib;
    }
    if (code == cudaSuccess) {
        what = "cudaGetDeviceCount";
        code = rt.cudaGetDeviceCount(&rt.ndevices);
    }
    if (code == cudaSuccess && rt.ndevices == 0)
        code = cudaErrorNoDevice;
    if (code == cudaSuccess) {
        what = "cudaDeviceGetAttribute";
        code = ask_devices();
    }
    if (code == cudaSuccess) {
        *ret_version = version;
        return 1;
    }
    snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES, "there is no GPU for us: %s: %s (%s)", what,
             rt.cudaGetErrorString(code), rt.cudaGetErrorName(code));
    (void)rt.cudaGetLastError();

close_lib:
    tutti__cuda_runtime_close();
    return 0;
}

void tutti__cuda_runtime_close(void)
{
    tutti__cuda_close_lib(rt.lib);
    rt.lib = NULL;
}

/* ---- the device ---- */

tutti_status_t tutti__cuda_count(int *ret_count)
{
    *ret_count = rt.ndevices;
    return TUTTI_OK;
}

tutti_status_t tutti__cuda_use(int device)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    tutti_status_t status;

    /* Each poll calls this function, so it handles the common case first. */
    if (TUTTI__LIKELY(tutti__cuda_is_ready(device)))
        return TUTTI_OK;
    swap_mode(&mode);
    status = check(rt.cudaSetDevice(device), "cudaSetDevice");
    /* If the device's context does not exist, this call makes it. */
    if (status == TUTTI_OK)
        status = check(rt.cudaFree(NULL), "cudaFree, for a context");
    if (status == TUTTI_OK)
        status = tutti__cuda_load(device);
    swap_mode(&mode);
    return status;
}

tutti_status_t tutti__cuda_current(int *ret_device, unsigned *ret_blocks)
{
    int device = 0;
    tutti_status_t status = check(rt.cudaGetDevice(&device), "cudaGetDevice");

    if (status != TUTTI_OK)
        return status;
    *ret_device = device;
    *ret_blocks = device < MOST_DEVICES ? rt.blocks[device] : 1;
    return TUTTI_OK;
}

/* The PCI bus id, by which NCCL recognizes a device. */
void tutti__cuda_identity(int device, char ret_identity[TUTTI__DEVICE_IDENTITY_BYTES])
{
    memset(ret_identity, 0, TUTTI__DEVICE_IDENTITY_BYTES);
    if (rt.cudaDeviceGetPCIBusId(ret_identity, TUTTI__DEVICE_IDENTITY_BYTES, device) == cudaSuccess)
        return;
    (void)rt.cudaGetLastError();
    ret_identity[0] = '\0';
}

int tutti__cuda_capability(void)
{
    return rt.capability;
}

/* ---- memory ---- */

tutti_status_t tutti__cuda_alloc(size_t bytes, void **ret_ptr)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    void *ptr = NULL;
    cudaError_t code;
    char what[64];

    swap_mode(&mode);
    code = rt.cudaMalloc(&ptr, bytes);
    swap_mode(&mode);
    if (code != cudaSuccess) {
        snprintf(what, sizeof(what), "cudaMalloc of %zu bytes", bytes);
        return refused(code, what);
    }
    *ret_ptr = ptr;
    return TUTTI_OK;
}

void tutti__cuda_free(void *ptr)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    if (ptr == NULL)
        return;
    swap_mode(&mode);
    note(rt.cudaFree(ptr), "cudaFree");
    swap_mode(&mode);
}

/* The memory is "portable": pinned for all devices of the process. */
tutti_status_t tutti__cuda_host_alloc(size_t bytes, void **ret_ptr)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    void *ptr = NULL;
    cudaError_t code;
    char what[64];

    swap_mode(&mode);
    code = rt.cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable);
    swap_mode(&mode);
    if (code != cudaSuccess) {
        snprintf(what, sizeof(what), "cudaHostAlloc of %zu bytes", bytes);
        return refused(code, what);
    }
    *ret_ptr = ptr;
    return TUTTI_OK;
}

void tutti__cuda_host_free(void *ptr)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    if (ptr == NULL)
        return;
    swap_mode(&mode);
    note(rt.cudaFreeHost(ptr), "cudaFreeHost");
    swap_mode(&mode);
}

/* ---- streams and events ---- */

tutti_status_t tutti__cuda_stream_make(int is_urgent, tutti__dstream_t **ret_stream)
{
    int lowest = 0, highest = 0;
    cudaStream_t stream = NULL;
    tutti_status_t status;

    status = check(rt.cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                   "cudaDeviceGetStreamPriorityRange");
    if (status == TUTTI_OK)
        status = check(rt.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                       is_urgent ? highest : lowest),
                       "cudaStreamCreateWithPriority");
    if (status == TUTTI_OK)
        *ret_stream = (tutti__dstream_t *)stream;
    return status;
}

void tutti__cuda_stream_drop(tutti__dstream_t *stream)
{
    if (stream != NULL)
        note(rt.cudaStreamDestroy((cudaStream_t)stream), "cudaStreamDestroy");
}

/* For the legacy default stream, CUDA returns an error while any other stream is captured. In this
   case the application itself must not use the legacy stream. */
int tutti__cuda_stream_captures(tutti__dstream_t *stream)
{
    enum cudaStreamCaptureStatus captures = cudaStreamCaptureStatusNone;
    cudaError_t code = rt.cudaStreamIsCapturing((cudaStream_t)stream, &captures);

    if (code != cudaSuccess)
        (void)rt.cudaGetLastError();
    return code == cudaErrorStreamCaptureImplicit || captures != cudaStreamCaptureStatusNone;
}

static tutti_status_t make_event(unsigned flags, tutti__devent_t **ret_event)
{
    cudaEvent_t event = NULL;
    tutti_status_t status =
        check(rt.cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");

    if (status == TUTTI_OK)
        *ret_event = (tutti__devent_t *)event;
    return status;
}

tutti_status_t tutti__cuda_event_make(tutti__devent_t **ret_event)
{
    return make_event(cudaEventDisableTiming, ret_event);
}

tutti_status_t tutti__cuda_timer_make(tutti__devent_t **ret_timer)
{
    return make_event(cudaEventDefault, ret_timer);
}

void tutti__cuda_event_drop(tutti__devent_t *event)
{
    if (event != NULL)
        note(rt.cudaEventDestroy((cudaEvent_t)event), "cudaEventDestroy");
}

tutti_status_t tutti__cuda_record(tutti__devent_t *event, tutti__dstream_t *stream)
{
    return check(rt.cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "cudaEventRecord");
}

tutti_status_t tutti__cuda_wait(tutti__dstream_t *stream, tutti__devent_t *event)
{
    return check(rt.cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                 "cudaStreamWaitEvent");
}

tutti_status_t tutti__cuda_query(tutti__devent_t *event)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t code;

    swap_mode(&mode);
    code = rt.cudaEventQuery((cudaEvent_t)event);
    swap_mode(&mode);
    if (code != cudaErrorNotReady)
        return check(code, "cudaEventQuery");
    (void)rt.cudaGetLastError();
    return TUTTI__AGAIN;
}

tutti_status_t tutti__cuda_elapsed(tutti__devent_t *start, tutti__devent_t *stop, double *ret_us)
{
    float ms = 0;
    cudaError_t code = rt.cudaEventElapsedTime(&ms, (cudaEvent_t)start, (cudaEvent_t)stop);

    if (code == cudaErrorNotReady) {
        (void)rt.cudaGetLastError();
        return TUTTI__AGAIN;
    }
    if (code != cudaSuccess)
        return refused(code, "cudaEventElapsedTime");
    *ret_us = (double)ms * 1e3;
    return TUTTI_OK;
}

tutti_status_t tutti__cuda_words(void **ret_words)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void *words; /* under lock */
    const size_t bytes = (size_t)TUTTI__DEVICE_WORDS * TUTTI__DEVICE_WORD_BYTES;
    tutti_status_t status = TUTTI_OK;

    pthread_mutex_lock(&lock);
    if (words == NULL) {
        status = tutti__cuda_host_alloc(bytes, &words);
        if (status == TUTTI_OK)
            memset(words, 0, bytes);
    }
    if (status == TUTTI_OK)
        *ret_words = words;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Streams of one priority may share a hardware queue of the device. If a stream waits in such a
   queue, kernels of this library that would end the wait could be queued behind the wait. So the
   library's streams have the highest priority, and other streams of this priority are refused.
   Copies have no priority (CUDA's documentation of cudaStreamCreateWithPriority), so a caller's
   copy behind a wait may block a copy of this library. tutti/cuda.h advises against such copies. */
tutti_status_t tutti__cuda_await(tutti__dstream_t *stream, const void *word, uint32_t value)
{
    int lowest = 0, highest = 0, its = 0;
    tutti_status_t status;

    status = check(rt.cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                   "cudaDeviceGetStreamPriorityRange");
    if (status == TUTTI_OK)
        status =
            check(rt.cudaStreamGetPriority((cudaStream_t)stream, &its), "cudaStreamGetPriority");
    if (status != TUTTI_OK)
        return status;
    return its == highest ? TUTTI_ERR_UNSUPPORTED : tutti__cuda_wait_word(stream, word, value);
}

tutti_status_t tutti__cuda_copy(void *dst, const void *src, size_t bytes, tutti__dstream_t *stream)
{
    if (bytes == 0)
        return TUTTI_OK;
    return check(rt.cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, (cudaStream_t)stream),
                 "cudaMemcpyAsync");
}
