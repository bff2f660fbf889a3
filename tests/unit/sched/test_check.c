/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker on small schedules written for it: bugs that involve more than one operation, and
 * correct schedules that look like bugs.
 */
#include "base/status.h"
#include "sched/build.h"
#include "sched/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 4

static const tutti__at_t in = { TUTTI__IN, 0 };
static const tutti__at_t out = { TUTTI__OUT, 0 };
static const tutti__at_t stage = { TUTTI__STAGE, 0 };
static const tutti__at_t scratch = { TUTTI__SCRATCH, 0 };
static const tutti__at_t scratch_1 = { TUTTI__SCRATCH, 1 };

/* All ranks' schedules: blocks 1, SCRATCH of 2, one host. put() writes one rank's. */
typedef struct {
    tutti__expect_t expect;
    uint32_t size;
    void (*put)(tutti__build_t *b, uint32_t rank);
} small_t;

static char why[1200];

static void build(const small_t *small, tutti__sched_t **scheds)
{
    for (uint32_t r = 0; r < small->size; r++) {
        uint32_t nblocks = small->expect == TUTTI__EXPECT_BARRIER ? 2 : 1;
        tutti__build_t *b = tutti__build_begin("small", r, small->size, nblocks, 2, 1);

        small->put(b, r);
        if (tutti__build_end(b, &scheds[r]) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
    }
}

static tutti_status_t check(const small_t *small, tutti__sched_t **scheds, uint32_t credits,
                            uint32_t trips)
{
    static const uint32_t host_of[MOST_RANKS] = { 0 }, local_of[MOST_RANKS] = { 0, 1, 2, 3 };
    tutti__check_t all = {
        .expect = small->expect,
        .size = small->size,
        .scheds = scheds,
        .host_of = host_of,
        .local_of = local_of,
        .nhosts = 1,
        .credits = credits,
        .trips = trips,
    };

    return tutti__sched_check(&all, why, sizeof(why));
}

static tutti_status_t try(const small_t *small, uint32_t credits, uint32_t trips)
{
    tutti__sched_t *scheds[MOST_RANKS];
    tutti_status_t status;

    build(small, scheds);
    status = check(small, scheds, credits, trips);
    for (uint32_t r = 0; r < small->size; r++)
        tutti__sched_free(scheds[r]);
    return status;
}

static void good(const small_t *small, uint32_t credits, uint32_t trips)
{
    if (try(small, credits, trips) != TUTTI_OK)
        fail_msg("%s", why);
}

/* The checker reports an error with `text` in it. */
static void bad(const small_t *small, uint32_t credits, uint32_t trips, const char *text)
{
    assert_int_equal(try(small, credits, trips), TUTTI_ERR_INTERNAL);
    if (strstr(why, text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, why);
    assert_non_null(strstr(tutti_last_error(), why));
}

/* ---- deadlocks and credits ---- */

static void put_receive_first(tutti__build_t *b, uint32_t rank)
{
    uint32_t next = (rank + 1) % 3, before = (rank + 2) % 3;

    tutti__build_loop(b);
    tutti__build_recv(b, before, 0, scratch, 1);
    tutti__build_send(b, next, in, 1);
    tutti__build_end_loop(b);
}

static void test_deadlock_names_the_ring(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 3, put_receive_first };

    (void)state;
    bad(&small, 4, 1,
        "deadlock: rank 0 stream 0 at operation 1 (RECV from rank 2: SCRATCH[0]), trip 0 waits for "
        "rank 2 stream 0 at operation 1 (RECV from rank 1: SCRATCH[0]), trip 0 waits for "
        "rank 1 stream 0 at operation 1 (RECV from rank 0: SCRATCH[0]), trip 0 waits for the "
        "first");
}

/* Both send two messages before they receive: that takes two slots. */
static void put_two_at_once(tutti__build_t *b, uint32_t rank)
{
    uint32_t peer = 1 - rank;

    tutti__build_loop(b);
    tutti__build_send(b, peer, in, 1);
    tutti__build_send(b, peer, in, 1);
    tutti__build_recv(b, peer, 0, scratch, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, peer, 0, in, out, 1);
    tutti__build_end_loop(b);
}

static void test_too_few_credits(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 2, put_two_at_once };

    (void)state;
    bad(&small, 1, 1, "deadlock: rank 0 stream 0 at operation 2 (SEND IN[0] to rank 1)");
    good(&small, 2, 1);
    good(&small, 2, 5);
}

/* ---- without credits ---- */

