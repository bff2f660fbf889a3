/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations over shared memory: what the files of this room share.
 *
 * Each rank has, per lane, in its own arena (only the owner writes there, but for what two ranks
 * hand to and fro):
 *
 *   announcement slot 0 | announcement slot 1 | progress | bulk slot 0 | bulk slot 1
 *
 * and, with several groups, behind progress two slots for its group's, if it leads one.
 *
 * Announcements. Every operation, whatever its kernel, begins with one: the operation's number and
 *   its description, and the data itself when it fits (one-shot). Everybody reads everybody's. That
 *   is why two slots are enough: a rank announces m only when it is through with m - 1, so seeing
 *   all m proves that nobody reads slot (m + 1) & 1 any more. No reset, no second barrier. It
 *   is also where ranks that came with different calls find out, before anything is touched.
 *
 *   Of two ranks the slots change hands each time they are used: who has read one writes it the
 *   next time, while its lines are in that rank's caches. Allreduces of 1 to 8 KiB take 0.8 to 0.94
 *   of the time, 0.55 to 0.8 where the cores are far apart; broadcasts, which go one way, 1.03.
 *   Fetching lines to write when they are read: up to 512 bytes 1.02 of the time, far 1.06; 1 to 16
 *   KiB 1.04, far 0.92. The next slot's first line at the end of an operation: 1.02 to 1.05, far
 *   0.88 or 1.12. The slots of chunks, too, of allgathers and alltoalls of 64 KiB to 16 MiB: 1.01,
 *   far 1.00 and 1.07. Not done.
 *
 *   When all goes well nobody reads his own announcement, but for a group's leader: a peer that has
 *   read it has taken its lines away. Of 2 ranks far apart 8 to 512 bytes take 0.2 us so, and took
 *   0.42 when each looked at all heads, at its own too.
 *
 * Chunks (two-shot). Larger data goes through bulk slots, cut into chunks; chunk g of the lane's
 *   life uses slot g & 1. Each rank passes three stages per chunk and counts them in its progress:
 *      IN   copy what others shall reduce or read into my slot    needs: all OUT >= g - 1
 *      RED  reduce my part over all ranks' slots                  needs: all IN  >= g + 1
 *      OUT  copy what others own from their slots     needs: all RED >= g + 1, if it reduces
 *   so IN of chunk g + 1 overlaps with the peers' RED of chunk g. Reduce-scatter has no OUT, a
 *   reduce has it on root only; allgather, broadcast and alltoall have no RED. My own part goes
 *   from sendbuf to recvbuf without the slot. Of three ranks' reduce all is the root's part.
 *
 *   OUT is counted by all kernels, also where nothing is copied: it is what frees a slot.
 *
 *   Of two ranks' allreduce and reduce results go back: RED writes them over the data that it
 *   reads, in the peer's slot, and OUT copies from my own. So a cache line of a slot changes hands
 *   once for RED and once for OUT. Were results in the owner's slot, each would be fetched twice:
 *   to be written, as the other has it from the last time, and to be read. (Migratory sharing: Cox
 *   and Fowler, ISCA 1993; Stenstrom, Brorsson and Sandberg, the same.) IN then needs my own OUT >=
 *   g - 1, too.
 *
 * Levels. Ranks that are near each other are a group (topo/groups.c); where there are several,
 *   meetings and what reduces work in two levels: levels.c. Results then are folds of groups' folds
 *   in all kernels, so their bits depend neither on sizes nor on where buffers are.
 *
 * Zero-copy. If all buffers that others would read or write are in arenas, each rank reduces its
 *   part over the buffers themselves and writes the result to all of them, or to the root's. Of an
 *   alltoall each fetches its own; in place that would overwrite what others fetch. It counts as
 *   one chunk, and ends when all have RED, so nobody touches another's buffer afterwards.
 *
 * No globals; ranks may be threads of one process.
 */
#ifndef TUTTI__NODE_SHM_SHM_H
#define TUTTI__NODE_SHM_SHM_H

#include "boot/machine.h"
#include "node/node.h"

#include <stddef.h>

/* "not in the arena" */
#define TUTTI__NO_OFFSET UINT64_MAX

/* Flags of an announcement. */
enum {
    TUTTI__COPIED = 1,  /* chunk 0 is in the bulk slot already: counts as IN */
    TUTTI__FAILED = 2,  /* this rank could not make its bulk slots */
    TUTTI__PRIVATE = 4  /* a buffer that zero-copy needs is not in the arena: there is none */
};

