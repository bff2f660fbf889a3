/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations over shared memory: announcing, meeting, one-shot. See shm.h for the protocol;
 * compare.c compares the announcements; chunks.c and zero.c have the kernels for large data.
 *
 * The one-shot kernel follows the symmetric scheme of DeepSpeed's CPU allreduce and Open MPI's XHC
 * (inline payload). Each rank writes its data once and reads the data of all other ranks, so a
 * small allreduce takes one transfer of a cache line per peer.
 */
#include "node/shm/shm.h"

#include "base/status.h"

#include <assert.h>
#include <string.h>

static tutti__shm_t *self(tutti__node_t *node)
{
    return (tutti__shm_t *)node;
}

void tutti__shm_publish(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value)
{
    tutti__store_release(word, value);
    tutti__shm_wake(shm, lane, word);
}

tutti_status_t tutti__shm_hint(const tutti__shm_t *shm, uint32_t peer, tutti__word_t *word,
                               uint32_t value, tutti__hint_t *hint)
{
    hint->word = word;
    hint->value = value;
    hint->peer = (int32_t)shm->local_to_rank[peer];
    return TUTTI__AGAIN;
}

/* ---- start: choose one-shot, zero-copy or chunked; prepare the announcement ---- */

/* The bytes that a rank contributes. They depend on the call alone, so all ranks get the same
   value. */
static size_t message_bytes(const tutti__shm_lane_t *lane)
{
    if (lane->call->kind == TUTTI__NODE_ALLGATHER)
        return (size_t)lane->call->nblk * lane->largest * lane->esize;
    return lane->count * lane->esize;
}

/* Write this rank's blocks, packed, behind the announcement's head. */
static inline void pack_oneshot(tutti__shm_t *shm, tutti__shm_lane_t *lane, char *to)
{
    const tutti__node_call_t *call = lane->call;
    uint32_t first = 0, end = call->nblk * call->nparts;

    if (TUTTI__LIKELY(lane->simple)) {
        memcpy(to, tutti__shm_src(lane, lane->first), lane->first.count * lane->esize);
        return;
    }
    if (call->kind == TUTTI__NODE_BCAST && shm->me != call->root)
        return;
    if (call->kind == TUTTI__NODE_ALLGATHER) {
        first = TUTTI__MIN(shm->me * call->nblk, end);
        end = TUTTI__MIN(first + call->nblk, end);
    }
    for (uint32_t j = first; j < end; j++) {
        tutti__shm_part_t part = tutti__shm_block(lane, j);

        memcpy(to, tutti__shm_src(lane, part), part.count * lane->esize);
        to += part.count * lane->esize;
    }
}

static uint64_t offset_or_none(const tutti__shm_t *shm, const void *ptr, size_t bytes)
{
    uint64_t offset;

    if (ptr != NULL && tutti__arena_offset(shm->machine->arena, ptr, bytes, &offset))
        return offset;
    return TUTTI__NO_OFFSET;
}

/*
 * Place the bulk slots. The lane's first operation that is not one-shot allocates their memory.
 * Within a cache line, the slots have the same offset as this rank's result or, without a result,
 * this rank's data. So vectors in slot and buffer have the same alignment.
 *
 * Within a page, the slots' offset differs by half a page from the buffer's offset. A processor
 * compares the lower 12 bits of addresses first. If an earlier store is 1 to 63 bytes beyond a load
 * in these bits, the load waits for the store, even if the two are in different pages. memcpy of
 * 128 KiB takes 1.3 times as long in this case (Zen 5).
 */
static int place_bulk(tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    int gets = tutti__shm_gets(shm, lane);
    uintptr_t buffer = gets ? (uintptr_t)tutti__shm_dst(lane, lane->first)
                            : (uintptr_t)tutti__shm_src(lane, lane->first);
    void *ptr;

    if (shm->nlocal == 1)
        return 1;
    if (lane->bulk_memory == NULL) {
        if (tutti__arena_alloc(shm->machine->arena, 2 * tutti__shm_slot_bytes(shm), &ptr) !=
            TUTTI_OK)
            return 0;
        lane->bulk_memory = ptr;
    }
    lane->bulk = lane->bulk_memory +
                 (buffer + TUTTI__SHM_PAGE / 2 - (uintptr_t)lane->bulk_memory) % TUTTI__SHM_PAGE;
    return 1;
}

/*
 * Do other ranks write to this rank's dst in zero-copy? In an alltoall they do not, because each
 * rank reads the blocks that it needs. In a reduce they write to the root's dst only.
 */
static int lends_dst(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    return lane->call->kind != TUTTI__NODE_ALLTOALL && tutti__shm_gets(shm, lane);
}

/* Would a zero-copy alltoall overwrite data that other ranks have not read yet? */
static int is_in_place(const tutti__shm_lane_t *lane)
{
    return lane->call->kind == TUTTI__NODE_ALLTOALL &&
           tutti__shm_src(lane, lane->first) == tutti__shm_dst(lane, lane->first);
}

