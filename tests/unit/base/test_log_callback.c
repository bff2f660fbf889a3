/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log callback receives all messages in order, in a thread that holds no lock. Messages that
 * find no room are counted. A change of the callback waits until the old one has returned. A forked
 * child has no callback.
 */
#include "base/lock.h"
#include "base/log_callback.h"
#include "base/status.h"
#include "unit/base/capture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    WRITERS = 4,
    LINES = 200,
    CHANGES = 200
};

/* The messages that a callback has received. The callback writes this structure; the test reads it
   when the callback is NULL. */
typedef struct {
    int count, lost, next[WRITERS], in_order; /* lost: from the library's warning */
    char last[256];
    tutti_log_level_t level;
    pthread_t thread;
    pthread_mutex_t *takes; /* or NULL */
    int is_over;            /* set(NULL) has returned: further calls are errors */
} box_t;

static void receive(void *arg, tutti_log_level_t level, const char *text)
{
    box_t *box = arg;
    int writer, number, lost;

    assert_false(box->is_over);
    if (box->takes != NULL) {
        pthread_mutex_lock(box->takes);
        pthread_mutex_unlock(box->takes);
    }
    if (sscanf(text, "%d log messages were dropped", &lost) == 1)
        box->lost += lost;
    else
        box->count++;
    box->level = level;
    box->thread = pthread_self();
    snprintf(box->last, sizeof(box->last), "%s", text);
    if (sscanf(text, "writer %d %d", &writer, &number) == 2)
        box->in_order &= number == box->next[writer]++;
}

static void set(tutti_log_callback_t callback, void *arg)
{
    assert_int_equal(tutti_log_set_callback(callback, arg), TUTTI_OK);
}

static void test_messages(void **state)
{
    char text[256];
    box_t box = { .in_order = 1 };

    (void)state;
    set(NULL, NULL);
    capture_begin();
    TUTTI__LOG(TUTTI__LOG_WARN, "before");
    set(receive, &box);
    tutti__log_setup(TUTTI__LOG_WARN, 3);
    errno = EBADF;
    TUTTI__LOG(TUTTI__LOG_WARN, "tensor %s", "two\nlines");
    assert_int_equal(errno, EBADF);
    TUTTI__LOG(TUTTI__LOG_INFO, "silent");
    set(NULL, NULL);
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    TUTTI__LOG(TUTTI__LOG_WARN, "after");
    capture_end(text, sizeof(text));

    assert_string_equal(text, "tutti warn: before\ntutti warn: after\n");
    assert_int_equal(box.count, 1);
    assert_string_equal(box.last, "tensor two lines");
    assert_int_equal(box.level, TUTTI_LOG_WARN);
    assert_false(pthread_equal(box.thread, pthread_self()));
}

/* The logging thread holds the last lock of the lock order, and a lock that the callback takes. */
static void test_no_lock_is_held(void **state)
{
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    tutti__mutex_t arena = TUTTI__MUTEX_INIT(TUTTI__LOCK_ARENA);
    box_t box = { .takes = &mine };

    (void)state;
    set(receive, &box);
    pthread_mutex_lock(&mine);
    tutti__mutex_lock(&arena);
    for (int i = 0; i < 10; i++)
        TUTTI__LOG(TUTTI__LOG_WARN, "under a lock");
    tutti__mutex_unlock(&arena);
    assert_int_equal(box.count, 0);
    pthread_mutex_unlock(&mine);
    set(NULL, NULL);
    assert_int_equal(box.count, 10);
}

/* The callback waits while the lines are written, so it has taken at most one message out of the
   list. */
static void test_what_finds_no_room_is_counted(void **state)
{
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    box_t box = { .takes = &mine };
    int more = 17, lines = TUTTI__LOG_WAITING + 1 + more;

    (void)state;
    set(receive, &box);
    pthread_mutex_lock(&mine);
    for (int i = 0; i < lines; i++)
        TUTTI__LOG(TUTTI__LOG_ERROR, "line");
    pthread_mutex_unlock(&mine);
    set(NULL, NULL);
    assert_in_range(box.lost, more, more + 1);
    assert_int_equal(box.count, lines - box.lost);
    assert_int_equal(box.level, TUTTI_LOG_WARN);
}

