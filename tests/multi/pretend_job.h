/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the pretended NCCL share: a rank with a device, a stream and a communicator.
 */
#ifndef TUTTI_TESTS_PRETEND_JOB_H
#define TUTTI_TESTS_PRETEND_JOB_H

#include "pretend/pretend.h"
#include "ranks.h"

#include "base/status.h"

#include <unistd.h>

typedef struct {
    rank_t *rank;
    const tutti__device_ops_t *ops;
    tutti__dstream_t *stream;
    tutti__devent_t *event;
    tutti__nccl_t *nccl;
} gpu_t;

/* Run with 1, 2, 3 and 5 ranks, as threads and as processes. Returns the failures. */
int run_pretend_jobs(rank_fn_t fn, int min_size);

/* Use device `rank`, make a stream and an event; open a communicator, with all ranks. */
void gpu_begin(gpu_t *gpu, rank_t *self);
/* Close or drop what is there; nccl may be NULL. */
void gpu_end(gpu_t *gpu);

void gpu_id(gpu_t *gpu, tutti__nccl_id_t *ret_id);
tutti__nccl_t *gpu_open(gpu_t *gpu);
/* Until nccl_poll has an answer. */
tutti_status_t gpu_poll(gpu_t *gpu, tutti__nccl_t *nccl);
/* Record the event, wait for it; what query says. */
tutti_status_t gpu_finish(gpu_t *gpu);
/* A call, its launch and its end; the first error. */
tutti_status_t gpu_call(gpu_t *gpu, const tutti__nccl_call_t *calls, size_t ncalls);
/* What nccl_poll says once it is an error, with words. */
void gpu_expect(gpu_t *gpu, tutti__nccl_t *nccl, const char *words);
/* The same from the event behind the work, which ends. */
void gpu_expect_event(gpu_t *gpu, const char *words);

#define PLANT_COUNT 100

/* A rank with device memory: room for 2 PLANT_COUNT int from each rank. */
typedef struct {
    gpu_t gpu;
    void *buf;
} plant_t;

void plant_begin(plant_t *p, rank_t *self);
void plant_end(plant_t *p);
/* Of PLANT_COUNT int32, in place. */
tutti__nccl_call_t plant_allreduce(const plant_t *p);
/* A call, with the event recorded behind it. 0: refused already. */
int plant_launch(plant_t *p, const tutti__nccl_call_t *call);

#endif
