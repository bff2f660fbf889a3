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
    tutti__compared_t compared;
} call_t;

static char why[1200];

static tutti_status_t try(const call_t *call)
{
    static const uint32_t host_of[MOST_RANKS] = { 0 }, local_of[MOST_RANKS] = { 0, 1, 2 };
    tutti__sched_t *scheds[MOST_RANKS];
    tutti__check_t check = {
        .expect = call->expect,
        .compared = call->compared,
        .size = call->size,
        .scheds = scheds,
        .host_of = host_of,
        .local_of = local_of,
        .nhosts = 1,
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

/* ---- calls are compared before recvbuf changes ---- */

#define SUM2(blocks, how, both)                                                                    \
    .expect = TUTTI__EXPECT_ALLREDUCE, .size = 2, .nblocks = blocks, .sizes = how,                 \
    .ranks = { both, both }

/* The text is wrong only if calls must be compared on the host. */
static void early(call_t call, const char *text)
{
    good(call);
    call.compared = TUTTI__COMPARED_ON_HOST;
    bad(call, text);
}

static void on_host(call_t call)
{
    call.compared = TUTTI__COMPARED_ON_HOST;
    good(call);
}

static void test_compared_on_host(void **state)
{
    static const char once[] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish";
    static const char copy[] = "COPY IN[0] -> OUT[0]\nNODE_ALLREDUCE OUT[0] -> OUT[0], finish";
    static const char scratch[] = "COPY IN[0] -> SCRATCH[0]\n"
                                  "NODE_ALLREDUCE SCRATCH[0] -> SCRATCH[1], finish\n"
                                  "COPY SCRATCH[1] -> OUT[0]";
    static const char other[] = "NODE_ALLREDUCE IN[1] -> OUT[1], finish\nCOPY IN[0] -> OUT[0]\n"
                                "NODE_ALLREDUCE OUT[0] -> OUT[0], finish";
    static const char stage[] = "COPY IN[0] -> STAGE[0]\nNODE_ALLREDUCE STAGE[0] -> OUT[0], finish";

    (void)state;
    on_host((call_t){ SUM2(1, "", once) });
    on_host((call_t){ SUM2(1, "", once), .in_place = 1 });
    on_host((call_t){ SUM2(1, "", scratch) });
    for (int in_place = 0; in_place < 2; in_place++)
        early((call_t){ SUM2(1, "", copy), .in_place = in_place },
              "rank 0 stream 0 operation 1 (COPY IN[0] -> OUT[0]), chunk 0: writes OUT[0] before a "
              "node operation on a block of this length: calls that differ would change recvbuf");
    early((call_t){ SUM2(1, "", stage) }, "(COPY IN[0] -> STAGE[0]), chunk 0: writes STAGE[0] bef");
    /* If block 1 is empty, the first node operation is skipped. */
    early((call_t){ SUM2(2, "", other) }, "operation 2 (COPY IN[0] -> OUT[0]), chunk 0: writes");
    on_host((call_t){ SUM2(2, ", sizes all equal", other) });
    /* A single rank has no call to compare with. */
    on_host((call_t){ .expect = TUTTI__EXPECT_ALLREDUCE,
                      .size = 1,
                      .nblocks = 1,
                      .ranks = { "COPY IN[0] -> OUT[0], finish" } });
}

/* Ranks with messages meet before the run. */
static void test_compared_before_messages(void **state)
{
    static const char once[] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish";
    static const char message[] = "COPY IN[0] -> OUT[0]\nSEND IN[0] to rank 1\n"
                                  "RECV_REDUCE from rank 1: IN[0] -> OUT[0], finish";
    static const char answer[] = "COPY IN[0] -> OUT[0]\nSEND IN[0] to rank 0\n"
                                 "RECV_REDUCE from rank 0: IN[0] -> OUT[0], finish";
    static const char sends[] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish\n"
                                "SEND OUT[0] to rank 1";
    static const char receives[] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish\n"
                                   "RECV from rank 0: SCRATCH[0]";
    call_t call = { .expect = TUTTI__EXPECT_ALLREDUCE, .size = 2, .nblocks = 1 };

    (void)state;
    call.ranks[0] = message;
    call.ranks[1] = answer;
    on_host(call);
    call.size = 3;
    call.ranks[0] = sends;
    call.ranks[1] = receives;
    call.ranks[2] = once;
    early(call, "rank 2 has no messages, unlike rank 0");
    call.ranks[0] = once;
    call.ranks[1] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish\nSEND OUT[0] to rank 2";
    call.ranks[2] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish\nRECV from rank 1: SCRATCH[0]";
    early(call, "rank 1 has messages, unlike rank 0");
}

/* Stream 1 copies. It must wait for the first node operation of stream 0. */
static void test_compared_in_streams(void **state)
{
    static const char waits[] = "COPY IN[0] -> SCRATCH[0], mark\n"
                                "NODE_ALLREDUCE IN[1] -> OUT[1], finish, mark\n"
                                "WAIT for stream 1: mark 1\n"
                                "NODE_ALLREDUCE OUT[0] -> OUT[0], finish\nEND_LOOP\n"
                                "stream 1\nLOOP\nWAIT for stream 0: mark 2\n"
                                "COPY IN[0] -> OUT[0], mark";
    static const char hurries[] = "COPY IN[0] -> SCRATCH[0], mark\n"
                                  "NODE_ALLREDUCE IN[1] -> OUT[1], finish, mark\n"
                                  "WAIT for stream 1: mark 1\n"
                                  "NODE_ALLREDUCE OUT[0] -> OUT[0], finish\nEND_LOOP\n"
                                  "stream 1\nLOOP\nWAIT for stream 0: mark 1\n"
                                  "COPY IN[0] -> OUT[0], mark";
    call_t call = { SUM2(2, ", sizes all equal", waits) };

    (void)state;
    on_host(call);
    /* The checker executes this copy after the node operation, but nothing orders the two. */
    call.ranks[1] = hurries;
    early(call, "rank 1 stream 1 operation 8 (COPY IN[0] -> OUT[0], mark), chunk 0: writes OUT[0]");
}

static void test_compared_in_frames(void **state)
{
    static const char root[] = "RECV_REDUCE from rank 1: IN[0] -> OUT[0], finish\n"
                               "SEND OUT[0] to rank 1";
    static const char leaf[] = "SEND IN[0] to rank 0\nRECV from rank 0: OUT[0]";
    static const char aside[] = "RECV from rank 1: SCRATCH[0]\n"
                                "REDUCE IN[0] -> SCRATCH[0], left, finish\n"
                                "COPY SCRATCH[0] -> OUT[0]\nSEND OUT[0] to rank 1";
    static const char two[] = "SEND IN[0:2] to rank 0\nRECV from rank 0: OUT[0:2]";
    call_t call = { .expect = TUTTI__EXPECT_ALLREDUCE,
                    .size = 2,
                    .nblocks = 1,
                    .ranks = { root, leaf },
                    .compared = TUTTI__COMPARED_IN_FRAMES };

    (void)state;
    good(call);
    call.in_place = 1;
    good(call);
    call.ranks[0] = aside;
    bad(call, "rank 0 stream 0 operation 1 (RECV from rank 1: SCRATCH[0]), chunk 0: is no message "
              "of the call's only block, so it cannot move a frame");
    call.ranks[0] = call.ranks[1] = "NODE_ALLREDUCE IN[0] -> OUT[0], finish";
    bad(call, "(NODE_ALLREDUCE IN[0] -> OUT[0], finish), chunk 0: is no message");
    call.nblocks = 2;
    call.ranks[0] = "RECV_REDUCE from rank 1: IN[0:2] -> OUT[0:2], finish\n"
                    "SEND OUT[0:2] to rank 1";
    call.ranks[1] = two;
    bad(call, "chunk 0: is no message of the call's only block");
    /* The result is right, but the root does not find that its call differs from rank 1's. */
    call.expect = TUTTI__EXPECT_BROADCAST;
    call.nblocks = 1;
    call.ranks[0] = "SEND OUT[0] to rank 1";
    call.ranks[1] = "RECV from rank 0: OUT[0]";
    bad(call, "rank 0 does not wait for rank 1");
    call.compared = TUTTI__COMPARED_BEFORE;
    good(call);
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
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_alltoall),
        cmocka_unit_test(test_renumbered),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_exscan),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_compared_on_host),
        cmocka_unit_test(test_compared_before_messages),
        cmocka_unit_test(test_compared_in_streams),
        cmocka_unit_test(test_compared_in_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
