/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device's streams and events: asynchronous, in order, and with CUDA's semantics.
 */
#include "pretend/pretend.h"

#include "base/status.h"
#include "base/time.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 1000

static const tutti__device_ops_t *ops;
static tutti__dstream_t *a, *b;
static tutti__devent_t *event, *other;
static char *pinned, *memory;

static int begin(void **state)
{
    void *ptrs[2];

    (void)state;
    ops = pretend_device();
    if (ops->use(0) != TUTTI_OK || ops->stream_make(0, &a) != TUTTI_OK ||
        ops->stream_make(1, &b) != TUTTI_OK || ops->event_make(&event) != TUTTI_OK ||
        ops->event_make(&other) != TUTTI_OK || ops->host_alloc(BYTES, &ptrs[0]) != TUTTI_OK ||
        ops->alloc(2 * BYTES, &ptrs[1]) != TUTTI_OK)
        return 1;
    pinned = memset(ptrs[0], 0, BYTES);
    memory = ptrs[1];
    return 0;
}

static int end(void **state)
{
    (void)state;
    ops->stream_drop(a);
    ops->stream_drop(b);
    ops->event_drop(event);
    ops->event_drop(other);
    ops->host_free(pinned);
    ops->free(memory);
    return pretend_reset();
}

static void finish(tutti__devent_t *which)
{
    tutti_status_t status;

    while ((status = ops->query(which)) == TUTTI__AGAIN)
        usleep(100);
    assert_int_equal(status, TUTTI_OK);
}

/* Queue work in a stream that is slow enough for the test to observe it. Stream b has separate
   memory. */
static void slow_copy(tutti__dstream_t *stream, int ms)
{
    pretend_rates(BYTES * 1000.0 / ms, 0);
    assert_int_equal(ops->copy(memory + (stream == b ? BYTES : 0), pinned, BYTES, stream),
                     TUTTI_OK);
}

static void test_work_is_done_later(void **state)
{
    uint64_t begin_ns = tutti__now_ns();

    (void)state;
    slow_copy(a, 300);
    assert_int_equal(ops->record(event, a), TUTTI_OK);
    assert_int_equal(ops->query(event), TUTTI__AGAIN);
    finish(event);
    assert_true(tutti__now_ns() - begin_ns >= 300000000);
}

/* Many copies to the same place: the data of the last one remain. */
static void test_in_order(void **state)
{
    char got;

    (void)state;
    for (int i = 0; i < BYTES; i++)
        pinned[i] = (char)i;
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(ops->copy(memory, pinned + i, 1, a), TUTTI_OK);
    assert_int_equal(ops->record(event, a), TUTTI_OK);
    finish(event);
    pretend_read(&got, memory, 1);
    assert_int_equal(got, (char)(BYTES - 1));
}

static void test_unrecorded_is_done(void **state)
{
    (void)state;
    assert_int_equal(ops->query(event), TUTTI_OK);
    assert_int_equal(ops->wait(a, event), TUTTI_OK);
    assert_int_equal(ops->record(other, a), TUTTI_OK);
    finish(other);
}

static void test_wait_orders_streams(void **state)
{
    (void)state;
    pinned[0] = 1;
    slow_copy(a, 300);
    assert_int_equal(ops->record(event, a), TUTTI_OK);
    assert_int_equal(ops->wait(b, event), TUTTI_OK);
    assert_int_equal(ops->copy(pinned + 1, memory, 1, b), TUTTI_OK);
    assert_int_equal(ops->record(other, b), TUTTI_OK);
    assert_int_equal(ops->query(other), TUTTI__AGAIN);
    finish(other);
    assert_int_equal(ops->query(event), TUTTI_OK);
    assert_int_equal(pinned[1], 1);
}

/* A second record, after slow work, does not change a wait that was queued before it. A later wait
   is for the new record. */
