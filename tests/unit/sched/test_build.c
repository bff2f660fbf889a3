/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the builder's output and its errors, block maps, and schedules as text.
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

static tutti__at_t at(tutti__buf_t buf, uint32_t blk)
{
    return (tutti__at_t){ buf, blk };
}

static const tutti__at_t in = { TUTTI__IN, 0 };
static const tutti__at_t out = { TUTTI__OUT, 0 };
static const tutti__at_t scratch = { TUTTI__SCRATCH, 0 };

/* Rank 1 of 3; 4 blocks, SCRATCH of 2, messages of 2 blocks. */
static tutti__build_t *begin(void)
{
    tutti__build_t *b = tutti__build_begin("test", 1, 3, 4, 2, 2);

    assert_non_null(b);
    return b;
}

/* Fails unless the build fails with this status and an error with `text` in it. */
static void refused(tutti__build_t *b, tutti_status_t status, const char *text)
{
    tutti__sched_t *sched = NULL;

    assert_int_equal(tutti__build_end(b, &sched), status);
    assert_null(sched);
    if (strstr(tutti_last_error(), text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, tutti_last_error());
}

static void test_no_builder(void **state)
{
    (void)state;
    tutti__build_stream(NULL, 1);
    tutti__build_mark(NULL);
    tutti__build_finish(NULL);
    tutti__build_shift(NULL, 1);
    tutti__build_mark_last(NULL);
    tutti__build_loop(NULL);
    tutti__build_send(NULL, 0, in, 1);
    tutti__build_recv(NULL, 0, 0, out, 1);
    tutti__build_recv_reduce(NULL, 0, 0, in, out, 1);
    tutti__build_copy(NULL, in, out, 1);
    tutti__build_reduce(NULL, in, out, 1);
    tutti__build_wait(NULL, 0, 1);
    tutti__build_node(NULL, TUTTI__NODE_ALLREDUCE, in, out, 1, 1, 0);
    tutti__build_end_loop(NULL);
    refused(NULL, TUTTI_ERR_NO_MEMORY, "no memory");
}

static void test_refused_loops(void **state)
{
    tutti__build_t *b = begin();

    (void)state;
    tutti__build_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "stream 0 ends inside a loop");

    b = begin();
    tutti__build_loop(b);
    tutti__build_loop(b);
    tutti__build_end_loop(b);
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "a loop in a loop");

    b = begin();
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "END_LOOP without a LOOP");

    b = begin();
    tutti__build_mark(b);
    tutti__build_loop(b);
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "flags before a loop");

    b = begin();
    for (int i = 0; i < 2; i++) {
        tutti__build_loop(b);
        tutti__build_mark(b);
        tutti__build_copy(b, in, out, 1);
        tutti__build_end_loop(b);
    }
    refused(b, TUTTI_ERR_INTERNAL, "a second loop with marks");
}

static void test_refused_flags(void **state)
{
    tutti__build_t *b = begin();

    (void)state;
    tutti__build_finish(b);
    refused(b, TUTTI_ERR_INTERNAL, "flags without an operation");

    b = begin();
    tutti__build_mark_last(b);
    refused(b, TUTTI_ERR_INTERNAL, "no operation to mark");

    b = begin();
    tutti__build_shift(b, 1);
    tutti__build_copy(b, in, out, 1);
    refused(b, TUTTI_ERR_INTERNAL, "a shift outside of a loop");

    b = begin();
    tutti__build_shift(b, 200);
    tutti__build_shift(b, 100);
    refused(b, TUTTI_ERR_UNSUPPORTED, "a shift by 300");

    b = begin();
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLGATHER, out, out, 1, 3, 0);
    refused(b, TUTTI_ERR_INTERNAL, "cannot have flags");

    b = begin();
    tutti__build_stream(b, TUTTI__SCHED_STREAMS);
    tutti__build_copy(b, in, out, 1);
    refused(b, TUTTI_ERR_INTERNAL, "there is no stream 4");
}

