/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening and closing a communicator's device: the choice of the device, NCCL among the ranks of
 * each host and of all hosts, and the resources of the lanes (exec/exec_device.h).
 *
 * Collective. During the call no communicator of the process may hand over requests to CUDA
 * streams; the caller ensures this.
 */
#ifndef TUTTI__CALL_DEVICE_SETUP_H
#define TUTTI__CALL_DEVICE_SETUP_H

#include "boot/machine.h"
#include "coll/coll.h"
#include "conf/conf.h"
#include "exec/exec.h"

/* This rank's device, if other ranks of the world have no device. The communicator then has none.
   This rank uses its device only to detect that a call passes device memory, which is an error. */
typedef struct {
    const tutti__device_ops_t *ops; /* NULL: all ranks have a device, or no rank has a device */
    uint32_t lacks;                 /* a rank of the world without a device */
} tutti__lone_device_t;

/* The arguments for opening the device of a communicator. */
typedef struct {
    const tutti__conf_t *conf;
    const tutti__shape_t *shape;
    const tutti__topo_t *topo;
    const tutti__machine_t *machine;
    tutti__boot_t *boot;
    tutti__node_t *node;               /* the node for host memory */
    tutti__xport_t **xport;            /* [size] */
    const tutti__exec_device_t *world; /* of a group: the world's device; NULL: this is a world */
    tutti__exec_device_t *device;      /* to be opened; zeroed */
    tutti__lone_device_t *lone;        /* set by a world; a group uses its world's structure */
    int keeps;                         /* closing, 1: do not free STAGE and GPU-direct memory,
                                          because messages may still reach them */
    int32_t *statuses;                 /* inside: [size] statuses in the last exchange */
} tutti__device_setup_t;

/* Open the device, if all ranks have a working device; otherwise setup->device->ops stays NULL. The
   calling thread's current device does not change. */
tutti_status_t tutti__device_open(const tutti__device_setup_t *setup);
/* Close the device. No call may use it any more; work in flight is aborted. Local. The device may
   be only partly open. */
void tutti__device_close(const tutti__device_setup_t *setup);

/* ---- inside: rounds of opening, on the thread that opens the device ---- */

/* Exchange the statuses of all ranks. */
tutti_status_t tutti__device_exchange(const tutti__device_setup_t *setup, tutti_status_t mine);
/* After an exchange: the first rank with an error (fails 1) or without an error (fails 0). If there
   is no such rank: size. */
uint32_t tutti__device_first(const tutti__device_setup_t *setup, int fails);

/* device_nccl.c: open NCCL among each host's ranks. Without NCCL, device->node stays NULL. */
tutti_status_t tutti__device_open_nccl(const tutti__device_setup_t *setup);
/* Register a lane's memory for fused buckets with NCCL. */
tutti_status_t tutti__device_register(const tutti__exec_device_t *device, void *fuse);
/* Undo all registrations. */
void tutti__device_unregister(const tutti__exec_device_t *device);
/* 1: an abort of NCCL on this device has missed its deadline, and has not returned yet. Until it
   returns, a call that waits for the device may block. */
int tutti__device_is_stuck(const tutti__exec_device_t *device);

/* device_flat.c: if TUTTI_ALGORITHM names nccl-flat, open NCCL among all ranks of several hosts. A
   failure is then an error. Does nothing for a group. */
tutti_status_t tutti__device_open_flat(const tutti__device_setup_t *setup);
void tutti__device_close_flat(tutti__exec_device_t *device);

/* device_lanes.c: streams, events and memory of the lanes. */
tutti_status_t tutti__device_open_lanes(const tutti__device_setup_t *setup);
void tutti__device_close_lanes(const tutti__device_setup_t *setup);

/* device_gpu_direct.c: decide whether messages between hosts use device memory, and prepare it. */
tutti_status_t tutti__device_open_gpu_direct(const tutti__device_setup_t *setup);
void tutti__device_close_gpu_direct(const tutti__device_setup_t *setup);

#endif
