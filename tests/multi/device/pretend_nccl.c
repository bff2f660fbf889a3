/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretended NCCL's results, against a sequential reference in the order of ranks.
 */
#include "pretend_job.h"
#include "long.h"

#include "reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

/* 20001 is several pieces, and not a multiple of a piece. With a count of 1 some ranks have no
   element. */
static const size_t counts[] = { 0, 1, 13, 20001 };

/* Narrow numbers whose sums are rounded, so that another order gives other bits. */
static void fill(unsigned char *values, size_t bytes, int rank, tutti_dtype_t dtype)
{
    unsigned seed = (unsigned)rank * 7919 + 1;

    for (size_t i = 0; i < bytes; i++)
        values[i] = (unsigned char)rand_r(&seed);
    /* A bit of the exponents is cleared, so that there are no infinities and NaNs. */
    for (size_t i = 0; dtype == TUTTI_FLOAT32 && i + 3 < bytes; i += 4)
        values[i + 3] = (unsigned char)((values[i + 3] & 0x80) | 0x3f);
    for (size_t i = 0; dtype == TUTTI_BFLOAT16 && i + 1 < bytes; i += 2)
        values[i + 1] = (unsigned char)((values[i + 1] & 0x80) | 0x3f);
}

typedef struct {
    gpu_t *gpu;
    tutti__nccl_call_t call;
    size_t in, out; /* bytes */
    unsigned char *want, *got;
} case_t;

/* Write the required content of this rank's dst into c->want. Returns 0 if the call does not write
   dst. */
static int expected(const case_t *c, unsigned char **srcs)
{
    size_t size = (size_t)c->gpu->rank->size, rank = (size_t)c->gpu->rank->rank;
    size_t width = tutti_dtype_bytes(c->call.dtype), bytes = c->call.count * width;
    uint32_t divisor = c->call.op == TUTTI_AVG && size > 1 ? (uint32_t)size : 0;
    const void *parts[PRETEND_RANKS];

    switch (c->call.kind) {
    case TUTTI__NCCL_ALLGATHER:
        for (size_t r = 0; r < size; r++)
            memcpy(c->want + r * bytes, srcs[r], bytes);
        return 1;
    case TUTTI__NCCL_BROADCAST:
        memcpy(c->want, srcs[c->call.root], bytes);
        return 1;
    case TUTTI__NCCL_REDUCE:
        if (rank != c->call.root)
            return 0;
        break;
    default:
        break;
    }
    for (size_t r = 0; r < size; r++)
        parts[r] = srcs[r] + (c->call.kind == TUTTI__NCCL_REDUCE_SCATTER ? rank * bytes : 0);
    tutti__reduce_find(c->call.dtype, c->call.op)(c->want, parts, size, c->call.count, divisor);
    return 1;
}

static void run_case(case_t *c, int in_place)
{
    const tutti__device_ops_t *ops = c->gpu->ops;
    size_t size = (size_t)c->gpu->rank->size, rank = (size_t)c->gpu->rank->rank;
    size_t block = c->call.count * tutti_dtype_bytes(c->call.dtype);
    size_t all = c->in > c->out ? c->in : c->out;
    unsigned char *srcs[PRETEND_RANKS];
    void *src, *dst;

    CHECK_OK(ops->alloc(all + 1, &src));
    CHECK_OK(ops->alloc(all + 1, &dst));
    c->want = calloc(1, all + 1);
    c->got = calloc(1, all + 1);
    for (size_t r = 0; r < size; r++) {
        srcs[r] = malloc(c->in + 1);
        fill(srcs[r], c->in, (int)r, c->call.dtype);
    }
    c->call.src = src;
    c->call.dst = dst;
    if (in_place && c->call.kind == TUTTI__NCCL_ALLGATHER)
        c->call.src = (char *)dst + rank * block;
    else if (in_place && c->call.kind == TUTTI__NCCL_REDUCE_SCATTER)
        c->call.dst = (char *)src + rank * block;
    else if (in_place)
        c->call.dst = src;
    pretend_write((void *)(uintptr_t)c->call.src, srcs[rank], c->in);
    CHECK_OK(gpu_call(c->gpu, &c->call, 1));
    if (expected(c, srcs)) {
        pretend_read(c->got, c->call.dst, c->out);
        if (memcmp(c->got, c->want, c->out) != 0)
            ranks_fail(__FILE__, __LINE__, "kind %d, type %d, op %d, count %zu: wrong",
                       (int)c->call.kind, (int)c->call.dtype, (int)c->call.op, c->call.count);
    }
    for (size_t r = 0; r < size; r++)
        free(srcs[r]);
    free(c->want);
    free(c->got);
    ops->free(src);
    ops->free(dst);
}