static void test_refused_blocks(void **state)
{
    static const struct {
        tutti__at_t src, dst;
        uint32_t nblk;
        const char *text;
    } copies[] = {
        { { TUTTI__IN, 4 }, { TUTTI__OUT, 4 }, 1, "IN has 4 blocks only" },
        { { TUTTI__IN, 3 }, { TUTTI__OUT, 3 }, 2, "IN has 4 blocks only" },
        { { TUTTI__IN, UINT32_MAX }, { TUTTI__OUT, 0 }, UINT32_MAX, "IN has 4 blocks only" },
        { { TUTTI__IN, 0 }, { TUTTI__OUT, 1 }, 1, "different sizes" },
        { { TUTTI__IN, 1 }, { TUTTI__SCRATCH, 0 }, 1, "different sizes" },
        { { TUTTI__OUT, 0 }, { TUTTI__IN, 0 }, 1, "IN is not to be written" },
        { { TUTTI__IN, 0 }, { TUTTI__BUFS, 0 }, 1, "there is no buffer 4" },
        { { TUTTI__SCRATCH, 2 }, { TUTTI__OUT, 2 }, 1, "SCRATCH has 2 blocks only" },
        { { TUTTI__IN, 0 }, { TUTTI__OUT, 0 }, 0, "no blocks" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
        tutti__build_t *b = begin();

        tutti__build_loop(b);
        tutti__build_copy(b, copies[i].src, copies[i].dst, copies[i].nblk);
        tutti__build_end_loop(b);
        refused(b, TUTTI_ERR_INTERNAL, copies[i].text);
    }
}

/* A separate STAGE needs blocks and chunks. By default STAGE is OUT. */
static void test_refused_stage(void **state)
{
    const tutti__at_t stage = at(TUTTI__STAGE, 1);
    tutti__build_t *b;

    (void)state;
    b = begin();
    tutti__build_stage(b, 1, 2, 4);
    tutti__build_loop(b);
    tutti__build_copy(b, at(TUTTI__IN, 1), stage, 3);
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "STAGE has blocks 1 to 2 only");

    b = begin();
    tutti__build_stage(b, 1, 2, 4);
    tutti__build_copy(b, at(TUTTI__IN, 1), stage, 2);
    refused(b, TUTTI_ERR_INTERNAL, "STAGE has some chunks, and is allowed in loops only");

    b = begin();
    tutti__build_stage(b, 3, 2, 4);
    refused(b, TUTTI_ERR_INTERNAL, "4 chunks of STAGE blocks 3 to 5: that makes no sense");

    b = begin();
    tutti__build_stage(b, 0, 1, 6);
    refused(b, TUTTI_ERR_INTERNAL, "6 chunks of STAGE blocks 0 to 1: that makes no sense");
}

static void test_refused_overlap(void **state)
{
    tutti__build_t *b = tutti__build_begin("test", 0, 1, 2, 6, 1);

    (void)state;
    tutti__build_loop(b);
    tutti__build_copy(b, scratch, at(TUTTI__SCRATCH, 4), 2);
    tutti__build_copy(b, scratch, at(TUTTI__SCRATCH, 2), 3);
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL,
            "operation 2 (COPY SCRATCH[0:3] -> SCRATCH[2:5]): source and "
            "destination overlap");

    b = begin();
    tutti__build_copy(b, in, scratch, 1);
    refused(b, TUTTI_ERR_INTERNAL, "in loops only");
}

static void test_refused_channels(void **state)
{
    tutti__build_t *b = begin();

    (void)state;
    tutti__build_send(b, 0, in, 1);
    refused(b, TUTTI_ERR_INTERNAL, "channels are allowed in loops only");

    for (uint32_t peer = 1; peer <= 3; peer += 2) { /* the rank itself; no rank */
        b = begin();
        tutti__build_loop(b);
        tutti__build_send(b, peer, in, 1);
        tutti__build_end_loop(b);
        refused(b, TUTTI_ERR_INTERNAL, "no peer");
    }

    b = begin();
    tutti__build_loop(b);
    tutti__build_recv(b, 0, 4, out, 1);
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "no stream 4");

    b = begin();
    tutti__build_loop(b);
    tutti__build_send(b, 0, in, 3);
    tutti__build_end_loop(b);
    refused(b, TUTTI_ERR_INTERNAL, "a message has 2 blocks at most");
}

