/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -d: the device whose memory a bench program sends and receives.
 *
 * The harness uses the same module as the library (mem/device.h), so that harness and library use
 * the same device. If a device function fails, all functions here print its error and end the job.
 * Only the main thread calls them.
 */
#ifndef TUTTI_BENCH_DEVICE_H
#define TUTTI_BENCH_DEVICE_H

#include "harness/bench.h"

#include "mem/device.h"

struct bench_device {
    const tutti__device_ops_t *ops;
    const char *versions; /* as text */
    int number;
    tutti__dstream_t *stream; /* for all work of the harness and the peers */
    tutti__devent_t *done;
    tutti__devent_t *start, *stop; /* timers */
    tutti__nccl_t *nccl;           /* nccl.c; NULL: no peer needs it */
    void *one;                     /* nccl.c: the element that a barrier reduces */
};

/* Called before tutti_init: makes the library use this device, unless TUTTI_DEVICE is set. */
void bench_device_ask(const bench_world_t *world, const char *kind);
/* Called after tutti_init. As in the library, the device is TUTTI_DEVICE_ID, otherwise the local
   rank modulo the number of devices. Sets world->device. */
void bench_device_open(bench_world_t *world, const char *kind);
void bench_device_close(bench_world_t *world);

/* Ends the job if status is an error. */
void bench_device_check(const bench_world_t *world, tutti_status_t status, const char *what);
/* Waits until all work in the stream is done. */
void bench_device_wait(const bench_world_t *world);
/* _clock starts a measurement in the stream; _us ends it, waits, and returns the time of the work
   in between, by the device's clock. */
void bench_device_clock(const bench_world_t *world);
double bench_device_us(const bench_world_t *world);

void *bench_device_alloc(const bench_world_t *world, size_t bytes);
void bench_device_free(const bench_world_t *world, void *memory);
/* Copies between host and device, in either direction; complete at return. */
void bench_device_copy(const bench_world_t *world, void *dst, const void *src, size_t bytes);

/* ---- called after `ops` and `number` are set; tests set those of a pretended device ---- */

void bench_device_start(const bench_world_t *world, bench_device_t *device);
void bench_device_stop(bench_device_t *device);

/* ---- nccl.c: --peer nccl ---- */

/* Open NCCL's communicator of all ranks. Collective. */
void bench_nccl_open(const bench_world_t *world);
void bench_nccl_close(const bench_world_t *world);
/* Queues the calls in the stream as one NCCL group; does not wait for them. */
void bench_nccl_queue(const bench_world_t *world, const tutti__nccl_call_t *calls, size_t ncalls);

#endif
