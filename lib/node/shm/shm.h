/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations over shared memory: declarations for the files of this room.
 *
 * For each lane, each rank has this memory in its arena (mem/shared.h). Only the arena's owner
 * writes to it. But on a host with two ranks, each rank also writes to the other rank's slots.
 *
 *   announcement slot 0 | announcement slot 1 | progress | bulk slot 0 | bulk slot 1
 *
 * If the ranks form several groups (see Levels below), the leader of a group also has two
 * announcement slots for the group, behind progress.
 *
 * Announcements. Each operation begins with a meeting: each rank writes an announcement, and reads
 * all announcements. An announcement has the operation's number, its description, and the data if
 * the data fit (one-shot). Operation m uses slot m & 1. Two slots are enough: a rank announces m
 * only after it has finished m - 1. So if a rank has read all ranks' announcements of m, no rank
 * reads the other slot any more. No reset and no second barrier is needed. The meeting detects
 * ranks with different calls before any data is touched.
 *
 *   On a host with two ranks, both ranks exchange slots at each use: the rank that has read a slot
 *   writes it next, while the slot's lines are in its caches. Compared with slots that are not
 *   exchanged, allreduces of 1 to 8 KiB take 0.8 to 0.94 of the time, or 0.55 to 0.8 if the cores
 *   are far apart. Broadcasts, whose data moves in one direction only, take 1.03 of the time.
 *
 *   Tried, with the time on near cores and on far cores, relative to the present code:
 *      fetch lines for writing when they are read
 *          up to 512 bytes                               1.02          1.06
 *          1 to 16 KiB                                   1.04          0.92
 *      fetch the next slot's first line at the end of
 *      an operation                                      1.02 to 1.05  0.88 or 1.12
 *      exchange the slots of chunks as well: allgathers
 *      and alltoalls of 64 KiB to 16 MiB                 1.01          1.00 and 1.07
 *
 *   A peer's read moves the cache lines of an announcement to the peer's core. So a rank does not
 *   read its own announcement, except after a mismatch, or as the leader of a group. With 2 ranks
 *   on far cores, operations of 8 to 512 bytes take 0.2 us. Tried: each rank reads the first words
 *   of all announcements, its own included: 0.42 us.
 *
 * Chunks (two-shot). Larger data is cut into chunks, which pass through bulk slots. Chunk g,
 * counted over all operations of the lane, uses slot g & 1. Each rank executes three stages per
 * chunk, and counts each stage in its `progress`. "All OUT" are the counters OUT of all ranks:
 *      IN   copy to own slot the data that others reduce or read  needs: all OUT >= g - 1
 *      RED  reduce own part over all ranks' slots                 needs: all IN  >= g + 1
 *      OUT  copy other ranks' parts from their slots   needs: all RED >= g + 1, if it reduces
 *   So IN of chunk g + 1 overlaps with the peers' RED of chunk g. A reduce_scatter has no OUT. A
 *   reduce has OUT on the root only. Allgather, broadcast and alltoall have no RED. A rank's own
 *   part moves from sendbuf to recvbuf without a slot. In a reduce of three ranks all elements are
 *   the root's part.
 *
 *   OUT is counted even if it copies nothing, because OUT frees a slot.
 *
 *   In an allreduce or reduce of two ranks, RED reads its data from the peer's slot, and overwrites
 *   them there with the results. OUT copies from the rank's own slot. So a cache line of a slot
 *   moves to the other core once for RED and once for OUT. If RED wrote the results into the rank's
 *   own slot, each line would be fetched twice: for writing, because the line is in the other
 *   core's caches, and for reading. (Migratory sharing: Cox and Fowler, and Stenstrom, Brorsson and
 *   Sandberg, both ISCA 1993.) Because OUT reads the rank's own slot, IN also needs the rank's own
 *   OUT >= g - 1.
 *
 * Levels. Ranks near each other form a group (topo/core_groups.c). With several groups, meetings
 * and reductions work in two levels (levels.c): first in each group, then between the groups. All
 * kernels do this, so the bits of a result depend neither on sizes nor on the places of buffers.
 *
 * Zero-copy. If all buffers that other ranks would read or write are in arenas, each rank reduces
 * its part directly from the buffers. It writes the result to all ranks' buffers, or in a reduce to
 * the root's buffer. In an alltoall each rank reads the blocks of its result from the other ranks'
 * buffers, so an alltoall in place is excluded. A zero-copy operation counts as one chunk. It ends
 * when all ranks have counted RED, so no rank touches another rank's buffer afterwards. A rank that
 * gives up earlier, after an error or because it leaves, sets `gone`. Then it waits, for a limited
 * time, until no other rank has set `busy` (zero.c).
 *
 * There are no globals, so ranks may be threads of one process.
 */
