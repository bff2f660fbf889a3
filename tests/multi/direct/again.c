/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same direct call is repeated, with other buffers each time. Between the repetitions are calls
 * that must not be confused with it: with another count, type, operation, root or place; with wrong
 * buffers; or with another call on one rank.
 */
#include "ranks.h"

#include <string.h>

enum {
    MOST = 5000,
    TURNS = 8
};

/* Rank r contributes 100 r + i + turn. */
static void fill(float *x, size_t n, int rank, int turn)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(100 * rank + (int)i % 50 + turn);
}

/* Element i of all ranks' sum. */
static float sum_at(size_t i, int size, int turn)
{
    return (float)(100 * size * (size - 1) / 2 + size * ((int)i % 50 + turn));
}

static void check_sums(const float *x, size_t n, int size, int turn, float divisor)
{
    for (size_t i = 0; i < n; i++)
        CHECK(x[i] == sum_at(i, size, turn) / divisor);
}

/* Two out-of-place calls alternate with two in-place calls. */
static void allreduces(rank_t *self, size_t n, tutti_op_t op)
{
    float from[TURNS + MOST], to[TURNS + MOST];

    for (int turn = 0; turn < TURNS; turn++) {
        float *out = turn % 4 < 2 ? to + turn : from + turn;

        fill(from + turn, n, self->rank, turn);
        memset(to, 0xa5, sizeof(to));
        CHECK_OK(tutti_allreduce(from + turn, out, n, TUTTI_FLOAT32, op, self->comm));
        check_sums(out, n, self->size, turn, op == TUTTI_AVG ? (float)self->size : 1);
        if (out != from + turn)
            CHECK(from[turn] == (float)(100 * self->rank + turn));
    }
}

