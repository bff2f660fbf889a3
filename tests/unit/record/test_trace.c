/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A trace that cannot be appended to PATH: without memory, and with an error of writing. PATH stays
 * as it was, the rank's part stays, and stop reports the failure.
 */
#include "record/trace.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MOST = 1 << 20,
    FEW = 3,
    MANY = 200 /* their lines fill several buffers of stdio */
};

static char folder[] = "/tmp/tutti-test-trace-XXXXXX";
static char path[64], part[80];
static char before[MOST], after[MOST];

/* ---- memory ---- */

static int calloc_fails;

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
    if (!calloc_fails)
        return __real_calloc(n, bytes);
    errno = ENOMEM;
    return NULL;
}

/* ---- traces ---- */

/* Trace so many events as this rank; the trace stays on. */
static void trace(uint32_t rank, uint32_t nevents)
{
    const tutti__trace_head_t head = { .rank = rank, .size = 2, .host = "host" };

    assert_int_equal(tutti__trace_start(path, &head), TUTTI_OK);
    for (uint32_t i = 0; i < nevents; i++)
        tutti__trace_put(
            &(tutti__traced_t){ .kind = TUTTI__TRACE_AGREE, .time_ns = 1000 + i, .bucket = i });
}

static size_t read_path(char *ret_text)
{
    FILE *file = fopen(path, "r");
    size_t bytes;

    assert_non_null(file);
    bytes = fread(ret_text, 1, MOST, file);
    fclose(file);
    return bytes;
}

/* Rank 0's trace, of which the other tests append one of rank 1. Returns its length. */
static size_t first_trace(void)
{
    trace(0, FEW);
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
    return read_path(before);
}

/* PATH is as it was, and a further trace can be appended. */
static void assert_kept(size_t bytes)
{
    assert_int_equal(read_path(after), bytes);
    assert_int_equal(memcmp(after, before, bytes), 0);
    assert_int_equal(access(part, F_OK), 0);
    trace(1, FEW);
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
    assert_true(read_path(after) > bytes);
    assert_int_not_equal(access(part, F_OK), 0);
}

/* ---- tests ---- */

static tutti_status_t stop_without_memory(void)
{
    tutti_status_t status;

    calloc_fails = 1;
    status = tutti__trace_stop();
    calloc_fails = 0;
    return status;
}

static void test_no_memory(void **state)
{
    size_t bytes = first_trace();

    (void)state;
    trace(1, FEW);
    assert_int_equal(stop_without_memory(), TUTTI_ERR_SYSTEM);
    assert_kept(bytes);
}

/* Rank 1 is the first to append. */
static void test_no_memory_at_first(void **state)
{
    (void)state;
    unlink(path);
    trace(1, FEW);
    assert_int_equal(stop_without_memory(), TUTTI_ERR_SYSTEM);
    assert_kept(0);
    assert_memory_equal(after, "{\"traceEvents\":[\n{", 18);
}

/* The limit on the length of files, before the test. */
static struct rlimit usual;

static void lift_limit(int number)
{
    (void)number;
    setrlimit(RLIMIT_FSIZE, &usual);
}

/* Beyond some lines, a write fails, and `action` is taken. */
static void write_fails(void (*action)(int number))
{
    size_t bytes = first_trace();
    struct rlimit limit;
    tutti_status_t status;

    trace(1, MANY);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    limit = usual;
    limit.rlim_cur = bytes + 5000;
    signal(SIGXFSZ, action);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    status = tutti__trace_stop();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(status, TUTTI_ERR_SYSTEM);
    assert_kept(bytes);
}

static void test_no_room(void **state)
{
    (void)state;
    write_fails(SIG_IGN);
}

/* One write in the middle fails; all later ones succeed. */
static void test_no_room_for_a_moment(void **state)
{
    (void)state;
    write_fails(lift_limit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_memory_at_first),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_no_room_for_a_moment),
    };
    int failures;

    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/trace", folder);
    snprintf(part, sizeof(part), "%s.1.part", path);
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failures;
}