#ifndef TUTTI__NODE_SHM_SHM_H
#define TUTTI__NODE_SHM_SHM_H

#include "base/constants.h"
#include "boot/machine.h"
#include "node/node.h"

#include <stddef.h>

/* the offset of a buffer that is not in the arena */
#define TUTTI__NO_OFFSET UINT64_MAX

/* Flags of an announcement. */
enum {
    TUTTI__COPIED = 1, /* IN of chunk 0 is done */
    TUTTI__FAILED = 2, /* this rank could not allocate its bulk slots */
    TUTTI__PRIVATE = 4 /* no zero-copy, for instance because a buffer is not in the arena */
};

/* The description of an operation that is not one-shot. */
typedef struct {
    uint64_t src_offset, dst_offset; /* in this rank's arena; NO_OFFSET: not there, or not needed */
    uint64_t bulk_offset;            /* offset of this rank's bulk slots */
    uint32_t flags;
} tutti__large_t;

/*
 * head and count have 16 bytes, so 48 bytes of data fit into the same cache line. Peers poll this
 * line while the rank writes the announcement, and each poll takes the line away from the rank. So
 * the rank makes few stores: first the data, then the count, and last the head, in one store.
 */
typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES)
    tutti__word64_t head; /* lower half: the operation's number; upper half: what_t, compare.c */
    uint64_t count;       /* elements in the call's whole map; the root in the upper 16 bits */
    union {
        char data[48]; /* one-shot; may continue behind the structure */
        uint32_t root; /* NODE_MEET */
        tutti__large_t large;
    } u;
} tutti__announce_t;

/* The lower half of a head: the operation's number. Peers may sleep on this word. */
static inline tutti__word_t *tutti__shm_seq(tutti__announce_t *announce)
{
    return (tutti__word_t *)&announce->head + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t in;
    tutti__word_t sum; /* with several groups only */
    tutti__word_t red;
    tutti__word_t out;
    tutti__word_t busy; /* zero-copy: 1 while this rank accesses other ranks' buffers */
    /* 1: this rank has given up an operation, so no other rank may begin work on this rank's
       buffers. `gone` has a cache line of its own: the other words change in each operation, but
       `gone` hardly ever changes, and other ranks read it in each zero-copy operation. */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t gone;
} tutti__progress_t;

/* Phases of an operation. */
typedef enum {
    SHM_IDLE,
    SHM_EARLY,
    SHM_MEET,
    SHM_CHUNKS,
    SHM_ZERO
} tutti__shm_phase_t;

/* Contiguous elements: their number, and their offset in the call's src and dst. */
typedef struct {
    size_t src, dst, count;
} tutti__shm_part_t;

/* A peer's memory for a lane, as mapped in this process. */
typedef struct {
    tutti__announce_t *announce[2]; /* the peer's slots; of two ranks: exchanged at each use */
    tutti__progress_t *progress;
    char *bulk; /* the peer's bulk slots in the current operation */
} tutti__shm_peer_t;

/* A group's announcement slot, in its leader's arena. The distance between the group's two slots
   is the distance between the leader's own slots. */
static inline tutti__announce_t *tutti__shm_of_group(const tutti__shm_peer_t *leader, uint32_t seq)
{
    ptrdiff_t slot = (char *)leader->announce[1] - (char *)leader->announce[0];

    return (tutti__announce_t *)((char *)(leader->progress + 1) + (seq & 1) * slot);
}

typedef struct {
    tutti__shm_peer_t *peer; /* [local size], this rank included */
    uint32_t seq;            /* number of the current operation */
    uint64_t head;           /* head of the operation's announcement, without seq */
    uint64_t count_word;     /* count of the operation's announcement */
    uint32_t base;           /* chunks of all earlier operations */
    char *bulk_memory;       /* memory of this rank's bulk slots; NULL: not allocated yet */

    /* The current operation. */
    const tutti__node_call_t *call;
    tutti__shm_phase_t phase;
    size_t esize;
    char *bulk;              /* this rank's bulk slots, within bulk_memory */
    tutti__large_t large;    /* this rank's description of the operation, unless one-shot */
    tutti__shm_part_t first; /* block 0; usually the only one */
    size_t count;            /* elements in all blocks */
    int oneshot;             /* the data are in the announcements */
    int simple;              /* one-shot allreduce of one block */
    int levels;              /* the operation reduces in two levels */
    int outgrows;            /* the results are too large for the caches */
    size_t largest;          /* elements in the largest block or, if the elements are cut into
                                shares (cut.c), in the largest share */
    size_t grain, place;     /* zero-copy, in bytes: shares end at multiples of grain (0: anywhere);
                                place: the destination's address modulo grain */
    uint32_t nblocks;        /* pieces per chunk; zero-copy: all pieces */
    size_t piece;            /* elements in the largest piece */
    uint32_t nchunks;
    uint32_t in, red, out; /* chunks of this operation that have passed each stage */
    uint32_t seen;         /* MEET: the ranks below this number have announced */
    int odd;               /* MEET: 1 if one of these ranks has announced another call */

    /* With several groups only; 0 between operations. */
    uint32_t sum;    /* chunks that have passed SUM */
    uint32_t heard;  /* MEET: the groups below this number have announced */
    uint32_t misses; /* polls of the awaited group's announcement */
} tutti__shm_lane_t;

