/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter's memory, and the definition of each collective. See interpret_world.h. */
#include "unit/coll/interpret_world.h"

#include <stddef.h>

int world_wrong(world_t *w, const char *wrong)
{
    if (w->wrong == NULL)
        w->wrong = wrong;
    return 0;
}

/* ---- lengths and places ---- */

static int by_pair(const world_t *w)
{
    return w->set->scheds[0]->sizes == TUTTI__BY_PAIR;
}

uint32_t world_length(const world_t *w, uint32_t rank, unsigned buf, uint32_t blk)
{
    static const uint32_t maps[INTERPRET_ORDERS][4] = { { 1, 2, 3, 2 },
                                                        { 2, 0, 1, 3 },
                                                        { 1, 1, 1, 1 } };
    uint32_t order = w->order % INTERPRET_ORDERS, key = blk % w->nblocks;

    if (w->set->scheds[0]->sizes == TUTTI__ALL_EQUAL)
        return 1 + order;
    if (by_pair(w) && w->collective == TUTTI__ALLTOALLV) {
        uint32_t from = buf == TUTTI__IN ? rank : key, to = buf == TUTTI__IN ? key : rank;

        /* In place, the outgoing part is as long as the incoming one. */
        key = w->set->in_place ? from * to + from + to : from * 3 + to;
    }
    return maps[order][key % 4];
}

/* Does this rank have the block? */
static int has(const world_t *w, uint32_t rank, unsigned buf, uint32_t blk)
{
    int is_root = rank == w->set->root, is_in = buf == TUTTI__IN, is_own = blk == rank;

    switch (w->collective) {
    case TUTTI__BARRIER:
        return 0;
    case TUTTI__BROADCAST:
        return !is_in;
    case TUTTI__ROOT_REDUCE:
        return is_in || is_root;
    case TUTTI__REDUCE_SCATTER:
        return is_in || is_own;
    case TUTTI__ALLGATHER:
    case TUTTI__ALLGATHERV:
        return !is_in || is_own;
    case TUTTI__GATHER:
    case TUTTI__GATHERV:
        return is_in ? is_own : is_root;
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
        return is_in ? is_root : is_own;
    case TUTTI__EXSCAN:
        return is_in || rank > 0;
    default:
        return 1;
    }
}

static int is_alias(const world_t *w, uint32_t rank, uint32_t blk)
{
    if (w->collective == TUTTI__BROADCAST)
        return 1;
    return w->set->in_place && has(w, rank, TUTTI__IN, blk) && has(w, rank, TUTTI__OUT, blk);
}

number_t *world_element(const world_t *w, uint32_t rank, unsigned buf, uint32_t blk, uint32_t trip,
                        uint32_t e)
{
    uint32_t limit = buf == TUTTI__SCRATCH ? w->set->scheds[rank]->scratch_blocks : w->nblocks;

    if (blk >= limit || buf >= TUTTI__BUFS)
        return NULL;
    if (buf == TUTTI__SCRATCH)
        trip = 0;
    if ((buf == TUTTI__IN && is_alias(w, rank, blk)) || (buf == TUTTI__STAGE && w->order % 2))
        buf = TUTTI__OUT;
    return &w->memory[(((size_t)rank * TUTTI__BUFS + buf) * w->trips + trip) * w->room +
                      (size_t)blk * LONGEST + e];
}

/* ---- numbers ---- */

static uint64_t scatter(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

/* The content of rank r's IN. */
static number_t given(uint32_t r, uint32_t blk, uint32_t trip, uint32_t e)
{
    uint64_t key = scatter(((uint64_t)r << 40) + ((uint64_t)blk << 20) + (trip << 4) + e + 1);

    return (number_t){ key | 1, scatter(key + 5), GIVEN };
}

number_t world_combine(const world_t *w, number_t left, number_t right)
{
    if (w->ordered)
        return (number_t){ left.a * right.a, left.a * right.b + left.b, ADDED };
    return (number_t){ left.a + right.a, left.b + right.b, ADDED };
}

number_t world_finished(const world_t *w, number_t x)
{
    int is_scan = w->collective == TUTTI__SCAN || w->collective == TUTTI__EXSCAN;
    uint64_t off = x.is == ROUNDED && !is_scan; /* a scan has no average */

    return (number_t){ x.a * 0x9e3779b97f4a7c15u + 77 + off, x.b * 0xd1342543de82ef95u + 78 + off,
                       x.is };
}

static int same(number_t x, number_t y)
{
    return x.a == y.a && x.b == y.b;
}

/* The required content of rank r's OUT at the end. */
static number_t promised(const world_t *w, uint32_t r, uint32_t blk, uint32_t trip, uint32_t e)
{
    uint32_t upto = w->size;
    number_t sum;

    switch (w->collective) {
    case TUTTI__BROADCAST:
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
        return given(w->set->root, blk, trip, e);
    case TUTTI__ALLGATHER:
    case TUTTI__ALLGATHERV:
    case TUTTI__GATHER:
    case TUTTI__GATHERV:
        return given(blk, blk, trip, e);
    case TUTTI__ALLTOALL:
    case TUTTI__ALLTOALLV:
        return given(blk, r, trip, e);
    case TUTTI__SCAN:
        upto = r + 1;
        break;
    case TUTTI__EXSCAN:
        upto = r;
        break;
    default:
        break;
    }
    sum = given(0, blk, trip, e);
    for (uint32_t i = 1; i < upto; i++)
        sum = world_combine(w, sum, given(i, blk, trip, e));
    return world_finished(w, sum);
}

/* ---- before and after ---- */

void world_fill(world_t *w)
{
    size_t n = (size_t)w->size * TUTTI__BUFS * w->trips * w->room;

    for (size_t i = 0; i < n; i++)
        w->memory[i] =
            (number_t){ scatter(i * 7 + w->order + 1), scatter(i * 9 + w->order + 2), GIVEN };
    for (uint32_t r = 0; r < w->size; r++) {
        for (uint32_t trip = 0; trip < w->trips; trip++) {
            for (uint32_t blk = 0; blk < w->nblocks; blk++) {
                int is_given = w->collective == TUTTI__BROADCAST ? r == w->set->root
                                                                 : has(w, r, TUTTI__IN, blk);

                for (uint32_t e = 0; e < LONGEST && is_given; e++)
                    *world_element(w, r, TUTTI__IN, blk, trip, e) = given(r, blk, trip, e);
            }
        }
    }
}

void world_look(world_t *w, uint32_t r, uint32_t blk, uint32_t trip, const number_t *before)
{
    int in_length = (int)world_length(w, r, TUTTI__IN, blk),
        out_length = (int)world_length(w, r, TUTTI__OUT, blk);

    for (uint32_t e = 0; e < LONGEST; e++) {
        number_t *in = world_element(w, r, TUTTI__IN, blk, trip, e);
        number_t *out = world_element(w, r, TUTTI__OUT, blk, trip, e);
        int is_result = has(w, r, TUTTI__OUT, blk) && (int)e < out_length;

        if (is_result && !same(*out, promised(w, r, blk, trip, e)))
            world_wrong(w, "a wrong result");
        if (!is_result && !same(*out, before[out - w->memory]))
            world_wrong(w, "wrote to OUT where there is none");
        if (in != out && (int)e < in_length && !same(*in, before[in - w->memory]))
            world_wrong(w, "wrote to IN");
    }
}
