/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arenas: shared contents of the owner and a forked peer, and behaviour at the limits.
 */
#include "mem/shared.h"

#include "base/status.h"
#include "mem/avail.h"
#include "mem/mapping.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static tutti__arena_t *create(void)
{
    tutti__arena_t *arena;

    assert_int_equal(tutti__arena_create(&arena), TUTTI_OK);
    return arena;
}

static unsigned char *alloc(tutti__arena_t *arena, size_t bytes)
{
    void *ptr = NULL;

    assert_int_equal(tutti__arena_alloc(arena, bytes, &ptr), TUTTI_OK);
    return ptr;
}

static int all_bytes_are(const unsigned char *ptr, size_t bytes, unsigned char value)
{
    return bytes == 0 || (ptr[0] == value && memcmp(ptr, ptr + 1, bytes - 1) == 0);
}

/* Bytes of memory behind the file. */
static size_t memory_of(const tutti__arena_t *arena)
{
    struct stat st;

    assert_int_equal(fstat(tutti__arena_fd(arena), &st), 0);
    return (size_t)st.st_blocks * 512;
}

static void test_alloc_and_free(void **state)
{
    tutti__arena_t *arena = create();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *a = alloc(arena, 1), *b = alloc(arena, 3 * MIB);
    uint64_t offset;
    void *none = arena;

    (void)state;
    assert_int_equal((uintptr_t)a % page, 0);
    assert_int_equal((uintptr_t)b % page, 0);
    assert_true(all_bytes_are(a, page, 0));
    assert_true(all_bytes_are(b, 3 * MIB, 0));
    assert_int_equal(memory_of(arena), page + 3 * MIB);
    memset(a, 1, page);
    memset(b, 2, 3 * MIB);

    /* Memory returns to the system at once, and is zero when it is used again. */
    assert_int_equal(tutti__arena_free(arena, b), TUTTI_OK);
    assert_int_equal(memory_of(arena), page);
    b = alloc(arena, 2 * MIB);
    assert_true(all_bytes_are(b, 2 * MIB, 0));
    assert_true(all_bytes_are(a, page, 1));

    assert_int_equal(tutti__arena_alloc(arena, 0, &none), TUTTI_OK);
    assert_null(none);
    assert_int_equal(tutti__arena_free(arena, NULL), TUTTI_OK);

    assert_true(tutti__arena_offset(arena, b, 2 * MIB, &offset));
    assert_ptr_equal(tutti__arena_base(arena) + offset, b);
    tutti__arena_destroy(arena);
    tutti__arena_destroy(NULL);
}

/* ---- registrations for the network ---- */

/* The calls with MADV_REMOVE, which UCX and MPI intercept to drop their registrations. */
static struct {
    tutti__arena_t *arena; /* NULL: not watched */
    int fails;             /* as if the memory were locked */
    const void *at;        /* of the last call */
    size_t bytes;
    void *next; /* a page that was allocated during the call */
} removed;

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

int __wrap_madvise(void *at, size_t bytes, int advice)
{
    if (removed.arena != NULL && advice == MADV_REMOVE) {
        removed.at = at;
        removed.bytes = bytes;
        removed.next = alloc(removed.arena, 1);
        if (removed.fails) {
            errno = EINVAL;
            return -1;
        }
    }
    return __real_madvise(at, bytes, advice);
}

static void test_free_drops_registrations(void **state)
{
    static const size_t pages[] = { 1, 5, 1000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(pages) / sizeof(*pages); i++) {
        size_t bytes = pages[i / 2] * page;
        tutti__arena_t *arena = create();
        unsigned char *ptr = alloc(arena, bytes - 1);

        memset(ptr, 1, bytes);
        memset(&removed, 0, sizeof(removed));
        removed.fails = i % 2;
        removed.arena = arena;
        assert_int_equal(tutti__arena_free(arena, ptr), TUTTI_OK);
        removed.arena = NULL;
        assert_ptr_equal(removed.at, ptr);
        assert_true(removed.bytes >= bytes);
        assert_ptr_not_equal(removed.next, ptr); /* the range is still taken */
        assert_int_equal(memory_of(arena), page);
        assert_int_equal(tutti__arena_free(arena, removed.next), TUTTI_OK);
        assert_ptr_equal(alloc(arena, bytes), ptr);
        assert_true(all_bytes_are(ptr, bytes, 0));
        tutti__arena_destroy(arena);
    }
}

