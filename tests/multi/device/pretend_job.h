/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the tests of the pretended NCCL: a rank with a device, a stream and a communicator.
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

/* Run fn with 1, 2, 3 and 5 ranks, as threads and as processes. Returns the number of failures. */
int run_pretend_jobs(rank_fn_t fn, int min_size);

/* 1: run_pretend_jobs leaves out 2 and 5 ranks. */
extern int pretend_is_quick;

/* Use device `rank`, make a stream and an event; open a communicator, with all ranks. */
void gpu_begin(gpu_t *gpu, rank_t *self);
/* Close or drop all objects of gpu_begin; nccl may be NULL. */
void gpu_end(gpu_t *gpu);

void gpu_id(gpu_t *gpu, tutti__nccl_id_t *ret_id);
tutti__nccl_t *gpu_open(gpu_t *gpu);
/* Poll until the result is not AGAIN. */
tutti_status_t gpu_poll(gpu_t *gpu, tutti__nccl_t *nccl);
/* Record the event, wait for it; returns query's result. */
tutti_status_t gpu_finish(gpu_t *gpu);
/* A call, its launch and its end; returns the first error. */
tutti_status_t gpu_call(gpu_t *gpu, const tutti__nccl_call_t *calls, size_t ncalls);
/* nccl_poll must return an error with `words` in its text. */
void gpu_expect(gpu_t *gpu, tutti__nccl_t *nccl, const char *words);
/* The event after the work must not stay pending: its query must return an error with `words` in
   its text. */
void gpu_expect_event(gpu_t *gpu, const char *words);

#define PLANT_COUNT 100

/* A rank with device memory: room for 2 PLANT_COUNT int from each rank. */
typedef struct {
    gpu_t gpu;
    void *buf;
} plant_t;

void plant_begin(plant_t *p, rank_t *self);
void plant_end(plant_t *p);
/* An allreduce of PLANT_COUNT int32, in place. */
tutti__nccl_call_t plant_allreduce(const plant_t *p);
/* Make a call, and record the event after it. Returns 0 if the call was already refused. */
int plant_launch(plant_t *p, const tutti__nccl_call_t *call);

#endif
