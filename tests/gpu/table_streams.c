/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and events: order in a stream and between two streams, results of query, semaphores,
   timers, capture. */
#include "gpu/table.h"

#include "base/atomic.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    gpu_t gpu;
    tutti__dstream_t *other;
    tutti__devent_t *event;
    char *memory; /* for gpu_busy */
    char *device; /* 3 words */
    int *host;    /* pinned: 4 words */
} ground_t;

static void set(ground_t *g, int value)
{
    g->host[0] = value;
    gpu_copy(&g->gpu, g->device, g->host, 4);
}

/* After long work, a word is copied in the same stream, and then the event is recorded. */
static void in_order(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;

    set(g, 1);
    g->host[1] = 2;
    g->host[2] = 0;
    gpu_busy(&g->gpu, g->memory, g->other);
    CHECK_OK(ops->copy(g->device, g->host + 1, 4, g->other));
    CHECK_OK(ops->copy(g->device + 4, g->device, 4, g->other));
    CHECK_OK(ops->copy(g->host + 2, g->device + 4, 4, g->other));
    CHECK_OK(ops->record(g->event, g->other));
    CHECK_STATUS(ops->query(g->event), TUTTI__AGAIN);
    CHECK_OK(gpu_query(&g->gpu, g->event));
    CHECK_INT(g->host[2], 2);
    CHECK_OK(ops->query(g->event));
}

/* One stream waits for another; the host waits for neither. */
static void across(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;

    set(g, 1);
    g->host[1] = 3;
    g->host[2] = 0;
    gpu_busy(&g->gpu, g->memory, g->other);
    CHECK_OK(ops->copy(g->device, g->host + 1, 4, g->other));
    CHECK_OK(ops->record(g->event, g->other));
    CHECK_OK(ops->wait(g->gpu.stream, g->event));
    CHECK_OK(ops->copy(g->host + 2, g->device, 4, g->gpu.stream));
    CHECK_STATUS(ops->query(g->event), TUTTI__AGAIN);
    /* A later record does not affect a stream that already waits. */
    gpu_busy(&g->gpu, g->memory, g->other);
    CHECK_OK(ops->record(g->event, g->other));
    gpu_finish(&g->gpu);
    CHECK_INT(g->host[2], 3);
    CHECK_OK(gpu_query(&g->gpu, g->event));
}

/* An event that was never recorded counts as complete, so a wait for it ends at once. */
static void unrecorded(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;
    tutti__devent_t *event;

    CHECK_OK(ops->event_make(&event));
    CHECK_OK(ops->query(event));
    CHECK_OK(ops->wait(g->gpu.stream, event));
    gpu_finish(&g->gpu);
    ops->event_drop(event);
    ops->event_drop(NULL);
    ops->stream_drop(NULL);
}

/* A stream waits until the host has written a certain value; other streams must not wait. Streams
   of the highest priority cannot wait. */
static void words(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;
    tutti__dstream_t *stream;
    tutti__word_t *word;
    uint32_t value;
    void *all;

    CHECK_OK(ops->words(&all));
    word = (tutti__word_t *)(void *)((char *)all +
                                     (TUTTI__DEVICE_WORDS - 1) * TUTTI__DEVICE_WORD_BYTES);
    value = tutti__load_relaxed(word) + 2;
    CHECK_OK(ops->stream_make(0, &stream));
    set(g, 4);
    g->host[2] = 0;
    CHECK_OK(ops->await(stream, (void *)word, value));
    /* The source is on the device: CUDA may execute a copy within host memory at once, and wait for
       it. */
    CHECK_OK(ops->copy(g->host + 2, g->device, 4, stream));
    CHECK_OK(ops->record(g->event, stream));
    tutti__store_release(word, value - 1);
    usleep(20000);
    CHECK_OK(ops->copy(g->host + 3, g->device, 4, g->gpu.stream));
    gpu_finish(&g->gpu);
    CHECK_STATUS(ops->query(g->event), TUTTI__AGAIN);
    tutti__store_release(word, value);
    CHECK_OK(gpu_query(&g->gpu, g->event));
    CHECK_INT(g->host[2], 4);
    CHECK_STATUS(ops->await(g->other, (void *)word, value), TUTTI_ERR_UNSUPPORTED);
    ops->stream_drop(stream);
}

