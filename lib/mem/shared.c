/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arenas: one memfd per rank, mapped once over a large span; see shared.h.
 *
 * An allocation takes a range from the list, makes the file long enough, and reserves the range's
 * pages. Freeing a range punches a hole, so the memory returns to the system and the next user
 * finds zeros. The file never shrinks: a late peer reads zeros and gets no SIGBUS.
 *
 * Ranges of 2 MiB or more begin where huge pages are possible, and use huge pages if the kernel
 * allows this: see make_huge. All smaller ranges are at the beginning, on small pages.
 *
 * Any thread. The lock covers the list and the file's length. It is not held while pages are
 * reserved, which takes 0.25 ms per MiB, or 0.07 ms per MiB with huge pages.
 */
#include "mem/shared.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "base/forked.h"
#include "base/lock.h"
#include "base/status.h"
#include "mem/aliases.h"
#include "mem/avail.h"
#include "mem/mapping.h"
#include "mem/ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* Sizes of address space, not of memory. With a sanitizer a process has fewer addresses, and each
   address takes shadow memory. */
#ifdef TUTTI__SANITIZED
#define SPAN_MOST (4096 * MIB)
#define ADDRESSES (1024 * 1024 * MIB)
#else
#define SPAN_MOST (65536 * MIB)
#define ADDRESSES (96 * 1024 * 1024 * MIB)
#endif
#define SPAN_LEAST (256 * MIB)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels return EINVAL, which is ignored */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older kernels also return EINVAL */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3; required on some systems */
#endif

struct tutti__arena {
    unsigned generation; /* fork generation of the process that has made the arena */
    int fd;
    char *base;
    size_t span;
    size_t page_bytes;
    int huge; /* ranges may have huge pages */
    atomic_uint users;
    tutti__arena_t *next; /* in the list of arenas that are never freed */

    tutti__mutex_t lock;
    tutti__ranges_t *ranges;  /* under lock */
    uint64_t file_bytes;      /* under lock */
    tutti__aliases_t aliases; /* written under tutti__mapping_lock */
};

static size_t span_wanted(uint32_t nranks)
{
    uint64_t span = SPAN_MOST, total = tutti__mapping_total();
    uint64_t left = total < ADDRESSES ? ADDRESSES - total : 0;
    struct rlimit limit;

    while (span > SPAN_LEAST && span > left / (total == 0 ? 2 : TUTTI__SPAN_FURTHER) / nranks)
        span /= 2;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return span;
    left = total < limit.rlim_cur ? limit.rlim_cur - total : 0;
    while (span > SPAN_LEAST && span > left / TUTTI__SPAN_RANKS)
        span /= 2;
    return span;
}

/* The offset from which large ranges are taken. If the length of files is limited, the file must
   stay short, so large ranges may be anywhere. The limit is read each time, because it may change
   at any time. */
static uint64_t huge_from(uint64_t span)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return 0;
    return tutti__mapping_huge_from(span);
}

/* "always within_size advise [never] deny force": the setting in brackets is in use. */
static int system_lets_huge(void)
{
    char text[80] = "";
    int fd = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    return n > 0 && strstr(text, "[never]") == NULL && strstr(text, "[deny]") == NULL;
}

void tutti__arena_use_huge(tutti__arena_t *arena, tutti__huge_t huge)
{
    arena->huge = huge == TUTTI__HUGE_AUTO ? system_lets_huge() : huge == TUTTI__HUGE_ALWAYS;
}