/* An operation that is not one-shot. */
typedef struct {
    uint64_t src_offset, dst_offset; /* in this rank's arena; or NO_OFFSET, where PRIVATE or not
                                        needed */
    uint64_t bulk_offset;            /* of its bulk slots */
    uint32_t flags;
} tutti__large_t;

/*
 * The head is 16 bytes, so 48 bytes of data travel in the same cache line. Peers read the line
 * again and again while it is written, and each read takes it away from the writer; so it is
 * written with few stores: data, count, and last, in one store, number and description.
 */
typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES)
    tutti__word64_t head; /* the operation's
                                                             number, and above it meet.c's what_t */
    uint64_t count; /* elements in the call's whole map; its upper 16 bits: see tutti__shm_count */
    union {
        char data[48]; /* one-shot: goes on behind the structure */
        uint32_t root; /* NODE_MEET */
        tutti__large_t large;
    } u;
} tutti__announce_t;

/* The lower half of a head: the operation's number; peers may sleep on it. */
static inline tutti__word_t *tutti__shm_seq(tutti__announce_t *announce)
{
    return (tutti__word_t *)&announce->head + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t in;
    tutti__word_t sum; /* two levels only */
    tutti__word_t red;
    tutti__word_t out;
} tutti__progress_t;

/* Where an operation stands. */
typedef enum {
    SHM_IDLE,
    SHM_EARLY,
    SHM_MEET,
    SHM_CHUNKS,
    SHM_ZERO
} tutti__shm_phase_t;

/* Elements that belong together: how many, and how far behind the call's src and dst. */
typedef struct {
    size_t src, dst, count;
} tutti__shm_part_t;

/* A peer's part of a lane, as mapped here. */
typedef struct {
    tutti__announce_t *announce[2]; /* of two ranks the other's every other time */
    tutti__progress_t *progress;
    char *bulk; /* of the present operation */
} tutti__shm_peer_t;

/* Where a leader announces for its group: as far from each other as its own two. */
static inline tutti__announce_t *tutti__shm_of_group(const tutti__shm_peer_t *leader, uint32_t seq)
{
    ptrdiff_t slot = (char *)leader->announce[1] - (char *)leader->announce[0];

    return (tutti__announce_t *)((char *)(leader->progress + 1) + (seq & 1) * slot);
}

typedef struct {
    tutti__shm_peer_t *peer; /* [local size], me too */
    uint32_t seq;            /* of the present operation */
    uint64_t head;           /* of its announcement.. */
    uint64_t count_word;     /* ..and its count */
    uint32_t base;           /* chunks of all earlier operations */
    char *bulk_room;         /* for my bulk slots, or NULL: not made yet */

    /* the present operation */
    const tutti__node_call_t *call;
    tutti__shm_phase_t phase;
    size_t esize;
    char *bulk;              /* my bulk slots, within their room */
    tutti__large_t large;    /* what I announce of it, unless that is the data */
    tutti__shm_part_t first; /* its block 0; mostly there is no other */
    size_t count;            /* elements in all its blocks */
    int oneshot;             /* they go into announcements */
    int simple;              /* ..of an allreduce, as one block */
    int levels;              /* it reduces in two levels */
    int outgrows;            /* ..and no cache keeps all ranks' results */
    size_t largest;          /* in its largest block; of shares, in each but the last ones */
    size_t grain, place;     /* zero-copy: shares' borders are multiples of grain, 0: any, in a
                                destination that begins at place */
    uint32_t nblocks;        /* pieces per chunk, or of zero-copy */
    size_t piece;            /* elements in the largest */
    uint32_t nchunks;
    uint32_t in, red, out; /* chunks of this operation through each stage */
    uint32_t seen;         /* MEET: announcements of ranks below are there */
    int odd;               /* ..and of one the head or the count is not mine */

    /* several groups only; 0 between operations */
    uint32_t sum;    /* chunks through SUM */
    uint32_t heard;  /* MEET: announcements of groups below are there */
    uint32_t misses; /* looks at the next one's */
} tutti__shm_lane_t;

