/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations over shared memory: opening, announcing, one-shot. See shm.h for the protocol;
 * chunks.c has the larger kernels.
 *
 * The one-shot kernel follows the symmetric scheme of DeepSpeed's CPU allreduce and Open MPI's XHC
 * (inline payload): everybody writes its data once and reads all others', so a small allreduce is
 * one cache-line transfer per peer.
 */
#include "node/shm/shm.h"

#include "base/names.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static tutti__shm_t *self(tutti__node_t *node)
{
    return (tutti__shm_t *)node;
}

/* A word of mine was written; wake who waits for it, in the manner of the lane. */
static void wake(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word)
{
    if (lane == 0) {
        tutti__machine_written(shm->machine, word);
        return;
    }
    /* Pairs with the fence between `sleeping = 1` and the engine's last look. */
    tutti__fence();
    for (uint32_t r = 0; r < shm->nlocal; r++)
        if (r != shm->me)
            tutti__machine_ring(shm->machine, shm->local_to_machine[r]);
}

void tutti__shm_publish(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value)
{
    tutti__store_release(word, value);
    wake(shm, lane, word);
}

tutti_status_t tutti__shm_stuck(const tutti__shm_t *shm, uint32_t peer, tutti__word_t *word,
                                uint32_t value, tutti__stuck_t *stuck)
{
    stuck->word = word;
    stuck->value = value;
    stuck->peer = (int32_t)shm->local_to_rank[peer];
    return TUTTI__AGAIN;
}

/* ---- one lane's memory ---- */

static size_t slot_bytes(size_t oneshot_bytes)
{
    return TUTTI__ROUND_UP(offsetof(tutti__announce_t, u) + oneshot_bytes + TUTTI__LINE_BYTES,
                           TUTTI__FALSE_SHARING_BYTES);
}

static size_t lane_bytes(size_t oneshot_bytes)
{
    return 2 * slot_bytes(oneshot_bytes) + sizeof(tutti__progress_t);
}

/* oneshot_bytes is for all ranks together (p * n); each has its share. */
static size_t oneshot_share(size_t all_bytes, uint32_t nlocal)
{
    return TUTTI__MAX(all_bytes / nlocal, sizeof(((tutti__announce_t *)0)->u.data));
}

size_t tutti__shm_control_bytes(uint32_t nlocal, size_t oneshot_bytes)
{
    return TUTTI__LANES * lane_bytes(oneshot_share(oneshot_bytes, nlocal));
}

static void find_peer(const tutti__shm_t *shm, char *control, uint32_t lane,
                      tutti__shm_peer_t *peer)
{
    char *at = control + lane * lane_bytes(shm->oneshot_bytes);

    peer->announce[0] = (tutti__announce_t *)at;
    peer->announce[1] = (tutti__announce_t *)(at + slot_bytes(shm->oneshot_bytes));
    peer->progress = (tutti__progress_t *)(at + 2 * slot_bytes(shm->oneshot_bytes));
}

/* ---- start: is it one-shot, zero-copy or chunked; what do I announce ---- */

/* The same decision on all ranks, because it depends on the call alone. */
static int is_oneshot(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    size_t bytes;

    if (lane->call.kind == TUTTI__NODE_ALLGATHER)
        bytes = (size_t)lane->call.nblk * lane->largest * lane->esize;
    else
        bytes = lane->count * lane->esize;
    return bytes <= shm->oneshot_bytes;
}

/* Write my data behind the head, blocks packed one after another. */
static void pack_oneshot(tutti__shm_t *shm, tutti__shm_lane_t *lane, char *to)
{
    const tutti__node_call_t *call = &lane->call;
    uint32_t first = 0, end = call->nblk * call->nparts;
    size_t begin, count;

    if (call->kind == TUTTI__NODE_BCAST && shm->me != call->root)
        return;
    if (call->kind == TUTTI__NODE_ALLGATHER) {
        first = TUTTI__MIN(shm->me * call->nblk, end);
        end = TUTTI__MIN(first + call->nblk, end);
    }
    for (uint32_t j = first; j < end; j++) {
        tutti__shm_block(call, j, &begin, &count);
        memcpy(to, (const char *)call->src + begin * lane->esize, count * lane->esize);
        to += count * lane->esize;
    }
}