static tutti_status_t open_memfd(int *ret_fd)
{
    int fd = memfd_create("tutti", MFD_CLOEXEC | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("tutti", MFD_CLOEXEC);
    if (fd < 0)
        return tutti__fail_errno("cannot make a file for shared memory (memfd_create)");
    *ret_fd = fd;
    return TUTTI_OK;
}

tutti_status_t tutti__arena_create(tutti__arena_t **ret_arena)
{
    return tutti__arena_create_among(1, ret_arena);
}

tutti_status_t tutti__arena_create_among(uint32_t nranks, tutti__arena_t **ret_arena)
{
    tutti__arena_t *arena = calloc(1, sizeof(*arena));
    tutti_status_t status;

    if (arena == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for an arena");
    arena->generation = tutti__fork_generation();
    atomic_init(&arena->users, 1);
    arena->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    tutti__mutex_init(&arena->lock, TUTTI__LOCK_ARENA);

    status = open_memfd(&arena->fd);
    if (status != TUTTI_OK)
        goto free_arena;

    arena->span = span_wanted(nranks);
    for (;;) {
        status = tutti__mapping_open(arena->fd, arena->span, &arena->base);
        if (status == TUTTI_OK || arena->span <= SPAN_LEAST)
            break;
        arena->span /= 2;
    }
    if (status != TUTTI_OK)
        goto close_fd;

    tutti__arena_use_huge(arena, TUTTI__HUGE_AUTO);
    arena->ranges = tutti__ranges_create(arena->span);
    if (arena->ranges == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for an arena");
        goto leave_mapping;
    }
    *ret_arena = arena;
    return TUTTI_OK;

leave_mapping:
    tutti__mapping_leave(arena->base);
close_fd:
    close(arena->fd);
free_arena:
    tutti__mutex_destroy(&arena->lock);
    free(arena);
    return status;
}

void tutti__arena_keep(tutti__arena_t *arena)
{
    atomic_fetch_add(&arena->users, 1);
}

void tutti__arena_leave(tutti__arena_t *arena)
{
    static _Atomic(tutti__arena_t *) first; /* leak checkers find the arenas in this list */

    tutti__arena_keep(arena);
    arena->next = atomic_load(&first);
    while (!atomic_compare_exchange_weak(&first, &arena->next, arena))
        continue;
}

void tutti__arena_destroy(tutti__arena_t *arena)
{
    if (arena == NULL || atomic_fetch_sub(&arena->users, 1) != 1)
        return;
    tutti__ranges_destroy(arena->ranges);
    /* A forked child has no mapping of its parent's arena, and may have its own arena at this
       address. */
    if (arena->generation == tutti__fork_generation())
        tutti__mapping_leave(arena->base);
    close(arena->fd);
    tutti__mutex_destroy(&arena->lock);
    free(arena);
}

int tutti__arena_fd(const tutti__arena_t *arena)
{
    return arena->fd;
}

char *tutti__arena_base(const tutti__arena_t *arena)
{
    return arena->base;
}

size_t tutti__arena_span(const tutti__arena_t *arena)
{
    return arena->span;
}

/*
 * Return the pages of [offset, offset + bytes) to the system. UCX and MPI keep memory registered
 * for the network, and a registration pins the pages. The hooks of UCX and MPI end a registration
 * at madvise, but not at fallocate. With fallocate alone, the network would access the old pages
 * after the range has got new pages. In locked memory (mlockall) MADV_REMOVE runs the hooks but
 * fails, and fallocate returns the pages.
 */
static int punch(const tutti__arena_t *arena, uint64_t offset, uint64_t bytes)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, rc;

    if (madvise(arena->base + offset, bytes, MADV_REMOVE) == 0)
        return 0;
    do
        rc = fallocate(arena->fd, mode, (off_t)offset, (off_t)bytes);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* Check the limit before ftruncate. Beyond RLIMIT_FSIZE, ftruncate would not only fail: the signal
   SIGXFSZ would end the process. */
static tutti_status_t check_file_limit(uint64_t end)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        end <= limit.rlim_cur)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_NO_MEMORY,
                       "%" PRIu64 " bytes of shared memory in all are over the limit on file "
                       "sizes, %" PRIu64 " (ulimit -f)",
                       end, (uint64_t)limit.rlim_cur);
}

/* Only this function makes the file longer. It takes the lock, because the later one of two
   concurrent calls of ftruncate could shorten the file. */
static tutti_status_t lengthen(tutti__arena_t *arena, uint64_t end)
{
    tutti_status_t status = check_file_limit(end);
    int rc = 0;

    if (status != TUTTI_OK)
        return status;
    tutti__mutex_lock(&arena->lock);
    if (end > arena->file_bytes) {
        rc = ftruncate(arena->fd, (off_t)end);
        if (rc == 0)
            arena->file_bytes = end;
    }
    tutti__mutex_unlock(&arena->lock);
    return rc == 0 ? TUTTI_OK : tutti__fail_errno("cannot lengthen the file");
}

