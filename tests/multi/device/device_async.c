/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous calls on device memory: all kinds, fused or in buckets of their own, mixed with host
 * memory, in any order from several threads; late streams; no allocations during calls.
 */
#include "device_world.h"
#include "long.h"

#include "base/status.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS = 3,
    STEPS = 3,
    MOST = 30000 /* elements of the largest tensor */
};

typedef struct {
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t count;
    double prescale, postscale;
    int in_place, has_stream, on_host;
} shape_t;

#define SUM(n, place, stream)                                                                      \
    {                                                                                              \
        TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT32, TUTTI_SUM, n, 1, 1, place, stream, 0                  \
    }
#define SCALED(kind, n, pre, post, place)                                                          \
    {                                                                                              \
        kind, TUTTI_FLOAT32, TUTTI_SUM, n, pre, post, place, 1, 0                                  \
    }
#define OF(kind, dtype, op, n, place, stream)                                                      \
    {                                                                                              \
        kind, dtype, op, n, 1, 1, place, stream, 0                                                 \
    }

static const shape_t shapes[] = {
    SUM(1, 0, 1),
    SUM(17, 1, 1),
    SUM(1000, 0, 0),
    SUM(MOST, 1, 1), /* in its own bucket, if the fuse memory is small */
    SUM(300, 1, 1),
    SUM(0, 0, 1),
    { TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT32, TUTTI_SUM, 5000, 1, 1, 1, 0, 1 }, /* host memory */
    { TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT32, TUTTI_SUM, 40, 1, 1, 0, 0, 1 },
    SCALED(TUTTI_CALL_ALLREDUCE, 700, 0.5, 4, 0),
    SCALED(TUTTI_CALL_ALLREDUCE, 70, 0.5, 4, 1),
    SCALED(TUTTI_CALL_ALLREDUCE, 71, 1, 0.25, 1),
    SCALED(TUTTI_CALL_ALLREDUCE, MOST, 0.5, 1, 1),
    SCALED(TUTTI_CALL_REDUCE, 500, 0.5, 2, 0),
    SCALED(TUTTI_CALL_REDUCE, MOST, 0.5, 2, 0),
    SCALED(TUTTI_CALL_REDUCE_SCATTER, 60, 0.5, 2, 0),
    SCALED(TUTTI_CALL_REDUCE_SCATTER, MOST / 8, 0.5, 2, 1),
    /* Not packed, and scaled only after the run: these calls are moved, restored and staged. */
    SCALED(TUTTI_CALL_REDUCE, 77, 1, 2, 0),
    SCALED(TUTTI_CALL_REDUCE_SCATTER, 77, 1, 2, 0),
    SCALED(TUTTI_CALL_REDUCE_SCATTER, 78, 1, 2, 1),
    OF(TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT32, TUTTI_AVG, 333, 1, 1),
    OF(TUTTI_CALL_ALLREDUCE, TUTTI_FLOAT64, TUTTI_SUM, 200, 0, 1),
    OF(TUTTI_CALL_ALLREDUCE, TUTTI_INT64, TUTTI_MAX, 250, 0, 1),
    OF(TUTTI_CALL_ALLREDUCE, TUTTI_INT16, TUTTI_SUM, 800, 1, 1), /* NCCL does not serve it */
    OF(TUTTI_CALL_ALLREDUCE, TUTTI_INT16, TUTTI_SUM, 31, 0, 0),
    OF(TUTTI_CALL_BROADCAST, TUTTI_FLOAT32, TUTTI_SUM, 90, 1, 1),
    OF(TUTTI_CALL_BROADCAST, TUTTI_FLOAT32, TUTTI_SUM, 2000, 1, 1),
    OF(TUTTI_CALL_BROADCAST, TUTTI_INT16, TUTTI_SUM, 10, 1, 0),
    OF(TUTTI_CALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 123, 0, 1),
    OF(TUTTI_CALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 124, 1, 1),
    OF(TUTTI_CALL_REDUCE_SCATTER, TUTTI_FLOAT32, TUTTI_SUM, 77, 1, 1),
    OF(TUTTI_CALL_REDUCE_SCATTER, TUTTI_FLOAT32, TUTTI_SUM, 5, 0, 1),
    OF(TUTTI_CALL_REDUCE_SCATTER, TUTTI_FLOAT64, TUTTI_SUM, 900, 1, 1),
    OF(TUTTI_CALL_ALLGATHER, TUTTI_FLOAT32, TUTTI_SUM, 9, 0, 1),
    OF(TUTTI_CALL_ALLGATHER, TUTTI_FLOAT32, TUTTI_SUM, 100, 0, 1),
    OF(TUTTI_CALL_ALLGATHER, TUTTI_INT16, TUTTI_SUM, 3000, 0, 0),
    OF(TUTTI_CALL_ALLTOALL, TUTTI_FLOAT32, TUTTI_SUM, 50, 0, 1),
    OF(TUTTI_CALL_SCAN, TUTTI_FLOAT32, TUTTI_SUM, 400, 0, 1),
    OF(TUTTI_CALL_BARRIER, TUTTI_FLOAT32, TUTTI_SUM, 0, 0, 0),
};

