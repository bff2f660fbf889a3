/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's requirements for each collective. The schedules are small and written as text. Some
 * are correct, some almost correct.
 */
#include "base/status.h"
#include "sched/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 3

/* The head of all schedules. The text of a rank follows it. */
typedef struct {
    tutti__expect_t expect;
    uint32_t size, nblocks;
    const char *sizes; /* "", or ", sizes ..." */
    const char *ranks[MOST_RANKS];
    uint32_t root;
    int in_place, ordered, fixed;
} call_t;

static char why[1200];

static tutti_status_t try(const call_t *call)
{
    tutti__sched_t *scheds[MOST_RANKS];
    tutti__check_t check = {
        .expect = call->expect,
        .size = call->size,
        .scheds = scheds,
        .root = call->root,
        .in_place = call->in_place,
        .ordered = call->ordered,
        .fixed = call->fixed,
        .credits = 1,
        .trips = 3,
    };
    char text[2000];
    size_t used = 0;
    tutti_status_t status;

    for (uint32_t r = 0; r < call->size; r++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "x: rank %u of %u, blocks %u, scratch 4, blocks per message 2%s\n"
                                 "LOOP\n%s\nEND_LOOP\n",
                                 r, call->size, call->nblocks,
                                 call->sizes != NULL ? call->sizes : "", call->ranks[r]);
    assert_true(used < sizeof(text));
    if (tutti__sched_parse(text, "call", call->size, scheds) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    status = tutti__sched_check(&check, why, sizeof(why));
    for (uint32_t r = 0; r < call->size; r++)
        tutti__sched_free(scheds[r]);
    return status;
}

static void good(call_t call)
{
    if (try(&call) != TUTTI_OK)
        fail_msg("%s", why);
}

static void bad(call_t call, const char *text)
{
    assert_int_equal(try(&call), TUTTI_ERR_INTERNAL);
    if (strstr(why, text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, why);
}

/* ---- reduce ---- */

#define TO_0 "SEND IN[0] to rank 0"
#define TO_1 "SEND IN[0] to rank 1"
#define REDUCE2(a, b)                                                                              \
    .expect = TUTTI__EXPECT_REDUCE, .size = 2, .nblocks = 1, .sizes = "", .ranks = { a, b }

static void test_reduce(void **state)
{
    static const char add[] = "RECV_REDUCE from rank 1: IN[0] -> OUT[0], finish";

    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        good((call_t){ REDUCE2(add, TO_0), .in_place = in_place });
        good((call_t){ REDUCE2(add, TO_0), .in_place = in_place, .ordered = 1, .fixed = 1 });
        bad((call_t){ REDUCE2(add, TO_0), .root = 1, .in_place = in_place },
            "rank 0 stream 0 operation 1 (RECV_REDUCE from rank 1: IN[0] -> OUT[0], finish), "
            "chunk 0: writes OUT[0], which this rank does not have");
        bad((call_t){ REDUCE2(add, TO_0 "\nCOPY IN[0] -> OUT[0]"), .in_place = in_place },
            "rank 1 stream 0 operation 2 (COPY IN[0] -> OUT[0]), chunk 0: writes OUT[0]");
        bad((call_t){ REDUCE2("RECV_REDUCE from rank 1: IN[0] -> OUT[0]", TO_0),
                      .in_place = in_place },
            "a value that is not finished");
    }
    bad((call_t){ REDUCE2("RECV from rank 1: SCRATCH[0]\nCOPY IN[0] -> OUT[0], finish", TO_0) },
        "in the end OUT[0] of rank 0, chunk 0, has not each contribution exactly once");
    bad((call_t){ REDUCE2("RECV from rank 1: SCRATCH[0]", TO_0) }, "has nothing");
    bad((call_t){ REDUCE2("RECV from rank 1: SCRATCH[0]", TO_0), .in_place = 1 },
        "not each contribution exactly once");
    assert_int_equal(try(&(call_t){ REDUCE2(add, TO_0), .root = 2 }), TUTTI_ERR_INTERNAL);
}

/* ---- operands in order ---- */

#define REDUCE3(a, b, c)                                                                           \
    .expect = TUTTI__EXPECT_REDUCE, .size = 3, .nblocks = 1, .sizes = "", .ranks = { a, b, c },    \
    .ordered = 1

static void test_order(void **state)
{
    static const char right[] = "RECV_REDUCE from rank 1: IN[0] -> SCRATCH[0]\n"
                                "RECV_REDUCE from rank 2: SCRATCH[0] -> OUT[0], finish";
    static const char swapped[] = "RECV_REDUCE from rank 2: IN[0] -> SCRATCH[0]\n"
                                  "RECV_REDUCE from rank 1: SCRATCH[0] -> OUT[0], finish";
    static const char left[] = "RECV_REDUCE from rank 1: IN[0] -> SCRATCH[0], left\n"
                               "RECV_REDUCE from rank 2: SCRATCH[0] -> OUT[0], finish";
    static const char middle[] = "RECV_REDUCE from rank 0: IN[0] -> SCRATCH[0], left\n"
                                 "RECV from rank 2: SCRATCH[1]\n"
                                 "REDUCE SCRATCH[0] -> SCRATCH[1], left, finish\n"
                                 "COPY SCRATCH[1] -> OUT[0]";
    static const char late[] = "RECV_REDUCE from rank 0: IN[0] -> SCRATCH[0], left\n"
                               "RECV from rank 2: SCRATCH[1]\n"
                               "REDUCE SCRATCH[0] -> SCRATCH[1], left\n"
                               "COPY SCRATCH[1] -> OUT[0], finish";

    (void)state;
    good((call_t){ REDUCE3(right, TO_0, TO_0) });
    bad((call_t){ REDUCE3(swapped, TO_0, TO_0) },
        "rank 0 stream 0 operation 1 (RECV_REDUCE from rank 2: IN[0] -> SCRATCH[0]), chunk 0: puts "
        "data of ranks 0 to 0 left of data of ranks 2 to 2: not the order of ranks");
    bad((call_t){ REDUCE3(left, TO_0, TO_0) }, "puts data of ranks 1 to 1 left of data of ranks 0 "
                                               "to 0");
    bad((call_t){ REDUCE3(TO_1, late, TO_1), .root = 1 },
        "rank 1 stream 0 operation 4 (COPY SCRATCH[1] -> OUT[0], finish), chunk 0: finishes a copy "
        "of a sum");
    good((call_t){ REDUCE3(TO_1, middle, TO_1), .root = 1 });
    good((call_t){ REDUCE3(TO_1, middle, TO_1), .root = 1, .fixed = 1 });
}

/* ---- reduce_scatter ---- */

#define SCATTER2(a, b)                                                                             \
    .expect = TUTTI__EXPECT_REDUCE_SCATTER, .size = 2, .nblocks = 2, .sizes = "", .ranks = { a, b }

static void test_reduce_scatter(void **state)
{
    static const char a[] = "SEND IN[1] to rank 1\n"
                            "RECV_REDUCE from rank 1: IN[0] -> OUT[0], finish";
    static const char b[] = "SEND IN[0] to rank 0\n"
                            "RECV_REDUCE from rank 0: IN[1] -> OUT[1], left, finish";
    call_t call = { SCATTER2(a, b) };

    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        good((call_t){ SCATTER2(a, b), .in_place = in_place, .ordered = 1, .fixed = 1 });
        bad((call_t){ SCATTER2(a, "SEND IN[0] to rank 0\n"
                                  "RECV_REDUCE from rank 0: IN[1] -> OUT[1], finish\n"
                                  "COPY IN[0] -> OUT[0]"),
                      .in_place = in_place },
            "writes OUT[0], which this rank does not have");
    }
    call.nblocks = 3;
    bad(call, "3 blocks for 2 ranks");
    /* In place, the result overwrites the rank's own block of IN. */
    bad((call_t){ SCATTER2(a, "RECV_REDUCE from rank 0: IN[1] -> OUT[1], finish\n"
                              "SEND IN[0] to rank 0\n"
                              "COPY IN[1] -> OUT[1]"),
                  .in_place = 0 },
        "not each contribution");
    good((call_t){ SCATTER2(a, "RECV_REDUCE from rank 0: IN[1] -> OUT[1], finish\n"
                               "SEND IN[0] to rank 0\n"
                               "COPY IN[1] -> OUT[1]"),
                   .in_place = 1 });
}

