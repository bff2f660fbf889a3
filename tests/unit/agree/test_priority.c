/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreed tensors with the highest priority form the next bucket. Two ranks in one process, whose
   messages arrive at once. */
#include "agree/agree.h"

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

static tutti__agree_t *agree[2];
/* The names that each rank was told to serve; a space ends a bucket. */
static char served[2][64];
static uint32_t self[2] = { 0, 1 };

static uint32_t rank_of(void *owner)
{
    return *(uint32_t *)owner;
}

static void pass(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
                 int urgent)
{
    _Alignas(8) char copy[1024];

    (void)urgent;
    assert_int_equal(link, 0);
    assert_true(bytes <= sizeof(copy));
    memcpy(copy, body, bytes);
    tutti__agree_message(agree[1 - rank_of(owner)], 0, kind, copy, bytes);
}

static int serve(void *owner, const tutti__agreed_t *tensor)
{
    strncat(served[rank_of(owner)], tensor->name, tensor->name_bytes);
    strcat(served[rank_of(owner)], tensor->last ? " " : "");
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
        .send = pass, .serve = serve, .reject = reject, .fail = fail_now, .now_ns = no_time
    };
    static const uint32_t all[2] = { 0, 1 };
    static const tutti__agree_link_t down = { 1, 1, &all[1] }, up = { 0, 0, &all[0] };

    (void)state;
    memset(served, 0, sizeof(served));
    for (uint32_t r = 0; r < 2; r++) {
        tutti__agree_env_t env = { .rank = r,
                                   .size = 2,
                                   .parent = r == 0 ? -1 : 0,
                                   .nlinks = 1,
                                   .links = r == 0 ? &down : &up,
                                   .bucket_bytes = 2 * BYTES,
                                   .ops = &ops,
                                   .owner = &self[r] };

        assert_int_equal(tutti__agree_open(&env, &agree[r]), TUTTI_OK);
    }
    return 0;
}

static int close_ranks(void **state)
{
    (void)state;
    tutti__agree_close(agree[0]);
    tutti__agree_close(agree[1]);
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

    tutti__agree_submit(agree[rank], &name, 1, &m, &alone);
}

static void check_buckets(const char *want)
{
    while (tutti__agree_bucket(agree[0])) {
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

/* The highest priority of the ranks counts, on the first rank that submits the tensor (c) as on the
   last (d). */
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
    assert_int_equal(tutti__agree_bucket(agree[0]), 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        submit(rank, 'g', 1);
    check_buckets("ab g cd ef ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, open_ranks, close_ranks),
        cmocka_unit_test_setup_teardown(test_one_rank, open_ranks, close_ranks),
        cmocka_unit_test_setup_teardown(test_late, open_ranks, close_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