#define SHAPES ((int)(sizeof(shapes) / sizeof(*shapes)))

typedef struct {
    const shape_t *s;
    char name[32];
    size_t in, out; /* elements */
    char *host;     /* pinned: source of copies to the device */
    char *send, *recv;
    tutti_request_t *request;
} tensor_t;

static double value_of(int rank, int t, size_t i, int step)
{
    return (double)((rank * 3 + t + (int)(i % 97) + step) % 50);
}

static void set(const tensor_t *t, char *to, size_t i, double v)
{
    switch (t->s->dtype) {
    case TUTTI_FLOAT64:
        ((double *)(void *)to)[i] = v;
        break;
    case TUTTI_INT64:
        ((int64_t *)(void *)to)[i] = (int64_t)v;
        break;
    case TUTTI_INT16:
        ((int16_t *)(void *)to)[i] = (int16_t)v;
        break;
    default:
        ((float *)(void *)to)[i] = (float)v;
    }
}

static double get(const tensor_t *t, const char *from, size_t i)
{
    switch (t->s->dtype) {
    case TUTTI_FLOAT64:
        return ((const double *)(const void *)from)[i];
    case TUTTI_INT64:
        return (double)((const int64_t *)(const void *)from)[i];
    case TUTTI_INT16:
        return ((const int16_t *)(const void *)from)[i];
    default:
        return ((const float *)(const void *)from)[i];
    }
}

static double folded(const shape_t *s, int size, int t, size_t i, int step)
{
    double sum = 0, max = 0;

    for (int r = 0; r < size; r++) {
        double v = value_of(r, t, i, step);

        sum += v * s->prescale;
        max = v > max ? v : max;
    }
    if (s->op == TUTTI_MAX)
        return max;
    return (s->op == TUTTI_AVG ? sum / size : sum) * s->postscale;
}

/* Element j of the data that this rank receives. */
static double expected(const rank_t *self, int t, size_t j, int step)
{
    const shape_t *s = &shapes[t];
    size_t mine = (size_t)self->rank * s->count;
    double sum = 0;

    switch (s->kind) {
    case TUTTI_CALL_BROADCAST:
        return value_of(self->size - 1, t, j, step);
    case TUTTI_CALL_REDUCE_SCATTER:
        return folded(s, self->size, t, mine + j, step);
    case TUTTI_CALL_ALLGATHER:
        return value_of((int)(j / s->count), t, j % s->count, step);
    case TUTTI_CALL_ALLTOALL:
        return value_of((int)(j / s->count), t, mine + j % s->count, step);
    case TUTTI_CALL_SCAN:
        for (int r = 0; r <= self->rank; r++)
            sum += value_of(r, t, j, step);
        return sum;
    default:
        return folded(s, self->size, t, j, step);
    }
}