static uint64_t offset_or_none(const tutti__shm_t *shm, const void *ptr, size_t bytes)
{
    uint64_t offset;

    if (ptr != NULL && tutti__arena_offset(shm->machine->arena, ptr, bytes, &offset))
        return offset;
    return TUTTI__NO_OFFSET;
}

/* Make the bulk slots at the lane's first chunked operation. */
static int make_bulk(tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    void *ptr;

    if (lane->bulk == NULL && shm->nlocal > 1) {
        if (tutti__arena_alloc(shm->machine->arena, 2 * shm->bulk_bytes, &ptr) != TUTTI_OK)
            return 0;
        lane->bulk = ptr;
    }
    return 1;
}

/* The announcement of an operation that is not one-shot. */
static void describe_large(tutti__shm_t *shm, tutti__shm_lane_t *lane, tutti__announce_t *own)
{
    size_t bytes = lane->call.map.count * lane->esize;

    own->u.large.src_offset = offset_or_none(shm, lane->call.src, bytes);
    own->u.large.dst_offset = offset_or_none(shm, lane->call.dst, bytes);
    own->u.large.flags = 0;
    own->u.large.bulk_offset = TUTTI__NO_OFFSET;
    if (!make_bulk(shm, lane))
        own->u.large.flags |= TUTTI__FAILED;
    else if (lane->bulk != NULL)
        tutti__arena_offset(shm->machine->arena, lane->bulk, 1, &own->u.large.bulk_offset);
}

/* Zero-copy needs both buffers of everybody in arenas; then no data is copied ahead either. */
static int is_private(const tutti__announce_t *a)
{
    return a->u.large.src_offset == TUTTI__NO_OFFSET || a->u.large.dst_offset == TUTTI__NO_OFFSET;
}

static uint64_t make_head(const tutti__shm_lane_t *lane)
{
    tutti__shm_what_t what = { (uint8_t)lane->call.kind, (uint8_t)lane->call.dtype,
                               (uint8_t)lane->call.op,
                               (uint8_t)(lane->call.tag << 1 | (lane->call.divisor != 0)) };
    uint32_t bits;

    memcpy(&bits, &what, sizeof(bits));
    return (uint64_t)bits << 32 | lane->seq;
}

static tutti__shm_what_t what_of(const tutti__announce_t *a)
{
    uint32_t bits = (uint32_t)(tutti__load64_acquire(&a->head) >> 32);
    tutti__shm_what_t what;

    memcpy(&what, &bits, sizeof(what));
    return what;
}

static void announce(tutti__shm_t *shm, uint32_t lane_index)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__announce_t *own = lane->peer[shm->me].announce[lane->seq & 1];

    lane->phase = SHM_MEET;
    tutti__store64_release(&own->head, lane->head);
    wake(shm, lane_index, tutti__shm_seq(own));
}

static void start(tutti__node_t *node, uint32_t lane_index, const tutti__node_call_t *call)
{
    tutti__shm_t *shm = self(node);
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__announce_t *own;

    lane->call = *call;
    lane->esize = tutti_dtype_bytes(call->dtype);
    lane->reduce = tutti__reduce_find(call->dtype, call->op);
    tutti__shm_cut(shm, lane);
    lane->seq++;
    lane->in = lane->red = lane->out = 0;
    lane->seen = 0;
    own = lane->peer[shm->me].announce[lane->seq & 1];
    lane->head = make_head(lane);
    own->count = lane->count + ((uint64_t)call->root << 48);
    if (is_oneshot(shm, lane)) {
        pack_oneshot(shm, lane, own->u.data);
    } else {
        describe_large(shm, lane, own);
        if (is_private(own) && !(own->u.large.flags & TUTTI__FAILED) &&
            tutti__shm_copies_in(shm, lane)) {
            lane->phase = SHM_EARLY;
            return;
        }
    }
    announce(shm, lane_index);
}

/* ---- meeting: everybody's announcement is there; do they fit? ---- */

/* All have this number, so heads that differ come from different calls. */
static int same_call(const tutti__announce_t *a, const tutti__announce_t *b)
{
    return a->count == b->count && atomic_load_explicit(&a->head, memory_order_relaxed) ==
                                       atomic_load_explicit(&b->head, memory_order_relaxed);
}

