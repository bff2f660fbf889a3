/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bench programs' buffers and clock on a pretend device.
 */
#include "harness/device.h"

#include "base/status.h"
#include "pretend/pretend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const bench_type_t type = { "float32", "MPI_FLOAT", TUTTI_FLOAT32, 4, 1 << 24 };
static const bench_collective_t gather = { .send = BENCH_COUNT,
                                           .recv = BENCH_ALL_RANKS,
                                           .in_place = BENCH_OWN_PART };
static const bench_program_t program = { .name = "test", .collective = &gather };

static bench_device_t device;
static bench_t bench;

static void open_bench(int in_place, int rotate)
{
    device = (bench_device_t){ .ops = pretend_device(), .number = 3 };
    bench = (bench_t){
        .program = &program,
        .options = { .type = &type,
                     .max_bytes = 4096,
                     .memory_bytes = 1 << 20,
                     .naligns = 1,
                     .aligns = { { .bytes = 4096 } },
                     .in_place = in_place,
                     .rotate = rotate },
        .world = { .size = 4, .rank = 2, .device = &device },
    };
    bench_device_start(&bench.world, &device);
    bench_buffers_open(&bench);
}

static void close_bench(void)
{
    bench_buffers_close(&bench);
    bench_device_stop(&device);
    assert_int_equal(pretend_reset(), 0);
}

/* Data written to host memory are copied to device memory and back. */
static void check_pair(const bench_call_t *call)
{
    bench_call_t host = bench_host_call(&bench, call);
    size_t sent = call->count * type.bytes;
    size_t got = 4 * sent;
    char *seen = malloc(got);

    memset(host.recvbuf, 1, got);
    memset((void *)(uintptr_t)host.sendbuf, 2, sent);
    bench_push(&bench, call, &host);
    pretend_read(seen, call->sendbuf, sent);
    for (size_t i = 0; i < sent; i++)
        assert_int_equal(seen[i], 2);
    pretend_read(seen, call->recvbuf, got);
    assert_memory_equal(seen, host.recvbuf, got);
    assert_int_equal(seen[0], 1);

    memset(seen, 3, got);
    pretend_write(call->recvbuf, seen, got);
    bench_pull(&bench, call, &host);
    assert_memory_equal(seen, host.recvbuf, got);
    free(seen);
}

static void test_two_buffers(void **state)
{
    bench_call_t call;

    (void)state;
    open_bench(0, 0);
    bench_pairs(&bench, 4096);
    call = bench_next_call(&bench, 4096);
    assert_int_equal(device.ops->where(call.sendbuf).kind, TUTTI__MEM_DEVICE);
    assert_int_equal(device.ops->where(call.recvbuf).device, 3);
    assert_ptr_not_equal(call.sendbuf, call.recvbuf);
    check_pair(&call);
    close_bench();
}

static void test_own_part(void **state)
{
    bench_call_t call;
    bench_call_t host;

    (void)state;
    open_bench(1, 0);
    bench_pairs(&bench, 4096);
    call = bench_next_call(&bench, 4096);
    host = bench_host_call(&bench, &call);
    assert_ptr_equal(host.sendbuf, (char *)host.recvbuf + 2 * 4096);
    check_pair(&call);
    close_bench();
}

/* Each pair of the pool works, although all pairs share one mirror in host memory. */
static void test_pool(void **state)
{
    size_t pairs;

    (void)state;
    open_bench(0, 1);
    pairs = bench_pairs(&bench, 4000);
    assert_true(pairs > 2);
    for (size_t i = 0; i < pairs; i++) {
        bench_call_t call = bench_next_call(&bench, 4000);

        check_pair(&call);
    }
    close_bench();
}

static void test_describe(void **state)
{
    char text[64];

    (void)state;
    open_bench(0, 1);
    bench_buffers_describe(&bench, text, sizeof(text));
    assert_string_equal(text, "pretend and rotating, out of place");
    close_bench();
}

/* The device's time is measured, not the host's. */
static void test_clock(void **state)
{
    void *pinned;
    double us;

    (void)state;
    open_bench(0, 0);
    assert_int_equal(device.ops->host_alloc(4096, &pinned), TUTTI_OK);
    pretend_rates(4096 / 0.05, 0);
    bench_device_clock(&bench.world);
    assert_int_equal(device.ops->copy(pinned, bench.buffers.memory[1], 4096, device.stream),
                     TUTTI_OK);
    us = bench_device_us(&bench.world);
    assert_true(us >= 50000);
    usleep(50000);
    assert_int_equal(device.ops->elapsed(device.start, device.stop, &us), TUTTI_OK);
    assert_true(us >= 50000 && us < 10e6);
    /* From stop to start, the time is negative. */
    assert_int_equal(device.ops->elapsed(device.stop, device.start, &us), TUTTI_OK);
    assert_true(us <= -50000);
    device.ops->host_free(pinned);
    close_bench();
}

static void test_timers(void **state)
{
    const tutti__device_ops_t *ops = pretend_device();
    void *pinned;
    double us = 7;

    (void)state;
    open_bench(0, 0);
    assert_int_equal(ops->host_alloc(4096, &pinned), TUTTI_OK);
    assert_int_equal(ops->elapsed(device.start, device.stop, &us), TUTTI_ERR_SYSTEM);
    pretend_rates(4096 / 0.2, 0);
    bench_device_clock(&bench.world);
    assert_int_equal(ops->copy(pinned, bench.buffers.memory[1], 4096, device.stream), TUTTI_OK);
    assert_int_equal(ops->record(device.stop, device.stream), TUTTI_OK);
    assert_int_equal(ops->elapsed(device.start, device.stop, &us), TUTTI__AGAIN);
    bench_device_wait(&bench.world);
    assert_int_equal(ops->elapsed(device.start, device.done, &us), TUTTI_ERR_SYSTEM);
    assert_true(us == 7);
    device.ops->host_free(pinned);
    close_bench();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_buffers), cmocka_unit_test(test_own_part),
        cmocka_unit_test(test_pool),        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_clock),       cmocka_unit_test(test_timers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
