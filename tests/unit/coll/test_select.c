/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm is taken, and what TUTTI_ALGORITHM may say.
 */
#include "base/status.h"
#include "unit/coll/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SMALL ((size_t)256 << 10)

static shape_t *one_host, *hosts_3_2, *hosts_1;

static int make_shapes(void **state)
{
    (void)state;
    one_host = shape_even(1, 4);
    hosts_3_2 = shape_split(2, (uint32_t[]){ 3, 2 });
    hosts_1 = shape_even(4, 1);
    return 0;
}

static int free_shapes(void **state)
{
    (void)state;
    shape_free(one_host);
    shape_free(hosts_3_2);
    shape_free(hosts_1);
    return 0;
}

/* "name" or "name/sub" is chosen. */
static void chosen(tutti__collective_t collective, const shape_t *shape, size_t bytes,
                   const char *override, int fixed, const char *want)
{
    const tutti__algorithm_t *algorithm = NULL;
    const char *sub = NULL;
    char have[80];

    if (tutti__algorithm_choose(collective, &shape->shape, bytes, override, fixed, &algorithm,
                                &sub) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    snprintf(have, sizeof(have), "%s%s%s", algorithm->name, sub != NULL ? "/" : "",
             sub != NULL ? sub : "");
    assert_string_equal(have, want);
    assert_int_equal(algorithm->collective, collective);
}

static void refused(tutti__collective_t collective, const shape_t *shape, const char *override,
                    int fixed, tutti_status_t status, const char *text)
{
    const tutti__algorithm_t *algorithm = NULL;
    const char *sub = NULL;

    assert_int_equal(
        tutti__algorithm_choose(collective, &shape->shape, 8, override, fixed, &algorithm, &sub),
        status);
    assert_true(algorithm == NULL && sub == NULL);
    if (strstr(tutti_last_error(), text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, tutti_last_error());
}

static void test_seeds(void **state)
{
    (void)state;
    for (int c = 0; c < TUTTI__COLLECTIVES; c++) {
        chosen((tutti__collective_t)c, one_host, 8, NULL, 0, "node");
        chosen((tutti__collective_t)c, one_host, SIZE_MAX, "", 1, "node");
    }
    chosen(TUTTI__ALLREDUCE, hosts_3_2, SMALL, NULL, 0, "hierarchical/recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, SMALL + 1, NULL, 0, "hierarchical/ring");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, SMALL + 1, NULL, 1, "hierarchical/recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_1, 8, NULL, 0, "hierarchical/recursive_doubling");
    chosen(TUTTI__BROADCAST, hosts_3_2, 8, NULL, 0, "binomial");
    chosen(TUTTI__ALLGATHER, hosts_3_2, 8, NULL, 1, "ring");
    chosen(TUTTI__BARRIER, hosts_1, 0, NULL, 0, "dissemination");
}

static void test_override(void **state)
{
    static const char both[] = "allreduce:ring,broadcast:binomial";

    (void)state;
    chosen(TUTTI__ALLREDUCE, one_host, 8, both, 0, "ring");
    chosen(TUTTI__BROADCAST, one_host, 8, both, 0, "binomial");
    chosen(TUTTI__BARRIER, one_host, 8, both, 0, "node");
    chosen(TUTTI__ALLGATHER, one_host, 8, " allgather : ring ;", 0, "ring");
    chosen(TUTTI__BARRIER, one_host, 8, ",;,barrier:dissemination;;", 0, "dissemination");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:hierarchical", 0,
           "hierarchical/recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, SMALL + 1, "allreduce:hierarchical", 0,
           "hierarchical/ring");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:hierarchical/ring", 0, "hierarchical/ring");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, SMALL + 1, "allreduce:hierarchical / recursive_doubling", 0,
           "hierarchical/recursive_doubling");
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "allreduce:recursive_doubling", 1, "recursive_doubling");
    /* What it says about another collective may be refused without harm here. */
    chosen(TUTTI__ALLREDUCE, hosts_3_2, 8, "broadcast:node,allreduce:ring", 0, "ring");
}

