/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcudart: streams, events and copies. Where CUDA allows it, a thread may use the streams and
 * events of another device. The pretend device requires that the thread uses this device during the
 * call, so the thread switches to it.
 */
#include "cuda_libs/inside.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The range of priorities; a lower number is a higher priority. */
#define LOWEST 0
#define HIGHEST (-5)

/* ---- the device of an object ---- */

void visit_device(device_t *device, visit_t *ret_visit)
{
    ret_visit->before = pretend_device()->current();
    device_set_mine(device);
}

int visit_stream(const char *what, cudaStream_t handle, visit_t *ret_visit)
{
    int before = pretend_device()->current();

    *ret_visit = (visit_t){ NULL, before };
    if (handle == NULL || handle == cudaStreamLegacy)
        return cudaSuccess;
    if (handle == cudaStreamPerThread || handle->magic != STREAM_MAGIC)
        return err_say(cudaErrorInvalidResourceHandle, "%s: this is no stream", what);
    ret_visit->stream = handle->stream;
    visit_device(stream_device(handle->stream), ret_visit);
    return cudaSuccess;
}

void visit_end(const visit_t *visit)
{
    device_set_mine(visit->before < 0 ? NULL : device_at(visit->before));
}

/* ---- streams ---- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    int code = rt_begin("cudaDeviceGetStreamPriorityRange");

    *leastPriority = LOWEST;
    *greatestPriority = HIGHEST;
    return rt_end(code);
}

/* The pretend device does not receive the priority: the module must check which streams may wait on
   semaphores. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    int code = rt_begin("cudaStreamCreateWithPriority");
    cudaStream_t handle;

    if (code == cudaSuccess && flags != cudaStreamNonBlocking)
        code = err_say(cudaErrorNotSupported, "a stream that waits for the legacy default stream");
    if (code != cudaSuccess)
        return rt_end(code);
    handle = calloc(1, sizeof(*handle));
    if (handle == NULL)
        return rt_end(cudaErrorMemoryAllocation);
    handle->magic = STREAM_MAGIC;
    handle->priority = TUTTI__MAX(HIGHEST, TUTTI__MIN(priority, LOWEST));
    code = err_code(stream_make(0, &handle->stream), cudaErrorUnknown);
    if (code != cudaSuccess)
        free(handle);
    else
        *pStream = handle;
    return rt_end(code);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(pStream, flags, LOWEST);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    int code = rt_begin("cudaStreamDestroy");
    visit_t visit;

    if (code != cudaSuccess)
        return rt_end(code);
    code = visit_stream("cudaStreamDestroy", stream, &visit);
    if (code == cudaSuccess && visit.stream == NULL)
        code = err_say(cudaErrorInvalidResourceHandle, "cudaStreamDestroy: the default stream");
    if (code != cudaSuccess)
        return rt_end(code);
    capture_forget(stream);
    stream_drop(visit.stream);
    visit_end(&visit);
    stream->magic = 0;
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority)
{
    int code = rt_begin("cudaStreamGetPriority");
    visit_t visit;

    if (code == cudaSuccess)
        code = visit_stream("cudaStreamGetPriority", hStream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    *priority = visit.stream == NULL ? LOWEST : hStream->priority;
    visit_end(&visit);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    int code = rt_begin("cudaEventCreateWithFlags");
    cudaEvent_t handle;

    if (code == cudaSuccess && (flags & ~(unsigned)cudaEventDisableTiming) != 0)
        code = err_say(cudaErrorNotSupported, "cudaEventCreateWithFlags: flags %u", flags);
    if (code != cudaSuccess)
        return rt_end(code);
    handle = calloc(1, sizeof(*handle));
    if (handle == NULL)
        return rt_end(cudaErrorMemoryAllocation);
    handle->magic = EVENT_MAGIC;
    code = err_code(flags != 0 ? event_make(&handle->event) : event_timer(&handle->event),
                    cudaErrorUnknown);
    if (code != cudaSuccess)
        free(handle);
    else
        *event = handle;
    return rt_end(code);
}

static int check_event(const char *what, cudaEvent_t event)
{
    return event != NULL && event->magic == EVENT_MAGIC
               ? cudaSuccess
               : err_say(cudaErrorInvalidResourceHandle, "%s: this is no event", what);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    int code = rt_begin("cudaEventDestroy");

    if (code == cudaSuccess)
        code = check_event("cudaEventDestroy", event);
    if (code != cudaSuccess)
        return rt_end(code);
    event_drop(event->event);
    event->magic = 0;
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    int code = rt_begin("cudaEventRecord");
    visit_t visit;

    if (code == cudaSuccess)
        code = check_event("cudaEventRecord", event);
    if (code == cudaSuccess)
        code = visit_stream("cudaEventRecord", stream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    code = err_code(event_record(event->event, visit.stream), cudaErrorInvalidResourceHandle);
    visit_end(&visit);
    return rt_end(code);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    int code = rt_begin("cudaStreamWaitEvent");
    visit_t visit;

    if (code == cudaSuccess && flags != cudaEventWaitDefault)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess)
        code = check_event("cudaStreamWaitEvent", event);
    if (code == cudaSuccess)
        code = visit_stream("cudaStreamWaitEvent", stream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    code = err_code(event_wait(visit.stream, event->event), cudaErrorInvalidResourceHandle);
    visit_end(&visit);
    return rt_end(code);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    int code = rt_begin("cudaEventQuery");

    if (code == cudaSuccess)
        code = capture_forbids("cudaEventQuery");
    if (code == cudaSuccess)
        code = check_event("cudaEventQuery", event);
    if (code == cudaSuccess)
        code = err_code(event_query(event->event), cudaErrorIllegalAddress);
    return rt_end(code);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    int code = rt_begin("cudaEventElapsedTime");
    double us = 0;

    if (code == cudaSuccess)
        code = check_event("cudaEventElapsedTime", start);
    if (code == cudaSuccess)
        code = check_event("cudaEventElapsedTime", end);
    if (code == cudaSuccess)
        code =
            err_code(event_elapsed(start->event, end->event, &us), cudaErrorInvalidResourceHandle);
    if (code == cudaSuccess)
        *ms = (float)(us * 1e-3);
    return rt_end(code);
}

/* ---- copies ---- */

