/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks: memory of an arena that may outlive the communicator. A block keeps the arena mapped in
 * the owner's process; the peers unmap the arena when their communicators end. Any thread.
 */
#ifndef TUTTI__MEM_BLOCKS_H
#define TUTTI__MEM_BLOCKS_H

#include "mem/shared.h"

/* Like tutti__arena_alloc, but tutti__block_free frees the memory. */
tutti_status_t tutti__block_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);

/* Move the program's memory at `ptr` into a block: copy its contents, and map the block at `ptr`.
   bytes 0: nothing is done. Errors: see tutti__mem_check_anonymous and tutti__arena_add_alias. */
tutti_status_t tutti__block_register(tutti__arena_t *arena, void *ptr, size_t bytes);
/* Make registered memory private again, and keep its contents. ptr: the registered address. In a
   child that was forked after the registration there is no memory at `ptr`, and only the block's
   entry is removed. Returns TUTTI_ERR_INVALID_ARGUMENT if `ptr` is not registered. */
tutti_status_t tutti__block_unregister(void *ptr);

/* The name of the public function that frees the block at `ptr`; NULL if this process has allocated
   no block there. */
const char *tutti__block_freed_by(const void *ptr);

/* Free a block. NULL is allowed. A forked child cannot change its parent's memory with this
   function. Returns TUTTI_ERR_INVALID_ARGUMENT if ptr is not the beginning of a block. */
tutti_status_t tutti__block_free(void *ptr);

#endif
