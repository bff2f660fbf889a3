/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations on data that does not fit an announcement but is in arenas: zero-copy.
 *
 * Each rank does its share of the work directly on all ranks' buffers. Buffers that other ranks
 * touch must be in arenas: see describe_large in shm.c.
 */
#include "node/shm/shm.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "base/time.h"
#include "reduce/nontemporal.h"

#include <sched.h>
#include <string.h>

/* A part of local rank r's source or destination, in its arena. */
static char *src_in_arena(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t r,
                          tutti__shm_part_t part)
{
    return shm->machine->base[shm->local_to_machine[r]] +
           tutti__shm_said(shm, lane, r)->src_offset + part.src * lane->esize;
}

static char *dst_in_arena(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t r,
                          tutti__shm_part_t part)
{
    return shm->machine->base[shm->local_to_machine[r]] +
           tutti__shm_said(shm, lane, r)->dst_offset + part.dst * lane->esize;
}

/*
 * Three functions compute this rank's part of a reduction, block by block. Times of 2 ranks and
 * float32 sums, relative to `folded`:
 *
 *   in_place   one loop over all buffers             0.75 at 2 to 8 MiB, 0.9 at 16 to 64
 *              the same with prefetch                0.7 at 16 MiB, 0.85 at 32, 0.9 at 64; at 2 to
 *                                                    8 MiB 1.1 times as long as without
 *   streamed   fold to the stack; copy from there    2 at 2 and 4 MiB, 1.1 at 8, 0.8 at 16 to 64
 *              with non-temporal stores; prefetch
 *
 * If no cache keeps the results (lane->outgrows), prefetch and non-temporal stores save time.
 * Tried: one loop out of place, 0.9 to 1.1 at 256 KiB to 16 MiB; non-temporal stores in place, 1.0
 * to 3.1; out of place a fence after each 2 KiB, 1.1; blocks of 1 KiB, 1.0, because function calls
 * limit the processor's lookahead. On the machine of these measurements a non-temporal store of a
 * line of zeros costs half as much as a store of other numbers. base/constants.h has the sizes of
 * the blocks.
 */

/* Prefetch from each buffer the `bytes` bytes that are read some blocks later. left: the bytes of
   the buffer that are not read yet. */
static void fetch(const tutti__shm_t *shm, const void *const *bufs, size_t bytes, size_t left)
{
    size_t ahead = TUTTI__SHM_ZERO_AHEAD_BYTES / shm->nlocal;

    if (left < ahead + bytes)
        return;
    for (uint32_t r = 0; r < shm->nlocal; r++)
        for (size_t at = 0; at < bytes; at += TUTTI__LINE_BYTES)
            __builtin_prefetch((const char *)bufs[r] + ahead + at);
}

/* Do prefetch and non-temporal stores save time? With a user's operation they do not, because the
   user's function takes longer than the memory accesses. */
static int outgrows(const tutti__shm_lane_t *lane)
{
    return lane->outgrows && lane->call->reducer->fold != NULL;
}

/* Is each rank's destination equal to its source? */
static int all_in_place(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    for (uint32_t r = 0; r < shm->nlocal; r++) {
        const tutti__large_t *its = tutti__shm_said(shm, lane, r);

        if (its->src_offset != its->dst_offset)
            return 0;
    }
    return 1;
}

static void in_place(tutti__shm_t *shm, uint32_t lane_index, tutti__shm_part_t part)
{
    const tutti__shm_lane_t *lane = &shm->lane[lane_index];
    void **bufs = tutti__shm_bufs(shm, lane_index);
    int fetches = outgrows(lane);
    size_t block = fetches ? TUTTI__SHM_ZERO_SMALL_BYTES : TUTTI__SHM_ZERO_BLOCK_BYTES;
    size_t most = block / lane->esize, n;

    for (uint32_t r = 0; r < shm->nlocal; r++)
        bufs[r] = dst_in_arena(shm, lane, r, part);
    for (; part.count > 0; part.count -= n) {
        n = TUTTI__MIN(part.count, tutti__reduce_block(bufs[0], most, lane->esize));
        if (fetches)
            fetch(shm, (const void *const *)bufs, n * lane->esize, part.count * lane->esize);
        tutti__reduce_all(lane->call->reducer, bufs, (const void *const *)bufs, shm->nlocal, n,
                          lane->call->divisor);
        for (uint32_t r = 0; r < shm->nlocal; r++)
            bufs[r] = (char *)bufs[r] + n * lane->esize;
    }
}