static void timers(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;
    tutti__devent_t *start, *stop;
    double us = -1;

    CHECK_OK(ops->timer_make(&start));
    CHECK_OK(ops->timer_make(&stop));
    CHECK_STATUS(ops->elapsed(start, stop, &us), TUTTI_ERR_SYSTEM);
    CHECK_OK(ops->record(start, g->other));
    gpu_busy(&g->gpu, g->memory, g->other);
    CHECK_OK(ops->record(stop, g->other));
    CHECK_STATUS(ops->elapsed(start, stop, &us), TUTTI__AGAIN);
    CHECK(us == -1);
    CHECK_OK(gpu_query(&g->gpu, stop));
    CHECK_OK(ops->elapsed(start, stop, &us));
    CHECK(us > 10 && us < 60e6);
    CHECK_OK(ops->record(g->event, g->other));
    CHECK_OK(gpu_query(&g->gpu, g->event));
    CHECK_STATUS(ops->elapsed(start, g->event, &us), TUTTI_ERR_SYSTEM);
    ops->event_drop(start);
    ops->event_drop(stop);
}

/* A thread without a device calls `use`, which gets the context with calls that may invalidate a
   capture. */
static void *use(void *arg)
{
    const ground_t *g = arg;

    return g->gpu.ops->use(g->gpu.rank->rank) == TUTTI_OK ? arg : NULL;
}

static void capture(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;
    void *begin = gpu_function("cudaStreamBeginCapture");
    void *end = gpu_function("cudaStreamEndCapture");
    void *pretend = gpu_function("pretend_capture"), *graph = NULL;
    void *drop = gpu_function("cudaGraphDestroy"), *used = NULL;
    pthread_t thread;

    CHECK_INT(ops->stream_captures(g->other), 0);
    CHECK_INT(ops->stream_captures(NULL), 0);
    if (pretend != NULL)
        ((void (*)(tutti__dstream_t *, int))(uintptr_t)pretend)(g->other, 1);
    else if (begin == NULL || end == NULL || drop == NULL)
        ranks_fail(__FILE__, __LINE__, "no functions to capture with");
    else
        CHECK_INT(((int (*)(tutti__dstream_t *, int))(uintptr_t)begin)(g->other, 0), 0);
    CHECK_INT(ops->stream_captures(g->other), 1);
    CHECK_INT(ops->stream_captures(g->gpu.stream), 0);
    /* Set-up and queries work during the capture, even in the strictest mode, which is 0. */
    CHECK_OK(ops->query(g->event));
    CHECK_OK(ops->use(g->gpu.rank->rank));
    CHECK_INT(pthread_create(&thread, NULL, use, g), 0);
    CHECK_INT(pthread_join(thread, &used), 0);
    CHECK(used == g);
    ops->free(gpu_alloc(&g->gpu, 4096));
    if (pretend != NULL) {
        ((void (*)(tutti__dstream_t *, int))(uintptr_t)pretend)(g->other, 0);
    } else {
        CHECK_INT(((int (*)(tutti__dstream_t *, void **))(uintptr_t)end)(g->other, &graph), 0);
        CHECK_INT(((int (*)(void *))(uintptr_t)drop)(graph), 0);
    }
    CHECK_INT(ops->stream_captures(g->other), 0);
}

void table_streams(rank_t *self)
{
    ground_t g;
    void *host;

    gpu_begin(&g.gpu, self);
    CHECK_OK(g.gpu.ops->stream_make(1, &g.other));
    CHECK_OK(g.gpu.ops->event_make(&g.event));
    CHECK_OK(g.gpu.ops->host_alloc(16, &host));
    memset(host, 0, 16);
    g.host = host;
    g.device = gpu_alloc(&g.gpu, 12);
    g.memory = gpu_alloc(&g.gpu, gpu_busy_bytes());
    in_order(&g);
    across(&g);
    unrecorded(&g);
    words(&g);
    timers(&g);
    capture(&g);
    g.gpu.ops->free(g.memory);
    g.gpu.ops->free(g.device);
    g.gpu.ops->host_free(host);
    g.gpu.ops->event_drop(g.event);
    g.gpu.ops->stream_drop(g.other);
    gpu_end(&g.gpu);
}
