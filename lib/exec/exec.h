/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: runs one rank's schedule over any transports.
 *
 * A run is resumable and never blocks: each stream has a program counter, and a step goes through
 * the streams until none can go on. One run at a time per lane. One thread at a time uses a run.
 *
 * On device memory (exec_call.on_device) node operations are env->device->node's, and what COPY
 * moves from or to IN and OUT the device does, in the lane's streams; the thread that starts and
 * steps has called ops->use(env->device->device). Chunks are as long as suits the device, so mostly
 * longer than a message. A stream with channels goes through each of them in pieces that fit: as if
 * it had so many times as many, shorter chunks. So what the checker proves for one slot per channel
 * holds however short the slots are. (Rejected: SEND and RECV that cut a long message. Two ranks
 * that send to each other first need room for all pieces then, or wait for each other forever.)
 */
#ifndef TUTTI__EXEC_EXEC_H
#define TUTTI__EXEC_EXEC_H

#include "exec/device.h"
#include "node/node.h"
#include "reduce/reduce.h"
#include "sched/sched.h"
#include "xport/xport.h"

/* What runs of one communicator share. */
typedef struct {
    uint32_t rank, size;
    tutti__xport_t **xport;             /* [size] how each peer is reached; own entry unused */
    tutti__node_t *node;                /* NULL: no node operations, no meetings */
    size_t slot_bytes;                  /* of every channel */
    const tutti__exec_device_t *device; /* NULL: there is none */
} tutti__exec_env_t;

/* The call that a schedule serves. */
typedef struct {
    const void *in; /* element 0 of the block map */
    void *out;
    size_t count; /* elements in the whole map; 0 only where there are tables */
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t signature; /* of what for, count, type, operation, root: equal on all ranks */
    uint8_t tag;        /* what the call is for, below 128; ranks with different ones do not fit */
    /* Begin with a meeting of the host's ranks (NODE_MEET), so that those that came with another
       call find out before anything moves. For schedules without node operations. */
    int meet;
    uint32_t root; /* for the meeting */
    /* Blocks of different lengths (see blockmap.h), NULL: equal shares. Live until the run ends.
       in_*: of IN, where the schedule's sizes are BY_PAIR; else IN has OUT's. */
    const size_t *table, *begins;
    const size_t *in_table, *in_begins;
    size_t in_count; /* BY_PAIR: elements in IN's whole map; `count` is OUT's */
    /* in and out are device memory; only for schedules that are for it. What is read is there once
       `ready` has come; NULL: it is. The event is the caller's again when the run has ended. */
    int on_device;
    tutti__devent_t *ready;
    /* If all there is to do is node operations: the run ends when they are queued, and later work
       in `then` waits for them. Else it ends when the result is there, all the same. */
    int queued;
    tutti__dstream_t *then;
    uint64_t turn; /* of a flat schedule, see node/nccl/nccl.h; else not looked at */
} tutti__exec_call_t;

/* A block of a buffer in the present call, in bytes. */
typedef struct {
    size_t begin, bytes;
} tutti__block_t;

/* Where the blocks of a buffer are. */
typedef struct {
    char *base;
    const tutti__block_t *block;
    size_t mask; /* of where in a block a chunk begins: all bits; SCRATCH: 0, all are in one place;
                    STAGE of its own: they take turns */
    int joint;   /* there is one trip, and the blocks stand end to end: many are like one */
} tutti__place_t;

/* One end of a channel, ready for use. */
typedef struct {
    const tutti__xport_ops_t *ops;
    tutti__chan_t *chan;
    tutti__sched_chan_t key;
} tutti__end_t;

typedef struct {
    uint32_t pc, end;
    uint32_t loop; /* index of the LOOP that it is in, or UINT32_MAX */
    size_t trip;
    size_t trips;  /* in loops: those with a chunk; outside: 1 */
    size_t chunk;  /* in loops: bytes of a chunk; outside: no limit */
    size_t pieces; /* on the device: its trips to one of the run's */
    uint64_t marks;
    int started;  /* the present operation was posted or started, and is not done */
    char *gather; /* for messages of several blocks: one slot */
} tutti__stream_t;