static void test_override_refused(void **state)
{
    static const struct {
        const char *override, *text;
    } wrong[] = {
        { "ring", "\"ring\" is not of the form" },
        { "allreduce", "not of the form" },
        { "allreduce:", "allreduce has no algorithm called \"\"; there are node, hierarchical, "
                        "recursive_doubling, ring" },
        { ":ring", "no collective is called \"\"; there are allreduce, broadcast" },
        { "allreduce:rong", "no algorithm called \"rong\"" },
        { "allreduce:ring:x", "no algorithm called \"ring:x\"" },
        { "allreduce:Ring", "no algorithm called \"Ring\"" },
        { "allreduc:ring", "no collective is called \"allreduc\"" },
        { "barrier:ring", "barrier has no algorithm called \"ring\"; there are node, dissemi" },
        { "allreduce:ring,allreduce:node", "allreduce is named twice" },
        { "allreduce:ring/ring", "allreduce:ring has no algorithm \"ring\" inside" },
        { "allreduce:hierarchical/", "has no algorithm \"\" inside" },
        { "allreduce:hierarchical/node", "has no algorithm \"node\" inside" },
        { "broadcast:binomial,nonsense", "\"nonsense\" is not of the form" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        refused(TUTTI__ALLREDUCE, one_host, wrong[i].override, 0, TUTTI_ERR_INVALID_ARGUMENT,
                wrong[i].text);
        assert_int_equal(tutti__algorithm_check_override(wrong[i].override, &one_host->shape),
                         TUTTI_ERR_INVALID_ARGUMENT);
        assert_int_equal(tutti__algorithm_check_override(wrong[i].override, NULL),
                         TUTTI_ERR_INVALID_ARGUMENT);
    }
}

static void test_unsupported(void **state)
{
    (void)state;
    refused(TUTTI__ALLREDUCE, hosts_3_2, "allreduce:node", 0, TUTTI_ERR_UNSUPPORTED,
            "TUTTI_ALGORITHM=allreduce:node cannot be used: it serves the ranks of one host only");
    refused(TUTTI__BARRIER, hosts_1, "barrier:node", 0, TUTTI_ERR_UNSUPPORTED, "barrier:node");
    refused(TUTTI__ALLREDUCE, one_host, "allreduce:ring", 1, TUTTI_ERR_UNSUPPORTED,
            "allreduce:ring cannot be used: its association");
    refused(TUTTI__ALLREDUCE, hosts_3_2, "allreduce:hierarchical/ring", 1, TUTTI_ERR_UNSUPPORTED,
            "allreduce:hierarchical/ring cannot be used");
}

static void test_check_override(void **state)
{
    (void)state;
    assert_int_equal(tutti__algorithm_check_override(NULL, &one_host->shape), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("", &one_host->shape), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("broadcast:node", &one_host->shape), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("broadcast:node", NULL), TUTTI_OK);
    assert_int_equal(tutti__algorithm_check_override("broadcast:node", &hosts_3_2->shape),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "broadcast:node"));
}

/* Pieces of good and bad settings in any order: an answer, whatever it is, and no crash. */
static void test_any_text(void **state)
{
    static const char *const pieces[] = {
        "allreduce", "broadcast", "allgather", "barrier", ":",    ":",        ",",
        ";",         "/",         " ",         "ring",    "node", "binomial", "\n",
        "\t",        "%s",        "%",         "",        "\xff", "a",        "hierarchical",
    };
    char text[400], longest[3000];
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const tutti__algorithm_t *algorithm = NULL;
        const char *sub;
        tutti_status_t status;

        text[0] = '\0';
        for (uint32_t n = random_next(&seed) % 12; n > 0; n--)
            strcat(text, pieces[random_next(&seed) % (sizeof(pieces) / sizeof(pieces[0]))]);
        status = tutti__algorithm_choose(TUTTI__ALLREDUCE, &one_host->shape, 8, text, 0, &algorithm,
                                         &sub);
        assert_true((status == TUTTI_OK) == (algorithm != NULL));
        assert_true(status == TUTTI_OK || tutti__algorithm_check_override(text, NULL) != TUTTI_OK);
        for (size_t k = 0; text[k] != '\0'; k++)
            text[k] = (char)(1 + random_next(&seed) % 255);
        (void)tutti__algorithm_check_override(text, &hosts_3_2->shape);
    }
    for (size_t n = 0; n < sizeof(longest) - 1; n += 100) {
        memset(longest, 'x', sizeof(longest));
        longest[n] = ':';
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(tutti__algorithm_check_override(longest, NULL),
                         TUTTI_ERR_INVALID_ARGUMENT);
    }
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
    assert_string_equal(tutti__collective_name(TUTTI__ALLGATHER), "allgather");
    assert_string_equal(tutti__collective_name(TUTTI__COLLECTIVES), "?");
}

static void test_unknown_sub(void **state)
{
    const tutti__algorithm_t *a = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical");
    tutti__coll_args_t args = { .sub = "binomial" };
    tutti__sched_t *sched = NULL;

    (void)state;
    assert_int_equal(a->build(&hosts_3_2->shape, &args, &sched), TUTTI_ERR_INVALID_ARGUMENT);
    assert_null(sched);
}

/* Where there is one host, or one rank on each, hierarchical is another algorithm. */
static void test_hierarchical_degenerates(void **state)
{
    static const tutti__op_kind_t first[] = { TUTTI__LOOP, TUTTI__NODE_ALLREDUCE };
    const shape_t *shapes[] = { hosts_1, one_host };
    const tutti__algorithm_t *a = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical");
    tutti__coll_args_t args = { .rank = 2 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        tutti__sched_t *sched = NULL;

        assert_int_equal(a->build(&shapes[i]->shape, &args, &sched), TUTTI_OK);
        assert_int_equal(sched->nstreams, 1);
        assert_int_equal(sched->ops[0].kind, first[i]);
        tutti__sched_free(sched);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_override),
        cmocka_unit_test(test_override_refused),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_check_override),
        cmocka_unit_test(test_any_text),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_unknown_sub),
        cmocka_unit_test(test_hierarchical_degenerates),
    };

    return cmocka_run_group_tests(tests, make_shapes, free_shapes);
}
