/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests: ranks with an engine and a pretend device, made below the API. Rank r has device r.
 * run_device_jobs runs these ranks; the job's own communicator is for host memory.
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
    tutti__stats_t *stats; /* measures times as well */
    tutti__exec_device_t device;
    tutti__dstream_t *stream; /* the user's stream */
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

/* Settings of the jobs' engines; 0: the default. A test sets them before it runs jobs. */
typedef struct {
    size_t fuse_bytes, stage_bytes, fusion_bytes;
    int no_nccl;
    int no_threads; /* 1: ranks are only processes, not threads */
} device_options_t;

extern device_options_t device_options;

/* Run a job with these hosts (NULL: one), with ranks as threads and as processes. Returns the
   number of failures. */
int run_device_jobs(rank_fn_t fn, int size, const char *hosts, unsigned killed);

void device_begin(gpu_rank_t *gpu, rank_t *self);
void device_end(gpu_rank_t *gpu);

/* ---- calls ---- */

/* An allreduce, sum, of float32; the caller may then set other fields. */
tutti__entry_t device_entry(const char *name, const void *sendbuf, void *recvbuf, size_t count);
tutti_request_t *device_submit(gpu_rank_t *gpu, const tutti__entry_t *entry);

/* Device memory with room for `count` float; freed by device_free. */
float *device_alloc(gpu_rank_t *gpu, size_t count);
void device_free(gpu_rank_t *gpu, void *ptr);
/* Queue a copy from host memory in the user's stream; the host memory must stay valid until the
   copy is done. */
void device_put(gpu_rank_t *gpu, void *device, const void *host, size_t bytes);

#endif
