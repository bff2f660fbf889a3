/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions for all compute backends.
 */
#include "train_compute.h"

bool train_compute_works(const train_compute_t *compute, train_error_t *error)
{
    return compute->error.text[0] == '\0' || train_fail(error, "%s", compute->error.text);
}
