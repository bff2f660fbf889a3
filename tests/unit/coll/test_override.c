/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The syntax of TUTTI_ALGORITHM, and the errors. Each error is one line that names the place.
 * test_select.c tests the resulting choice.
 */
#include "coll/override.h"
#include "unit/coll/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void is_item(const tutti__override_item_t *item, tutti__collective_t collective, size_t from,
                    size_t to, const char *name, const char *sub, uint32_t radix)
{
    assert_int_equal(item->collective, collective);
    assert_int_equal(item->from, from);
    assert_int_equal(item->to, to);
    assert_string_equal(item->choice.algorithm->name, name);
    assert_int_equal(item->choice.algorithm->collective, collective);
    if (sub == NULL)
        assert_null(item->choice.sub);
    else
        assert_string_equal(item->choice.sub, sub);
    assert_int_equal(item->choice.radix, radix);
}

static void test_items(void **state)
{
    static const char text[] =
        "allreduce:0-4k:recursive_doubling, allreduce : 4k - 3M : knomial ( 16 ) ;;\n"
        "allreduce:3m-:hierarchical/halving_doubling,"
        "reduce:chain , reduce_scatter:18446744073709551615-:ring,barrier:dissemination(65535),"
        "alltoallv:1g-2G:direct,";
    const size_t kib = 1024, mib = kib * kib, gib = mib * kib;
    tutti__override_t all;

    (void)state;
    if (tutti__override_parse(text, &all) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_int_equal(all.n, 7);
    is_item(&all.items[0], TUTTI__ALLREDUCE, 0, 4 * kib, "recursive_doubling", NULL, 0);
    is_item(&all.items[1], TUTTI__ALLREDUCE, 4 * kib, 3 * mib, "knomial", NULL, 16);
    is_item(&all.items[2], TUTTI__ALLREDUCE, 3 * mib, SIZE_MAX, "hierarchical", "halving_doubling",
            0);
    is_item(&all.items[3], TUTTI__ROOT_REDUCE, 0, SIZE_MAX, "chain", NULL, 0);
    is_item(&all.items[4], TUTTI__REDUCE_SCATTER, SIZE_MAX, SIZE_MAX, "ring", NULL, 0);
    is_item(&all.items[5], TUTTI__BARRIER, 0, SIZE_MAX, "dissemination", NULL, 65535);
    is_item(&all.items[6], TUTTI__ALLTOALLV, gib, 2 * gib, "direct", NULL, 0);

    assert_ptr_equal(tutti__override_find(&all, TUTTI__ALLREDUCE, 4095), &all.items[0]);
    assert_ptr_equal(tutti__override_find(&all, TUTTI__ALLREDUCE, 4096), &all.items[1]);
    assert_ptr_equal(tutti__override_find(&all, TUTTI__ALLREDUCE, SIZE_MAX), &all.items[2]);
    assert_ptr_equal(tutti__override_find(&all, TUTTI__REDUCE_SCATTER, SIZE_MAX), &all.items[4]);
    assert_null(tutti__override_find(&all, TUTTI__ALLTOALLV, gib - 1));
    assert_null(tutti__override_find(&all, TUTTI__SCAN, 8));
}

static void test_nothing(void **state)
{
    static const char *const nothing[] = { NULL, "", " ", ",", ";;,\n ," };
    tutti__override_t all;

    (void)state;
    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++) {
        all.n = 7;
        assert_int_equal(tutti__override_parse(nothing[i], &all), TUTTI_OK);
        assert_int_equal(all.n, 0);
    }
}

