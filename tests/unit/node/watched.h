/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests: the pretend device, where device r is rank r's. The device fails on demand and counts
 * calls. It refuses NCCL's calls if their buffers overlap in a way that NCCL does not allow.
 */
#ifndef TESTS_UNIT_NODE_WATCHED_H
#define TESTS_UNIT_NODE_WATCHED_H

#include "pretend/pretend.h"

/* Reset everything. seed: determines the delays of work. */
void watched_begin(uint32_t nranks, uint32_t seed);
/* Fails the running test if the device was misused, or if something was not freed. */
void watched_end(void);

const tutti__device_ops_t *watched_device(void);

/* A rank's next call of NCCL fails; nccl_poll returns the error. */
void watched_fail_call(uint32_t rank);
/* Of the objects that are made after this call, making the n-th one fails, n >= 1. */
void watched_fail_make(int n);

/* The number of NCCL's aborts on this rank since watched_begin. */
int watched_aborts(uint32_t rank);
/* The number of NCCL's calls of a kind since watched_begin, over all ranks. */
int watched_calls(tutti__nccl_kind_t kind);

#endif