static int check_direction(const void *dst, const void *src, enum cudaMemcpyKind kind)
{
    int to = memory_where(dst).kind == TUTTI__MEM_DEVICE;
    int from = memory_where(src).kind == TUTTI__MEM_DEVICE;
    int fits = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && to && !from) ||
               (kind == cudaMemcpyDeviceToHost && !to && from) ||
               (kind == cudaMemcpyDeviceToDevice && to && from) ||
               (kind == cudaMemcpyHostToHost && !to && !from);

    return fits ? cudaSuccess
                : err_say(cudaErrorInvalidValue, "cudaMemcpyAsync: kind %d, but from %s to %s",
                          (int)kind, from ? "device" : "host", to ? "device" : "host");
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    int code = rt_begin("cudaMemcpyAsync");
    visit_t visit;

    if (code == cudaSuccess)
        code = check_direction(dst, src, kind);
    if (code == cudaSuccess)
        code = visit_stream("cudaMemcpyAsync", stream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    code = err_code(work_copy(dst, src, count, visit.stream), cudaErrorInvalidValue);
    visit_end(&visit);
    return rt_end(code);
}

typedef struct {
    const void *begin;
    int value;
    size_t bytes;
} fill_item_t;

static void run_fill(void *item)
{
    const fill_item_t *fill = item;
    const void *view = fill->begin;

    if (kernel_sees("fills", &view, fill->bytes) && fill->bytes > 0)
        memset((void *)(uintptr_t)view, fill->value, fill->bytes);
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    const fill_item_t item = { devPtr, value, count };
    int code = rt_begin("cudaMemsetAsync");
    visit_t visit;

    if (code == cudaSuccess)
        code = visit_stream("cudaMemsetAsync", stream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    code = err_code(pretend_launch(visit.stream, run_fill, &item, sizeof(item)),
                    cudaErrorInvalidValue);
    visit_end(&visit);
    return rt_end(code);
}

/* Wait for all present work of the stream. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaEvent_t event;
    cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);

    if (code != cudaSuccess)
        return code;
    code = cudaEventRecord(event, stream);
    if (code == cudaSuccess)
        code = cudaEventQuery(event);
    while (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        sched_yield();
        code = cudaEventQuery(event);
    }
    event_drop(event->event);
    free(event);
    return code;
}
