/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks outlive their communicator: they stay valid when it stops using the arena. A forked child
 * does not free its parent's blocks, and does not wait for locks that its parent's threads hold.
 */
#include "mem/blocks.h"

#include "base/forked.h"
#include "base/status.h"
#include "mem/mapping.h"

#include <pthread.h>
#include <semaphore.h>
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
    BYTES = 3 << 20
};

static tutti__arena_t *create(void)
{
    tutti__arena_t *arena;

    assert_int_equal(tutti__arena_create(&arena), TUTTI_OK);
    return arena;
}

static unsigned char *alloc(tutti__arena_t *arena)
{
    void *ptr = NULL;

    assert_int_equal(tutti__block_alloc(arena, BYTES, &ptr), TUTTI_OK);
    return ptr;
}

static size_t memory_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (size_t)st.st_blocks * 512;
}

static void test_outlives(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *a = alloc(arena), *b = alloc(arena), seen;
    char *base = tutti__arena_base(arena);
    int fd = dup(tutti__arena_fd(arena));
    uint64_t offset;

    (void)state;
    assert_true(tutti__arena_offset(arena, a, BYTES, &offset));
    assert_true(tutti__arena_offset(arena, b, BYTES, &offset));
    memset(a, 1, BYTES);
    assert_int_equal(tutti__block_free(a), TUTTI_OK);
    tutti__arena_destroy(arena);

    /* The block's memory still exists, but does not belong to the communicator any more. */
    memset(b, 2, BYTES);
    assert_int_equal(memory_of(fd), BYTES);
    assert_int_equal(tutti__block_free(b), TUTTI_OK);
    assert_int_equal(memory_of(fd), 0);
    assert_int_not_equal(mincore(base, 1, &seen), 0);
    close(fd);
}

static void test_freed_once(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *a = alloc(arena);
    void *own = NULL, *none = arena;

    (void)state;
    assert_int_equal(tutti__block_free(a + 1), TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti__block_freed_by(a), "tutti_mem_free_local");
    assert_null(tutti__block_freed_by(a + 1));
    assert_int_equal(tutti__block_free(a), TUTTI_OK);
    assert_null(tutti__block_freed_by(a));
    assert_int_equal(tutti__block_free(a), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "tutti_mem_alloc_local"));
    assert_int_equal(tutti__block_free(NULL), TUTTI_OK);
    assert_int_equal(tutti__block_alloc(arena, 0, &none), TUTTI_OK);
    assert_null(none);

    /* Memory that was allocated from the arena directly is no block. */
    assert_int_equal(tutti__arena_alloc(arena, 1, &own), TUTTI_OK);
    assert_null(tutti__block_freed_by(own));
    assert_int_equal(tutti__block_free(own), TUTTI_ERR_INVALID_ARGUMENT);
    tutti__arena_destroy(arena);
}

static void test_no_room(void **state)
{
    tutti__arena_t *arena = create();
    void *ptr = NULL;

    (void)state;
    assert_int_equal(tutti__block_alloc(arena, SIZE_MAX, &ptr), TUTTI_ERR_NO_MEMORY);
    assert_null(ptr);
    tutti__arena_destroy(arena);
}

/* A forked child inherits the list with the block, and the arena's descriptor. If the child frees
   the block, the parent's memory must keep its contents. */
static void test_child(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *a = alloc(arena);
    int status;
    pid_t child;

    (void)state;
    a[BYTES - 1] = 7;
    child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0)
        _exit(tutti__block_freed_by(a) == NULL && tutti__block_free(a) == TUTTI_OK ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(a[BYTES - 1], 7);
    assert_int_equal(tutti__block_free(a), TUTTI_OK);
    tutti__arena_destroy(arena);
}

/* Runs in the child. Returns 77 if the child's arena is at another address, so that nothing was
   tested. */
static int free_beside_own(unsigned char *inherited, const char *base)
{
    tutti__arena_t *own;
    void *ptr;

    if (tutti__arena_create(&own) != TUTTI_OK)
        return 1;
    if (tutti__arena_base(own) != base)
        return 77;
    if (tutti__block_free(inherited) != TUTTI_OK ||
        tutti__arena_alloc(own, BYTES, &ptr) != TUTTI_OK)
        return 1;
    memset(ptr, 1, BYTES);
    return 0;
}

/* The parent's arena exists only because a block is in it. The child's own arena gets the address
   of the parent's arena. */
static void test_child_with_arena(void **state)
{
    tutti__arena_t *arena = create();
    unsigned char *a = alloc(arena);
    const char *base = tutti__arena_base(arena);
    int status;
    pid_t child;

    (void)state;
    tutti__arena_destroy(arena);
    child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0)
        _exit(free_beside_own(a, base));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(tutti__block_free(a), TUTTI_OK);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- a fork while another thread holds a lock ---- */

static _Thread_local int holds;
static sem_t is_held, has_begun;

unsigned __real_tutti__fork_generation(void);
unsigned __wrap_tutti__fork_generation(void);

/* blocks.c and mapping.c call this under their locks (--wrap, see local.mk). This function pauses.
   If a fork does not wait for the lock, the fork ends during the pause. */
unsigned __wrap_tutti__fork_generation(void)
{
    if (holds) {
        holds = 0;
        sem_post(&is_held);
        sem_wait(&has_begun);
        usleep(100000);
    }
    return __real_tutti__fork_generation();
}

/* Runs before the handlers of the library, which were registered earlier. */
static void before_fork(void)
{
    sem_post(&has_begun);
}

static void *hold_blocks(void *unknown)
{
    holds = 1;
    (void)tutti__block_free(unknown);
    return NULL;
}

static void *hold_mappings(void *unknown)
{
    holds = 1;
    (void)tutti__mapping_join(unknown);
    return NULL;
}

static void test_child_of_many_threads(void **state)
{
    void *(*const hold[])(void *unknown) = { hold_blocks, hold_mappings };
    tutti__arena_t *arena = create();
    unsigned char *a = alloc(arena);
    pthread_t thread;
    int status;
    pid_t child;

    (void)state;
    sem_init(&is_held, 0, 0);
    sem_init(&has_begun, 0, 0);
    pthread_atfork(before_fork, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread, NULL, hold[i], &status), 0);
        sem_wait(&is_held);
        child = fork();
        assert_int_not_equal(child, -1);
        if (child == 0) {
            alarm(30);
            _exit(tutti__block_free(a) == TUTTI_OK && !tutti__mapping_join((char *)a) ? 0 : 1);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(tutti__block_free(a), TUTTI_OK);
    tutti__arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outlives),         cmocka_unit_test(test_freed_once),
        cmocka_unit_test(test_no_room),          cmocka_unit_test(test_child),
        cmocka_unit_test(test_child_with_arena), cmocka_unit_test(test_child_of_many_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