typedef struct {
    tutti__node_t node;
    const tutti__boot_t *boot; /* for names of ranks; NULL: the world's */
    const tutti__machine_t *machine;
    uint32_t nlocal, me;        /* ranks of this host, and this rank's index */
    uint32_t *local_to_machine; /* [nlocal] index among the machine's ranks */
    uint32_t *local_to_rank;    /* [nlocal] */
    size_t oneshot_bytes;       /* limit of a rank's data in its announcement */
    size_t bulk_bytes;          /* data in one bulk slot */
    uint64_t outgrow_bytes;     /* results of at least this size outgrow the caches */
    const void **srcs;          /* [TUTTI__LANES][nlocal] source pointers for kernels */
    void **bufs;                /* the same for destination pointers */
    uint32_t ngroups, group;    /* number of groups, and this rank's group */
    uint32_t *group_first;      /* [ngroups + 1] index in by_group of a group's first rank, the
                                   leader */
    uint32_t *by_group;         /* [nlocal] ranks by group, ascending in each group */
    int in_order;               /* by_group is in the order of ranks */
    char *sums;                 /* [TUTTI__LANES][ngroups][TUTTI__SHM_SUM_BYTES], for zero-copy */
    tutti__shm_lane_t lane[TUTTI__LANES];
} tutti__shm_t;

static inline const void **tutti__shm_srcs(tutti__shm_t *shm, uint32_t lane)
{
    return shm->srcs + (size_t)lane * shm->nlocal;
}

static inline void **tutti__shm_bufs(tutti__shm_t *shm, uint32_t lane)
{
    return shm->bufs + (size_t)lane * shm->nlocal;
}

tutti__shm_part_t tutti__shm_find_block(const tutti__node_call_t *call, uint32_t j);

/* Block j of the operation, in the current trip. */
static inline tutti__shm_part_t tutti__shm_block(const tutti__shm_lane_t *lane, uint32_t j)
{
    return j == 0 ? lane->first : tutti__shm_find_block(lane->call, j);
}

static inline const char *tutti__shm_src(const tutti__shm_lane_t *lane, tutti__shm_part_t part)
{
    return (const char *)lane->call->src + part.src * lane->esize;
}

static inline char *tutti__shm_dst(const tutti__shm_lane_t *lane, tutti__shm_part_t part)
{
    return (char *)lane->call->dst + part.dst * lane->esize;
}

/* Local rank r's description of an operation that is not one-shot. */
static inline const tutti__large_t *tutti__shm_said(const tutti__shm_t *shm,
                                                    const tutti__shm_lane_t *lane, uint32_t r)
{
    return r == shm->me ? &lane->large : &lane->peer[r].announce[lane->seq & 1]->u.large;
}

/* Returns `part` of rank `from`'s data. at: the byte at which `part` begins in the data of that
   rank's announcement. */
static inline const char *tutti__shm_given(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                           uint32_t from, size_t at, tutti__shm_part_t part)
{
    return from == shm->me ? tutti__shm_src(lane, part)
                           : lane->peer[from].announce[lane->seq & 1]->u.data + at;
}

/* Does this operation reduce? */
static inline int tutti__shm_reduces(const tutti__shm_lane_t *lane)
{
    return lane->call->kind == TUTTI__NODE_ALLREDUCE || lane->call->kind == TUTTI__NODE_REDUCE ||
           lane->call->kind == TUTTI__NODE_REDUCE_SCATTER;
}

/* Does this rank get a result? A rank without a result needs no dst. */
static inline int tutti__shm_gets(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    return lane->call->kind != TUTTI__NODE_REDUCE || shm->me == lane->call->root;
}

/* Alltoall: block j of this rank's result is a block of another rank's data. Returns the index of
   that block on the other rank. */
