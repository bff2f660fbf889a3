/* SPDX-License-Identifier: BSD-3-Clause */
/* The data that a rank sends and receives in a call, for argument checks and for copies. */
#ifndef TUTTI__CALL_CALL_SIDES_H
#define TUTTI__CALL_CALL_SIDES_H

#include "call/call.h"

/* One side: the data that leave a buffer, or enter it. */
typedef struct {
    const char *name, *count_name, *displs_name; /* of the arguments; name NULL: no such side */
    const char *ptr;                             /* the buffer */
    size_t count;                                /* elements of all parts */
    const size_t *counts, *displs;               /* [size], or NULL: one part */
    size_t end; /* elements from the buffer's beginning to the last part's end */
} tutti__side_t;

/* Fill in this rank's side, before tutti__side_measure; zeroed if the rank has no such side. Counts
   may be wrong or missing, but tutti__call_receives reads a reduce_scatterv's recvcounts. */
void tutti__call_sends(const tutti__call_t *call, uint32_t rank, uint32_t size,
                       tutti__side_t *ret_side);
void tutti__call_receives(const tutti__call_t *call, uint32_t rank, uint32_t size,
                          tutti__side_t *ret_side);
/* Set `count` and `end`. The counts must be present and not too large. */
void tutti__side_measure(tutti__side_t *side, uint32_t size);

#endif
