/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests: ranks with an engine and a pretend device, made below the API. Device r is rank r's.
 * Run by run_device_jobs; the job's own communicator is for host memory.
 */
#ifndef TUTTI_TESTS_DEVICE_WORLD_H
#define TUTTI_TESTS_DEVICE_WORLD_H

#include "pretend/pretend.h"
#include "ranks.h"

#include "engine/engine.h"

typedef struct {
    rank_t *rank;
    const tutti__device_ops_t *ops;
    tutti__engine_t *engine;
    tutti__stats_t *stats; /* with times */
    tutti__exec_device_t device;
    tutti__dstream_t *stream; /* the user's */
    tutti__watch_t *watch;
    /* The following fields are device_world.c's own. */
    tutti__conf_t conf;
    tutti__meet_t meet;
    tutti__boot_t *boot;
    tutti__machine_t *machine;
    tutti__shape_t shape;
    tutti__node_t *node;
    tutti__xport_t *shm, **xport;
    tutti__exec_env_t exec;
} gpu_rank_t;

/* Settings of the jobs' engines; 0: the default. Set before the jobs run. */
typedef struct {
    size_t fuse_bytes, stage_bytes, fusion_bytes;
    int no_nccl;
    int no_threads; /* ranks are processes only */
} device_options_t;

extern device_options_t device_options;

/* Run with these hosts (NULL: one), as threads and processes. Returns the failures. */
int run_device_jobs(rank_fn_t fn, int size, const char *hosts, unsigned killed);

void device_begin(gpu_rank_t *gpu, rank_t *self);
void device_end(gpu_rank_t *gpu);

/* ---- calls ---- */

/* An allreduce, sum, of float32 on `on_device`; other fields may be set afterwards. */
tutti__entry_t device_entry(const char *name, const void *sendbuf, void *recvbuf, size_t count);
tutti_request_t *device_submit(gpu_rank_t *gpu, const tutti__entry_t *entry);

/* Device memory with room for `count` float; freed by device_free. */
float *device_alloc(gpu_rank_t *gpu, size_t count);
void device_free(gpu_rank_t *gpu, void *ptr);
/* Queue a copy from host memory in the user's stream; the host memory must stay valid until the
   copy is done. */
void device_put(gpu_rank_t *gpu, void *device, const void *host, size_t bytes);

#endif
