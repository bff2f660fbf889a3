/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Zero-copy allreduce and reduce, in each of its variants: in place, out of place, mixed; results
 * that fit in the caches, and larger results (TUTTI_L3_BYTES sets the limit); types and averages
 * with and without a kernel for all buffers at once. The same calls are also made on private
 * memory, through slots, in long pieces.
 */
#include "ranks.h"

#include "node/shm/shm.h"

#include <stdint.h>
#include <stdlib.h>

/* COUNT elements are several blocks of a zero-copy reduction, and a remainder. The part begins
   behind the beginning of the memory, and not at a cache line. */
#define COUNT ((size_t)100003)
#define SHIFT 3
#define ROOM (COUNT + 2 * SHIFT)

/* The small cache is just too small for the results of two ranks; the large cache has space for the
   results of five ranks. */
#define SMALL_L3 (2 * COUNT * 4)
#define LARGE_L3 (5 * COUNT * 4 + 5)

typedef struct {
    tutti_dtype_t dtype;
    tutti_op_t op;
    int root; /* of a reduce; -1: an allreduce */
} what_t;

/* The values are so small that all sums are exact in float32. They are multiples of 60, so averages
   are exact as well. */
static int32_t value(size_t i, int rank, int round)
{
    return (int32_t)(i * 3 + (size_t)rank * 7 + (size_t)round) % 4096 * 60;
}

static int32_t expected(size_t i, int size, int round, const what_t *what)
{
    int32_t all = 0, most = 0;

    for (int r = 0; r < size; r++) {
        int32_t its = value(i, r, round);

        all += its;
        most = its > most ? its : most;
    }
    return what->op == TUTTI_MAX ? most : what->op == TUTTI_AVG ? all / size : all;
}

static int32_t load(const int32_t *x, size_t i, tutti_dtype_t dtype)
{
    return dtype == TUTTI_FLOAT32 ? (int32_t)((const float *)(const void *)x)[i] : x[i];
}

static void store(int32_t *x, size_t i, tutti_dtype_t dtype, int32_t to)
{
    if (dtype == TUTTI_FLOAT32)
        ((float *)(void *)x)[i] = (float)to;
    else
        x[i] = to;
}

static void reduce(rank_t *self, int32_t *src, int32_t *dst, int round, const what_t *what)
{
    const tutti__shm_t *shm = (const tutti__shm_t *)self->inside->node;
    int gets = what->root < 0 || what->root == self->rank;

    dst[-1] = dst[COUNT] = -1;
    for (size_t i = 0; i < COUNT; i++) {
        store(dst, i, what->dtype, -2);
        store(src, i, what->dtype, value(i, self->rank, round));
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (what->root < 0)
        CHECK_OK(tutti_allreduce(src, dst, COUNT, what->dtype, what->op, self->comm));
    else
        CHECK_OK(tutti_reduce(src, dst, COUNT, what->dtype, what->op, what->root, self->comm));
    for (size_t i = 0; i < COUNT; i++) {
        int32_t own = value(i, self->rank, round), seen = load(dst, i, what->dtype);

        if (gets && seen != expected(i, self->size, round, what))
            ranks_fail(__FILE__, __LINE__, "type %d, round %d: element %zu is %d, wanted %d",
                       (int)what->dtype, round, i, seen, expected(i, self->size, round, what));
        if (src != dst && load(src, i, what->dtype) != own)
            ranks_fail(__FILE__, __LINE__, "round %d: element %zu of the source has changed", round,
                       i);
    }
    CHECK_INT(shm->lane[0].outgrows, self->inside->conf.shared.l3_bytes == SMALL_L3);
    CHECK_INT(dst[-1], -1);
    CHECK_INT(dst[COUNT], -1);
    CHECK_OK(tutti_barrier(self->comm));
}

/* x, y: space for COUNT elements, with one further element before and one after them. */
static void all_ways(rank_t *self, int32_t *x, int32_t *y)
{
    static const what_t whats[] = { { TUTTI_FLOAT32, TUTTI_SUM, -1 },
                                    { TUTTI_INT32, TUTTI_SUM, -1 },
                                    { TUTTI_FLOAT32, TUTTI_AVG, -1 },
                                    { TUTTI_FLOAT32, TUTTI_MAX, -1 },
                                    { TUTTI_FLOAT32, TUTTI_SUM, 0 } };

    for (size_t w = 0; w < sizeof(whats) / sizeof(*whats); w++) {
        reduce(self, x, x, 0, &whats[w]);
        reduce(self, x, y, 1, &whats[w]);
        reduce(self, x, self->rank % 2 == 0 ? x : y, 2, &whats[w]);
        reduce(self, y, self->rank % 2 == 0 ? x : y, 3, &whats[w]);
    }
}

static void all_memory(rank_t *self)
{
    int32_t *x = calloc(ROOM, sizeof(*x)), *y = calloc(ROOM, sizeof(*y));
    void *memory, *other;

    CHECK(x != NULL && y != NULL);
    all_ways(self, x + SHIFT, y + 1 + self->rank % SHIFT);
    free(x);
    free(y);
    CHECK_OK(tutti_mem_alloc(self->comm, ROOM * sizeof(*x), &memory));
    CHECK_OK(tutti_mem_alloc(self->comm, ROOM * sizeof(*y), &other));
    all_ways(self, (int32_t *)memory + SHIFT, (int32_t *)other + 1 + self->rank % SHIFT);
    CHECK_OK(tutti_mem_free(self->comm, other));
    CHECK_OK(tutti_mem_free(self->comm, memory));
}

static void outgrow(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.l3_bytes = SMALL_L3;
}

static void stay(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.l3_bytes = LARGE_L3;
}

int main(void)
{
    int failures = 0;

    for (int size = 2; size <= 5; size++) {
        job_t large = { .size = size, .fn = all_memory, .settings = outgrow };
        job_t small = { .size = size, .fn = all_memory, .settings = stay };

        RUN_JOB(failures, &large);
        RUN_JOB(failures, &small);
    }
    return failures != 0;
}
