/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's output: a progress bar or plain lines, and files for programs.
 *
 * Only rank 0 reports; on other ranks these functions do nothing.
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
    FILE *metrics;   /* NULL: not requested */
    FILE *log_steps; /* NULL: not requested */
    bool resumed;    /* the files keep their content */
    const char *metrics_path;
    int metrics_errno; /* of a failed write to metrics, or 0 */
    const char *log_steps_path;
    int log_steps_errno;                    /* the same for log_steps */
    double begin_seconds;                   /* begin of training */
    double drawn_seconds;                   /* the last drawing of the bar */
    bool drawn;                             /* the bar is on the screen */
    double hidden_seconds, exposed_seconds; /* of the epochs so far */
} train_report_t;

/* The state of training. Epochs and steps count from 1. */
typedef struct {
    size_t epoch, epochs;
    size_t step, steps;             /* of the whole run */
    size_t earlier_steps;           /* before this program, if it has resumed a run */
    size_t epoch_step, epoch_steps; /* in this epoch */
    double loss;                    /* mean over this step's images, of all ranks */
    double epoch_loss;              /* mean over this epoch's images so far */
    double images_per_second;       /* in this epoch so far, of all ranks */
} train_step_t;

/* The results of an epoch, over all ranks; the same in every repetition of the run. */
typedef struct {
    double train_loss;
    double test_loss;
    double test_accuracy;
    double learning_rate; /* of the last step */
} train_result_t;

/* The same, with measurements that differ from run to run. */
typedef struct {
    size_t epoch, epochs;
    train_result_t result;
    double images_per_second; /* of training, without the evaluation */
    double wait_share;        /* share of the steps' time in tutti_wait; mean of all ranks */
    double hidden_seconds;    /* of communication in steps, of all ranks: see train_overlap_t */
    double exposed_seconds;   /* the same; both are 0 without communication or measurement */
    size_t reductions;        /* asynchronous allreduces of each rank */
} train_epoch_t;

/*
 * Open the files of the options. They keep their content until training begins, because the run may
 * still fail. Call train_report_close also after a failure.
 */
bool train_report_open(const train_options_t *options, bool active, train_report_t *ret_report,
                       train_error_t *error);

/* Print one line about the run. The bar must not be on the screen. */
void train_report_line(train_report_t *report, const char *format, ...) TRAIN_PRINTF(2, 3);

/* Training begins now. Removes an earlier run's content from the files; a resumed run appends. */
void train_report_begin(train_report_t *report);

/* Would train_report_step print or write now? */
bool train_report_wants_step(const train_report_t *report);
void train_report_step(train_report_t *report, const train_step_t *step);
void train_report_epoch(train_report_t *report, const train_epoch_t *epoch);
void train_report_digests(train_report_t *report, const uint64_t *digests, size_t count);
/* The share of the run's communication that was hidden. Prints nothing if there was none. */
void train_report_hidden(train_report_t *report);
void train_report_accuracy(train_report_t *report, double accuracy);

/* The state of an interrupted run. */
typedef struct {
    size_t epoch, epochs;
    size_t step, steps;     /* completed; of the whole run */
    const char *checkpoint; /* the file for --resume; NULL: none */
    size_t saved_step;      /* the last step in the checkpoint */
} train_stop_t;

/*
 * Print one line on stdout, in the place of the bar.
 *
 * Tried: stderr. When Open MPI 4.1 ends the ranks, it stops reading their stderr, and lost 7 of 14
 * such lines. Of stdout, which is a terminal, it lost none of 21.
 */
void train_report_interrupted(train_report_t *report, const train_stop_t *stop);

/*
 * Erase the bar and close the files. Fails if a write has failed. Afterwards the report is
 * inactive.
 */
bool train_report_close(train_report_t *report, train_error_t *error);

#endif
