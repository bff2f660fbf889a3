/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker on small schedules: deadlocks, credits, the end of a run, and barriers. Some
 * schedules have a bug that involves more than one operation. Some are correct, but seem to have a
 * bug.
 */
#include "unit/sched/small.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

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

/* Both ranks send two messages before they receive, which requires two slots. */
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

/* Both ranks send the block in which they receive. */
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

/* The next trip overwrites the message's block. */
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

/* Another stream overwrites the message's block. Without `waits`, the receive does not wait for
   this stream. */
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

/* A node operation of the host's ranks overwrites the message's block. */
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

/* A message that is taken leaves its channel, although its receiver still waits. */
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

/* Each rank depends on every other rank. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlock_names_the_ring),
        cmocka_unit_test(test_too_few_credits),
        cmocka_unit_test(test_zero_credits),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_node_barriers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
