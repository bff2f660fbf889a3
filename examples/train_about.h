/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options, number of ranks and data on which the parameters depend, as lines of text. A resumed
 * run must have the same lines as the checkpoint.
 */
#ifndef TRAIN_ABOUT_H
#define TRAIN_ABOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"
#include "train_options.h"

/*
 * Write the lines: those of train_options_describe, then ranks and data.
 *
 * ret_text  [TRAIN_ABOUT_BYTES], which always suffice
 */
#define TRAIN_ABOUT_BYTES (TRAIN_TEXT_BYTES + 100)
void train_about_write(const train_options_t *options, int ranks, uint32_t checksum,
                       char *ret_text);

/*
 * Compare the lines in a checkpoint with those of this run.
 *
 * theirs, bytes  the checkpoint's lines, without a '\0' at the end
 * ours           this run's lines
 * options        this run's options
 * ret_reason     the first difference, if there is one. It names only options that were typed, for
 *                this run or for the run that made the checkpoint
 */
bool train_about_fits(const char *theirs, size_t bytes, const char *ours,
                      const train_options_t *options, train_error_t *ret_reason);

#endif
