/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor on device memory: ranks on pretended hosts, each with a separate
 * pretend device, a node of NCCL for the ranks of each host, and shared-memory channels to all
 * other ranks.
 *
 * Ranks are threads, or take turns in one thread. A rank whose wait hint names a word does not step
 * before the word has changed, because a call would sleep on this word.
 */
#ifndef TESTS_UNIT_EXEC_DEVTEAM_H
#define TESTS_UNIT_EXEC_DEVTEAM_H

#include "exec/exec.h"
#include "node/nccl/nccl.h"
#include "pretend/pretend.h"
#include "unit/coll/shapes.h"
#include "unit/node/world.h"

#include <pthread.h>

typedef struct {
    size_t slot_bytes, chunk_bytes, stage_bytes;
    uint32_t credits;
    size_t buffer_bytes; /* of each rank's IN, and of its OUT */
    int is_lagging;      /* put lag.h's transport before the shared-memory one; only with turns */
    unsigned nap_us;     /* between steps without progress; 0: yield */
    /* Messages between hosts are GPU-direct. They have at most gpu_direct_bytes, and a lane has
       gpu_direct_slots slots. gpu_direct_bytes 0: messages are not GPU-direct. */
    size_t gpu_direct_bytes;
    uint32_t gpu_direct_slots;
} devteam_options_t;

typedef struct {
    devteam_options_t options;
    shape_t *shape;
    world_t world;
    tutti__node_t *host[WORLD_RANKS];
    tutti__nccl_order_t order[WORLD_RANKS]; /* of each host */
    tutti__nccl_id_t id[WORLD_RANKS];
    tutti__xport_t *xport[WORLD_RANKS], *lag[WORLD_RANKS], *far[WORLD_RANKS];
    tutti__xport_t *table[WORLD_RANKS][WORLD_RANKS];
    tutti__exec_device_t device[WORLD_RANKS];
    tutti__exec_env_t env[WORLD_RANKS];
    tutti__run_t run[WORLD_RANKS];
    char *in[WORLD_RANKS], *out[WORLD_RANKS]; /* device memory */
    tutti__dstream_t *stream[WORLD_RANKS];    /* the caller's stream */
    tutti__devent_t *ready[WORLD_RANKS];      /* an event in this stream */
    char *pinned[WORLD_RANKS];                /* as long as IN */

    /* the current call */
    tutti__sched_t *const *scheds;
    tutti__exec_call_t call[WORLD_RANKS];
    tutti_status_t status[WORLD_RANKS];
    char error[WORLD_RANKS][TUTTI__ERROR_BYTES];
    pthread_barrier_t begin;
    double seconds; /* duration of the slowest rank, from the common beginning */
} devteam_t;

/* close frees the shape. Between open and close no stream, event or memory of the device is
   made. */
void devteam_open(devteam_t *team, shape_t *shape, const devteam_options_t *options);
/* Fails the running test if the device was misused. */
void devteam_close(devteam_t *team);

/* Wait until the work of devteam_set is done. */
void devteam_settle(devteam_t *team);
/* Set the call of all ranks. pinned[] is copied to IN; `ready` completes with this copy. */
void devteam_set(devteam_t *team, tutti__sched_t *const *scheds, size_t count, tutti_dtype_t dtype,
                 tutti_op_t op, int in_place);
/* Make the call, and wait for its end; status[] has the results. */
void devteam_threads(devteam_t *team);
void devteam_turns(devteam_t *team);

#endif
