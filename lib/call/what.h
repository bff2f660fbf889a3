/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithm and the transport of an operation, for the statistics. */
#ifndef TUTTI__CALL_WHAT_H
#define TUTTI__CALL_WHAT_H

#include "call/operation.h"
#include "stats/stats.h"

/* For an operation that has just ended without an error. call: the program's call; for a bucket,
   the call of its first tensor. */
tutti__stats_what_t tutti__operation_what(const tutti__operation_t *op, const tutti__call_t *call,
                                          int is_async);

#endif
