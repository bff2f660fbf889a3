/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker on small schedules: the contents of the blocks at the end, and the place where a sum
 * is finished.
 */
#include "unit/sched/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

/* Each rank divides the data that it sends, so the sum is divided twice. */
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
    bad(&early, 1, 1, "reduces a value that is finished already");
    bad(&twice, 1, 1, "finishes a value that is finished already");
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

/* All ranks get the same bits, but the results are rounded twice. */
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

/* The sum is reduced by a node operation. On a host with one rank, nothing is added. */
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

/* A scan. Rank 0 has only one contribution, and rank 1 has a sum that is passed on. */
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
    small_build(&small, scheds);
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(why, "(NODE_ALLREDUCE SCRATCH[0] -> OUT[0], finish), chunk 0: finishes "
                                "a copy of a sum"));
    small_free(&small, scheds);
}

/* A rank adds its own contribution twice. */
static void put_counts_twice(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    tutti__build_send(b, 1 - rank, in, 1);
    tutti__build_recv_reduce(b, 1 - rank, 0, in, out, 1);
    tutti__build_finish(b);
    tutti__build_reduce(b, in, out, 1);
    tutti__build_end_loop(b);
}

/* A fused addition of three ranks' data does not give the same bits as two additions. */
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

/* ---- wire formats ---- */

/* Ranks 0 and 1 are on one host, and add their data by a node operation, which does not round. Rank
   2 adds the data that it receives from them as messages, and these additions round. */
static void put_node_and_messages(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank < 2) {
        tutti__build_send(b, 2, in, 1);
        tutti__build_node(b, TUTTI__NODE_ALLREDUCE, in, scratch, 1, 1, 0);
        tutti__build_finish(b);
        tutti__build_recv_reduce(b, 2, 0, scratch, out, 1);
    } else {
        tutti__build_send(b, 0, in, 1);
        tutti__build_send(b, 1, in, 1);
        tutti__build_recv(b, 0, 0, scratch, 1);
        tutti__build_recv_reduce(b, 1, 0, scratch, scratch, 1);
        tutti__build_finish(b);
        tutti__build_reduce(b, in, scratch, 1);
        tutti__build_copy(b, scratch, out, 1);
    }
    tutti__build_end_loop(b);
}

/* Rank 2's data go to rank 0, and the host of rank 0 finishes the sum. */
static void put_node_finishes(tutti__build_t *b, uint32_t rank)
{
    tutti__build_loop(b);
    if (rank == 2)
        tutti__build_send(b, 0, in, 1);
    if (rank == 0)
        tutti__build_recv_reduce(b, 2, 0, in, scratch, 1);
    if (rank == 1)
        tutti__build_copy(b, in, scratch, 1);
    if (rank < 2) {
        tutti__build_finish(b);
        tutti__build_node(b, TUTTI__NODE_ALLREDUCE, scratch, out, 1, 1, 0);
    }
    if (rank == 1)
        tutti__build_send(b, 2, out, 1);
    if (rank == 2)
        tutti__build_recv(b, 1, 0, out, 1);
    tutti__build_end_loop(b);
}

/* The schedules are good without a wire format. With a wire format, the checker reports `text`. */
static void only_wide(void (*put)(tutti__build_t *b, uint32_t rank), const char *text)
{
    const small_t small = { TUTTI__EXPECT_ALLREDUCE, 3, put };
    static const uint32_t host_of[] = { 0, 0, 1 }, local_of[] = { 0, 1, 0 };
    tutti__sched_t *scheds[MOST_RANKS];
    tutti__check_t all = { .expect = TUTTI__EXPECT_ALLREDUCE,
                           .size = 3,
                           .scheds = scheds,
                           .host_of = host_of,
                           .local_of = local_of,
                           .nhosts = 2,
                           .credits = 1,
                           .trips = 2 };

    small_build(&small, scheds);
    if (tutti__sched_check(&all, why, sizeof(why)) != TUTTI_OK)
        fail_msg("%s", why);
    all.wire = 1;
    assert_int_equal(tutti__sched_check(&all, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    if (strstr(why, text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, why);
    small_free(&small, scheds);
}

static void test_wire(void **state)
{
    (void)state;
    only_wide(put_node_and_messages, "OUT[0] of rank 2, chunk 0, has another association");
    only_wide(put_node_finishes, "finishes a sum, and does not round it to the wire format");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_association),    cmocka_unit_test(test_finish),
        cmocka_unit_test(test_finish_on_copy), cmocka_unit_test(test_finish_on_lonely_host),
        cmocka_unit_test(test_values),         cmocka_unit_test(test_wire),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
