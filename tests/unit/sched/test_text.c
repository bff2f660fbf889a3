/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules as text: for every algorithm, printed text is read back to the same bits. Wrong text is
 * refused with an error that names the line and the word.
 */
#include "base/status.h"
#include "long.h"
#include "unit/coll/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *print_all(tutti__sched_t *const *scheds, uint32_t size)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_non_null(file);
    for (uint32_t r = 0; r < size; r++)
        tutti__sched_print(scheds[r], file);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void free_all(tutti__sched_t **scheds, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++)
        tutti__sched_free(scheds[r]);
}

static void assert_same(const tutti__sched_t *a, const tutti__sched_t *b)
{
    tutti__sched_t x = *a, y = *b;

    assert_string_equal(a->name, b->name);
    assert_memory_equal(a->ops, b->ops, a->nops * sizeof(*a->ops));
    for (uint32_t i = 0; i < a->nchans; i++) {
        assert_int_equal(a->chans[i].peer, b->chans[i].peer);
        assert_int_equal(a->chans[i].stream, b->chans[i].stream);
        assert_int_equal(a->chans[i].is_recv, b->chans[i].is_recv);
    }
    x.name = y.name;
    x.ops = y.ops;
    x.chans = y.chans;
    x.is_read = y.is_read;
    assert_memory_equal(&x, &y, sizeof(x));
}

static unsigned there_and_back;

static void go_there_and_back(const tutti__algorithm_t *algorithm, const shape_t *shape,
                              const char *sub, int in_place, int on_device)
{
    uint32_t size = shape->shape.size;
    set_t set = { .algorithm = algorithm,
                  .shape = shape,
                  .sub = sub,
                  .root = size - 1,
                  .in_place = in_place,
                  .on_device = on_device };
    tutti__sched_t **again = calloc(size, sizeof(*again));
    char *text;

    assert_non_null(again);
    set_build(&set);
    text = print_all(set.scheds, size);
    if (tutti__sched_parse(text, set.scheds[0]->name, size, again) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    for (uint32_t r = 0; r < size; r++)
        assert_same(set.scheds[r], again[r]);
    free_all(again, size);
    free(again);
    free(text);
    set_free(&set);
    there_and_back++;
}

static void shape_there_and_back(shape_t *shape)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->refuses != NULL && a->refuses(&shape->shape) != NULL)
            continue;
        for (int places = 0; places < 4; places++) { /* in place or not, on the device or not */
            if (a->subs == NULL)
                go_there_and_back(a, shape, NULL, places & 1, places >> 1);
            for (int i = 0; a->subs != NULL && a->subs[i] != NULL; i++)
                go_there_and_back(a, shape, a->subs[i], places & 1, places >> 1);
        }
    }
    shape_free(shape);
}

static int whole; /* 0: the quick form */

static void test_all_algorithms(void **state)
{
    (void)state;
    for (uint32_t p = 1; p <= 17; p += whole || p < 4 ? 1 : 13) {
        shape_there_and_back(shape_even(1, p));
        shape_there_and_back(shape_even(p, 1));
        shape_there_and_back(shape_random(p, p));
    }
    shape_there_and_back(shape_split(3, (uint32_t[]){ 3, 5, 2 }));
    if (whole)
        shape_there_and_back(shape_even(8, 8));
    print_message("%u sets of schedules there and back\n", there_and_back);
}

/* ---- hand-written ---- */

#define HEAD "p: rank 0 of 1, blocks 4, scratch 2, blocks per message 2\n"

static const char by_hand[] =
    "# two ranks exchange what they have\n"
    "\n"
    "pair of ranks: rank 0 of 2 , blocks 1,scratch 0, blocks per message 1, sizes by number\n"
    "LOOP\r\n"
    "  SEND IN [ 0 ] to rank 1   # to the other\n"
    " 77 RECV_REDUCE from rank 1:IN[0:1]->OUT[0] , left , finish\n"
    "END_LOOP\n"
    "pair: rank 1 of 2, blocks 1, scratch 0, blocks per message 1\n"
    "stream 0\n"
    "LOOP with 0 more trips\n"
    "SEND IN[0] to rank 0\n"
    "RECV_REDUCE from rank 0: IN[0] -> OUT[0], finish\n"
    "END_LOOP";

