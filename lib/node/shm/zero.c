/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations on data that does not fit an announcement, where it lies in arenas: zero-copy.
 *
 * Each rank does its share of the work straight from and to the buffers of all. What must be in an
 * arena is what others touch: see describe_large in shm.c.
 */
#include "node/shm/shm.h"

#include <string.h>

/* A part of local rank r's source or destination, in its arena. */
static char *src_in_arena(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t r,
                          tutti__shm_part_t part)
{
    return shm->machine->base[shm->local_to_machine[r]] +
           lane->peer[r].announce[lane->seq & 1]->u.large.src_offset + part.src * lane->esize;
}

static char *dst_in_arena(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t r,
                          tutti__shm_part_t part)
{
    return shm->machine->base[shm->local_to_machine[r]] +
           lane->peer[r].announce[lane->seq & 1]->u.large.dst_offset + part.dst * lane->esize;
}

/*
 * Reduced while it is in the first cache, then written to whoever gets it. In place, and too large
 * for the caches, smaller blocks are faster (16 to 64 MiB, 1 KiB instead of 8: 0.41, 1.44 and 3.6
 * ms instead of 0.47, 1.59 and 3.7; not in place 0.97 instead of 0.74 for 16 MiB).
 * Tried: reducing 2 KiB to the stack and streaming it to all, out of place: 0.79 ms instead of 0.74
 * for 16 MiB, although a loop without the library took 0.60 instead of 0.83. Streaming to the
 * others, in place: 1.2 to 1.8 times the time.
 */
#define ZERO_BLOCK_BYTES 8192
#define LARGE_BLOCK_BYTES 1024
#define LARGE_BYTES ((size_t)16 << 20)

static size_t block_bytes(const tutti__shm_lane_t *lane)
{
    if (lane->levels)
        return TUTTI__SUM_BYTES;
    return lane->call->src == lane->call->dst && lane->count * lane->esize >= LARGE_BYTES
               ? LARGE_BLOCK_BYTES
               : ZERO_BLOCK_BYTES;
}

static void zero_reduce(tutti__shm_t *shm, uint32_t lane_index, tutti__shm_part_t part)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    uint32_t whose = lane->call->kind == TUTTI__NODE_REDUCE ? lane->call->root : shm->me;
    size_t most = block_bytes(lane) / lane->esize;

    while (part.count > 0) {
        size_t n = TUTTI__MIN(part.count, most);
        char *dst = dst_in_arena(shm, lane, whose, part);

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
        part.count -= n;
    }
}

/* What I own is written to all. */
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

/* Block j is what its rank has for me; the places of mine in dst and of its block in src differ. */
static void zero_pull(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t j)
{
    tutti__shm_part_t to = tutti__shm_block(lane, j);
    tutti__shm_part_t from = tutti__shm_block(lane, tutti__shm_mine(shm, lane, j));

    memcpy(tutti__shm_dst(lane, to), src_in_arena(shm, lane, tutti__shm_owner(lane, j), from),
           to.count * lane->esize);
}

/* My share of the work. */
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

tutti_status_t tutti__shm_zero(tutti__shm_t *shm, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__progress_t *own = lane->peer[shm->me].progress;
    tutti_status_t status;

    if (lane->red == 0) {
        tutti__shm_cut_for_all(shm, lane);
        zero_work(shm, lane_index);
        lane->red = 1;
        /* One chunk of the lane's life, whose slot nobody used: the others go along. */
        tutti__store_relaxed(&own->in, lane->base + 1);
        tutti__store_relaxed(&own->sum, lane->base + 1);
        tutti__store_relaxed(&own->out, lane->base + 1);
        tutti__shm_publish(shm, lane_index, &own->red, lane->base + 1);
    }
    status = tutti__shm_all_reached(shm, lane, SHM_RED, lane->base + 1, stuck);
    if (status != TUTTI_OK)
        return status;
    lane->base += 1;
    lane->phase = SHM_IDLE;
    return TUTTI_OK;
}