static void test_refused_waits(void **state)
{
    static const struct {
        unsigned stream;
        int32_t marks;
        const char *text;
    } waits[] = {
        { 0, 1, "cannot wait for stream 0" },
        { 2, 1, "cannot wait for stream 2" },
        { 9, 1, "there is no stream 9" },
        { 1, 0, "counted from 1" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        tutti__build_t *b = begin();

        tutti__build_wait(b, waits[i].stream, waits[i].marks);
        tutti__build_stream(b, 1);
        tutti__build_mark(b);
        tutti__build_copy(b, in, out, 1);
        refused(b, TUTTI_ERR_INTERNAL, waits[i].text);
    }
}

static void test_refused_node_operations(void **state)
{
    tutti__build_t *b = begin();

    (void)state;
    tutti__build_stream(b, 1);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, in, out, 1, 1, 0);
    refused(b, TUTTI_ERR_INTERNAL, "stream 0 only");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_BCAST, out, out, 1, 2, 0);
    refused(b, TUTTI_ERR_INTERNAL, "cannot have parts");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_BCAST, out, out, 1, 1, -1);
    refused(b, TUTTI_ERR_INTERNAL, "no local rank -1");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_REDUCE, in, out, 1, 2, 0);
    refused(b, TUTTI_ERR_INTERNAL, "cannot have parts");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_REDUCE, in, out, 1, 1, -1);
    refused(b, TUTTI_ERR_INTERNAL, "no local rank -1");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_ALLTOALL, in, out, 1, 4, 0);
    refused(b, TUTTI_ERR_INTERNAL, "may have different sizes");

    b = begin();
    tutti__build_sizes(b, TUTTI__ALL_EQUAL);
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLTOALL, in, out, 1, 4, 0);
    refused(b, TUTTI_ERR_INTERNAL, "cannot have flags");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_ALLGATHER, in, out, 1, 5, 0);
    refused(b, TUTTI_ERR_INTERNAL, "IN has 4 blocks only");

    b = begin();
    tutti__build_node(b, TUTTI__NODE_ALLGATHER, in, out, 1, 65536, 0);
    refused(b, TUTTI_ERR_UNSUPPORTED, "65536 parts");
}

/* Errors that no call of the builder can produce, but that a schedule from another source could
   have. */
static void test_invalid_heads(void **state)
{
    tutti__build_t *b = begin();
    tutti__sched_t *sched = NULL;
    char why[200];

    (void)state;
    refused(tutti__build_begin("test", 3, 3, 1, 0, 1), TUTTI_ERR_INTERNAL, "makes no sense");
    refused(tutti__build_begin("test", 0, 1, 0, 0, 1), TUTTI_ERR_INTERNAL, "makes no sense");
    refused(tutti__build_begin("test", 0, 1, 1, 0, 0), TUTTI_ERR_INTERNAL, "makes no sense");

    tutti__build_loop(b);
    tutti__build_send(b, 0, in, 1);
    tutti__build_mark_last(b);
    tutti__build_recv(b, 0, 0, out, 1);
    tutti__build_end_loop(b);
    assert_int_equal(tutti__build_end(b, &sched), TUTTI_OK);
    assert_true(tutti__sched_is_valid(sched, why, sizeof(why)));

    sched->marks[0] = 2;
    assert_false(tutti__sched_is_valid(sched, why, sizeof(why)));
    assert_string_equal(why, "stream 0 has 1 marks in a trip, but says 2");
    sched->marks[0] = 1;
    sched->ops[0].arg = 1;
    assert_false(tutti__sched_is_valid(sched, why, sizeof(why)));
    sched->ops[0].arg = 0;
    sched->ops[3].arg = 1;
    assert_false(tutti__sched_is_valid(sched, why, sizeof(why)));
    sched->ops[3].arg = 0;
    sched->ops[1].chan = 2;
    assert_false(tutti__sched_is_valid(sched, why, sizeof(why)));
    sched->ops[1].chan = 0;
    sched->chans[1].is_recv = 0;
    assert_false(tutti__sched_is_valid(sched, why, sizeof(why)));
    assert_string_equal(why, "channels 0 and 1 are the same");
    sched->chans[1].is_recv = 1;
    sched->first[2] = 3;
    assert_false(tutti__sched_is_valid(sched, why, sizeof(why)));
    sched->first[2] = 4;
    assert_true(tutti__sched_is_valid(sched, why, sizeof(why)));
    tutti__sched_free(sched);
}

