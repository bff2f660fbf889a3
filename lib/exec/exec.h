/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: runs one rank's schedule over any transports.
 *
 * A run is resumable and never blocks: each stream has a program counter, and a step runs the
 * streams until none can continue. One run at a time per lane. One thread at a time uses a run. A
 * stream may go on although a SEND is not complete (sends.c).
 *
 * On device memory (exec_call.on_device) the node operations are those of env->device->node, and
 * the device executes COPY from or to IN and OUT, in the lane's streams. The thread that starts and
 * steps must have called ops->use(env->device->device). Chunks have a size that suits the device,
 * so usually they are longer than a message. A stream with channels processes each chunk in pieces
 * that fit a message, as if it had correspondingly more and shorter chunks. So the checker's proof
 * for one slot per channel holds for slots of any length. (Rejected: SEND and RECV that cut a long
 * message. Two ranks that send to each other first would then need slots for all pieces, or would
 * wait for each other forever.)
 */
#ifndef TUTTI__EXEC_EXEC_H
#define TUTTI__EXEC_EXEC_H

#include "exec/exec_device.h"
#include "node/node.h"
#include "record/record.h"
#include "reduce/reduce.h"
#include "sched/sched.h"
#include "xport/xport.h"

/* Shared by all runs of one communicator. */
typedef struct {
    uint32_t rank, size;
    tutti__xport_t **xport;             /* [size] the transport to each peer; own entry unused */
    tutti__node_t *node;                /* NULL: no node operations, no meetings */
    size_t slot_bytes;                  /* the setting; transports may have longer slots */
    const tutti__exec_device_t *device; /* NULL: no device */
    tutti__record_t *record;            /* for the trace; NULL: chunks are not traced */
    const uint32_t *host_of;            /* [size] likewise */
} tutti__exec_env_t;

/* The head of a framed message; its data follow. See framed.c. */
typedef struct {
    uint64_t identity; /* of the sender's call: equal for calls that fit */
    uint32_t differs;  /* 1: frames with different identities have met */
    uint32_t bytes;    /* of the data; 0: none */
} tutti__frame_t;

/* The call that a schedule serves. */
typedef struct {
    const void *in; /* element 0 of the block map */
    void *out;
    size_t count; /* elements in the whole map; 0 only with tables */
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t signature; /* hash of tag, count, type, operation and root: equal on all ranks */
    uint8_t tag;        /* purpose of the call, below 128; different tags are a mismatch */
    /* Begin with a meeting of the host's ranks (NODE_MEET), so that ranks with different calls are
       detected before any data moves. For schedules without node operations. */
    int meet;
    uint32_t root; /* for the meeting */
    /* Blocks of different lengths (see blockmap.h); NULL: equal shares. Must stay valid until
       the run ends. in_*: of IN, if the schedule's sizes are BY_PAIR; otherwise IN has the
       blocks of OUT. */
    const size_t *table, *begins;
    const size_t *in_table, *in_begins;
    size_t in_count; /* BY_PAIR: elements in IN's whole map; `count` is OUT's */
    /* in and out are device memory; only for schedules made for it. The input data are complete
       when `ready` has completed; NULL: they are complete. The event is the caller's again when the
       run has ended. */
    int on_device;
    tutti__devent_t *ready;
    /* If the schedule has node operations only: the run ends when they are queued, and later
       work in `then` waits for them. Otherwise it has no effect: the run ends when the result
       is complete. */
    int queued;
    tutti__dstream_t *then;
    /* Not NULL: messages are this frame, with at most slot_bytes. count is 1, dtype and op are
       those of the frame's data, in and out are the frame. For schedules in place that only send
       and receive one block. */
    tutti__frame_t *frame;
} tutti__exec_call_t;

/* A block of a buffer in the current call, in bytes. */
typedef struct {
    size_t begin, bytes;
} tutti__block_t;

/* The places of a buffer's blocks. */
typedef struct {
    char *base;
    const tutti__block_t *block;
    size_t mask; /* of a chunk's offset in its block: all bits; SCRATCH: 0, all chunks at one place;
                    STAGE of its own: chunks alternate */
    int joint;   /* one trip and contiguous blocks: several blocks can be used as one */
} tutti__place_t;

#define TUTTI__NO_SEND UINT32_MAX

/* One end of a channel, ready for use. */
typedef struct {
    const tutti__xport_ops_t *ops;
    tutti__chan_t *chan;
    tutti__sched_chan_t key;
    /* A sender's message that is not complete: see sends.c. */
    char *sent;
    size_t sent_bytes;     /* 0: none */
    uint32_t next_sending; /* another end with such a message */
    /* A receiver over a transport that can receive into a message's place: */
    size_t least_placed; /* bytes of a message; 0: it cannot */
    int is_placing;      /* in this run: place.c posts its receives */
    uint32_t ahead;      /* messages that are posted and not received */
    size_t left;         /* messages of this run that are not posted */
} tutti__end_t;

