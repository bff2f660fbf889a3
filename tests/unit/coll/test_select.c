/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithm chosen for a call: the table's choice, forced algorithms, the order of operands,
 * and association. test_override.c tests the syntax of TUTTI_ALGORITHM, test_cache.c its effect in
 * the cache.
 */
#include "base/status.h"
#include "coll/cost.h"
#include "unit/coll/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static shape_t *one_host, *hosts_3_2, *hosts_1, *hosts_16, *hosts_64, *hosts_3, *mixed;

static int make_shapes(void **state)
{
    (void)state;
    one_host = shape_even(1, 4);
    hosts_3_2 = shape_split(2, (uint32_t[]){ 3, 2 });
    hosts_1 = shape_even(4, 1);
    hosts_16 = shape_even(16, 8);
    hosts_64 = shape_even(64, 1);
    hosts_3 = shape_even(3, 2);
    mixed = shape_random(20, 3);
    return 0;
}

static int free_shapes(void **state)
{
    (void)state;
    shape_free(one_host);
    shape_free(hosts_3_2);
    shape_free(hosts_1);
    shape_free(hosts_16);
    shape_free(hosts_64);
    shape_free(hosts_3);
    shape_free(mixed);
    return 0;
}

static const char *name_of(const tutti__choice_t *choice, char *buffer, size_t bytes)
{
    int n = snprintf(buffer, bytes, "%s%s%s", choice->algorithm->name,
                     choice->sub != NULL ? "/" : "", choice->sub != NULL ? choice->sub : "");

    if (choice->radix != 0)
        snprintf(buffer + n, bytes - (size_t)n, "(%u)", choice->radix);
    return buffer;
}

