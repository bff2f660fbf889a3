/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ctrl-C, and the SIGTERM by which a launcher ends its ranks.
 *
 * The first signal only sets a flag. The training loop reads it between two batches, so files are
 * complete and the terminal is clean when the program ends. A second signal of the same kind ends
 * the program at once.
 */
#ifndef TRAIN_INTERRUPT_H
#define TRAIN_INTERRUPT_H

#include <stdbool.h>

#include "train_base.h"

/* The error of an interrupted rank, and of the other ranks. */
#define TRAIN_INTERRUPTED "interrupted by a signal"

/* Install the signal handlers. An ignored signal (nohup, a background job) stays ignored. */
void train_interrupt_watch(void);

/* The received signal; 0: none. */
int train_interrupt_signal(void);

/* After a signal: false, with the error TRAIN_INTERRUPTED. The caller then ends the training on
   this rank, and the rank leaves, which ends the calls of the other ranks. */
bool train_interrupt_check(train_error_t *error);

#endif
