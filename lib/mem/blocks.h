/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks: memory of an arena that may outlive the communicator. A block keeps the arena mapped in
 * the owner's process; the peers unmap the arena when their communicators end. Any thread.
 */
#ifndef TUTTI__MEM_BLOCKS_H
#define TUTTI__MEM_BLOCKS_H

#include "mem/shared.h"

/* As tutti__arena_alloc. tutti__block_free frees the memory. */
tutti_status_t tutti__block_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);

/* Is ptr the beginning of a block that this process has allocated? */
int tutti__block_is_at(const void *ptr);

/* Free a block. NULL is allowed. In a forked child, the call does not change memory of the parent.
   INVALID_ARGUMENT: ptr is not the beginning of a block. */
tutti_status_t tutti__block_free(void *ptr);

#endif
