/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device's memory: every access of host code is detected, and `where`
 * recognises all of it.
 */
#include "pretend/pretend.h"

#include "base/status.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const tutti__device_ops_t *ops;
static sigjmp_buf back;
static volatile pretend_fault_t seen;
static volatile sig_atomic_t was_device;

static int begin(void **state)
{
    (void)state;
    ops = pretend_device();
    return ops->use(0) != TUTTI_OK;
}

static int end(void **state)
{
    (void)state;
    return pretend_reset();
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    pretend_fault_t fault = { 0, 0, 0, 0, 0 };

    (void)signal;
    (void)context;
    was_device = pretend_is_device_fault(info->si_addr, &fault);
    seen = fault;
    siglongjmp(back, 1);
}

/* Returns 1 if a read, or with `writes` a write, at `ptr` faults. */
static int faults(void *ptr, int writes)
{
    struct sigaction mine, before;
    volatile int did = 0;

    memset(&mine, 0, sizeof(mine));
    mine.sa_sigaction = on_fault;
    mine.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &mine, &before);
    if (sigsetjmp(back, 1) != 0)
        did = 1;
    else if (writes)
        *(volatile char *)ptr = 1;
    else
        (void)*(volatile char *)ptr;
    sigaction(SIGSEGV, &before, NULL);
    return did;
}

static void test_host_code_faults(void **state)
{
    void *first, *ptr;

    (void)state;
    assert_int_equal(ops->alloc(10, &first), TUTTI_OK);
    assert_int_equal(ops->alloc(10000, &ptr), TUTTI_OK);
    assert_true(faults((char *)ptr + 77, 0));
    assert_true(was_device);
    assert_int_equal(seen.allocation, 1);
    assert_int_equal(seen.device, 0);
    assert_int_equal(seen.bytes, 10000);
    assert_int_equal(seen.offset, 77);
    assert_false(seen.was_freed);
    assert_true(faults((char *)ptr + 9999, 1));

    /* Accesses behind the end of the memory fault as well, and accesses after it was freed. */
    assert_true(faults((char *)ptr + 12288 + 5, 0));
    assert_true(was_device);
    assert_int_equal(seen.offset, 12293);
    ops->free(ptr);
    assert_true(faults(ptr, 0));
    assert_true(was_device);
    assert_true(seen.was_freed);
    ops->free(first);
    ops->free(NULL);
}

static void test_host_memory_is_none_of_it(void **state)
{
    pretend_fault_t fault;
    void *pinned;
    int local;

    (void)state;
    assert_false(faults(&local, 1));
    assert_false(pretend_is_device_fault(&local, &fault));
    assert_false(pretend_is_device_fault(NULL, &fault));
    assert_int_equal(ops->host_alloc(100, &pinned), TUTTI_OK);
    assert_false(faults(pinned, 1));
    assert_false(pretend_is_device_fault(pinned, &fault));
    ops->host_free(pinned);
}

static void expect(const void *ptr, tutti__mem_kind_t kind, int device)
{
    tutti__where_t where = ops->where(ptr);

    assert_int_equal(where.kind, kind);
    assert_int_equal(where.device, device);
}

static void test_where(void **state)
{
    void *ptr, *pinned, *other;
    int local;

    (void)state;
    assert_int_equal(ops->alloc(5000, &ptr), TUTTI_OK);
    assert_int_equal(ops->host_alloc(100, &pinned), TUTTI_OK);
    assert_int_equal(ops->use(3), TUTTI_OK);
    assert_int_equal(ops->alloc(1, &other), TUTTI_OK);
    expect(ptr, TUTTI__MEM_DEVICE, 0);
    expect((char *)ptr + 4999, TUTTI__MEM_DEVICE, 0);
    expect((char *)ptr + 5000, TUTTI__MEM_HOST, -1);
    expect((char *)pinned + 99, TUTTI__MEM_PINNED, 0);
    expect(other, TUTTI__MEM_DEVICE, 3);
    expect(&local, TUTTI__MEM_HOST, -1);
    expect(NULL, TUTTI__MEM_HOST, -1);
    ops->free(ptr);
    ops->host_free(pinned);
    expect(ptr, TUTTI__MEM_HOST, -1);
    expect(pinned, TUTTI__MEM_HOST, -1);
    ops->free(other);
}

static void test_behind_the_back(void **state)
{
    char text[] = "abcdef", copy[7];
    void *ptr;

    (void)state;
    assert_int_equal(ops->alloc(7, &ptr), TUTTI_OK);
    pretend_write(ptr, text, 7);
    pretend_read(copy, ptr, 7);
    assert_string_equal(copy, "abcdef");
    ops->free(ptr);
}

static void test_what_is_left_is_counted(void **state)
{
    tutti__dstream_t *stream;
    tutti__devent_t *event;
    void *ptr;

    (void)state;
    assert_int_equal(ops->alloc(7, &ptr), TUTTI_OK);
    assert_int_equal(ops->host_alloc(7, &ptr), TUTTI_OK);
    assert_int_equal(ops->stream_make(0, &stream), TUTTI_OK);
    assert_int_equal(ops->event_make(&event), TUTTI_OK);
    ops->stream_drop(stream);
    assert_int_equal(pretend_reset(), 3);
    assert_int_equal(pretend_reset(), 0);
    assert_int_equal(ops->use(0), TUTTI_OK);
    ops->event_drop(event);
    pretend_reset();
}

static void test_forbidden(void **state)
{
    tutti__dstream_t *stream;
    tutti__devent_t *event;
    void *ptr = NULL, *kept;

    (void)state;
    assert_int_equal(ops->alloc(7, &kept), TUTTI_OK);
    pretend_forbid_alloc(1);
    assert_int_equal(ops->alloc(7, &ptr), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "alloc on device 0, where nothing may be made"));
    assert_int_equal(ops->host_alloc(7, &ptr), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->stream_make(0, &stream), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->event_make(&event), TUTTI_ERR_SYSTEM);
    assert_null(ptr);
    assert_int_equal(pretend_counts(0, PRETEND_FORBIDDEN), 4);
    ops->free(kept);
    assert_int_equal(pretend_counts(0, PRETEND_FORBIDDEN), 5);
    pretend_forbid_alloc(0);
    assert_int_equal(ops->alloc(7, &ptr), TUTTI_OK);
    ops->free(ptr);
    assert_int_equal(pretend_counts(0, PRETEND_FORBIDDEN), 5);
    assert_int_equal(pretend_counts(0, PRETEND_ALLOCS), 6);
}

static void test_devices(void **state)
{
    int count;

    (void)state;
    assert_int_equal(ops->count(&count), TUTTI_OK);
    assert_int_equal(count, PRETEND_DEVICES);
    assert_int_equal(ops->use(count), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->use(-1), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->use(count - 1), TUTTI_OK);
}

static void test_unused_thread(void **state)
{
    void *ptr;

    (void)state;
    pretend_reset();
    assert_int_equal(ops->alloc(1, &ptr), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "has not used a device"));
}

static void test_forked_after_use(void **state)
{
    pid_t child = fork();
    int how;

    (void)state;
    if (child == 0)
        _exit(ops->use(0) == TUTTI_ERR_SYSTEM && strstr(tutti_last_error(), "forked") != NULL ? 0
                                                                                              : 1);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

#define on_device(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(test_host_code_faults),
        on_device(test_host_memory_is_none_of_it),
        on_device(test_where),
        on_device(test_behind_the_back),
        on_device(test_what_is_left_is_counted),
        on_device(test_forbidden),
        on_device(test_devices),
        on_device(test_unused_thread),
        on_device(test_forked_after_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
