/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker on small schedules: blocks of SCRATCH, of STAGE and of several streams are read or
 * written at the wrong time. Also tests arguments of the checker that do not fit together.
 */
#include "unit/sched/small.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- SCRATCH ---- */

static void put_through_scratch(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_copy(b, in, scratch_1, 1);
    tutti__build_send(b, 1 - rank, scratch_1, 1);
    tutti__build_recv(b, 1 - rank, 0, scratch, 1);
    tutti__build_finish(b);
    tutti__build_reduce(b, scratch_1, scratch, 1);
    tutti__build_copy(b, scratch, out, 1);
    tutti__build_end_loop(b);
}

/* Uses SCRATCH one trip later, when the next chunk is in it. */
static void put_stale_scratch(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_recv(b, 1 - rank, 0, scratch, 1);
    tutti__build_shift(b, 1);
    tutti__build_copy(b, in, out, 1);
    tutti__build_shift(b, 1);
    tutti__build_finish(b);
    tutti__build_reduce(b, scratch, out, 1);
    tutti__build_end_loop(b);
}

static void test_scratch(void **state)
{
    static const small_t through = { TUTTI__EXPECT_ALLREDUCE, 2, put_through_scratch };
    static const small_t stale = { TUTTI__EXPECT_ALLREDUCE, 2, put_stale_scratch };

    (void)state;
    good(&through, 1, 3);
    good(&stale, 1, 1);
    bad(&stale, 1, 2, "reads SCRATCH[0] for chunk 0, but it holds chunk 1");
}

/* ---- STAGE ---- */

static void put_staged(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_copy(b, in, stage, 1);
    tutti__build_send(b, 1 - rank, stage, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, stage, stage, 1);
    tutti__build_copy(b, stage, out, 1);
    tutti__build_end_loop(b);
}

/* Correct only if STAGE is OUT. */
static void put_no_copy_back(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, stage, 1);
    tutti__build_end_loop(b);
}

/* Correct only if STAGE is separate memory. */
static void put_stage_as_rubbish(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, out, 1);
    tutti__build_copy(b, in, stage, 1);
    tutti__build_end_loop(b);
}

static void test_stage(void **state)
{
    static const small_t staged = { TUTTI__EXPECT_ALLREDUCE, 2, put_staged };
    static const small_t no_copy = { TUTTI__EXPECT_ALLREDUCE, 2, put_no_copy_back };
    static const small_t rubbish = { TUTTI__EXPECT_ALLREDUCE, 2, put_stage_as_rubbish };

    (void)state;
    good(&staged, 1, 3);
    bad(&no_copy, 1, 3, "has nothing");
    bad(&rubbish, 1, 3, "not each contribution exactly once");
}

/* ---- streams ---- */

/* Stream 1 sends what stream 0 has received. With `waits`, stream 1 waits for stream 0's mark. With
   `early`, this mark is made too early. */
static void put_relay(tutti__build_t *b, uint32_t rank, int waits, int early)
{
    if (rank == 0) {
        tutti__build_loop(b);
        tutti__build_send(b, 1, out, 1);
        tutti__build_end_loop(b);
        return;
    }
    tutti__build_loop(b);
    if (rank == 1) {
        if (early) {
            tutti__build_mark(b);
            tutti__build_copy(b, scratch, scratch, 1);
        }
        tutti__build_recv(b, 0, 0, out, 1);
        if (!early)
            tutti__build_mark_last(b);
        tutti__build_end_loop(b);
        tutti__build_stream(b, 1);
        tutti__build_loop(b);
        if (waits)
            tutti__build_wait(b, 0, 1);
        tutti__build_send(b, 2, out, 1);
    } else {
        tutti__build_recv(b, 1, 1, out, 1);
    }
    tutti__build_end_loop(b);
}

static void put_relay_right(tutti__build_t *b, uint32_t rank)
{
    put_relay(b, rank, 1, 0);
}

static void put_relay_no_wait(tutti__build_t *b, uint32_t rank)
{
    put_relay(b, rank, 0, 0);
}

/* Stream 1 continues when stream 0's message comes back from rank 1. An empty message is not
   sent. */
static void put_order_by_message(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank == 0) {
        tutti__build_copy(b, out, out, 1);
        tutti__build_send(b, 1, out, 1);
        tutti__build_end_loop(b);
        tutti__build_stream(b, 1);
        tutti__build_loop(b);
        tutti__build_recv(b, 1, 0, scratch, 1);
        tutti__build_copy(b, scratch, out, 1);
    } else {
        tutti__build_recv(b, 0, 0, out, 1);
        tutti__build_send(b, 0, out, 1);
    }
    tutti__build_end_loop(b);
}

