/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests: the pretend device, where device r is rank r's, which fails on demand, counts, and
 * refuses calls of NCCL whose buffers overlap as NCCL does not allow.
 */
#ifndef TESTS_UNIT_NODE_WATCHED_H
#define TESTS_UNIT_NODE_WATCHED_H

#include "pretend/pretend.h"

/* Forget all that was before. seed: of how work is delayed. */
void watched_begin(uint32_t nranks, uint32_t seed);
/* Fails the test that runs if there was misuse, or if something was left. */
void watched_end(void);

const tutti__device_ops_t *watched_device(void);

/* A rank's next call of NCCL fails, which nccl_poll says. */
void watched_fail_call(uint32_t rank);
/* The n-th thing that is made from here on fails, n >= 1. */
void watched_fail_make(int n);

/* Since begin: how often NCCL was aborted.. */
int watched_aborts(uint32_t rank);
/* ..and how many calls of a kind it got, over all ranks. */
int watched_calls(tutti__nccl_kind_t kind);

#endif
