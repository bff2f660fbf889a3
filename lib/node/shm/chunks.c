/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations on data that does not fit an announcement: chunked (two-shot).
 *
 * shm.h describes the stages and their conditions. All ranks reduce at the same time, each rank its
 * own part, in one fused pass over all ranks' data in rank order. So the results have the same bits
 * on all ranks, and cutting the data into chunks does not change them.
 *
 * A chunk covers the same elements of every block in src and in dst, and OUT writes a chunk only
 * after IN has copied the chunk. So an operation may be in place.
 */
#include "node/shm/shm.h"

#include "base/constants.h"

#include <string.h>

/* ---- slots ---- */

/* Chunks use the two bulk slots in turn, across operations: the first chunk of an operation does
   not use the slot of the previous operation's last chunk. */
size_t tutti__shm_slot_offset(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                              uint32_t chunk)
{
    return ((lane->base + chunk) & 1) * tutti__shm_slot_bytes(shm);
}

char *tutti__shm_slot(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t rank,
                      uint32_t chunk, uint32_t j)
{
    return (rank == shm->me ? lane->bulk : lane->peer[rank].bulk) +
           tutti__shm_slot_offset(shm, lane, chunk) + j * lane->piece * lane->esize;
}

/* ---- IN ---- */

/* Does this rank copy block j into its slot? */
static int puts_in(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t j)
{
    if (shm->nlocal == 1)
        return 0;
    if (lane->levels)
        return tutti__shm_summer(shm, shm->group, j) != shm->me;
    switch (lane->call->kind) {
    case TUTTI__NODE_ALLGATHER:
        return tutti__shm_owner(lane, j) == shm->me;
    case TUTTI__NODE_BCAST:
        return shm->me == lane->call->root;
    default:
        return tutti__shm_owner(lane, j) != shm->me;
    }
}

/* Must IN wait for the slot? With two levels it always must, because SUM writes to the slot. */
int tutti__shm_copies_in(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    if (lane->levels)
        return 1;
    for (uint32_t j = 0; j < lane->nblocks; j++)
        if (puts_in(shm, lane, j))
            return 1;
    return 0;
}

tutti_status_t tutti__shm_all_reached(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                      tutti__shm_stage_t stage, uint32_t target,
                                      tutti__hint_t *hint)
{
    for (uint32_t r = 0; r < shm->nlocal; r++) {
        tutti__progress_t *p = lane->peer[r].progress;
        tutti__word_t *word = stage == SHM_RED ? &p->red : &p->out;
        uint32_t value;

        if (r == shm->me)
            continue;
        value = tutti__load_acquire(word);
        if (!tutti__reached(value, target))
            return tutti__shm_hint(shm, r, word, value, hint);
    }
    return TUTTI_OK;
}

tutti_status_t tutti__shm_copy_in(tutti__shm_t *shm, uint32_t lane_index, uint32_t chunk,
                                  tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    /* Counted over all operations of the lane, this is chunk g = base + chunk. Chunk g - 2 has used
       the same slot, so all ranks must have finished chunk g - 2. */
    status = tutti__shm_all_reached(shm, lane, SHM_OUT, lane->base + chunk - 1, hint);
    if (status != TUTTI_OK)
        return status;
    for (uint32_t j = 0; j < lane->nblocks; j++) {
        tutti__shm_part_t part;

        if (!puts_in(shm, lane, j))
            continue;
        part = tutti__shm_piece(lane, j, chunk);
        if (part.count > 0)
            memcpy(tutti__shm_slot(shm, lane, shm->me, chunk, j), tutti__shm_src(lane, part),
                   part.count * lane->esize);
    }
    return TUTTI_OK;
}

/* ---- RED ---- */

/* Are results written back into the slot of the source data? Not tried with more than two ranks. */
static int goes_back(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    return shm->nlocal == 2 &&
           (lane->call->kind == TUTTI__NODE_ALLREDUCE || lane->call->kind == TUTTI__NODE_REDUCE);
}