static void test_wrong(void **state)
{
    static const struct {
        const char *override, *text;
    } wrong[] = {
        { "ring", "\"ring\" is not of the form collective:algorithm" },
        { "allreduce", "not of the form" },
        { "broadcast:binomial,nonsense", "\"nonsense\" is not of the form" },
        { "allreduc:ring", "no collective is called \"allreduc\"; there are allreduce, reduce, "
                           "broadcast, reduce_scatter, allgather, allgatherv, gather, gatherv, "
                           "scatter, scatterv, alltoall, alltoallv, scan, exscan, barrier" },
        { ":ring", "no collective is called \"\"" },
        { "0-4k:allreduce:ring", "no collective is called \"0-4k\"" },
        { "allreduce:", "allreduce has no algorithm called \"\"; there are node, hierarchical, "
                        "three_level, recursive_doubling, halving_doubling, ring, binomial, "
                        "double_tree, knomial, leaders, direct, direct_scatter" },
        { "allreduce:rong", "allreduce has no algorithm called \"rong\"" },
        { "allreduce:Ring", "no algorithm called \"Ring\"" },
        { "allreduce:0-4k:", "allreduce has no algorithm called \"\"" },
        { "allreduce:0-4k", "no algorithm called \"0-4k\"" },
        { "barrier:ring", "barrier has no algorithm called \"ring\"; there are node, dissemi" },
        { "allreduce:ring:x", "\"ring\" is no range of bytes, such as 0-4k (up to 4095"
                              " bytes) or 4k- (from 4096 on)" },
        { "allreduce::ring", "\"\" is no range" },
        { "allreduce:-4k:ring", "\"-4k\" is no range" },
        { "allreduce:4k:ring", "\"4k\" is no range" },
        { "allreduce:4k-4k:ring", "\"4k-4k\" is no range" },
        { "allreduce:8k-4k:ring", "\"8k-4k\" is no range" },
        { "allreduce:0-4q:ring", "\"0-4q\" is no range" },
        { "allreduce:0-4kb:ring", "\"0-4kb\" is no range" },
        { "allreduce:0-k:ring", "\"0-k\" is no range" },
        { "allreduce:0x10-:ring", "is no range" },
        { "allreduce:0-1-2:ring", "is no range" },
        { "allreduce:18446744073709551616-:ring", "is no range" },
        { "allreduce:18446744073709551615k-:ring", "is no range" },
        { "allreduce:0-4k:ring:x", "no algorithm called \"ring:x\"" },
        { "allreduce:ring,allreduce:node",
          "allreduce of 0 bytes is named twice, with ring and node" },
        { "allreduce:0-4k:ring,allreduce:2k-8k:direct",
          "allreduce of 2048 bytes is named twice, with ring and direct" },
        { "allreduce:4k-:ring,allreduce:direct", "allreduce of 4096 bytes is named twice, with "
                                                 "ring and direct; the range 0-4k ends before" },
        { "allreduce:@",
          "after the \"@\" of allreduce must come the path of a file, of 1 to 1023" },
        { "allreduce:4k-: @ ", "must come the path of a file" },
        { "allreduce:@a\nb", "must come the path of a file" },
        { "allreduce:@a:b,allreduce:4k-:ring",
          "allreduce of 4096 bytes is named twice, with a:b and ring" },
        { "allreduce:ring/ring", "allreduce:ring/ring: after the \"/\" of ring may come nothing" },
        { "allreduce:hierarchical/", "allreduce:hierarchical/: after the \"/\" of hierarchical may"
                                     " come recursive_doubling, halving_doubling, ring,"
                                     " direct_scatter" },
        { "allreduce:hierarchical/node", "hierarchical/node: after the" },
        { "allreduce:knomial(1)", "the radix of allreduce:knomial is \"1\", but must be 2 to 65535,"
                                  " as in knomial(4)" },
        { "allreduce:knomial(0)", "is \"0\", but must be 2" },
        { "allreduce:knomial(65536)", "is \"65536\", but must be 2" },
        { "allreduce:knomial(-4)", "is \"-4\", but must be 2" },
        { "allreduce:knomial()", "is \"\", but must be 2" },
        { "allreduce:knomial(4", "allreduce:knomial(4: the \")\" is missing" },
        { "allreduce:knomial(", "allreduce:knomial(: the \")\" is missing" },
        { "allreduce:knomial(4)x", "but must be 2" },
        { "allreduce:knomial(4k)", "but must be 2" },
        { "allreduce:ring(4)", "allreduce:ring has no radix" },
    };
    shape_t *shape = shape_even(1, 4);

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(tutti__algorithm_check_override(wrong[i].override, &shape->shape),
                         TUTTI_ERR_INVALID_ARGUMENT);
        assert_int_equal(tutti__algorithm_check_override(wrong[i].override, NULL),
                         TUTTI_ERR_INVALID_ARGUMENT);
        if (strstr(tutti_last_error(), wrong[i].text) == NULL)
            fail_msg("%s: expected \"%s\", got: %s", wrong[i].override, wrong[i].text,
                     tutti_last_error());
        assert_null(strchr(tutti_last_error(), '\n'));
    }
    shape_free(shape);
}

static void is_file(const tutti__override_item_t *item, size_t from, const char *path)
{
    assert_int_equal(item->collective, TUTTI__SCAN);
    assert_int_equal(item->from, from);
    assert_null(item->choice.algorithm);
    assert_int_equal(item->path_bytes, strlen(path));
    assert_memory_equal(item->path, path, strlen(path));
}

