/* SPDX-License-Identifier: BSD-3-Clause */
/* See blocks.h. Programs have a few dozen blocks, so a list suffices. */
#include "mem/blocks.h"

#include "base/constants.h"
#include "base/forked.h"
#include "base/status.h"
#include "mem/anonymous.h"
#include "mem/avail.h"
#include "mem/mapping.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct block {
    void *ptr;    /* the program's address */
    void *memory; /* the address in the arena; it differs from `ptr` for registered memory */
    size_t bytes;
    tutti__arena_t *arena;
    unsigned generation; /* fork generation of the process that allocated the block */
    struct block *next;
} block_t;

static block_t *blocks; /* under tutti__mapping_lock */

/* Allocate a block, but do not put it into the list. */
static tutti_status_t create(tutti__arena_t *arena, size_t bytes, block_t **ret_block)
{
    block_t *block = malloc(sizeof(*block));
    tutti_status_t status;

    if (block == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for a block");
    *block = (block_t){ .bytes = bytes, .arena = arena, .generation = tutti__fork_generation() };
    status = tutti__arena_alloc(arena, bytes, &block->memory);
    if (status != TUTTI_OK) {
        free(block);
        return status;
    }
    block->ptr = block->memory;
    tutti__arena_keep(arena);
    *ret_block = block;
    return TUTTI_OK;
}

static tutti_status_t destroy(block_t *block)
{
    tutti_status_t status = TUTTI_OK;

    /* A forked child must not free memory of its parent. */
    if (block->generation == tutti__fork_generation())
        status = tutti__arena_free(block->arena, block->memory);
    tutti__arena_destroy(block->arena);
    free(block);
    return status;
}

tutti_status_t tutti__block_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr)
{
    tutti_status_t status;
    block_t *block;

    if (bytes == 0) {
        *ret_ptr = NULL;
        return TUTTI_OK;
    }
    status = create(arena, bytes, &block);
    if (status != TUTTI_OK)
        return status;
    tutti__mapping_lock();
    block->next = blocks;
    blocks = block;
    tutti__mapping_unlock();
    *ret_ptr = block->ptr;
    return TUTTI_OK;
}

/* Map private memory at `ptr`, with the block's contents. */
static tutti_status_t map_private(const block_t *block, void *ptr)
{
    if (mmap(ptr, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return tutti__fail_errno("cannot map %zu bytes at %p", block->bytes, ptr);
    memcpy(ptr, block->memory, block->bytes);
    return TUTTI_OK;
}

/* Move the contents of the memory at `ptr` to the block, and map the block at `ptr`. The caller
   holds the lock, so that no fork occurs between the mapping and the change of the list. */
static tutti_status_t move_in(block_t *block, void *ptr)
{
    tutti_status_t status = tutti__arena_add_alias(block->arena, ptr, block->bytes, block->memory);

    if (status != TUTTI_OK)
        return status;
    memcpy(block->memory, ptr, block->bytes);
    status = tutti__arena_map_at(block->arena, ptr, block->bytes, block->memory);
    if (status == TUTTI_OK) {
        block->ptr = ptr;
        return TUTTI_OK;
    }
    tutti__arena_drop_alias(block->arena, ptr);
    /* Before Linux 6.12, a failed mapping may have removed the old mapping: map the contents
       again. */
    (void)map_private(block, ptr);
    return status;
}

tutti_status_t tutti__block_register(tutti__arena_t *arena, void *ptr, size_t bytes)
{
    tutti_status_t status = bytes > 0 ? tutti__mem_check_anonymous(ptr, bytes) : TUTTI_OK;
    block_t *block;

    if (status != TUTTI_OK || bytes == 0)
        return status;
    status = create(arena, bytes, &block);
    if (status != TUTTI_OK)
        return status;
    tutti__mapping_lock();
    status = move_in(block, ptr);
    if (status == TUTTI_OK) {
        block->next = blocks;
        blocks = block;
    }
    tutti__mapping_unlock();
    if (status != TUTTI_OK)
        (void)destroy(block);
    return status;
}

static int is_registered(const block_t *block)
{
    return block->ptr != block->memory;
}

/* Find the list's pointer to the block at `ptr`. Returns NULL if there is no such block. If a
   forked child and its parent have blocks at the same address, returns the child's block. */
static block_t **find(const void *ptr, int registered)
{
    unsigned generation = tutti__fork_generation();
    block_t **other = NULL, **at = &blocks;

    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->ptr != ptr || is_registered(*at) != registered)
            continue;
        if ((*at)->generation == generation)
            return at;
        other = at;
    }
    return other;
}

const char *tutti__block_freed_by(const void *ptr)
{
    unsigned generation = tutti__fork_generation();
    const char *name = NULL;

    tutti__mapping_lock();
    for (const block_t *block = blocks; block != NULL && name == NULL; block = block->next)
        if (block->ptr == ptr && block->generation == generation)
            name = is_registered(block) ? "tutti_mem_unregister" : "tutti_mem_free_local";
    tutti__mapping_unlock();
    return name;
}

tutti_status_t tutti__block_free(void *ptr)
{
    block_t **at, *block = NULL;

    if (ptr == NULL)
        return TUTTI_OK;
    tutti__mapping_lock();
    at = find(ptr, 0);
    if (at != NULL) {
        block = *at;
        *at = block->next;
    }
    tutti__mapping_unlock();
    if (block == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%p is not from tutti_mem_alloc_local, or was freed before", ptr);
    return destroy(block);
}

/* Is there memory for a copy? A small copy is not checked: reading the limits takes longer than the
   copy. */
static tutti_status_t check_available(uint64_t bytes)
{
    const char *owner;

    if (bytes <= TUTTI__RESERVE_LEAST_BYTES || tutti__mem_available("", &owner) >= bytes)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_NO_MEMORY,
                       "%s has too little memory for a copy of %" PRIu64 " bytes", owner, bytes);
}

/* Replace the alias by private memory with the same contents. The caller holds the lock, so that no
   child is forked meanwhile. */
static tutti_status_t move_out(const block_t *block)
{
    tutti_status_t status = check_available(block->bytes);

    if (status == TUTTI_OK)
        status = map_private(block, block->ptr);
    if (status == TUTTI_OK)
        tutti__arena_drop_alias(block->arena, block->ptr);
    else
        /* The failed mapping may have removed the old one, as in move_in. */
        (void)tutti__arena_map_at(block->arena, block->ptr, block->bytes, block->memory);
    return status;
}

tutti_status_t tutti__block_unregister(void *ptr)
{
    unsigned generation = tutti__fork_generation();
    tutti_status_t status = TUTTI_OK;
    block_t **at, *block = NULL;

    tutti__mapping_lock();
    at = find(ptr, 1);
    if (at != NULL) {
        block = *at;
        /* In a forked child, a block of the parent has no mapping: only the entry is removed. */
        status = block->generation == generation ? move_out(block) : TUTTI_OK;
        if (status == TUTTI_OK)
            *at = block->next;
    }
    tutti__mapping_unlock();
    if (block == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%p was not passed to tutti_mem_register, or was unregistered before",
                           ptr);
    return status == TUTTI_OK ? destroy(block) : status;
}