/* Both send the block in which they receive. */
static void put_exchange(tutti__build_t *b, uint32_t rank)
{
    tutti__build_copy(b, in, out, 1);
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, out, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, out, out, 1);
    tutti__build_end_loop(b);
}

/* A message's block is overwritten before the receive. */
static void put_overwrite(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_copy(b, in, scratch, 1);
    tutti__build_send(b, 1 - rank, scratch, 1);
    tutti__build_copy(b, in, scratch, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, scratch, out, 1);
    tutti__build_end_loop(b);
}

/* The same by the next trip. */
static void put_overwrite_later(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_copy(b, in, scratch, 1);
    tutti__build_shift(b, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, out, 1);
    tutti__build_shift(b, 0);
    tutti__build_send(b, 1 - rank, scratch, 1);
    tutti__build_end_loop(b);
}

/* The same by another stream; the receive does not wait for that. */
static void put_streams(tutti__build_t *b, uint32_t rank, int waits)
{
    tutti__build_loop(b);
    tutti__build_copy(b, in, scratch, 1);
    tutti__build_mark(b);
    tutti__build_send(b, 1 - rank, scratch, 1);
    if (waits)
        tutti__build_wait(b, 1, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, out, 1);
    if (!waits)
        tutti__build_wait(b, 1, 1);
    tutti__build_end_loop(b);
    tutti__build_stream(b, 1);
    tutti__build_loop(b);
    tutti__build_wait(b, 0, 1);
    tutti__build_mark(b);
    tutti__build_copy(b, in, scratch, 1);
    tutti__build_end_loop(b);
}

static void put_other_stream(tutti__build_t *b, uint32_t rank)
{
    put_streams(b, rank, 0);
}

static void put_awaited_stream(tutti__build_t *b, uint32_t rank)
{
    put_streams(b, rank, 1);
}

/* The host's ranks overwrite it together. */
static void put_node_over_message(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_copy(b, in, scratch, 1);
    tutti__build_send(b, 1 - rank, scratch, 1);
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, in, scratch, 1, 1, 0);
    tutti__build_recv(b, 1 - rank, 0, scratch_1, 1);
    tutti__build_copy(b, scratch, out, 1);
    tutti__build_end_loop(b);
}

/* A message that is taken leaves its channel, though its receiver still waits. */
static void put_second_message(tutti__build_t *b, uint32_t rank)
{
    tutti__build_copy(b, in, out, 1);
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, out, 1);
    if (rank == 0) {
        tutti__build_send(b, 1, in, 1);
        tutti__build_finish(b);
        tutti__build_recv_reduce(b, 1, 0, out, out, 1);
    } else {
        tutti__build_finish(b);
        tutti__build_recv_reduce(b, 0, 0, out, out, 1);
        tutti__build_recv(b, 0, 0, scratch, 1);
    }
    tutti__build_end_loop(b);
}

static void test_zero_credits(void **state)
{
    static const small_t exchange = { TUTTI__EXPECT_ALLREDUCE, 2, put_exchange };
    static const small_t overwrite = { TUTTI__EXPECT_ALLREDUCE, 2, put_overwrite };
    static const small_t later = { TUTTI__EXPECT_ALLREDUCE, 2, put_overwrite_later };
    static const small_t other_stream = { TUTTI__EXPECT_ALLREDUCE, 2, put_other_stream };
    static const small_t awaited = { TUTTI__EXPECT_ALLREDUCE, 2, put_awaited_stream };
    static const small_t node = { TUTTI__EXPECT_ALLREDUCE, 2, put_node_over_message };
    static const small_t second = { TUTTI__EXPECT_ALLREDUCE, 2, put_second_message };
    static const small_t *const all[] = { &exchange, &overwrite, &later, &other_stream,
                                          &awaited,  &node,      &second };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        good(all[i], 1, 3);
    good(&exchange, 0, 3);
    good(&later, 0, 1);
    good(&other_stream, 0, 3);
    good(&second, 0, 3);
    bad(&overwrite, 0, 1,
        "deadlock: rank 0 stream 0 at operation 3 (COPY IN[0] -> SCRATCH[0]), trip 0 waits for "
        "rank "
        "1 stream 0 at operation 3 (COPY IN[0] -> SCRATCH[0]), trip 0 waits for the first");
    bad(&later, 0, 2,
        "deadlock: rank 0 stream 0 at operation 1 (COPY IN[0] -> SCRATCH[0]), trip 1 waits for "
        "rank "
        "1 stream 0 at operation 1 (COPY IN[0] -> SCRATCH[0]), trip 1 waits for the first");
    bad(&awaited, 0, 1,
        "stream 1 at operation 8 (COPY IN[0] -> SCRATCH[0], mark), trip 0 waits for rank 1");
    bad(&node, 0, 1,
        "deadlock: rank 0 stream 0 at operation 3 (NODE_ALLREDUCE IN[0] -> SCRATCH[0]");
}