/* What a rank came with, as its caller knows it. */
static void describe(const tutti__announce_t *a, char *text, size_t bytes)
{
    static const char *const names[] = {
        [TUTTI__TAG_ALLREDUCE] = "an allreduce",      [TUTTI__TAG_BROADCAST] = "a broadcast",
        [TUTTI__TAG_ALLGATHER] = "an allgather",      [TUTTI__TAG_BARRIER] = "a barrier",
        [TUTTI__TAG_MEM_ALLOC] = "a tutti_mem_alloc", [TUTTI__TAG_BUCKET] = "a bucket",
    };
    unsigned long long count = a->count & 0xffffffffffffu;
    tutti__shm_what_t what = what_of(a);
    unsigned tag = what.tag >> 1;
    const char *name = tag < sizeof(names) / sizeof(names[0]) ? names[tag] : "an unknown call";
    const char *type = tutti__dtype_name((tutti_dtype_t)what.dtype);

    if (tag == TUTTI__TAG_BARRIER || tag == TUTTI__TAG_MEM_ALLOC)
        snprintf(text, bytes, "%s", name);
    else if (tag == TUTTI__TAG_BROADCAST)
        snprintf(text, bytes, "%s of %llu x %s, root %u on this host", name, count, type,
                 (unsigned)(a->count >> 48));
    else if (tag == TUTTI__TAG_ALLGATHER)
        snprintf(text, bytes, "%s of %llu x %s in all", name, count, type);
    else
        snprintf(text, bytes, "%s of %llu x %s, %s", name, count, type,
                 tutti__op_name((tutti_op_t)what.op));
}

/* Compare all with rank 0's; so all ranks find the same two ranks to name. */
static tutti_status_t compare(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    const tutti__announce_t *first = lane->peer[0].announce[lane->seq & 1];
    char a[96], b[96];

    for (uint32_t r = 1; r < shm->nlocal; r++) {
        const tutti__announce_t *other = lane->peer[r].announce[lane->seq & 1];

        if (same_call(first, other))
            continue;
        describe(first, a, sizeof(a));
        describe(other, b, sizeof(b));
        return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u came with %s, rank %u with %s",
                           shm->local_to_rank[0], a, shm->local_to_rank[r], b);
    }
    return TUTTI_OK;
}

/* Every rank's data is in its announcement: reduce or copy straight from there. */
static void oneshot(tutti__shm_t *shm, uint32_t lane_index)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const tutti__node_call_t *call = &lane->call;
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    uint32_t slot = lane->seq & 1, nblocks = call->nblk * call->nparts;
    size_t begin, count, at = 0;

    for (uint32_t j = 0; j < nblocks; j++) {
        uint32_t owner = j / call->nblk;
        char *dst;

        tutti__shm_block(call, j, &begin, &count);
        dst = (char *)call->dst + begin * lane->esize;
        if (call->kind == TUTTI__NODE_ALLGATHER && j % call->nblk == 0)
            at = 0;
        if (call->kind == TUTTI__NODE_BCAST)
            owner = call->root;
        if (call->kind == TUTTI__NODE_ALLGATHER || call->kind == TUTTI__NODE_BCAST) {
            if (owner != shm->me || call->src != call->dst)
                memcpy(dst, lane->peer[owner].announce[slot]->u.data + at, count * lane->esize);
        } else if (call->kind == TUTTI__NODE_ALLREDUCE || owner == shm->me) {
            for (uint32_t r = 0; r < shm->nlocal; r++)
                srcs[r] = lane->peer[r].announce[slot]->u.data + at;
            lane->reduce(dst, srcs, shm->nlocal, count, call->divisor);
        }
        at += count * lane->esize;
    }
}