typedef struct {
    uint32_t pc, end;
    uint32_t loop; /* index of the enclosing LOOP, or UINT32_MAX */
    size_t trip;
    size_t trips;  /* in loops: trips with a chunk; outside: 1 */
    size_t chunk;  /* in loops: bytes of a chunk; outside: no limit */
    size_t pieces; /* on the device: this stream's trips per trip of the run */
    uint64_t marks;
    uint64_t traced_ns; /* while a trace is on: the beginning of the current operation; or 0 */
    int started;        /* the current operation was started, and is not done */
    char *gather;       /* for messages of several blocks: one slot */
} tutti__stream_t;

/* The values that determine the blocks of a call with equal shares. */
typedef struct {
    size_t count, esize;
    uint32_t nblocks, scratch_blocks, max_nblk;
} tutti__layout_t;

/*
 * Values that are kept from call to call are compared by value, never by a schedule's address. So a
 * schedule must stay valid only while it runs.
 */
typedef struct {
    const tutti__exec_env_t *env;
    uint32_t lane;
    size_t slot_bytes;           /* of every channel; equal on all ranks. 0: not known yet */
    const tutti__sched_t *sched; /* NULL: no run */
    uint32_t signature, root;    /* of the call */
    uint32_t divisor;
    int meeting;                        /* the host's ranks meet; no operation has begun */
    int detours;                        /* messages are direct, or framed */
    tutti__frame_t *frame;              /* the call's; NULL: messages are not framed */
    uint32_t moves;                     /* changes with each progress; wraps */
    const tutti__exec_device_t *device; /* NULL: the call is on host memory */
    /* with a device only: */
    tutti__devent_t *ready; /* the call's; NULL: none, or it was passed to the node */
    int untouched;          /* until the first node operation is done; only stream 0 runs */
    uint32_t direct;        /* > 0: STAGE and messages are in device memory, and each receiving
                               channel has so many slots. 0: they are in host memory. Always set */
    tutti__reducer_t reducer;
    tutti__node_call_t node_call; /* fields equal in the whole call; the current operation */
    tutti__stream_t stream[TUTTI__SCHED_STREAMS];

    /* channels: those of the last schedule that had any */
    tutti__end_t *ends;
    uint32_t nends, ends_room;
    uint32_t slots_used;         /* of the lane's slots, by these ends */
    int expects;                 /* one of them needs the number of messages */
    uint32_t sending;            /* list of ends whose SEND is not complete, or NO_SEND */
    char *sent_from, *sent_upto; /* the range of addresses that contains all their messages */

    /* blocks */
    tutti__layout_t layout; /* of the last call; count 0: it had tables */
    unsigned eshift;        /* log2 of an element's bytes */
    size_t chunk;           /* bytes */
    size_t message;         /* bytes of a chunk in a message; on the host the whole chunk */
    size_t trips;
    tutti__place_t place[TUTTI__BUFS];
    tutti__block_t *blocks;
    size_t blocks_room;
    char *scratch;
    size_t scratch_bytes;
} tutti__run_t;

void tutti__run_init(tutti__run_t *run, const tutti__exec_env_t *env, uint32_t lane);
void tutti__run_fini(tutti__run_t *run);

/* The longest message of this lane's runs; equal on all ranks. */
size_t tutti__run_slot_bytes(tutti__run_t *run);

/* Begin. Opens channels and allocates memory as needed. TUTTI_ERR_UNSUPPORTED, on all ranks: a
   message, or a chunk in STAGE, cannot hold that many blocks. */
tutti_status_t tutti__run_start(tutti__run_t *run, const tutti__sched_t *sched,
                                const tutti__exec_call_t *call);

/*
 * Continue as far as possible. TUTTI_OK: done. TUTTI__AGAIN: *hint is the wait hint. Any other
 * status ends the run; tutti__run_cancel must follow.
 *
 * On the device, TUTTI_ERR_UNSUPPORTED and _MISMATCH of the first node operation: all of the host's
 * ranks return it, nothing was moved, and no message is expected (tutti__run_untouched). The lane
 * continues with its next run.
 */
tutti_status_t tutti__run_step(tutti__run_t *run, tutti__hint_t *hint);

/* Has the run ended, or got stuck, before the host's ranks have met? On the device only. */
static inline int tutti__run_untouched(const tutti__run_t *run)
{
    return run->device != NULL && run->untouched;
}

/*
 * Give up a failed run; afterwards no buffer of the call is touched. Does nothing to transports if
 * the run is untouched.
 *
 * On the device: waits for the end of queued copies, at most a second; they wait only for the
 * call's `ready`. NCCL's work continues until env->device->node is aborted.
 */
void tutti__run_cancel(tutti__run_t *run);

/* If the last run, of `sched`, was in host memory and was one node operation on whole buffers,
   return 1 and copy this operation, with its reducer. Otherwise return 0. */
int tutti__run_as_one(const tutti__run_t *run, const tutti__sched_t *sched,
                      tutti__node_call_t *ret_call, tutti__reducer_t *ret_reducer);

/* Does a schedule use a transport that this thread may not drive? is_engine: the library's
   own thread. */
int tutti__run_forbidden(const tutti__exec_env_t *env, const tutti__sched_t *sched, int is_engine);

#endif
