/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero-copy of what is larger than the caches, in place, where other blocks are used. */
#include "ranks.h"

#include <stdint.h>
#include <stdlib.h>

/* 16 MiB and a bit, in a part that does not begin where the memory does. */
#define COUNT (((size_t)4 << 20) + 77)
#define SHIFT 3

static int32_t value(size_t i, int rank, int round)
{
    return (int32_t)(i * 3 + (size_t)rank * 7 + (size_t)round);
}

static int32_t sum(size_t i, int size, int round)
{
    int32_t all = 0;

    for (int r = 0; r < size; r++)
        all += value(i, r, round);
    return all;
}

static void in_place(rank_t *self)
{
    void *memory;
    int32_t *x;

    CHECK_OK(tutti_mem_alloc(self->comm, (COUNT + 2 * SHIFT) * sizeof(*x), &memory));
    x = (int32_t *)memory + SHIFT;
    for (int round = 0; round < 2; round++) {
        int root = round == 0 ? -1 : self->size - 1;

        x[-1] = x[COUNT] = -1;
        for (size_t i = 0; i < COUNT; i++)
            x[i] = value(i, self->rank, round);
        CHECK_OK(tutti_barrier(self->comm));
        if (root < 0)
            CHECK_OK(tutti_allreduce(x, x, COUNT, TUTTI_INT32, TUTTI_SUM, self->comm));
        else
            CHECK_OK(tutti_reduce(x, x, COUNT, TUTTI_INT32, TUTTI_SUM, root, self->comm));
        for (size_t i = 0; (root < 0 || root == self->rank) && i < COUNT; i++)
            if (x[i] != sum(i, self->size, round))
                ranks_fail(__FILE__, __LINE__, "element %zu is %d, wanted %d", i, x[i],
                           sum(i, self->size, round));
        CHECK_INT(x[-1], -1);
        CHECK_INT(x[COUNT], -1);
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK_OK(tutti_mem_free(self->comm, memory));
}

int main(void)
{
    int failures = 0;

    for (int size = 2; size <= 3; size++) {
        job_t job = { .size = size, .fn = in_place };

        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