static void streamed(tutti__shm_t *shm, uint32_t lane_index, tutti__shm_part_t part)
{
    const tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    size_t most = TUTTI__SHM_ZERO_SMALL_BYTES / lane->esize, n;
    char block[TUTTI__SHM_ZERO_SMALL_BYTES] TUTTI__ALIGNED(TUTTI__LINE_BYTES);

    for (; part.count > 0; part.count -= n) {
        n = TUTTI__MIN(part.count,
                       tutti__reduce_block(dst_in_arena(shm, lane, 0, part), most, lane->esize));
        for (uint32_t r = 0; r < shm->nlocal; r++)
            srcs[r] = src_in_arena(shm, lane, r, part);
        fetch(shm, srcs, n * lane->esize, part.count * lane->esize);
        tutti__reduce(lane->call->reducer, block, srcs, shm->nlocal, n, lane->call->divisor);
        for (uint32_t r = 0; r < shm->nlocal; r++)
            tutti__nontemporal_copy(dst_in_arena(shm, lane, r, part), block, n * lane->esize);
        part.src += n;
        part.dst += n;
    }
    tutti__nontemporal_end();
}

/* Reduce a block to one destination, and copy the result to the other destinations while it is in
   the first-level cache. */
static void folded(tutti__shm_t *shm, uint32_t lane_index, tutti__shm_part_t part)
{
    const tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    uint32_t whose = lane->call->kind == TUTTI__NODE_REDUCE ? lane->call->root : shm->me;
    size_t block = lane->levels ? TUTTI__SHM_SUM_BYTES : TUTTI__SHM_ZERO_BLOCK_BYTES;
    size_t most = block / lane->esize, n;

    for (; part.count > 0; part.count -= n) {
        char *dst = dst_in_arena(shm, lane, whose, part);

        n = TUTTI__MIN(part.count, tutti__reduce_block(dst, most, lane->esize));
        for (uint32_t r = 0; r < shm->nlocal; r++)
            srcs[r] = src_in_arena(shm, lane, lane->levels ? shm->by_group[r] : r, part);
        if (lane->levels)
            tutti__shm_fold(shm, lane_index, dst, srcs, n);
        else
            tutti__reduce(lane->call->reducer, dst, srcs, shm->nlocal, n, lane->call->divisor);
        if (lane->call->kind == TUTTI__NODE_ALLREDUCE)
            for (uint32_t r = 0; r < shm->nlocal; r++)
                if (r != shm->me)
                    memcpy(dst_in_arena(shm, lane, r, part), dst, n * lane->esize);
        part.src += n;
        part.dst += n;
    }
}

static void zero_reduce(tutti__shm_t *shm, uint32_t lane_index, tutti__shm_part_t part)
{
    const tutti__shm_lane_t *lane = &shm->lane[lane_index];

    if (lane->call->kind != TUTTI__NODE_ALLREDUCE || lane->levels)
        folded(shm, lane_index, part);
    else if (part.src == part.dst && all_in_place(shm, lane))
        in_place(shm, lane_index, part);
    else if (outgrows(lane))
        streamed(shm, lane_index, part);
    else
        folded(shm, lane_index, part);
}

/* Copy a part from rank `from` to all ranks. */
static void zero_spread(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t from,
                        tutti__shm_part_t part)
{
    const char *src = src_in_arena(shm, lane, from, part);

    for (uint32_t r = 0; r < shm->nlocal; r++) {
        char *dst = dst_in_arena(shm, lane, r, part);

        if (dst != src)
            memcpy(dst, src, part.count * lane->esize);
    }
}

/* Copy block j of this rank's result from the rank that owns it. The block has different offsets in
   dst and in src. */
static void zero_pull(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t j)
{
    tutti__shm_part_t to = tutti__shm_block(lane, j);
    tutti__shm_part_t from = tutti__shm_block(lane, tutti__shm_mine(shm, lane, j));

    memcpy(tutti__shm_dst(lane, to), src_in_arena(shm, lane, tutti__shm_owner(lane, j), from),
           to.count * lane->esize);
}

