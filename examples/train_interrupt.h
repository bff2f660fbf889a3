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

/* The error of a rank that a signal has interrupted, and of the ranks that it left. */
#define TRAIN_INTERRUPTED "interrupted by a signal"

/* From now on set the flag. A signal that is ignored (nohup, a background job) stays ignored. */
void train_interrupt_watch(void);

/* The signal that has come; 0: none. */
int train_interrupt_signal(void);

/* False, with the error TRAIN_INTERRUPTED, if a signal has come. The rank leaves then, which ends
   the others' calls. */
bool train_interrupt_check(train_error_t *error);

#endif
