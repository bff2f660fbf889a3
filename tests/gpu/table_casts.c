/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pack converts between any two floating point types, with several factors. Its results must have
 * the bits that types.h defines and that unit/reduce/reference.h computes. Also copies of bits, of
 * any type.
 */
#include "gpu/table.h"
#include "unit/reduce/reference.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 70001, /* several chunks, and a rest */
    ROOM = (MOST + 2) * 16
};

typedef struct {
    gpu_t gpu;
    char *src, *dst;            /* device memory, ROOM bytes each */
    char *host, *want, *got;    /* ROOM */
    char *data[LAST_DTYPE + 1]; /* MOST values of each type */
} ground_t;

/* All special values, and values near the midpoints of narrow types. */
static char *make_values(tutti_dtype_t dtype)
{
    size_t width = tutti_dtype_bytes(dtype);
    char *data = calloc(MOST, width);

    for (size_t i = 0; i < MOST; i++) {
        raw_t raw = any_value(dtype);
        uint64_t bits = next_random();

        if (is_float(dtype) && i % 3 == 0) {
            double x = (double)(int64_t)(bits >> 40) / 8388608.0;

            for (int e = (int)(bits % 48) - 30; e != 0; e += e < 0 ? 1 : -1)
                x = e < 0 ? x / 2 : x * 2;
            raw.value = encode(x, dtype);
        }
        raw_store(data + i * width, dtype, raw);
    }
    return data;
}

static raw_t expected(raw_t raw, tutti_dtype_t from, tutti_dtype_t to, double scale)
{
    double x = decode(raw.value, from);
    volatile float factor = (float)scale, product = (float)x * factor;

    if (from == TUTTI_FLOAT64 || to == TUTTI_FLOAT64)
        x = x * scale;
    else
        x = (double)product;
    return (raw_t){ encode(x, to), 0 };
}

/* The pretend device does not support floats of eight bits. */
static int is_known(tutti_dtype_t dtype)
{
    return gpu_is_real() || tutti_dtype_bytes(dtype) > 1;
}

/* Convert one piece, `shift` elements behind the beginning of the memory. The bytes around the
   piece must not change. */
static void cast_case(ground_t *g, tutti_dtype_t from, tutti_dtype_t to, double scale, size_t count,
                      size_t shift)
{
    size_t in = tutti_dtype_bytes(from), out = tutti_dtype_bytes(to);
    tutti__piece_t piece = { g->src + in, g->dst + shift * out, count };
    size_t whole = (count + shift + 1) * out;
    int copies = from == to && scale == 1;

    memset(g->want, 0x55, whole);
    for (size_t i = 0; i < count; i++) {
        raw_t raw = raw_load(g->data[from] + i * in, from);

        if (!copies)
            raw = expected(raw, from, to, scale);
        raw_store(g->want + (i + shift) * out, to, raw);
    }
    memset(g->host, 0x55, whole);
    gpu_copy(&g->gpu, g->dst, g->host, whole);
    gpu_copy(&g->gpu, g->src + in, g->data[from], count * in);
    CHECK_OK(g->gpu.ops->pack(&piece, 1, from, to, scale, g->gpu.stream));
    gpu_copy(&g->gpu, g->got, g->dst, whole);
    for (size_t i = 0; i < whole; i++)
        if (g->got[i] != g->want[i])
            ranks_fail(__FILE__, __LINE__,
                       "type %d to %d, scale %g, %zu elements at %zu: element %lld is wrong: "
                       "%016llx instead of %016llx",
                       (int)from, (int)to, scale, count, shift,
                       (long long)(i / out) - (long long)shift,
                       (unsigned long long)raw_load(g->got + i / out * out, to).value,
                       (unsigned long long)raw_load(g->want + i / out * out, to).value);
}

static void all_casts(ground_t *g)
{
    static const double scales[] = { 1, 0.25, 1 / 3.0, -65536, 1e-30 };
    static const size_t counts[] = { 0, 1, 3, 1000 };

    for (int from = TUTTI_FLOAT16; from <= TUTTI_FLOAT8_E5M2; from++) {
        for (int to = TUTTI_FLOAT16; to <= TUTTI_FLOAT8_E5M2; to++) {
            tutti_dtype_t f = (tutti_dtype_t)from, t = (tutti_dtype_t)to;

            if (from != to && !(is_known(f) && is_known(t)))
                continue;
            for (size_t s = 0; s < COUNT_OF(scales); s++)
                for (size_t c = 0; c < COUNT_OF(counts); c++)
                    cast_case(g, f, t, scales[s], counts[c], (s + c) % 3);
            cast_case(g, f, t, 1 / 3.0, MOST, 1);
        }
    }
}

/* Copies of bits may have any address. */
static void all_copies(ground_t *g)
{
    for (int t = FIRST_DTYPE; t <= LAST_DTYPE; t++) {
        tutti_dtype_t type = (tutti_dtype_t)t;
        size_t width = tutti_dtype_bytes(type);

        cast_case(g, type, type, 1, 1000, 1);
        for (size_t shift = 0; shift < 17; shift += 3) {
            size_t bytes = 1001 * width;
            tutti__piece_t piece = { g->src + shift, g->dst + (shift + 5) % 16, 1001 };

            gpu_copy(&g->gpu, g->src + shift, g->data[type], bytes);
            CHECK_OK(g->gpu.ops->pack(&piece, 1, type, type, 1, g->gpu.stream));
            gpu_copy(&g->gpu, g->got, piece.dst, bytes);
            CHECK(memcmp(g->got, g->data[type], bytes) == 0);
        }
    }
}

static void refusals(ground_t *g)
{
    tutti__piece_t piece = { g->src, g->dst, 1 }, odd = { g->src + 2, g->dst, 1 };
    const tutti__device_ops_t *ops = g->gpu.ops;

    CHECK_STATUS(ops->pack(&piece, 1, TUTTI_INT32, TUTTI_FLOAT32, 1, g->gpu.stream),
                 TUTTI_ERR_UNSUPPORTED);
    CHECK_STATUS(ops->pack(&piece, 1, TUTTI_INT32, TUTTI_INT32, 2, g->gpu.stream),
                 TUTTI_ERR_UNSUPPORTED);
    if (gpu_is_real())
        CHECK_STATUS(ops->pack(&odd, 1, TUTTI_FLOAT32, TUTTI_FLOAT16, 1, g->gpu.stream),
                     TUTTI_ERR_INVALID_ARGUMENT);
    gpu_finish(&g->gpu);
}

void table_casts(rank_t *self)
{
    ground_t g;

    gpu_begin(&g.gpu, self);
    g.src = gpu_alloc(&g.gpu, ROOM);
    g.dst = gpu_alloc(&g.gpu, ROOM);
    g.host = malloc(ROOM);
    g.want = malloc(ROOM);
    g.got = malloc(ROOM);
    for (int t = FIRST_DTYPE; t <= LAST_DTYPE; t++)
        g.data[t] = make_values((tutti_dtype_t)t);
    all_casts(&g);
    all_copies(&g);
    refusals(&g);
    for (int t = FIRST_DTYPE; t <= LAST_DTYPE; t++)
        free(g.data[t]);
    free(g.host);
    free(g.want);
    free(g.got);
    g.gpu.ops->free(g.src);
    g.gpu.ops->free(g.dst);
    gpu_end(&g.gpu);
}