/* Which kernel, now that all descriptions are known. The same answer on all ranks. */
static tutti_status_t choose_large(tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    int zero_copy = 1;

    for (uint32_t r = 0; r < shm->nlocal; r++) {
        const tutti__announce_t *a = lane->peer[r].announce[lane->seq & 1];

        if (a->u.large.flags & TUTTI__FAILED)
            return tutti__fail(TUTTI_ERR_NO_MEMORY,
                               "rank %u has no shared memory left for its "
                               "%zu bytes of bulk slots",
                               shm->local_to_rank[r], 2 * shm->bulk_bytes);
        lane->peer[r].bulk = shm->machine->base[shm->local_to_machine[r]] + a->u.large.bulk_offset;
        zero_copy &= !is_private(a);
    }
    lane->phase = zero_copy ? SHM_ZERO : SHM_CHUNKS;
    return TUTTI_OK;
}

static tutti_status_t meet(tutti__shm_t *shm, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status;

    for (; lane->seen < shm->nlocal; lane->seen++) {
        tutti__word_t *word = tutti__shm_seq(lane->peer[lane->seen].announce[lane->seq & 1]);
        uint32_t value = tutti__load_acquire(word);

        if (value != lane->seq)
            return tutti__shm_stuck(shm, lane->seen, word, value, stuck);
    }
    status = compare(shm, lane);
    if (status != TUTTI_OK) {
        lane->phase = SHM_IDLE;
        return status;
    }
    if (is_oneshot(shm, lane)) {
        oneshot(shm, lane_index);
        lane->phase = SHM_IDLE;
        /* The peers have this line since they read it two operations ago; fetch it back early. */
        __builtin_prefetch(lane->peer[shm->me].announce[(lane->seq + 1) & 1], 1);
        return TUTTI_OK;
    }
    status = choose_large(shm, lane);
    if (status != TUTTI_OK)
        lane->phase = SHM_IDLE;
    return status;
}

/* Copy chunk 0 before announcing: the announcement then says IN as well, one wait less. */
static tutti_status_t early(tutti__shm_t *shm, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__announce_t *own = lane->peer[shm->me].announce[lane->seq & 1];
    tutti_status_t status = tutti__shm_copy_in(shm, lane_index, 0, stuck);

    if (status != TUTTI_OK)
        return status;
    own->u.large.flags |= TUTTI__COPIED;
    announce(shm, lane_index);
    return TUTTI_OK;
}

static tutti_status_t step(tutti__node_t *node, uint32_t lane_index, tutti__stuck_t *stuck)
{
    tutti__shm_t *shm = self(node);
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    if (lane->phase == SHM_EARLY)
        status = early(shm, lane_index, stuck);
    if (status == TUTTI_OK && lane->phase == SHM_MEET)
        status = meet(shm, lane_index, stuck);
    if (status == TUTTI_OK && lane->phase == SHM_CHUNKS)
        status = tutti__shm_chunks(shm, lane_index, stuck);
    if (status == TUTTI_OK && lane->phase == SHM_ZERO)
        status = tutti__shm_zero(shm, lane_index, stuck);
    return status;
}

/* ---- opening and closing ---- */

static void shm_close(tutti__node_t *node)
{
    tutti__shm_t *shm = self(node);

    if (shm == NULL)
        return;
    /* Ranges stay in the arena: a peer may still read its last result there. */
    for (uint32_t i = 0; i < TUTTI__LANES; i++)
        free(shm->lane[i].peer);
    free(shm->local_to_machine);
    free(shm->local_to_rank);
    free(shm->srcs);
    free(shm);
}

static const tutti__node_ops_t shm_ops = {
    .name = "shm",
    .purpose = "shared memory: one-shot, two-shot and zero-copy kernels on the processor",
    .close = shm_close,
    .start = start,
    .step = step,
};

