/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: runs one rank's schedule over any transports.
 *
 * A run is resumable and never blocks: each stream has a program counter, and a step runs the
 * streams until none can continue. A lane has one run at a time. One thread at a time uses a run. A
 * stream may go on although its SEND is not complete (sends.c).
 *
 * If the data are in device memory (on_device below), env->device->node, or all_node for scope ALL,
 * executes the node operations. The device executes COPY from or to IN and OUT, in the lane's CUDA
 * streams. The thread that starts and steps a run must have called ops->use(env->device->device).
 * Chunks have a size that suits the device, so usually they are longer than a message. A stream
 * with channels cuts each chunk into pieces that fit a message, as if the run had more and shorter
 * chunks. So the checker's proof for one slot per channel holds for slots of any length. (Rejected:
 * let SEND and RECV cut long messages. Two ranks that both send first would need slots for all
 * pieces, or would wait for each other for ever.)
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
    tutti__xport_t **xport;             /* [size] the transport to each peer */
    tutti__node_t *node;                /* NULL: no node operations, no meetings */
    size_t slot_bytes;                  /* the setting; a transport's slots may be longer */
    const tutti__exec_device_t *device; /* NULL: no device */
    tutti__record_t *record;            /* for the trace; NULL: chunks are not traced */
    const uint32_t *host_of;            /* [size] for the trace and for wire formats */
    int keeps; /* 1: a transport may still read the memory of runs, so this memory is never freed.
                  Set before tutti__run_fini */
} tutti__exec_env_t;

/* The head of a framed message; its data follow. See framed.c. */
typedef struct {
    uint64_t identity; /* of the sender's call; calls that belong together have the same identity */
    uint32_t differs;  /* 1: some ranks have different identities */
    uint32_t bytes;    /* bytes of the data; 0: none */
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
    uint32_t root; /* compared in the meeting */
    /* Tables of blocks of different lengths (see blockmap.h); NULL: equal shares. The tables must
       stay valid until the run ends. in_*: the blocks of IN, if the schedule's sizes are BY_PAIR;
       otherwise IN has the blocks of OUT. */
    const size_t *table, *begins;
    const size_t *in_table, *in_begins;
    size_t in_count; /* BY_PAIR: elements in IN's whole map; `count` is OUT's */
    /* on_device 1: `in` and `out` are device memory, and the schedule is made for such memory. The
       input data are complete when the event `ready` is complete. ready NULL: the input data are
       complete now. The caller must not record the event again before the run has ended. */
    int on_device;
    tutti__devent_t *ready;
    /* queued 1: if a schedule has only node operations, the run ends when these operations are
       queued, and later work in `then` waits for their end. With other schedules `queued` has no
       effect: the run ends when the result is complete. */
    int queued;
    tutti__dstream_t *then;
    /* Not NULL: each message is this frame, of at most slot_bytes. Then `count` is 1, `dtype` and
       `op` are those of the frame's data, and `in` and `out` both point to the frame. For schedules
       in place that only send and receive one block. */
    tutti__frame_t *frame;
    /* The type of messages to other hosts, narrower than float32 (see wire.c); 0: dtype. For sums
       and averages of float32 in host memory, by schedules in which no node operation has
       FINISH. */
    tutti_dtype_t wire;
} tutti__exec_call_t;

/* A block of a buffer in the current call, in bytes. */
typedef struct {
    size_t begin, bytes;
} tutti__block_t;

/* The places of a buffer's blocks. */
typedef struct {
    char *base;
    const tutti__block_t *block;
    size_t mask; /* applied to a chunk's offset in its block. All bits: each chunk has its own
                    place. SCRATCH: 0, so all chunks use one place. STAGE with memory of its own:
                    the low bits, so chunks use a few places in turn */
    int joint;   /* 1: one trip and contiguous blocks, so several blocks can be used as one */
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
    uint32_t next_sending; /* the next end with such a message */
    /* For a receiver: */
    size_t least_placed; /* least bytes of a message that is received into its block; 0: none */
    int is_placing;      /* in this run place.c posts the receives */
    uint32_t ahead;      /* receives that are posted and have no message yet */
    size_t left;         /* receives of this run that are not posted yet */
} tutti__end_t;

typedef struct {
    uint32_t pc, end;
    uint32_t loop; /* index of the enclosing LOOP, or UINT32_MAX */
    size_t trip;
    size_t trips;  /* inside loops: trips with a chunk; outside: 1 */
    size_t chunk;  /* inside loops: bytes of a chunk; outside: no limit */
    size_t pieces; /* on the device: this stream's trips per trip of the run */
    uint64_t marks;
    uint64_t traced_ns; /* start of the current operation; 0: no trace, or not started */
    int started;        /* the current operation has started, and is not complete */
    char *gather;       /* for messages of several blocks: one slot */
} tutti__stream_t;

/* The values that determine the blocks of a call with equal shares. */
typedef struct {
    size_t count, esize;
    uint32_t nblocks, scratch_blocks, max_nblk;
} tutti__layout_t;

/*
 * A run reuses the channels and the layout of blocks of an earlier call, if the values that
 * determine these are equal. Addresses of schedules are not compared. So a schedule may be freed
 * when its run has ended.
 */