/* ---- results ---- */

/* Each rank adds the others' data in ascending order: rank 2 gets (2 + 0) + 1. */
static void put_own_order(tutti__build_t *b, uint32_t rank)
{
    uint32_t first = rank == 0, second = rank == 2 ? 1 : 2;

    tutti__build_loop(b);
    tutti__build_send(b, first, in, 1);
    tutti__build_send(b, second, in, 1);
    tutti__build_recv_reduce(b, first, 0, in, out, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, second, 0, out, out, 1);
    tutti__build_end_loop(b);
}

static void test_association(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 3, put_own_order };

    (void)state;
    bad(&small, 1, 3, "OUT[0] of rank 2, chunk 0, has another association than on rank 0");
}

/* Each rank divides what it sends, so the sum was divided twice. */
static void put_finish_early(tutti__build_t *b, uint32_t rank)
{
    tutti__build_finish(b);
    tutti__build_copy(b, in, out, 1);
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, out, 1);
    tutti__build_recv_reduce(b, 1 - rank, 0, out, out, 1);
    tutti__build_end_loop(b);
}

static void put_finish_twice(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, out, 1);
    tutti__build_finish(b);
    tutti__build_copy(b, out, out, 1);
    tutti__build_end_loop(b);
}

static void test_finish(void **state)
{
    static const small_t early = { TUTTI__EXPECT_ALLREDUCE, 2, put_finish_early };
    static const small_t twice = { TUTTI__EXPECT_ALLREDUCE, 2, put_finish_twice };

    (void)state;
    bad(&early, 1, 1, "reduces what is finished already");
    bad(&twice, 1, 1, "finishes what is finished already");
}

/* ---- FINISH on a copy ---- */

static void put_sum(tutti__build_t *b, uint32_t rank, tutti__at_t to)
{
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, to, 1);
}

/* Rank 1 divides a stored sum, rank 0 while it adds. */
static void put_late_on_one(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    if (rank == 0)
        tutti__build_finish(b);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, scratch, 1);
    if (rank == 1)
        tutti__build_finish(b);
    tutti__build_copy(b, scratch, out, 1);
    tutti__build_end_loop(b);
}

/* All ranks get the same bits, but these are rounded twice. */
static void put_late_on_all(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    put_sum(b, rank, out);
    tutti__build_end_loop(b);
    tutti__build_finish(b);
    tutti__build_copy(b, out, out, 1);
}

/* The sum comes from another rank, by a message. */
static void put_late_elsewhere(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank == 0) {
        tutti__build_recv_reduce(b, 1, 0, in, scratch, 1);
        tutti__build_send(b, 1, scratch, 1);
    } else {
        tutti__build_send(b, 0, in, 1);
        tutti__build_recv(b, 0, 0, scratch, 1);
    }
    tutti__build_finish(b);
    tutti__build_copy(b, scratch, out, 1);
    tutti__build_end_loop(b);
}

/* Reduced over a host: with one rank, nothing is added. */
static void put_late_on_node(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    put_sum(b, rank, scratch);
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, scratch, out, 1, 1, 0);
    tutti__build_end_loop(b);
}

static void put_alone(tutti__build_t *b, uint32_t rank)
{
    (void)rank;
    tutti__build_finish(b);
    tutti__build_copy(b, in, out, 1);
}

static void put_node_alone(tutti__build_t *b, uint32_t rank)
{
    (void)rank;
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, in, out, 1, 1, 0);
}

/* Rank 0 has one contribution only, rank 1 a sum that is passed on. */
static void put_scan(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank > 0) {
        tutti__build_left(b);
        tutti__build_recv_reduce(b, rank - 1, 0, in, scratch, 1);
    }
    if (rank < 2)
        tutti__build_send(b, rank + 1, rank > 0 ? scratch : in, 1);
    tutti__build_finish(b);
    tutti__build_copy(b, rank > 0 ? scratch : in, out, 1);
    tutti__build_end_loop(b);
}

