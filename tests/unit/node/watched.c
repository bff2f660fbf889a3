/* SPDX-License-Identifier: BSD-3-Clause */
/* The pretend device, watched. See watched.h. */
#include "unit/node/watched.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#define DELAY_US 40

static tutti__device_ops_t ops;
static uint32_t nranks;
static int is_on; /* between begin and end */
static atomic_int makes_left, aborts[PRETEND_DEVICES], calls_of[TUTTI__NCCL_RECV + 1];
/* By device. 1: the next call will fail; 2: this call has failed. */
static atomic_int failing[PRETEND_DEVICES];
static _Thread_local int device;

static tutti_status_t use(int which)
{
    device = which;
    return pretend_device()->use(which);
}

/* ---- what is made ---- */

static tutti_status_t make(void)
{
    if (atomic_fetch_sub(&makes_left, 1) == 1)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "the device is full");
    return TUTTI_OK;
}

static tutti_status_t alloc(size_t bytes, void **ret_ptr)
{
    tutti_status_t status = make();

    return status == TUTTI_OK ? pretend_device()->alloc(bytes, ret_ptr) : status;
}

static tutti_status_t stream_make(int is_urgent, tutti__dstream_t **ret_stream)
{
    tutti_status_t status = make();

    return status == TUTTI_OK ? pretend_device()->stream_make(is_urgent, ret_stream) : status;
}

static tutti_status_t event_make(tutti__devent_t **ret_event)
{
    tutti_status_t status = make();

    return status == TUTTI_OK ? pretend_device()->event_make(ret_event) : status;
}

static tutti_status_t nccl_open(const tutti__nccl_id_t *id, uint32_t rank, uint32_t size,
                                int is_blocking, tutti__nccl_t **ret_nccl)
{
    tutti_status_t status = make();

    return status == TUTTI_OK ? pretend_device()->nccl_open(id, rank, size, is_blocking, ret_nccl)
                              : status;
}

/* ---- NCCL's calls ---- */

typedef struct {
    uintptr_t at;
    size_t bytes;
} range_t;

static size_t bytes_of(const tutti__nccl_call_t *c)
{
    return c->count * tutti_dtype_bytes(c->dtype);
}

/* The range that a call reads. It is empty if the call reads nothing, or only on other ranks. */
static range_t reads(const tutti__nccl_call_t *c)
{
    int is_none = c->src == NULL || c->kind == TUTTI__NCCL_RECV;
    size_t parts = c->kind == TUTTI__NCCL_REDUCE_SCATTER ? nranks : 1;

    return (range_t){ (uintptr_t)c->src, is_none ? 0 : bytes_of(c) * parts };
}

static range_t writes(const tutti__nccl_call_t *c)
{
    int is_none = c->dst == NULL || c->kind == TUTTI__NCCL_SEND;
    size_t parts = c->kind == TUTTI__NCCL_ALLGATHER ? nranks : 1;

    return (range_t){ (uintptr_t)c->dst, is_none ? 0 : bytes_of(c) * parts };
}

static int overlap(range_t a, range_t b)
{
    return a.at < b.at + b.bytes && b.at < a.at + a.bytes && a.bytes > 0 && b.bytes > 0;
}

static int is_in_place(const tutti__nccl_call_t *c)
{
    uintptr_t src = (uintptr_t)c->src, dst = (uintptr_t)c->dst;
    size_t mine = (size_t)device * bytes_of(c);

    if (c->kind == TUTTI__NCCL_REDUCE_SCATTER)
        return dst == src + mine;
    return src == dst + (c->kind == TUTTI__NCCL_ALLGATHER ? mine : 0);
}

/* In a group of calls no call reads or writes what another one writes. */
static tutti_status_t check(const tutti__nccl_call_t *calls, size_t ncalls)
{
    for (size_t i = 0; i < ncalls; i++) {
        if (calls[i].count == 0)
            return tutti__fail(TUTTI_ERR_TRANSPORT, "call %zu of a group is empty", i);
        for (size_t j = 0; j < ncalls; j++) {
            int reads_it = overlap(reads(&calls[i]), writes(&calls[j]));
            int writes_it = i != j && overlap(writes(&calls[i]), writes(&calls[j]));

            if (writes_it || (reads_it && (i != j || !is_in_place(&calls[i]))))
                return tutti__fail(TUTTI_ERR_TRANSPORT, "calls %zu and %zu of a group overlap", i,
                                   j);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t nccl_call(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls,
                                tutti__dstream_t *stream)
{
    tutti_status_t status = check(calls, ncalls);
    int next = 1;

    for (size_t i = 0; i < ncalls; i++)
        atomic_fetch_add(&calls_of[calls[i].kind], 1);
    atomic_compare_exchange_strong(&failing[device], &next, 2);
    return status == TUTTI_OK ? pretend_device()->nccl_call(nccl, calls, ncalls, stream) : status;
}

static tutti_status_t nccl_poll(tutti__nccl_t *nccl)
{
    if (atomic_load(&failing[device]) == 2)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "NCCL has failed on rank %d", device);
    return pretend_device()->nccl_poll(nccl);
}

static void nccl_abort(tutti__nccl_t *nccl)
{
    /* The first abort frees the communicator. watched_end checks the count. */
    if (atomic_fetch_add(&aborts[device], 1) == 0)
        pretend_device()->nccl_abort(nccl);
}

/* ---- for the test ---- */

const tutti__device_ops_t *watched_device(void)
{
    return &ops;
}

void watched_begin(uint32_t n, uint32_t seed)
{
    /* Threads of a failed test may still be running. */
    assert_false(is_on);
    is_on = 1;
    nranks = n;
    atomic_store(&makes_left, 0);
    for (int i = 0; i < PRETEND_DEVICES; i++) {
        atomic_store(&aborts[i], 0);
        atomic_store(&failing[i], 0);
    }
    for (int i = 0; i <= TUTTI__NCCL_RECV; i++)
        atomic_store(&calls_of[i], 0);
    ops = *pretend_device();
    ops.use = use;
    ops.alloc = alloc;
    ops.stream_make = stream_make;
    ops.event_make = event_make;
    ops.nccl_open = nccl_open;
    ops.nccl_call = nccl_call;
    ops.nccl_poll = nccl_poll;
    ops.nccl_abort = nccl_abort;
    assert_int_equal(pretend_prepare((int)n), 0);
    pretend_delays(seed, DELAY_US);
}

void watched_end(void)
{
    for (int i = 0; i < (int)nranks; i++) {
        assert_int_equal(pretend_counts(i, PRETEND_FORBIDDEN), 0);
        assert_int_equal(pretend_counts(i, PRETEND_SYNCS_IN_NCCL), 0);
        assert_int_equal(pretend_counts(i, PRETEND_CLOSED_BUSY), 0);
        assert_true(atomic_load(&aborts[i]) <= 1);
    }
    assert_int_equal(pretend_reset(), 0);
    is_on = 0;
}

void watched_fail_call(uint32_t rank)
{
    atomic_store(&failing[rank], 1);
}

void watched_fail_make(int n)
{
    atomic_store(&makes_left, n);
}

int watched_aborts(uint32_t rank)
{
    return atomic_load(&aborts[rank]);
}

int watched_calls(tutti__nccl_kind_t kind)
{
    return atomic_load(&calls_of[kind]);
}
