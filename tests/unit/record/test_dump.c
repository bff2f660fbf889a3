/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of TUTTI_DUMP: the dump of a failure stays in the file exactly as long as the process
 * has communicators. Also tests the longest path of a dump, a dump in a signal handler that has a
 * small stack, and that the start of a trace delays no thread that closes a communicator.
 */
#include "record/recorders.h"

#include "base/compiler.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LONGEST = 4000, /* include/tutti/record.h */
    FRAME = 2048,   /* the least that a kernel pushes for a signal */
    NEED = 4096,    /* include/tutti/record.h: the stack that a dump needs besides */
    BELOW = 65536   /* bytes below the stack that are checked */
};

static char folder[] = "/tmp/tutti-test-dump-XXXXXX";
static char path[64], file[80];
static char text[1 << 20];

static tutti__record_t *open_record(void)
{
    const tutti__record_facts_t facts = {
        .size = 2,
        .id = UINT64_C(0xfedcba9876543210),
        .is_world = 1,
        .host = "h",
        .dump_path = path,
        .is_leader = 1,
    };
    tutti__record_t *record = NULL;

    assert_int_equal(tutti__record_open(&facts, &record), TUTTI_OK);
    return record;
}

static void fail_record(tutti__record_t *record, const char *reason)
{
    tutti__record_end(record, TUTTI_ERR_PEER_LOST, reason);
    assert_int_equal(atomic_load(&record->dump_error), 0);
}

/* Read the file into `text`, and return the number of dumps in it. */
static int count_dumps(void)
{
    static const char head[] = "{\"what\":\"dump\"";
    FILE *from = fopen(file, "r");
    int n = 0;

    assert_non_null(from);
    text[fread(text, 1, sizeof(text) - 1, from)] = '\0';
    fclose(from);
    for (const char *at = text; (at = strstr(at, head)) != NULL; at++)
        n++;
    return n;
}

/* After a failure a program continues with a new world, which fails as well. */
static void test_two_worlds(void **state)
{
    tutti__record_t *record = open_record();

    (void)state;
    fail_record(record, "failure one");
    tutti__record_close(record);
    record = open_record();
    fail_record(record, "failure two");
    assert_int_equal(count_dumps(), 1);
    assert_non_null(strstr(text, ",\"id\":\"fedcba9876543210\","));
    assert_non_null(strstr(text, "failure two"));
    assert_null(strstr(text, "failure one"));
    tutti__record_close(record);
}

/* Communicators of a world fail one after another. The first failure may be the cause of the
   others. */
static void test_groups(void **state)
{
    tutti__record_t *world = open_record(), *group = open_record(), *other;

    (void)state;
    fail_record(group, "failure one");
    tutti__record_close(group);
    other = open_record();
    fail_record(world, "failure two");
    assert_int_equal(tutti__record_dump(NULL), TUTTI_OK);
    assert_int_equal(count_dumps(), 3);
    assert_non_null(strstr(text, "failure one"));
    tutti__record_close(world);
    tutti__record_close(other);
}