/* A schedule with two streams. The first loop is not at operation 0, so each end of a loop must
   have the place where the loop begins. */
static tutti__sched_t *build_two_streams(void)
{
    tutti__build_t *b = begin();
    tutti__sched_t *sched = NULL;

    tutti__build_copy(b, in, out, 1);
    tutti__build_stream(b, 1);
    tutti__build_loop(b);
    tutti__build_wait(b, 0, 1);
    tutti__build_recv_reduce(b, 2, 3, at(TUTTI__IN, 2), at(TUTTI__OUT, 2), 2);
    tutti__build_finish(b);
    tutti__build_mark_last(b);
    tutti__build_reduce(b, scratch, out, 1);
    tutti__build_end_loop(b);
    tutti__build_stream(b, 0);
    tutti__build_loop(b);
    tutti__build_mark(b);
    tutti__build_node(b, TUTTI__NODE_REDUCE_SCATTER, in, out, 2, 2, 0);
    tutti__build_send(b, 2, in, 1);
    tutti__build_send(b, 2, in, 2);
    tutti__build_shift(b, 2);
    tutti__build_wait(b, 1, 1);
    tutti__build_shift(b, 1);
    tutti__build_node(b, TUTTI__NODE_BCAST, out, out, 1, 1, 1);
    tutti__build_recv(b, 0, 0, at(TUTTI__OUT, 3), 1);
    tutti__build_end_loop(b);
    assert_int_equal(tutti__build_end(b, &sched), TUTTI_OK);
    return sched;
}

static void test_built(void **state)
{
    tutti__sched_t *sched = build_two_streams();

    (void)state;
    assert_int_equal(sched->nstreams, 2);
    assert_int_equal(sched->first[1], 9);
    assert_int_equal(sched->first[2], 14);
    assert_int_equal(sched->first[4], 14);
    assert_int_equal(sched->nops, 14);
    assert_int_equal(sched->nchans, 3); /* to rank 2, from rank 0, from stream 3 of rank 2 */
    assert_int_equal(sched->marks[0], 1);
    assert_int_equal(sched->marks[1], 1);
    assert_int_equal(sched->ops[1].kind, TUTTI__LOOP);
    assert_int_equal(sched->ops[1].arg, 2);
    assert_int_equal(sched->ops[8].arg, 1);
    assert_int_equal(sched->ops[13].arg, 9);
    assert_int_equal(sched->ops[3].chan, sched->ops[4].chan);
    assert_int_equal(sched->ops[11].flags, TUTTI__MARK);
    assert_int_equal(sched->ops[12].flags, TUTTI__FINISH);
    tutti__sched_free(sched);
    tutti__sched_free(NULL);
}