static void test_finish_on_copy(void **state)
{
    static const char text[] = "finishes a copy of a sum, which is rounded already";
    static const small_t on_one = { TUTTI__EXPECT_ALLREDUCE, 2, put_late_on_one };
    static const small_t on_all = { TUTTI__EXPECT_ALLREDUCE, 2, put_late_on_all };
    static const small_t elsewhere = { TUTTI__EXPECT_ALLREDUCE, 2, put_late_elsewhere };
    static const small_t alone = { TUTTI__EXPECT_ALLREDUCE, 1, put_alone };
    static const small_t node_alone = { TUTTI__EXPECT_ALLREDUCE, 1, put_node_alone };
    static const small_t scan = { TUTTI__EXPECT_SCAN, 3, put_scan };

    (void)state;
    bad(&on_one, 1, 1,
        "rank 1 stream 0 operation 3 (COPY SCRATCH[0] -> OUT[0], finish), chunk 0: finishes a "
        "copy of a sum, which is rounded already: FINISH belongs on the last addition");
    bad(&on_all, 1, 3, text);
    bad(&elsewhere, 1, 3, text);
    good(&alone, 1, 3);
    good(&node_alone, 1, 3);
    good(&scan, 1, 3);
}

static void test_finish_on_lonely_host(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 2, put_late_on_node };
    static const uint32_t host_of[] = { 0, 1 }, local_of[] = { 0, 0 };
    tutti__sched_t *scheds[MOST_RANKS];
    tutti__check_t all = { .expect = TUTTI__EXPECT_ALLREDUCE,
                           .size = 2,
                           .scheds = scheds,
                           .host_of = host_of,
                           .local_of = local_of,
                           .nhosts = 2,
                           .credits = 1,
                           .trips = 1 };

    (void)state;
    build(&small, scheds);
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(why, "(NODE_ALLREDUCE SCRATCH[0] -> OUT[0], finish), chunk 0: finishes "
                                "a copy of a sum"));
    for (uint32_t r = 0; r < small.size; r++)
        tutti__sched_free(scheds[r]);
}

/* Adds its own contribution once more. */
static void put_counts_twice(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, out, 1);
    tutti__build_finish(b);
    tutti__build_reduce(b, in, out, 1);
    tutti__build_end_loop(b);
}

/* A fused pass over three ranks is not two passes. */
static void put_fused_and_not(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, in, out, 1, 1, 0);
    if (rank == 0) {
        tutti__build_recv(b, 1, 0, scratch, 1);
        tutti__build_reduce(b, in, scratch, 1);
        tutti__build_recv(b, 2, 0, scratch_1, 1);
        tutti__build_finish(b);
        tutti__build_reduce(b, scratch_1, scratch, 1);
        tutti__build_copy(b, scratch, out, 1);
    } else {
        tutti__build_send(b, 0, in, 1);
    }
    tutti__build_end_loop(b);
}

static void test_values(void **state)
{
    static const small_t counts_twice = { TUTTI__EXPECT_ALLREDUCE, 2, put_counts_twice };
    static const small_t fused = { TUTTI__EXPECT_ALLREDUCE, 3, put_fused_and_not };

    (void)state;
    bad(&counts_twice, 1, 1, "not each contribution exactly once");
    bad(&fused, 1, 2, "another association");
}

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

/* Stream 1 sends what stream 0 has received, after the mark; `early`: one mark too early. */
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

/* Stream 1 continues when stream 0's message comes back from rank 1; an empty one
   would not come. */
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

/* One channel, received from by two streams. */
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

/* ---- the end of a run ---- */

static void put_extra_message(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank == 0)
        tutti__build_send(b, 1, out, 1);
    else
        tutti__build_recv(b, 0, 0, out, 1);
    tutti__build_end_loop(b);
    tutti__build_loop(b);
    if (rank == 0)
        tutti__build_send(b, 1, out, 1);
    tutti__build_end_loop(b);
}

/* Rank 2 depends on rank 0 only through rank 1, which sends before it receives. */
static void put_deaf_barrier(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, (rank + 1) % 3, scratch, 1);
    tutti__build_recv(b, (rank + 2) % 3, 0, scratch, 1);
    tutti__build_end_loop(b);
}

static void put_nothing(tutti__build_t *b, uint32_t rank)
{
    (void)b;
    (void)rank;
}

static void test_ends(void **state)
{
    static const small_t extra = { TUTTI__EXPECT_BROADCAST, 2, put_extra_message };
    static const small_t deaf = { TUTTI__EXPECT_BARRIER, 3, put_deaf_barrier };
    static const small_t nothing = { TUTTI__EXPECT_BROADCAST, 2, put_nothing };
    static const small_t alone = { TUTTI__EXPECT_BROADCAST, 1, put_nothing };

    (void)state;
    bad(&extra, 3, 3, "3 messages of rank 0 stream 0 are never received");
    bad(&extra, 2, 3, "deadlock");
    bad(&deaf, 1, 1, "rank 0 does not wait for rank 1");
    bad(&nothing, 1, 1, "in the end OUT[0] of rank 1, chunk 0, has nothing");
    good(&alone, 1, 1);
}

