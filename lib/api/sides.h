/* SPDX-License-Identifier: BSD-3-Clause */
/* Overlaps of a call's send and receive buffers, for the argument checks. */
#ifndef TUTTI__API_SIDES_H
#define TUTTI__API_SIDES_H

#include "call/call_sides.h"

/*
 * Check the two sides of a call for overlaps. No two received parts may overlap. A received part
 * and a sent part may overlap only if the call is in place in an allowed way.
 *
 * INVALID_ARGUMENT: parts overlap; the text names them. NO_MEMORY: no memory for sorting.
 */
tutti_status_t tutti__sides_check(const tutti__call_t *call, const tutti__side_t *send,
                                  const tutti__side_t *recv, uint32_t rank, uint32_t size);

#endif
