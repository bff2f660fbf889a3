/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Overlaps of buffers. Whole buffers, and parts in ascending order, are checked in linear time;
 * other parts are sorted by address, which takes n log n for n parts.
 */
#include "api/sides.h"

#include "base/compiler.h"
#include "base/status.h"

#include <assert.h>
#include <stdlib.h>

typedef struct {
    const char *begin, *end;
    const tutti__side_t *side;
    uint32_t rank;
} part_t;

static int by_begin(const void *a, const void *b)
{
    const part_t *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* List the non-empty parts of a side; returns their number. */
static size_t list_parts(const tutti__side_t *side, uint32_t size, size_t esize, part_t *parts)
{
    size_t n = 0, next = 0;

    for (uint32_t r = 0; r < (side->counts != NULL ? size : 1); r++) {
        size_t count = side->counts != NULL ? side->counts[r] : side->count;
        size_t begin = side->displs != NULL ? side->displs[r] : next;

        next += count;
        if (count > 0)
            parts[n++] =
                (part_t){ side->ptr + begin * esize, side->ptr + (begin + count) * esize, side, r };
    }
    return n;
}

static tutti_status_t overlap(const part_t *a, const part_t *b)
{
    if (a->side == b->side)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "the parts of ranks %u and %u in %s overlap: see %s", a->rank, b->rank,
                           a->side->name, a->side->displs_name);
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "%s and %s overlap, but not in place as this call allows", a->side->name,
                       b->side->name);
}

/* Check all parts in order of their addresses: no part may begin inside a written part, and no
   written part may begin inside another part. */
static tutti_status_t sweep(part_t *parts, size_t n, const tutti__side_t *recv)
{
    const part_t *read = NULL, *written = NULL; /* of each kind, the part with the highest end */
    tutti_status_t status = TUTTI_OK;

    qsort(parts, n, sizeof(*parts), by_begin);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        const part_t **same = parts[i].side == recv ? &written : &read;

        if (written != NULL && parts[i].begin < written->end)
            status = overlap(written, &parts[i]);
        else if (parts[i].side == recv && read != NULL && parts[i].begin < read->end)
            status = overlap(read, &parts[i]);
        if (*same == NULL || parts[i].end > (*same)->end)
            *same = &parts[i];
    }
    return status;
}

static tutti_status_t check_parts(const tutti__side_t *send, const tutti__side_t *recv,
                                  uint32_t size, size_t esize)
{
    part_t *parts = malloc(2 * (size_t)size * sizeof(*parts));
    tutti_status_t status;
    size_t n;

    if (parts == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%u parts to compare", size);
    n = list_parts(recv, size, esize, parts);
    if (send != NULL)
        n += list_parts(send, size, esize, parts + n);
    status = sweep(parts, n, recv);
    free(parts);
    return status;
}

/* Are the parts in ascending order, without overlap? This is the usual case. */
static int is_ascending(const tutti__side_t *side, uint32_t size)
{
    size_t end = 0;

    if (side->displs == NULL)
        return 1;
    for (uint32_t r = 0; r < size; r++) {
        if (side->counts[r] > 0 && side->displs[r] < end)
            return 0;
        if (side->counts[r] > 0)
            end = side->displs[r] + side->counts[r];
    }
    return 1;
}

/* The first element of this rank's part in a side with the parts of all ranks. */
static size_t own_begin(const tutti__side_t *side, uint32_t rank, uint32_t size)
{
    size_t begin = 0;

    if (side->displs != NULL)
        return side->displs[rank];
    if (side->counts == NULL)
        return side->count / size * rank;
    for (uint32_t r = 0; r < rank; r++)
        begin += side->counts[r];
    return begin;
}

/* Do two sides have the same elements? Displacements may be NULL or explicit. The displacements of
   empty parts are ignored. */
static int same_parts(const tutti__side_t *a, const tutti__side_t *b, uint32_t size)
{
    size_t next = 0;

    for (uint32_t r = 0; r < size; r++) {
        size_t begin_a = a->displs != NULL ? a->displs[r] : next;
        size_t begin_b = b->displs != NULL ? b->displs[r] : next;

        if (a->counts[r] != b->counts[r] || (a->counts[r] > 0 && begin_a != begin_b))
            return 0;
        next += a->counts[r];
    }
    return 1;
}

/* Are the buffers in place, as this kind of call allows it? */
static int in_place(const tutti__call_t *call, const tutti__side_t *send, const tutti__side_t *recv,
                    uint32_t rank, uint32_t size, size_t esize)
{
    switch (call->kind) {
    case TUTTI_CALL_SENDRECV:
        return 0;
    case TUTTI_CALL_ALLTOALLV:
        return send->ptr == recv->ptr && same_parts(send, recv, size);
    case TUTTI_CALL_REDUCE_SCATTER:
    case TUTTI_CALL_REDUCE_SCATTERV:
        if (send->ptr == recv->ptr)
            return 1;
        /* fall through */
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_SCATTERV:
        return recv->ptr == send->ptr + own_begin(send, rank, size) * esize;
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_ALLGATHERV:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_GATHERV:
        return send->ptr == recv->ptr + own_begin(recv, rank, size) * esize;
    default:
        return send->ptr == recv->ptr;
    }
}

tutti_status_t tutti__sides_check(const tutti__call_t *call, const tutti__side_t *send,
                                  const tutti__side_t *recv, uint32_t rank, uint32_t size)
{
    size_t esize = tutti_dtype_bytes(call->dtype);
    tutti_status_t status;

    assert(send->displs == NULL || send->counts != NULL);
    assert(recv->displs == NULL || recv->counts != NULL);
    if (recv->count == 0)
        return TUTTI_OK;
    if (!is_ascending(recv, size)) {
        status = check_parts(NULL, recv, size, esize);
        if (status != TUTTI_OK)
            return status;
    }
    if (send->count == 0 || in_place(call, send, recv, rank, size, esize))
        return TUTTI_OK;
    if (send->ptr + send->end * esize <= recv->ptr || recv->ptr + recv->end * esize <= send->ptr)
        return TUTTI_OK;
    return check_parts(send, recv, size, esize);
}