static size_t width(const tensor_t *t)
{
    return tutti_dtype_bytes(t->s->dtype);
}

static char *memory(gpu_rank_t *gpu, const tensor_t *t, size_t elements)
{
    void *ptr;

    if (t->s->on_host)
        return malloc(elements * width(t) + 1);
    CHECK_OK(gpu->ops->alloc(elements * width(t) + 1, &ptr));
    return ptr;
}

static void make(gpu_rank_t *gpu, tensor_t *t, int i)
{
    size_t size = (size_t)gpu->rank->size, count = shapes[i].count;
    int root = gpu->rank->rank == gpu->rank->size - 1;
    void *host;

    t->s = &shapes[i];
    t->in = t->out = count;
    if (t->s->kind == TUTTI_CALL_REDUCE_SCATTER || t->s->kind == TUTTI_CALL_ALLTOALL)
        t->in = count * size;
    if (t->s->kind == TUTTI_CALL_ALLGATHER || t->s->kind == TUTTI_CALL_ALLTOALL)
        t->out = count * size;
    if (t->s->kind == TUTTI_CALL_REDUCE && !root)
        t->out = 0;
    CHECK_OK(gpu->ops->host_alloc(t->in * width(t) + 1, &host));
    t->host = host;
    t->send = memory(gpu, t, t->in);
    t->recv = t->s->in_place ? t->send : memory(gpu, t, t->out);
}

static void unmake(gpu_rank_t *gpu, tensor_t *t)
{
    gpu->ops->host_free(t->host);
    if (t->s->on_host) {
        free(t->send);
        if (t->recv != t->send)
            free(t->recv);
        return;
    }
    gpu->ops->free(t->send);
    if (t->recv != t->send)
        gpu->ops->free(t->recv);
}

static void fill(gpu_rank_t *gpu, tensor_t *t, int i, int step)
{
    size_t bytes = t->in * width(t);

    for (size_t j = 0; j < t->in; j++)
        set(t, t->host, j, value_of(gpu->rank->rank, i, j, step));
    if (t->s->on_host)
        memcpy(t->send, t->host, bytes);
    else if (t->s->has_stream)
        device_put(gpu, t->send, t->host, bytes);
    else
        pretend_write(t->send, t->host, bytes);
}

static void submit(gpu_rank_t *gpu, tensor_t *t, int i)
{
    tutti__entry_t entry = device_entry(t->name, t->send, t->recv, t->s->count);

    snprintf(t->name, sizeof(t->name), "tensor %d", i);
    entry.call.kind = t->s->kind;
    entry.call.dtype = t->s->dtype;
    entry.call.op = t->s->op;
    entry.call.root = (uint32_t)gpu->rank->size - 1;
    entry.call.prescale = t->s->prescale;
    entry.call.postscale = t->s->postscale;
    entry.call.on_device = !t->s->on_host && t->s->kind != TUTTI_CALL_BARRIER;
    entry.call.stream = gpu->stream;
    entry.call.has_stream = t->s->has_stream;
    t->request = device_submit(gpu, &entry);
}

static void verify(gpu_rank_t *gpu, tensor_t *t, int i, int step)
{
    char *got = malloc(t->out * width(t) + 1);

    if (t->s->on_host)
        memcpy(got, t->recv, t->out * width(t));
    else if (t->out > 0)
        pretend_read(got, t->recv, t->out * width(t));
    for (size_t j = 0; j < t->out; j++) {
        double want = expected(gpu->rank, i, j, step);

        if (fabs(get(t, got, j) - want) > (t->s->op == TUTTI_AVG ? want * 1e-6 : 0))
            ranks_fail(__FILE__, __LINE__, "step %d, tensor %d, element %zu: %g, wanted %g", step,
                       i, j, get(t, got, j), want);
    }
    free(got);
}

/* ---- many, from several threads ---- */

typedef struct {
    gpu_rank_t *gpu;
    tensor_t *tensors;
    int thread, step;
} worker_t;

