/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the checker: the state of one symbolic run. Only sched/check*.c include this.
 *
 *      check.c          the whole check
 *      check_promise.c  the promise: existing blocks, and their content at the end
 *      check_make.c     set-up: streams, cells and initial values, channels, hosts
 *      check_run.c      streams and channels: the Kahn network
 *      check_sends.c    messages without slots: which operations wait for a SEND
 *      check_node.c     node operations: the meeting of a host's ranks
 *      check_cells.c    blocks and their values; order of the streams that touch them
 *      check_stuck.c    the chain of waiting streams in a deadlock
 *
 * Functions that can find an error return 1, or 0 after they have called tutti__check_blame().
 */
#ifndef TUTTI__SCHED_CHECK_RUN_H
#define TUTTI__SCHED_CHECK_RUN_H

#include "base/compiler.h"
#include "sched/check.h"

#define TUTTI__CHECK_NONE UINT32_MAX

/* A symbolic value: its contributions, and how they were combined. */
typedef struct {
    uint64_t sum;    /* sum of the labels of its contributions */
    uint64_t tree;   /* hash of the expression; equal for a (op) b and b (op) a */
    uint32_t trip;   /* in SCRATCH: the chunk to which it belongs */
    uint32_t state;  /* TUTTI__VALUE_* */
    uint32_t lo, hi; /* if the order matters: operands of ranks [lo, hi), in this order */
} tutti__value_t;

enum {
    TUTTI__VALUE_WRITTEN = 1,
    TUTTI__VALUE_FINISHED = 2,
    TUTTI__VALUE_SUM = 4,     /* a sum of contributions: rounded when it is stored */
    TUTTI__VALUE_NARROWED = 8 /* received in a wire format, and not finished */
};

/* The last accesses to a cell (see check_cells.c), as clocks of its rank's streams; 0: never. */
typedef struct {
    uint32_t write_clock, write_stream;
    uint32_t read_clock[TUTTI__SCHED_STREAMS];
} tutti__access_t;

/* The clocks of all streams when a mark was made. A WAIT for the mark merges its clocks. */
typedef struct {
    uint32_t clock[TUTTI__SCHED_STREAMS];
} tutti__check_mark_t;

typedef enum {
    TUTTI__STREAM_READY,
    TUTTI__STREAM_ON_SEND, /* no free slot in channel `on` */
    TUTTI__STREAM_ON_RECV, /* no message in channel `on` */
    TUTTI__STREAM_ON_WAIT,
    TUTTI__STREAM_ON_NODE,
    TUTTI__STREAM_ON_SENT, /* its operation would overwrite a message that is not taken yet */
    TUTTI__STREAM_ENDED
} tutti__stream_state_t;

typedef struct {
    const tutti__sched_t *sched;
    uint32_t rank, stream;
    tutti__stream_state_t state;
    uint32_t on;
    uint32_t pc, end;     /* indices into sched->ops */
    uint32_t trip, trips; /* in the open loop; trips is 0 outside of loops */
    uint32_t begin, upto; /* chunks [begin, upto) that the current operation works on */
    uint32_t clock[TUTTI__SCHED_STREAMS]; /* vector clock; its own component counts operations */
    uint32_t nmarks, all_marks;           /* marks made so far, and in the whole run; 0 if the rank
                                             has one stream only */
    tutti__check_mark_t *marks;           /* [all_marks] */
} tutti__check_stream_t;

typedef struct {
    uint64_t length; /* symbol of its first block's length: see tutti__check_length */
    uint32_t buf, blk, nblk, trip;
} tutti__message_t;

/* Blocks [from, upto). */
typedef struct {
    uint32_t from, upto;
} tutti__blocks_t;

/* A rank's blocks in the call's buffers. */
typedef struct {
    tutti__blocks_t in, out; /* blocks that exist */
    tutti__blocks_t alias;   /* blocks whose IN is OUT */
    tutti__blocks_t given;   /* blocks of OUT with initial content */
} tutti__check_place_t;