typedef struct {
    tutti__node_t node;
    const tutti__boot_t *boot; /* for the names of ranks; NULL: the world's */
    const tutti__machine_t *machine;
    uint32_t nlocal, me;        /* ranks of this host, and which am I */
    uint32_t *local_to_machine; /* [nlocal] index among the machine's ranks */
    uint32_t *local_to_rank;    /* [nlocal] */
    size_t oneshot_bytes;       /* per rank: the most data in an announcement */
    size_t bulk_bytes;          /* data in one bulk slot */
    uint64_t outgrow_bytes;     /* per rank: the smallest message whose results no cache keeps */
    const void **srcs;          /* [TUTTI__LANES][nlocal] for kernels */
    void **bufs;                /* the same, for those that write */
    uint32_t ngroups, group;    /* groups of ranks, and which is mine */
    uint32_t *group_first;      /* [ngroups + 1] into by_group; the first rank there leads it */
    uint32_t *by_group;         /* [nlocal] group by group, ascending in each */
    int in_order;               /* by_group is in the order of ranks */
    char *sums;                 /* [TUTTI__LANES][ngroups][TUTTI__SUM_BYTES], for zero-copy */
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

/* Block j of the operation, as the present trip sees it. */
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

/* What local rank r announced of an operation that is not one-shot. */
static inline const tutti__large_t *tutti__shm_said(const tutti__shm_t *shm,
                                                    const tutti__shm_lane_t *lane, uint32_t r)
{
    return r == shm->me ? &lane->large : &lane->peer[r].announce[lane->seq & 1]->u.large;
}

/* Where rank `from` announced its data, `at` bytes behind the begin. */
static inline const char *tutti__shm_given(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                           uint32_t from, size_t at, tutti__shm_part_t part)
{
    return from == shm->me ? tutti__shm_src(lane, part)
                           : lane->peer[from].announce[lane->seq & 1]->u.data + at;
}

/* Is this one of the operations that reduce? */
static inline int tutti__shm_reduces(const tutti__shm_lane_t *lane)
{
    return lane->call->kind == TUTTI__NODE_ALLREDUCE || lane->call->kind == TUTTI__NODE_REDUCE ||
           lane->call->kind == TUTTI__NODE_REDUCE_SCATTER;
}

/* Does this rank get a result? Else it may have no dst. */
static inline int tutti__shm_gets(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    return lane->call->kind != TUTTI__NODE_REDUCE || shm->me == lane->call->root;
}

/* Alltoall: my block j is which block of the rank that it comes from? */
static inline uint32_t tutti__shm_mine(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                       uint32_t j)
{
    return shm->me * lane->call->nblk + j % lane->call->nblk;
}

/* Wake who waits for a word of mine, which was written, in the manner of the lane. */
static inline void tutti__shm_wake(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word)
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

/* The lane's next operation: returns where I announce it. Of two ranks that is the slot of its
   parity that I read the last time. */
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

/* What else belongs into my announcement is there. */
static inline void tutti__shm_announce(tutti__shm_t *shm, uint32_t lane_index,
                                       tutti__announce_t *own)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];

    lane->phase = SHM_MEET;
    /* Not earlier: between two stores to it a peer that looks may take the line away. */
    own->count = lane->count_word;
    tutti__store64_release(&own->head, lane->head | lane->seq);
    tutti__shm_wake(shm, lane_index, tutti__shm_seq(own));
}

/* Write one of my words and wake who waits for it, in the manner of the lane. */
void tutti__shm_publish(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value);

/* Fill in *stuck for a word of local rank `peer`; returns TUTTI__AGAIN. */
tutti_status_t tutti__shm_stuck(const tutti__shm_t *shm, uint32_t peer, tutti__word_t *word,
                                uint32_t value, tutti__stuck_t *stuck);

/* meet.c: what a rank came with. */
uint64_t tutti__shm_head(const tutti__shm_lane_t *lane); /* without the number */
uint64_t tutti__shm_count(const tutti__node_call_t *call);
/* Everybody's announcement is there, and they are not alike: MISMATCH, naming the same two ranks on
   all of them. */
tutti_status_t tutti__shm_mismatch(const tutti__shm_t *shm, const tutti__shm_lane_t *lane);

/* shm.c: SHM_EARLY. */
tutti_status_t tutti__shm_early(tutti__shm_t *shm, uint32_t lane, tutti__stuck_t *stuck);

/* repeat.c */
tutti_status_t tutti__shm_repeat(tutti__node_t *node, const tutti__node_call_t *call,
                                 uint32_t looks, tutti__stuck_t *stuck);

/* The tables of operations that open.c hands out: for one group, and for several. */
extern const tutti__node_ops_t tutti__shm_ops, tutti__shm_group_ops;
void tutti__shm_close(tutti__node_t *node);

