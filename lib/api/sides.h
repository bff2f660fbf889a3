/* SPDX-License-Identifier: BSD-3-Clause */
/* Overlaps of what a rank sends and receives in a call, for the checks of arguments. */
#ifndef TUTTI__API_SIDES_H
#define TUTTI__API_SIDES_H

#include "engine/call_sides.h"

/*
 * May these two stand where they do? Parts that are received must not overlap each other, nor what
 * is sent, unless the call works in place that way.
 *
 * INVALID_ARGUMENT, saying what overlaps; NO_MEMORY for sorting.
 */
tutti_status_t tutti__sides_check(const tutti__call_t *call, const tutti__side_t *send,
                                  const tutti__side_t *recv, uint32_t rank, uint32_t size);

#endif
