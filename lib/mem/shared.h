/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that ranks of one machine share.
 *
 * Each rank owns one arena, a memfd, and allocates ranges of the arena. Peers map the arena once,
 * over a large span of addresses, far beyond the arena's current end. When the owner extends the
 * file, the new pages are visible in all mappings, so an address in a peer's arena is always
 * `base + offset`. So no collective call maps memory, mappings need no generation numbers, and a
 * rank passes only one descriptor to each peer.
 *
 *      file   |ctl|lanes|..hole..| fusion |  tutti_mem_alloc |(not yet)......|
 *      span   |<------------- up to 64 GiB, mapped at once ------------------>|
 *             |<---- 1/64 ---->|<---- ranges of 2 MiB or more: huge pages --->|
 *
 * fallocate reserves the pages of ranges, so if memory is missing, the allocation fails, and no
 * SIGBUS follows later. Arenas have no names; the kernel frees an arena with its last process.
 * Ranks that are threads of one process (tests) use one mapping, so that TSan sees all accesses.
 *
 * Tried: one memfd per buffer, passed and mapped at first use. Each buffer needs a collective step.
 */
#ifndef TUTTI__MEM_SHARED_H
#define TUTTI__MEM_SHARED_H

#include <tutti/tutti.h>

typedef struct tutti__arena tutti__arena_t;

/*
 * Make an empty arena for this rank. Any thread may allocate and free.
 *
 * nranks  the number of ranks that map each other's arenas, so this process maps nranks arenas
 *
 * The span is 64 GiB. It is less under RLIMIT_AS, with sanitizers, and if this process already maps
 * many arenas. A process has 128 TiB of addresses, and each communicator takes a part of the free
 * addresses.
 */
tutti_status_t tutti__arena_create_among(uint32_t nranks, tutti__arena_t **ret_arena);
/* tutti__arena_create_among for one rank. */
tutti_status_t tutti__arena_create(tutti__arena_t **ret_arena);
/* Add a user. The arena stays until tutti__arena_destroy has been called once for each user. */
void tutti__arena_keep(tutti__arena_t *arena);
/* Never free the arena. Call this at most once. */
void tutti__arena_leave(tutti__arena_t *arena);
void tutti__arena_destroy(tutti__arena_t *arena);

/* Huge pages for large ranges that are allocated from now on. */
typedef enum {
    TUTTI__HUGE_AUTO, /* the default: as in /sys/kernel/mm/transparent_hugepage/shmem_enabled */
    TUTTI__HUGE_NEVER,
    TUTTI__HUGE_ALWAYS /* even if that file has "never", the kernel's default */
} tutti__huge_t;
void tutti__arena_use_huge(tutti__arena_t *arena, tutti__huge_t huge);

int tutti__arena_fd(const tutti__arena_t *arena);
char *tutti__arena_base(const tutti__arena_t *arena);
size_t tutti__arena_span(const tutti__arena_t *arena);

/* Allocate a zeroed, page-aligned range. bytes is rounded up to pages; 0 bytes give NULL. Ranges of
   2 MiB or more begin at a multiple of 2 MiB, and use huge pages if allowed. The text of
   TUTTI_ERR_NO_MEMORY names the limit: the machine's, its control group's or RLIMIT_FSIZE. */
tutti_status_t tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);
/* Free a range, and return its memory to the system. NULL is allowed. Returns
   TUTTI_ERR_INVALID_ARGUMENT if ptr is not an allocated range. */
tutti_status_t tutti__arena_free(tutti__arena_t *arena, void *ptr);

/* Is [ptr, ptr + bytes) in the arena, or in an alias? If so, store the offset of ptr. */
int tutti__arena_offset(const tutti__arena_t *arena, const void *ptr, size_t bytes,
                        uint64_t *ret_offset);

/* ---- aliases (aliases.h); the caller holds tutti__mapping_lock ---- */

/* Map `bytes` of the arena, from `memory` on, a second time at `ptr`. The new mapping replaces all
   mappings there. Like the arena, the new mapping does not exist in forked children. ptr, memory
   and bytes: whole pages. */
tutti_status_t tutti__arena_map_at(const tutti__arena_t *arena, void *ptr, size_t bytes,
                                   const void *memory);
/* Add an alias: [ptr, ptr + bytes) means the arena's `memory`. UNSUPPORTED: too many aliases. */
tutti_status_t tutti__arena_add_alias(tutti__arena_t *arena, const void *ptr, size_t bytes,
                                      const void *memory);
/* Remove the alias that begins at `ptr`. The mapping stays. */
void tutti__arena_drop_alias(tutti__arena_t *arena, const void *ptr);

/* ---- peers ---- */

/* Map a peer's arena. If pid is this process, use the owner's mapping at owner_base, which stays
   until the owner and all peers have left it. A forked child has none of its parent's mappings. */
tutti_status_t tutti__arena_map(int fd, size_t span, int pid, char *owner_base, char **ret_base);
void tutti__arena_unmap(char *base, size_t span, int pid);

#endif