static void test_only_own_pointers_are_freed(void **state)
{
    tutti__arena_t *arena = create(), *other = create();
    unsigned char *a = alloc(arena, MIB), *b = alloc(other, MIB);
    int local;

    (void)state;
    assert_int_equal(tutti__arena_free(arena, &local), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__arena_free(arena, b), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__arena_free(arena, a + 1), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__arena_free(arena, a + MIB), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__arena_free(arena, a), TUTTI_OK);
    assert_int_equal(tutti__arena_free(arena, a), TUTTI_ERR_INVALID_ARGUMENT);
    tutti__arena_destroy(arena);
    tutti__arena_destroy(other);
}

static void test_offset_knows_the_borders(void **state)
{
    tutti__arena_t *arena = create();
    char *base = tutti__arena_base(arena);
    size_t span = tutti__arena_span(arena);
    uint64_t offset = 7;

    (void)state;
    assert_false(tutti__arena_offset(arena, base - 1, 1, &offset));
    assert_false(tutti__arena_offset(arena, base + span, 1, &offset));
    assert_false(tutti__arena_offset(arena, base, span + 1, &offset));
    assert_false(tutti__arena_offset(arena, base + 1, SIZE_MAX, &offset));
    assert_false(tutti__arena_offset(arena, NULL, 1, &offset));
    assert_int_equal(offset, 7);
    assert_true(tutti__arena_offset(arena, base + 1, span - 1, &offset));
    assert_int_equal(offset, 1);
    assert_true(tutti__arena_offset(arena, base, span, &offset));
    assert_int_equal(offset, 0);
    tutti__arena_destroy(arena);
}

static void put(int fd, uint64_t word)
{
    assert_int_equal(write(fd, &word, sizeof(word)), sizeof(word));
}

static uint64_t get(int fd)
{
    uint64_t word = UINT64_MAX;

    assert_int_equal(read(fd, &word, sizeof(word)), sizeof(word));
    return word;
}

/* The peer: for each (offset, bytes) from the owner it reports whether all bytes are 5, and writes
   6. Its exit status is 0 on success. */
static int peer(int fd, size_t span, char *owner_base, int from, int to)
{
    char *base;
    unsigned char seen;

    /* The owner's own mapping is not inherited. */
    if (mincore(owner_base, 1, &seen) == 0)
        return 1;
    if (tutti__arena_map(fd, span, (int)getppid(), owner_base, &base) != TUTTI_OK)
        return 2;
    put(to, 0);
    for (;;) {
        uint64_t offset = get(from), bytes = get(from);

        if (bytes == 0)
            break;
        put(to, (uint64_t)all_bytes_are((unsigned char *)base + offset, bytes, 5));
        memset(base + offset, 6, bytes);
        put(to, 1);
    }
    tutti__arena_unmap(base, span, (int)getppid());
    return mincore(base, 1, &seen) == 0 ? 3 : 0;
}

static void exchange_with_peer(tutti__arena_t *arena, unsigned char *ptr, size_t bytes, int to,
                               int from)
{
    uint64_t offset;

    assert_true(tutti__arena_offset(arena, ptr, bytes, &offset));
    memset(ptr, 5, bytes);
    put(to, offset);
    put(to, bytes);
    assert_int_equal(get(from), 1);
    assert_int_equal(get(from), 1);
    assert_true(all_bytes_are(ptr, bytes, 6));
}

static void test_peer_sees_what_comes_later(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *early = alloc(arena, 100), *late;
    int down[2], up[2], how;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(down) + pipe(up), 0);
    child = fork();
    if (child == 0) {
        close(down[1]);
        _exit(peer(tutti__arena_fd(arena), tutti__arena_span(arena), tutti__arena_base(arena),
                   down[0], up[1]));
    }
    close(up[1]);
    assert_int_equal(get(up[0]), 0); /* the peer has mapped the arena before the next allocations */

    exchange_with_peer(arena, early, 100, down[1], up[0]);
    late = alloc(arena, 9 * MIB);
    exchange_with_peer(arena, late, 9 * MIB, down[1], up[0]);

    /* Memory at the same place is freed and allocated again. Both processes see zeros, and then new
       data. */
    assert_int_equal(tutti__arena_free(arena, late), TUTTI_OK);
    late = alloc(arena, MIB);
    assert_true(all_bytes_are(late, MIB, 0));
    exchange_with_peer(arena, late, MIB, down[1], up[0]);

    put(down[1], 0);
    put(down[1], 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    close(down[0]);
    close(down[1]);
    close(up[0]);
    tutti__arena_destroy(arena);
}

