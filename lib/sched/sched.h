/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedule language: a collective algorithm as data.
 *
 * A schedule is the work of ONE rank: up to four streams, each a straight line of small operations
 * on blocks of named buffers. A schedule has no address, no datatype and no byte count, so calls
 * that differ only in these share it. The executor (exec/) runs schedules, the checker (check.h)
 * proves them, the printer (print.c) shows them.
 *
 * Channels. A channel is identified by (communicator, lane, source, destination, stream). The
 * stream in this name is the producing stream. A channel has one producing stream, one consuming
 * stream, and c >= 1 slots at the receiver, each for one message. Messages stay in order. SEND
 * waits only for a free slot, and copies its block into the slot. When SEND is done, its block may
 * be overwritten. If a transport has no slots, a message stays in the sender's block until the
 * receiver has reached the receiving operation; operations that overwrite the block wait until
 * then. All algorithms are also proved without slots (check.h). A receiving operation blocks its
 * stream until the message arrives. No operation depends on the order or time of arrivals.
 *
 * Only channels and WAIT order the operations of different streams.
 *
 * Chunk loops. LOOP ... END_LOOP repeats its body once per chunk. The number of chunks, T =
 * ceil(largest block / chunk), is equal on all ranks. Each operation has a shift, usually 0. In
 * trip t it works on chunk t - shift of each of its blocks, and is skipped if t - shift is not in
 * [0, T). A loop makes T + (its largest shift) trips, so it is a software pipeline. SEND, RECV and
 * RECV_REDUCE are in loops only. Other operations may also be outside of loops; there they work on
 * whole blocks. Loops do not nest. Both ends of a channel skip empty messages: each end finds the
 * length of a message in its block map.
 *
 * Blocks. IN is never written. Source and destination of an operation have equal sizes. They are
 * the same memory, or they do not overlap. The blocks at both ends of a message have equal sizes. A
 * schedule's `sizes` is its assumption about the lengths of blocks:
 *      BY_NUMBER  blocks with the same number modulo nblocks have the same length, on all ranks
 *      ALL_EQUAL  all blocks have the same length: they may be renumbered freely
 *      BY_PAIR    each rank has its own maps of IN and OUT. A block of IN is as long as the
 *                 block of OUT that receives it, on the same rank or another one (see coll.h).
 *                 Only SEND from IN, RECV to OUT, and COPY from IN to OUT are allowed, each of one
 *                 block
 *
 * Order of operands. The message of a RECV_REDUCE, or the source of a REDUCE, is the right operand;
 * with the flag LEFT it is the left operand. The order matters if the reduction does not commute.
 * Node operations reduce in the order of local ranks.
 *
 * The end of a reduction. The flag FINISH marks the operation that makes a result final; for AVG it
 * also divides. The last addition has this flag, even if a COPY follows: a stored sum is rounded to
 * its type, so a division in the COPY would round narrow floats a second time. A COPY, and a node
 * operation of a host's only rank, add nothing. They may have FINISH in two cases: if nothing was
 * added before, as with a single rank; and in a scan, which has no AVG and sends unfinished sums.
 *
 * Marks. An operation with the flag MARK makes a mark when it completes. WAIT(stream s, k), k >= 1,
 * in trip t blocks until stream s has made (t - shift) * M + k marks. M is the number of marks in
 * one trip of s's loop. Outside of loops, WAIT blocks until s has made k marks. An operation that
 * is skipped because of its shift makes no mark. An operation whose blocks are empty makes its
 * mark. Only one loop of a stream may have marks.
 *
 * Node operations are executed by the ranks of one host together. They are in stream 0 only, in the
 * same order on all ranks of the host. They work on `nparts` parts of nblk blocks each, beginning
 * at block sblk of the source and dblk of the destination. Part i belongs to local rank i. Local
 * ranks nparts and above have no part.
 *      NODE_ALLREDUCE       dst[all blocks] = reduction of src over the host's ranks, in rank order
 *                           (nparts is 1)
 *      NODE_REDUCE_SCATTER  dst[part i] = the same reduction, on local rank i only
 *      NODE_ALLGATHER       dst[part i] = src[part i] of local rank i, on all ranks
 *      NODE_BCAST           dst[all blocks] = src of local rank `arg` (nparts is 1)
 *      NODE_REDUCE          dst[all blocks] = the reduction, on local rank `arg` only; other ranks
 *                           need no dst (nparts is 1)
 *      NODE_ALLTOALL        dst[part r] = src[part me] of local rank r, for all r (nparts is the
 *                           number of the host's ranks, sizes are ALL_EQUAL)
 *
 * The scope of a schedule's node operations is the host, as above, or ALL. With scope ALL, all
 * ranks execute the operation together, in the order of ranks, as if they were on one host. Such a
 * schedule is a single node operation, for device memory. The executor runs it on a node
 * (node/node.h) of all ranks.
 */
#ifndef TUTTI__SCHED_SCHED_H
#define TUTTI__SCHED_SCHED_H

#include "sched/blockmap.h"

#include <tutti/tutti.h>

#include <stdio.h>

#define TUTTI__SCHED_STREAMS 4

typedef enum {
    TUTTI__SEND = 1,    /* send the src blocks as a message */
    TUTTI__RECV,        /* dst blocks = message */
    TUTTI__RECV_REDUCE, /* dst blocks = src blocks (op) message; LEFT: message (op) src */
    TUTTI__COPY,        /* dst blocks = src blocks */
    TUTTI__REDUCE,      /* dst blocks = dst blocks (op) src blocks; LEFT: src (op) dst */
    TUTTI__WAIT,        /* until stream `stream` has made `arg` marks, see above */
    TUTTI__LOOP,        /* arg: trips beyond T (the largest shift inside) */
    TUTTI__END_LOOP,    /* arg: index in `ops` of its LOOP */
    TUTTI__NODE_ALLREDUCE,
    TUTTI__NODE_REDUCE_SCATTER,
    TUTTI__NODE_ALLGATHER,
    TUTTI__NODE_BCAST,
    TUTTI__NODE_REDUCE,
    TUTTI__NODE_ALLTOALL,
    TUTTI__NODE_MEET /* not in schedules: only the executor starts it, see exec.h */
} tutti__op_kind_t;

/*
 * Named buffers. IN, OUT and STAGE have the call's block map. SCRATCH has blocks of one chunk each.
 * These are the same memory in every trip, and are used in loops only. In a trip, SCRATCH block i
 * has as many elements as this trip's chunk of block i % nblocks of the map. STAGE is host memory
 * for calls on device memory: it has a few chunks of some blocks, which are used in turn
 * (stage_trips). If stage_trips is 0, the schedule is for host memory, and STAGE is OUT itself.
 */
typedef enum {
    TUTTI__IN,
    TUTTI__OUT,
    TUTTI__SCRATCH,
    TUTTI__STAGE,
    TUTTI__BUFS
} tutti__buf_t;

enum {
    TUTTI__MARK = 1,   /* makes a mark when it completes */
    TUTTI__FINISH = 2, /* RECV_REDUCE, REDUCE, COPY, NODE_ALLREDUCE, NODE_REDUCE_SCATTER,
                          NODE_REDUCE: the result is final, so AVG divides here. Each output is
                          finished exactly once; see above */
    TUTTI__LEFT = 4    /* RECV_REDUCE, REDUCE: the message or source is the left operand */
};

/* Assumption about the lengths of blocks; see above. */
typedef enum {
    TUTTI__BY_NUMBER,
    TUTTI__ALL_EQUAL,
    TUTTI__BY_PAIR
} tutti__sizes_t;

/* The ranks that execute a node operation together; see above. */
typedef enum {
    TUTTI__SCOPE_HOST,
    TUTTI__SCOPE_ALL
} tutti__scope_t;

typedef struct {
    uint8_t kind;    /* tutti__op_kind_t */
    uint8_t flags;   /* TUTTI__MARK, TUTTI__FINISH, TUTTI__LEFT */
    uint8_t sbuf;    /* tutti__buf_t; SEND, RECV_REDUCE, COPY, REDUCE, NODE_* */
    uint8_t dbuf;    /* all operations that write */
    uint8_t shift;   /* in loops: the operation works on chunk (trip - shift) */
    uint8_t stream;  /* WAIT: the stream that makes the marks */
    uint16_t chan;   /* SEND, RECV, RECV_REDUCE: index into chans */
    uint32_t sblk;   /* first block read */
    uint32_t dblk;   /* first block written */
    uint32_t nblk;   /* number of blocks; NODE_*: in each part */
    uint16_t nparts; /* NODE_*: parts; otherwise 1 */
    uint16_t unused;
    int32_t arg; /* WAIT: marks; NODE_BCAST, NODE_REDUCE: the root; loops: see tutti__op_kind_t */
} tutti__op_t;

/* One end of a channel. */
typedef struct {
    uint32_t peer;   /* rank at the other end */
    uint8_t stream;  /* the producer's stream, part of the channel's name */
    uint8_t is_recv; /* 1: this rank consumes */
} tutti__sched_chan_t;

/* One rank's schedule. It may have no operations. It never changes once it is built, so several
   threads may use it at once. */
typedef struct {
    const char *name; /* name of the algorithm, for users; not owned */
    uint32_t rank, size;
    tutti__sizes_t sizes;
    uint32_t nblocks;        /* blocks of the call's block map */
    uint32_t scratch_blocks; /* blocks of SCRATCH, of one chunk each */
    uint32_t max_nblk;       /* largest number of blocks in a message; equal on all ranks. A chunk
                                is a slot's size / max_nblk, so every message fits its slot */
    uint32_t nops, nchans, nstreams;
    uint32_t first[TUTTI__SCHED_STREAMS + 1]; /* stream s begins at ops[first[s]]; last one: nops */
    uint32_t marks[TUTTI__SCHED_STREAMS];     /* M: marks in one trip of the stream's loop */
    int on_device; /* IN and OUT may be device memory, see tutti__sched_suits_device; equal on all
                      ranks */
    int is_read;   /* the schedule was read from a text. Its channels are valid, but it may lack
                      other properties of the library's own schedules, such as few channels */
    tutti__scope_t scope; /* scope of its node operations; equal on all ranks */
    /* If STAGE is separate memory, it has stage_trips chunks of each of stage_blocks blocks, from
       block stage_first on. Chunk t replaces chunk t - stage_trips. stage_trips is a power of two;
       if it is 0, STAGE is OUT. stage_blocks and stage_trips are equal on all ranks. */
    uint32_t stage_first, stage_blocks, stage_trips;
    tutti__op_t *ops;
    tutti__sched_chan_t *chans;
} tutti__sched_t;

/* sched may be NULL. */
void tutti__sched_free(tutti__sched_t *sched);

/*
 * May IN and OUT of this rank's schedule be device memory? Yes if
 *      - only node operations, and COPYs between IN, OUT and STAGE, touch IN and OUT
 *      - node operations touch no other buffer; if there are any, stream 0 begins with one of them
 *      - COPY divides (FINISH) only if there is a single rank
 *      - streams with channel operations have no operations on IN and OUT, and no shifts
 *      - STAGE is separate memory, and is used in loops
 * The fourth condition allows a chunk on the device to be longer than a message: see exec.h.
 */
int tutti__sched_suits_device(const tutti__sched_t *sched);

/* Does this node operation have a root, the local rank in `arg`? */
static inline int tutti__sched_has_root(unsigned kind)
{
    return kind == TUTTI__NODE_BCAST || kind == TUTTI__NODE_REDUCE;
}

/* Return a static name such as "RECV_REDUCE" or "OUT"; for an invalid number, "?". */
const char *tutti__sched_kind_name(unsigned kind);
const char *tutti__sched_buf_name(unsigned buf);

/* Write one operation as text, without a line break: "SEND OUT[2] to rank 1". Returns `buffer`. */
const char *tutti__sched_op_text(const tutti__sched_t *sched, const tutti__op_t *op, char *buffer,
                                 size_t bytes);

/* Print a schedule for users, one operation per line. tutti__sched_parse can read the text, unless
   the scope is ALL. */
void tutti__sched_print(const tutti__sched_t *sched, FILE *file);

/*
 * Read the schedules of all ranks from text: the output of tutti__sched_print for ranks 0, 1, ...,
 * one after another. `#` begins a comment. text.c has the grammar.
 *
 * name       name of the text in messages, and of the schedules; must live as long as they do
 * ret_sched  [size] schedules, which the caller frees one by one
 *
 * TUTTI_ERR_INVALID_ARGUMENT, with line and word: an error in the text, another number of ranks
 * than `size`, or a broken rule of the language. tutti__sched_check must prove the schedules.
 */
tutti_status_t tutti__sched_parse(const char *text, const char *name, uint32_t size,
                                  tutti__sched_t **ret_sched);

/* Find a text's number of ranks. TUTTI_ERR_INVALID_ARGUMENT: it does not begin with a schedule. */
tutti_status_t tutti__sched_text_ranks(const char *text, const char *name, uint32_t *ret_size);

#endif
