/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreed tensors with the highest priority form the next bucket. */
#include "unit/agree/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    COUNT = 64,
    BYTES = COUNT * 4
};

/* The names that each rank was told to serve; a space ends a bucket. */
static char served[2][64];

static int serve(void *owner, const tutti__agreed_t *tensor)
{
    strncat(served[pair_rank(owner)], tensor->name, tensor->name_bytes);
    strcat(served[pair_rank(owner)], tensor->last ? " " : "");
    return 1;
}

static void reject(void *owner, const tutti__rejected_t *tensor)
{
    (void)owner;
    fail_msg("%s", tensor->text);
}

static void fail_now(void *owner, tutti_status_t status, const char *text)
{
    (void)owner;
    (void)status;
    fail_msg("%s", text);
}

static uint64_t no_time(void *owner)
{
    (void)owner;
    return 1;
}

static int open_ranks(void **state)
{
    static const tutti__agree_ops_t ops = {
        .send = pair_send, .serve = serve, .reject = reject, .fail = fail_now, .now_ns = no_time
    };

    (void)state;
    memset(served, 0, sizeof(served));
    pair_open(&ops, 2 * BYTES);
    return 0;
}

static void submit(uint32_t rank, char name, uint8_t priority)
{
    static const tutti__group_msg_t alone;
    tutti__metadata_t m = { .count = COUNT,
                            .op = TUTTI_SUM,
                            .kind = TUTTI_CALL_ALLREDUCE,
                            .dtype = TUTTI_FLOAT32,
                            .priority = priority };

    tutti__agree_submit(pair[rank], &name, 1, &m, &alone);
}

static void check_buckets(const char *want)
{
    while (tutti__agree_bucket(pair[0])) {
    }
    assert_string_equal(served[0], want);
    assert_string_equal(served[1], want);
}

/* Tensors with a higher priority are served first. Tensors of equal priority keep their order, and
   only they share a bucket. */
static void test_order(void **state)
{
    const char names[] = "abcdefg";
    const uint8_t priorities[] = { 0, 0, 0, 5, 0, 9, 5 };

    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++)
        for (int i = 0; names[i] != '\0'; i++)
            submit(rank, names[i], priorities[i]);
    check_buckets("f dg ab ce ");
}

/* The highest priority of the ranks counts, whether the first rank that submits the tensor has it
   (c) or the last one (d). */
static void test_one_rank(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        submit(rank, 'a', 0);
        submit(rank, 'b', 0);
        submit(rank, 'c', rank == 0 ? 1 : 0);
        submit(rank, 'd', rank == 0 ? 0 : 2);
    }
    check_buckets("d c ab ");
}

/* A tensor with a priority does not overtake a bucket that has been sent. */
static void test_late(void **state)
{
    (void)state;
    for (char name = 'a'; name < 'g'; name++)
        for (uint32_t rank = 0; rank < 2; rank++)
            submit(rank, name, 0);
    assert_int_equal(tutti__agree_bucket(pair[0]), 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        submit(rank, 'g', 1);
    check_buckets("ab g cd ef ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_one_rank, open_ranks, pair_close),
        cmocka_unit_test_setup_teardown(test_late, open_ranks, pair_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
