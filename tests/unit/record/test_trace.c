/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces that cannot be appended to PATH, because memory is exhausted, a write fails, or PATH
 * cannot be locked. In these cases PATH stays as it was, the rank's part stays, and stop reports
 * the failure. Another test forks a child while the process's first trace is started.
 */
#include "record/trace.h"

#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MOST = 1 << 20,
    FEW = 3,
    MANY = 200, /* their lines fill several buffers of stdio */
    NAPS = 200, /* naps in which another process appends; longer than the limit of the wait */
    LIMIT_S = 60
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

/* Start a trace as this rank, and trace nevents events. The trace is not stopped. */
static void trace_as(uint32_t rank, int is_leader, uint32_t nevents)
{
    const tutti__trace_head_t head = { .rank = rank, .size = 2, .host = "host" };

    assert_int_equal(tutti__trace_start(path, &head, is_leader), TUTTI_OK);
    for (uint32_t i = 0; i < nevents; i++)
        tutti__trace_put(
            &(tutti__traced_t){ .kind = TUTTI__TRACE_AGREE, .time_ns = 1000 + i, .bucket = i });
}

/* The ranks are on one host. */
static void trace(uint32_t rank, uint32_t nevents)
{
    trace_as(rank, rank == 0, nevents);
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

/* Make rank 0's trace, to which the other tests append one of rank 1. Returns its length. */
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

/* ---- a fork beside the first trace ---- */

static int forks;             /* the next registration of fork handlers forks first */
static int child_status = -1; /* the child's status from waitpid */

int __real_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

static void *fork_child(void *unused)
{
    pid_t child = fork();

    (void)unused;
    if (child == 0) {
        alarm(10);
        _exit(tutti__trace_stop() == TUTTI_OK ? 0 : 1);
    }
    if (child > 0 && waitpid(child, &child_status, 0) != child)
        child_status = -1;
    return NULL;
}

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    pthread_t thread;

    if (forks) {
        forks = 0;
        if (pthread_create(&thread, NULL, fork_child, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return __real_pthread_atfork(prepare, parent, child);
}

/* This must be the first test, because only the first trace registers handlers. */
static void test_child(void **state)
{
    static tutti__mutex_t other = TUTTI__MUTEX_INIT(TUTTI__LOCK_LOG);

    (void)state;
    /* This call registers the fork handler for all locks that a child initialises again. */
    tutti__mutex_lock_renewed(&other);
    tutti__mutex_unlock(&other);
    forks = 1;
    trace(0, FEW);
    assert_int_equal(forks, 0);
    assert_int_equal(child_status, 0);
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
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

/* The limit on the length of files as it was before the test. */
static struct rlimit usual;

static void lift_limit(int number)
{
    (void)number;
    setrlimit(RLIMIT_FSIZE, &usual);
}

/* Let a write fail after some lines. The signal's handler is `action`. */
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

/* One write in the middle fails, and all later writes succeed. */
static void test_no_room_for_a_moment(void **state)
{
    (void)state;
    write_fails(lift_limit);
}

/* Rank 1 is alone on its host, whose disk has the file of an earlier trace. */
static void test_older_file(void **state)
{
    size_t bytes;

    (void)state;
    unlink(path);
    trace_as(1, 1, FEW);
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
    bytes = read_path(before);
    trace_as(1, 1, FEW);
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
    assert_int_equal(read_path(after), bytes);
    assert_memory_equal(after, before, bytes);
}

/* ---- the lock of PATH ---- */

static int fcntl_error;    /* errno of all locks; 0: none */
static uint64_t skipped_s; /* seconds that the clock has skipped */
static pid_t holder;       /* the child that has locked PATH */
static int release_fd;     /* when it is closed, the holder exits */
static int naps, is_appending;

int __real_fcntl(int fd, int command, void *lock);
int __wrap_fcntl(int fd, int command, void *lock);

int __wrap_fcntl(int fd, int command, void *lock)
{
    if (fcntl_error == 0)
        return __real_fcntl(fd, command, lock);
    errno = fcntl_error;
    return -1;
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    int rc = __real_clock_gettime(clock, ret_now);

    ret_now->tv_sec += (time_t)skipped_s;
    return rc;
}

/* Start a child that locks PATH. */
static void hold_lock(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int locked[2], release[2];
    char byte = 0;

    assert_int_equal(pipe(locked) + pipe(release), 0);
    holder = fork();
    if (holder == 0) {
        close(release[1]);
        if (__real_fcntl(open(path, O_RDWR), F_SETLK, &lock) < 0 || write(locked[1], &byte, 1) != 1)
            _exit(1);
        _exit(read(release[0], &byte, 1) != 0);
    }
    close(locked[1]);
    close(release[0]);
    assert_int_equal(read(locked[0], &byte, 1), 1);
    close(locked[0]);
    release_fd = release[1];
}

static void release_lock(void)
{
    int status = -1;

    close(release_fd);
    assert_int_equal(waitpid(holder, &status, 0), holder);
    assert_int_equal(status, 0);
}

int __wrap_usleep(useconds_t us);

/* A nap takes a second of the test's clock. If is_appending, PATH grows in each nap, until the
   holder of the lock exits. */
int __wrap_usleep(useconds_t us)
{
    (void)us;
    skipped_s++;
    naps++;
    if (is_appending)
        assert_int_equal(truncate(path, (off_t)strlen(before) + naps % NAPS), 0);
    if (is_appending && naps == NAPS)
        release_lock();
    return 0;
}

static void test_no_locks(void **state)
{
    size_t bytes = first_trace();
    tutti_status_t status;

    (void)state;
    trace(1, FEW);
    fcntl_error = ENOLCK;
    status = tutti__trace_stop();
    fcntl_error = 0;
    assert_int_equal(status, TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "no file lock"));
    assert_kept(bytes);
}

static void test_stopped_holder(void **state)
{
    size_t bytes = first_trace();
    tutti_status_t status;

    (void)state;
    trace(1, FEW);
    hold_lock();
    alarm(LIMIT_S);
    status = tutti__trace_stop();
    alarm(0);
    release_lock();
    assert_int_equal(status, TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "keeps the file locked"));
    assert_kept(bytes);
}

/* The wait has no limit while PATH grows. */
static void test_slow_holder(void **state)
{
    size_t bytes = first_trace();

    (void)state;
    before[bytes] = '\0';
    trace(1, FEW);
    hold_lock();
    naps = 0;
    is_appending = 1;
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
    is_appending = 0;
    assert_int_equal(naps, NAPS);
    assert_true(read_path(after) > bytes);
    assert_int_not_equal(access(part, F_OK), 0);
}

/* ---- signals while the part grows ---- */

static off_t most_bytes; /* a signal interrupts larger allocations; 0: no signals */
static int interruptions;

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
    if (most_bytes == 0 || bytes <= most_bytes)
        return __real_posix_fallocate(fd, at, bytes);
    interruptions++;
    return EINTR;
}

/* The trace of interrupted allocations is equal to that of others. */
static void test_signals(void **state)
{
    size_t bytes = first_trace();

    (void)state;
    most_bytes = 100000;
    trace(0, FEW);
    most_bytes = 0;
    assert_true(interruptions > 0);
    assert_int_equal(tutti__trace_stop(), TUTTI_OK);
    assert_int_equal(read_path(after), bytes);
    assert_memory_equal(after, before, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_memory_at_first),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_no_room_for_a_moment),
        cmocka_unit_test(test_older_file),
        cmocka_unit_test(test_no_locks),
        cmocka_unit_test(test_stopped_holder),
        cmocka_unit_test(test_slow_holder),
        cmocka_unit_test(test_signals),
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
