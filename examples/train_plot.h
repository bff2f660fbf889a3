/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A drawing of a run: loss and accuracy by epoch.
 */
#ifndef TRAIN_PLOT_H
#define TRAIN_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "train_base.h"
#include "train_report.h"

/* Can a drawing have this name? active: also check whether the file can be written; pass true on
   one rank only. */
bool train_plot_check(const char *path, bool active, train_error_t *error);

/*
 * Before training: can gnuplot make such a drawing?
 *
 * ret_found  false: there is no gnuplot; a line on stderr reports it, but it is not an error
 */
bool train_plot_try(const char *path, bool *ret_found, train_error_t *error);

/*
 * Draw the results of `count` epochs, 1 or more, into an SVG or PNG file. Call it on one rank,
 * after train_plot_check and train_plot_try.
 */
bool train_plot(const char *path, const char *title, const train_result_t *results, size_t count,
                train_error_t *error);

#endif