/* The rank in whose slot `owner` writes its results. OUT copies the results from there. */
static uint32_t shows_in(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t owner)
{
    return goes_back(shm, lane) ? !owner : owner;
}

/* Are all ranks' data of a chunk in the slots? With two levels: are the data of this rank's group
   in the slots? For chunk 0 a rank's announcement may have reported this already. */
static tutti_status_t all_in(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t chunk,
                             tutti__hint_t *hint)
{
    uint32_t target = lane->base + chunk + 1;
    uint32_t begin = lane->levels ? shm->group_first[shm->group] : 0;
    uint32_t end = lane->levels ? shm->group_first[shm->group + 1] : shm->nlocal;

    for (uint32_t i = begin; i < end; i++) {
        uint32_t r = shm->by_group[i], value;
        tutti__word_t *word = &lane->peer[r].progress->in;

        if (r == shm->me || (chunk == 0 && (tutti__shm_said(shm, lane, r)->flags & TUTTI__COPIED)))
            continue;
        value = tutti__load_acquire(word);
        if (!tutti__reached(value, target))
            return tutti__shm_hint(shm, r, word, value, hint);
    }
    return TUTTI_OK;
}

/* Sources of block j of a chunk: all ranks' data, or the sums of all groups. */
static uint32_t find_sources(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t chunk,
                             uint32_t j, tutti__shm_part_t part, const void **srcs)
{
    if (lane->levels) {
        for (uint32_t g = 0; g < shm->ngroups; g++)
            srcs[g] = tutti__shm_slot(shm, lane, tutti__shm_summer(shm, g, j), chunk, j);
        return shm->ngroups;
    }
    for (uint32_t r = 0; r < shm->nlocal; r++)
        srcs[r] =
            r == shm->me ? tutti__shm_src(lane, part) : tutti__shm_slot(shm, lane, r, chunk, j);
    return shm->nlocal;
}

/* Reduce to dst and to `shown`, a place in a slot. Either may also be a source. One of the two may
   be NULL: unused. */
static void reduce_to(tutti__shm_t *shm, uint32_t lane_index, const void **srcs, uint32_t nsrcs,
                      char *dst, char *shown, size_t count)
{
    const tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const tutti__node_call_t *call = lane->call;
    void **dsts = tutti__shm_bufs(shm, lane_index);

    if (dst != NULL && shown != NULL && nsrcs == 2) {
        dsts[0] = dst;
        dsts[1] = shown;
        tutti__reduce_all(call->reducer, dsts, srcs, nsrcs, count, call->divisor);
        return;
    }
    tutti__reduce(call->reducer, dst != NULL ? dst : shown, srcs, nsrcs, count, call->divisor);
    if (dst != NULL && shown != NULL)
        memcpy(shown, dst, count * lane->esize);
}

/*
 * reduce_to, block by block, for results that are written back into the peer's slot (shm.h). While
 * a block is reduced, the next block's lines in this slot are fetched for writing. The root of a
 * reduce also fetches these lines for writing, although it only reads them. With a user's operation
 * all data are one block, because the user's function takes longer than the memory accesses. Data
 * that outgrow the caches are one block as well, because the speed of memory limits their time.
 *
 * Times of float32 sums, allreduce relative to writing results into the owner's slot, reduce
 * relative to a reduction by the root alone:
 *
 *                                             near        far processors
 *      allreduce of 64 KiB to 4 MiB           0.8 to 0.9  0.65 to 0.75
 *                   16 to 64 MiB              0.9 to 1.0  0.8
 *      reduce of 64 KiB to 512 KiB, to 4 MiB  0.8, 0.9    0.8, 1.0
 *
 * Tried: a single block, for 64 KiB to 4 MiB: 1.03 times the time of several blocks; on far
 * processors 1.3 times, in a loop outside of the library.
 */