static void *write_lines(void *number)
{
    for (int i = 0; i < LINES; i++)
        TUTTI__LOG(TUTTI__LOG_WARN, "writer %d %d", *(int *)number, i);
    return NULL;
}

static void test_threads(void **state)
{
    int numbers[WRITERS];
    pthread_t threads[WRITERS];
    box_t box = { .in_order = 1 };

    (void)state;
    set(receive, &box);
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    set(NULL, NULL);
    assert_int_equal(box.count, WRITERS * LINES);
    assert_true(box.in_order);
}

static atomic_int stop;

static void *write_on(void *written)
{
    while (!atomic_load(&stop)) {
        TUTTI__LOG(TUTTI__LOG_WARN, "on and on");
        atomic_fetch_add((atomic_int *)written, 1);
    }
    return NULL;
}

/* The callback is changed while another thread writes. No message is lost or doubled, and an old
   callback receives none after the change. */
static void test_changes(void **state)
{
    static box_t boxes[CHANGES];
    atomic_int written = 0;
    int received = 0;
    pthread_t thread;

    (void)state;
    set(receive, &boxes[0]);
    assert_int_equal(pthread_create(&thread, NULL, write_on, &written), 0);
    for (int i = 1; i < CHANGES; i++) {
        while (atomic_load(&written) < i)
            sched_yield();
        set(receive, &boxes[i]);
        boxes[i - 1].is_over = 1;
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    set(NULL, NULL);
    for (int i = 0; i < CHANGES; i++)
        received += boxes[i].count + boxes[i].lost;
    assert_int_equal(received, atomic_load(&written));
}

static void call_inside(void *arg, tutti_log_level_t level, const char *text)
{
    (void)level;
    (void)text;
    *(tutti_status_t *)arg = tutti_log_set_callback(NULL, NULL);
    TUTTI__LOG(TUTTI__LOG_WARN, "of the callback's own");
}

static void test_calls_inside(void **state)
{
    tutti_status_t status = TUTTI_OK;
    char text[256];

    (void)state;
    capture_begin();
    set(call_inside, &status);
    TUTTI__LOG(TUTTI__LOG_WARN, "a message");
    set(NULL, NULL);
    capture_end(text, sizeof(text));
    assert_int_equal(status, TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(text, "tutti warn: of the callback's own\n");
}

/* Runs in the child. Returns 0 if the child's log goes to stderr, and to a callback after the child
   has set one. */
static int child(void)
{
    box_t box = { .last = "in its box" };
    char text[256];

    alarm(20);
    capture_begin();
    TUTTI__LOG(TUTTI__LOG_WARN, "of the child");
#ifndef TUTTI__TSAN /* TSan ends forked children that start threads */
    box.last[0] = '\0';
    tutti_log_set_callback(receive, &box);
    TUTTI__LOG(TUTTI__LOG_WARN, "in its box");
    tutti_log_set_callback(NULL, NULL);
#endif
    capture_end(text, sizeof(text));
    return strcmp(text, "tutti warn: of the child\n") != 0 || strcmp(box.last, "in its box") != 0;
}

/* At the fork, the parent's list is locked and the parent's callback runs. */
static void test_forked_child(void **state)
{
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    box_t box = { .takes = &mine };
    int status;
    pid_t pid;

    (void)state;
    set(receive, &box);
    pthread_mutex_lock(&mine);
    TUTTI__LOG(TUTTI__LOG_WARN, "of the parent");
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    pthread_mutex_unlock(&mine);
    set(NULL, NULL);
    assert_int_equal(status, 0);
    assert_int_equal(box.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_no_lock_is_held),
        cmocka_unit_test(test_what_finds_no_room_is_counted),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_calls_inside),
        cmocka_unit_test(test_forked_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