/* Check that there is memory for these bytes, and for one further piece, because other ranks of
   this machine reserve memory at the same time. */
static tutti_status_t check_available(uint64_t bytes)
{
    const char *who;
    uint64_t available = tutti__mem_available("", &who);

    if (available >= bytes + TUTTI__MIN(bytes, TUTTI__RESERVE_MOST_BYTES))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_NO_MEMORY, "%s has only %" PRIu64 " MiB of memory left", who,
                       available / MIB);
}

/*
 * Make a huge page for each aligned 2 MiB inside [offset, offset + bytes), which has no pages yet.
 * If this fails, fallocate later reserves small pages, and reports errors.
 *
 * The first access to each 2 MiB (MADV_POPULATE_WRITE) allocates a huge page if shmem_enabled
 * allows huge pages on request. Otherwise this allocates a small page. In this case MADV_COLLAPSE,
 * which needs at least one page, makes a huge page of the 2 MiB. Only the setting "deny" refuses
 * MADV_COLLAPSE.
 */
static void make_huge(const tutti__arena_t *arena, uint64_t offset, uint64_t bytes)
{
    uint64_t begin = TUTTI__ROUND_UP(offset, TUTTI__HUGE_BYTES);
    uint64_t end = (offset + bytes) / TUTTI__HUGE_BYTES * TUTTI__HUGE_BYTES;

    if (!arena->huge || begin >= end)
        return;
    for (uint64_t at = begin; at < end; at += TUTTI__HUGE_BYTES)
        if (madvise(arena->base + at, arena->page_bytes, MADV_POPULATE_WRITE) != 0)
            return;
    (void)madvise(arena->base + begin, end - begin, MADV_COLLAPSE);
}

/* Reserve pages for [offset, offset + bytes) of the file. After a failure some of these pages stay
   reserved. */
static tutti_status_t reserve(tutti__arena_t *arena, uint64_t offset, uint64_t bytes)
{
    uint64_t piece = TUTTI__RESERVE_MOST_BYTES, done = 0;
    tutti_status_t status = lengthen(arena, offset + bytes);

    while (status == TUTTI_OK && done < bytes) {
        uint64_t now = TUTTI__MIN(piece, bytes - done);

        if (now > TUTTI__RESERVE_LEAST_BYTES)
            status = check_available(done == 0 ? bytes : now);
        if (status != TUTTI_OK)
            break;
        make_huge(arena, offset + done, now);
        if (fallocate(arena->fd, 0, (off_t)(offset + done), (off_t)now) == 0)
            done += now;
        else if (errno == EINTR)
            piece = TUTTI__MAX(piece / 2, TUTTI__RESERVE_LEAST_BYTES);
        else
            status = tutti__fail_errno("cannot reserve pages");
    }
    return status;
}

/* Take a range for `bytes`, a multiple of the page size. A large range consists of whole huge
   pages, so its neighbours are aligned, but pages are reserved for `bytes` only. */
static int take(tutti__arena_t *arena, uint64_t bytes, uint64_t *ret_offset)
{
    uint64_t whole = TUTTI__ROUND_UP(bytes, TUTTI__HUGE_BYTES), from = huge_from(arena->span);
    int taken;

    tutti__mutex_lock(&arena->lock);
    if (bytes < TUTTI__HUGE_BYTES)
        taken = tutti__ranges_take(arena->ranges, bytes, ret_offset);
    else
        taken =
            tutti__ranges_take_aligned(arena->ranges, whole, from, TUTTI__HUGE_BYTES, ret_offset) ||
            tutti__ranges_take_aligned(arena->ranges, whole, 0, TUTTI__HUGE_BYTES, ret_offset);
    tutti__mutex_unlock(&arena->lock);
    return taken;
}

static void give(tutti__arena_t *arena, uint64_t offset)
{
    tutti__mutex_lock(&arena->lock);
    tutti__ranges_give(arena->ranges, offset);
    tutti__mutex_unlock(&arena->lock);
}