/* Two streams receive from one channel. */
static void put_two_consumers(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank == 0) {
        tutti__build_send(b, 1, out, 1);
        tutti__build_send(b, 1, out, 1);
    } else {
        tutti__build_recv(b, 0, 0, out, 1);
        tutti__build_end_loop(b);
        tutti__build_stream(b, 1);
        tutti__build_loop(b);
        tutti__build_recv(b, 0, 0, scratch, 1);
    }
    tutti__build_end_loop(b);
}

static void test_streams(void **state)
{
    static const small_t right = { TUTTI__EXPECT_BROADCAST, 3, put_relay_right };
    static const small_t no_wait = { TUTTI__EXPECT_BROADCAST, 3, put_relay_no_wait };
    static const small_t by_message = { TUTTI__EXPECT_BROADCAST, 2, put_order_by_message };
    static const small_t consumers = { TUTTI__EXPECT_BROADCAST, 2, put_two_consumers };

    (void)state;
    good(&right, 1, 5);
    good(&right, 2, 5);
    bad(&no_wait, 1, 1, "reads OUT[0] of chunk 0, which stream 0 writes: no WAIT orders the two");
    bad(&by_message, 1, 1, "writes OUT[0] of chunk 0, which stream 0");
    bad(&consumers, 2, 1, "rank 1 receives from rank 0 in streams 0 and 1");
}

/* Stream 1 writes a block that stream 0 only reads, without an order. */
static void put_write_behind_read(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank == 0) {
        tutti__build_send(b, 1, out, 1);
        tutti__build_end_loop(b);
        tutti__build_stream(b, 1);
        tutti__build_loop(b);
        tutti__build_copy(b, out, out, 1);
    } else {
        tutti__build_recv(b, 0, 0, out, 1);
    }
    tutti__build_end_loop(b);
}

static void test_write_behind_read(void **state)
{
    static const small_t small = { TUTTI__EXPECT_BROADCAST, 2, put_write_behind_read };

    (void)state;
    bad(&small, 1, 1, "no WAIT orders the two");
}

/* ---- arguments of the checker ---- */

/* Values that must be equal in all ranks' schedules. */
static void test_heads(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 2, put_through_scratch };
    tutti__sched_t *scheds[MOST_RANKS], *other;

    (void)state;
    small_build(&small, scheds);
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_OK);

    scheds[1]->max_nblk = 2;
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    scheds[1]->max_nblk = 1;
    scheds[1]->nblocks = 2;
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    scheds[1]->nblocks = 1;
    other = scheds[0];
    scheds[0] = scheds[1];
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    scheds[0] = other;
    assert_int_equal(small_check(&small, scheds, 1, 0), TUTTI_ERR_INTERNAL);
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_OK);

    small_free(&small, scheds);
}

/* put_through_scratch copies between SCRATCH on one side and IN and OUT on the other, so IN and OUT
   must be host memory. */
static void test_memory(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 2, put_through_scratch };
    tutti__sched_t *scheds[MOST_RANKS];

    (void)state;
    small_build(&small, scheds);
    scheds[1]->on_device = 1;
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    assert_string_equal(why, "rank 1 has a schedule for device memory, but rank 0 has one for host "
                             "memory");
    scheds[0]->on_device = 1;
    assert_int_equal(small_check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    assert_string_equal(why,
                        "rank 0 has a schedule for device memory, but operations for host memory");
    small_free(&small, scheds);
}

/* The placement must be valid. */
static void test_hosts(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 2, put_through_scratch };
    static const uint32_t none[] = { 0, 1 }, same[] = { 0, 0 };
    tutti__sched_t *scheds[MOST_RANKS];
    tutti__check_t all = { .expect = TUTTI__EXPECT_ALLREDUCE,
                           .size = 2,
                           .scheds = scheds,
                           .nhosts = 1,
                           .credits = 1,
                           .trips = 1 };

    (void)state;
    small_build(&small, scheds);
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_OK);
    all.host_of = none; /* host 1 of 1 */
    all.local_of = same;
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    all.host_of = same; /* two local ranks 0 */
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    assert_int_equal(tutti__sched_check(&all, why, 0), TUTTI_ERR_INTERNAL);
    small_free(&small, scheds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scratch), cmocka_unit_test(test_stage),
        cmocka_unit_test(test_streams), cmocka_unit_test(test_write_behind_read),
        cmocka_unit_test(test_heads),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