static const char *chosen_for(const tutti__want_t *want, const shape_t *shape, const char *override,
                              tutti__association_t association, const char *name)
{
    tutti__choice_t choice = { .algorithm = NULL };
    const char *why = NULL;
    char have[80];

    if (tutti__algorithm_choose(want, &shape->shape, override, association, &choice, &why) !=
        TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_string_equal(name_of(&choice, have, sizeof(have)), name);
    assert_int_equal(choice.algorithm->collective, want->collective);
    assert_non_null(why);
    return why;
}

/* "name", "name/sub" or "name(radix)" is chosen for an operation that commutes. */
static const char *chosen(tutti__collective_t collective, const shape_t *shape, size_t bytes,
                          const char *override, tutti__association_t association, const char *name)
{
    tutti__want_t want = { collective, bytes, 0, 0 };

    return chosen_for(&want, shape, override, association, name);
}

static void chosen_ordered(tutti__collective_t collective, const shape_t *shape, size_t bytes,
                           const char *override, tutti__association_t association, const char *name)
{
    tutti__want_t want = { collective, bytes, 0, 1 };

    chosen_for(&want, shape, override, association, name);
}

static void refused(const tutti__want_t *want, const shape_t *shape, const char *override,
                    tutti__association_t association, tutti_status_t status, const char *text)
{
    tutti__choice_t choice = { .algorithm = NULL };
    const char *why = NULL;

    assert_int_equal(
        tutti__algorithm_choose(want, &shape->shape, override, association, &choice, &why), status);
    assert_true(choice.algorithm == NULL && why == NULL);
    if (strstr(tutti_last_error(), text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, tutti_last_error());
}

static void test_seeds(void **state)
{
    static const tutti__collective_t node[] = { TUTTI__ALLREDUCE,      TUTTI__BROADCAST,
                                                TUTTI__REDUCE_SCATTER, TUTTI__ALLGATHER,
                                                TUTTI__ROOT_REDUCE,    TUTTI__ALLTOALL,
                                                TUTTI__BARRIER };

    (void)state;
    for (size_t i = 0; i < sizeof(node) / sizeof(node[0]); i++) {
        chosen(node[i], one_host, 8, NULL, 0, "node");
        assert_string_equal(chosen(node[i], one_host, SIZE_MAX, "", 1, "node"),
                            "by the table: one host");
    }
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 128 * KIB, NULL, 0, "hierarchical/recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 512 * KIB, NULL, 0, "hierarchical/halving_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_16, 256 * KIB + 1, NULL, 0, "hierarchical/halving_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_16, SIZE_MAX, NULL, 0, "hierarchical/ring");
    chosen(TUTTI__ALLREDUCE, hosts_1, 8, NULL, 0, "hierarchical/recursive_doubling");
    chosen(TUTTI__ROOT_REDUCE, hosts_3_2, 8, NULL, 0, "binomial");
    chosen(TUTTI__ROOT_REDUCE, hosts_3_2, 1 * MIB, NULL, 0, "chain");
    chosen(TUTTI__BROADCAST, hosts_3_2, 8, NULL, 0, "binomial");
    chosen(TUTTI__BROADCAST, hosts_64, 64 * KIB, NULL, 0, "scatter_allgather");
    assert_string_equal(chosen(TUTTI__BROADCAST, hosts_3_2, 1 * MIB, NULL, 0, "chain"), "by cost");
    chosen(TUTTI__ALLGATHER, hosts_3_2, 8, NULL, 1, "bruck");
    chosen(TUTTI__ALLGATHER, hosts_3_2, 1 * MIB, NULL, 1, "ring");
    chosen(TUTTI__GATHER, hosts_3_2, 8, NULL, 0, "binomial");
    assert_string_equal(chosen(TUTTI__GATHER, hosts_3_2, 1 * MIB, NULL, 0, "direct"), "by cost");
    chosen(TUTTI__SCATTER, hosts_1, 8, NULL, 0, "direct");
    chosen(TUTTI__SCATTER, hosts_64, 8, NULL, 0, "binomial");
    chosen(TUTTI__GATHER, one_host, 8, NULL, 0, "direct");
    chosen(TUTTI__ALLTOALL, hosts_3_2, 8, NULL, 0, "direct");
    chosen(TUTTI__ALLTOALL, mixed, 8, NULL, 0, "bruck");
    chosen(TUTTI__ALLTOALL, hosts_16, 1 * KIB, NULL, 0, "recursive_doubling");
    chosen(TUTTI__ALLTOALL, hosts_16, 1 * MIB, NULL, 0, "direct");
    chosen(TUTTI__ALLTOALL, hosts_16, 1 * MIB + 1, NULL, 0, "pairwise");
    chosen(TUTTI__ALLTOALLV, hosts_16, 0, NULL, 0, "pairwise");
    chosen(TUTTI__BARRIER, hosts_1, 0, NULL, 0, "dissemination(2)");
}

/* Every collective is served on every shape, whatever is required. */
static void test_all_served(void **state)
{
    const shape_t *shapes[] = { one_host, hosts_3_2, hosts_1, hosts_16, mixed };

    (void)state;
    for (int c = 0; c < TUTTI__COLLECTIVES; c++) {
        for (size_t i = 0; i < 5 * 2 * 3 * 41; i++) {
            tutti__want_t want = { (tutti__collective_t)c, (size_t)1 << i % 41, 0,
                                   i / 41 % 2 == 1 };
            tutti__association_t association = (tutti__association_t)(i / 82 % 3);
            tutti__choice_t choice = { .algorithm = NULL };
            const char *why;

            if (tutti__algorithm_choose(&want, &shapes[i / 246]->shape, NULL, association, &choice,
                                        &why) != TUTTI_OK)
                fail_msg("%s", tutti_last_error());
        }
    }
}

/* With a strict association, the tree of operands does not depend on the number of bytes. */
static void test_strict(void **state)
{
    (void)state;
    for (tutti__association_t a = TUTTI__STRICT_ASSOCIATION; a <= TUTTI__STEADY_ASSOCIATION; a++) {
        chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, NULL, a, "hierarchical/recursive_doubling");
        chosen(TUTTI__ALLREDUCE, hosts_3_2, SIZE_MAX, NULL, a, "hierarchical/halving_doubling");
        chosen(TUTTI__ALLREDUCE, hosts_3, 8, NULL, a, "hierarchical/recursive_doubling");
        chosen(TUTTI__ALLREDUCE, hosts_3, SIZE_MAX, NULL, a, "hierarchical/direct_scatter");
        chosen(TUTTI__ALLREDUCE, hosts_16, SIZE_MAX, NULL, a, "hierarchical/halving_doubling");
        chosen(TUTTI__ROOT_REDUCE, hosts_16, 8, NULL, a, "binomial");
        assert_string_equal(chosen(TUTTI__ROOT_REDUCE, hosts_16, SIZE_MAX, NULL, a, "binomial"),
                            "by cost");
        chosen(TUTTI__REDUCE_SCATTER, hosts_3_2, 8, NULL, a, "halving");
        chosen(TUTTI__REDUCE_SCATTER, hosts_3_2, SIZE_MAX, NULL, a, "halving");
        chosen(TUTTI__SCAN, one_host, 8, NULL, a, "recursive_doubling");
        chosen(TUTTI__SCAN, one_host, SIZE_MAX, NULL, a, "recursive_doubling");
    }
    chosen(TUTTI__ALLREDUCE, hosts_16, SIZE_MAX, NULL, 0, "hierarchical/ring");
    chosen(TUTTI__ALLREDUCE, hosts_3, SIZE_MAX, NULL, 0, "hierarchical/ring");
    chosen(TUTTI__REDUCE_SCATTER, hosts_3_2, SIZE_MAX, NULL, 0, "ring");
    chosen(TUTTI__SCAN, one_host, SIZE_MAX, NULL, 0, "chain");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:ring", TUTTI__STEADY_ASSOCIATION, "ring");
}

static void test_ordered(void **state)
{
    tutti__want_t want = { TUTTI__ALLREDUCE, 8, 0, 1 };

    (void)state;
    chosen_ordered(TUTTI__ALLREDUCE, one_host, SIZE_MAX, NULL, 0, "node");
    chosen_ordered(TUTTI__ALLREDUCE, mixed, 8, NULL, 0, "recursive_doubling");
    chosen_ordered(TUTTI__ALLREDUCE, mixed, SIZE_MAX, NULL, 1, "halving_doubling");
    chosen_ordered(TUTTI__REDUCE_SCATTER, mixed, SIZE_MAX, NULL, 0, "halving");
    chosen_ordered(TUTTI__ROOT_REDUCE, mixed, SIZE_MAX, NULL, 0, "chain");
    chosen_ordered(TUTTI__ALLREDUCE, mixed, 8, "allreduce:knomial(3)", 1, "knomial(3)");
    chosen_ordered(TUTTI__BARRIER, hosts_1, 0, NULL, 0, "dissemination(2)");

    refused(&want, mixed, "allreduce:ring", 0, TUTTI_ERR_UNSUPPORTED,
            "TUTTI_ALGORITHM=allreduce:ring cannot be used: it does not keep the order of ranks");
    refused(&want, mixed, "allreduce:hierarchical", 0, TUTTI_ERR_UNSUPPORTED,
            "allreduce:hierarchical/recursive_doubling cannot be used: it does not keep the order");
    want.ordered = 0;
    chosen_for(&want, mixed, "allreduce:ring", 0, "ring");
}

static void test_override(void **state)
{
    static const char both[] = "allreduce:ring,broadcast:binomial";

    (void)state;
    assert_string_equal(chosen(TUTTI__ALLREDUCE, one_host, 8, both, 0, "ring"), "TUTTI_ALGORITHM");
    chosen(TUTTI__BROADCAST, one_host, 8, both, 0, "binomial");
    assert_string_equal(chosen(TUTTI__BARRIER, one_host, 8, both, 0, "node"),
                        "by the table: one host");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:hierarchical", 0,
           "hierarchical/recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, MIB, "allreduce:hierarchical", 0,
           "hierarchical/halving_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:hierarchical/ring", 0, "hierarchical/ring");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, MIB, "allreduce:three_level / halving_doubling", 0,
           "three_level/halving_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:recursive_doubling", 1, "recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:knomial", 1, "knomial(4)");
    chosen(TUTTI__BARRIER, one_host, 0, "barrier:dissemination(3)", 1, "dissemination(3)");
    /* An unusable item for another collective has no effect on this call. */
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "broadcast:node,allreduce:ring", 0, "ring");
}

