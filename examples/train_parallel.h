/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communication of the trainer's ranks. All calls of Tutti are in train_parallel.c.
 *
 * A data-parallel program needs few calls: a broadcast of the parameters at the start; in each step
 * one asynchronous allreduce per tensor, for the sum of all ranks' gradients, while the backward
 * pass continues; and a few sums for its statistics.
 */
#ifndef TRAIN_PARALLEL_H
#define TRAIN_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/tutti.h>

#include "train_base.h"
#include "train_model.h"

/* Times of this rank's communication in steps, by the library's counters: see tutti_stats_t. */
typedef struct {
    double hidden_seconds;  /* sums were in flight, and the backward pass continued */
    double exposed_seconds; /* the rank waited for sums */
} train_overlap_t;

typedef struct {
    tutti_comm_t *world;
    int rank;
    int size;
    int local_rank;
    int hosts;
    int device;               /* number of the GPU that Tutti uses; -1: none, on all ranks */
    train_compute_t *compute; /* the model's backend */
    float *gradients;         /* the backend's array, or tutti_mem_alloc's; layout as parameters */

    /* the current step */
    tutti_request_t *requests[TRAIN_MAX_TENSORS + 1];
    size_t request_count;
    train_error_t start_error; /* the error of a request that could not be started */
    train_overlap_t begin;     /* the counters before the step's first request */

    /* since the caller set them to 0 */
    double wait_seconds;     /* spent in train_parallel_wait */
    train_overlap_t overlap; /* in all steps; 0: not measured, or nothing was sent */
    size_t reductions;       /* requests started */
} train_parallel_t;

/* A rank's part of `count` items. */
typedef struct {
    size_t first;
    size_t count; /* differs by at most one between ranks; 0 on some if there are too few items */
} train_part_t;

/* Start Tutti. device: this rank's choice, a TRAIN_DEVICE_. Call train_parallel_stop also after a
   failure. */
bool train_parallel_start(int64_t device, train_parallel_t *ret_parallel, train_error_t *error);
void train_parallel_stop(train_parallel_t *parallel);

/* This rank's part of `count` items; the parts of all ranks together are all items. */
train_part_t train_parallel_part(const train_parallel_t *parallel, size_t count);

/*
 * Compare errors, options and data of all ranks. All ranks call it.
 *
 * error   this rank's error, if any; printed here, and then emptied. If several ranks have the same
 *         error, the lowest prints it
 * shared  lines of text that must be equal on all ranks, less than TRAIN_SHARED_BYTES. If they are
 *         not, the first difference is printed
 * data    checksum of the data; must be equal on all ranks
 *
 * Returns false on all ranks if a rank has an error, or differs from rank 0. In this case the error
 * has been printed, and all ranks must end, so that no rank waits for an ended rank.
 */
bool train_parallel_agree(const train_parallel_t *parallel, const char *shared, uint32_t data,
                          train_error_t *error);

/*
 * Give the model memory for its gradients, and copy rank 0's parameters to its host_parameters;
 * call train_model_put afterwards.
 */
bool train_parallel_share_model(train_parallel_t *parallel, train_model_t *model,
                                train_error_t *error);

/* Copy rank 0's buffer to all ranks. */
bool train_parallel_share(const train_parallel_t *parallel, void *buffer, size_t bytes,
                          train_error_t *error);

/*
 * Start an allreduce in place. _loss: of the loss, before the backward pass. _gradient: of a
 * gradient, as the train_ready_t of the backward pass. Both are arrays of the backend, and the sums
 * include the results of all queued work.
 */
void train_parallel_reduce_loss(train_parallel_t *parallel, double *loss);
void train_parallel_reduce_gradient(void *context, const train_tensor_t *tensor);

/* Wait until all sums that were started in this step are complete. On a device, wait only until the
   sums are queued: work that is queued afterwards finds them complete. */
bool train_parallel_wait(train_parallel_t *parallel, train_error_t *error);

/* This rank cannot continue, for the reason in `error`: end all ranks. Always returns false. */
bool train_parallel_abort(const train_parallel_t *parallel, const train_error_t *error);

/* Replace each value by its sum over all ranks. */
bool train_parallel_sum(const train_parallel_t *parallel, double *values, size_t count,
                        train_error_t *error);

/* Gather one 64-bit value of each rank; ret_values has room for one per rank. */
bool train_parallel_gather(const train_parallel_t *parallel, uint64_t value, uint64_t *ret_values,
                           train_error_t *error);

#endif