static inline uint32_t tutti__shm_mine(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                       uint32_t j)
{
    return shm->me * lane->call->nblk + j % lane->call->nblk;
}

/* Wake the ranks that wait for a word. This rank must have written the word. In lane 0 the waiting
   ranks are in direct calls. In the other lanes the ranks' engines wait. */
static inline void tutti__shm_wake(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word)
{
    if (lane == 0) {
        tutti__machine_written(shm->machine, word);
        return;
    }
    /* Pairs with the fence between the engine's store of `sleeping` and the engine's last poll. */
    tutti__fence();
    for (uint32_t r = 0; r < shm->nlocal; r++)
        if (r != shm->me)
            tutti__machine_ring(shm->machine, shm->local_to_machine[r]);
}

/* Begin the lane's next operation, and return this rank's announcement slot. With two ranks this is
   the slot that this rank has read in the last operation of the same parity. */
static inline tutti__announce_t *tutti__shm_next(const tutti__shm_t *shm, tutti__shm_lane_t *lane)
{
    uint32_t parity = ++lane->seq & 1;
    tutti__announce_t **own = &lane->peer[shm->me].announce[parity];

    lane->in = lane->red = lane->out = 0;
    lane->seen = 0;
    lane->odd = 0;
    if (shm->nlocal == 2) {
        tutti__announce_t **its = &lane->peer[!shm->me].announce[parity], *mine = *its;

        *its = *own;
        *own = mine;
    }
    return *own;
}

/* Publish this rank's announcement: write count and head. The caller must have written the rest. */
static inline void tutti__shm_announce(tutti__shm_t *shm, uint32_t lane_index,
                                       tutti__announce_t *own)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];

    lane->phase = SHM_MEET;
    /* Write these two words last and together: a peer's poll between stores may take the line
       away. */
    own->count = lane->count_word;
    tutti__store64_release(&own->head, lane->head | lane->seq);
    tutti__shm_wake(shm, lane_index, tutti__shm_seq(own));
}

/* Write a word of this rank, and wake the ranks that wait for it. */
void tutti__shm_publish(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value);

/* Fill in the wait hint for a word of local rank `peer`; returns TUTTI__AGAIN. */
tutti_status_t tutti__shm_hint(const tutti__shm_t *shm, uint32_t peer, tutti__word_t *word,
                               uint32_t value, tutti__hint_t *hint);

/* compare.c: head and count of a call's announcement. */
uint64_t tutti__shm_head(const tutti__shm_lane_t *lane); /* without the operation's number */
uint64_t tutti__shm_count(const tutti__node_call_t *call);
/* Set the error text, which names the same two ranks on all ranks, and return MISMATCH. All
   announcements must have arrived, and two of them must differ. */
tutti_status_t tutti__shm_mismatch(const tutti__shm_t *shm, const tutti__shm_lane_t *lane);

/* shm.c: the step in phase SHM_EARLY. */
tutti_status_t tutti__shm_early(tutti__shm_t *shm, uint32_t lane, tutti__hint_t *hint);

/* shm.c: `start` of node.h. is_same: see `repeat` in node.h. */
void tutti__shm_start(tutti__shm_t *shm, uint32_t lane, const tutti__node_call_t *call,
                      int is_same);

/* repeat.c */
tutti_status_t tutti__shm_repeat(tutti__node_t *node, const tutti__node_call_t *call, int is_same,
                                 uint32_t looks, tutti__hint_t *hint);

/* The tables of operations that open.c uses: for one group, and for several. */
extern const tutti__node_ops_t tutti__shm_ops, tutti__shm_group_ops;
void tutti__shm_close(tutti__node_t *node);

/* cut.c: measure the current operation's data, and cut them into pieces. */
void tutti__shm_measure(tutti__shm_lane_t *lane);
void tutti__shm_cut(const tutti__shm_t *shm, tutti__shm_lane_t *lane);
/* For zero-copy: cut a share for each rank, also in a reduce of three ranks. */
void tutti__shm_cut_for_all(const tutti__shm_t *shm, tutti__shm_lane_t *lane);
/*
 * For zero-copy: let shares end at page borders of the destination. Small shares end at cache
 * lines. dst_offset: the destination's offset in the arena of the destination's rank, from that
 * rank's announcement. With other borders two ranks would write to one line, and a processor's
 * prefetch within a page would fetch lines of the other rank. Then 256 KiB in place would take
 * 0.3 us longer, 1.14 times the time (2 ranks, near cores).
 */