static void test_paths(void **state)
{
    char longest[1100] = "scan:@";
    tutti__override_t all;

    (void)state;
    assert_int_equal(
        tutti__override_parse("scan:0-8:@a, scan:8-9 : @ /b c/@d:(2)/e ;scan:9-:@f:g", &all),
        TUTTI_OK);
    assert_int_equal(all.n, 3);
    is_file(&all.items[0], 0, "a");
    is_file(&all.items[1], 8, "/b c/@d:(2)/e");
    is_file(&all.items[2], 9, "f:g");
    memset(longest + 6, 'x', TUTTI__FILE_PATH - 1);
    assert_int_equal(tutti__override_parse(longest, &all), TUTTI_OK);
    assert_int_equal(all.items[0].path_bytes, TUTTI__FILE_PATH - 1);
    longest[strlen(longest)] = 'x';
    assert_int_equal(tutti__override_parse(longest, &all), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_too_many(void **state)
{
    char text[4096] = "";
    size_t used = 0;
    tutti__override_t all;

    (void)state;
    for (unsigned i = 0; i < TUTTI__OVERRIDE_ITEMS; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "scan:%u-%u:chain,", i, i + 1);
    assert_int_equal(tutti__override_parse(text, &all), TUTTI_OK);
    assert_int_equal(all.n, TUTTI__OVERRIDE_ITEMS);
    snprintf(text + used, sizeof(text) - used, "barrier:node");
    assert_int_equal(tutti__override_parse(text, &all), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "more than 64 items"));
}

static void test_check_override(void **state)
{
    shape_t *one = shape_even(1, 4), *two = shape_split(2, (uint32_t[]){ 3, 2 });

    (void)state;
    assert_int_equal(tutti__algorithm_check_override(NULL, &one->shape), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("", &one->shape), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("broadcast:node", &one->shape), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("broadcast:node", NULL), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("broadcast:node", &two->shape),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "broadcast:node"));
    /* Each range is checked. */
    assert_int_equal(tutti__algorithm_check_override(
                         "allreduce:0-1k:ring,allreduce:1k-2k:node,barrier:node", &two->shape),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "allreduce:node"));
    assert_int_equal(tutti__algorithm_check_override("alltoall:recursive_doubling", &one->shape),
                     TUTTI_OK);
    shape_free(one);
    shape_free(two);
}

/* A text of parts of good and bad settings in any order may be accepted or refused, but must not
   lead to a crash. */
static void test_any_text(void **state)
{
    static const char *const pieces[] = { "allreduce",
                                          "broadcast",
                                          "allgather",
                                          "barrier",
                                          ":",
                                          ":",
                                          ":",
                                          ",",
                                          ";",
                                          "/",
                                          " ",
                                          "ring",
                                          "node",
                                          "binomial",
                                          "\n",
                                          "\t",
                                          "%s",
                                          "%",
                                          "",
                                          "\xff",
                                          "a",
                                          "knomial",
                                          "hierarchical",
                                          "0-",
                                          "4k",
                                          "(",
                                          ")",
                                          "4",
                                          "8m-1g",
                                          "-",
                                          "(4)",
                                          "reduce",
                                          "halving_d",
                                          "1k-2k",
                                          "@",
                                          "@a" };
    shape_t *one = shape_even(1, 4), *two = shape_split(2, (uint32_t[]){ 3, 2 });
    tutti__want_t want = { TUTTI__ALLREDUCE, 8, 0, 0 };
    char text[400], longest[3000];
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        tutti__choice_t choice = { .algorithm = NULL };
        const char *why = NULL;
        tutti_status_t status;

        text[0] = '\0';
        for (uint32_t n = random_next(&seed) % 12; n > 0; n--)
            strcat(text, pieces[random_next(&seed) % (sizeof(pieces) / sizeof(pieces[0]))]);
        status = tutti__algorithm_choose(&want, &one->shape, text, 0, &choice, &why);
        assert_true((status == TUTTI_OK) == (choice.algorithm != NULL));
        assert_true(status == TUTTI_OK || tutti__algorithm_check_override(text, NULL) != TUTTI_OK ||
                    strstr(tutti_last_error(), "was not read") != NULL);
        for (size_t k = 0; text[k] != '\0'; k++)
            text[k] = (char)(1 + random_next(&seed) % 255);
        (void)tutti__algorithm_check_override(text, &two->shape);
    }
    for (size_t n = 0; n < sizeof(longest) - 1; n += 100) {
        memset(longest, 'x', sizeof(longest));
        longest[n] = ':';
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(tutti__algorithm_check_override(longest, NULL),
                         TUTTI_ERR_INVALID_ARGUMENT);
    }
    shape_free(one);
    shape_free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),          cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_wrong),          cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_check_override), cmocka_unit_test(test_any_text),
        cmocka_unit_test(test_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
