/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The token's check: a thread that does not own the token cannot reach what belongs to its owner.
 * Each violation runs in a child, which the assert must end. A build with NDEBUG has no check.
 */
#include "engine/state.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT "tutti__token_is_mine"

static tutti__engine_t engine;

/* Run `act` in a child, and wait for its end: its status and what it wrote to stderr. */
static int run(void (*act)(void), char *text, size_t bytes)
{
    const struct rlimit no_core = { 0, 0 };
    int pipe_fd[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(pipe_fd[1], STDERR_FILENO);
        act();
        _exit(0);
    }
    close(pipe_fd[1]);
    while ((got = read(pipe_fd[0], text + n, bytes - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(pipe_fd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_dies(void (*act)(void))
{
    char text[4096];
    int status = run(act, text, sizeof(text));

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, TEXT));
}

static void assert_lives(void (*act)(void))
{
    char text[4096];

    assert_int_equal(run(act, text, sizeof(text)), 0);
    assert_string_equal(text, "");
}

static void use(void)
{
    tutti__owned(&engine)->polls++;
}

static void leave(void)
{
    tutti__token_leave(&engine.token);
}

static void take_and_use(void)
{
    if (!tutti__token_take(&engine.token))
        _exit(1);
    use();
    leave();
}

static void await_and_use(void)
{
    tutti__token_await(&engine.token);
    use();
    leave();
}

static void use_after_leaving(void)
{
    take_and_use();
    use();
}

static void *take(void *arg)
{
    (void)arg;
    return tutti__token_take(&engine.token) ? &engine : NULL;
}

static void test_owner(void **state)
{
    (void)state;
    assert_lives(take_and_use);
    assert_lives(await_and_use);
}

static void test_no_owner(void **state)
{
    (void)state;
    assert_dies(use);
    assert_dies(leave);
    assert_dies(use_after_leaving);
}

static void test_other_owner(void **state)
{
    pthread_t other;
    void *taken;

    (void)state;
    assert_int_equal(pthread_create(&other, NULL, take, NULL), 0);
    assert_int_equal(pthread_join(other, &taken), 0);
    assert_non_null(taken);
    assert_dies(use);
    assert_dies(leave);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_no_owner),
        cmocka_unit_test(test_other_owner),
    };

#ifdef NDEBUG
    return 77;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
