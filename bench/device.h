/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -d: the device whose memory a bench program sends and receives.
 *
 * It is reached through the module that the library opens, too (mem/device.h), so that both speak
 * of the same device. All functions end the job if the device says no, after printing its words.
 * The main thread alone calls them.
 */
#ifndef TUTTI_BENCH_DEVICE_H
#define TUTTI_BENCH_DEVICE_H

#include "bench.h"

#include "mem/device.h"

struct bench_device {
    const tutti__device_ops_t *ops;
    const char *versions; /* in words */
    int number;
    tutti__dstream_t *stream; /* of all that the harness and its peers do */
    tutti__devent_t *done;
    tutti__devent_t *start, *stop; /* timers */
    tutti__nccl_t *nccl;           /* nccl.c; NULL: no peer needs it */
    void *one;                     /* nccl.c: the element that a barrier reduces */
};

/* Before tutti_init: the library is to use it, unless TUTTI_DEVICE says otherwise. */
void bench_device_ask(const bench_world_t *world, const char *kind);
/* After it. The device is TUTTI_DEVICE_ID, else the local rank modulo their number, which is what
   the library takes. Sets world->device. */
void bench_device_open(bench_world_t *world, const char *kind);
void bench_device_close(bench_world_t *world);

/* Does nothing if all is well. */
void bench_device_check(const bench_world_t *world, tutti_status_t status, const char *what);
/* Until all in the stream is done. */
void bench_device_wait(const bench_world_t *world);
/* What the stream does in between takes so long by the device's clock; the second one waits. */
void bench_device_clock(const bench_world_t *world);
double bench_device_us(const bench_world_t *world);

void *bench_device_alloc(const bench_world_t *world, size_t bytes);
void bench_device_free(const bench_world_t *world, void *memory);
/* Between host and device, both ways; done at return. */
void bench_device_copy(const bench_world_t *world, void *dst, const void *src, size_t bytes);

/* ---- inside: with ops and number given, in tests those of a pretend device ---- */

void bench_device_start(const bench_world_t *world, bench_device_t *device);
void bench_device_stop(bench_device_t *device);

/* ---- nccl.c: --peer nccl ---- */

/* Collective: a communicator of all ranks. */
void bench_nccl_open(const bench_world_t *world);
void bench_nccl_close(const bench_world_t *world);
/* Queues them in the stream, as one; does not wait for them. */
void bench_nccl_queue(const bench_world_t *world, const tutti__nccl_call_t *calls, size_t ncalls);

#endif
