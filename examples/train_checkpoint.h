/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Saving a run after a step, and going on from there as if it had never stopped.
 *
 * What a run does next follows from its options, the data, the number of ranks, the parameters, the
 * optimizer's state and how far it is: shuffles and learning rates are functions of seed, epoch and
 * step. All of that is in the file, so a resumed run ends with the same bits as one that was never
 * interrupted.
 *
 * Only rank 0 writes and reads. The others get what it read from it, over Tutti: so all ranks have
 * the same state even if they see different disks.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"
#include "train_report.h"

/* What is saved. Points to the arrays of the run: reading fills them. */
typedef struct {
    const char *about; /* train_about_write: must be the same in the run that goes on */
    const train_options_t *options; /* of this run; only read, to word an error */
    uint64_t epochs;                /* that have begun; the last may be incomplete */
    uint64_t epochs_max;
    uint64_t steps;          /* of the optimizer, that is, of the run */
    double epoch_loss;       /* the last epoch's so far, over all its images */
    train_result_t *results; /* of the epochs; room for epochs_max */
    float *parameters;
    size_t parameter_count;
    float *state; /* of the optimizer */
    size_t state_count;
} train_checkpoint_t;

/* Could a checkpoint be written to this file? */
bool train_checkpoint_probe(const char *path, train_error_t *error);

/*
 * May this run, which does not resume, write its checkpoint there? If the file holds a checkpoint,
 * only with `overwrite`; if it holds anything else, never.
 */
bool train_checkpoint_replaceable(const char *path, bool overwrite, train_error_t *error);

/*
 * Write a checkpoint in place of the one that is there.
 *
 * Whenever the program or the machine stops, the file is either the old one or the new one, whole:
 * the new one is written under another name, brought to the disk, and then renamed.
 */
bool train_checkpoint_write(const char *path, const train_checkpoint_t *checkpoint,
                            train_error_t *error);

/*
 * Read a checkpoint of a run with the same `about` and sizes.
 *
 * On failure nothing is changed.
 */
bool train_checkpoint_read(const char *path, train_checkpoint_t *checkpoint, train_error_t *error);

#endif
