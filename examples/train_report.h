/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the trainer shows: a progress bar or plain lines, and files for programs to read.
 *
 * Only rank 0 reports; on the others all of this does nothing.
 */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "train_base.h"
#include "train_options.h"

typedef struct {
    bool active; /* rank 0 */
    bool bar;
    FILE *metrics;   /* NULL: not wanted */
    FILE *log_steps; /* NULL: not wanted */
    const char *metrics_path;
    int metrics_errno; /* why the metrics could not be written, if so */
    const char *log_steps_path;
    double begin_seconds; /* when training began */
    double drawn_seconds; /* when the bar was drawn last */
    bool drawn;           /* the bar is on the screen */
} train_report_t;

/* Where training is. Numbers count from 1. */
typedef struct {
    size_t epoch, epochs;
    size_t step, steps;             /* in all */
    size_t earlier_steps;           /* made before this program began, if it resumed a run */
    size_t epoch_step, epoch_steps; /* in this epoch */
    double loss;                    /* mean over this step's images, of all ranks */
    double epoch_loss;              /* mean over this epoch's images so far */
    double images_per_second;       /* in this epoch so far, of all ranks */
} train_step_t;

/* What an epoch gave, over all ranks: the same numbers whenever the run is repeated. */
typedef struct {
    double train_loss;
    double test_loss;
    double test_accuracy;
    double learning_rate; /* of the last step */
} train_result_t;

/* The same, with what differs from run to run. */
typedef struct {
    size_t epoch, epochs;
    train_result_t result;
    double images_per_second; /* training, without the evaluation */
    double wait_share;        /* of the steps' time, spent waiting for communication; mean */
    size_t reductions;        /* asynchronous allreduces of each rank */
} train_epoch_t;

/*
 * Open the files that the options want; a resumed run adds to them. train_report_close takes what
 * this left, well or not.
 */
bool train_report_open(const train_options_t *options, bool active, train_report_t *ret_report,
                       train_error_t *error);

/* Print one line about the run before training begins. */
void train_report_begin(train_report_t *report, const char *format, ...) TRAIN_PRINTF(2, 3);

/* Would train_report_step show or write anything now? */
bool train_report_wants_step(const train_report_t *report);
void train_report_step(train_report_t *report, const train_step_t *step);
void train_report_epoch(train_report_t *report, const train_epoch_t *epoch);
void train_report_digests(train_report_t *report, const uint64_t *digests, size_t count);
void train_report_accuracy(train_report_t *report, double accuracy);

/* Where the run was when it was interrupted. */
typedef struct {
    size_t epoch, epochs;
    size_t step, steps;     /* completed; in all */
    const char *checkpoint; /* the file in which a resumed run would begin; NULL: there is none */
    size_t saved_step;      /* the one after which the checkpoint was made */
} train_stop_t;

/*
 * One line on stdout, in the place of the bar.
 *
 * Tried: stderr. Open MPI 4.1 reads no more of the ranks' stderr once it ends them, and lost 7 of
 * 14 such lines. Of their stdout, which is a terminal, it lost none of 21.
 */
void train_report_interrupted(train_report_t *report, const train_stop_t *stop);

/*
 * Take the bar off the screen and close the files. Fails if anything could not be written. After
 * it the report is one that does nothing.
 */
bool train_report_close(train_report_t *report, train_error_t *error);

#endif
