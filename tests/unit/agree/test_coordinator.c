/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coordinator: the grace periods of conflicts in one slot of the table of tensors, impossible
 * announcements, and the texts for ranks that wait for different tensors.
 */
#include "agree/tensors.h"

#include "base/constants.h"
#include "base/hash.h"
#include "unit/agree/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BEGIN_NS = 1000
};

static const tutti__group_msg_t alone;
static const tutti__metadata_t sum = {
    .count = 8, .op = TUTTI_SUM, .kind = TUTTI_CALL_ALLREDUCE, .dtype = TUTTI_FLOAT32
};
static uint64_t now_ns;
/* The names that each rank was told to reject, each with a space behind it. */
static char rejected[2][128];
static tutti_status_t failed;
static char failed_text[64];

static int serve(void *owner, const tutti__agreed_t *tensor)
{
    (void)owner;
    fail_msg("%.*s is served", (int)tensor->name_bytes, tensor->name);
    return 1;
}

static void reject(void *owner, const tutti__rejected_t *tensor)
{
    char *list = rejected[pair_rank(owner)];
    size_t at = strlen(list);

    assert_int_equal(tensor->status, TUTTI_ERR_MISMATCH);
    snprintf(list + at, sizeof(rejected[0]) - at, "%.*s ", (int)tensor->name_bytes, tensor->name);
}

static void take_failure(void *owner, tutti_status_t status, const char *text)
{
    (void)owner;
    failed = status;
    snprintf(failed_text, sizeof(failed_text), "%s", text);
}

static uint64_t get_time(void *owner)
{
    (void)owner;
    return now_ns;
}

static const char *name_of(void *owner, uint32_t rank)
{
    (void)owner;
    return rank == 0 ? "rank 0" : "rank 1";
}

static uint32_t in_world(void *owner, uint32_t rank, int *ret_is_group)
{
    (void)owner;
    *ret_is_group = 0;
    return rank;
}

static int open_ranks(void **state)
{
    static const tutti__agree_ops_t ops = { .send = pair_send,
                                            .serve = serve,
                                            .reject = reject,
                                            .fail = take_failure,
                                            .now_ns = get_time,
                                            .rank_name = name_of,
                                            .world_rank = in_world };

    (void)state;
    now_ns = BEGIN_NS;
    memset(rejected, 0, sizeof(rejected));
    failed = TUTTI_OK;
    failed_text[0] = '\0';
    pair_open(&ops, 0);
    return 0;
}

static void submit(uint32_t rank, const char *name, const tutti__group_msg_t *group)
{
    tutti__agree_submit(pair[rank], name, strlen(name), &sum, group);
}

/* ---- conflicts in one slot of the table ---- */

/* Rank 0 submits both tensors in one group. */
static void submit_group(uint64_t hash, const char *name, const char *second)
{
    submit(0, name, &(tutti__group_msg_t){ hash, 0, 2 });
    submit(0, second, &(tutti__group_msg_t){ hash, 1, 2 });
}

static uint64_t slot_of(const char *name)
{
    return tutti__hash_name(name, strlen(name)) % TUTTI__TENSOR_BUCKETS;
}

/* The conflict of `other` is older than that of `first`, although `first` is before `other` in the
   slot. */
static void test_one_slot(void **state)
{
    char other[16], wanted[64];
    int i = 0;

    (void)state;
    do
        snprintf(other, sizeof(other), "t%d", i++);
    while (slot_of(other) != slot_of("first"));
    submit_group(1, "first", "second");
    submit_group(2, other, "fourth");
    submit(1, other, &alone);
    now_ns = BEGIN_NS + TUTTI__CONFLICT_NS / 2;
    submit(1, "first", &alone);

    now_ns = BEGIN_NS + TUTTI__CONFLICT_NS;
    tutti__agree_late(pair[0]);
    snprintf(wanted, sizeof(wanted), "%s fourth ", other);
    assert_string_equal(rejected[0], wanted);
    snprintf(wanted, sizeof(wanted), "%s ", other);
    assert_string_equal(rejected[1], wanted);

    now_ns = BEGIN_NS + 2 * (uint64_t)TUTTI__CONFLICT_NS;
    tutti__agree_late(pair[0]);
    snprintf(wanted, sizeof(wanted), "%s fourth first second ", other);
    assert_string_equal(rejected[0], wanted);
    snprintf(wanted, sizeof(wanted), "%s first ", other);
    assert_string_equal(rejected[1], wanted);
    assert_int_equal(failed, TUTTI_OK);
}

/* ---- impossible announcements ---- */

static void check_damage(void)
{
    assert_int_equal(failed, TUTTI_ERR_INTERNAL);
    assert_string_equal(failed_text, "an announcement is damaged");
}

static void test_announced_twice(void **state)
{
    const tutti__metadata_t m = {
        .count = 8, .kind = TUTTI_CALL_SEND, .dtype = TUTTI_FLOAT32, .source = TUTTI__NOBODY
    };

    (void)state;
    tutti__agree_submit(pair[1], "message", 7, &m, &alone);
    assert_int_equal(failed, TUTTI_OK);
    tutti__agree_submit(pair[1], "message", 7, &m, &alone);
    check_damage();
}

static void test_no_first_call(void **state)
{
    (void)state;
    submit(1, "second", &(tutti__group_msg_t){ 1, 1, 2 });
    check_damage();
}

static void test_first_call_twice(void **state)
{
    (void)state;
    submit(1, "first", &(tutti__group_msg_t){ 1, 0, 2 });
    assert_int_equal(failed, TUTTI_OK);
    submit(1, "second", &(tutti__group_msg_t){ 1, 0, 2 });
    check_damage();
}

static void test_two_groups(void **state)
{
    (void)state;
    submit(1, "first", &(tutti__group_msg_t){ 1, 0, 2 });
    submit(1, "second", &(tutti__group_msg_t){ 2, 1, 2 });
    check_damage();
}

/* ---- texts ---- */

static void check_missing(uint32_t rank, const char *name, int certain, const char *wanted)
{
    char text[256];

    assert_int_equal(tutti__agree_missing(pair[rank], name, strlen(name), &sum, text, sizeof(text)),
                     certain);
    assert_string_equal(text, wanted);
}

/* Rank 1 is late with a tensor, and then waits for another one. The text names the first of the two
   tensors that rank 1 has submitted. */
static void test_different_tensors(void **state)
{
    (void)state;
    submit(0, "weight", &alone);
    check_missing(0, "weight", 1, "rank 1 has not submitted it");
    submit(1, "bias", &alone);
    now_ns++;
    submit(1, "scale", &alone);
    check_missing(0, "weight", 1,
                  "rank 1 has not submitted it; tensor 'bias', which rank 1 has submitted, waits "
                  "as well: rank 0 has not submitted it");
    check_missing(1, "bias", 0,
                  "rank 0 has not reported it as submitted by all ranks; if a rank is missing, a "
                  "warning of rank 0 names it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_slot, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_announced_twice, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_no_first_call, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_first_call_twice, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_two_groups, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_different_tensors, open_ranks, pair_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