/* The thread's tensors, in an order that depends on the rank. */
static void *work(void *arg)
{
    worker_t *w = arg;
    int rank = w->gpu->rank->rank;
    /* The thread's current device must be the same after the calls. */
    int its_own = (rank + w->thread) % w->gpu->rank->size;

    for (int k = 0; k < SHAPES; k++) {
        int i = (k * (rank % 2 ? 3 : 1) + 7 * rank + w->step) % SHAPES;

        if (i % THREADS != w->thread)
            continue;
        CHECK_OK(w->gpu->ops->use(rank));
        fill(w->gpu, &w->tensors[i], i, w->step);
        CHECK_OK(w->gpu->ops->use(its_own));
        submit(w->gpu, &w->tensors[i], i);
        CHECK_INT(w->gpu->ops->current(), its_own);
    }
    for (int i = w->thread; i < SHAPES; i += THREADS) {
        CHECK_OK(tutti__engine_wait(w->tensors[i].request, -1));
        CHECK_INT(w->gpu->ops->current(), its_own);
        verify(w->gpu, &w->tensors[i], i, w->step);
    }
    return NULL;
}

/* Calls in host memory at the same time, on another communicator. */
static void direct(rank_t *self)
{
    float x[3];

    for (int k = 0; k < 20; k++) {
        x[0] = x[1] = x[2] = (float)(self->rank + k);
        CHECK_OK(tutti_allreduce(x, x, 3, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        CHECK_INT(x[2], self->size * k + self->size * (self->size - 1) / 2);
    }
}

/* All requests must be counted, and also the buckets that NCCL has served, if there is NCCL. */
static void check_stats(const gpu_rank_t *gpu)
{
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;
    tutti_stats_t stats = TUTTI_STATS_INIT;
    uint64_t operations = 0, by_nccl = 0;

    tutti__stats_read(gpu->stats, &stats);
    CHECK_INT(stats.requests, STEPS * SHAPES);
    CHECK_INT(stats.failed, 0);
    CHECK_INT(stats.async_ns.count, STEPS * SHAPES);
    CHECK_INT(stats.async_bytes.count, STEPS * SHAPES);
    CHECK(stats.in_flight_ns > 0 && stats.hidden_ns <= stats.in_flight_ns);
    for (size_t i = 0; tutti__stats_part(gpu->stats, i, &part); i++) {
        operations += part.operations;
        by_nccl += strcmp(part.transport, "nccl") == 0 ? part.operations : 0;
    }
    CHECK_INT(operations, stats.buckets + stats.ordered);
    CHECK((by_nccl > 0) == (gpu->device.node != NULL && gpu->rank->size > 1));
}

static void many(rank_t *self)
{
    tensor_t tensors[SHAPES] = { { 0 } };
    pthread_t threads[THREADS];
    worker_t workers[THREADS];
    gpu_rank_t gpu;

    device_begin(&gpu, self);
    for (int i = 0; i < SHAPES; i++)
        make(&gpu, &tensors[i], i);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays(1234, 300);
    pretend_forbid_alloc(1);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker_t){ &gpu, tensors, i, step };
            pthread_create(&threads[i], NULL, work, &workers[i]);
        }
        direct(self);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    CHECK_INT(pretend_counts(self->rank, PRETEND_FORBIDDEN), 0);
    /* Even data that do not fit into pinned memory do not block. */
    CHECK_INT(pretend_counts(self->rank, PRETEND_BLOCKING_COPIES), 0);
    CHECK_INT(pretend_counts(self->rank, PRETEND_SYNCS_IN_NCCL), 0);
    check_stats(&gpu);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_forbid_alloc(0);
    CHECK_OK(gpu.ops->use(self->rank));
    for (int i = 0; i < SHAPES; i++)
        unmake(&gpu, &tensors[i]);
    CHECK_OK(tutti_barrier(self->comm));
    device_end(&gpu);
}

#ifndef OTHER_JOBS /* gpu/async.c has other jobs */

/* ---- long work of the user's own ---- */

