/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors in the form of CUDA and NCCL: a code, and its text. The runtime's last error belongs to
 * the thread. If the thread does not clear it, the thread's next call ends the process, because the
 * module must clear its own errors, so that an application does not find them.
 */
#include "cuda_libs/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int code;
    const char *name, *driver_name, *text;
} codes[] = {
    { 0, "cudaSuccess", "CUDA_SUCCESS", "no error" },
    { 1, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { 2, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { 3, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { 100, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { 101, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { 200, "cudaErrorInvalidKernelImage", "CUDA_ERROR_INVALID_IMAGE", "invalid kernel image" },
    { 201, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT", "invalid context" },
    { 400, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid handle" },
    { 500, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { 600, "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready" },
    { 700, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access" },
    { 801, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "not supported" },
    { 900, "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
      "not permitted when a stream is capturing" },
    { 901, "cudaErrorStreamCaptureInvalidated", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
      "the capture failed due to a previous error" },
    { 908, "cudaErrorStreamCaptureWrongThread", "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
      "the capture was not initiated in this thread" },
    { 999, "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error" },
};
#define CODES (sizeof(codes) / sizeof(*codes))

/* The thread's last error. */
static _Thread_local cudaError_t last;
static _Thread_local int said; /* the code of the text in `words`; 0: none */
static _Thread_local char words[WORDS_BYTES];
static _Thread_local char nccl_words[WORDS_BYTES];

void err_fatal(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("pretend CUDA: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

int err_say(int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(words, sizeof(words), fmt, args);
    va_end(args);
    said = code;
    return code;
}

static int is_broken(int number)
{
    device_t *device = number < 0 ? NULL : device_at(number);
    int broken;

    if (device == NULL)
        return 0;
    pthread_mutex_lock(&device->trouble_lock);
    broken = device->trouble.status != TUTTI_OK;
    pthread_mutex_unlock(&device->trouble_lock);
    return broken;
}

int err_code(tutti_status_t status, int otherwise)
{
    switch ((int)status) {
    case TUTTI_OK:
        return cudaSuccess;
    case TUTTI__AGAIN:
        return cudaErrorNotReady;
    case TUTTI_ERR_NO_MEMORY:
        return err_say(cudaErrorMemoryAllocation, "%s", tutti_last_error());
    case TUTTI_ERR_SYSTEM:
        if (is_broken(pretend_device()->current()))
            otherwise = cudaErrorIllegalAddress;
        return err_say(otherwise, "%s", tutti_last_error());
    default: /* an error of NCCL's work in the stream */
        return err_say(cudaErrorUnknown, "%s", tutti_last_error());
    }
}

/* ---- the runtime's ---- */

static int is_sticky(int code)
{
    return code == cudaErrorIllegalAddress;
}

cudaError_t rt_begin(const char *what)
{
    if (last != cudaSuccess && !is_sticky((int)last))
        err_fatal("%s: the thread's last error was left behind: %s (%s)", what,
                  cudaGetErrorName(last), cudaGetErrorString(last));
    if (pretend_device()->current() >= 0)
        return cudaSuccess;
    return (cudaError_t)err_code(pretend_device()->use(0), cudaErrorInitializationError);
}

cudaError_t rt_end(int code)
{
    if (code != cudaSuccess && !is_sticky((int)last))
        last = (cudaError_t)code;
    return (cudaError_t)code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last;

    if (!is_sticky((int)code))
        last = cudaSuccess;
    return code;
}

static size_t find(int code)
{
    size_t i = 0;

    while (i < CODES - 1 && codes[i].code != code)
        i++;
    return i;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return codes[find((int)error)].name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error != cudaSuccess && said == (int)error ? words : codes[find((int)error)].text;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    *pStr = codes[find((int)error)].driver_name;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    *pStr = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

/* ---- NCCL's ---- */

ncclResult_t nccl_say(ncclResult_t code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(nccl_words, sizeof(nccl_words), fmt, args);
    va_end(args);
    return code;
}

ncclResult_t nccl_code(tutti_status_t status)
{
    switch ((int)status) {
    case TUTTI_OK:
        return ncclSuccess;
    case TUTTI__AGAIN:
        return ncclInProgress;
    case TUTTI_ERR_NO_MEMORY:
        return nccl_say(ncclSystemError, "%s", tutti_last_error());
    case TUTTI_ERR_SYSTEM:
        return nccl_say(ncclUnhandledCudaError, "%s", tutti_last_error());
    default:
        return nccl_say(ncclInternalError, "%s", tutti_last_error());
    }
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",       "unhandled cuda error",       "unhandled system error",
        "internal error", "invalid argument",           "invalid usage",
        "remote error",   "NCCL operation in progress",
    };

    return (size_t)result < sizeof(texts) / sizeof(*texts) ? texts[result] : "unknown result code";
}

/* In the real library the text belongs to the process. */
const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return nccl_words;
}
