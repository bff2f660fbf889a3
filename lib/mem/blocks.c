/* SPDX-License-Identifier: BSD-3-Clause */
/* See blocks.h. Programs have a few dozen blocks, so a list suffices. */
#include "mem/blocks.h"

#include "base/forked.h"
#include "base/status.h"
#include "mem/mapping.h"

#include <stdlib.h>

typedef struct block {
    void *ptr;
    tutti__arena_t *arena;
    unsigned generation; /* of the process that allocated it */
    struct block *next;
} block_t;

static block_t *blocks; /* under tutti__mapping_lock */

tutti_status_t tutti__block_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr)
{
    block_t *block;
    void *ptr;
    tutti_status_t status = tutti__arena_alloc(arena, bytes, &ptr);

    if (status != TUTTI_OK)
        return status;
    if (ptr == NULL) {
        *ret_ptr = NULL;
        return TUTTI_OK;
    }
    block = malloc(sizeof(*block));
    if (block == NULL) {
        (void)tutti__arena_free(arena, ptr);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for a block");
    }
    tutti__arena_keep(arena);
    *block = (block_t){ ptr, arena, tutti__fork_generation(), NULL };
    tutti__mapping_lock();
    block->next = blocks;
    blocks = block;
    tutti__mapping_unlock();
    *ret_ptr = ptr;
    return TUTTI_OK;
}

/* Find the list's pointer to the block at `ptr`. NULL: there is none. A child of a fork may have a
   block at the same address as its parent. In this case the result is the child's block. */
static block_t **find(const void *ptr)
{
    unsigned generation = tutti__fork_generation();
    block_t **other = NULL, **at = &blocks;

    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->ptr != ptr)
            continue;
        if ((*at)->generation == generation)
            return at;
        other = at;
    }
    return other;
}

int tutti__block_is_at(const void *ptr)
{
    unsigned generation = tutti__fork_generation();
    const block_t *block;

    tutti__mapping_lock();
    block = blocks;
    while (block != NULL && (block->ptr != ptr || block->generation != generation))
        block = block->next;
    tutti__mapping_unlock();
    return block != NULL;
}

tutti_status_t tutti__block_free(void *ptr)
{
    block_t **at, *block = NULL;
    tutti_status_t status = TUTTI_OK;

    if (ptr == NULL)
        return TUTTI_OK;
    tutti__mapping_lock();
    at = find(ptr);
    if (at != NULL) {
        block = *at;
        *at = block->next;
    }
    tutti__mapping_unlock();
    if (block == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%p is not from tutti_mem_alloc_local, or was freed before", ptr);
    if (block->generation == tutti__fork_generation())
        status = tutti__arena_free(block->arena, ptr);
    tutti__arena_destroy(block->arena);
    free(block);
    return status;
}