/*
 * Describe an operation that is not one-shot, for the announcement. In zero-copy a rank assumes
 * that a peer's block has the same offset as its own block. So zero-copy is excluded if the blocks
 * have displacements, which may differ between ranks, or are in SCRATCH.
 */
static void describe_large(tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    const tutti__node_call_t *call = lane->call;
    tutti__large_t *large = &lane->large;
    size_t bytes = call->map.count * lane->esize;
    int is_alike = call->map.begins == NULL && call->src_step == 0 && call->dst_step == 0;
    uint64_t src = offset_or_none(shm, call->src, bytes), dst = TUTTI__NO_OFFSET;

    if (lends_dst(shm, lane))
        dst = offset_or_none(shm, call->dst, bytes);
    large->src_offset = src;
    large->dst_offset = dst;
    large->flags = 0;
    if (!is_alike || is_in_place(lane) || src == TUTTI__NO_OFFSET ||
        (lends_dst(shm, lane) && dst == TUTTI__NO_OFFSET))
        large->flags |= TUTTI__PRIVATE;
    large->bulk_offset = TUTTI__NO_OFFSET;
    if (!place_bulk(shm, lane))
        large->flags |= TUTTI__FAILED;
    else if (lane->bulk != NULL)
        tutti__arena_offset(shm->machine->arena, lane->bulk, 1, &large->bulk_offset);
}

/* Set the lane's fields that depend neither on the buffers nor on the operation's number. */
static void take_call(tutti__shm_t *shm, tutti__shm_lane_t *lane, const tutti__node_call_t *call)
{
    lane->call = call;
    lane->esize = tutti_dtype_bytes(call->dtype);
    lane->head = tutti__shm_head(lane);
    lane->count_word = tutti__shm_count(call);
    lane->levels = tutti__shm_takes_levels(shm, lane);
    lane->simple = 0;
    if (call->kind == TUTTI__NODE_MEET)
        return;
    tutti__shm_measure(lane);
    lane->oneshot = message_bytes(lane) <= shm->oneshot_bytes;
    lane->outgrows = message_bytes(lane) >= shm->outgrow_bytes;
    lane->simple = lane->oneshot && call->kind == TUTTI__NODE_ALLREDUCE && call->nblk == 1 &&
                   call->nparts == 1;
}

void tutti__shm_start(tutti__shm_t *shm, uint32_t lane_index, const tutti__node_call_t *call,
                      int is_same)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__announce_t *own;

    if (lane->call != call || !is_same)
        take_call(shm, lane, call);
    own = tutti__shm_next(shm, lane);
    if (call->kind == TUTTI__NODE_MEET) {
        own->u.root = call->root;
        tutti__shm_announce(shm, lane_index, own);
        return;
    }
    if (lane->oneshot) {
        pack_oneshot(shm, lane, own->u.data);
    } else {
        tutti__shm_cut(shm, lane);
        describe_large(shm, lane);
        /* Copy chunk 0 before the meeting only if all ranks will choose the chunked kernel. */
        if ((lane->large.flags & (TUTTI__PRIVATE | TUTTI__FAILED)) == TUTTI__PRIVATE &&
            tutti__shm_copies_in(shm, lane)) {
            lane->phase = SHM_EARLY;
            return;
        }
        own->u.large = lane->large;
    }
    tutti__shm_announce(shm, lane_index, own);
}

static void start(tutti__node_t *node, uint32_t lane, const tutti__node_call_t *call)
{
    tutti__shm_start(self(node), lane, call, 0);
}

/* ---- all announcements have come ---- */

static inline void oneshot_move(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                uint32_t from, size_t at, tutti__shm_part_t part)
{
    const char *src = tutti__shm_given(shm, lane, from, at, part);
    char *dst = tutti__shm_dst(lane, part);

    if (src != dst)
        memcpy(dst, src, part.count * lane->esize);
}

static inline void oneshot_reduce(tutti__shm_t *shm, uint32_t lane_index, size_t at,
                                  tutti__shm_part_t part)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);

    for (uint32_t r = 0; r < shm->nlocal; r++)
        srcs[r] = tutti__shm_given(shm, lane, r, at, part);
    tutti__reduce(lane->call->reducer, tutti__shm_dst(lane, part), srcs, shm->nlocal, part.count,
                  lane->call->divisor);
}