static void test_wait_is_for_the_record_before_it(void **state)
{
    (void)state;
    slow_copy(b, 200); /* so stream b reaches the wait after the second record */
    assert_int_equal(ops->record(event, a), TUTTI_OK);
    assert_int_equal(ops->wait(b, event), TUTTI_OK);
    for (int i = 0; i < 3; i++)
        slow_copy(a, 200);
    assert_int_equal(ops->record(event, a), TUTTI_OK);
    assert_int_equal(ops->record(other, b), TUTTI_OK);
    finish(other);
    assert_int_equal(ops->query(event), TUTTI__AGAIN);
    assert_int_equal(ops->wait(b, event), TUTTI_OK);
    assert_int_equal(ops->record(other, b), TUTTI_OK);
    finish(other);
    assert_int_equal(ops->query(event), TUTTI_OK);
}

static void test_delays(void **state)
{
    uint64_t begin_ns = tutti__now_ns();

    (void)state;
    pretend_delays(1, 20000);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ops->record(event, a), TUTTI_OK);
    finish(event);
    /* The copy takes 200 ms on average. */
    assert_true(tutti__now_ns() - begin_ns > 50000000);
}

static void test_legacy_stream(void **state)
{
    (void)state;
    pinned[0] = 7;
    assert_int_equal(ops->copy(memory, pinned, 1, NULL), TUTTI_OK);
    assert_int_equal(ops->copy(pinned + 1, memory, 1, NULL), TUTTI_OK);
    assert_int_equal(ops->record(event, NULL), TUTTI_OK);
    finish(event);
    assert_int_equal(pinned[1], 7);
}

static void test_captured(void **state)
{
    (void)state;
    assert_false(ops->stream_captures(a));
    assert_false(ops->stream_captures(NULL));
    pretend_capture(a, 1);
    assert_true(ops->stream_captures(a));
    assert_int_equal(ops->record(event, a), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->wait(a, event), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->copy(memory, pinned, 1, a), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "being captured"));
    pretend_capture(a, 0);
    assert_int_equal(ops->record(event, a), TUTTI_OK);
}

static void test_alloc_waits_for_the_device(void **state)
{
    void *ptr;

    (void)state;
    slow_copy(b, 50);
    assert_int_equal(ops->record(event, b), TUTTI_OK);
    assert_int_equal(ops->alloc(1, &ptr), TUTTI_OK);
    assert_int_equal(ops->query(event), TUTTI_OK);
    slow_copy(a, 50);
    assert_int_equal(ops->record(event, a), TUTTI_OK);
    ops->free(ptr);
    assert_int_equal(ops->query(event), TUTTI_OK);
    assert_int_equal(pretend_counts(0, PRETEND_SYNCS_IN_NCCL), 0);
}

static void test_streams_belong_to_a_device(void **state)
{
    tutti__dstream_t *foreign;

    (void)state;
    assert_int_equal(ops->use(1), TUTTI_OK);
    assert_int_equal(ops->record(event, a), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "the stream is device 0's, the thread uses 1"));
    assert_int_equal(ops->stream_make(0, &foreign), TUTTI_OK);
    assert_int_equal(ops->record(event, foreign), TUTTI_ERR_SYSTEM);
    ops->stream_drop(foreign);
}

static void *use_and_copy(void *arg)
{
    (void)arg;
    if (ops->use(0) != TUTTI_OK)
        return NULL;
    for (int i = 0; i < 200; i++)
        if (ops->copy(memory + i, pinned + i, 1, a) != TUTTI_OK)
            return NULL;
    return memory;
}

static void test_threads_share_a_stream(void **state)
{
    pthread_t threads[3];
    void *good;

    (void)state;
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, use_and_copy, NULL);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &good);
        assert_non_null(good);
    }
    assert_int_equal(pretend_counts(0, PRETEND_COPIES), 600);
}

#define on_device(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(test_work_is_done_later),
        on_device(test_in_order),
        on_device(test_unrecorded_is_done),
        on_device(test_wait_orders_streams),
        on_device(test_wait_is_for_the_record_before_it),
        on_device(test_delays),
        on_device(test_legacy_stream),
        on_device(test_captured),
        on_device(test_alloc_waits_for_the_device),
        on_device(test_streams_belong_to_a_device),
        on_device(test_threads_share_a_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
