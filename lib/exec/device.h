/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a communicator has of a device: a node of NCCL, and for each lane streams, events and
 * memory. All of it is made with the communicator, so that no device or pinned memory is allocated
 * on the way of a call. Each lane's belong to whoever uses the lane.
 *
 * A call on device memory goes one of two ways. Where its schedule is for it (sched->on_device),
 * the executor runs node operations by NCCL and copies between device memory and STAGE. Else the
 * whole call is made in host memory, see engine/staged.h.
 *
 * STAGE is pinned host memory; or, where messages between hosts are direct (exec/direct.c), device
 * memory, as are the slots of messages.
 */
#ifndef TUTTI__EXEC_DEVICE_H
#define TUTTI__EXEC_DEVICE_H

#include "mem/device.h"
#include "node/node.h"
#include "sched/sched.h"

typedef struct {
    tutti__dstream_t *down;                        /* copies to the host */
    tutti__dstream_t *up;                          /* copies to the device, and kernels */
    tutti__devent_t *copied[TUTTI__SCHED_STREAMS]; /* behind a stream's copy, or a half's */
    tutti__devent_t *ready;                        /* behind what is in the caller's stream */
    tutti__devent_t *done;                         /* of whoever uses the lane, when nothing runs */
    char *stage;                                   /* [stage_bytes] pinned host memory */
    char *fuse;                                    /* [fuse_bytes] device memory; lane 0: NULL */
    int is_nccls; /* fuse is of nccl_alloc, and may be registered with `node` */
    /* with direct_bytes only: */
    char *direct; /* device memory: [stage_bytes] STAGE, [direct_slots x direct_bytes] slots */
    tutti__dstream_t *between; /* what the device does with messages */
} tutti__device_lane_t;

/* Steps of the gate before a flat run. */
enum {
    TUTTI__GATE_COME,
    TUTTI__GATE_TURN,
    TUTTI__GATE_STEPS
};

typedef struct {
    const tutti__device_ops_t *ops;
    int device;
    tutti__node_t *node; /* of the host's ranks, on device memory; NULL: no NCCL, so no schedule
                            runs on the device */
    /* Of all ranks of several hosts, for flat schedules; NULL: there is none. Before each of its
       calls come the schedules of `gate`, in host memory: engine/flat.h. */
    tutti__node_t *flat;
    tutti__sched_t *gate[TUTTI__GATE_STEPS];
    size_t chunk_bytes; /* longest chunk of a block in loops; at least 64. A power of two of it
                            is used */
    size_t stage_bytes, fuse_bytes; /* the same on all ranks, as is chunk_bytes */
    /* Longest message that goes from and to device memory; a power of two. 0: none does. The same
       on all ranks, as are the slots of a lane for such messages. */
    size_t direct_bytes;
    uint32_t direct_slots;
    tutti__device_lane_t lane[TUTTI__LANES];
} tutti__exec_device_t;

/* quiet.c. Has NCCL work that was queued and has not come? */
int tutti__device_is_queued(const tutti__exec_device_t *device);

/* Longest wait for device work after an error. */
#define TUTTI__QUIET_NS 1000000000u

/* The communicator has ended, NCCL was aborted, and no thread queues work in lanes `first` to
   `end` - 1 any more. Waits, TUTTI__QUIET_NS at most, until the work in their CUDA streams and in
   NCCL's no longer touches the callers' buffers. The calling thread uses the device and owns the
   lanes. */
void tutti__device_quiet(const tutti__exec_device_t *device, uint32_t first, uint32_t end);

#endif