enum {
    LONG = 20000,         /* int16: more than STAGE */
    WORK_BYTES = 2000000, /* a second and a half, at this rate */
    WORK_RATE = 1333333
};

/* A staged call that does not fit STAGE waits for the user's work, but delays no other call. */
static void behind(rank_t *self)
{
    tutti__entry_t entry;
    tutti_request_t *large, *small;
    int16_t *values;
    uint64_t begun;
    tutti_status_t status;
    float *x, *y, sum;
    void *from, *to, *host;
    tutti__devent_t *worked;
    gpu_rank_t gpu;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, LONG);
    y = device_alloc(&gpu, 1);
    CHECK_OK(gpu.ops->alloc(WORK_BYTES, &to));
    CHECK_OK(gpu.ops->host_alloc(WORK_BYTES, &from));
    CHECK_OK(gpu.ops->host_alloc(LONG * sizeof(*values), &host));
    CHECK_OK(gpu.ops->event_make(&worked));
    values = host;
    for (int i = 0; i < LONG; i++)
        values[i] = (int16_t)(i % 1000 + self->rank);
    sum = 1;
    pretend_write(y, &sum, sizeof(sum));
    CHECK_OK(tutti_barrier(self->comm));
    begun = tutti__now_ns();
    pretend_rates(WORK_RATE, 0);
    device_put(&gpu, to, from, WORK_BYTES);
    device_put(&gpu, x, values, LONG * sizeof(*values));
    CHECK_OK(gpu.ops->record(worked, gpu.stream));
    entry = device_entry("large", x, x, LONG);
    entry.call.dtype = TUTTI_INT16;
    entry.call.stream = gpu.stream;
    entry.call.has_stream = 1;
    large = device_submit(&gpu, &entry);
    usleep(50000); /* the large call has begun */
    entry = device_entry("small", y, y, 1);
    small = device_submit(&gpu, &entry);
    CHECK_OK(tutti__engine_wait(small, -1));
    status = gpu.ops->query(worked);
    if (tutti__now_ns() - begun < 1400000000u) /* else a rank was late */
        CHECK_INT(status, TUTTI__AGAIN);
    CHECK_OK(tutti__engine_wait(large, -1));
    CHECK_OK(gpu.ops->query(worked));
    pretend_read(&sum, y, sizeof(sum));
    CHECK_INT((int)sum, self->size);
    pretend_read(values, x, LONG * sizeof(*values));
    for (int i = 0; i < LONG; i++)
        CHECK_INT(values[i], self->size * (i % 1000) + self->size * (self->size - 1) / 2);
    CHECK_INT(pretend_counts(self->rank, PRETEND_BLOCKING_COPIES), 0);
    CHECK_OK(tutti_barrier(self->comm));
    gpu.ops->event_drop(worked);
    gpu.ops->host_free(host);
    gpu.ops->host_free(from);
    gpu.ops->free(to);
    device_free(&gpu, y);
    device_free(&gpu, x);
    device_end(&gpu);
}

int main(void)
{
    int failures = 0, whole = test_is_long("1, 3 and 4 ranks of one host");

    if (whole) {
        failures += run_device_jobs(many, 1, NULL, 0);
        failures += run_device_jobs(many, 4, NULL, 0);
    }
    failures += run_device_jobs(many, 2, NULL, 0);
    failures += run_device_jobs(many, 4, "aabb", 0);
    /* Little fuse memory; in the second of these jobs, even smaller buckets. */
    device_options = (device_options_t){ .fuse_bytes = 8192, .stage_bytes = 4096 };
    if (whole)
        failures += run_device_jobs(many, 3, NULL, 0);
    device_options.fusion_bytes = 2048;
    failures += run_device_jobs(many, 2, NULL, 0);
    device_options.fusion_bytes = 0;
    failures += run_device_jobs(behind, 2, NULL, 0);
    /* All calls are staged: there is no NCCL. */
    device_options = (device_options_t){ .no_nccl = 1 };
    failures += run_device_jobs(many, 2, NULL, 0);
    return failures != 0;
}
#endif