/* cut.c: how the present operation is cut. */
void tutti__shm_measure(tutti__shm_lane_t *lane);
void tutti__shm_cut(const tutti__shm_t *shm, tutti__shm_lane_t *lane);
/* For zero-copy: all ranks work, however few they are. */
void tutti__shm_cut_for_all(const tutti__shm_t *shm, tutti__shm_lane_t *lane);
/*
 * For zero-copy: shares end at page borders of a destination at dst_offset, as announced; small
 * shares end at cache lines. Otherwise two ranks would write to one line, and a processor's
 * prefetch within a page would take away the other rank's lines: 0.3 us, 1.14 times the time of 256
 * KiB in place (2 ranks, near).
 */
void tutti__shm_cut_at_pages(tutti__shm_lane_t *lane, uint64_t dst_offset);
uint32_t tutti__shm_owner(const tutti__shm_lane_t *lane, uint32_t j);
tutti__shm_part_t tutti__shm_extent(const tutti__shm_lane_t *lane, uint32_t j);
tutti__shm_part_t tutti__shm_piece(const tutti__shm_lane_t *lane, uint32_t j, uint32_t chunk);

/* Which of a peer's counters. */
typedef enum {
    SHM_RED,
    SHM_OUT
} tutti__shm_stage_t;

/* The block across whose border processors do not prefetch, and the part of an address that they
   compare first. It does not depend on the system's page size. */
#define TUTTI__SHM_PAGE ((size_t)4096)

/* From one bulk slot to the other. A slot begins anywhere in a page: see place_bulk in shm.c. */
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
/* TUTTI__AGAIN while a peer still reads the slot. Does not publish. */
tutti_status_t tutti__shm_copy_in(tutti__shm_t *shm, uint32_t lane, uint32_t chunk,
                                  tutti__stuck_t *stuck);
tutti_status_t tutti__shm_chunks(tutti__shm_t *shm, uint32_t lane, tutti__stuck_t *stuck);
/* Have all peers' counters of a stage reached `target`? */
tutti_status_t tutti__shm_all_reached(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                      tutti__shm_stage_t stage, uint32_t target,
                                      tutti__stuck_t *stuck);

/* zero.c */
tutti_status_t tutti__shm_zero(tutti__shm_t *shm, uint32_t lane, tutti__stuck_t *stuck);

/* ---- levels.c ---- */

/* Of each group in zero-copy: together they should stay in the first cache. */
#define TUTTI__SUM_BYTES 2048

/* Who sums up block j of a chunk for a group. */
static inline uint32_t tutti__shm_summer(const tutti__shm_t *shm, uint32_t group, uint32_t j)
{
    const uint32_t *first = &shm->group_first[group];

    return shm->by_group[first[0] + j % (first[1] - first[0])];
}

/* Sort ranks into groups. group_of: [nlocal] numbers from 0, none left out; NULL: one group. */
tutti_status_t tutti__shm_make_groups(tutti__shm_t *shm, const uint32_t *group_of);
int tutti__shm_takes_levels(const tutti__shm_t *shm, const tutti__shm_lane_t *lane);
void tutti__shm_sum_chunk(tutti__shm_t *shm, uint32_t lane, uint32_t chunk);
tutti_status_t tutti__shm_all_sums(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                   uint32_t target, tutti__stuck_t *stuck);
/* Fold srcs[nlocal], in the order of by_group, as two levels do, in one go; at most
   TUTTI__SUM_BYTES of each. The pointers are lost. */
void tutti__shm_fold(tutti__shm_t *shm, uint32_t lane, void *dst, const void **srcs, size_t count);

/* The whole room: ranks of my host over `machine`. conf: oneshot_bytes, node_chunk_bytes,
   group_size. Collective over all ranks of boot. */
tutti_status_t tutti__shm_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                               const tutti__conf_shared_t *conf, tutti__node_t **ret_node);

/* For tests: the same over arenas that are there already, without boot. `offset`: of each local
   rank's control area, of tutti__shm_control_bytes() zeroed bytes, in its arena. group_of: as for
   tutti__shm_make_groups. */
size_t tutti__shm_control_bytes(uint32_t nlocal, int has_groups, size_t oneshot_bytes);
tutti_status_t tutti__shm_attach(const tutti__machine_t *machine, uint32_t nlocal, uint32_t me,
                                 const uint32_t *local_to_machine, const uint64_t *offset,
                                 const uint32_t *group_of, const tutti__conf_shared_t *conf,
                                 tutti__node_t **ret_node);

#endif
