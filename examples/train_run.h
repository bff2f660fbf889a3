/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run of training: the state of a rank, and the loop over epochs and steps.
 */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"
#include "train_checkpoint.h"
#include "train_data.h"
#include "train_model.h"
#include "train_optimizer.h"
#include "train_options.h"
#include "train_parallel.h"
#include "train_report.h"
#include "train_scale.h"
#include "train_schedule.h"

#define TRAIN_SCALE_FLOATS 4      /* in saved_state: the fields of train_scale_t; skipped steps */
#define TRAIN_EVALUATION_ROWS 256 /* images of one forward pass of the test */

/* Sums, which lie in an array of the backend. */
typedef struct {
    train_score_t step; /* of this rank; after the wait, the loss is the sum over all ranks */
    double epoch_loss;  /* only on a device: of the steps so far, summed over all images */
} train_sums_t;

typedef struct {
    train_options_t options;
    train_compute_t compute;
    char device[TRAIN_ERROR_BYTES]; /* the device, for output; "": the default */
    train_parallel_t parallel;
    train_data_t data;
    train_model_t model;
    train_optimizer_t optimizer;
    train_scale_t scale; /* of the loss; 1: no loss scaling */
    train_schedule_t schedule;
    train_report_t report;
    train_result_t *results; /* [epochs] of the epochs so far */
    uint32_t *train_order;   /* the training images in this epoch's order */
    uint32_t *test_order;    /* the test images, 0, 1, 2, ... */
    uint64_t *digests;       /* [ranks] */
    bool has_gnuplot;        /* on rank 0, with --plot */
    /* the optimizer's state, as the checkpoint saves it; with a device it is a copy in host memory,
       followed by the loss scale */
    float *saved_state;

    /* arrays of the backend; on the processor equal to the host's */
    train_source_t train_source, test_source;
    uint32_t *train_items, *test_items; /* train_order, test_order */
    uint8_t *labels;                    /* of the rows in model.input */
    train_sums_t *sums;
    float *device_gradients; /* on a device: parallel.gradients, freed after `parallel` */

    size_t max_rows;    /* most rows of a pass on this rank */
    size_t batch;       /* images of a pass, over all ranks */
    size_t step_images; /* images per step; the last step of an epoch may have fewer */
    size_t epoch_steps;
    size_t total_steps;
    size_t earlier_steps;          /* of the resumed run, before this program */
    train_checkpoint_t checkpoint; /* points to the arrays above; has the place in the run */
} trainer_t;

/*
 * Train from the step in trainer->checkpoint to the last step. All ranks call it.
 *
 * Returns false on all ranks if it failed on one. A rank that has found an error itself has it in
 * `error`.
 */
bool train_run(trainer_t *trainer, train_error_t *error);

#endif