void tutti__shm_cut_at_pages(tutti__shm_lane_t *lane, uint64_t dst_offset);
uint32_t tutti__shm_owner(const tutti__shm_lane_t *lane, uint32_t j);
tutti__shm_part_t tutti__shm_extent(const tutti__shm_lane_t *lane, uint32_t j);
tutti__shm_part_t tutti__shm_piece(const tutti__shm_lane_t *lane, uint32_t j, uint32_t chunk);

/* Selects one of a peer's counters. */
typedef enum {
    SHM_RED,
    SHM_OUT
} tutti__shm_stage_t;

/* Processors do not prefetch across multiples of this number, and first compare addresses by the
   remainders modulo this number. The number does not depend on the system's page size. */
#define TUTTI__SHM_PAGE ((size_t)4096)

/* Distance of the two bulk slots. A slot may begin anywhere in a page: see place_bulk in shm.c. */
static inline size_t tutti__shm_slot_bytes(const tutti__shm_t *shm)
{
    return shm->bulk_bytes + TUTTI__SHM_PAGE;
}

/* chunks.c: the stages. */
size_t tutti__shm_slot_offset(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                              uint32_t chunk);
/* Block j's place in a rank's slot. */
char *tutti__shm_slot(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t rank,
                      uint32_t chunk, uint32_t j);
int tutti__shm_copies_in(const tutti__shm_t *shm, const tutti__shm_lane_t *lane);
/* Execute IN of a chunk, without counting the chunk. TUTTI__AGAIN: a peer still reads the slot. */
tutti_status_t tutti__shm_copy_in(tutti__shm_t *shm, uint32_t lane, uint32_t chunk,
                                  tutti__hint_t *hint);
tutti_status_t tutti__shm_chunks(tutti__shm_t *shm, uint32_t lane, tutti__hint_t *hint);
/* Have all peers' counters of a stage reached `target`? */
tutti_status_t tutti__shm_all_reached(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                      tutti__shm_stage_t stage, uint32_t target,
                                      tutti__hint_t *hint);

/* zero.c */
tutti_status_t tutti__shm_zero(tutti__shm_t *shm, uint32_t lane, tutti__hint_t *hint);
void tutti__shm_cancel(tutti__node_t *node, uint32_t lane);

/* ---- levels.c ---- */

/* The rank that sums up block j of a chunk for a group. */
static inline uint32_t tutti__shm_summer(const tutti__shm_t *shm, uint32_t group, uint32_t j)
{
    const uint32_t *first = &shm->group_first[group];

    return shm->by_group[first[0] + j % (first[1] - first[0])];
}

/* Sort ranks into groups. group_of: [nlocal] numbers from 0 without gaps; NULL: one group. */
tutti_status_t tutti__shm_make_groups(tutti__shm_t *shm, const uint32_t *group_of);
int tutti__shm_takes_levels(const tutti__shm_t *shm, const tutti__shm_lane_t *lane);
void tutti__shm_sum_chunk(tutti__shm_t *shm, uint32_t lane, uint32_t chunk);
tutti_status_t tutti__shm_all_sums(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                   uint32_t target, tutti__hint_t *hint);
/* Reduce srcs[nlocal] to dst in one pass, with the same bits as in two levels. srcs: in the order
   of by_group; this function overwrites the pointers. count: at most TUTTI__SHM_SUM_BYTES bytes. */
void tutti__shm_fold(tutti__shm_t *shm, uint32_t lane, void *dst, const void **srcs, size_t count);

/* Open the node of this host's ranks over `machine`. Collective over all ranks of boot. Uses
   oneshot_bytes, node_chunk_bytes, group_size and l3_bytes of *conf. */
tutti_status_t tutti__shm_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                               const tutti__conf_shared_t *conf, tutti__node_t **ret_node);
/* Make bulk slots large enough for operations of up to `nblocks` blocks: a slot needs space for a
   piece of each block. A local call. Make it before the first operation, with the same nblocks on
   all ranks of the host. */
void tutti__shm_hold_blocks(tutti__node_t *node, uint32_t nblocks);

/* Open over existing arenas, without boot: for tutti__shm_open and tests. The control area of local
   rank r has tutti__shm_control_bytes() zeroed bytes, and begins at offset[r] of the rank's arena.
   nlanes: the lanes that may be used. group_of: see tutti__shm_make_groups. */
size_t tutti__shm_control_bytes(uint32_t nlanes, uint32_t nlocal, int has_groups,
                                size_t oneshot_bytes);
tutti_status_t tutti__shm_attach(const tutti__machine_t *machine, uint32_t nlanes, uint32_t nlocal,
                                 uint32_t me, const uint32_t *local_to_machine,
                                 const uint64_t *offset, const uint32_t *group_of,
                                 const tutti__conf_shared_t *conf, tutti__node_t **ret_node);

#endif