/* A gather of parts creates no dependence on ranks without a part. */
static void put_barrier_of_two(tutti__build_t *b, uint32_t rank)
{
    (void)rank;
    tutti__build_loop(b);
    tutti__build_node(b, TUTTI__NODE_ALLGATHER, scratch, scratch, 1, 2, 0);
    tutti__build_end_loop(b);
}

static void put_barrier_by_bcast(tutti__build_t *b, uint32_t rank)
{
    (void)rank;
    tutti__build_loop(b);
    tutti__build_node(b, TUTTI__NODE_BCAST, scratch, scratch, 1, 1, 1);
    tutti__build_end_loop(b);
}

/* In a reduction only the root depends on the others. */
static void put_barrier_by_reduce(tutti__build_t *b, uint32_t rank)
{
    (void)rank;
    tutti__build_loop(b);
    tutti__build_node(b, TUTTI__NODE_REDUCE, scratch, scratch, 1, 1, 1);
    tutti__build_end_loop(b);
}

/* Each rank depends on each other. */
static void put_barrier_by_alltoall(tutti__build_t *b, uint32_t rank)
{
    (void)rank;
    tutti__build_sizes(b, TUTTI__ALL_EQUAL);
    tutti__build_loop(b);
    tutti__build_node(b, TUTTI__NODE_ALLTOALL, scratch, scratch, 1, 2, 0);
    tutti__build_end_loop(b);
}

static void test_node_barriers(void **state)
{
    static const small_t of_two = { TUTTI__EXPECT_BARRIER, 3, put_barrier_of_two };
    static const small_t by_bcast = { TUTTI__EXPECT_BARRIER, 2, put_barrier_by_bcast };
    static const small_t by_reduce = { TUTTI__EXPECT_BARRIER, 2, put_barrier_by_reduce };
    static const small_t by_alltoall = { TUTTI__EXPECT_BARRIER, 2, put_barrier_by_alltoall };
    static const small_t too_many = { TUTTI__EXPECT_BARRIER, 3, put_barrier_by_alltoall };

    (void)state;
    bad(&of_two, 1, 1, "rank 0 does not wait for rank 2");
    bad(&by_bcast, 1, 1, "rank 1 does not wait for rank 0");
    bad(&by_reduce, 1, 1, "rank 0 does not wait for rank 1");
    good(&by_alltoall, 1, 1);
    bad(&too_many, 1, 1, "its parts are for 2 of 3 ranks");
}

/* Values that must be equal in all ranks' schedules. */
static void test_heads(void **state)
{
    static const small_t small = { TUTTI__EXPECT_ALLREDUCE, 2, put_through_scratch };
    tutti__sched_t *scheds[MOST_RANKS], *other;

    (void)state;
    build(&small, scheds);
    assert_int_equal(check(&small, scheds, 1, 1), TUTTI_OK);

    scheds[1]->max_nblk = 2;
    assert_int_equal(check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    scheds[1]->max_nblk = 1;
    scheds[1]->nblocks = 2;
    assert_int_equal(check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    scheds[1]->nblocks = 1;
    other = scheds[0];
    scheds[0] = scheds[1];
    assert_int_equal(check(&small, scheds, 1, 1), TUTTI_ERR_INTERNAL);
    scheds[0] = other;
    assert_int_equal(check(&small, scheds, 1, 0), TUTTI_ERR_INTERNAL);
    assert_int_equal(check(&small, scheds, 1, 1), TUTTI_OK);

    for (uint32_t r = 0; r < small.size; r++)
        tutti__sched_free(scheds[r]);
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
    build(&small, scheds);
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_OK);
    all.host_of = none; /* host 1 of 1 */
    all.local_of = same;
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    all.host_of = same; /* two local ranks 0 */
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    assert_int_equal(tutti__sched_check(&all, why, 0), TUTTI_ERR_INTERNAL);
    for (uint32_t r = 0; r < small.size; r++)
        tutti__sched_free(scheds[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlock_names_the_ring),
        cmocka_unit_test(test_too_few_credits),
        cmocka_unit_test(test_zero_credits),
        cmocka_unit_test(test_association),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_finish_on_copy),
        cmocka_unit_test(test_finish_on_lonely_host),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_write_behind_read),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_node_barriers),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