/* Calls with other types of the same length, and with other operations. */
static void types(rank_t *self)
{
    for (int turn = 0; turn < TURNS; turn++) {
        int32_t k = 20000000 * (1 + self->rank);
        float x = (float)k;

        CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        CHECK_OK(tutti_allreduce(&k, &k, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
        CHECK(x == 2e7f * (float)(self->size * (self->size + 1) / 2));
        CHECK_INT(k, 20000000 * (self->size * (self->size + 1) / 2));
        k = self->rank;
        CHECK_OK(tutti_allreduce(&k, &k, 1, TUTTI_INT32, TUTTI_MAX, self->comm));
        CHECK_INT(k, self->size - 1);
    }
}

/* Each rank is the root, one after another, twice. */
static void reduces(rank_t *self, size_t n)
{
    float from[MOST], to[MOST];

    for (int turn = 0; turn < 2 * self->size; turn++) {
        int root = turn / 2, mine = root == self->rank;

        fill(from, n, self->rank, turn);
        memset(to, 0xa5, sizeof(to));
        CHECK_OK(
            tutti_reduce(from, mine ? to : NULL, n, TUTTI_FLOAT32, TUTTI_SUM, root, self->comm));
        if (mine)
            check_sums(to, n, self->size, turn, 1);
    }
}

static void broadcasts(rank_t *self, size_t n)
{
    float x[TURNS + MOST];

    for (int turn = 0; turn < 2 * self->size; turn++) {
        int root = turn / 2;

        fill(x + turn % TURNS, n, self->rank, turn);
        CHECK_OK(tutti_broadcast(x + turn % TURNS, n, TUTTI_FLOAT32, root, self->comm));
        for (size_t i = 0; i < n; i++)
            CHECK(x[turn % TURNS + i] == (float)(100 * root + (int)i % 50 + turn));
    }
}

static void allgathers(rank_t *self, size_t n)
{
    float from[MOST], to[MOST];

    for (int turn = 0; turn < TURNS; turn++) {
        float *own = turn % 4 < 2 ? to + n * (size_t)self->rank : from;

        fill(own, n, self->rank, turn);
        CHECK_OK(tutti_allgather(own, to, n, TUTTI_FLOAT32, self->comm));
        for (size_t i = 0; i < n * (size_t)self->size; i++)
            CHECK(to[i] == (float)(100 * (int)(i / n) + (int)(i % n) % 50 + turn));
    }
}

static void alltoalls(rank_t *self, size_t n)
{
    size_t all = n * (size_t)self->size;
    float from[MOST], to[MOST];

    for (int turn = 0; turn < TURNS; turn++) {
        float *own = turn % 4 < 2 ? to : from;

        fill(own, all, self->rank, turn);
        CHECK_OK(tutti_alltoall(own, to, n, TUTTI_FLOAT32, self->comm));
        for (size_t i = 0; i < all; i++) {
            size_t k = n * (size_t)self->rank + i % n;

            CHECK(to[i] == (float)(100 * (int)(i / n) + (int)k % 50 + turn));
        }
    }
}

/* In place the result is at the beginning of the operands. */
static void reduce_scatters(rank_t *self, size_t n)
{
    float from[MOST], to[MOST];

    for (int turn = 0; turn < TURNS; turn++) {
        float *out = turn % 4 < 2 ? from : to;

        fill(from, n * (size_t)self->size, self->rank, turn);
        CHECK_OK(tutti_reduce_scatter(from, out, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        for (size_t i = 0; i < n; i++)
            CHECK(out[i] == sum_at(n * (size_t)self->rank + i, self->size, turn));
    }
}

/* Wrong buffers are found even if the same call was correct before. */
static void wrong_buffers(rank_t *self)
{
    float x[16] = { 0 }, y[16];

    for (int i = 0; i < 3; i++)
        CHECK_OK(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_STATUS(tutti_allreduce(x, NULL, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_allreduce(NULL, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_allreduce(x, x + 4, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_allreduce(x + 4, x, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, (tutti_op_t)99, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_BAND, self->comm),
                 TUTTI_ERR_UNSUPPORTED);
    CHECK_OK(tutti_allreduce(x, x, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_STATUS(tutti_allreduce(x, x + 4, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
}

/* One rank repeats its call, the others make another call. */
static void mismatch(rank_t *self)
{
    float x[16] = { 0 }, y[16];

    for (int odd = 0; odd < self->size && self->size > 1; odd++) {
        CHECK_OK(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        CHECK_OK(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        CHECK_STATUS(
            tutti_allreduce(x, y, self->rank == odd ? 8 : 9, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
            TUTTI_ERR_MISMATCH);
        CHECK_OK(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        if (self->rank == odd)
            CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_MISMATCH);
        else
            CHECK_STATUS(tutti_allreduce(x, y, 8, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                         TUTTI_ERR_MISMATCH);
    }
}

static void last_wins(void *dst, const void *left, const void *right, size_t count,
                      tutti_dtype_t dtype, void *context)
{
    (void)left;
    (void)dtype;
    (void)context;
    if (dst != right)
        memcpy(dst, right, count * sizeof(float));
}

/* The number of a freed operation may be reused for another operation. */
static void own_operations(rank_t *self)
{
    float x = (float)self->rank, y = -1;
    tutti_op_t op;

    for (int turn = 0; turn < 3; turn++) {
        CHECK_OK(tutti_op_create(last_wins, NULL, 0, &op));
        CHECK_OK(tutti_allreduce(&x, &y, 1, TUTTI_FLOAT32, op, self->comm));
        CHECK_OK(tutti_allreduce(&x, &y, 1, TUTTI_FLOAT32, op, self->comm));
        CHECK(y == (float)(self->size - 1));
        CHECK_OK(tutti_op_free(op));
        CHECK_STATUS(tutti_allreduce(&x, &y, 1, TUTTI_FLOAT32, op, self->comm),
                     TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_OK(tutti_barrier(self->comm));
    }
}

static void everything(rank_t *self)
{
    static const size_t counts[] = { 1, 12, 13, 600, 3 };
    float x[MOST] = { 0 };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        allreduces(self, counts[i], TUTTI_SUM);
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_barrier(self->comm));
        /* This call runs in the executor, whose memory must be separate from the repeated call's
           memory. */
        CHECK_OK(tutti_scan(x, x, counts[i] * 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        CHECK_OK(tutti_barrier(self->comm));
        reduces(self, counts[i]);
        broadcasts(self, counts[i]);
        allgathers(self, counts[i]);
        alltoalls(self, counts[i]);
        reduce_scatters(self, counts[i]);
    }
    allreduces(self, MOST, TUTTI_SUM);
    allreduces(self, 7, TUTTI_AVG);
    types(self);
    wrong_buffers(self);
    mismatch(self);
    if (ranks_can_fork()) /* operations are numbered per process */
        own_operations(self);
}

int main(void)
{
    int failures = 0, threads = !ranks_can_fork();

    for (int size = 1; size <= (threads ? 3 : 5); size++) {
        job_t job = { .size = size, .threads = threads, .fn = everything };

        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
