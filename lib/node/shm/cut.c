/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cuts a node operation on large data into pieces. chunks.c has the stages that process the pieces.
 *
 * Piece (j, k) is chunk k of block j. In NODE_ALLREDUCE, NODE_REDUCE and NODE_BCAST, block j is
 * rank j's share of the elements; but in a reduce of three ranks, block 0 has all elements. In all
 * other operations, and if the call's block map is a table and nblk > 1, block j is a block of the
 * call, and each part has nblk blocks. Chunk k has the elements [k * piece, (k + 1) * piece) of
 * every block. In the slot, the elements of block j begin at element j * piece.
 */
#include "node/shm/shm.h"

#include "base/constants.h"

#include <assert.h>

tutti__shm_part_t tutti__shm_find_block(const tutti__node_call_t *call, uint32_t j)
{
    uint32_t blk = call->sblk + j;
    tutti__shm_part_t part;

    assert(blk < call->map.nblocks);
    if (!call->whole) {
        tutti__block_chunk(&call->map, blk, call->trip, &part.src, &part.count);
    } else if (call->map.nblocks == 1 && call->map.table == NULL) {
        part.src = 0; /* the same result as in the last case, without divisions */
        part.count = call->map.count;
    } else {
        part.src = tutti__block_begin(&call->map, blk);
        part.count = tutti__block_count(&call->map, blk);
    }
    part.dst = part.src;
    if (call->dblk != call->sblk) /* dst's blocks have the same lengths as src's */
        part.dst +=
            tutti__block_begin(&call->map, call->dblk + j) - tutti__block_begin(&call->map, blk);
    if (call->src_step != 0)
        part.src = j * call->src_step;
    if (call->dst_step != 0)
        part.dst = j * call->dst_step;
    return part;
}

/* Are the elements cut into a share for each rank? A share may include parts of several blocks, so
   the blocks must be contiguous on all ranks. Several blocks of a table may have gaps. */
static int own_shares(const tutti__shm_lane_t *lane)
{
    const tutti__node_call_t *call = lane->call;

    if (call->nblk > 1 && call->map.table != NULL)
        return 0;
    return call->kind == TUTTI__NODE_ALLREDUCE || call->kind == TUTTI__NODE_REDUCE ||
           call->kind == TUTTI__NODE_BCAST;
}

/* Cut the elements into `nblocks` shares of whole cache lines. The last shares may be shorter. */
static void cut_shares(tutti__shm_lane_t *lane, uint32_t nblocks)
{
    size_t line = TUTTI__LINE_BYTES / lane->esize;

    lane->nblocks = nblocks;
    lane->largest = TUTTI__ROUND_UP((lane->count + nblocks - 1) / nblocks, line);
    lane->grain = 0;
}

/* The first element of share j; j may be the number of shares. */
static size_t share_border(const tutti__shm_lane_t *lane, uint32_t j)
{
    size_t begin = j * lane->largest;

    if (j == 0 || j == lane->nblocks)
        return j == 0 ? 0 : lane->count;
    if (lane->grain > 0) {
        size_t at = lane->place + begin * lane->esize + lane->grain / 2;

        begin = (at - at % lane->grain - lane->place) / lane->esize;
    }
    return TUTTI__MIN(begin, lane->count);
}

/* The extent of one block: its place in the buffers and its length. */
tutti__shm_part_t tutti__shm_extent(const tutti__shm_lane_t *lane, uint32_t j)
{
    tutti__shm_part_t part;

    if (own_shares(lane)) {
        size_t begin = share_border(lane, j);

        part = lane->first;
        part.src += begin;
        part.dst += begin;
        part.count = share_border(lane, j + 1) - begin;
    } else {
        part = tutti__shm_block(lane, j);
    }
    return part;
}

uint32_t tutti__shm_owner(const tutti__shm_lane_t *lane, uint32_t j)
{
    if (lane->call->kind == TUTTI__NODE_REDUCE && lane->nblocks == 1)
        return lane->call->root;
    return own_shares(lane) ? j : j / lane->call->nblk;
}

/* Count the elements and find the largest block. */
void tutti__shm_measure(tutti__shm_lane_t *lane)
{
    const tutti__node_call_t *call = lane->call;
    tutti__shm_part_t first = tutti__shm_find_block(call, 0);

    lane->first = first;
    lane->count = lane->largest = first.count;
    for (uint32_t j = 1; j < call->nblk * call->nparts; j++) {
        tutti__shm_part_t part = tutti__shm_find_block(call, j);

        assert(!own_shares(lane) || part.count == 0 || part.src == first.src + lane->count);
        assert(!own_shares(lane) || part.count == 0 || part.dst == first.dst + lane->count);
        lane->count += part.count;
        lane->largest = TUTTI__MAX(lane->largest, part.count);
    }
}

/* Compute the number of chunks. */
void tutti__shm_cut(const tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    size_t capacity, line = TUTTI__LINE_BYTES / lane->esize;

    lane->nblocks = lane->call->nblk * lane->call->nparts;
    if (own_shares(lane)) {
        int alone = lane->call->kind == TUTTI__NODE_REDUCE && shm->nlocal == TUTTI__SHM_ROOT_ALONE;

        cut_shares(lane, alone ? 1 : shm->nlocal);
    }
    /* A block takes whole cache lines in a slot, so that two ranks never write to the same line. */
    capacity = shm->bulk_bytes / lane->esize / lane->nblocks;
    assert(capacity > 0);
    if (capacity > line)
        capacity -= capacity % line;
    lane->piece = TUTTI__MIN(lane->largest, capacity);
    lane->nchunks =
        lane->piece == 0 ? 0 : (uint32_t)((lane->largest + lane->piece - 1) / lane->piece);
}

void tutti__shm_cut_for_all(const tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    if (own_shares(lane))
        cut_shares(lane, shm->nlocal);
}

void tutti__shm_cut_at_pages(tutti__shm_lane_t *lane, uint64_t dst_offset)
{
    if (!own_shares(lane))
        return;
    lane->grain = lane->largest * lane->esize < TUTTI__SHM_PAGED_SHARE * TUTTI__SHM_PAGE
                      ? TUTTI__LINE_BYTES
                      : TUTTI__SHM_PAGE;
    lane->place = (dst_offset + lane->first.dst * lane->esize) % lane->grain;
}

/* Piece (j, chunk) of the buffers; its count may be 0. */
tutti__shm_part_t tutti__shm_piece(const tutti__shm_lane_t *lane, uint32_t j, uint32_t chunk)
{
    tutti__shm_part_t part = tutti__shm_extent(lane, j);
    size_t skip = (size_t)chunk * lane->piece;

    part.src += skip;
    part.dst += skip;
    part.count = skip >= part.count ? 0 : TUTTI__MIN(part.count - skip, lane->piece);
    return part;
}
