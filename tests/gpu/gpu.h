/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs for a real device share: the device that TUTTI_TEST_DEVICE names ("cuda"), by
 * its module, and a stream with an event.
 *
 * Nothing of a device is opened before a job's ranks are started: who has started CUDA cannot be
 * forked. How many devices there are comes from the scripts, in TUTTI_TEST_DEVICES.
 */
#ifndef TUTTI_TESTS_GPU_H
#define TUTTI_TESTS_GPU_H

#include "ranks.h"

#include "base/status.h"
#include "mem/device.h"

#ifndef COUNT_OF /* coll_case.h has it, too */
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#endif

enum {
    GPU_MOST = 8 /* devices that are used */
};

const char *gpu_name(void);
/* Is it the real one? */
int gpu_is_real(void);
/* From TUTTI_TEST_DEVICES; at most GPU_MOST. */
int gpu_devices(void);
/* Ranks of one host: with a device each, or two that share the only one (common.sh has how). */
int gpu_ranks(void);
/* TUTTI_TEST_NCCL is not 0: the device's module has found NCCL. */
int gpu_has_nccl(void);
/* Open the module. UNSUPPORTED or ABI, with the module's words. */
tutti_status_t gpu_module(const tutti__device_ops_t **ret_ops, const char **ret_versions);
/* Before each job: the pretended NCCL wants a new file, that of libraries.sh, too. 0 if it
   worked. */
int gpu_prepare(void);
/* Run ranks with devices; size 1 without fork, so that other programs can look on. */
int gpu_run(rank_fn_t fn, int size);
/* A function of CUDA's runtime, or of the pretend device; NULL: not there. */
void *gpu_function(const char *name);

typedef struct {
    rank_t *rank;
    const tutti__device_ops_t *ops;
    tutti__dstream_t *stream;
    tutti__devent_t *event;
} gpu_t;

/* The rank's device is the calling thread's from here on. */
void gpu_begin(gpu_t *gpu, rank_t *self);
void gpu_end(gpu_t *gpu);
/* What query says when the event has come. */
tutti_status_t gpu_query(const gpu_t *gpu, tutti__devent_t *event);
/* Until all in the stream is done. */
void gpu_finish(const gpu_t *gpu);
/* Device memory, freed by ops->free. */
char *gpu_alloc(const gpu_t *gpu, size_t bytes);
/* Done at return. */
void gpu_copy(const gpu_t *gpu, void *dst, const void *src, size_t bytes);
/* Queue copies that take a while; memory: gpu_busy_bytes() on the device. */
void gpu_busy(const gpu_t *gpu, char *memory, tutti__dstream_t *stream);
size_t gpu_busy_bytes(void);

#endif
