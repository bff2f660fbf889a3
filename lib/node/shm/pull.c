/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations on large private buffers: each rank reads its peers' memory (process_vm_readv).
 *
 * Each rank reduces its part from pieces that it reads into its own bulk slot, so they stay in its
 * cache, and shows the result there, too, where the others copy it from. What is moved only is read
 * straight into recvbuf. Buffers in arenas are used where they are, so ranks may pass either. What
 * is reduced in two levels goes by chunks instead, for the same bits.
 *
 * In place: only its owner reads a part of the others' sources, and they write there only after its
 * RED. That the kernel lets all ranks do this is found out when the node is opened.
 *
 * Tried: reading results from the owner's recvbuf, too, which needs no slot: 100 us instead of 77
 * for 1 MiB, since each 4 KiB that the kernel reads cost 0.3 us.
 */
#include "node/shm/shm.h"

#include "base/log.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/* ---- reading a peer ---- */

/* 0 or an errno. `address` is one of local rank r's own. */
static int read_memory(const tutti__shm_t *shm, uint32_t r, uint64_t address, void *to,
                       size_t bytes)
{
    int pid = shm->machine->pid[shm->local_to_machine[r]];
    struct iovec local = { to, bytes };
    struct iovec remote = { (void *)(uintptr_t)address, bytes };

    while (local.iov_len > 0) {
        ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);

        if (n <= 0)
            return n < 0 ? errno : EFAULT;
        local.iov_base = (char *)local.iov_base + n;
        remote.iov_base = (char *)remote.iov_base + n;
        local.iov_len = remote.iov_len -= (size_t)n;
    }
    return 0;
}

/* Never NO_MEMORY: that would have to be found by all ranks. */
static tutti_status_t read_peer(const tutti__shm_t *shm, uint32_t r, uint64_t address, void *to,
                                size_t bytes)
{
    int error = read_memory(shm, r, address, to, bytes);
    int pid = shm->machine->pid[shm->local_to_machine[r]];

    if (error == 0)
        return TUTTI_OK;
    if (error == ESRCH)
        return tutti__fail(TUTTI_ERR_PEER_LOST, "%s, process %d, has ended",
                           tutti__boot_rank_name(shm->boot, shm->local_to_rank[r]), pid);
    return tutti__fail(TUTTI_ERR_SYSTEM, "reading memory of rank %u, process %d: %s",
                       shm->local_to_rank[r], pid,
                       error == EFAULT ? "its buffer is not readable" : strerror(error));
}

/* Where a rank's part is mapped here, or NULL: it has to be read. */
static const char *mapped(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t r,
                          tutti__shm_part_t part)
{
    const tutti__large_t *its = tutti__shm_said(shm, lane, r);

    if (r == shm->me)
        return tutti__shm_src(lane, part);
    if (its->flags & TUTTI__ADDRESS)
        return NULL;
    return shm->machine->base[shm->local_to_machine[r]] + its->src_offset + part.src * lane->esize;
}

static tutti_status_t get(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t r,
                          tutti__shm_part_t part, void *to)
{
    const char *there = mapped(shm, lane, r, part);
    size_t bytes = part.count * lane->esize;

    if (there == NULL)
        return read_peer(shm, r, tutti__shm_said(shm, lane, r)->src_offset + part.src * lane->esize,
                         to, bytes);
    if (there != to)
        memcpy(to, there, bytes);
    return TUTTI_OK;
}

/* ---- cutting ---- */

/* A bulk slot has a spot for each rank: for what its owner read of that one, and in the owner's own
   spot for the result that it shows. */
static size_t spot_bytes(const tutti__shm_t *shm)
{
    return shm->bulk_bytes / shm->nlocal / TUTTI__LINE_BYTES * TUTTI__LINE_BYTES;
}

static char *spot(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t whose,
                  uint32_t chunk, uint32_t r)
{
    return (whose == shm->me ? lane->bulk : lane->peer[whose].bulk) +
           tutti__shm_slot_offset(shm, lane, chunk) + r * spot_bytes(shm);
}

void tutti__shm_cut_to_pull(const tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    size_t most = 0;

    tutti__shm_cut_for_all(shm, lane);
    for (uint32_t j = 0; j < lane->nblocks; j++)
        most = TUTTI__MAX(most, tutti__shm_extent(lane, j).count);
    /* What is moved only needs no spot. */
    lane->piece = tutti__shm_reduces(lane) ? spot_bytes(shm) / lane->esize : most;
    lane->nchunks = most == 0 ? 0 : (uint32_t)((most + lane->piece - 1) / lane->piece);
}

/* ---- RED: whatever reads peers ---- */

/* Does this rank show its results in its slot? */
static int shows(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    return lane->call->kind == TUTTI__NODE_ALLREDUCE || !tutti__shm_gets(shm, lane);
}

static tutti_status_t reduce_piece(tutti__shm_t *shm, uint32_t lane_index, tutti__shm_part_t part)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    char *shown = spot(shm, lane, shm->me, lane->red, shm->me);
    char *dst = tutti__shm_gets(shm, lane) ? tutti__shm_dst(lane, part) : shown;

    for (uint32_t r = 0; r < shm->nlocal; r++) {
        char *here = spot(shm, lane, shm->me, lane->red, r);
        tutti_status_t status;

        srcs[r] = mapped(shm, lane, r, part);
        if (srcs[r] != NULL)
            continue;
        status = get(shm, lane, r, part, here);
        if (status != TUTTI_OK)
            return status;
        srcs[r] = here;
    }
    tutti__reduce(lane->call->reducer, dst, srcs, shm->nlocal, part.count, lane->call->divisor);
    if (dst != shown && shows(shm, lane))
        memcpy(shown, dst, part.count * lane->esize);
    return TUTTI_OK;
}