static void test_print(void **state)
{
    static const char golden[] =
        "test: rank 1 of 3, blocks 4, scratch 2, blocks per message 2\n"
        "stream 0, marks per trip 1\n"
        "     0  COPY IN[0] -> OUT[0]\n"
        "     1  LOOP with 2 more trips\n"
        "     2      NODE_REDUCE_SCATTER IN[0:4] -> OUT[0:4] in 2 parts, mark\n"
        "     3      SEND IN[0] to rank 2\n"
        "     4      SEND IN[0:2] to rank 2\n"
        "     5      WAIT for stream 1: mark 1, shift 2\n"
        "     6      NODE_BCAST OUT[0] -> OUT[0] of local rank 1, shift 1\n"
        "     7      RECV from rank 0: OUT[3]\n"
        "     8  END_LOOP\n"
        "stream 1, marks per trip 1\n"
        "     9  LOOP\n"
        "    10      WAIT for stream 0: mark 1\n"
        "    11      RECV_REDUCE from rank 2 stream 3: IN[2:4] -> OUT[2:4], mark\n"
        "    12      REDUCE SCRATCH[0] -> OUT[0], finish\n"
        "    13  END_LOOP\n";
    tutti__sched_t *sched = build_two_streams();
    char *text = NULL, small[8];
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(file);
    tutti__sched_print(sched, file);
    fclose(file);
    assert_string_equal(text, golden);
    free(text);

    assert_string_equal(tutti__sched_op_text(sched, &sched->ops[3], small, sizeof(small)),
                        "SEND IN");
    assert_string_equal(tutti__sched_kind_name(0), "?");
    assert_string_equal(tutti__sched_kind_name(99), "?");
    assert_string_equal(tutti__sched_buf_name(TUTTI__BUFS), "?");
    tutti__sched_free(sched);
}

/* Blocks are contiguous, and chunks fill them; the largest block determines the trips. */
static void blocks_add_up(const tutti__blockmap_t *map)
{
    size_t trips = tutti__blockmap_trips(map), largest = 0;

    assert_int_equal(tutti__block_begin(map, 0), 0);
    assert_int_equal(tutti__block_border(map, map->nblocks), map->count);
    for (uint32_t b = 0; b < map->nblocks; b++) {
        size_t at_element = tutti__block_begin(map, b), begin, count, n = 0;

        for (size_t t = 0; t < trips + 2; t++) {
            tutti__block_chunk(map, b, t, &begin, &count);
            assert_true(count <= map->chunk && (count == 0 || begin == at_element));
            assert_true(t < trips || count == 0);
            at_element += count;
            n += count > 0;
        }
        assert_int_equal(at_element, tutti__block_border(map, b + 1));
        largest = n > largest ? n : largest;
    }
    assert_int_equal(trips, largest);
}

static void test_block_maps(void **state)
{
    static const size_t borders[] = { 0, 0, 7, 8, 20 };
    tutti__blockmap_t huge = { SIZE_MAX, UINT32_MAX, SIZE_MAX, NULL, NULL };

    (void)state;
    for (size_t count = 0; count < 40; count++) {
        for (uint32_t nblocks = 1; nblocks < 12; nblocks++) {
            for (size_t chunk = 1; chunk < 6; chunk++)
                blocks_add_up(&(tutti__blockmap_t){ count, nblocks, chunk, NULL, NULL });
        }
    }
    for (size_t chunk = 1; chunk < 14; chunk++)
        blocks_add_up(&(tutti__blockmap_t){ 20, 4, chunk, borders, NULL });

    assert_int_equal(tutti__blockmap_trips(&huge), 1);
    assert_true(tutti__block_border(&huge, UINT32_MAX) == SIZE_MAX);
    huge.nblocks = 1;
    huge.chunk = 1;
    assert_true(tutti__blockmap_trips(&huge) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_builder),
        cmocka_unit_test(test_refused_loops),
        cmocka_unit_test(test_refused_flags),
        cmocka_unit_test(test_refused_blocks),
        cmocka_unit_test(test_refused_overlap),
        cmocka_unit_test(test_refused_stage),
        cmocka_unit_test(test_refused_channels),
        cmocka_unit_test(test_refused_waits),
        cmocka_unit_test(test_refused_node_operations),
        cmocka_unit_test(test_invalid_heads),
        cmocka_unit_test(test_built),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_block_maps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
