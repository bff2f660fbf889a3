/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives against exact expectations: all ranks 1 to 8, types, operations, counts, in
 * place or not, on one host and on pretended ones, with each algorithm.
 */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

static const tutti_dtype_t dtypes[] = { TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_INT32,
                                        TUTTI_INT64,   TUTTI_UINT8,   TUTTI_BFLOAT16 };
static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_AVG, TUTTI_MIN, TUTTI_MAX };

static void put(void *buf, size_t i, tutti_dtype_t dtype, double value)
{
    float f = (float)value;
    uint32_t bits;

    switch (dtype) {
    case TUTTI_FLOAT32:
        ((float *)buf)[i] = f;
        break;
    case TUTTI_FLOAT64:
        ((double *)buf)[i] = value;
        break;
    case TUTTI_INT32:
        ((int32_t *)buf)[i] = (int32_t)value;
        break;
    case TUTTI_INT64:
        ((int64_t *)buf)[i] = (int64_t)value;
        break;
    case TUTTI_UINT8:
        ((uint8_t *)buf)[i] = (uint8_t)value;
        break;
    default:
        memcpy(&bits, &f, sizeof(bits));
        ((uint16_t *)buf)[i] = (uint16_t)(bits >> 16);
    }
}

static double get(const void *buf, size_t i, tutti_dtype_t dtype)
{
    uint32_t bits;
    float f;

    switch (dtype) {
    case TUTTI_FLOAT32:
        return ((const float *)buf)[i];
    case TUTTI_FLOAT64:
        return ((const double *)buf)[i];
    case TUTTI_INT32:
        return ((const int32_t *)buf)[i];
    case TUTTI_INT64:
        return (double)((const int64_t *)buf)[i];
    case TUTTI_UINT8:
        return ((const uint8_t *)buf)[i];
    default:
        bits = (uint32_t)((const uint16_t *)buf)[i] << 16;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
}

/* Small enough that sums of 8 ranks are exact in bfloat16 (8 bits) and fit uint8. */
static double value_of(int rank, size_t i, unsigned salt)
{
    return (double)((i * 7 + (size_t)rank * 5 + salt) % 16);
}

static double expected(int size, size_t i, tutti_dtype_t dtype, tutti_op_t op, unsigned salt)
{
    double sum = 0, min = 1e9, max = -1e9;

    for (int r = 0; r < size; r++) {
        double v = value_of(r, i, salt);

        sum += v;
        min = v < min ? v : min;
        max = v > max ? v : max;
    }
    if (op == TUTTI_MIN)
        return min;
    if (op == TUTTI_MAX)
        return max;
    if (op == TUTTI_SUM)
        return sum;
    if (dtype == TUTTI_INT32 || dtype == TUTTI_INT64 || dtype == TUTTI_UINT8)
        return (double)((long)sum / size);
    return sum / size;
}

/* An average of integers need not be a float of few bits; allow its rounding. */
static int close_enough(double got, double want, tutti_dtype_t dtype, tutti_op_t op)
{
    double error = got > want ? got - want : want - got;

    if (op != TUTTI_AVG || dtype == TUTTI_FLOAT64)
        return error < 1e-12;
    if (dtype == TUTTI_BFLOAT16)
        return error <= want / 256;
    return error <= want * 1e-6;
}

static void allreduce_one(rank_t *self, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                          int in_place, unsigned salt)
{
    size_t bytes = tutti_dtype_bytes(dtype);
    char *send = malloc(count * bytes + 1), *recv = in_place ? send : malloc(count * bytes + 1);

    for (size_t i = 0; i < count; i++)
        put(send, i, dtype, value_of(self->rank, i, salt));
    CHECK_OK(tutti_allreduce(send, recv, count, dtype, op, self->comm));
    for (size_t i = 0; i < count; i++) {
        double got = get(recv, i, dtype), want = expected(self->size, i, dtype, op, salt);

        if (!close_enough(got, want, dtype, op))
            ranks_fail(__FILE__, __LINE__, "element %zu of %zu, type %d, op %d: %g, wanted %g", i,
                       count, (int)dtype, (int)op, got, want);
        if (!in_place && get(send, i, dtype) != value_of(self->rank, i, salt))
            ranks_fail(__FILE__, __LINE__, "sendbuf was changed at %zu", i);
    }
    if (!in_place)
        free(recv);
    free(send);
}

static void allreduce_all(rank_t *self)
{
    static const size_t counts[] = { 0, 1, 2, 3, 12, 13, 100, 1000, 4097, 40000 };
    unsigned salt = 0;
    size_t step = ranks_can_fork() ? 1 : 3; /* TSan is slow, and races do not depend on types */

    for (size_t t = 0; t < sizeof(dtypes) / sizeof(dtypes[0]); t++)
        for (size_t o = t % step; o < sizeof(ops) / sizeof(ops[0]); o += step)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                allreduce_one(self, counts[c], dtypes[t], ops[o], (t + o + c) % 2, salt++);
    if (step > 1)
        return;
    allreduce_one(self, 1000003, TUTTI_FLOAT32, TUTTI_SUM, 0, salt++);
    allreduce_one(self, 1000003, TUTTI_FLOAT32, TUTTI_SUM, 1, salt++);
}

static void broadcast_all(rank_t *self)
{
    static const size_t counts[] = { 0, 1, 7, 5000, 300001 };

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        int32_t *buf = malloc(counts[c] * sizeof(*buf) + 1);

        for (int root = 0; root < self->size; root++) {
            for (size_t i = 0; i < counts[c]; i++)
                buf[i] = self->rank == root ? (int32_t)(i + (size_t)root) : -1;
            CHECK_OK(tutti_broadcast(buf, counts[c], TUTTI_INT32, root, self->comm));
            for (size_t i = 0; i < counts[c]; i++)
                CHECK_INT(buf[i], i + (size_t)root);
        }
        free(buf);
    }
}

