/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory of the program: it keeps its contents, is found in the arena, becomes private
 * again, and other memory is refused with the reason.
 */
#include "mem/blocks.h"

#include "mem/aliases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PAGES = 5
};

static size_t page;

static tutti__arena_t *create(void)
{
    tutti__arena_t *arena;

    page = (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(tutti__arena_create(&arena), TUTTI_OK);
    return arena;
}

static unsigned char *map(size_t npages, int protection)
{
    void *ptr = mmap(NULL, npages * page, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(ptr, MAP_FAILED);
    return ptr;
}

static size_t memory_of(const tutti__arena_t *arena)
{
    struct stat st;

    assert_int_equal(fstat(tutti__arena_fd(arena), &st), 0);
    return (size_t)st.st_blocks * 512;
}

static void refuses(tutti__arena_t *arena, void *ptr, size_t bytes, const char *words)
{
    size_t before = memory_of(arena);

    assert_int_equal(tutti__block_register(arena, ptr, bytes), TUTTI_ERR_UNSUPPORTED);
    if (strstr(tutti_last_error(), words) == NULL)
        fail_msg("'%s' has no '%s'", tutti_last_error(), words);
    assert_int_equal(memory_of(arena), before);
}

/* The middle of a larger mapping. */
static void test_contents(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *all = map(PAGES + 2, PROT_READ | PROT_WRITE), *ptr = all + page;
    size_t bytes = PAGES * page;
    uint64_t offset;

    (void)state;
    for (size_t i = 0; i < (PAGES + 2) * page; i++)
        all[i] = (unsigned char)(i % 251);
    assert_int_equal(tutti__block_register(arena, ptr, bytes), TUTTI_OK);
    for (size_t i = 0; i < (PAGES + 2) * page; i++)
        assert_int_equal(all[i], i % 251);

    /* The same memory is at both addresses. */
    assert_true(tutti__arena_offset(arena, ptr + 7, bytes - 7, &offset));
    ptr[7] = 99;
    assert_int_equal(((unsigned char *)tutti__arena_base(arena))[offset], 99);
    ((unsigned char *)tutti__arena_base(arena))[offset + 1] = 98;
    assert_int_equal(ptr[8], 98);
    assert_false(tutti__arena_offset(arena, ptr + 7, bytes, &offset));
    assert_false(tutti__arena_offset(arena, all, page, &offset));
    assert_string_equal(tutti__block_freed_by(ptr), "tutti_mem_unregister");
    assert_int_equal(tutti__block_free(ptr), TUTTI_ERR_INVALID_ARGUMENT);

    assert_int_equal(tutti__block_unregister(ptr), TUTTI_OK);
    assert_false(tutti__arena_offset(arena, ptr, bytes, &offset));
    assert_int_equal(memory_of(arena), 0);
    ptr[7] = ptr[8] = 0;
    for (size_t i = 0; i < (PAGES + 2) * page; i++)
        assert_int_equal(all[i], i == page + 7 || i == page + 8 ? 0 : i % 251);
    assert_int_equal(tutti__block_unregister(ptr), TUTTI_ERR_INVALID_ARGUMENT);
    munmap(all, (PAGES + 2) * page);
    tutti__arena_destroy(arena);
}

static void test_refused(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *ptr = map(PAGES, PROT_READ | PROT_WRITE);
    unsigned char *read_only = map(1, PROT_READ);
    char on_stack[3 * 65536];
    char *in_stack = on_stack + (page - (uintptr_t)on_stack % page) % page;
    char *heap = sbrk(0);
    void *file;

    (void)state;
    refuses(arena, ptr + 1, page, "whole pages");
    refuses(arena, ptr, page - 1, "whole pages");
    refuses(arena, read_only, page, "cannot be both read and written: r--p");
    refuses(arena, in_stack, page, "is in the stack of this thread");
    assert_int_equal(mprotect(ptr, page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    refuses(arena, ptr, page, "rwxp");
    assert_int_equal(mprotect(ptr, page, PROT_READ | PROT_WRITE), 0);
    heap += (page - (uintptr_t)heap % page) % page;
    if (brk(heap + page) == 0) {
        refuses(arena, heap, page, "is in [heap]");
        assert_int_equal(brk(heap), 0);
    }
    file = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, tutti__arena_fd(arena), 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    refuses(arena, file, page, "is shared");
    munmap(file, page);
    assert_int_equal(tutti__block_register(arena, ptr, PAGES * page), TUTTI_OK);
    refuses(arena, ptr + page, page, "is shared");
    assert_int_equal(tutti__block_unregister(ptr), TUTTI_OK);
    munmap(ptr + page, page);
    refuses(arena, ptr, PAGES * page, "is not mapped");
    refuses(arena, (void *)page, SIZE_MAX / page * page, "is not mapped");
    munmap(ptr, PAGES * page);
    munmap(read_only, page);
    tutti__arena_destroy(arena);
}

/* Register one range more than the most. It is refused and its contents stay. Each freed entry can
   be used again. */
static void test_many(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *ptr = map(TUTTI__ALIASES + 1, PROT_READ | PROT_WRITE);
    uint64_t offset;

    (void)state;
    for (size_t i = 0; i <= TUTTI__ALIASES; i++)
        ptr[i * page] = (unsigned char)i;
    for (size_t i = 0; i < TUTTI__ALIASES; i++)
        assert_int_equal(tutti__block_register(arena, ptr + i * page, page), TUTTI_OK);
    refuses(arena, ptr + TUTTI__ALIASES * page, page, "64 ranges");
    assert_int_equal(tutti__block_unregister(ptr + 3 * page), TUTTI_OK);
    assert_int_equal(tutti__block_register(arena, ptr + TUTTI__ALIASES * page, page), TUTTI_OK);
    assert_false(tutti__arena_offset(arena, ptr + 3 * page, 1, &offset));
    for (size_t i = 0; i <= TUTTI__ALIASES; i++) {
        assert_int_equal(ptr[i * page], i);
        if (i == 3)
            continue;
        assert_true(tutti__arena_offset(arena, ptr + i * page, page, &offset));
        assert_int_equal(((unsigned char *)tutti__arena_base(arena))[offset], i);
        assert_int_equal(tutti__block_unregister(ptr + i * page), TUTTI_OK);
    }
    munmap(ptr, (TUTTI__ALIASES + 1) * page);
    tutti__arena_destroy(arena);
}

/* In a child, no memory is mapped at these addresses. The child does not change its parent's
   memory. */
static void test_child(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *ptr = map(PAGES, PROT_READ | PROT_WRITE), seen;
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(tutti__block_register(arena, ptr, PAGES * page), TUTTI_OK);
    ptr[page] = 7;
    child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0)
        _exit(mincore(ptr, page, &seen) == 0 || tutti__block_unregister(ptr) != TUTTI_OK ||
              tutti__block_unregister(ptr) != TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ptr[page], 7);

    /* Registered memory outlives the communicator. */
    tutti__arena_destroy(arena);
    assert_int_equal(ptr[page], 7);
    assert_int_equal(tutti__block_unregister(ptr), TUTTI_OK);
    assert_int_equal(ptr[page], 7);
    munmap(ptr, PAGES * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