typedef struct {
    uint32_t from, to;    /* streams; `to` is NONE if no stream receives */
    uint32_t head, count; /* messages [head, head + count), modulo slots, are not consumed */
    int is_taken;         /* without credits: the receiver has taken the first message from
                             the sender's blocks, but has not completed the receive */
    uint32_t nblk;        /* largest number of blocks in a message: a slot's size */
    size_t first_value;   /* index in run->values: slots of nblk values */
} tutti__check_chan_t;

typedef struct {
    uint32_t first, nranks; /* its ranks, by local rank: members[first] and the following */
    uint32_t arrived;       /* ranks that have arrived at the next node operation */
} tutti__check_host_t;

typedef struct {
    const tutti__check_t *check;
    int uses_stage, stage_is_out;
    char *why;
    size_t why_bytes;
    tutti_status_t status; /* TUTTI_OK until an error is found */

    uint32_t nblocks, scratch_blocks, max_nblk; /* equal on all ranks */
    uint32_t stage_trips;                       /* equal on all ranks; 0: unlimited */
    tutti__sizes_t sizes;                       /* equal on all ranks */
    tutti__check_place_t *places;               /* [size] */
    uint32_t words; /* 64-bit words in a set of ranks; 0: these sets are not needed */

    tutti__check_stream_t *streams; /* [size * STREAMS]: rank r's stream s is r * STREAMS + s */
    tutti__check_mark_t *marks;     /* the marks of all streams */
    uint32_t *ready;                /* [nready] streams that can continue; the last one is next */
    uint32_t nready;

    size_t rank_cells;           /* cells of one rank; OUT's cells are first */
    size_t stage_at, scratch_at; /* index of the first cells of STAGE and SCRATCH */
    tutti__value_t *cells;
    tutti__access_t *accesses; /* one per cell; NULL if every rank has one stream only */
    uint32_t *sending; /* without credits: [cells] number of a cell's messages not yet taken */

    uint32_t most;  /* the most messages that a channel can have in flight */
    uint32_t slots; /* of a channel: `most`; without credits one more, for a taken message */
    uint32_t nchans;
    tutti__check_chan_t *chans;
    uint32_t *chan_first; /* [size]: rank r's end i is of channel chan_of[chan_first[r] + i] */
    uint32_t *chan_of;
    tutti__message_t *messages; /* [nchans * slots] */
    tutti__value_t *values;     /* content of the slots, channel by channel */
    tutti__value_t *received;   /* [max_nblk]: result of an operation on a message */

    tutti__scope_t scope;       /* ALL: `hosts` is one host, of all ranks */
    tutti__check_host_t *hosts; /* NULL: no node operations */
    uint32_t *members;          /* [size] */

    uint32_t *met; /* [size][nblocks]: see check_cells.c. NULL: OUT may be written at any time */

    uint64_t *knows;         /* [streams][words] set of ranks on whose begin a stream depends */
    uint64_t *message_knows; /* [nchans * slots][words] the same set for a message */
} tutti__check_run_t;

/* Record an error, if it is the first: a text, and the place of `stream` (or NULL). Returns 0. */
int tutti__check_blame(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                       const char *fmt, ...) TUTTI__PRINTF(3, 4);

/* check_promise.c */
int tutti__check_has_root(tutti__expect_t expect);
/* Does the collective have a block for each rank? */
int tutti__check_has_parts(tutti__expect_t expect);
int tutti__check_is_scan(tutti__expect_t expect);
tutti__check_place_t tutti__check_place(const tutti__check_t *check, uint32_t nblocks,
                                        uint32_t rank);
/* The length of a rank's block, as a symbol: equal symbols mean equal lengths. */
uint64_t tutti__check_length(const tutti__check_run_t *run, uint32_t rank, unsigned buf,
                             uint32_t blk);
int tutti__check_promise_holds(tutti__check_run_t *run);

/* check_make.c. make: set up a run; the caller has set `check`, `why` and the STAGE fields. clear:
   free the run, also after a failed make. */
