/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Block maps: the first element of each block of a buffer.
 *
 * Schedules refer to blocks, never to addresses. A map cuts `count` elements into `nblocks` blocks.
 * The blocks are equal shares, where block b begins at element floor(b * count / nblocks), or the
 * call has a table of blocks. With a table each block may also have its own place. A block's length
 * must be equal on all ranks, unless the schedule is BY_PAIR (sched.h); its place may differ. In a
 * chunk loop, trip t works on chunk t of each block: its elements [t * chunk, (t + 1) * chunk).
 */
#ifndef TUTTI__SCHED_BLOCKMAP_H
#define TUTTI__SCHED_BLOCKMAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t count;         /* elements in all blocks */
    uint32_t nblocks;     /* at least 1 */
    size_t chunk;         /* elements of one chunk; at least 1 */
    const size_t *table;  /* NULL: equal shares; else [nblocks + 1]: block b has table[b + 1] -
                             table[b] elements */
    const size_t *begins; /* with a table: [nblocks] first element of each block; NULL: table[b] */
} tutti__blockmap_t;

/* The first element of block b, if blocks follow each other. The split avoids overflow. */
static inline size_t tutti__block_border(const tutti__blockmap_t *map, uint32_t b)
{
    size_t whole, rest;

    if (map->table != NULL)
        return map->table[b];
    whole = map->count / map->nblocks;
    rest = map->count % map->nblocks;
    return whole * b + rest * b / map->nblocks;
}

/* The first element of block b < nblocks. */
static inline size_t tutti__block_begin(const tutti__blockmap_t *map, uint32_t b)
{
    return map->begins != NULL ? map->begins[b] : tutti__block_border(map, b);
}

static inline size_t tutti__block_count(const tutti__blockmap_t *map, uint32_t b)
{
    return tutti__block_border(map, b + 1) - tutti__block_border(map, b);
}

/* Chunk `trip` of block b: its first element, and its number of elements, which may be 0. */
static inline void tutti__block_chunk(const tutti__blockmap_t *map, uint32_t b, size_t trip,
                                      size_t *ret_begin, size_t *ret_count)
{
    size_t begin = tutti__block_begin(map, b);
    size_t end = begin + tutti__block_count(map, b);
    size_t skip = trip * map->chunk;

    if (skip >= end - begin) {
        *ret_begin = end;
        *ret_count = 0;
        return;
    }
    *ret_begin = begin + skip;
    *ret_count = end - *ret_begin < map->chunk ? end - *ret_begin : map->chunk;
}

/* Trips of a chunk loop: ceil(largest block / chunk); the same on all ranks. */
size_t tutti__blockmap_trips(const tutti__blockmap_t *map);

#endif
