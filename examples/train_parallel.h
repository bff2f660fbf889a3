/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything in which a rank of the trainer deals with the others. All use of Tutti is here.
 *
 * A data-parallel program needs little: the same parameters at the start (broadcast), the sum of
 * all ranks' gradients in every step (one asynchronous allreduce per tensor, under way while the
 * backward pass goes on), and a few sums for its statistics.
 */
#ifndef TRAIN_PARALLEL_H
#define TRAIN_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/tutti.h>

#include "train_base.h"
#include "train_model.h"

typedef struct {
    tutti_comm_t *world;
    int rank;
    int size;
    int local_rank;
    int hosts;
    int device;               /* number of the GPU that Tutti uses; -1: none, on all ranks alike */
    train_compute_t *compute; /* the model's */
    float *gradients;         /* its array, or zero-copy memory; laid out as the parameters */

    /* the step that is under way */
    tutti_request_t *requests[TRAIN_MAX_TENSORS + 1];
    size_t request_count;
    train_error_t start_error; /* why a request could not be started, if so */

    /* since the caller set them to 0 */
    double wait_seconds; /* spent in train_parallel_wait */
    size_t reductions;   /* requests started */
} train_parallel_t;

/* A rank's part of `count` items. */
typedef struct {
    size_t first;
    size_t count; /* differs by at most one between ranks; 0 on some if there are too few items */
} train_part_t;

/* Find the other ranks. device: TRAIN_DEVICE_, what this one asks for. train_parallel_stop takes
   what this left, well or not. */
bool train_parallel_start(int64_t device, train_parallel_t *ret_parallel, train_error_t *error);
void train_parallel_stop(train_parallel_t *parallel);

/* The part of `count` items that belongs to this rank; all ranks' parts together are all items. */
train_part_t train_parallel_part(const train_parallel_t *parallel, size_t count);

/*
 * Go on only if no rank has an error and all ranks mean the same run. All ranks call it.
 *
 * error        this rank's error, if any; printed here, and then emptied. Of ranks with the same
 *              error the lowest prints it
 * fingerprint  of options and data; must be equal on all ranks
 *
 * Returns false on all ranks if one of them cannot go on, after the reason has been printed: so
 * they all end, and none waits for a rank that is gone.
 */
bool train_parallel_agree(const train_parallel_t *parallel, uint64_t fingerprint,
                          train_error_t *error);

/*
 * Give the model memory for its gradients, and rank 0's parameters, which it is still to take over
 * (train_model_put).
 */
bool train_parallel_share_model(train_parallel_t *parallel, train_model_t *model,
                                train_error_t *error);

/* Give all ranks what rank 0 has in these bytes. */
bool train_parallel_share(const train_parallel_t *parallel, void *buffer, size_t bytes,
                          train_error_t *error);

/*
 * Start to add up the loss in place, before the backward pass; a gradient, as a train_ready_t of
 * it. Both are arrays of the model's compute: what was ordered before is in them.
 */
void train_parallel_reduce_loss(train_parallel_t *parallel, double *loss);
void train_parallel_reduce_gradient(void *context, const train_tensor_t *tensor);

/* Wait until everything that was started in this step is the sum over all ranks; on a device, for
   what the compute is ordered to do next. */
bool train_parallel_wait(train_parallel_t *parallel, train_error_t *error);

/* This rank cannot go on, for the reason in `error`: let the others know. Always returns false. */
bool train_parallel_abort(const train_parallel_t *parallel, const train_error_t *error);

/* Replace each value by its sum over all ranks. */
bool train_parallel_sum(const train_parallel_t *parallel, double *values, size_t count,
                        train_error_t *error);

/* Gather one 64-bit value of each rank; ret_values has room for one per rank. */
bool train_parallel_gather(const train_parallel_t *parallel, uint64_t value, uint64_t *ret_values,
                           train_error_t *error);

#endif
