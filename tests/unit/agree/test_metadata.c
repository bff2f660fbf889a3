/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata that must be equal on all ranks: compared, merged, described. */
#include "agree/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t bits(double x)
{
    uint64_t b;

    memcpy(&b, &x, sizeof(b));
    return b;
}

static tutti__metadata_t allreduce(uint64_t count)
{
    return (tutti__metadata_t){ .count = count,
                                .prescale = bits(1),
                                .postscale = bits(1),
                                .op = TUTTI_SUM,
                                .kind = TUTTI_CALL_ALLREDUCE,
                                .dtype = TUTTI_FLOAT32 };
}

static tutti__announce_msg_t announce(uint32_t rank, tutti__metadata_t metadata)
{
    return (
        tutti__announce_msg_t){ .metadata = metadata, .rank = rank, .nranks = 1, .name_bytes = 1 };
}

/* Each field is compared. */
static void test_differ(void **state)
{
    tutti__metadata_t a = allreduce(8), b[] = { a, a, a, a, a, a, a, a, a, a };

    (void)state;
    assert_false(tutti__metadata_differ(&a, &a));
    b[0].count = 9;
    b[1].op = TUTTI_MAX;
    b[2].root = 1;
    b[3].prescale = bits(2);
    b[4].postscale = bits(2);
    b[5].kind = TUTTI_CALL_SCAN;
    b[6].dtype = TUTTI_INT32;
    b[7].more = 77;
    b[8].on_device = 1;
    b[9].wire = TUTTI_BFLOAT16;
    for (size_t i = 0; i < 10; i++)
        assert_true(tutti__metadata_differ(&a, &b[i]));
}

/* Tensors that one launch packs must have the same scale. In host memory each tensor may have its
   own. A bucket has one wire format. */
static void test_fuse(void **state)
{
    tutti__metadata_t a = allreduce(8), b = allreduce(9), c = allreduce(9);

    (void)state;
    c.prescale = bits(2);
    assert_true(tutti__metadata_fuse(&a, &b));
    assert_true(tutti__metadata_fuse(&a, &c));
    b.wire = TUTTI_BFLOAT16;
    assert_false(tutti__metadata_fuse(&a, &b));
    b.wire = 0;
    a.on_device = 1;
    assert_false(tutti__metadata_fuse(&a, &b));
    b.on_device = c.on_device = 1;
    assert_true(tutti__metadata_fuse(&a, &b));
    assert_false(tutti__metadata_fuse(&a, &c));
}

/* The first pair that differs is kept, whatever follows. */
static void test_merge_conflict(void **state)
{
    tutti__tensor_t *t = calloc(1, sizeof(*t) + 8);
    tutti__announce_msg_t m[] = { announce(3, allreduce(8)), announce(1, allreduce(8)),
                                  announce(2, allreduce(7)), announce(0, allreduce(6)) };

    (void)state;
    for (size_t i = 0; i < 4; i++)
        tutti__tensor_merge(t, &m[i], NULL);
    assert_int_equal(t->msg.nranks, 4);
    assert_int_equal(t->msg.conflict, 1);
    assert_int_equal(t->msg.rank, 3);
    assert_int_equal(t->msg.other_rank, 2);
    assert_int_equal(t->other.count, 7);
    free(t);
}

/* A conflict found by a leader replaces metadata without conflict. */
static void test_merge_found(void **state)
{
    tutti__tensor_t *t = calloc(1, sizeof(*t) + 8);
    tutti__announce_msg_t first = announce(0, allreduce(8)), found = announce(4, allreduce(8));
    tutti__metadata_t other = allreduce(5);

    (void)state;
    found.nranks = 3;
    found.conflict = 1;
    found.other_rank = 6;
    tutti__tensor_merge(t, &first, NULL);
    tutti__tensor_merge(t, &found, &other);
    assert_int_equal(t->msg.nranks, 4);
    assert_int_equal(t->msg.conflict, 1);
    assert_int_equal(t->msg.rank, 4);
    assert_int_equal(t->msg.other_rank, 6);
    assert_int_equal(t->other.count, 5);
    free(t);
}

/* The recvcounts of all ranks that pass them are compared, whatever the order in which the ranks
   arrive. */
static void test_merge_unsure(void **state)
{
    tutti__metadata_t knows = allreduce(10), differs, asks;

    (void)state;
    knows.kind = TUTTI_CALL_ALLGATHERV;
    knows.op = 0;
    knows.more = 1234;
    differs = knows;
    differs.more = 4321;
    asks = knows;
    asks.count = asks.more = 0;
    asks.unsure = 1;
    for (int order = 0; order < 3; order++) {
        tutti__tensor_t *t = calloc(1, sizeof(*t) + 8);
        tutti__announce_msg_t m[3] = { announce(0, knows), announce(1, knows), announce(2, knows) };

        m[order].metadata = asks;
        for (int i = 0; i < 3; i++)
            tutti__tensor_merge(t, &m[i], NULL);
        assert_int_equal(t->msg.conflict, 0);
        assert_int_equal(t->msg.metadata.unsure, 1);
        assert_int_equal(t->msg.metadata.more, 1234);
        m[0].metadata = differs;
        tutti__tensor_merge(t, &m[0], NULL);
        assert_int_equal(t->msg.conflict, 1);
        free(t);
    }
}

static void test_text(void **state)
{
    tutti__metadata_t f = allreduce(8), barrier = { .kind = TUTTI_CALL_BARRIER };
    static const tutti__group_msg_t alone, group = { .hash = 0xab, .size = 3 };
    char text[256], tiny[16];

    (void)state;
    tutti__metadata_texts(text, sizeof(text), 5, &f, &alone, 2, &barrier, &alone);
    assert_string_equal(text, "rank 5 has an allreduce of 8 elements of float32, sum; "
                              "rank 2 has a barrier");
    f.prescale = bits(0.5);
    tutti__metadata_texts(text, sizeof(text), 5, &f, &group, 2, &barrier, &alone);
    assert_non_null(strstr(text, "scaled by 0.5 and 1"));
    assert_non_null(strstr(text, "in a group of 3"));
    tutti__metadata_texts(tiny, sizeof(tiny), 5, &f, &group, 2, &barrier, &alone);
    assert_string_equal(tiny, "rank 5 has an a");
    f = (tutti__metadata_t){ .count = 4,
                             .more = 5,
                             .root = 1,
                             .source = 2,
                             .kind = TUTTI_CALL_SENDRECV,
                             .dtype = TUTTI_INT32 };
    tutti__metadata_call_text(text, sizeof(text), &f);
    assert_string_equal(text, "a sendrecv of 4 elements of int32 to rank 1, and of 5 from rank 2");
    f.kind = TUTTI_CALL_RECV;
    f.more = 1;
    tutti__metadata_call_text(text, sizeof(text), &f);
    assert_string_equal(text, "a receive of 1 element of int32 from rank 2");
}

/* Control messages have 128 bytes at most. */
static void test_sizes(void **state)
{
    (void)state;
    assert_true(sizeof(tutti__announce_msg_t) + sizeof(tutti__group_msg_t) <= 128);
    assert_true(sizeof(tutti__announce_msg_t) + sizeof(tutti__metadata_t) <= 128);
    assert_true(sizeof(tutti__bucket_msg_t) + sizeof(tutti__metadata_t) <= 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differ),         cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_merge_conflict), cmocka_unit_test(test_merge_found),
        cmocka_unit_test(test_merge_unsure),   cmocka_unit_test(test_text),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
