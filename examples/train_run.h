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
#include "train_schedule.h"

#define TRAIN_EVALUATION_ROWS 256 /* images that go through the model at once when testing */

typedef struct {
    train_options_t options;
    train_parallel_t parallel;
    train_data_t data;
    train_model_t model;
    train_optimizer_t optimizer;
    train_schedule_t schedule;
    train_report_t report;
    train_result_t *results; /* of the epochs that are complete; room for all */
    uint32_t *train_order;   /* the training images in this epoch's order */
    uint32_t *test_order;    /* the test images, 0, 1, 2, ... */
    uint8_t *labels;         /* of the rows in model.input */
    uint64_t *digests;       /* room for one of each rank */
    size_t batch;            /* images that are computed at once, over all ranks */
    size_t step_images;      /* images per step; the last step of an epoch may have less */
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
