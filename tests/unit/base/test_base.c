/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The base room: statuses and last errors, log lines, lock order, hash.
 */
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/status.h"
#include "unit/base/capture.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_every_status_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(tutti_strerror(TUTTI_OK), "success");
    assert_string_equal(tutti_strerror(TUTTI_ERR_PEER_LOST), "a peer was lost");
    /* This status is also returned if the limit of open files is too low, so its text must not name
       memory alone. */
    assert_non_null(strstr(tutti_strerror(TUTTI_ERR_NO_MEMORY), "limit"));
    for (int i = 0; i <= (int)TUTTI_ERR_INTERNAL; i++)
        assert_string_not_equal(tutti_strerror((tutti_status_t)i), "unknown status");
    assert_string_equal(tutti_strerror((tutti_status_t)(TUTTI_ERR_INTERNAL + 1)), "unknown status");
    assert_string_equal(tutti_strerror((tutti_status_t)-1), "unknown status");
}

static void test_element_sizes(void **state)
{
    static const size_t bytes[] = { 0, 1, 1, 2, 2, 4, 4,  8, 8,  2, 2,
                                    4, 8, 1, 1, 1, 8, 16, 8, 16, 0, 0 };

    (void)state;
    for (unsigned i = 0; i < sizeof(bytes) / sizeof(*bytes); i++)
        assert_int_equal(tutti_dtype_bytes((tutti_dtype_t)i), bytes[i]);
    assert_int_equal(tutti_dtype_bytes(TUTTI_DTYPE_FORCE_INT), 0);
    assert_int_equal(tutti_version(), TUTTI_API_VERSION);
}

static void *fresh_thread(void *ret_text)
{
    strcpy(ret_text, tutti_last_error());
    tutti__fail(TUTTI_ERR_INTERNAL, "of the other thread");
    return NULL;
}

static void test_last_error_belongs_to_the_thread(void **state)
{
    char other[TUTTI__ERROR_BYTES] = "unset";
    pthread_t thread;

    (void)state;
    assert_int_equal(tutti__fail(TUTTI_ERR_TIMEOUT, "peer %d after %d s", 3, 60),
                     TUTTI_ERR_TIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, fresh_thread, other), 0);
    pthread_join(thread, NULL);
    assert_string_equal(other, "");
    assert_string_equal(tutti_last_error(), "peer 3 after 60 s");
}

static void test_errors_may_quote_errors(void **state)
{
    char expected[TUTTI__ERROR_BYTES] = "x";

    (void)state;
    tutti__fail(TUTTI_ERR_SYSTEM, "inner");
    tutti__fail(TUTTI_ERR_SYSTEM, "outer: %s", tutti_last_error());
    assert_string_equal(tutti_last_error(), "outer: inner");

    /* A text that grows beyond its limit is cut with dots. */
    for (int i = 0; i < 100; i++)
        tutti__fail(TUTTI_ERR_SYSTEM, "a long way, %s", tutti_last_error());
    assert_int_equal(strlen(tutti_last_error()), TUTTI__ERROR_BYTES - 1);
    strcpy(expected, tutti_last_error());
    assert_string_equal(expected + TUTTI__ERROR_BYTES - 4, "...");

    /* A text that just fits is not cut. */
    memset(expected, 'y', sizeof(expected) - 1);
    tutti__fail(TUTTI_ERR_SYSTEM, "%s", expected);
    assert_string_equal(tutti_last_error(), expected);
}

static void test_errno(void **state)
{
    static const struct {
        int error;
        tutti_status_t status;
    } cases[] = { { ENOMEM, TUTTI_ERR_NO_MEMORY }, { ENOSPC, TUTTI_ERR_NO_MEMORY },
                  { EMFILE, TUTTI_ERR_NO_MEMORY }, { ENFILE, TUTTI_ERR_NO_MEMORY },
                  { EPERM, TUTTI_ERR_SYSTEM },     { EINVAL, TUTTI_ERR_SYSTEM } };
    char name[2 * TUTTI__ERROR_BYTES];

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        errno = cases[i].error;
        assert_int_equal(tutti__fail_errno("open %s", "f"), cases[i].status);
    }
    assert_string_equal(tutti_last_error(), "open f: Invalid argument");

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    errno = EPERM;
    tutti__fail_errno("%s", name);
    assert_non_null(strstr(tutti_last_error(), "n: Operation not permitted"));
}

