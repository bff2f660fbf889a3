/* SPDX-License-Identifier: BSD-3-Clause */
/* The definition of each collective. See model.h. */
#include "unit/exec/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int model_has_root(tutti__collective_t collective)
{
    switch (collective) {
    case TUTTI__ROOT_REDUCE:
    case TUTTI__BROADCAST:
    case TUTTI__GATHER:
    case TUTTI__GATHERV:
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
        return 1;
    default:
        return 0;
    }
}

int model_is_flat(tutti__collective_t collective)
{
    return collective == TUTTI__ALLREDUCE || collective == TUTTI__ROOT_REDUCE ||
           collective == TUTTI__BROADCAST || model_is_scan(collective);
}

int model_by_pair(tutti__collective_t collective)
{
    return collective == TUTTI__GATHERV || collective == TUTTI__SCATTERV ||
           collective == TUTTI__ALLTOALLV;
}

int model_is_scan(tutti__collective_t collective)
{
    return collective == TUTTI__SCAN || collective == TUTTI__EXSCAN;
}

int model_has_tables(tutti__collective_t collective)
{
    return collective == TUTTI__ALLGATHERV || model_by_pair(collective);
}

/* ---- existing blocks ---- */

static uint32_t blocks(const model_t *m)
{
    return model_is_flat(m->collective) ? 1 : m->n;
}

static int has_in(const model_t *m, uint32_t rank, uint32_t blk)
{
    switch (m->collective) {
    case TUTTI__BROADCAST:
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
        return rank == m->root;
    case TUTTI__ALLGATHER:
    case TUTTI__ALLGATHERV:
    case TUTTI__GATHER:
    case TUTTI__GATHERV:
        return blk == rank;
    default:
        return 1;
    }
}

static int has_out(const model_t *m, uint32_t rank, uint32_t blk)
{
    switch (m->collective) {
    case TUTTI__ROOT_REDUCE:
    case TUTTI__GATHER:
    case TUTTI__GATHERV:
        return rank == m->root;
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
    case TUTTI__REDUCE_SCATTER:
        return blk == rank;
    case TUTTI__EXSCAN:
        return rank > 0;
    default:
        return 1;
    }
}

/* ---- lengths of blocks ---- */

static void sum_up(model_side_t *side, const size_t *lengths, uint32_t n)
{
    side->table[0] = 0;
    for (uint32_t b = 0; b < n; b++)
        side->table[b + 1] = side->table[b] + lengths[b];
    side->count = side->table[n];
}

/* Only existing blocks have a length. */
static void lay_out_pairs(model_t *m, size_t lengths[WORLD_RANKS][WORLD_RANKS])
{
    for (uint32_t r = 0; r < m->n; r++) {
        size_t in[WORLD_RANKS], out[WORLD_RANKS];

        for (uint32_t b = 0; b < m->n; b++) {
            in[b] = lengths[r][b];
            out[b] = lengths[b][r];
            if (m->collective == TUTTI__ALLTOALLV)
                continue;
            in[b] = has_in(m, r, b) || r == m->root ? lengths[0][b] : 0;
            out[b] = has_out(m, r, b) || r == m->root ? lengths[0][b] : 0;
        }
        sum_up(&m->in[r], in, m->n);
        sum_up(&m->out[r], out, m->n);
    }
}

int model_lay_out(model_t *m, size_t count, uint32_t *seed)
{
    size_t lengths[WORLD_RANKS][WORLD_RANKS];
    uint32_t nblocks = blocks(m);

    if (count == 0 || count * nblocks > MODEL_MOST)
        return 0;
    for (uint32_t r = 0; r < m->n; r++)
        for (uint32_t b = 0; b < m->n; b++)
            lengths[r][b] = m->unequal ? random_next(seed) % (count + 1) : count;
    /* In place both parts of a pair of ranks have the same length. */
    for (uint32_t r = 0; r < m->n && m->in_place; r++)
        for (uint32_t b = 0; b < r; b++)
            lengths[r][b] = lengths[b][r];
    if (model_by_pair(m->collective)) {
        lay_out_pairs(m, lengths);
        return 1;
    }
    for (uint32_t r = 0; r < m->n; r++) {
        sum_up(&m->in[r], lengths[0], nblocks);
        sum_up(&m->out[r], lengths[0], nblocks);
    }
    return m->in[0].count > 0;
}

/* ---- before ---- */

static void fill_in(const model_t *m, uint32_t rank)
{
    const model_side_t *in = &m->in[rank];

    for (uint32_t b = 0; b < blocks(m); b++)
        for (size_t i = in->table[b]; i < in->table[b + 1] && has_in(m, rank, b); i++)
            data_put(&m->data, in->buffer, rank, i);
}

static void keep(model_side_t *side)
{
    side->before = malloc(MODEL_BYTES);
    assert_non_null(side->before);
    memcpy(side->before, side->buffer, MODEL_BYTES);
}

static void tell(const model_t *m, uint32_t rank, tutti__exec_call_t *call)
{
    const model_side_t *in = &m->in[rank], *out = &m->out[rank];

    *call = (tutti__exec_call_t){ .in = in->buffer,
                                  .out = out->buffer,
                                  .count = out->count,
                                  .dtype = m->data.dtype,
                                  .op = m->data.op,
                                  .signature = 77 };
    if (m->unequal || model_has_tables(m->collective))
        call->table = out->table;
    if (model_by_pair(m->collective)) {
        call->in_table = in->table;
        call->in_count = in->count;
    }
}