/* A child has none of its parent's communicators. */
static void test_child(void **state)
{
    tutti__record_t *record = open_record();
    int status = -1;
    pid_t child;

    (void)state;
    fail_record(record, "failure one");
    child = fork();
    if (child == 0) {
        fail_record(open_record(), "failure two");
        _exit(count_dumps() != 1 || strstr(text, "failure two") == NULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tutti__record_close(record);
}

/* Write to `to` a path of so many bytes that leads to the same file. */
static void lengthen(char *to, size_t bytes)
{
    memset(to, '/', bytes);
    memcpy(to, folder, strlen(folder));
    to[bytes - 1] = 'd';
    to[bytes] = '\0';
}

static void test_long_path(void **state)
{
    tutti__record_t *record = open_record();
    char longest[LONGEST + 2];

    (void)state;
    unlink(file);
    lengthen(longest, LONGEST + 1);
    assert_int_equal(tutti__record_dump(longest), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_not_equal(access(file, F_OK), 0);
    lengthen(longest, LONGEST);
    assert_int_equal(tutti__record_dump(longest), TUTTI_OK);
    assert_int_equal(access(file, F_OK), 0);
    tutti__record_close(record);
}

/* ---- the start of a trace ---- */

static int readers_in_start = -1;

tutti_status_t __wrap_tutti__trace_start(const char *at, const tutti__trace_head_t *head,
                                         int is_leader);

tutti_status_t __wrap_tutti__trace_start(const char *at, const tutti__trace_head_t *head,
                                         int is_leader)
{
    assert_string_equal(at, path);
    assert_string_equal(head->host, "h");
    assert_int_equal(is_leader, 1);
    readers_in_start = atomic_load(&tutti__recorders.readers);
    return TUTTI_OK;
}

/* The start of a trace may wait for the end of another trace. Meanwhile other threads may close
   communicators. */
static void test_trace_start(void **state)
{
    tutti__record_t *record = open_record();

    (void)state;
    assert_int_equal(tutti__record_trace_start(path), TUTTI_OK);
    assert_int_equal(readers_in_start, 0);
    tutti__record_close(record);
    assert_int_equal(tutti__record_trace_start(path), TUTTI_ERR_INVALID_ARGUMENT);
}

/* ---- a signal handler with a small stack ---- */

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51 /* the kernel's number, which older headers lack */
#endif

static char longest_path[LONGEST + 1];
static tutti_status_t dumped;

static void handler(int number)
{
    (void)number;
    dumped = tutti__record_dump(longest_path);
}

/* The number of bytes below the stack that were written. */
static size_t overflow(const char *below)
{
    size_t i = 0;

    while (i < BELOW && below[i] == 'x')
        i++;
    return BELOW - i;
}

/* There is no guard page below an alternate stack. */
static void test_small_stack(void **state)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK }, before;
    size_t frame = getauxval(AT_MINSIGSTKSZ), room = (frame != 0 ? frame : FRAME) + NEED;
    char *below =
        mmap(NULL, BELOW + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = { .ss_sp = below + BELOW, .ss_size = room }, usual;
    const tutti__submitted_t submitted = {
        .name = "tensor", .hash = 1, .kind = TUTTI_CALL_ALLREDUCE, .since_ns = 1
    };
    tutti__record_t *record;

    (void)state;
#ifdef TUTTI__SANITIZED
    skip(); /* sanitizers need more stack */
#endif
    record = open_record();
    assert_int_not_equal(tutti__record_submit(record, &submitted), 0);
    assert_ptr_not_equal(below, MAP_FAILED);
    memset(below, 'x', BELOW);
    lengthen(longest_path, LONGEST);
    fail_record(record, "failure one");
    unlink(file);
    assert_int_equal(sigaltstack(&stack, &usual), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    raise(SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    assert_int_equal(sigaltstack(&usual, NULL), 0);
    assert_int_equal(dumped, TUTTI_OK);
    assert_int_equal(count_dumps(), 1);
    assert_int_equal(overflow(below), 0);
    tutti__record_close(record);
    munmap(below, BELOW + room);
}

/* The table of dumps has 256 entries. A dump has the number of the communicators beyond them. */
static void test_too_many(void **state)
{
    tutti__record_t *record[258];

    (void)state;
    for (int i = 0; i < 258; i++)
        record[i] = open_record();
    assert_int_equal(tutti__record_dump(path), TUTTI_OK);
    assert_int_equal(count_dumps(), 1);
    assert_non_null(strstr(text, ",\"left_out\":2}"));
    for (int i = 0; i < 258; i++)
        tutti__record_close(record[i]);
    record[0] = open_record();
    assert_int_equal(tutti__record_dump(path), TUTTI_OK);
    assert_int_equal(count_dumps(), 1);
    assert_non_null(strstr(text, ",\"left_out\":0}"));
    tutti__record_close(record[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_worlds),  cmocka_unit_test(test_groups),
        cmocka_unit_test(test_child),       cmocka_unit_test(test_long_path),
        cmocka_unit_test(test_trace_start), cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_too_many),
    };
    int failures;

    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/d", folder);
    snprintf(file, sizeof(file), "%s.0", path);
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    rmdir(folder);
    return failures;
}