static int evaluated(void)
{
    fail_msg("arguments of a silent level were evaluated");
    return 0;
}

static void test_log_lines(void **state)
{
    char text[4 * TUTTI__LOG_BYTES], huge[2 * TUTTI__LOG_BYTES];

    (void)state;
    memset(huge, 'h', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    capture_begin();
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    TUTTI__LOG(TUTTI__LOG_WARN, "before");
    tutti__log_setup(TUTTI__LOG_INFO, 3);
    errno = EBADF;
    TUTTI__LOG(TUTTI__LOG_INFO, "tensor %s", "two\nlines\033[2J");
    assert_int_equal(errno, EBADF);
    TUTTI__LOG(TUTTI__LOG_DEBUG, "%d", evaluated());
    TUTTI__LOG(TUTTI__LOG_ERROR, "%s", huge);
    tutti__log_text("a table\nof lines\n");
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    capture_end(text, sizeof(text));

    assert_memory_equal(text, "tutti warn: before\n", 19);
    assert_non_null(strstr(text, "\ntutti[3] info: tensor two lines [2J\n"));
    assert_non_null(strstr(text, "\ntutti[3] error: hhh"));
    assert_non_null(strstr(text, "hhh...\na table\nof lines\n"));
    assert_int_equal(strchr(strstr(text, "tutti[3] error"), '\n') - strstr(text, "tutti[3] error"),
                     TUTTI__LOG_BYTES - 1);
}

#define WRITERS 4
#define LINES 300

static void *write_lines(void *name)
{
    for (int i = 0; i < LINES; i++)
        TUTTI__LOG(TUTTI__LOG_WARN, "%s %s %s", (char *)name, (char *)name, (char *)name);
    return NULL;
}

static void test_lines_do_not_mix(void **state)
{
    static char text[1 << 17], names[WRITERS][2] = { "a", "b", "c", "d" };
    int seen[WRITERS] = { 0 };
    pthread_t threads[WRITERS];

    (void)state;
    capture_begin();
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    capture_end(text, sizeof(text));

    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char who = line[12], whole[32];

        assert_in_range(who, 'a', 'a' + WRITERS - 1);
        snprintf(whole, sizeof(whole), "tutti warn: %c %c %c", who, who, who);
        assert_string_equal(line, whole);
        seen[who - 'a']++;
    }
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(seen[i], LINES);
}

static void test_lock_order(void **state)
{
    tutti__mutex_t world = TUTTI__MUTEX_INIT(TUTTI__LOCK_WORLD);
    tutti__mutex_t queue, arena;

    (void)state;
    tutti__mutex_init(&queue, TUTTI__LOCK_ENGINE_QUEUE);
    tutti__mutex_init(&arena, TUTTI__LOCK_ARENA);
    tutti__mutex_lock(&world);
    tutti__mutex_lock(&queue);
    tutti__mutex_lock(&arena);
    /* Locks may be released in any order. */
    tutti__mutex_unlock(&queue);
#ifndef NDEBUG
    assert_false(tutti__lock_allowed(TUTTI__LOCK_ENGINE_QUEUE));
    assert_false(tutti__lock_allowed(TUTTI__LOCK_ARENA));
#endif
    tutti__mutex_unlock(&arena);
    assert_true(tutti__lock_allowed(TUTTI__LOCK_ARENA));
    assert_true(tutti__lock_allowed(TUTTI__LOCK_ENGINE_QUEUE));
    tutti__mutex_unlock(&world);
    assert_true(tutti__lock_allowed(TUTTI__LOCK_WORLD));

    /* trylock does not wait, so it may take a lock that is earlier in the lock order. */
    tutti__mutex_lock(&arena);
    assert_true(tutti__mutex_trylock(&queue));
    assert_false(tutti__mutex_trylock(&queue));
    tutti__mutex_unlock(&queue);
    tutti__mutex_unlock(&arena);
    tutti__mutex_destroy(&queue);
    tutti__mutex_destroy(&arena);
    tutti__mutex_destroy(&world);
}