/* ---- gather and scatter ---- */

#define GATHER2(a, b)                                                                              \
    .expect = TUTTI__EXPECT_GATHER, .size = 2, .nblocks = 2, .sizes = "", .ranks = { a, b }

static void test_gather(void **state)
{
    static const char root[] = "COPY IN[0] -> OUT[0]\nRECV from rank 1: OUT[1]";
    static const char placed[] = "RECV from rank 1: OUT[1]";
    static const char gives[] = "SEND IN[1] to rank 0";
    call_t pairs = { GATHER2(root, gives) };

    (void)state;
    good((call_t){ GATHER2(root, gives) });
    good((call_t){ GATHER2(root, gives), .in_place = 1 });
    good((call_t){ GATHER2(placed, gives), .in_place = 1 });
    bad((call_t){ GATHER2(placed, gives) }, "OUT[0] of rank 0, chunk 0, has nothing");
    bad((call_t){ GATHER2(root, "SEND IN[0] to rank 0") },
        "reads IN[0], which this rank does not have");
    bad((call_t){ GATHER2(root, "COPY IN[1] -> OUT[1]\nSEND OUT[1] to rank 0") },
        "rank 1 stream 0 operation 1 (COPY IN[1] -> OUT[1]), chunk 0: writes OUT[1]");
    bad((call_t){ GATHER2(root, "COPY IN[1] -> OUT[1]\nSEND OUT[1] to rank 0"), .in_place = 1 },
        "writes OUT[1]");
    bad((call_t){ GATHER2("COPY IN[0] -> OUT[0], finish\nRECV from rank 1: OUT[1]", gives) },
        "a finished value");
    pairs.sizes = ", sizes by pair";
    good(pairs);
}

