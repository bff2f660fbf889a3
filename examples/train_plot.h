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

/*
 * Draw the results of `count` epochs, 1 or more, into an SVG file.
 *
 * The drawing is gnuplot's. Without gnuplot one line on stderr says so, and that is no error. Call
 * it on one rank.
 */
bool train_plot(const char *path, const char *title, const train_result_t *results, size_t count,
                train_error_t *error);

#endif
