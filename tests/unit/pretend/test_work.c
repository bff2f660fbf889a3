/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device's work: correct results in the device's view, and errors that name
 * wrong ranges.
 */
#include "pretend/pretend.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT 1000

static const tutti__device_ops_t *ops;
static tutti__dstream_t *stream;
static tutti__devent_t *event;
static float *x, *y; /* device memory, COUNT elements each */

static int begin(void **state)
{
    void *ptrs[2];

    (void)state;
    ops = pretend_device();
    if (ops->use(0) != TUTTI_OK || ops->stream_make(0, &stream) != TUTTI_OK ||
        ops->event_make(&event) != TUTTI_OK ||
        ops->alloc(COUNT * sizeof(float), &ptrs[0]) != TUTTI_OK ||
        ops->alloc(COUNT * sizeof(float), &ptrs[1]) != TUTTI_OK)
        return 1;
    x = ptrs[0];
    y = ptrs[1];
    return 0;
}

static int end(void **state)
{
    (void)state;
    ops->stream_drop(stream);
    ops->event_drop(event);
    ops->free(x);
    ops->free(y);
    return pretend_reset();
}

static tutti_status_t finish(void)
{
    tutti_status_t status = ops->record(event, stream);

    while (status == TUTTI_OK && (status = ops->query(event)) == TUTTI__AGAIN) {
        usleep(100);
        status = TUTTI_OK;
    }
    return status;
}

/* All queued work ends with an error that has `words` in it, and so does all later work. */
static void expect_broken(const char *words)
{
    void *ptr;

    /* record is refused if the work has already failed. */
    (void)ops->record(event, stream);
    while (ops->query(event) == TUTTI__AGAIN)
        usleep(100);
    assert_int_equal(ops->query(event), TUTTI_ERR_SYSTEM);
    if (strstr(tutti_last_error(), words) == NULL)
        fail_msg("%s, not %s", tutti_last_error(), words);
    assert_int_equal(ops->alloc(1, &ptr), TUTTI_ERR_SYSTEM);
    assert_int_equal(ops->copy(y, x, 1, stream), TUTTI_ERR_SYSTEM);
}

static void fill(float *device, float first)
{
    float values[COUNT];

    for (int i = 0; i < COUNT; i++)
        values[i] = first + (float)i;
    pretend_write(device, values, sizeof(values));
}

static void expect_values(const float *device, float first, float step)
{
    float values[COUNT];

    pretend_read(values, device, sizeof(values));
    for (int i = 0; i < COUNT; i++)
        if (values[i] != first + step * (float)i)
            fail_msg("element %d is %g", i, (double)values[i]);
}

static void test_copy(void **state)
{
    float plain[COUNT] = { 0 };

    (void)state;
    fill(x, 1);
    assert_int_equal(ops->copy(y, x, COUNT * sizeof(float), stream), TUTTI_OK);
    assert_int_equal(finish(), TUTTI_OK);
    expect_values(y, 1, 1);
    assert_int_equal(pretend_counts(0, PRETEND_BLOCKING_COPIES), 0);

    /* If host memory is not pinned, the copy is done when the call returns. */
    pretend_delays(1, 10000);
    assert_int_equal(ops->copy(plain, y, sizeof(plain), stream), TUTTI_OK);
    assert_true(plain[COUNT - 1] == COUNT);
    assert_int_equal(pretend_counts(0, PRETEND_BLOCKING_COPIES), 1);
    assert_int_equal(ops->copy(NULL, NULL, 0, stream), TUTTI_OK);
}

static void test_pack(void **state)
{
    tutti__piece_t pieces[2] = { { x, y, 3 }, { x + 10, (uint16_t *)(void *)y + 3, 2 } };
    tutti__piece_t whole = { y, x, 5 };
    uint16_t halves[5];
    float floats[5];

    (void)state;
    fill(x, 1);
    assert_int_equal(ops->pack(pieces, 2, TUTTI_FLOAT32, TUTTI_FLOAT16, 0.5, stream), TUTTI_OK);
    memset(pieces, 0, sizeof(pieces)); /* the caller may reuse them */
    assert_int_equal(ops->pack(&whole, 1, TUTTI_FLOAT16, TUTTI_FLOAT32, 1, stream), TUTTI_OK);
    assert_int_equal(finish(), TUTTI_OK);
    pretend_read(halves, y, sizeof(halves));
    assert_int_equal(halves[0], 0x3800); /* 0.5 */
    assert_int_equal(halves[3], 0x4580); /* 5.5 */
    pretend_read(floats, x, sizeof(floats));
    assert_true(floats[1] == 1 && floats[4] == 6);
}