/* Do this rank's share of the work. */
static void zero_work(tutti__shm_t *shm, uint32_t lane_index)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const tutti__node_call_t *call = lane->call;

    for (uint32_t j = 0; j < lane->nblocks; j++) {
        tutti__shm_part_t part;

        if (call->kind == TUTTI__NODE_ALLTOALL) {
            zero_pull(shm, lane, j);
            continue;
        }
        if (tutti__shm_owner(lane, j) != shm->me)
            continue;
        part = tutti__shm_extent(lane, j);
        if (tutti__shm_reduces(lane))
            zero_reduce(shm, lane_index, part);
        else
            zero_spread(shm, lane, call->kind == TUTTI__NODE_BCAST ? call->root : shm->me, part);
    }
}

/* All ranks cut their shares at the page borders of one destination. Returns the local rank that
   owns this destination, the same rank on all ranks. The owner gets a result. */
static uint32_t whose_pages(const tutti__shm_lane_t *lane)
{
    return lane->call->kind == TUTTI__NODE_REDUCE ? lane->call->root : 0;
}

/* ---- a rank that gives up ---- */

/*
 * Begin this rank's work on all ranks' buffers. If another rank has given up, return TUTTI__AGAIN
 * instead: that rank's program may already use its buffer for other data.
 *
 * This rank stores `busy` and then reads `gone`. A rank that gives up stores `gone` and then reads
 * `busy`. So at least one of the two ranks reads the 1 that the other has stored.
 */
static tutti_status_t enter_buffers(const tutti__shm_t *shm, tutti__shm_lane_t *lane,
                                    tutti__hint_t *hint)
{
    tutti__progress_t *own = lane->peer[shm->me].progress;

    tutti__store_relaxed(&own->busy, 1);
    /* Pairs with the fence in tutti__shm_cancel. */
    tutti__fence();
    for (uint32_t r = 0; r < shm->nlocal; r++) {
        tutti__word_t *gone = &lane->peer[r].progress->gone;

        if (r != shm->me && TUTTI__UNLIKELY(tutti__load_acquire(gone))) {
            tutti__store_release(&own->busy, 0);
            return tutti__shm_hint(shm, r, gone, 1, hint);
        }
    }
    return TUTTI_OK;
}

/* Is it possible that another rank accesses this rank's buffers in zero-copy? */
static int has_lent(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    if (lane->phase == SHM_ZERO)
        return 1;
    return lane->phase == SHM_MEET && shm->nlocal > 1 && lane->call->kind != TUTTI__NODE_MEET &&
           !lane->oneshot && !(lane->large.flags & TUTTI__PRIVATE);
}

void tutti__shm_cancel(tutti__node_t *node, uint32_t lane_index)
{
    tutti__shm_t *shm = (tutti__shm_t *)node;
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    uint64_t limit = tutti__now_ns() + TUTTI__SHM_GIVE_UP_NS;

    if (has_lent(shm, lane)) {
        limit += lane->count * lane->esize * TUTTI__SHM_GIVE_UP_NS_PER_BYTE;
        tutti__store_release(&lane->peer[shm->me].progress->gone, 1);
        /* Pairs with the fence in enter_buffers. */
        tutti__fence();
        for (uint32_t r = 0; r < shm->nlocal; r++)
            while (r != shm->me && tutti__load_acquire(&lane->peer[r].progress->busy) &&
                   tutti__now_ns() < limit)
                sched_yield();
    }
    lane->phase = SHM_IDLE;
}

/* ---- the operation ---- */

tutti_status_t tutti__shm_zero(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__progress_t *own = lane->peer[shm->me].progress;
    tutti_status_t status;

    if (lane->red == 0) {
        status = enter_buffers(shm, lane, hint);
        if (status != TUTTI_OK)
            return status;
        tutti__shm_cut_for_all(shm, lane);
        tutti__shm_cut_at_pages(lane, tutti__shm_said(shm, lane, whose_pages(lane))->dst_offset);
        zero_work(shm, lane_index);
        tutti__store_release(&own->busy, 0);
        lane->red = 1;
        /* Zero-copy counts as one chunk in all stages, without a slot, so advance the other
           counters as well. */
        tutti__store_relaxed(&own->in, lane->base + 1);
        tutti__store_relaxed(&own->sum, lane->base + 1);
        tutti__store_relaxed(&own->out, lane->base + 1);
        tutti__shm_publish(shm, lane_index, &own->red, lane->base + 1);
    }
    status = tutti__shm_all_reached(shm, lane, SHM_RED, lane->base + 1, hint);
    if (status != TUTTI_OK)
        return status;
    lane->base += 1;
    lane->phase = SHM_IDLE;
    return TUTTI_OK;
}
