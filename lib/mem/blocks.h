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

/* Move the program's memory at `ptr` into a block: copy its contents, and map the block at `ptr`.
   bytes 0: nothing is done. UNSUPPORTED: see tutti__mem_check_anonymous, tutti__arena_add_alias. */
tutti_status_t tutti__block_register(tutti__arena_t *arena, void *ptr, size_t bytes);
/* Make registered memory private again, with its contents. ptr: as registered. In a forked child,
   which has no memory at `ptr`, only the block's entry is removed. INVALID_ARGUMENT: it is not
   registered. */
tutti_status_t tutti__block_unregister(void *ptr);

/* The name of the public function that frees the block at `ptr`. NULL: this process has allocated
   no block there. */
const char *tutti__block_freed_by(const void *ptr);

/* Free a block. NULL is allowed. In a forked child, the call does not change memory of the parent.
   INVALID_ARGUMENT: ptr is not the beginning of a block. */
tutti_status_t tutti__block_free(void *ptr);

#endif
