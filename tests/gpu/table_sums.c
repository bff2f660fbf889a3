/* SPDX-License-Identifier: BSD-3-Clause */
/* sum with every type and number of sources: the results must have the bits that the processor's
   kernels compute. */
#include "gpu/table.h"
#include "unit/reduce/reference.h"

#include "reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 70001,
    ROOM = (MOST + 16) * 8
};

typedef struct {
    gpu_t gpu;
    char *device[TUTTI__DEVICE_SRCS + 1]; /* ROOM bytes each; the last is for the result */
    char *host[TUTTI__DEVICE_SRCS];       /* MOST values each */
    char *want, *got;
} ground_t;

typedef struct {
    tutti_dtype_t dtype;
    size_t nsrcs, count;
    uint32_t divisor;
    size_t shift; /* elements by which each source's offset exceeds the previous one's */
    int in_place; /* the last source is the result */
} case_t;

static void sum_case(ground_t *g, const case_t *c)
{
    size_t width = tutti_dtype_bytes(c->dtype), bytes = c->count * width;
    const void *srcs[TUTTI__DEVICE_SRCS], *host[TUTTI__DEVICE_SRCS];
    char *dst = g->device[TUTTI__DEVICE_SRCS] + width;

    for (size_t s = 0; s < c->nsrcs; s++) {
        char *at = g->device[s] + s * c->shift * width;

        host[s] = g->host[s];
        srcs[s] = at;
        gpu_copy(&g->gpu, at, g->host[s], bytes);
        if (c->in_place)
            dst = at;
    }
    tutti__reduce_find(c->dtype, TUTTI_SUM)(g->want, host, c->nsrcs, c->count, c->divisor);
    CHECK_OK(g->gpu.ops->sum(dst, srcs, c->nsrcs, c->count, c->dtype, c->divisor, g->gpu.stream));
    gpu_copy(&g->gpu, g->got, dst, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (g->got[i] != g->want[i])
            ranks_fail(__FILE__, __LINE__,
                       "type %d, %zu sources of %zu, divisor %u, shift %zu, in place %d: element "
                       "%zu is wrong",
                       (int)c->dtype, c->nsrcs, c->count, (unsigned)c->divisor, c->shift,
                       c->in_place, i / width);
}

static void sums_of(ground_t *g, tutti_dtype_t dtype)
{
    static const uint32_t divisors[] = { 0, 1, 3, 4000000000u };
    static const size_t counts[] = { 0, 1, 17, 1000 };
    size_t width = tutti_dtype_bytes(dtype);

    for (size_t s = 0; s < TUTTI__DEVICE_SRCS; s++)
        for (size_t i = 0; i < MOST; i++)
            raw_store(g->host[s] + i * width, dtype, any_value(dtype));
    for (size_t nsrcs = 1; nsrcs <= TUTTI__DEVICE_SRCS; nsrcs++)
        for (size_t d = 0; d < COUNT_OF(divisors); d++)
            for (size_t n = 0; n < COUNT_OF(counts); n++)
                for (int way = 0; way < 3; way++) {
                    case_t c = { dtype, nsrcs, counts[n], divisors[d], way == 1, way == 2 };

                    sum_case(g, &c);
                }
    sum_case(g, &(case_t){ dtype, 3, MOST, 3, 1, 0 });
}

static void refusals(ground_t *g)
{
    const tutti__device_ops_t *ops = g->gpu.ops;
    const void *srcs[2] = { g->device[0], g->device[1] };
    const void *odd[2] = { g->device[0], g->device[1] + 2 };

    CHECK_STATUS(ops->sum(g->device[2], srcs, 2, 1, TUTTI_FLOAT32_INT32, 0, g->gpu.stream),
                 TUTTI_ERR_UNSUPPORTED);
    if (gpu_is_real())
        CHECK_STATUS(ops->sum(g->device[2], odd, 2, 1, TUTTI_FLOAT32, 0, g->gpu.stream),
                     TUTTI_ERR_INVALID_ARGUMENT);
    gpu_finish(&g->gpu);
}

void table_sums(rank_t *self)
{
    ground_t g;

    gpu_begin(&g.gpu, self);
    for (int s = 0; s <= TUTTI__DEVICE_SRCS; s++)
        g.device[s] = gpu_alloc(&g.gpu, ROOM);
    for (int s = 0; s < TUTTI__DEVICE_SRCS; s++)
        g.host[s] = malloc(ROOM);
    g.want = malloc(ROOM);
    g.got = malloc(ROOM);
    for (int t = TUTTI_INT8; t <= TUTTI_FLOAT64; t++)
        sums_of(&g, (tutti_dtype_t)t);
    refusals(&g);
    for (int s = 0; s <= TUTTI__DEVICE_SRCS; s++)
        g.gpu.ops->free(g.device[s]);
    for (int s = 0; s < TUTTI__DEVICE_SRCS; s++)
        free(g.host[s]);
    free(g.want);
    free(g.got);
    gpu_end(&g.gpu);
}