#define SCATTER3(a, b, c)                                                                          \
    .expect = TUTTI__EXPECT_SCATTER, .size = 3, .nblocks = 3, .sizes = "", .ranks = { a, b, c }

static void test_scatter(void **state)
{
    static const char root[] = "SEND IN[0] to rank 0\nCOPY IN[1] -> OUT[1]\nSEND IN[2] to rank 2";
    static const char placed[] = "SEND IN[0] to rank 0\nSEND IN[2] to rank 2";
    static const char a[] = "RECV from rank 1: OUT[0]", c[] = "RECV from rank 1: OUT[2]";
    call_t pairs = { SCATTER3(a, root, c), .root = 1, .in_place = 1 };

    (void)state;
    good((call_t){ SCATTER3(a, root, c), .root = 1 });
    good((call_t){ SCATTER3(a, root, c), .root = 1, .in_place = 1 });
    good((call_t){ SCATTER3(a, placed, c), .root = 1, .in_place = 1 });
    bad((call_t){ SCATTER3(a, placed, c), .root = 1 }, "OUT[1] of rank 1, chunk 0, has nothing");
    bad((call_t){ SCATTER3("RECV from rank 1: OUT[0]\nCOPY IN[0] -> OUT[0]", root, c), .root = 1 },
        "rank 0 stream 0 operation 2 (COPY IN[0] -> OUT[0]), chunk 0: reads IN[0], which this rank "
        "does not have");
    bad((call_t){ SCATTER3(a, root,
                           "RECV from rank 1: OUT[2]\nCOPY OUT[2] -> OUT[2]\n"
                           "COPY OUT[0] -> OUT[0]"),
                  .root = 1 },
        "reads OUT[0], which this rank does not have");
    pairs.sizes = ", sizes by pair";
    good(pairs);
    pairs.sizes = ", sizes all equal"; /* so only the values distinguish the blocks */
    pairs.ranks[1] = "SEND IN[2] to rank 0\nCOPY IN[1] -> OUT[1]\nSEND IN[0] to rank 2";
    bad(pairs, "in the end OUT[0] of rank 0, chunk 0, has something else than it should");
}

/* ---- alltoall, and the `sizes` of schedules ---- */

#define ALLTOALL2(how, a, b)                                                                       \
    .expect = TUTTI__EXPECT_ALLTOALL, .size = 2, .nblocks = 2, .sizes = how, .ranks = { a, b }