static void all_kinds(rank_t *self)
{
    static const tutti_dtype_t types[] = { TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_INT64 };
    static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_AVG, TUTTI_MAX };
    gpu_t gpu;

    gpu_begin(&gpu, self);
    for (int kind = TUTTI__NCCL_ALLREDUCE; kind <= TUTTI__NCCL_REDUCE; kind++) {
        for (size_t i = 0; i < 3 * sizeof(counts) / sizeof(*counts); i++) {
            size_t count = counts[i / 3], bytes = count * tutti_dtype_bytes(types[i % 3]);
            size_t size = (size_t)self->size;
            case_t c = { .gpu = &gpu };

            c.call.kind = (tutti__nccl_kind_t)kind;
            c.call.count = count;
            c.call.dtype = types[i % 3];
            c.call.op = ops[i % 3];
            c.call.root = (uint32_t)(i % size);
            c.in = kind == TUTTI__NCCL_REDUCE_SCATTER ? bytes * size : bytes;
            c.out = kind == TUTTI__NCCL_ALLGATHER ? bytes * size : bytes;
            run_case(&c, 0);
            run_case(&c, 1);
        }
    }
    CHECK_INT(pretend_counts(self->rank, PRETEND_SYNCS_IN_NCCL), 0);
    gpu_end(&gpu);
}

/* An alltoall of messages in one call, with a length for each pair, some empty. */
static void messages(rank_t *self)
{
    size_t size = (size_t)self->size, most = 25000;
    tutti__nccl_call_t calls[2 * PRETEND_RANKS];
    void *src, *dst;
    gpu_t gpu;
    int *values = malloc(size * most * sizeof(*values));

    gpu_begin(&gpu, self);
    CHECK_OK(gpu.ops->alloc(size * most * sizeof(*values), &src));
    CHECK_OK(gpu.ops->alloc(size * most * sizeof(*values), &dst));
    for (size_t i = 0; i < size * most; i++)
        values[i] = (int)i + self->rank * 1000000;
    pretend_write(src, values, size * most * sizeof(*values));
    for (int round = 0; round < 3; round++) {
        for (size_t r = 0; r < size; r++) {
            tutti__nccl_call_t send = { TUTTI__NCCL_SEND,
                                        (int *)src + r * most,
                                        NULL,
                                        (r + (size_t)self->rank) * 3000,
                                        TUTTI_INT32,
                                        0,
                                        (uint32_t)r };
            tutti__nccl_call_t recv = send;

            recv.kind = TUTTI__NCCL_RECV;
            recv.src = NULL;
            recv.dst = (int *)dst + r * most;
            /* The order differs between odd and even ranks. */
            calls[2 * r] = self->rank % 2 ? send : recv;
            calls[2 * r + 1] = self->rank % 2 ? recv : send;
        }
        CHECK_OK(gpu_call(&gpu, calls, 2 * size));
    }
    pretend_read(values, dst, size * most * sizeof(*values));
    for (size_t r = 0; r < size; r++)
        for (size_t i = 0; i < (r + (size_t)self->rank) * 3000; i++)
            CHECK_INT(values[r * most + i],
                      (int)((size_t)self->rank * most + i) + (int)r * 1000000);
    free(values);
    gpu_end(&gpu);
    gpu.ops->free(src);
    gpu.ops->free(dst);
}

/* Two messages from one rank to the next in one call: the first one is received first. */
static void two_messages(rank_t *self)
{
    uint32_t next = (uint32_t)((self->rank + 1) % self->size);
    uint32_t last = (uint32_t)((self->rank + self->size - 1) % self->size);
    int values[20000];
    void *ptr;
    char *buf;
    gpu_t gpu;

    gpu_begin(&gpu, self);
    CHECK_OK(gpu.ops->alloc(2 * sizeof(values), &ptr));
    buf = ptr;
    for (int i = 0; i < 20000; i++)
        values[i] = i;
    pretend_write(buf, values, sizeof(values));
    for (int round = 0; round < 3; round++) {
        char *to = buf + sizeof(values);
        size_t half = sizeof(values) / 2;
        tutti__nccl_call_t calls[] = {
            { TUTTI__NCCL_SEND, buf, NULL, 10000, TUTTI_INT32, 0, next },
            { TUTTI__NCCL_SEND, buf + half, NULL, 10000, TUTTI_INT32, 0, next },
            { TUTTI__NCCL_RECV, NULL, to, 10000, TUTTI_INT32, 0, last },
            { TUTTI__NCCL_RECV, NULL, to + half, 10000, TUTTI_INT32, 0, last },
        };

        CHECK_OK(gpu_call(&gpu, calls, 4));
        pretend_read(values, to, sizeof(values));
        for (int i = 0; i < 20000; i++)
            CHECK_INT(values[i], i);
    }
    gpu_end(&gpu);
    gpu.ops->free(ptr);
}

/* As in the hierarchical allreduce, two collectives run as one group. Another communicator is used
   in the same order on all ranks. There are delays, and calls in two streams. */