int tutti__check_make(tutti__check_run_t *run);
void tutti__check_clear(tutti__check_run_t *run);
int tutti__check_uses_stage(const tutti__check_t *check);

/* check_cells.c. A cell is identified by (rank of the stream, buffer, block, chunk). */
tutti__value_t tutti__value_leaf(uint32_t rank, uint32_t blk, uint32_t trip);
/* *into = *into (op) right */
int tutti__value_reduce(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        tutti__value_t *into, const tutti__value_t *right);
/* Add the third or a later operand of a node operation, which adds all operands in one fused pass.
   A fused pass may give other bits than separate passes. */
int tutti__value_fuse(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                      tutti__value_t *into, const tutti__value_t *right);
/* Mark a value received in a wire format as narrowed, unless it is finished: it may differ from the
   value that was sent. */
void tutti__value_narrow(tutti__value_t *value);
/* Record in *into that its operands were rounded to the wire format before they were added. */
void tutti__value_rounded(tutti__value_t *into);
/* Give a narrowed operand of a node operation another tree than the value that was sent, because
   the operation does not round its operands. */
void tutti__value_unrounded(tutti__value_t *value);
/* Finish a value. adds: the operation also adds to the value. An operation that does not add may
   finish only values without additions, except in a scan. */
int tutti__value_finish(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        tutti__value_t *value, int adds);
size_t tutti__cell_index(const tutti__check_run_t *run, uint32_t rank, unsigned buf, uint32_t blk,
                         uint32_t trip);
/* Access chunk `trip` of n blocks from blk on. */
int tutti__cells_read(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                      uint32_t blk, uint32_t n, uint32_t trip, tutti__value_t *ret_values);
int tutti__cells_write(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                       uint32_t blk, uint32_t n, uint32_t trip, const tutti__value_t *values);

/* Record that the stream's rank has met all ranks in a node operation on n blocks from blk on. */
void tutti__cells_meet(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                       uint32_t blk, uint32_t n);
/* May the stream's rank write this block? For a block of OUT, it must have met all ranks. */
int tutti__cells_have_met(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                          unsigned buf, uint32_t blk);

/* check_run.c */
int tutti__check_go(tutti__check_run_t *run);
/* Complete the stream's current operation: advance the stream's marks and clock, and wake the
   streams that wait for its marks. */
void tutti__check_complete(tutti__check_run_t *run, tutti__check_stream_t *stream);
void tutti__check_wake(tutti__check_run_t *run, tutti__check_stream_t *stream);
void tutti__check_learn(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        const uint64_t *knows);
uint64_t *tutti__check_knows(const tutti__check_run_t *run, const tutti__check_stream_t *stream);

/* check_sends.c, without credits only. started: record that a SEND of this message has started.
   taken: record that the receiver has taken the channel's first message out of the sender's blocks;
   a repeated call has no effect. is_sent: would the stream's current operation overwrite a message
   that is not taken? receiver: find the stream that must receive this message. */
void tutti__check_started(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                          const tutti__message_t *message);
void tutti__check_taken(tutti__check_run_t *run, tutti__check_chan_t *chan,
                        const tutti__message_t *message);
int tutti__check_is_sent(const tutti__check_run_t *run, const tutti__check_stream_t *stream);
uint32_t tutti__check_receiver(const tutti__check_run_t *run, const tutti__check_stream_t *stream);

/* check_node.c: execute the node operation that all ranks of `host` have reached. */
int tutti__check_node(tutti__check_run_t *run, const tutti__check_host_t *host);

/* check_stuck.c: report the streams that wait for each other. */
int tutti__check_stuck(tutti__check_run_t *run);

static inline int tutti__blocks_hold(tutti__blocks_t blocks, uint32_t blk)
{
    return blk >= blocks.from && blk < blocks.upto;
}

static inline const tutti__op_t *tutti__check_op(const tutti__check_stream_t *stream)
{
    return &stream->sched->ops[stream->pc];
}

#endif