/* Compute the result from the data in the announcements. */
static void oneshot(tutti__shm_t *shm, uint32_t lane_index)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const tutti__node_call_t *call = lane->call;
    uint32_t nblk = call->nblk, nblocks = nblk * call->nparts;
    size_t at = 0;

    if (TUTTI__LIKELY(lane->simple)) {
        oneshot_reduce(shm, lane_index, 0, lane->first);
        return;
    }
    if (!tutti__shm_gets(shm, lane))
        return;
    for (uint32_t j = 0; j < nblocks; j++) {
        tutti__shm_part_t part = tutti__shm_block(lane, j);
        size_t bytes = part.count * lane->esize;

        switch (call->kind) {
        case TUTTI__NODE_BCAST:
            oneshot_move(shm, lane, call->root, at, part);
            break;
        case TUTTI__NODE_ALLGATHER: /* an announcement has only its rank's part */
            at = j % nblk == 0 ? 0 : at;
            oneshot_move(shm, lane, j / nblk, at, part);
            break;
        case TUTTI__NODE_ALLTOALL: /* all blocks have the same length */
            oneshot_move(shm, lane, j / nblk, tutti__shm_mine(shm, lane, j) * bytes, part);
            break;
        default:
            if (call->kind != TUTTI__NODE_REDUCE_SCATTER || j / nblk == shm->me)
                oneshot_reduce(shm, lane_index, at, part);
            break;
        }
        at += bytes;
    }
}

/* Choose the kernel from all ranks' descriptions, so that all ranks choose the same kernel. */
static tutti_status_t choose_large(tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    uint32_t any = 0;

    for (uint32_t r = 0; r < shm->nlocal; r++) {
        const tutti__large_t *large = tutti__shm_said(shm, lane, r);

        if (large->flags & TUTTI__FAILED)
            return tutti__fail(TUTTI_ERR_NO_MEMORY,
                               "rank %u has no shared memory left for its "
                               "%zu bytes of bulk slots",
                               shm->local_to_rank[r], 2 * tutti__shm_slot_bytes(shm));
        lane->peer[r].bulk = shm->machine->base[shm->local_to_machine[r]] + large->bulk_offset;
        any |= large->flags;
    }
    lane->phase = any & TUTTI__PRIVATE ? SHM_CHUNKS : SHM_ZERO;
    return TUTTI_OK;
}

/* Does the announcement have another call than this rank's call? Both have the same number. */
static inline int is_odd(const tutti__shm_lane_t *lane, const tutti__announce_t *a, uint64_t head)
{
    return head != (lane->head | lane->seq) || a->count != lane->count_word ||
           (lane->call->kind == TUTTI__NODE_MEET && a->u.root != lane->call->root);
}

static tutti_status_t meet(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    for (; lane->seen < shm->nlocal; lane->seen++) {
        tutti__announce_t *a = lane->peer[lane->seen].announce[lane->seq & 1];
        uint64_t head;

        if (lane->seen == shm->me)
            continue;
        head = tutti__load64_acquire(&a->head);
        if ((uint32_t)head != lane->seq)
            return tutti__shm_hint(shm, lane->seen, tutti__shm_seq(a), (uint32_t)head, hint);
        lane->odd |= is_odd(lane, a, head);
    }
    if (TUTTI__UNLIKELY(lane->odd) || lane->call->kind == TUTTI__NODE_MEET) {
        lane->phase = SHM_IDLE;
        return lane->odd ? tutti__shm_mismatch(shm, lane) : TUTTI_OK;
    }
    if (lane->oneshot) {
        oneshot(shm, lane_index);
        lane->phase = SHM_IDLE;
        return TUTTI_OK;
    }
    status = choose_large(shm, lane);
    if (status != TUTTI_OK)
        lane->phase = SHM_IDLE;
    return status;
}

/* Execute IN of chunk 0, and then announce that it is done: peers need not wait for the counter. */
tutti_status_t tutti__shm_early(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__announce_t *own = lane->peer[shm->me].announce[lane->seq & 1];
    tutti_status_t status = tutti__shm_copy_in(shm, lane_index, 0, hint);

    if (status != TUTTI_OK)
        return status;
    lane->large.flags |= TUTTI__COPIED;
    own->u.large = lane->large;
    tutti__shm_announce(shm, lane_index, own);
    return TUTTI_OK;
}

static tutti_status_t step(tutti__node_t *node, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_t *shm = self(node);
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    if (lane->phase == SHM_EARLY)
        status = tutti__shm_early(shm, lane_index, hint);
    if (status == TUTTI_OK && lane->phase == SHM_MEET)
        status = meet(shm, lane_index, hint);
    if (status == TUTTI_OK && lane->phase == SHM_CHUNKS)
        status = tutti__shm_chunks(shm, lane_index, hint);
    if (status == TUTTI_OK && lane->phase == SHM_ZERO)
        status = tutti__shm_zero(shm, lane_index, hint);
    return status;
}

const tutti__node_ops_t tutti__shm_ops = {
    .name = "shm",
    .purpose = "shared memory: one-shot, two-shot and zero-copy kernels on the processor",
    .close = tutti__shm_close,
    .start = start,
    .step = step,
    .repeat = tutti__shm_repeat,
    .cancel = tutti__shm_cancel,
};