static void reduce_back(tutti__shm_t *shm, uint32_t lane_index, const void **srcs, char *dst,
                        char *shown, size_t count)
{
    const tutti__shm_lane_t *lane = &shm->lane[lane_index];
    int blocks = lane->call->reducer->fold != NULL && !lane->outgrows;
    size_t most = TUTTI__SHM_BACK_BLOCK_BYTES / lane->esize, n, bytes, next;

    for (; count > 0; count -= n) {
        n = count;
        if (blocks)
            n = TUTTI__MIN(count,
                           tutti__reduce_block(dst != NULL ? dst : shown, most, lane->esize));
        bytes = n * lane->esize;
        next = TUTTI__MIN(count - n, most) * lane->esize;
        for (size_t at = 0; at < next; at += TUTTI__LINE_BYTES)
            TUTTI__FETCH_TO_WRITE((const char *)srcs[!shm->me] + bytes + at);
        reduce_to(shm, lane_index, srcs, 2, dst, shown, n);
        srcs[0] = (const char *)srcs[0] + bytes;
        srcs[1] = (const char *)srcs[1] + bytes;
        dst = dst != NULL ? dst + bytes : NULL;
        shown = shown != NULL ? shown + bytes : NULL;
    }
}

/* Reduce this rank's blocks of a chunk over all ranks. If other ranks copy the results OUT, also
   write the results to a slot. They overwrite blocks in this rank's slot, or their sources in the
   peer's slot, which no rank reads any more. */
static void reduce_mine(tutti__shm_t *shm, uint32_t lane_index, uint32_t chunk)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    int gets = tutti__shm_gets(shm, lane);
    int shows = shm->nlocal > 1 && (!gets || lane->call->kind == TUTTI__NODE_ALLREDUCE);

    for (uint32_t j = 0; j < lane->nblocks; j++) {
        tutti__shm_part_t part;
        char *dst, *shown, *slot;
        uint32_t nsrcs;

        if (tutti__shm_owner(lane, j) != shm->me)
            continue;
        part = tutti__shm_piece(lane, j, chunk);
        if (part.count == 0)
            continue;
        nsrcs = find_sources(shm, lane, chunk, j, part, srcs);
        slot = shm->nlocal > 1 ? tutti__shm_slot(shm, lane, shows_in(shm, lane, shm->me), chunk, j)
                               : NULL;
        dst = gets ? tutti__shm_dst(lane, part) : NULL;
        shown = shows ? slot : NULL;
        if (goes_back(shm, lane))
            reduce_back(shm, lane_index, srcs, dst, shown, part.count);
        else
            reduce_to(shm, lane_index, srcs, nsrcs, dst, shown, part.count);
    }
}

/* ---- OUT ---- */

/* Does OUT copy anything on this rank? In a reduce_scatter it does not; in a reduce only the root
   copies. */
static int takes_out(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    return lane->call->kind != TUTTI__NODE_REDUCE_SCATTER && tutti__shm_gets(shm, lane);
}

/* Copy the blocks that other ranks own. In an operation that only moves data, also copy this rank's
   own blocks, unless they are in place. */
static void copy_out(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t chunk)
{
    const tutti__node_call_t *call = lane->call;

    for (uint32_t j = 0; j < lane->nblocks; j++) {
        uint32_t from = call->kind == TUTTI__NODE_BCAST ? call->root : tutti__shm_owner(lane, j);
        uint32_t slot = call->kind == TUTTI__NODE_ALLTOALL ? tutti__shm_mine(shm, lane, j) : j;
        tutti__shm_part_t part = tutti__shm_piece(lane, j, chunk);
        const char *src = tutti__shm_src(lane, part);
        char *dst = tutti__shm_dst(lane, part);
        size_t count = part.count;

        if (count == 0)
            continue;
        if (from != shm->me)
            memcpy(dst, tutti__shm_slot(shm, lane, shows_in(shm, lane, from), chunk, slot),
                   count * lane->esize);
        else if (!tutti__shm_reduces(lane) && dst != src)
            memcpy(dst, src, count * lane->esize);
    }
}