tutti_status_t tutti__shm_attach(const tutti__machine_t *machine, uint32_t nlocal, uint32_t me,
                                 const uint32_t *local_to_machine, const uint64_t *offset,
                                 const tutti__conf_shared_t *conf, tutti__node_t **ret_node)
{
    tutti__shm_t *shm = calloc(1, sizeof(*shm));

    if (shm == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/shm");
    shm->node.ops = &shm_ops;
    shm->machine = machine;
    shm->nlocal = nlocal;
    shm->me = me;
    shm->oneshot_bytes = oneshot_share(conf->oneshot_bytes, nlocal);
    shm->bulk_bytes = TUTTI__ROUND_UP(conf->node_chunk_bytes, 4096);
    shm->local_to_machine = calloc(nlocal, sizeof(*shm->local_to_machine));
    shm->local_to_rank = calloc(nlocal, sizeof(*shm->local_to_rank));
    shm->srcs = calloc((size_t)TUTTI__LANES * nlocal, sizeof(*shm->srcs));
    if (!shm->local_to_machine || !shm->local_to_rank || !shm->srcs)
        goto no_memory;
    for (uint32_t i = 0; i < nlocal; i++) {
        shm->local_to_machine[i] = local_to_machine[i];
        shm->local_to_rank[i] = machine->rank[local_to_machine[i]];
    }
    for (uint32_t i = 0; i < TUTTI__LANES; i++) {
        shm->lane[i].peer = calloc(nlocal, sizeof(*shm->lane[i].peer));
        if (shm->lane[i].peer == NULL)
            goto no_memory;
        for (uint32_t r = 0; r < nlocal; r++)
            find_peer(shm, machine->base[local_to_machine[r]] + offset[r], i,
                      &shm->lane[i].peer[r]);
    }
    *ret_node = &shm->node;
    return TUTTI_OK;

no_memory:
    shm_close(&shm->node);
    return tutti__fail(TUTTI_ERR_NO_MEMORY, "node/shm for %u ranks", nlocal);
}

/* Which ranks of the machine are on my host, and where their control areas are. */
static tutti_status_t attach_host(const tutti__machine_t *machine, const tutti__topo_t *topo,
                                  const uint64_t *offsets, const tutti__conf_shared_t *conf,
                                  tutti__node_t **ret_node)
{
    uint32_t host = topo->host_of[topo->rank], first = topo->host_first[host];
    uint32_t nlocal = topo->host_first[host + 1] - first;
    uint32_t *index = calloc(nlocal, sizeof(*index));
    uint64_t *offset = calloc(nlocal, sizeof(*offset));
    tutti_status_t status = TUTTI_OK;

    if (index == NULL || offset == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "node/shm for %u ranks", nlocal);
    for (uint32_t i = 0; status == TUTTI_OK && i < nlocal; i++) {
        uint32_t rank = topo->by_host[first + i];

        if (machine->index_of[rank] < 0)
            status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                                 "ranks %u and %u have the same "
                                 "TUTTI_HOST_ID but are on different machines",
                                 topo->rank, rank);
        else
            index[i] = (uint32_t)machine->index_of[rank];
        offset[i] = offsets[rank];
    }
    if (status == TUTTI_OK)
        status = tutti__shm_attach(machine, nlocal, topo->local_of[topo->rank], index, offset, conf,
                                   ret_node);
    free(offset);
    free(index);
    return status;
}

tutti_status_t tutti__shm_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                               const tutti__conf_shared_t *conf, tutti__node_t **ret_node)
{
    const tutti__topo_t *topo = tutti__boot_topo(boot);
    uint32_t host = topo->host_of[topo->rank];
    uint32_t nlocal = topo->host_first[host + 1] - topo->host_first[host];
    uint64_t mine = 0, *offsets = calloc(topo->size, sizeof(*offsets));
    tutti__conf_shared_t large;
    tutti__node_t *node = NULL;
    void *own = NULL;
    tutti_status_t status;

    if (offsets == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "table for %u ranks", topo->size);
    else
        status = tutti__arena_alloc(machine->arena,
                                    tutti__shm_control_bytes(nlocal, conf->oneshot_bytes), &own);
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK)
        goto free_own;
    tutti__arena_offset(machine->arena, own, 1, &mine);
    status = tutti__boot_allgather(boot, &mine, sizeof(mine), offsets);
    if (status != TUTTI_OK)
        goto free_own;
    /* A piece of each block must fit: there are at most as many blocks as ranks. */
    large = *conf;
    large.node_chunk_bytes =
        TUTTI__MAX(conf->node_chunk_bytes, (uint64_t)topo->size * TUTTI__LINE_BYTES);
    status = attach_host(machine, topo, offsets, &large, &node);
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK) {
        shm_close(node);
        goto free_own;
    }
    *ret_node = node;
    free(offsets);
    return TUTTI_OK;

free_own:
    tutti__arena_free(machine->arena, own);
    free(offsets);
    return status;
}
