/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's command line.
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "train_base.h"

/* The values of options that are words, in the order of the words. Optimizer and schedule have
   their own enums. */
enum {
    TRAIN_MODEL_MLP,
    TRAIN_MODEL_CNN
};

enum {
    TRAIN_DEVICE_CPU,
    TRAIN_DEVICE_CUDA,
    TRAIN_DEVICE_AUTO
};

enum {
    TRAIN_PROGRESS_AUTO,
    TRAIN_PROGRESS_BAR,
    TRAIN_PROGRESS_LINES
};

/* One field per option; the table in train_options.c describes them. */
typedef struct {
    const char *data;  /* texts point into argv or are constant */
    int64_t device;    /* auto is replaced by the chosen device */
    int64_t precision; /* a train_precision_t */
    int64_t model;
    train_list_t channels;
    train_list_t hidden;
    int64_t epochs;
    int64_t batch;
    int64_t accumulate;
    double clip; /* 0: no limit */
    int64_t optimizer;
    double lr;
    int64_t reference_batch;
    int64_t lr_scaling;
    double warmup;
    int64_t schedule;
    double decay_every;
    double decay;
    double momentum;
    double beta1, beta2;
    double epsilon;
    double trust;
    double weight_decay;
    int64_t seed;
    int64_t threads;
    int64_t steps;
    int64_t progress;
    const char *checkpoint; /* here and in the next three fields, NULL means not given */
    const char *plot;
    const char *metrics;
    const char *log_steps;
    bool resume;
    bool overwrite;
    bool digest;
    bool help;
    uint64_t given; /* bit i: row i of the table was on the command line */
} train_options_t;

/* Parse the command line: `--name value`, `--name=value`. Options that are not given have their
   defaults. */
bool train_options_parse(int argc, char **argv, train_options_t *ret_options, train_error_t *error);

/* Print all options with their defaults. */
void train_options_print_help(FILE *out);

/* The value of the option `name`, as it would be typed; cut if longer than `bytes`. */
void train_options_value(const train_options_t *options, const char *name, char *ret_text,
                         size_t bytes);

/* Was the option `name` on the command line? False also if there is no such option. */
bool train_options_given(const train_options_t *options, const char *name);

/*
 * Write all options on which the parameters depend, one line each: "--batch 128". With the same
 * lines, data and ranks, two runs have the same parameters, bit by bit.
 *
 * --epochs is included only if the schedule depends on it: otherwise a run can be trained longer.
 * Options of another model, optimizer or schedule are not included.
 *
 * ret_text  [TRAIN_TEXT_BYTES], which always suffice
 */
#define TRAIN_TEXT_BYTES 4096
void train_options_describe(const train_options_t *options, char *ret_text);

/*
 * Write all options that must be equal on all ranks, one line each: the options of
 * train_options_describe, and the options that only determine how long the ranks run or what they
 * do together. For --checkpoint and the switches, the line is "with NAME" or "without NAME".
 *
 * ret_text  [TRAIN_SHARED_BYTES], which always suffice
 */
#define TRAIN_SHARED_BYTES (TRAIN_TEXT_BYTES + 200)
void train_options_describe_shared(const train_options_t *options, char *ret_text);

#endif
