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

#define TRAIN_MAX_HIDDEN 16

/* Hidden layers' widths. */
typedef struct {
    size_t count;
    size_t widths[TRAIN_MAX_HIDDEN];
} train_hidden_t;

/* What --schedule and --progress may say, in the order of their words. */
enum {
    TRAIN_SCHEDULE_COSINE,
    TRAIN_SCHEDULE_CONSTANT
};

enum {
    TRAIN_PROGRESS_AUTO,
    TRAIN_PROGRESS_BAR,
    TRAIN_PROGRESS_LINES
};

/* One field per option; the table in train_options.c says what they mean. */
typedef struct {
    const char *data; /* texts point into argv or are constant */
    train_hidden_t hidden;
    int64_t epochs;
    int64_t batch;
    int64_t reference_batch;
    double lr;
    double warmup;
    int64_t schedule;
    double momentum;
    double weight_decay;
    int64_t seed;
    int64_t threads;
    int64_t steps;
    int64_t progress;
    const char *metrics;   /* NULL: none */
    const char *log_steps; /* NULL: none */
    bool digest;
    bool help;
} train_options_t;

/* Read the command line: `--name value`, `--name=value`. What it does not mention has a default. */
bool train_options_parse(int argc, char **argv, train_options_t *ret_options, train_error_t *error);

/* Print all options with their defaults. */
void train_options_print_help(FILE *out);

/* A number that differs, most likely, if the options lead to another course of training. */
uint64_t train_options_fingerprint(const train_options_t *options);

#endif