#define EXCHANGE_0 "COPY IN[0] -> OUT[0]\nSEND IN[1] to rank 1\nRECV from rank 1: OUT[1]"
#define EXCHANGE_1 "COPY IN[1] -> OUT[1]\nSEND IN[0] to rank 0\nRECV from rank 0: OUT[0]"

static void test_alltoall(void **state)
{
    call_t call = { ALLTOALL2(", sizes by pair", EXCHANGE_0, EXCHANGE_1) };

    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        good((call_t){ ALLTOALL2(", sizes all equal", EXCHANGE_0, EXCHANGE_1),
                       .in_place = in_place });
        good(
            (call_t){ ALLTOALL2(", sizes by pair", EXCHANGE_0, EXCHANGE_1), .in_place = in_place });
        bad((call_t){ ALLTOALL2("", EXCHANGE_0, EXCHANGE_1), .in_place = in_place },
            "(RECV from rank 0: OUT[0]), chunk 0: the message has 1 blocks from 1 on of chunk 0");
    }
    bad((call_t){ ALLTOALL2(", sizes by pair",
                            "COPY IN[0] -> OUT[1]\nSEND IN[1] to rank 1\n"
                            "RECV from rank 1: OUT[0]",
                            EXCHANGE_1) },
        "(COPY IN[0] -> OUT[1]), chunk 0: source and destination may have different sizes");
    bad((call_t){ ALLTOALL2(", sizes by pair",
                            "COPY IN[0] -> OUT[0]\nSEND IN[0] to rank 1\n"
                            "RECV from rank 1: OUT[1]",
                            EXCHANGE_1) },
        "rank 1 stream 0 operation 3 (RECV from rank 0: OUT[0]), chunk 0: the message has");
    bad((call_t){ ALLTOALL2(", sizes all equal",
                            "COPY IN[0] -> OUT[0]\nSEND IN[0] to rank 1\n"
                            "RECV from rank 1: OUT[1]",
                            EXCHANGE_1) },
        "in the end OUT[0] of rank 1, chunk 0, has something else than it should");
    call.expect = TUTTI__EXPECT_ALLREDUCE;
    bad(call, "sizes by pair, but there are no sizes of pairs");
}

static void test_renumbered(void **state)
{
    /* Blocks may be in another order in SCRATCH only if all have the same length. */
    static const char a[] = "COPY IN[0] -> SCRATCH[1]\nCOPY IN[1] -> SCRATCH[0]\n"
                            "COPY SCRATCH[1] -> OUT[0]\nSEND SCRATCH[0] to rank 1\n"
                            "RECV from rank 1: OUT[1]";

    (void)state;
    good((call_t){ ALLTOALL2(", sizes all equal", a, EXCHANGE_1) });
}

/* ---- scans ---- */

#define SCAN3(a, b, c)                                                                             \
    .expect = TUTTI__EXPECT_SCAN, .size = 3, .nblocks = 1, .sizes = "", .ranks = { a, b, c }
#define EXSCAN3(a, b, c)                                                                           \
    .expect = TUTTI__EXPECT_EXSCAN, .size = 3, .nblocks = 1, .sizes = "", .ranks = { a, b, c }

static void test_scan(void **state)
{
    static const char first[] = "SEND IN[0] to rank 1\nCOPY IN[0] -> OUT[0], finish";
    static const char second[] = "RECV_REDUCE from rank 0: IN[0] -> SCRATCH[0], left\n"
                                 "SEND SCRATCH[0] to rank 2\n"
                                 "COPY SCRATCH[0] -> OUT[0], finish";
    static const char third[] = "RECV_REDUCE from rank 1: IN[0] -> OUT[0], left, finish";

    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        good((call_t){ SCAN3(first, second, third), .in_place = in_place });
        good((call_t){ SCAN3(first, second, third), .in_place = in_place, .ordered = 1,
                       .fixed = 1 });
        bad((call_t){ SCAN3("SEND IN[0] to rank 1\nCOPY IN[0] -> OUT[0]", second, third),
                      .in_place = in_place },
            "OUT[0] of rank 0, chunk 0, has a value that is not finished");
        bad((call_t){ SCAN3(first,
                            "RECV from rank 0: SCRATCH[0]\nSEND SCRATCH[0] to rank 2\n"
                            "REDUCE IN[0] -> SCRATCH[0]\n"
                            "COPY SCRATCH[0] -> OUT[0], finish",
                            third),
                      .in_place = in_place },
            "OUT[0] of rank 2, chunk 0, has not each contribution exactly once");
    }
}