void model_fill(model_t *m, char *const *in, char *const *out, tutti__exec_call_t *calls)
{
    for (uint32_t r = 0; r < m->n; r++) {
        m->out[r].buffer = out[r];
        m->in[r].buffer = m->in_place || m->collective == TUTTI__BROADCAST ? out[r] : in[r];
        memset(out[r], 0xee, MODEL_BYTES);
        memset(in[r], 0xee, MODEL_BYTES);
        fill_in(m, r);
        keep(&m->in[r]);
        keep(&m->out[r]);
        tell(m, r, &calls[r]);
    }
}

void model_free(model_t *m)
{
    for (uint32_t r = 0; r < m->n; r++) {
        free(m->in[r].before);
        free(m->out[r].before);
    }
}

/* ---- after ---- */

static size_t esize(const model_t *m)
{
    return tutti_dtype_bytes(m->data.dtype);
}

/* Is element i in OUT of `rank` equal to element k of the block of `from`? */
static int is_moved(const model_t *m, uint32_t rank, size_t i, uint32_t from, uint32_t blk,
                    size_t k)
{
    size_t source = m->in[from].table[blk] + k;
    char element[16 * 8];

    /* data_is_from uses the place for which the number was drawn. */
    memcpy(element, m->out[rank].buffer + i * esize(m), esize(m));
    return data_is_from(&m->data, element - source * esize(m), from, source);
}

static int is_right(const model_t *m, uint32_t rank, uint32_t blk, size_t k)
{
    size_t i = m->out[rank].table[blk] + k;
    data_t fold = m->data;

    switch (m->collective) {
    case TUTTI__SCAN:
    case TUTTI__EXSCAN:
        fold.nranks = m->collective == TUTTI__SCAN ? rank + 1 : rank;
        return data_is_fold(&fold, m->out[rank].buffer, i);
    case TUTTI__ALLREDUCE:
    case TUTTI__ROOT_REDUCE:
    case TUTTI__REDUCE_SCATTER:
        return data_is_fold(&fold, m->out[rank].buffer, i);
    case TUTTI__BROADCAST:
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
        return is_moved(m, rank, i, m->root, blk, k);
    case TUTTI__ALLTOALL:
    case TUTTI__ALLTOALLV:
        return is_moved(m, rank, i, blk, rank, k);
    default:
        return is_moved(m, rank, i, blk, blk, k);
    }
}

static const char *check_rank(const model_t *m, uint32_t rank)
{
    static char text[100];
    const model_side_t *out = &m->out[rank], *in = &m->in[rank];
    size_t end = 0; /* of the previous block */

    for (uint32_t b = 0; b < blocks(m); b++) {
        if (!has_out(m, rank, b))
            continue;
        for (size_t k = 0; k < out->table[b + 1] - out->table[b]; k++) {
            if (!is_right(m, rank, b, k)) {
                snprintf(text, sizeof(text), "rank %u, block %u, element %zu", rank, b, k);
                return text;
            }
        }
        if (memcmp(out->buffer + end * esize(m), out->before + end * esize(m),
                   (out->table[b] - end) * esize(m)) != 0)
            return "written before a block of OUT";
        end = out->table[b + 1];
    }
    if (memcmp(out->buffer + end * esize(m), out->before + end * esize(m),
               MODEL_BYTES - end * esize(m)) != 0)
        return "written behind the last block of OUT";
    if (in->buffer != out->buffer && memcmp(in->buffer, in->before, MODEL_BYTES) != 0)
        return "written into IN";
    return NULL;
}

const char *model_check(const model_t *m)
{
    const char *wrong = NULL;

    for (uint32_t r = 0; r < m->n && wrong == NULL; r++) {
        wrong = check_rank(m, r);
        if (wrong == NULL && m->collective == TUTTI__ALLREDUCE &&
            memcmp(m->out[r].buffer, m->out[0].buffer, m->out[0].count * esize(m)) != 0)
            wrong = "ranks have different bits";
    }
    return wrong;
}

/* ---- variants of an algorithm ---- */

void model_each_set(const tutti__algorithm_t *algorithm, const shape_t *shape, uint32_t *seed,
                    void (*each)(void *arg, set_t *set), void *arg)
{
    static const char *const no_subs[] = { NULL };
    const char *const *sub = algorithm->subs != NULL ? algorithm->subs : no_subs;
    set_t set = { .algorithm = algorithm, .shape = shape };

    if (algorithm->refuses != NULL && algorithm->refuses(&shape->shape) != NULL)
        return;
    do {
        set.sub = *sub;
        for (set.in_place = 0; set.in_place < 2; set.in_place++) {
            set.radix = algorithm->radix != 0 ? 2 + random_next(seed) % 4 : 0;
            set.root = 0;
            if (model_has_root(algorithm->collective))
                set.root = random_next(seed) % shape->shape.size;
            each(arg, &set);
        }
    } while (*sub != NULL && *++sub != NULL);
}
