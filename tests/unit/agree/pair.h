/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks in one process: rank 0, the coordinator, and rank 1, its child. A message arrives as
 * soon as it is sent.
 */
#ifndef TESTS_UNIT_AGREE_PAIR_H
#define TESTS_UNIT_AGREE_PAIR_H

#include "agree/agree.h"

extern tutti__agree_t *pair[2]; /* by rank */

/* For the callbacks of the two ranks: the rank that owner belongs to. */
uint32_t pair_rank(const void *owner);

/* The callback `send`. */
void pair_send(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
               int urgent);

/* If memory is exhausted, the running cmocka test fails. ops: must be valid until pair_close.
   bucket_bytes: as in tutti__agree_env_t. */
void pair_open(const tutti__agree_ops_t *ops, uint64_t bucket_bytes);

/* A teardown function of cmocka. */
int pair_close(void **state);

#endif
