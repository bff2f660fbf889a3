/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's resources on a device: a node of NCCL, and for each lane CUDA streams, events
 * and memory. All of them are made with the communicator, so no call allocates device or pinned
 * memory. A lane's resources belong to the user of the lane.
 *
 * A call on device memory is executed in one of two ways. If its schedule is made for device memory
 * (sched->on_device), the executor runs node operations by NCCL, and copies between device memory
 * and STAGE. Otherwise the whole call runs in host memory, see call/staged.h.
 *
 * STAGE is pinned host memory. If messages between hosts are GPU-direct (exec/gpu_direct.c), STAGE
 * and the slots of messages are device memory.
 */
#ifndef TUTTI__EXEC_EXEC_DEVICE_H
#define TUTTI__EXEC_EXEC_DEVICE_H

#include "base/constants.h"
#include "mem/device.h"
#include "node/node.h"
#include "sched/sched.h"

typedef struct {
    tutti__dstream_t *down;                        /* copies to the host */
    tutti__dstream_t *up;                          /* copies to the device, and kernels */
    tutti__devent_t *copied[TUTTI__SCHED_STREAMS]; /* recorded after queued work, for each stream of
                                                      a schedule, or for each half of STAGE */
    tutti__devent_t *ready;                        /* recorded in the caller's CUDA stream */
    tutti__devent_t *done;                         /* for the lane's user, outside of a run */
    char *stage;                                   /* [stage_bytes] pinned host memory */
    char *fuse;                                    /* [fuse_bytes] device memory; lane 0: NULL */
    int is_nccls; /* 1: `fuse` is from nccl_alloc, and may be registered with `node` */
    /* Only if gpu_direct_bytes is not 0: */
    char *gpu_direct;          /* device memory: [stage_bytes] STAGE, and the slots,
                         [gpu_direct_slots x gpu_direct_bytes] */
    tutti__dstream_t *between; /* for the device's work on messages */
} tutti__device_lane_t;

/* Schedules that precede a run of scope ALL. */
enum {
    TUTTI__SEQUENCER_COME,
    TUTTI__SEQUENCER_NUMBER,
    TUTTI__SEQUENCER_STEPS
};

typedef struct {
    const tutti__device_ops_t *ops;
    int device;
    tutti__node_t *node; /* node of the host's ranks, on device memory; NULL: no NCCL, so no
                            schedule runs on the device */
    /* Node of all ranks of several hosts, for schedules of scope ALL; may be NULL. The schedules of
       `sequencer` run in host memory before each call of this node: call/sequencer.h. */
    tutti__node_t *all_node;
    const tutti__sequencer_ops_t *sequencer_ops; /* of all_node */
    tutti__sched_t *sequencer[TUTTI__SEQUENCER_STEPS];
    size_t chunk_bytes; /* limit of a block's chunk in loops, at least 64. The length of a chunk is
                           a power of two within this limit */
    size_t stage_bytes, fuse_bytes; /* equal on all ranks, as chunk_bytes is */
    /* Longest message from and to device memory, a power of two; 0: no such messages.
       gpu_direct_slots: a lane's slots for such messages. Both are equal on all ranks. */
    size_t gpu_direct_bytes;
    uint32_t gpu_direct_slots;
    tutti__device_lane_t lane[TUTTI__DEVICE_LANES];
} tutti__exec_device_t;

/* Make the device the calling thread's current device. Returns `before`, for leave. */
int tutti__device_enter(const tutti__exec_device_t *device);
void tutti__device_leave(const tutti__exec_device_t *device, int before);

/* The widest scope of node operations on the device; HOST if there are none. */
static inline tutti__scope_t tutti__device_scope(const tutti__exec_device_t *device)
{
    return device->all_node != NULL ? TUTTI__SCOPE_ALL : TUTTI__SCOPE_HOST;
}

/* Does NCCL have queued work that is not complete? */
int tutti__device_is_queued(const tutti__exec_device_t *device);

/* Abort all work of the device's NCCL nodes. After this the nodes' lanes return errors. The calling
   thread's current device does not change. Any thread may call this function. */
void tutti__device_abort(const tutti__exec_device_t *device);

/* Quiesce the device: wait, at most TUTTI__QUIESCE_NS, for the end of NCCL's work and of the work
   in the CUDA streams of lanes `first` to `end` - 1. Completed work touches no caller's buffer.
   The communicator must have ended, NCCL must have been aborted, and no thread may queue further
   work in these lanes. The calling thread must own the lanes, and have selected the device. */
void tutti__device_quiesce(const tutti__exec_device_t *device, uint32_t first, uint32_t end);

#endif
