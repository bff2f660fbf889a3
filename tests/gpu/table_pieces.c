/* SPDX-License-Identifier: BSD-3-Clause */
/* pack with no piece, one piece, and very many pieces, of all lengths, including 0, in device
   memory and in pinned memory. */
#include "gpu/table.h"
#include "unit/reduce/reference.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECES = 100000,
    STRIDE = 64, /* bytes from piece to piece */
    ROOM = PIECES * STRIDE
};

typedef struct {
    gpu_t gpu;
    tutti__piece_t *pieces;
    char *src, *dst;       /* device memory, ROOM bytes each */
    char *in, *want, *got; /* host memory, ROOM bytes each */
} ground_t;

/* The order of the pieces is not the order of their targets. If `pinned` is not NULL, the target of
   every second piece is in this memory. */
static void pieces_case(ground_t *g, size_t n, tutti_dtype_t from, tutti_dtype_t to, char *pinned)
{
    size_t in = tutti_dtype_bytes(from), out = tutti_dtype_bytes(to);
    size_t room = n * STRIDE + STRIDE;

    memset(g->want, 0x55, room);
    gpu_copy(&g->gpu, g->dst, g->want, room);
    if (pinned != NULL)
        memset(pinned, 0x55, room);
    for (size_t i = 0; i < n; i++) {
        size_t target = (i * 7919) % n; /* a prime that does not divide n */
        size_t count = (i * 5) % (STRIDE / (in > out ? in : out));
        char *dst = pinned != NULL && i % 2 == 1 ? pinned : g->dst;

        g->pieces[i] = (tutti__piece_t){ g->src + i * STRIDE, dst + target * STRIDE, count };
        for (size_t k = 0; k < count; k++) {
            raw_t raw = raw_load(g->in + i * STRIDE + k * in, from);

            if (from != to)
                raw = (raw_t){ encode(decode(raw.value, from), to), 0 };
            raw_store(g->want + target * STRIDE + k * out, to, raw);
        }
    }
    CHECK_OK(g->gpu.ops->pack(g->pieces, n, from, to, 1, g->gpu.stream));
    memset(g->pieces, 0xff, n * sizeof(*g->pieces)); /* pack has read the list */
    gpu_copy(&g->gpu, g->got, g->dst, room);
    for (size_t i = 0; pinned != NULL && i < n; i++)
        if (i % 2 == 1)
            memcpy(g->got + i * 7919 % n * STRIDE, pinned + i * 7919 % n * STRIDE, STRIDE);
    for (size_t i = 0; i < room; i++)
        if (g->got[i] != g->want[i])
            ranks_fail(__FILE__, __LINE__, "%zu pieces, type %d to %d: byte %zu is wrong", n,
                       (int)from, (int)to, i);
}

void table_pieces(rank_t *self)
{
    static const size_t counts[] = { 0, 1, 127, 128, 129, 1000, PIECES - 1 };
    void *pinned;
    ground_t g;

    gpu_begin(&g.gpu, self);
    g.pieces = calloc(PIECES, sizeof(*g.pieces));
    g.src = gpu_alloc(&g.gpu, ROOM);
    g.dst = gpu_alloc(&g.gpu, ROOM);
    CHECK_OK(g.gpu.ops->host_alloc(ROOM, &pinned));
    g.in = malloc(ROOM);
    g.want = malloc(ROOM);
    g.got = malloc(ROOM);
    for (size_t i = 0; i < ROOM; i += 4)
        raw_store(g.in + i, TUTTI_FLOAT32, any_value(TUTTI_FLOAT32));
    gpu_copy(&g.gpu, g.src, g.in, ROOM);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        pieces_case(&g, counts[i], TUTTI_UINT8, TUTTI_UINT8, NULL);
        pieces_case(&g, counts[i], TUTTI_FLOAT32, TUTTI_BFLOAT16, NULL);
        pieces_case(&g, counts[i], TUTTI_BFLOAT16, TUTTI_FLOAT32, pinned);
    }
    free(g.in);
    free(g.want);
    free(g.got);
    free(g.pieces);
    g.gpu.ops->host_free(pinned);
    g.gpu.ops->free(g.src);
    g.gpu.ops->free(g.dst);
    gpu_end(&g.gpu);
}
