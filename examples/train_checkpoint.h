/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Saving a run after a step, and resuming it.
 *
 * The rest of a run depends on its options, the data, the number of ranks, the parameters, the
 * optimizer's state and the step: shuffles and learning rates are functions of seed, epoch and
 * step. All of this is in the file, so a resumed run ends with the same bits as an uninterrupted
 * run.
 *
 * Only rank 0 writes and reads, and sends the state to the other ranks with Tutti. So all ranks
 * have the same state even if they have different disks.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"
#include "train_report.h"

/* The saved state. Points to the arrays of the run, which reading fills. */
typedef struct {
    const char *about;              /* of train_about_write: must be the same in the resumed run */
    const train_options_t *options; /* of this run; for an error text */
    uint64_t epochs;                /* begun so far; the last may be incomplete */
    uint64_t epochs_max;
    uint64_t steps;          /* of the optimizer so far */
    double epoch_loss;       /* of the last epoch so far, summed over its images */
    train_result_t *results; /* [epochs_max] of the epochs */
    float *parameters;
    size_t parameter_count;
    float *state; /* of the optimizer */
    size_t state_count;
} train_checkpoint_t;

/* Can a checkpoint be written to this file? */
bool train_checkpoint_probe(const char *path, train_error_t *error);

/*
 * May this run, which is not resumed, write its checkpoint to this file? If the file is missing or
 * empty: yes. If it has a checkpoint: only with `overwrite`. If it has other content: no.
 */
bool train_checkpoint_replaceable(const char *path, bool overwrite, train_error_t *error);

/*
 * Write a checkpoint, replacing an existing one.
 *
 * If the program or the machine stops, the file is the complete old or the complete new one: the
 * new file is written under another name, flushed to the disk, and renamed.
 */
bool train_checkpoint_write(const char *path, const train_checkpoint_t *checkpoint,
                            train_error_t *error);

/*
 * Read a checkpoint of a run with the same `about` and sizes.
 *
 * On failure, nothing is changed.
 */
bool train_checkpoint_read(const char *path, train_checkpoint_t *checkpoint, train_error_t *error);

#endif