static void test_by_hand(void **state)
{
    tutti__sched_t *scheds[2] = { NULL, NULL };
    tutti__check_t check = {
        .expect = TUTTI__EXPECT_ALLREDUCE, .size = 2, .scheds = scheds, .credits = 1, .trips = 3
    };
    char why[400];

    (void)state;
    if (tutti__sched_parse(by_hand, "by hand", 2, scheds) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_string_equal(scheds[1]->name, "by hand");
    assert_int_equal(scheds[0]->ops[2].flags, TUTTI__LEFT | TUTTI__FINISH);
    assert_int_equal(tutti__sched_check(&check, why, sizeof(why)), TUTTI_OK);
    check.ordered = 1; /* but rank 0 has its own operand on the right */
    assert_int_equal(tutti__sched_check(&check, why, sizeof(why)), TUTTI_ERR_INTERNAL);
    free_all(scheds, 2);
}

static void test_sizes(void **state)
{
    static const char *const texts[] = { "", ", sizes all equal", ", sizes by pair" };
    char text[200], *again;

    (void)state;
    for (unsigned sizes = 0; sizes < 3; sizes++) {
        tutti__sched_t *sched = NULL;

        snprintf(text, sizeof(text),
                 "a_b: rank 0 of 1, blocks 1, scratch 0, blocks per message 1%s\n", texts[sizes]);
        assert_int_equal(tutti__sched_parse(text, "a:b", 1, &sched), TUTTI_OK);
        assert_int_equal(sched->sizes, sizes);
        again = print_all(&sched, 1);
        assert_string_equal(again, text);
        free(again);
        tutti__sched_free(sched);
    }
}

/* ---- refused ---- */

static void refused(const char *text, const char *why)
{
    tutti__sched_t *sched = NULL;

    assert_int_equal(tutti__sched_parse(text, "text", 1, &sched), TUTTI_ERR_INVALID_ARGUMENT);
    assert_null(sched);
    if (strncmp(tutti_last_error(), why, strlen(why)) != 0)
        fail_msg("expected \"%s\", got: %s", why, tutti_last_error());
}

static void test_refused_heads(void **state)
{
    (void)state;
    refused("", "text, line 0: the text ends, but rank 0 of 1 is missing");
    refused("# nothing\n\n", "text, line 2: the text ends, but rank 0 of 1 is missing");
    refused("SEND IN[0] to rank 1",
            "text, line 1: expected NAME: rank 0 of N, ..., found \"SEND\"");
    refused("p: rank 1 of 1, blocks 1, scratch 0, blocks per message 1",
            "text, line 1: rank 1, where rank 0 of 1 is expected");
    refused("p: rank 0 of 2, blocks 1, scratch 0, blocks per message 1",
            "text, line 1: 2 ranks, but there are 1");
    refused(HEAD HEAD, "text, line 2: rank 0, where rank 1 of 1 is expected");
    refused("p: rank x", "text, line 1: expected a number, found \"x\"");
    refused("p: rank 12a", "text, line 1: expected a number, found \"12a\"");
    refused("p: rank 4294967296",
            "text, line 1: expected a number below 2^32, found \"4294967296\"");
    refused("p: rank 0 of 1; blocks", "text, line 1: expected \",\", found \";\"");
    refused("p: rank 0 of 1, blocks 0, scratch 0, blocks per message 1\n",
            "text, line 1: rank 0: rank 0 of 1, 0 blocks");
    refused("p: rank 0 of 1, blocks 1, scratch 0, blocks per message 1, sizes odd",
            "text, line 1: expected \"by\", found \"odd\"");
    refused("p: rank 0 of 1, blocks 1, scratch 0, blocks per message 1, sizes by pair 1",
            "text, line 1: expected the end of the line, found \"1\"");
}

static void test_refused_operations(void **state)
{
    static const struct {
        const char *line, *why;
    } lines[] = {
        { "stream 4", "there is no stream 4" },
        { "DANCE", "expected an operation, found \"DANCE\"" },
        { "NODE_MEET IN[0] -> OUT[0]", "expected an operation, found \"NODE_MEET\"" },
        { "3", "expected an operation, but the line ends" },
        { "SEND", "expected IN, OUT, SCRATCH or STAGE, but the line ends" },
        { "SEND BUF[0]", "expected IN, OUT, SCRATCH or STAGE, found \"BUF\"" },
        { "SEND IN 0", "expected \"[\", found \"0\"" },
        { "SEND IN[0", "expected \"]\", but the line ends" },
        { "SEND IN[2:2] to rank 0", "no blocks from 2 up to 2" },
        { "SEND IN[0] too rank 0", "expected \"to\", found \"too\"" },
        { "REDUCE IN[0] OUT[0]", "expected \"->\", found \"OUT\"" },
        { "SEND IN[0] to rank 7", "there is no rank 7 of 1" },
        { "SEND IN[0] to rank 0", "\"to rank 0\", but this is rank 0 itself" },
        { "RECV_REDUCE from rank 1: IN[0] -> OUT[0]", "there is no rank 1 of 1" },
        { "COPY IN[0:2] -> OUT[0]", "2 blocks to 1" },
        { "COPY IN[0] -> OUT[0], finished",
          "expected finish, left, mark or shift, found \"finished" },
        { "COPY IN[0] -> OUT[0] finish", "expected the end of the line, found \"finish\"" },
        { "COPY IN[0] -> OUT[0], shift 300", "a shift by 300, but 255 is the most" },
        { "WAIT for stream 1: mark 4000000000", "there is no mark 4000000000" },
        { "WAIT for stream 4: mark 1", "there is no stream 4" },
        { "END_LOOP", "END_LOOP without a LOOP" },
        { "LOOP with 2 trips", "expected \"more\", found \"trips\"" },
        { "NODE_ALLGATHER IN[0:3] -> OUT[0:3] in 2 parts", "3 blocks in 2 parts" },
        { "NODE_ALLGATHER IN[0:3] -> OUT[0:3] in 0 parts", "3 blocks in 0 parts" },
        { "NODE_BCAST OUT[0] -> OUT[0]", "expected \"of\", but the line ends" },
        { "NODE_REDUCE IN[0] -> OUT[0], finish", "expected \"of\", found \",\"" },
    };
    char text[200], why[200];

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        snprintf(text, sizeof(text), "%s\n%s # and so on\n", HEAD, lines[i].line);
        snprintf(why, sizeof(why), "text, line 3: %s", lines[i].why);
        refused(text, why);
    }
}

