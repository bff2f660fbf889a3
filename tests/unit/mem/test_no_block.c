/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Without memory for its entry in the list, a block is not allocated: the output does not change,
 * and the arena has its memory back. malloc fails on request (--wrap, see local.mk).
 */
#include "mem/blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

enum {
    BYTES = 3 << 20
};

static int fails;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return fails ? NULL : __real_malloc(bytes);
}

static void test_no_entry(void **state)
{
    tutti__arena_t *arena;
    tutti_status_t status;
    void *ptr = &arena;
    struct stat st;

    (void)state;
    assert_int_equal(tutti__arena_create(&arena), TUTTI_OK);
    fails = 1;
    status = tutti__block_alloc(arena, BYTES, &ptr);
    fails = 0;
    assert_int_equal(status, TUTTI_ERR_NO_MEMORY);
    assert_ptr_equal(ptr, &arena);
    assert_int_equal(fstat(tutti__arena_fd(arena), &st), 0);
    assert_int_equal(st.st_blocks, 0);
    tutti__arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_entry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