typedef struct {
    const tutti__exec_env_t *env;
    uint32_t lane;
    size_t slot_bytes;           /* the longest message; equal on all ranks. 0: not known yet */
    const tutti__sched_t *sched; /* NULL: no run */
    uint32_t signature, root;    /* of the call */
    uint32_t divisor;
    int meeting;           /* 1: in the meeting before the first operation (exec_call.meet) */
    int detours;           /* messages are GPU-direct, or framed, or in a wire format */
    tutti__frame_t *frame; /* the frame of the call; NULL: messages are not framed */
    tutti_dtype_t wire;    /* the wire format of the call; 0: none */
    uint32_t moves;        /* changes when the run makes progress; wraps around */
    const tutti__exec_device_t *device; /* NULL: the call is on host memory */
    /* The next three fields are for a device only. */
    tutti__devent_t *ready; /* the call's event; NULL: none, or passed to the node */
    int untouched;          /* the first node operation is not done, so only stream 0 runs */
    uint32_t gpu_direct;    /* 0: STAGE and messages are in host memory. Otherwise they are in
                               device memory, and each receiving channel has this many slots */
    tutti__reducer_t reducer;
    tutti__node_call_t node_call; /* the current node operation; see prepare_node in start.c */
    tutti__stream_t stream[TUTTI__SCHED_STREAMS];

    /* The channels of the last schedule with channels. */
    tutti__end_t *ends;
    uint32_t nends, ends_capacity;
    uint32_t slots_used;         /* slots of the lane that these ends use */
    int expects;                 /* an end needs the number of messages */
    uint32_t sending;            /* list of ends whose SEND is not complete, or NO_SEND */
    char *sent_from, *sent_upto; /* range of addresses that contains the blocks of these SENDs */

    /* blocks */
    tutti__layout_t layout; /* of the last call; count 0: the next call must not reuse it */
    unsigned eshift;        /* log2 of an element's bytes */
    size_t chunk;           /* bytes */
    size_t message;         /* bytes of a chunk in a message; in host memory the whole chunk */
    size_t trips;
    tutti__place_t place[TUTTI__BUFS];
    tutti__block_t *blocks;
    size_t blocks_capacity;
    char *scratch;
    size_t scratch_bytes;
    char *packed; /* with a wire format: one message for each end, of slot_bytes */
    size_t packed_bytes;
} tutti__run_t;

void tutti__run_init(tutti__run_t *run, const tutti__exec_env_t *env, uint32_t lane);
void tutti__run_fini(tutti__run_t *run);

/* The longest message of this lane's runs; equal on all ranks. */
size_t tutti__run_slot_bytes(tutti__run_t *run);

/* Begin a run: open channels and allocate memory as needed. TUTTI_ERR_UNSUPPORTED, on all ranks: an
   operation has more blocks than a message, or a chunk in STAGE, can hold. */
tutti_status_t tutti__run_start(tutti__run_t *run, const tutti__sched_t *sched,
                                const tutti__exec_call_t *call);

/*
 * Continue as far as possible. TUTTI_OK: done. TUTTI__AGAIN: *hint is the wait hint. Any other
 * status ends the run; tutti__run_cancel must follow.
 *
 * On the device, the first node operation may return TUTTI_ERR_UNSUPPORTED or _MISMATCH. Then all
 * ranks of the host return this status, no data was moved, no message is expected
 * (tutti__run_untouched), and the lane can start its next run.
 */
tutti_status_t tutti__run_step(tutti__run_t *run, tutti__hint_t *hint);

/* On the device: returns 1 until the first node operation is done; no message is expected yet. */
static inline int tutti__run_untouched(const tutti__run_t *run)
{
    return run->device != NULL && run->untouched;
}

/*
 * Give up a failed run, so that it touches no buffer of the call any more. If the run is untouched,
 * nothing is cancelled in the transports.
 *
 * On the device: wait for queued copies, at most a second. These copies wait only for the call's
 * event `ready`. NCCL's work continues until env->device->node is aborted.
 */
void tutti__run_cancel(tutti__run_t *run);

/* ---- for reports ---- */

/* The message that a blocked run waits for. */
typedef struct {
    int is_recv;               /* 0: the message is to be sent */
    uint32_t step, steps;      /* index of the operation, and the number of operations */
    size_t bytes;              /* of the message; wire formats: of its data before rounding */
    size_t complete, messages; /* of the channel in this run: complete messages, all messages */
} tutti__run_wait_t;

/* For a run that has returned AGAIN: find the message from or to `peer` that the run waits for.
   Returns 0 if there is no such message. */
int tutti__run_awaits(const tutti__run_t *run, int32_t peer, tutti__run_wait_t *ret_wait);
/* Describe the message of tutti__run_awaits in a text, which the caller appends to a text about
   `peer`. If there is no message, the text is empty. */
void tutti__run_awaits_text(const tutti__run_t *run, int32_t peer, char *text, size_t bytes);
/* The index of an operation at which the run is blocked, preferably an operation that waits for
   `peer`. If all operations are complete: the number of operations. */
uint32_t tutti__run_blocked_at(const tutti__run_t *run, int32_t peer);

/* sched: the schedule of the last run. If this run was in host memory and was one node operation on
   whole buffers, return 1, and copy the operation and its reducer. Otherwise return 0. */
int tutti__run_as_one(const tutti__run_t *run, const tutti__sched_t *sched,
                      tutti__node_call_t *ret_call, tutti__reducer_t *ret_reducer);

/* Does a schedule use a transport that this thread must not drive? is_engine: 1 if this thread is
   the library's own. */
int tutti__run_forbidden(const tutti__exec_env_t *env, const tutti__sched_t *sched, int is_engine);

#endif
