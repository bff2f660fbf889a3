/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that ranks of one machine share.
 *
 * Each rank owns one memfd, its arena, and hands out ranges of it; peers map the whole arena once,
 * over a large span of addresses, far beyond its present end. When the owner makes the file longer
 * the new pages are simply there, so a place in any peer's arena is always `base + offset`: no
 * mapping on the way, no generation numbers, and one descriptor per pair of ranks is ever passed.
 *
 *      file   |ctl|lanes|..hole..| fusion |  tutti_mem_alloc |(not yet)......|
 *      span   |<------------- up to 64 GiB, mapped at once ------------------>|
 *             |<---- 1/64 ---->|<---- ranges of 2 MiB or more: huge pages --->|
 *
 * Ranges are reserved with fallocate, so a full limit is an error here and never a SIGBUS later.
 * Nothing has a name; the kernel frees it with the last process. Ranks that are threads of one
 * process (tests) use one mapping, so that TSan sees all accesses.
 *
 * Tried: one memfd per buffer, passed and mapped at first use: needs a collective moment for each.
 */
#ifndef TUTTI__MEM_SHARED_H
#define TUTTI__MEM_SHARED_H

#include <tutti/tutti.h>

typedef struct tutti__arena tutti__arena_t;

/*
 * An own arena, empty. Any thread may allocate and free.
 *
 * nranks  that map each other's arenas; this process maps as many
 *
 * The span is 64 GiB; less under RLIMIT_AS and sanitizers, and where there are many arenas already:
 * a process has 128 TiB of addresses, and each communicator takes its part of what is left.
 */
tutti_status_t tutti__arena_create_among(uint32_t nranks, tutti__arena_t **ret_arena);
/* The same for one rank. */
tutti_status_t tutti__arena_create(tutti__arena_t **ret_arena);
void tutti__arena_destroy(tutti__arena_t *arena);

/* Huge pages for large ranges that are allocated from now on. */
typedef enum {
    TUTTI__HUGE_AUTO, /* as shmem_enabled says, of /sys/kernel/mm/transparent_hugepage; at first */
    TUTTI__HUGE_NEVER,
    TUTTI__HUGE_ALWAYS /* also where that says "never", the kernel's default */
} tutti__huge_t;
void tutti__arena_use_huge(tutti__arena_t *arena, tutti__huge_t huge);

int tutti__arena_fd(const tutti__arena_t *arena);
char *tutti__arena_base(const tutti__arena_t *arena);
size_t tutti__arena_span(const tutti__arena_t *arena);

/* A zeroed, page-aligned range; bytes are rounded up to pages; 0 bytes give NULL. 2 MiB or more
   begin at a multiple of 2 MiB, and are on huge pages if they may. Where the machine, its control
   group or RLIMIT_FSIZE does not have it, TUTTI_ERR_NO_MEMORY says so. */
tutti_status_t tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);
/* ptr as returned by alloc; INVALID_ARGUMENT if not. NULL is fine. Memory goes back at once. */
tutti_status_t tutti__arena_free(tutti__arena_t *arena, void *ptr);

/* Does [ptr, ptr + bytes) lie in the arena? Its offset then. */
int tutti__arena_offset(const tutti__arena_t *arena, const void *ptr, size_t bytes,
                        uint64_t *ret_offset);

/* A peer's arena. With pid of this very process the owner's mapping at owner_base is used, which
   then stays until both have let go. A forked child has none of its parent's mappings. */
tutti_status_t tutti__arena_map(int fd, size_t span, int pid, char *owner_base, char **ret_base);
void tutti__arena_unmap(char *base, size_t span, int pid);

#endif