static void test_one_mapping_within_a_process(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char seen;
    char *base = NULL;

    (void)state;
    assert_int_equal(tutti__arena_map(tutti__arena_fd(arena), tutti__arena_span(arena),
                                      (int)getpid(), tutti__arena_base(arena), &base),
                     TUTTI_OK);
    assert_ptr_equal(base, tutti__arena_base(arena));
    tutti__arena_unmap(base, tutti__arena_span(arena), (int)getpid());
    *alloc(arena, 1) = 1; /* still mapped */
    tutti__arena_unmap(NULL, 1, 1);

    /* The owner may free the arena before a peer unmaps it. */
    assert_int_equal(tutti__arena_map(tutti__arena_fd(arena), tutti__arena_span(arena),
                                      (int)getpid(), tutti__arena_base(arena), &base),
                     TUTTI_OK);
    tutti__arena_destroy(arena);
    assert_int_equal(base[0], 1);
    tutti__arena_unmap(base, 1, (int)getpid());
    assert_int_not_equal(mincore(base, 1, &seen), 0);
}

/* A child frees an inherited arena. This must not unmap memory that the child itself has mapped at
   those addresses after the fork. */
static tutti__arena_t *inherited;

static int destroy_inherited(void)
{
    char *base = tutti__arena_base(inherited);
    char *mine = mmap(base, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (mine != base)
        return 1;
    tutti__arena_destroy(inherited);
    *mine = 1;
    return 0;
}

static void test_too_much(void **state)
{
    tutti__arena_t *arena = create();
    size_t span = tutti__arena_span(arena);
    const char *who;
    uint64_t available = tutti__mem_available("", &who);
    void *ptr = arena;

    (void)state;
    assert_int_equal(tutti__arena_alloc(arena, SIZE_MAX, &ptr), TUTTI_ERR_NO_MEMORY);
    assert_int_equal(tutti__arena_alloc(arena, span + 1, &ptr), TUTTI_ERR_NO_MEMORY);
    assert_non_null(strstr(tutti_last_error(), "addresses"));

    /* A request for more memory than is available is refused before a page is allocated, and keeps
       nothing. */
    if (available < span) {
        assert_int_equal(tutti__arena_alloc(arena, span, &ptr), TUTTI_ERR_NO_MEMORY);
        assert_non_null(strstr(tutti_last_error(), "MiB of memory left"));
    }
    assert_ptr_equal(ptr, arena);
    assert_int_equal(memory_of(arena), 0);
    assert_ptr_equal(alloc(arena, 1), tutti__arena_base(arena));
    tutti__arena_destroy(arena);
}

/* Run `body` in a child, because its limits cannot be raised again. */
static void in_child(int (*body)(void))
{
    pid_t child = fork();
    int how;

    if (child == 0)
        _exit(body());
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_false(WIFSIGNALED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static int with_file_limit(void)
{
    struct rlimit limit = { MIB, MIB };
    tutti__arena_t *arena;
    void *a, *b;

    signal(SIGXFSZ, SIG_DFL);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || tutti__arena_create(&arena) != TUTTI_OK)
        return 1;
    if (tutti__arena_alloc(arena, MIB + 1, &b) != TUTTI_ERR_NO_MEMORY)
        return 2;
    if (strstr(tutti_last_error(), "1048577 bytes") == NULL ||
        strstr(tutti_last_error(), "ulimit -f") == NULL)
        return 3;
    if (tutti__arena_alloc(arena, MIB / 2, &a) != TUTTI_OK)
        return 4;
    if (tutti__arena_alloc(arena, MIB / 2 + 1, &b) != TUTTI_ERR_NO_MEMORY)
        return 5;
    if (tutti__arena_alloc(arena, MIB / 2, &b) != TUTTI_OK)
        return 6;
    tutti__arena_destroy(arena);
    return 0;
}

static void test_file_limit_is_an_error_not_a_signal(void **state)
{
    (void)state;
    in_child(with_file_limit);
}

/* Ranges of all lengths still find their places within a short file. */
static int with_file_limit_for_large(void)
{
    struct rlimit limit = { 8 * MIB, 8 * MIB };
    tutti__arena_t *arena;
    void *a, *b;

    signal(SIGXFSZ, SIG_DFL);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || tutti__arena_create(&arena) != TUTTI_OK)
        return 1;
    if (tutti__arena_alloc(arena, 1, &a) != TUTTI_OK)
        return 2;
    if (tutti__arena_alloc(arena, 5 * MIB, &b) != TUTTI_OK)
        return 3;
    if (tutti__arena_alloc(arena, 2 * MIB, &a) != TUTTI_ERR_NO_MEMORY)
        return 4;
    tutti__arena_destroy(arena);
    return 0;
}

static void test_file_limit_leaves_room_for_large_ranges(void **state)
{
    (void)state;
    in_child(with_file_limit_for_large);
}

/* If RLIMIT_FSIZE is set after the arena was made, the arena still places ranges within the limit.
   When the limit is removed, a range may be placed far beyond it. When the limit is set again, the
   arena places further ranges within it. */
static int with_file_limit_later(void)
{
    struct rlimit limit = { 8 * MIB, RLIM_INFINITY };
    tutti__arena_t *arena;
    void *a, *b, *c;

    signal(SIGXFSZ, SIG_DFL);
    if (tutti__arena_create(&arena) != TUTTI_OK || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    if (tutti__arena_alloc(arena, 1, &a) != TUTTI_OK)
        return 2;
    if (tutti__arena_alloc(arena, 5 * MIB, &b) != TUTTI_OK)
        return 3;
    if (tutti__arena_alloc(arena, 2 * MIB, &c) != TUTTI_ERR_NO_MEMORY)
        return 4;
    limit.rlim_cur = RLIM_INFINITY;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || tutti__arena_alloc(arena, 2 * MIB, &c) != TUTTI_OK)
        return 5;
    limit.rlim_cur = 8 * MIB;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || tutti__arena_free(arena, b) != TUTTI_OK)
        return 6;
    if (tutti__arena_alloc(arena, 6 * MIB, &b) != TUTTI_OK || !all_bytes_are(b, 6 * MIB, 0))
        return 7;
    tutti__arena_destroy(arena);
    return 0;
}