/* Schedules that the builder refuses, and inconsistent ones. */
static void test_refused_schedules(void **state)
{
    (void)state;
    refused(HEAD "COPY IN[4] -> OUT[4]\n",
            "text, line 2: rank 0: stream 0, operation 0 (COPY IN[4] -> OUT[4]): IN has 4 blocks");
    /* In a schedule the streams follow each other in order; in a text they may be in any order. */
    refused(HEAD "stream 1\nCOPY IN[0] -> OUT[0]\nstream 0\n# no\nCOPY IN[1] -> OUT[1]\n"
                 "stream 1\nCOPY IN[4] -> OUT[4]\n",
            "text, line 8: rank 0: stream 1, operation 2 (COPY IN[4] -> OUT[4]): IN has 4 blocks");
    refused(HEAD "# a loop\nLOOP\n", "text, line 3: rank 0: this LOOP has no end");
    refused(HEAD "LOOP\nLOOP\n", "text, line 3: loops do not nest, and that of line 2");
    refused(HEAD "stream 0, marks per trip 1\nLOOP\nCOPY IN[0] -> OUT[0]\nEND_LOOP\n",
            "text, line 2: stream 0 has 0 marks in a trip, not 1");
    refused(HEAD "LOOP with 1 more trips\nCOPY IN[0] -> OUT[0], shift 2\nEND_LOOP\n",
            "text, line 4: the loop has 1 more trips, but the largest shift in it is 2");
}

static void test_ranks(void **state)
{
    uint32_t size = 0;

    (void)state;
    assert_int_equal(tutti__sched_text_ranks(by_hand, "text", &size), TUTTI_OK);
    assert_int_equal(size, 2);
    assert_int_equal(tutti__sched_text_ranks("# none\n", "text", &size),
                     TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti_last_error(), "text, line 1: there is no schedule in this text");
    assert_int_equal(tutti__sched_text_ranks("\nLOOP\n", "text", &size),
                     TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti_last_error(),
                        "text, line 2: expected NAME: rank 0 of N, ..., found \"LOOP\"");
    assert_int_equal(tutti__sched_text_ranks("p: rank 0 and 1", "text", &size),
                     TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti_last_error(), "text, line 1: expected \"of\", found \"and\"");
    assert_int_equal(size, 2);
}

/* Rank 1's schedule suits the device, but rank 0 sends from OUT. */
static void test_on_device(void **state)
{
    static const char mixed[] = "p: rank 0 of 2, blocks 1, scratch 0, blocks per message 1\n"
                                "NODE_REDUCE IN[0] -> OUT[0] of local rank 0\n"
                                "LOOP\n"
                                "SEND OUT[0] to rank 1\n"
                                "END_LOOP\n"
                                "p: rank 1 of 2, blocks 1, scratch 0, blocks per message 1\n"
                                "NODE_REDUCE IN[0] -> OUT[0] of local rank 0\n";
    static const char staged[] =
        "p: rank 0 of 1, blocks 4, scratch 2, blocks per message 2, stage 2 from 1 in 4 chunks\n"
        "LOOP\nCOPY IN[1:3] -> STAGE[1:3]\nCOPY STAGE[1:3] -> OUT[1:3]\nEND_LOOP\n";
    tutti__sched_t *scheds[2];

    (void)state;
    assert_int_equal(tutti__sched_parse(mixed, "text", 2, scheds), TUTTI_OK);
    assert_false(scheds[0]->on_device);
    assert_false(scheds[1]->on_device);
    free_all(scheds, 2);
    assert_int_equal(tutti__sched_parse(staged, "text", 1, scheds), TUTTI_OK);
    assert_true(scheds[0]->on_device);
    assert_int_equal(scheds[0]->stage_first, 1);
    assert_int_equal(scheds[0]->stage_blocks, 2);
    assert_int_equal(scheds[0]->stage_trips, 4);
    free_all(scheds, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_algorithms),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refused_heads),
        cmocka_unit_test(test_refused_operations),
        cmocka_unit_test(test_refused_schedules),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_on_device),
    };

    whole = test_is_long("5 to 16 and 64 ranks");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
