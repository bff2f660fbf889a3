/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run of training: all that one rank has, and the loop over epochs and steps.
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

#define TRAIN_SCALE_FLOATS 4      /* of saved_state: the loss's scale, its age, hysteresis; skips */
#define TRAIN_EVALUATION_ROWS 256 /* images that go through the model at once when testing */

/* In an array of the compute. */
typedef struct {
    train_score_t step; /* this rank's; the loss is the sum over ranks once waited for */
    double epoch_loss;  /* on a device only: of the steps so far, summed over all images */
} train_sums_t;

typedef struct {
    train_options_t options;
    train_compute_t compute;
    char device[TRAIN_ERROR_BYTES]; /* what computes, to be shown; "": the default */
    train_parallel_t parallel;
    train_data_t data;
    train_model_t model;
    train_optimizer_t optimizer;
    train_scale_t scale; /* of the loss; 1 unless it is to be scaled */
    train_schedule_t schedule;
    train_report_t report;
    train_result_t *results; /* of the epochs that are complete; room for all */
    uint32_t *train_order;   /* the training images in this epoch's order */
    uint32_t *test_order;    /* the test images, 0, 1, 2, ... */
    uint64_t *digests;       /* room for one of each rank */
    bool has_gnuplot;        /* on rank 0, and only if there is something to be drawn */
    float *saved_state;      /* the optimizer's; on a device a copy, with the scale behind it */

    /* arrays of the compute, for the processor the host's own */
    train_source_t train_source, test_source;
    uint32_t *train_items, *test_items; /* train_order, test_order */
    uint8_t *labels;                    /* of the rows in model.input */
    train_sums_t *sums;
    float *device_gradients; /* on a device: parallel.gradients, which outlives that */

    size_t max_rows;    /* of this rank at once */
    size_t batch;       /* images that are computed at once, over all ranks */
    size_t step_images; /* images per step; the last step of an epoch may have less */
    size_t epoch_steps;
    size_t total_steps;
    size_t earlier_steps;          /* of the run that is resumed */
    train_checkpoint_t checkpoint; /* points to the arrays above, and says how far it is */
} trainer_t;

/*
 * Train from where trainer->checkpoint is until the last step. All ranks call it.
 *
 * Returns false on all ranks if it failed on one; the reason is in `error` of those that know it.
 */
bool train_run(trainer_t *trainer, train_error_t *error);

#endif