/* What the blocks of a call with equal shares depend on. */
typedef struct {
    size_t count, esize;
    uint32_t nblocks, scratch_blocks, max_nblk;
} tutti__layout_t;

/*
 * What is kept from call to call is found again by its value, never by a schedule's address: so a
 * schedule has to live while it runs, not longer.
 */
typedef struct {
    const tutti__exec_env_t *env;
    uint32_t lane;
    const tutti__sched_t *sched; /* NULL: no run */
    uint32_t signature, root;    /* of the call */
    uint32_t divisor;
    int meeting;                        /* the host's ranks meet; nothing else has begun */
    uint32_t moves;                     /* changes whenever something was done; wraps */
    const tutti__exec_device_t *device; /* NULL: the call is on host memory */
    /* with a device only: */
    tutti__devent_t *ready; /* the call's; NULL: none, or the node has it */
    int untouched;          /* the first node operation is not done, so only stream 0 goes on */
    uint32_t direct;        /* STAGE and messages are in device memory: slots of each channel that
                               receives. 0: they are in the host's; always set */
    tutti__reducer_t reducer;
    tutti__node_call_t node_call; /* what is the same in the whole call; the present operation */
    tutti__stream_t stream[TUTTI__SCHED_STREAMS];

    /* channels: those of the last schedule that had some */
    tutti__end_t *ends;
    uint32_t nends, ends_room;
    uint32_t slots_used; /* of the lane's, by these ends */
    int expects;         /* one of them wants to know how many messages will come */

    /* blocks */
    tutti__layout_t layout; /* of the last call; count 0: had tables */
    unsigned eshift;        /* bytes to elements */
    size_t chunk;           /* bytes */
    size_t message;         /* bytes of it in a message; but for the device the chunk itself */
    size_t trips;
    tutti__place_t place[TUTTI__BUFS];
    tutti__block_t *blocks;
    size_t blocks_room;
    char *scratch;
    size_t scratch_bytes;
} tutti__run_t;

void tutti__run_init(tutti__run_t *run, const tutti__exec_env_t *env, uint32_t lane);
void tutti__run_fini(tutti__run_t *run);

/* Begin. Opens channels and memory where needed. TUTTI_ERR_UNSUPPORTED, on all ranks: no message,
   or no chunk in STAGE, has room for as many blocks. */
tutti_status_t tutti__run_start(tutti__run_t *run, const tutti__sched_t *sched,
                                const tutti__exec_call_t *call);

/*
 * Go on as far as possible. TUTTI_OK: done. TUTTI__AGAIN: *stuck says what for. Any other answer
 * ends the run: call tutti__run_cancel then.
 *
 * On the device, TUTTI_ERR_UNSUPPORTED and _MISMATCH of the first node operation: all of the host's
 * ranks say so, nothing was moved, and no message is expected (tutti__run_untouched): the lane goes
 * on with its next run.
 */
tutti_status_t tutti__run_step(tutti__run_t *run, tutti__stuck_t *stuck);

/* Has the run ended, or got stuck, before the host's ranks had met? On the device only. */
static inline int tutti__run_untouched(const tutti__run_t *run)
{
    return run->device != NULL && run->untouched;
}

/*
 * Give up a run that did not end well; no buffer of the call is touched afterwards. Does nothing to
 * transports if the run is untouched.
 *
 * On the device: waits for the end of queued copies, a second at most; they wait for nothing but
 * the call's `ready`. NCCL's work goes on until env->device->node is aborted.
 */
void tutti__run_cancel(tutti__run_t *run);

/* Does a schedule use a transport that this thread may not drive? is_engine: it is the library's
   own thread. */
int tutti__run_forbidden(const tutti__exec_env_t *env, const tutti__sched_t *sched, int is_engine);

#endif
