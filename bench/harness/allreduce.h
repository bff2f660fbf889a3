/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, sum: the common part of tutti_allreduce and tutti_allreduce_async.
 */
#ifndef TUTTI_BENCH_ALLREDUCE_H
#define TUTTI_BENCH_ALLREDUCE_H

#include "harness/bench.h"

extern const bench_collective_t bench_allreduce;

int bench_allreduce_direct(const bench_call_t *call);
int bench_allreduce_async(const bench_call_t *call);
int bench_allreduce_ordered(const bench_call_t *call); /* without a name */

#endif