static void test_exscan(void **state)
{
    static const char first[] = "SEND IN[0] to rank 1";
    static const char second[] = "RECV from rank 0: SCRATCH[0]\n"
                                 "COPY SCRATCH[0] -> SCRATCH[1]\n"
                                 "REDUCE IN[0] -> SCRATCH[1]\n"
                                 "SEND SCRATCH[1] to rank 2\n"
                                 "COPY SCRATCH[0] -> OUT[0], finish";
    static const char third[] = "RECV from rank 1: SCRATCH[0]\n"
                                "COPY SCRATCH[0] -> OUT[0], finish";

    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        good((call_t){ EXSCAN3(first, second, third), .in_place = in_place, .ordered = 1 });
        bad((call_t){ EXSCAN3("SEND IN[0] to rank 1\nCOPY IN[0] -> OUT[0], finish", second, third),
                      .in_place = in_place },
            "rank 0 stream 0 operation 2 (COPY IN[0] -> OUT[0], finish), chunk 0: writes OUT[0]");
    }
}

/* ---- all collectives ---- */

static void test_heads(void **state)
{
    tutti__sched_t *scheds[2];
    tutti__check_t check = { .expect = TUTTI__EXPECT_ALLTOALL,
                             .size = 2,
                             .scheds = scheds,
                             .sizes = 1u << TUTTI__ALL_EQUAL,
                             .credits = 1,
                             .trips = 1 };
    static const char text[] =
        "x: rank 0 of 2, blocks 2, scratch 0, blocks per message 1, sizes all "
        "equal\nLOOP\n" EXCHANGE_0 "\nEND_LOOP\n"
        "x: rank 1 of 2, blocks 2, scratch 0, blocks per message 1, sizes all "
        "equal\nLOOP\n" EXCHANGE_1 "\nEND_LOOP\n";

    (void)state;
    assert_int_equal(tutti__sched_parse(text, "x", 2, scheds), TUTTI_OK);
    assert_int_equal(tutti__sched_check(&check, why, sizeof(why)), TUTTI_OK);
    check.sizes = 1u << TUTTI__BY_PAIR | 1u << TUTTI__BY_NUMBER;
    assert_int_equal(tutti__sched_check(&check, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    assert_string_equal(why, "the collective does not allow these sizes of blocks");
    check.sizes = 0;
    scheds[1]->sizes = TUTTI__BY_PAIR;
    assert_int_equal(tutti__sched_check(&check, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    assert_string_equal(why, "rank 1 assumes other sizes of blocks than rank 0");
    for (int r = 0; r < 2; r++)
        tutti__sched_free(scheds[r]);
}

/* Block 1 is summed in another order than block 0. This is correct, but not `fixed`. */
static void test_fixed(void **state)
{
    static const char root[] = "RECV_REDUCE from rank 1: IN[0] -> SCRATCH[0]\n"
                               "RECV_REDUCE from rank 2: SCRATCH[0] -> OUT[0], finish\n"
                               "RECV from rank 1: SCRATCH[1]\n"
                               "RECV_REDUCE from rank 2: SCRATCH[1] -> SCRATCH[1]\n"
                               "REDUCE IN[1] -> SCRATCH[1], left, finish\n"
                               "COPY SCRATCH[1] -> OUT[1]";
    static const char gives[] = "SEND IN[0] to rank 0\nSEND IN[1] to rank 0";
    call_t call = { REDUCE3(root, gives, gives) };

    (void)state;
    call.nblocks = 2;
    good(call);
    call.fixed = 1;
    bad(call, "in the end OUT[1] of rank 0, chunk 0, has another association than the first block");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce),         cmocka_unit_test(test_order),
        cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_gather),
        cmocka_unit_test(test_scatter),        cmocka_unit_test(test_alltoall),
        cmocka_unit_test(test_renumbered),     cmocka_unit_test(test_scan),
        cmocka_unit_test(test_exscan),         cmocka_unit_test(test_heads),
        cmocka_unit_test(test_fixed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