static void test_file_limit_may_come_later(void **state)
{
    struct rlimit limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    if (limit.rlim_max != RLIM_INFINITY)
        skip();
    in_child(with_file_limit_later);
}

/* ---- huge pages ---- */

/* Get the line `name`, without this name, from the entry in /proc/self/smaps of the mapping that
   contains ptr. Returns 0 if there is none. */
static int smaps_line(const void *ptr, const char *name, char *ret_line, int room)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    size_t length = strlen(name);
    int found = 0, here = 0;
    unsigned long begin, end;

    if (file == NULL)
        return 0;
    while (!found && fgets(ret_line, room, file) != NULL) {
        if (sscanf(ret_line, "%lx-%lx ", &begin, &end) == 2)
            here = (uintptr_t)ptr >= begin && (uintptr_t)ptr < end;
        else
            found = here && strncmp(ret_line, name, length) == 0 && ret_line[length] == ':';
    }
    fclose(file);
    if (found)
        memmove(ret_line, ret_line + length + 1, strlen(ret_line + length));
    return found;
}

/* The bytes in huge pages of the whole mapping that contains ptr. */
static size_t huge_bytes(const void *ptr)
{
    unsigned long kib = 0;
    char line[512];

    if (smaps_line(ptr, "ShmemPmdMapped", line, sizeof(line)))
        (void)sscanf(line, "%lu", &kib);
    return kib * 1024;
}

static int is_advised(const void *ptr)
{
    char line[512];

    return smaps_line(ptr, "VmFlags", line, sizeof(line)) && strstr(line, " hg") != NULL;
}

/* Asks the kernel itself, with a file and a mapping that belong to no arena. */
static int kernel_has_huge_pages(size_t bytes)
{
    size_t huge = TUTTI__HUGE_BYTES;
    int fd = memfd_create("probe", MFD_CLOEXEC), answer;
    char *room, *at;

    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    room = mmap(NULL, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(room, MAP_FAILED);
    at = (char *)TUTTI__ROUND_UP((uintptr_t)room, huge);
    at = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += huge)
        at[i] = 1;
    (void)madvise(at, bytes, MADV_COLLAPSE);
    for (size_t i = 0; i < bytes; i += huge)
        at[i] = 2;
    answer = huge_bytes(at) == bytes;
    munmap(room, bytes + huge);
    close(fd);
    return answer;
}