/* May OUT of a chunk begin? It waits for other ranks' results. RED has already waited for IN. */
static tutti_status_t may_copy_out(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                   uint32_t chunk, tutti__hint_t *hint)
{
    if (!tutti__shm_reduces(lane) || !takes_out(shm, lane) || lane->nblocks == 1)
        return TUTTI_OK;
    return tutti__shm_all_reached(shm, lane, SHM_RED, lane->base + chunk + 1, hint);
}

/*
 * ---- the pipeline ----
 *
 * Each turn of the loop executes one stage of one chunk: the first stage that need not wait. IN is
 * tried first, because peers wait for it.
 */

static tutti_status_t stage_in(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    /* With two levels, this rank's RED reads and writes its slot. If results are written back, this
       rank's OUT reads its slot. These stages of chunk g - 2 must precede IN of chunk g. */
    if (lane->in == lane->nchunks || (lane->levels && lane->in > lane->red + 1) ||
        (goes_back(shm, lane) && lane->in > lane->out + 1))
        return TUTTI__AGAIN;
    if (!(lane->in == 0 && (lane->large.flags & TUTTI__COPIED)) && tutti__shm_copies_in(shm, lane))
        status = tutti__shm_copy_in(shm, lane_index, lane->in, hint);
    if (status != TUTTI_OK)
        return status;
    lane->in++;
    tutti__shm_publish(shm, lane_index, &lane->peer[shm->me].progress->in, lane->base + lane->in);
    return TUTTI_OK;
}

/* SUM: the first of two levels. */
static tutti_status_t stage_sum(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    if (!lane->levels)
        lane->sum = lane->in;
    if (lane->sum == lane->in)
        return TUTTI__AGAIN;
    status = all_in(shm, lane, lane->sum, hint);
    if (status != TUTTI_OK)
        return status;
    tutti__shm_sum_chunk(shm, lane_index, lane->sum);
    lane->sum++;
    tutti__shm_publish(shm, lane_index, &lane->peer[shm->me].progress->sum, lane->base + lane->sum);
    return TUTTI_OK;
}

static tutti_status_t stage_red(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    if (lane->red == lane->sum)
        return TUTTI__AGAIN;
    status = lane->levels ? tutti__shm_all_sums(shm, lane, lane->base + lane->red + 1, hint)
                          : all_in(shm, lane, lane->red, hint);
    if (status != TUTTI_OK)
        return status;
    if (tutti__shm_reduces(lane))
        reduce_mine(shm, lane_index, lane->red);
    lane->red++;
    tutti__shm_publish(shm, lane_index, &lane->peer[shm->me].progress->red, lane->base + lane->red);
    return TUTTI_OK;
}

static tutti_status_t stage_out(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    if (lane->out == lane->red)
        return TUTTI__AGAIN;
    status = may_copy_out(shm, lane, lane->out, hint);
    if (status != TUTTI_OK)
        return status;
    if (takes_out(shm, lane))
        copy_out(shm, lane, lane->out);
    lane->out++;
    tutti__shm_publish(shm, lane_index, &lane->peer[shm->me].progress->out, lane->base + lane->out);
    return TUTTI_OK;
}

tutti_status_t tutti__shm_chunks(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];

    while (lane->out < lane->nchunks) {
        if (stage_in(shm, lane_index, hint) == TUTTI__AGAIN &&
            stage_sum(shm, lane_index, hint) == TUTTI__AGAIN &&
            stage_red(shm, lane_index, hint) == TUTTI__AGAIN &&
            stage_out(shm, lane_index, hint) == TUTTI__AGAIN)
            return TUTTI__AGAIN;
    }
    lane->base += lane->nchunks;
    lane->sum = 0;
    /* Operations with one level set `sum` as well, so that `sum` stays close to base. The store may
       be relaxed: a peer waits for `sum` only in a later operation, which this rank announces after
       this store. */
    if (shm->ngroups > 1)
        tutti__store_relaxed(&lane->peer[shm->me].progress->sum, lane->base);
    lane->phase = SHM_IDLE;
    return TUTTI_OK;
}
