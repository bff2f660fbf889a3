/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the programs for a real device: the device that TUTTI_TEST_DEVICE names ("cuda"),
 * opened by its module, and a stream with an event.
 *
 * No device is opened before a job's ranks are started, because a process that has initialised CUDA
 * must not fork. The scripts pass the number of devices in TUTTI_TEST_DEVICES.
 */
#ifndef TUTTI_TESTS_GPU_H
#define TUTTI_TESTS_GPU_H

#include "ranks.h"

#include "base/status.h"
#include "mem/device.h"

#ifndef COUNT_OF /* also in coll_case.h */
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#endif

enum {
    GPU_MOST = 8 /* devices that are used */
};

const char *gpu_name(void);
/* Is the named device a real one, not the pretend device? */
int gpu_is_real(void);
/* The number of devices, from TUTTI_TEST_DEVICES; at most GPU_MOST. */
int gpu_devices(void);
/* The number of ranks of one host: one per device, or two that share the only device (see
   common.sh). */
int gpu_ranks(void);
/* Has the device's module found NCCL? 0 if TUTTI_TEST_NCCL is 0, otherwise 1. */
int gpu_has_nccl(void);
/* Open the module. On failure returns UNSUPPORTED or ABI, with the module's text. */
tutti_status_t gpu_module(const tutti__device_ops_t **ret_ops, const char **ret_versions);
/* Call before each job. With a pretended NCCL, of the pretend device or of libraries.sh, each job
   needs a new file. 0: success. */
int gpu_prepare(void);
/* Run ranks with devices. Size 1 does not fork, so that tools such as a sanitizer can follow. */
int gpu_run(rank_fn_t fn, int size);
/* A function of CUDA's runtime, or of the pretend device; NULL: not found. */
void *gpu_function(const char *name);

typedef struct {
    rank_t *rank;
    const tutti__device_ops_t *ops;
    tutti__dstream_t *stream;
    tutti__devent_t *event;
} gpu_t;

/* After this call the calling thread uses the rank's device. */
void gpu_begin(gpu_t *gpu, rank_t *self);
void gpu_end(gpu_t *gpu);
/* Wait for the event; returns the result of query. */
tutti_status_t gpu_query(const gpu_t *gpu, tutti__devent_t *event);
/* Wait until all work in the stream is complete. */
void gpu_finish(const gpu_t *gpu);
/* Device memory, freed by ops->free. */
char *gpu_alloc(const gpu_t *gpu, size_t bytes);
/* Copy in the stream, and wait until the copy is complete. */
void gpu_copy(const gpu_t *gpu, void *dst, const void *src, size_t bytes);
/* Queue copies that take some time; memory: gpu_busy_bytes() on the device. */
void gpu_busy(const gpu_t *gpu, char *memory, tutti__dstream_t *stream);
size_t gpu_busy_bytes(void);

#endif