static tutti__mutex_t of_process = TUTTI__MUTEX_INIT(TUTTI__LOCK_MODULE);
static sem_t is_locked, may_unlock;

static void *hold_lock(void *arg)
{
    tutti__mutex_lock_renewed(&of_process);
    sem_post(&is_locked);
    sem_wait(&may_unlock);
    tutti__mutex_unlock(&of_process);
    return arg;
}

/* A child does not wait for a thread of its parent. */
static void test_lock_in_child(void **state)
{
    pthread_t thread;
    pid_t child;
    int how;

    (void)state;
    sem_init(&is_locked, 0, 0);
    sem_init(&may_unlock, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_lock, NULL), 0);
    sem_wait(&is_locked);
    child = fork();
    if (child == 0) {
        alarm(30);
        tutti__mutex_lock_renewed(&of_process);
        tutti__mutex_unlock(&of_process);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_false(tutti__mutex_trylock(&of_process));
    sem_post(&may_unlock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tutti__mutex_lock_renewed(&of_process);
    tutti__mutex_unlock(&of_process);
}

#ifndef NDEBUG
static void test_wrong_order_is_caught(void **state)
{
    int how;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        tutti__mutex_t queue = TUTTI__MUTEX_INIT(TUTTI__LOCK_ENGINE_QUEUE);
        tutti__mutex_t arena = TUTTI__MUTEX_INIT(TUTTI__LOCK_ARENA);

        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        tutti__mutex_lock(&arena);
        tutti__mutex_lock(&queue);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGABRT);
}
#endif

static void test_hash(void **state)
{
    uint64_t parts = tutti__hash_more(TUTTI__HASH_INIT, "foo", 3);

    (void)state;
    /* The reference vectors of FNV-1a, 64 bits. */
    assert_true(tutti__hash("", 0) == 0xcbf29ce484222325u);
    assert_true(tutti__hash("a", 1) == 0xaf63dc4c8601ec8cu);
    assert_true(tutti__hash("foobar", 6) == 0x85944171f73967e8u);
    assert_true(tutti__hash_more(parts, "bar", 3) == tutti__hash("foobar", 6));
}

/* The hash depends on every byte of a name and on its length, but not on the bytes behind the
   name. */
static void test_hash_name(void **state)
{
    char name[32], other[32];

    (void)state;
    for (size_t bytes = 0; bytes < sizeof(name); bytes++) {
        memset(name, 'a', sizeof(name));
        memcpy(other, name, sizeof(name));
        other[bytes] = 'b';
        assert_true(tutti__hash_name(name, bytes) == tutti__hash_name(other, bytes));
        assert_true(tutti__hash_name(name, bytes) != tutti__hash_name(name, bytes + 1));
        for (size_t i = 0; i < bytes; i++) {
            memcpy(other, name, sizeof(name));
            other[i] = 'b';
            assert_true(tutti__hash_name(name, bytes) != tutti__hash_name(other, bytes));
        }
    }
}

/* Numbered names are spread over the slots of a table. Of 1000 random numbers below 4096, 1000 -
   4096 * (1 - exp(-1000 / 4096)) = 113 are expected to find their slot taken. */
static void test_hash_spread(void **state)
{
    static const char *const forms[] = { "%d", "t%d", "grad %03d", "layer%d.weight",
                                         "allreduce.module.features.%d.bias" };

    (void)state;
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        char taken[4096] = { 0 }, name[64];
        int collisions = 0;

        for (int i = 0; i < 1000; i++) {
            size_t bytes = (size_t)snprintf(name, sizeof(name), forms[f], i);
            char *slot = &taken[tutti__hash_name(name, bytes) % sizeof(taken)];

            collisions += *slot;
            *slot = 1;
        }
        assert_in_range(collisions, 0, 160);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_status_has_a_text),
        cmocka_unit_test(test_element_sizes),
        cmocka_unit_test(test_last_error_belongs_to_the_thread),
        cmocka_unit_test(test_errors_may_quote_errors),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_lines_do_not_mix),
        cmocka_unit_test(test_lock_order),
        cmocka_unit_test(test_lock_in_child),
#ifndef NDEBUG
        cmocka_unit_test(test_wrong_order_is_caught),
#endif
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_hash_name),
        cmocka_unit_test(test_hash_spread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
