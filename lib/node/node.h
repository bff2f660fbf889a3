/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one-host table: operations that all ranks of one host execute together.
 *
 * A node operation is started and then stepped until it is done. Only `cancel` may block. A lane is
 * a sequence of operations, one at a time. All ranks of the host start the same operations in the
 * same order in each lane. One thread at a time uses a lane.
 *
 * NODE_MEET moves no data. It compares the calls of all ranks of the host, but only by kind, dtype,
 * op, tag, root, map.count, and whether there is a divisor.
 */
#ifndef TUTTI__NODE_NODE_H
#define TUTTI__NODE_NODE_H

#include "base/status.h"
#include "mem/device.h"
#include "reduce/reduce.h"
#include "sched/sched.h"
#include "sched/step.h"

typedef struct tutti__node tutti__node_t;

/* One operation. This structure and the buffers must stay valid until the operation is done. */
typedef struct {
    tutti__op_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    const tutti__reducer_t *reducer; /* for dtype and op, if the operation reduces */
    uint8_t tag;                     /* below 128; part of the compared metadata */
    uint32_t divisor;                /* 0: none; see reduce.h */
    uint32_t root;   /* NODE_BCAST, NODE_REDUCE: a local rank. Other kinds: the root of the call,
                        which is only compared */
    const void *src; /* element 0 of the block map; if src_step is not 0: block sblk */
    void *dst;       /* NODE_REDUCE: used by the root only */
    tutti__blockmap_t map;
    size_t src_step, dst_step; /* SCRATCH: elements from one block to the next; other buffers: 0.
                                  The fields src_step to nparts are equal on all ranks */
    int whole;                 /* 1: whole blocks (outside loops). 0: chunk `trip` of each block (in
                                  a loop) */
    size_t trip;
    uint32_t sblk, dblk, nblk, nparts; /* as in sched.h */
    /* For device memory. If queued is 1, the operation counts as done when it is queued on the
       device. Later work in the CUDA stream `then` waits for the operation's end. */
    int queued;
    tutti__dstream_t *then;
} tutti__node_call_t;

typedef struct {
    const char *name;
    const char *purpose;
    void (*close)(tutti__node_t *node);
    void (*start)(tutti__node_t *node, uint32_t lane, const tutti__node_call_t *call);
    /* TUTTI__AGAIN: call step again; *hint is the wait hint. TUTTI_ERR_MISMATCH: all ranks of the
       host return this error, no data was touched, and the lane can start its next operation. */
    tutti_status_t (*step)(tutti__node_t *node, uint32_t lane, tutti__hint_t *hint);
    /* Start *call in lane 0, and step it once. The step polls up to `looks` times. Only this
       function spins; it is for short calls. is_same: 1 if only src and dst of *call have changed
       since lane 0 last started *call. node/nccl does not have this function. */
    tutti_status_t (*repeat)(tutti__node_t *node, const tutti__node_call_t *call, int is_same,
                             uint32_t looks, tutti__hint_t *hint);
    /* Give up the lane's operation, if it is not done. This rank does not access the operation's
       buffers any more. The function waits until no other rank is at work on these buffers, but at
       most TUTTI__SHM_GIVE_UP_NS, plus TUTTI__SHM_GIVE_UP_NS_PER_BYTE for each byte. A rank that
       needs longer, for instance because it is stopped, still accesses the buffers later. A rank
       that has not begun its work does not begin it: the step of that rank returns TUTTI__AGAIN, as
       if this rank had not made the call. Operations that this rank starts later in this lane may
       never end. node/nccl does not have this function. */
    void (*cancel)(tutti__node_t *node, uint32_t lane);
} tutti__node_ops_t;

/* Further functions of a node on device memory. node/nccl/nccl.h describes them. */
typedef struct {
    /* The lane's next operation that moves data begins after the event's last record. */
    void (*ready)(tutti__node_t *node, uint32_t lane, tutti__devent_t *event);
    int (*serves)(const tutti__node_t *node, int reduces, tutti_dtype_t dtype, tutti_op_t op,
                  uint32_t divisor);
    tutti_status_t (*settle)(tutti__node_t *node);
    tutti_status_t (*queued)(const tutti__node_t *node);
    tutti_status_t (*overdue)(tutti__node_t *node, uint64_t now_ns, uint64_t limit_ns,
                              unsigned *ret_tag);
    int (*begin_abort)(tutti__node_t *node);
    void (*end_abort)(tutti__node_t *node);
} tutti__node_device_ops_t;

/* Further functions of the node of all hosts' ranks, for the launch sequencer:
   call/sequencer.h. */
typedef struct {
    /* For rank 0: returns the next sequence number (1, 2, ...), for a call that all ranks have
       reached. Any thread may call this function. */
    uint64_t (*next)(tutti__node_t *node);
    /* Set the sequence number of the lane's next launch. Call it between operations. */
    void (*set)(tutti__node_t *node, uint32_t lane, uint64_t sequence);
} tutti__sequencer_ops_t;

struct tutti__node {
    const tutti__node_ops_t *ops;
    const tutti__node_device_ops_t *device_ops; /* NULL: this node is on host memory */
};

#endif