/* A range includes its beginning, and does not include its end. */
static void test_ranges(void **state)
{
    static const char two[] = "allreduce:0-4k:recursive_doubling,allreduce:4k-:ring";
    static const char hole[] = "allreduce:16-1k:direct;allreduce:2K-1m:knomial(8)";

    (void)state;
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 0, two, 0, "recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 4095, two, 0, "recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 4096, two, 0, "ring");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, SIZE_MAX, two, 0, "ring");
    chosen(TUTTI__BARRIER, hosts_3_2, 4096, two, 0, "dissemination(2)");

    chosen(TUTTI__ALLREDUCE, one_host, 15, hole, 0, "node");
    chosen(TUTTI__ALLREDUCE, one_host, 16, hole, 0, "direct");
    chosen(TUTTI__ALLREDUCE, one_host, 1023, hole, 0, "direct");
    assert_string_equal(chosen(TUTTI__ALLREDUCE, one_host, 1024, hole, 0, "node"),
                        "by the table: one host");
    chosen(TUTTI__ALLREDUCE, one_host, 2048, hole, 0, "knomial(8)");
    chosen(TUTTI__ALLREDUCE, one_host, MIB, hole, 0, "node");
}

static void test_unsupported(void **state)
{
    static const tutti__want_t allreduce = { TUTTI__ALLREDUCE, 8, 0, 0 },
                               barrier = { TUTTI__BARRIER, 0, 0, 0 },
                               alltoall = { TUTTI__ALLTOALL, 8, 0, 0 };

    (void)state;
    refused(&allreduce, hosts_3_2, "allreduce:node", 0, TUTTI_ERR_UNSUPPORTED,
            "TUTTI_ALGORITHM=allreduce:node cannot be used: it serves the ranks of one host only");
    refused(&alltoall, hosts_3_2, "alltoall:node", 0, TUTTI_ERR_UNSUPPORTED, "one host only");
    refused(&barrier, hosts_1, "barrier:node", 0, TUTTI_ERR_UNSUPPORTED, "barrier:node");
    refused(&allreduce, one_host, "allreduce:ring", 1, TUTTI_ERR_UNSUPPORTED,
            "allreduce:ring cannot be used: its association");
    refused(&allreduce, hosts_3_2, "allreduce:hierarchical/ring", 1, TUTTI_ERR_UNSUPPORTED,
            "allreduce:hierarchical/ring cannot be used");
    refused(&alltoall, hosts_3_2, "alltoall:recursive_doubling", 0, TUTTI_ERR_UNSUPPORTED,
            "powers of two");
    refused(&allreduce, one_host, "allreduce:rong", 0, TUTTI_ERR_INVALID_ARGUMENT,
            "no algorithm called \"rong\"");
}