static void test_pack_same_type(void **state)
{
    tutti__piece_t piece = { x, y, COUNT };

    (void)state;
    fill(x, 1);
    assert_int_equal(ops->pack(&piece, 1, TUTTI_FLOAT32, TUTTI_FLOAT32, 2, stream), TUTTI_OK);
    assert_int_equal(finish(), TUTTI_OK);
    expect_values(y, 2, 2);
    assert_int_equal(ops->pack(&piece, 1, TUTTI_INT32, TUTTI_INT32, 1, stream), TUTTI_OK);
    assert_int_equal(finish(), TUTTI_OK);
    expect_values(y, 1, 1);
    assert_int_equal(ops->pack(&piece, 1, TUTTI_INT32, TUTTI_INT32, 2, stream),
                     TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(ops->pack(&piece, 1, TUTTI_INT32, TUTTI_FLOAT32, 1, stream),
                     TUTTI_ERR_UNSUPPORTED);
}

static void test_sum(void **state)
{
    const void *srcs[TUTTI__DEVICE_SRCS + 1] = { x, y, x };

    (void)state;
    fill(x, 1);
    fill(y, 10);
    assert_int_equal(ops->sum(y, srcs, 3, COUNT, TUTTI_FLOAT32, 3, stream), TUTTI_OK);
    assert_int_equal(finish(), TUTTI_OK);
    expect_values(y, 4, 1);
    assert_int_equal(ops->sum(y, srcs, TUTTI__DEVICE_SRCS + 1, 1, TUTTI_FLOAT32, 0, stream),
                     TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(ops->sum(y, srcs, 1, 1, TUTTI_BOOL, 0, stream), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(ops->sum(y, srcs, 1, 1, TUTTI_FLOAT8_E4M3, 0, stream), TUTTI_ERR_UNSUPPORTED);
}

static void test_copy_leaves_its_allocation(void **state)
{
    (void)state;
    assert_int_equal(ops->copy((char *)y + 3990, x, 11, stream), TUTTI_OK);
    expect_broken("copy to: 11 bytes at offset 3990 leave allocation 1, of 4000 bytes on device 0");
}

static void test_copy_of_what_was_freed(void **state)
{
    void *gone;

    (void)state;
    assert_int_equal(ops->alloc(100, &gone), TUTTI_OK);
    ops->free(gone);
    /* Freed memory is not the device's, so the call returns when the copy is done. */
    assert_int_equal(ops->copy(x, gone, 10, stream), TUTTI_OK);
    expect_broken("copy from: 10 bytes at offset 0 of allocation 2, which was freed");
}

static void test_pack_leaves_its_allocation(void **state)
{
    tutti__piece_t piece = { x, y, COUNT };

    (void)state;
    assert_int_equal(ops->pack(&piece, 1, TUTTI_FLOAT32, TUTTI_FLOAT64, 1, stream), TUTTI_OK);
    expect_broken("pack to: 8000 bytes at offset 0 leave allocation 1");
}

static void test_sum_of_host_memory(void **state)
{
    float plain[1] = { 1 };
    const void *srcs[] = { x, plain };

    (void)state;
    assert_int_equal(ops->sum(y, srcs, 2, 1, TUTTI_FLOAT32, 0, stream), TUTTI_OK);
    expect_broken("which is no memory of the device");
}

static void test_sum_of_another_device(void **state)
{
    const void *srcs[1];
    void *far;

    (void)state;
    assert_int_equal(ops->use(1), TUTTI_OK);
    assert_int_equal(ops->alloc(100, &far), TUTTI_OK);
    assert_int_equal(ops->use(0), TUTTI_OK);
    srcs[0] = far;
    assert_int_equal(ops->copy(x, far, 4, stream), TUTTI_OK);
    assert_int_equal(finish(), TUTTI_OK);
    assert_int_equal(ops->sum(y, srcs, 1, 1, TUTTI_FLOAT32, 0, stream), TUTTI_OK);
    expect_broken("allocation 2 is device 1's, not device 0's");
    ops->free(far);
}

#define on_device(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(test_copy),
        on_device(test_pack),
        on_device(test_pack_same_type),
        on_device(test_sum),
        on_device(test_copy_leaves_its_allocation),
        on_device(test_copy_of_what_was_freed),
        on_device(test_pack_leaves_its_allocation),
        on_device(test_sum_of_host_memory),
        on_device(test_sum_of_another_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