static uint64_t leave(tutti__arena_t *arena, uint64_t offset)
{
    uint64_t bytes;

    tutti__mutex_lock(&arena->lock);
    bytes = tutti__ranges_leave(arena->ranges, offset);
    tutti__mutex_unlock(&arena->lock);
    return bytes;
}

tutti_status_t tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr)
{
    uint64_t offset, rounded = bytes;
    tutti_status_t status;
    int taken = 0;

    if (bytes == 0) {
        *ret_ptr = NULL;
        return TUTTI_OK;
    }
    if (bytes <= arena->span) {
        rounded = TUTTI__ROUND_UP((uint64_t)bytes, (uint64_t)arena->page_bytes);
        taken = take(arena, rounded, &offset);
    }
    if (!taken)
        return tutti__fail(TUTTI_ERR_NO_MEMORY,
                           "no space for %zu bytes of shared memory among %zu bytes of addresses",
                           bytes, arena->span);

    status = reserve(arena, offset, rounded);
    if (status != TUTTI_OK) {
        (void)punch(arena, offset, leave(arena, offset));
        give(arena, offset);
        return tutti__fail(status, "no %zu bytes of shared memory: %s", bytes, tutti_last_error());
    }
    if (rounded <= TUTTI__POPULATE_MOST_BYTES)
        (void)madvise(arena->base + offset, rounded, MADV_POPULATE_WRITE);
    *ret_ptr = arena->base + offset;
    return TUTTI_OK;
}

tutti_status_t tutti__arena_free(tutti__arena_t *arena, void *ptr)
{
    uint64_t offset, bytes = 0;

    if (ptr == NULL)
        return TUTTI_OK;
    if (tutti__arena_offset(arena, ptr, 1, &offset))
        bytes = leave(arena, offset);
    if (bytes == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%p is not shared memory that was allocated",
                           ptr);
    /* If this fails, the range stays taken for ever, because its next user would find old data. */
    if (punch(arena, offset, bytes) != 0)
        return tutti__fail_errno("cannot give %" PRIu64 " bytes of shared memory back", bytes);
    give(arena, offset);
    return TUTTI_OK;
}

int tutti__arena_offset(const tutti__arena_t *arena, const void *ptr, size_t bytes,
                        uint64_t *ret_offset)
{
    uintptr_t at = (uintptr_t)ptr, base = (uintptr_t)arena->base;

    if (at < base || at - base > arena->span || bytes > arena->span - (at - base))
        return tutti__load_relaxed(&arena->aliases.used) > 0 &&
               tutti__aliases_find(&arena->aliases, at, bytes, ret_offset);
    *ret_offset = at - base;
    return 1;
}

tutti_status_t tutti__arena_map_at(const tutti__arena_t *arena, void *ptr, size_t bytes,
                                   const void *memory)
{
    if (mmap(ptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena->fd,
             (off_t)((const char *)memory - arena->base)) == MAP_FAILED)
        return tutti__fail_errno("cannot map %zu bytes at %p", bytes, ptr);
    (void)madvise(ptr, bytes, MADV_DONTFORK);
    return TUTTI_OK;
}

tutti_status_t tutti__arena_add_alias(tutti__arena_t *arena, const void *ptr, size_t bytes,
                                      const void *memory)
{
    uint64_t offset = (uint64_t)((const char *)memory - arena->base);

    if (tutti__aliases_add(&arena->aliases, (uintptr_t)ptr, bytes, offset))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%d ranges are registered, which is the most",
                       TUTTI__ALIASES);
}

void tutti__arena_drop_alias(tutti__arena_t *arena, const void *ptr)
{
    tutti__aliases_remove(&arena->aliases, (uintptr_t)ptr);
}

tutti_status_t tutti__arena_map(int fd, size_t span, int pid, char *owner_base, char **ret_base)
{
    if (pid == (int)getpid() && tutti__mapping_join(owner_base)) {
        *ret_base = owner_base;
        return TUTTI_OK;
    }
    return tutti__mapping_open(fd, span, ret_base);
}

void tutti__arena_unmap(char *base, size_t span, int pid)
{
    (void)span;
    (void)pid;
    if (base != NULL)
        tutti__mapping_leave(base);
}