/* The table is well formed, and every row can be found. */
static void test_table(void **state)
{
    (void)state;
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        assert_ptr_equal(tutti__algorithm_find(a->collective, a->name), a);
        assert_true(a->purpose != NULL && a->build != NULL);
        for (int i = 0; a->subs != NULL && a->subs[i] != NULL; i++)
            assert_non_null(tutti__algorithm_find(a->collective, a->subs[i]));
    }
    assert_null(tutti__algorithm_find(TUTTI__BARRIER, "ring"));
    assert_string_equal(tutti__collective_name(TUTTI__ROOT_REDUCE), "reduce");
    assert_string_equal(tutti__collective_name(TUTTI__COLLECTIVES), "?");
    for (int c = 0; c < TUTTI__COLLECTIVES; c++)
        assert_string_not_equal(tutti__collective_name((tutti__collective_t)c), "?");
}

/* The streams between hosts of an allreduce. */
static uint32_t streams_of(const shape_t *shape, size_t bytes, const char *override)
{
    tutti__want_t want = { TUTTI__ALLREDUCE, bytes, 0, 0 };
    tutti__choice_t choice = { .algorithm = NULL };
    const char *why;

    if (tutti__algorithm_choose(&want, &shape->shape, override, TUTTI__ANY_ASSOCIATION, &choice,
                                &why) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return choice.streams;
}

/* By the model, messages of 64 KiB take 8 us at 100 Gbit/s, 64 us at 10, and 1024 us at 1. */
static void test_streams(void **state)
{
    static const size_t large = 16 << 20, message = 65536;
    shape_t *shape = shape_even(2, 1), *wide = shape_even(2, 4);
    tutti__cost_link_t *link = &shape->shape.link;

    (void)state;
    assert_int_equal(streams_of(shape, large, NULL), 1); /* 10 Gbit/s and 10 us are assumed */
    *link = tutti__cost_link(100000, 10000, 0);
    assert_int_equal(streams_of(shape, large, "allreduce:ring"), 4);
    *link = tutti__cost_link(1000, 1000000, 0);
    link->slot_bytes = message;
    assert_int_equal(streams_of(shape, large, "allreduce:recursive_doubling"), 3);
    assert_int_equal(streams_of(shape, 2 * message, "allreduce:recursive_doubling"), 2);
    assert_int_equal(streams_of(shape, message, "allreduce:recursive_doubling"), 1);
    assert_int_equal(streams_of(shape, 2 * message, "allreduce:ring"), 1);
    assert_int_equal(streams_of(shape, large, "allreduce:binomial"), 1);
    /* A measured round trip counts only if it cannot change bits. */
    *link = tutti__cost_link(10000, 10000, 0);
    link->rtt_ns = 1000000;
    assert_int_equal(streams_of(shape, large, "allreduce:halving_doubling"), 4);
    assert_int_equal(streams_of(shape, large, "allreduce:hierarchical/ring"), 1);
    link->piece_bytes = 16 * message;
    assert_int_equal(streams_of(shape, large, "allreduce:halving_doubling"), 2);
    shape->shape.on_device = 1;
    assert_int_equal(streams_of(shape, large, "allreduce:halving_doubling"), 1);

    /* Four ranks of a host send at the same time. */
    wide->shape.link = tutti__cost_link(100000, 10000, 0);
    assert_int_equal(streams_of(wide, large, "allreduce:hierarchical/ring"), 2);
    wide->shape.link = tutti__cost_link(10000, 1000000, 0);
    assert_int_equal(streams_of(wide, large, "allreduce:hierarchical/ring"), 3);
    shape_free(shape);
    shape_free(wide);
}

static void test_chunk_bytes(void **state)
{
    tutti__cost_link_t link = tutti__cost_link(10000, 10000, 0);

    (void)state;
    assert_int_equal(tutti__cost_chunk_bytes(&link, 0), 64 * KIB);
    assert_int_equal(tutti__cost_chunk_bytes(&link, 100000), 128 * KIB);
    assert_int_equal(tutti__cost_chunk_bytes(&link, UINT64_MAX / 1000), MIB);
    link = tutti__cost_link(100000, 10000, 0);
    assert_int_equal(tutti__cost_chunk_bytes(&link, 0), 256 * KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),       cmocka_unit_test(test_all_served),
        cmocka_unit_test(test_strict),      cmocka_unit_test(test_ordered),
        cmocka_unit_test(test_override),    cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_unsupported), cmocka_unit_test(test_table),
        cmocka_unit_test(test_streams),     cmocka_unit_test(test_chunk_bytes),
    };

    return cmocka_run_group_tests(tests, make_shapes, free_shapes);
}