static void test_large_ranges_are_aligned(void **state)
{
    tutti__arena_t *arena = create();
    size_t page = (size_t)sysconf(_SC_PAGESIZE), huge = TUTTI__HUGE_BYTES;
    char *base = tutti__arena_base(arena);
    unsigned char *small = alloc(arena, 1), *a = alloc(arena, 3 * MIB + 1);
    unsigned char *small_too = alloc(arena, huge - page), *b = alloc(arena, huge);

    (void)state;
    assert_int_equal((uintptr_t)base % huge, 0);
    assert_int_equal((uintptr_t)a % huge, 0);
    assert_int_equal((uintptr_t)b % huge, 0);

    /* Small ranges are adjacent. Only the requested bytes are reserved. */
    assert_ptr_equal(small, base);
    assert_ptr_equal(small_too, small + page);
    assert_int_equal(memory_of(arena), page + 3 * MIB + page + huge - page + huge);

    /* khugepaged may complete the last huge page. This page is freed as well. */
    a[4 * MIB - 1] = 1;
    assert_int_equal(tutti__arena_free(arena, a), TUTTI_OK);
    assert_int_equal(memory_of(arena), page + huge - page + huge);
    assert_ptr_equal(alloc(arena, 4 * MIB), a);
    tutti__arena_destroy(arena);
}

static void test_large_ranges_are_advised(void **state)
{
    tutti__arena_t *arena;
    unsigned char *small, *large;

    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        skip();
    arena = create();
    small = alloc(arena, 1);
    large = alloc(arena, 2 * MIB);
    assert_true(is_advised(large));
    assert_false(is_advised(small));
    tutti__arena_destroy(arena);
}