static void groups(rank_t *self)
{
    size_t size = (size_t)self->size, n = 1000;
    tutti__nccl_t *first, *second;
    tutti__dstream_t *streams[2];
    float *values = malloc(size * n * sizeof(*values));
    void *ptr;
    char *buf;
    gpu_t gpu;

    gpu_begin(&gpu, self);
    first = gpu.nccl;
    second = gpu_open(&gpu);
    streams[0] = gpu.stream;
    CHECK_OK(gpu.ops->stream_make(0, &streams[1]));
    CHECK_OK(gpu.ops->alloc((size * n + 1) * sizeof(float), &ptr));
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays((unsigned)self->rank, 2000);
    buf = ptr;
    for (int round = 0; round < 10; round++) {
        tutti__nccl_call_t calls[2] = {
            { TUTTI__NCCL_REDUCE_SCATTER, buf, buf + (size_t)self->rank * n * sizeof(float), n,
              TUTTI_FLOAT32, TUTTI_SUM, 0 },
            { TUTTI__NCCL_REDUCE, buf + size * n * sizeof(float), buf + size * n * sizeof(float), 1,
              TUTTI_FLOAT32, TUTTI_SUM, 0 },
        };
        tutti__nccl_call_t gather = {
            TUTTI__NCCL_ALLGATHER, calls[0].dst, buf, n, TUTTI_FLOAT32, 0, 0
        };

        for (size_t i = 0; i < size * n; i++)
            values[i] = (float)(self->rank + round);
        pretend_write(buf, values, size * n * sizeof(float));
        CHECK_OK(gpu.ops->nccl_call(first, calls, 2, streams[0]));
        CHECK_OK(gpu_poll(&gpu, first));
        CHECK_OK(gpu.ops->record(gpu.event, streams[0]));
        CHECK_OK(gpu.ops->wait(streams[1], gpu.event));
        CHECK_OK(gpu.ops->nccl_call(round % 2 ? first : second, &gather, 1, streams[1]));
        CHECK_OK(gpu_poll(&gpu, round % 2 ? first : second));
        gpu.stream = streams[1];
        CHECK_OK(gpu_finish(&gpu));
        gpu.stream = streams[0];
        pretend_read(values, buf, size * n * sizeof(float));
        for (size_t i = 0; i < size * n; i++)
            CHECK_INT(values[i], self->size * (self->size - 1) / 2 + self->size * round);
    }
    free(values);
    gpu_end(&gpu);
    gpu.ops->nccl_close(second);
    gpu.ops->stream_drop(streams[1]);
    gpu.ops->free(ptr);
}

/* One communicator, calls in two independent streams: the calls are executed in the order in which
   they are made. */
static void two_streams(rank_t *self)
{
    tutti__dstream_t *streams[2];
    size_t size = (size_t)self->size;
    int ones[2 * PRETEND_RANKS];
    void *ptr;
    int *buf;
    gpu_t gpu;

    gpu_begin(&gpu, self);
    streams[0] = gpu.stream;
    CHECK_OK(gpu.ops->stream_make(0, &streams[1]));
    CHECK_OK(gpu.ops->alloc(sizeof(ones), &ptr));
    buf = ptr;
    for (size_t i = 0; i < 2 * PRETEND_RANKS; i++)
        ones[i] = 1;
    pretend_write(buf, ones, sizeof(ones));
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays((unsigned)self->rank, 5000);
    for (int i = 0; i < 20; i++) {
        tutti__nccl_call_t call = { TUTTI__NCCL_ALLREDUCE, buf, buf, 1, TUTTI_INT32, TUTTI_MAX, 0 };

        if (i % 2) {
            call.kind = TUTTI__NCCL_ALLGATHER;
            call.src = buf + 1 + self->rank;
            call.dst = buf + 1;
        }
        CHECK_OK(gpu.ops->nccl_call(gpu.nccl, &call, 1, streams[i % 2]));
        CHECK_OK(gpu_poll(&gpu, gpu.nccl));
    }
    CHECK_INT(pretend_counts(self->rank, PRETEND_OTHER_STREAM), 19);
    for (int i = 0; i < 2; i++) {
        gpu.stream = streams[i];
        CHECK_OK(gpu_finish(&gpu));
    }
    pretend_read(ones, buf, sizeof(ones));
    for (size_t i = 0; i <= size; i++)
        CHECK_INT(ones[i], 1);
    gpu_end(&gpu);
    gpu.ops->stream_drop(streams[0]);
    gpu.ops->free(ptr);
}

/* More communicators, one after another, than may exist at once: the entries of ended communicators
   are reused. */
static void many(rank_t *self)
{
    gpu_t gpu;

    gpu_begin(&gpu, self);
    for (int i = 0; i < 70; i++)
        gpu.ops->nccl_close(gpu_open(&gpu));
    gpu_end(&gpu);
}

int main(void)
{
    int failures = 0;

    pretend_is_quick = !test_is_long("2 and 5 ranks");
    failures += run_pretend_jobs(all_kinds, 1);
    failures += run_pretend_jobs(messages, 1);
    failures += run_pretend_jobs(two_messages, 1);
    failures += run_pretend_jobs(groups, 1);
    failures += run_pretend_jobs(two_streams, 1);
    failures += run_pretend_jobs(many, 1);
    return failures != 0;
}
