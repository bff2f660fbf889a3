/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedule language: a collective algorithm as data.
 *
 * A schedule is what ONE rank does: up to four streams, each a straight line of small operations on
 * blocks of named buffers. It holds no address, no datatype and no byte count, so one schedule
 * serves every call of its kind. The executor (exec/) runs it, the checker proves it, the simulator
 * costs it, the printer shows it.
 *
 * Channels. (communicator, lane, source, destination, stream) is a channel: one producing stream,
 *   one consuming stream, first in first out, with c >= 1 slots at the receiver. SEND captures the
 *   value: it is done when its block may be overwritten, and waits for nothing but a free slot. A
 *   receive blocks its stream. No operation sees arrival order or time. The stream is the
 *   producer's; a channel (source, destination, stream) is consumed by one stream only.
 *
 * Streams are ordered only by channels and by WAIT.
 *
 * Chunk loops. LOOP ... END_LOOP repeats its body once per chunk, trips T = ceil(largest block /
 *   chunk), equal on all ranks. In trip t an operation works on chunk t - shift of each of its
 *   blocks, and is skipped where that is not in [0, T). A loop runs T + (largest shift in it)
 *   trips: that is a software pipeline. Channel operations stand in loops only; others may stand
 *   outside and then work on whole blocks. Loops do not nest. Empty messages are skipped on both
 *   sides, which works because both know the block map.
 *
 * Blocks. IN is never written. Source and destination of an operation are blocks of equal sizes,
 *   and so are both ends of a message; they are the same blocks of the same buffer or do not
 *   overlap. How a schedule knows sizes is its `sizes`:
 *      BY_NUMBER  blocks with the same number modulo nblocks are equally long, on all ranks
 *      ALL_EQUAL  all blocks are equally long: they may be renumbered freely
 *      BY_PAIR    IN and OUT have maps of their own, known to this rank only. Blocks of IN are as
 *                 long as their counterparts in OUT of another rank (see the collective, coll.h).
 *                 Only SEND from IN, RECV to OUT, and COPY from IN to OUT, a block at a time
 *
 * Order of operands. RECV_REDUCE and REDUCE put what arrives (the message, src) to the right of
 *   what is there; flagged LEFT, to its left. It matters to operations that do not commute. Node
 *   operations reduce in the order of local ranks.
 *
 * The end of a reduction. FINISH stands on the last addition, wherever its result goes first: a
 *   stored sum is rounded to its type, and dividing it later would round narrow floats twice. On a
 *   COPY, and on a node operation of a host's only rank, it is right where nothing was added up,
 *   as with one rank; and in scans, which have no AVG and pass on what is not finished.
 *
 * Marks. An operation flagged MARK counts when it completes. WAIT(stream s, k) in trip t blocks
 *   until stream s has completed (t - shift) * M + k marks, k >= 1, M being the marks in one trip
 *   of s's loop; outside loops, k marks. Operations skipped by their shift do not count. (Empty
 *   ones do.) Only one loop of a stream may hold marks.
 *
 * Node operations are done by the ranks of one host as a whole. They stand in stream 0 only, in the
 *   same order on all ranks of the host. They work on `nparts` parts of nblk blocks each,
 *   beginning at block sblk of IN/OUT/... and dblk of the destination; part i belongs to local
 *   rank i; a local rank from nparts on has no part.
 *      NODE_ALLREDUCE       dst[all blocks] = reduction of src over the host's ranks, in rank order
 *                           (nparts is 1)
 *      NODE_REDUCE_SCATTER  dst[part i] = the same, on local rank i only
 *      NODE_ALLGATHER       dst[part i] = src[part i] of local rank i, on all
 *      NODE_BCAST           dst[all blocks] = src of local rank `arg` (nparts is 1)
 *      NODE_REDUCE          dst[all blocks] = the reduction, on local rank `arg` only; the others
 *                           need have no dst (nparts is 1)
 *      NODE_ALLTOALL        dst[part r] = src[part me] of local rank r, for all r (nparts is the
 *                           number of the host's ranks, sizes are ALL_EQUAL)
 *
 * Flat schedules are one node operation and nothing else, for device memory: that of all ranks, in
 *   their order, as if they were on one host. The executor needs a node of all ranks for it.
 */
#ifndef TUTTI__SCHED_SCHED_H
#define TUTTI__SCHED_SCHED_H

#include "sched/blockmap.h"

#include <tutti/tutti.h>

#include <stdio.h>

#define TUTTI__SCHED_STREAMS 4

typedef enum {
    TUTTI__SEND = 1,    /* send src blocks to channel */
    TUTTI__RECV,        /* dst blocks = message */
    TUTTI__RECV_REDUCE, /* dst blocks = src blocks (op) message; LEFT: message (op) src */
    TUTTI__COPY,        /* dst blocks = src blocks */
    TUTTI__REDUCE,      /* dst blocks = dst blocks (op) src blocks; LEFT: src (op) dst */
    TUTTI__WAIT,        /* until stream `stream` has `arg` marks, see above */
    TUTTI__LOOP,        /* arg: trips beyond T (the largest shift inside) */
    TUTTI__END_LOOP,    /* arg: index of its LOOP in ops */
    TUTTI__NODE_ALLREDUCE,
    TUTTI__NODE_REDUCE_SCATTER,
    TUTTI__NODE_ALLGATHER,
    TUTTI__NODE_BCAST,
    TUTTI__NODE_REDUCE,
    TUTTI__NODE_ALLTOALL,
    TUTTI__NODE_MEET /* not in schedules: the executor's own, see exec.h */
} tutti__op_kind_t;

/*
 * Named buffers. IN, OUT and STAGE share the call's block map. SCRATCH has blocks of one chunk
 * each, the same memory in every trip, and stands in loops only; an operation uses as many elements
 * of SCRATCH block i as block i % nblocks of the map has in this trip. STAGE is host memory next to
 * device buffers: a few chunks of some blocks, used in turn (stage_trips). Schedules that do not
 * say how many are for host memory, where STAGE is OUT itself.
 */
typedef enum {
    TUTTI__IN,
    TUTTI__OUT,
    TUTTI__SCRATCH,
    TUTTI__STAGE,
    TUTTI__BUFS
} tutti__buf_t;

enum {
    TUTTI__MARK = 1,   /* counts for WAIT when it completes */
    TUTTI__FINISH = 2, /* RECV_REDUCE, REDUCE, COPY, NODE_ALLREDUCE, NODE_REDUCE_SCATTER,
                          NODE_REDUCE: this result is final, so AVG divides here; exactly once on
                          the way to each output; see above */
    TUTTI__LEFT = 4    /* RECV_REDUCE, REDUCE: what arrives is the left operand */
};

/* How a schedule knows the lengths of blocks; see above. */
typedef enum {
    TUTTI__BY_NUMBER,
    TUTTI__ALL_EQUAL,
    TUTTI__BY_PAIR
} tutti__sizes_t;

typedef struct {
    uint8_t kind;    /* tutti__op_kind_t */
    uint8_t flags;   /* TUTTI__MARK, TUTTI__FINISH, TUTTI__LEFT */
    uint8_t sbuf;    /* tutti__buf_t; SEND, RECV_REDUCE, COPY, REDUCE, NODE_* */
    uint8_t dbuf;    /* all that write */
    uint8_t shift;   /* in loops: works on chunk (trip - shift) */
    uint8_t stream;  /* WAIT: whose marks */
    uint16_t chan;   /* SEND, RECV, RECV_REDUCE: index into chans */
    uint32_t sblk;   /* first block read */
    uint32_t dblk;   /* first block written */
    uint32_t nblk;   /* blocks (NODE_*: per part) */
    uint16_t nparts; /* NODE_*: parts; else 1 */
    uint16_t unused;
    int32_t arg; /* WAIT: marks; LOOP, END_LOOP, NODE_BCAST, NODE_REDUCE: see there */
} tutti__op_t;

/* One end of a channel. */
typedef struct {
    uint32_t peer;   /* rank at the other end */
    uint8_t stream;  /* the producer's stream: part of the channel's name */
    uint8_t is_recv; /* 1: this rank consumes */
} tutti__sched_chan_t;

/* One rank's schedule; may have no operations at all. Immutable once built; may be used by several
   threads at once. */
typedef struct {
    const char *name; /* of the algorithm, for people; static */
    uint32_t rank, size;
    tutti__sizes_t sizes;
    uint32_t nblocks;        /* of the call's block map */
    uint32_t scratch_blocks; /* each of one chunk */
    uint32_t max_nblk;       /* most blocks in one message; equal on all ranks. A chunk is a slot's
                                size / max_nblk, so that every message fits its slot */
    uint32_t nops, nchans, nstreams;
    uint32_t first[TUTTI__SCHED_STREAMS + 1]; /* stream s is ops[first[s]] to ops[first[s + 1]] */
    uint32_t marks[TUTTI__SCHED_STREAMS];     /* M: marks in one trip of the stream's loop */
    int on_device; /* IN and OUT may be device memory, see tutti__sched_suits_device; equal on all
                      ranks */
    int is_read; /* from a text, so of its channels no more is known than that they are right */
    int flat;      /* its node operation is that of all ranks; equal on all ranks; see above */
    /* STAGE, where it is memory of its own: blocks stage_first to stage_first + stage_blocks - 1
       only, and stage_trips chunks of each: chunk t is where chunk t - stage_trips was. A power of
       two; 0: STAGE is OUT. stage_blocks and stage_trips are equal on all ranks. */
    uint32_t stage_first, stage_blocks, stage_trips;
    tutti__op_t *ops;
    tutti__sched_chan_t *chans;
} tutti__sched_t;

/* NULL is fine. */
void tutti__sched_free(tutti__sched_t *sched);

/*
 * May IN and OUT of what this rank does be device memory? If
 *      - nothing but node operations and COPY touches them, and COPY between the two and with STAGE
 *      - node operations touch nothing else, and begin stream 0 where there are any
 *      - COPY divides (FINISH) where there is one rank only
 *      - streams with channel operations have no others on IN and OUT, and no shifts
 *      - STAGE is memory of its own, and stands in loops
 * The last but one is why a chunk on the device may be longer than a message, see exec.h.
 */
int tutti__sched_suits_device(const tutti__sched_t *sched);

/* Has this node operation a root, the local rank in `arg`? */
static inline int tutti__sched_has_root(unsigned kind)
{
    return kind == TUTTI__NODE_BCAST || kind == TUTTI__NODE_REDUCE;
}

/* "RECV_REDUCE", "OUT"; "?" for what is none. Static. */
const char *tutti__sched_kind_name(unsigned kind);
const char *tutti__sched_buf_name(unsigned buf);

/* One operation in one line, without its end: "SEND OUT[2] to rank 1". `buffer` is returned. */
const char *tutti__sched_op_text(const tutti__sched_t *sched, const tutti__op_t *op, char *buffer,
                                 size_t bytes);

/* Print for people, one operation a line. What is printed can be read back, but for what is flat:
   that is no user's to write. */
void tutti__sched_print(const tutti__sched_t *sched, FILE *file);

/*
 * Read the schedules of all ranks from text: what tutti__sched_print wrote for rank 0, 1, ... one
 * after another; `#` begins a comment. See text.c for the grammar.
 *
 * name       of the text, for messages; lives as long as the schedules, and is their name
 * ret_sched  [size] to be freed one by one
 *
 * TUTTI_ERR_INVALID_ARGUMENT, naming line and word; or if the text has not `size` ranks, or breaks
 * a rule of the language. What the schedules compute is for tutti__sched_check to say.
 */
tutti_status_t tutti__sched_parse(const char *text, const char *name, uint32_t size,
                                  tutti__sched_t **ret_sched);

/* How many ranks a text is for, by its first line. TUTTI_ERR_INVALID_ARGUMENT: it has no such. */
tutti_status_t tutti__sched_text_ranks(const char *text, const char *name, uint32_t *ret_size);

#endif