static void allgather_all(rank_t *self)
{
    static const size_t counts[] = { 0, 1, 7, 5000, 100001 };

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        size_t n = counts[c];
        int64_t *all = malloc((n * (size_t)self->size + 1) * sizeof(*all));
        int64_t *mine = malloc((n + 1) * sizeof(*mine));

        for (int in_place = 0; in_place < 2; in_place++) {
            int64_t *send = in_place ? all + n * (size_t)self->rank : mine;

            memset(all, 0xff, n * (size_t)self->size * sizeof(*all));
            for (size_t i = 0; i < n; i++)
                send[i] = self->rank * 1000000 + (int64_t)i;
            CHECK_OK(tutti_allgather(send, all, n, TUTTI_INT64, self->comm));
            for (int r = 0; r < self->size; r++)
                for (size_t i = 0; i < n; i++)
                    CHECK_INT(all[(size_t)r * n + i], r * 1000000 + (int64_t)i);
        }
        free(all);
        free(mine);
    }
}

/* Parts of tutti_mem_alloc memory, at other offsets on each rank, and mixed with private memory. */
static void shared_memory(rank_t *self)
{
    static const size_t counts[] = { 1, 100, 70000, 400000 };
    void *ptr;

    CHECK_OK(tutti_mem_alloc(self->comm, 4 << 20, &ptr));
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int mixed = 0; mixed < 2; mixed++) {
            float *own = malloc(counts[c] * sizeof(*own));
            float *x = mixed && self->rank == 0 ? own : (float *)ptr + 3 * self->rank;

            for (size_t i = 0; i < counts[c]; i++)
                x[i] = (float)value_of(self->rank, i, 1);
            CHECK_OK(tutti_allreduce(x, x, counts[c], TUTTI_FLOAT32, TUTTI_SUM, self->comm));
            for (size_t i = 0; i < counts[c]; i++)
                CHECK(x[i] == (float)expected(self->size, i, TUTTI_FLOAT32, TUTTI_SUM, 1));
            CHECK_OK(tutti_broadcast(x, counts[c], TUTTI_FLOAT32, self->size - 1, self->comm));
            free(own);
        }
    }
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_mem_free(self->comm, ptr));
}

/* The sum of awkward floats: the same bits on all ranks. */
static void same_bits(rank_t *self)
{
    enum {
        N = 50000
    };
    float *x = malloc(N * sizeof(*x)), *all = malloc(N * sizeof(*all) * (size_t)self->size);

    for (int i = 0; i < N; i++)
        x[i] = 1.0f / (float)(1 + (i * 31 + self->rank * 17) % 1009);
    CHECK_OK(tutti_allreduce(x, x, N, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_allgather(x, all, N, TUTTI_FLOAT32, self->comm));
    for (int r = 0; r < self->size; r++)
        CHECK_INT(memcmp(all + (size_t)r * N, x, N * sizeof(*x)), 0);
    free(x);
    free(all);
}

static void everything(rank_t *self)
{
    CHECK_INT(tutti_rank(self->comm), self->rank);
    CHECK_INT(tutti_size(self->comm), self->size);
    for (int i = 0; i < 20; i++)
        CHECK_OK(tutti_barrier(self->comm));
    allreduce_all(self);
    broadcast_all(self);
    allgather_all(self);
    shared_memory(self);
    same_bits(self);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 4, 5, 7, 8 };
    static const char *const hosts[] = { "ab", "aabb", "aaabb", "aaaab", "abab", "abc", "aabbc" };
    static const char *const algorithms[] = { "allreduce:ring", "allreduce:recursive_doubling",
                                              ("broadcast:binomial,allgather:ring,"
                                               "barrier:dissemination") };
    int failures = 0, threads = !ranks_can_fork();

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        job_t job = { .size = sizes[i], .fn = everything, .threads = threads };

        if (threads && sizes[i] > 3)
            break;
        RUN_JOB(failures, &job);
        for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
            job.algorithm = algorithms[a];
            RUN_JOB(failures, &job);
        }
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        job_t job = {
            .size = (int)strlen(hosts[i]), .hosts = hosts[i], .fn = everything, .threads = threads
        };

        if (threads && i > 2)
            break;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