/* Block j of what is moved only, whole. */
static tutti_status_t move(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t j,
                           tutti__shm_part_t part)
{
    uint32_t from =
        lane->call->kind == TUTTI__NODE_BCAST ? lane->call->root : tutti__shm_owner(lane, j);
    tutti__shm_part_t there = part;

    if (lane->call->kind == TUTTI__NODE_ALLTOALL)
        there = tutti__shm_block(lane, tutti__shm_mine(shm, lane, j));
    return get(shm, lane, from, there, tutti__shm_dst(lane, part));
}

static tutti_status_t stage_red(tutti__shm_t *shm, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    int reduces = tutti__shm_reduces(lane);
    tutti_status_t status = TUTTI_OK;

    if (lane->red == lane->nchunks)
        return TUTTI__AGAIN;
    if (reduces && shows(shm, lane)) /* what the slot showed last is through */
        status = tutti__shm_all_reached(shm, lane, SHM_OUT, lane->base + lane->red - 1, stuck);
    for (uint32_t j = 0; status == TUTTI_OK && j < lane->nblocks; j++) {
        tutti__shm_part_t part = tutti__shm_piece(lane, j, lane->red);

        if (part.count == 0)
            continue;
        if (!reduces)
            status = move(shm, lane, j, part);
        else if (tutti__shm_owner(lane, j) == shm->me)
            status = reduce_piece(shm, lane_index, part);
    }
    if (status != TUTTI_OK)
        return status;
    lane->red++;
    tutti__shm_publish(shm, lane_index, &lane->peer[shm->me].progress->red, lane->base + lane->red);
    return TUTTI_OK;
}

/* ---- OUT: whatever copies shown results ---- */

static tutti_status_t stage_out(tutti__shm_t *shm, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    int takes = lane->call->kind == TUTTI__NODE_ALLREDUCE ||
                (lane->call->kind == TUTTI__NODE_REDUCE && tutti__shm_gets(shm, lane));
    tutti_status_t status = TUTTI_OK;

    if (lane->out == lane->red)
        return TUTTI__AGAIN;
    if (takes)
        status = tutti__shm_all_reached(shm, lane, SHM_RED, lane->base + lane->out + 1, stuck);
    if (status != TUTTI_OK)
        return status;
    for (uint32_t j = 0; takes && j < lane->nblocks; j++) {
        tutti__shm_part_t part = tutti__shm_piece(lane, j, lane->out);
        uint32_t from = tutti__shm_owner(lane, j);

        if (from != shm->me && part.count > 0)
            memcpy(tutti__shm_dst(lane, part), spot(shm, lane, from, lane->out, from),
                   part.count * lane->esize);
    }
    lane->out++;
    tutti__shm_publish(shm, lane_index, &lane->peer[shm->me].progress->out, lane->base + lane->out);
    return TUTTI_OK;
}

/* OUT first, while what is shown is in a cache: 193 us instead of 320 for 2 MiB. */
tutti_status_t tutti__shm_pull(tutti__shm_t *shm, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    while (lane->out < lane->nchunks) {
        status = stage_out(shm, lane_index, stuck);
        if (status == TUTTI__AGAIN)
            status = stage_red(shm, lane_index, stuck);
        if (status != TUTTI_OK)
            return status;
    }
    /* Nobody may still read my buffers when they are the caller's again. */
    status = tutti__shm_all_reached(shm, lane, SHM_RED, lane->base + lane->nchunks, stuck);
    if (status != TUTTI_OK)
        return status;
    lane->base += lane->nchunks;
    tutti__store_relaxed(&lane->peer[shm->me].progress->in, lane->base);
    tutti__store_relaxed(&lane->peer[shm->me].progress->sum, lane->base);
    lane->phase = SHM_IDLE;
    return TUTTI_OK;
}

/* ---- may we? ---- */

/* What a rank reads of its peers to see whether it can. */
typedef struct {
    uint64_t mark, address;
} probe_t;

static probe_t probe_of(uint32_t rank, uint64_t address)
{
    probe_t probe = { 0x7475747469000000u + rank, address };

    return probe;
}

static int can_read(const tutti__shm_t *shm, uint32_t r, uint64_t address)
{
    uint32_t rank = shm->local_to_rank[r];
    probe_t wanted = probe_of(rank, address), got;
    int pid = shm->machine->pid[shm->local_to_machine[r]];
    /* No number: in a container of its own. */
    int error = pid <= 0 ? ESRCH : read_memory(shm, r, address, &got, sizeof(got));

    if (error == 0 && memcmp(&got, &wanted, sizeof(got)) == 0)
        return 1;
    TUTTI__LOG(TUTTI__LOG_INFO, "memory of rank %u, process %d, cannot be read: %s", rank, pid,
               error == 0 ? "there is something else" : strerror(error));
    return 0;
}

tutti_status_t tutti__shm_may_pull(tutti__boot_t *boot, const tutti__shm_t *shm, uint64_t *table,
                                   int *ret_may)
{
    probe_t probe = probe_of(shm->local_to_rank[shm->me], (uint64_t)(uintptr_t)&probe);
    uint64_t can = 1;
    tutti_status_t status = tutti__boot_allgather(boot, &probe.address, sizeof(uint64_t), table);

    for (uint32_t r = 0; status == TUTTI_OK && r < shm->nlocal; r++)
        if (r != shm->me && !can_read(shm, r, table[shm->local_to_rank[r]]))
            can = 0;
    /* Also the end of reading the probes. */
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(boot, &can, sizeof(can), table);
    if (status != TUTTI_OK)
        return status;
    *ret_may = 1;
    for (uint32_t r = 0; r < shm->nlocal; r++)
        *ret_may &= (int)table[shm->local_to_rank[r]];
    return TUTTI_OK;
}
