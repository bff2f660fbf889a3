/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that are captured into a graph. The graph stays empty, because nothing may be queued in
 * such a stream. With these functions tests detect forbidden calls during a capture: an unsafe call
 * invalidates the capture, except if its thread is in relaxed mode
 * (cudaThreadExchangeStreamCaptureMode in CUDA's header).
 */
#include "cuda_libs/inside.h"

#include <stdlib.h>

#define MOST 16

struct CUgraph_st {
    int magic;
};

typedef struct {
    cudaStream_t stream; /* NULL: free */
    pthread_t thread;    /* the thread that has begun the capture */
    enum cudaStreamCaptureMode mode;
    int is_spoiled;
} capture_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects captures */
static capture_t captures[MOST];
static _Thread_local enum cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;

/* Returns NULL if the stream is not captured. Call it with the lock held. */
static capture_t *find(cudaStream_t stream)
{
    for (int i = 0; i < MOST; i++)
        if (captures[i].stream == stream)
            return &captures[i];
    return NULL;
}

static int is_in_the_way(const capture_t *capture)
{
    if (capture->stream == NULL || mine == cudaStreamCaptureModeRelaxed)
        return 0;
    if (pthread_equal(capture->thread, pthread_self()))
        return capture->mode != cudaStreamCaptureModeRelaxed;
    return capture->mode == cudaStreamCaptureModeGlobal && mine == cudaStreamCaptureModeGlobal;
}

int capture_forbids(const char *what)
{
    int forbidden = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++) {
        if (!is_in_the_way(&captures[i]))
            continue;
        captures[i].is_spoiled = 1;
        forbidden = 1;
    }
    pthread_mutex_unlock(&lock);
    return forbidden ? err_say(cudaErrorStreamCaptureUnsupported,
                               "%s: not while a stream is captured", what)
                     : cudaSuccess;
}

void capture_forget(cudaStream_t handle)
{
    capture_t *capture;

    pthread_mutex_lock(&lock);
    capture = find(handle);
    if (capture != NULL)
        capture->stream = NULL;
    pthread_mutex_unlock(&lock);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = mine;

    mine = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    int code = rt_begin("cudaStreamBeginCapture");
    capture_t *capture;
    visit_t visit;

    if (code == cudaSuccess)
        code = visit_stream("cudaStreamBeginCapture", stream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    visit_end(&visit);
    if (visit.stream == NULL)
        return rt_end(err_say(cudaErrorStreamCaptureUnsupported, "the default stream"));
    pthread_mutex_lock(&lock);
    capture = find(stream) != NULL ? NULL : find(NULL);
    if (capture != NULL)
        *capture = (capture_t){ stream, pthread_self(), mode, 0 };
    pthread_mutex_unlock(&lock);
    if (capture == NULL)
        return rt_end(err_say(cudaErrorInvalidValue, "cudaStreamBeginCapture: it is already"));
    pretend_capture(visit.stream, 1);
    return cudaSuccess;
}

/* Remove and return the capture; its stream is NULL if there was none. */
static capture_t take(cudaStream_t stream)
{
    capture_t was = { .stream = NULL }, *capture;

    pthread_mutex_lock(&lock);
    capture = find(stream);
    if (capture != NULL) {
        was = *capture;
        capture->stream = NULL;
    }
    pthread_mutex_unlock(&lock);
    return was;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    int code = rt_begin("cudaStreamEndCapture");
    capture_t was = { .stream = NULL };

    *pGraph = NULL;
    if (code == cudaSuccess && stream != NULL)
        was = take(stream);
    if (code == cudaSuccess && was.stream == NULL)
        code = err_say(cudaErrorInvalidValue, "cudaStreamEndCapture: it is not captured");
    if (code != cudaSuccess)
        return rt_end(code);
    pretend_capture(stream->stream, 0);
    if (was.is_spoiled)
        return rt_end(cudaErrorStreamCaptureInvalidated);
    if (was.mode != cudaStreamCaptureModeRelaxed && !pthread_equal(was.thread, pthread_self()))
        return rt_end(cudaErrorStreamCaptureWrongThread);
    *pGraph = malloc(sizeof(**pGraph));
    if (*pGraph == NULL)
        return rt_end(cudaErrorMemoryAllocation);
    (*pGraph)->magic = GRAPH_MAGIC;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    int code = rt_begin("cudaGraphDestroy");

    if (code == cudaSuccess && (graph == NULL || graph->magic != GRAPH_MAGIC))
        code = err_say(cudaErrorInvalidValue, "cudaGraphDestroy: this is no graph");
    if (code == cudaSuccess)
        free(graph);
    return rt_end(code);
}

/* No stream here waits for the legacy stream, so captures cannot affect the legacy stream. */
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    int code = rt_begin("cudaStreamIsCapturing");
    const capture_t *capture = NULL;
    visit_t visit;

    if (code == cudaSuccess)
        code = visit_stream("cudaStreamIsCapturing", stream, &visit);
    if (code != cudaSuccess)
        return rt_end(code);
    visit_end(&visit);
    pthread_mutex_lock(&lock);
    if (visit.stream != NULL)
        capture = find(stream);
    *pCaptureStatus = capture == NULL       ? cudaStreamCaptureStatusNone
                      : capture->is_spoiled ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