/* A peer touches the pages of a range. Its exit status is 0 if they are huge. */
static void peer_has_huge_pages(tutti__arena_t *arena, unsigned char *ptr, size_t bytes)
{
    pid_t child;
    uint64_t offset;
    int how;

    assert_true(tutti__arena_offset(arena, ptr, bytes, &offset));
    child = fork();
    if (child == 0) {
        char *base;

        if (tutti__arena_map(tutti__arena_fd(arena), tutti__arena_span(arena), (int)getppid(),
                             tutti__arena_base(arena), &base) != TUTTI_OK)
            _exit(1);
        for (size_t i = 0; i < bytes; i += TUTTI__HUGE_BYTES)
            base[offset + i] = 1;
        _exit(!is_advised(base + offset) ? 2 : huge_bytes(base + offset) == bytes ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void test_large_ranges_have_huge_pages(void **state)
{
    size_t bytes = 8 * MIB, page = (size_t)sysconf(_SC_PAGESIZE);
    tutti__arena_t *arena;
    unsigned char *small, *large;

    (void)state;
    if (!kernel_has_huge_pages(bytes))
        skip();
    arena = create();
    tutti__arena_use_huge(arena, TUTTI__HUGE_ALWAYS);
    small = alloc(arena, 1);
    large = alloc(arena, bytes + page);
    assert_int_equal(huge_bytes(large), bytes);
    assert_int_equal(huge_bytes(small), 0);
    assert_true(all_bytes_are(large, bytes + page, 0));
    peer_has_huge_pages(arena, large, bytes);
    memset(large, 1, bytes + page);

    assert_int_equal(tutti__arena_free(arena, large), TUTTI_OK);
    assert_int_equal(huge_bytes(large), 0);
    assert_int_equal(memory_of(arena), page);
    assert_true(all_bytes_are(alloc(arena, bytes), bytes, 0));
    tutti__arena_destroy(arena);
}

/* Huge pages are refused in two ways: by the caller, and by the system without an override. */
static void test_huge_pages_refused(void **state)
{
    char text[80] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "r");
    tutti__arena_t *arena;

    (void)state;
    if (file == NULL)
        skip();
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    arena = create();
    if (strstr(text, "[never]") != NULL)
        assert_int_equal(huge_bytes(alloc(arena, 8 * MIB)), 0);
    tutti__arena_use_huge(arena, TUTTI__HUGE_NEVER);
    assert_int_equal(huge_bytes(alloc(arena, 8 * MIB)), 0);
    tutti__arena_destroy(arena);
}

/* As on a system without huge pages. */
static int without_huge_pages(void)
{
    tutti__arena_t *arena;
    unsigned char *ptr;
    void *large;

    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0 || tutti__arena_create(&arena) != TUTTI_OK)
        return 1;
    tutti__arena_use_huge(arena, TUTTI__HUGE_ALWAYS);
    if (tutti__arena_alloc(arena, 5 * MIB, &large) != TUTTI_OK)
        return 2;
    ptr = large;
    if (huge_bytes(ptr) != 0 || memory_of(arena) != 5 * MIB || !all_bytes_are(ptr, 5 * MIB, 0))
        return 3;
    if (tutti__arena_free(arena, ptr) != TUTTI_OK || memory_of(arena) != 0)
        return 4;
    tutti__arena_destroy(arena);
    return 0;
}

static void test_no_huge_pages(void **state)
{
    (void)state;
    in_child(without_huge_pages);
}

static void test_child_destroys_what_it_inherited(void **state)
{
    (void)state;
    inherited = create();
    in_child(destroy_inherited);
    *alloc(inherited, 1) = 1;
    tutti__arena_destroy(inherited);
}

#ifndef TUTTI__SANITIZED
static int with_address_limit(void)
{
    struct rlimit limit = { 8192 * MIB, 8192 * MIB };
    tutti__arena_t *arena;
    void *ptr;

    if (setrlimit(RLIMIT_AS, &limit) != 0 || tutti__arena_create(&arena) != TUTTI_OK)
        return 1;
    if (tutti__arena_span(arena) != 512 * MIB)
        return 2;
    if (tutti__arena_alloc(arena, MIB, &ptr) != TUTTI_OK)
        return 3;
    tutti__arena_destroy(arena);

    limit.rlim_cur = 100 * MIB;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 4;
    return tutti__arena_create(&arena) == TUTTI_ERR_NO_MEMORY ? 0 : 5;
}

static void test_address_limit_shortens_the_span(void **state)
{
    (void)state;
    in_child(with_address_limit);
}
#endif

static int without_descriptors(void)
{
    struct rlimit limit = { 3, 3 };
    tutti__arena_t *arena;

    setrlimit(RLIMIT_NOFILE, &limit);
    return tutti__arena_create(&arena) == TUTTI_ERR_NO_MEMORY ? 0 : 1;
}

static void test_no_descriptors(void **state)
{
    (void)state;
    in_child(without_descriptors);
}

static void *alloc_and_free(void *arg)
{
    tutti__arena_t *arena = arg;
    unsigned seed = (unsigned)(uintptr_t)pthread_self();

    for (int i = 0; i < 200; i++) {
        size_t most = i % 20 == 0 ? 3 * MIB : 100000, bytes = 1 + (size_t)rand_r(&seed) % most;
        unsigned char *ptr = alloc(arena, bytes);
        unsigned char mine = (unsigned char)(1 + rand_r(&seed) % 255);

        assert_true(all_bytes_are(ptr, bytes, 0));
        memset(ptr, mine, bytes);
        sched_yield();
        assert_true(all_bytes_are(ptr, bytes, mine));
        assert_int_equal(tutti__arena_free(arena, ptr), TUTTI_OK);
    }
    return NULL;
}

static void test_threads(void **state)
{
    tutti__arena_t *arena = create();
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, alloc_and_free, arena), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(memory_of(arena), 0);
    tutti__arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_and_free),
        cmocka_unit_test(test_free_drops_registrations),
        cmocka_unit_test(test_only_own_pointers_are_freed),
        cmocka_unit_test(test_offset_knows_the_borders),
        cmocka_unit_test(test_peer_sees_what_comes_later),
        cmocka_unit_test(test_one_mapping_within_a_process),
        cmocka_unit_test(test_child_destroys_what_it_inherited),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_file_limit_is_an_error_not_a_signal),
        cmocka_unit_test(test_file_limit_leaves_room_for_large_ranges),
        cmocka_unit_test(test_file_limit_may_come_later),
        cmocka_unit_test(test_large_ranges_are_aligned),
        cmocka_unit_test(test_large_ranges_are_advised),
        cmocka_unit_test(test_large_ranges_have_huge_pages),
        cmocka_unit_test(test_no_huge_pages),
        cmocka_unit_test(test_huge_pages_refused),
#ifndef TUTTI__SANITIZED
        cmocka_unit_test(test_address_limit_shortens_the_span),
#endif
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
