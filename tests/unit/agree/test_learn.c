/* SPDX-License-Identifier: BSD-3-Clause */
/* What the coordinator learns from the order and the places of tensors; see learn.c. */
#include "agree/plan.h"
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    N = 14,
    COUNT = 16,
    BYTES = COUNT * 4
};

static tutti__learn_t learn;

/* Submit `count` elements that are at this place. */
static void submit_as(char name, uint64_t place, uint64_t count, const tutti__group_msg_t *group)
{
    tutti__metadata_t m = {
        .count = count, .op = TUTTI_SUM, .kind = TUTTI_CALL_ALLREDUCE, .dtype = TUTTI_FLOAT32
    };

    tutti__known_t *known = tutti__learn_entry(&learn, &name, 1, tutti__hash_name(&name, 1), &m);

    assert_non_null(known);
    if (tutti__learn_ends_step(&learn, known, group))
        tutti__learn_next_step(&learn);
    tutti__learn_note(&learn, known, &m, group, place);
}

/* Submit a tensor that is at this place in memory. 'L' and 'A' are names of two more tensors than
   the N tensors of submit_tensor. */
static void submit(char name, uint64_t place)
{
    static const tutti__group_msg_t alone;

    submit_as(name, place, COUNT, &alone);
}

/* Submit a group of the tensors `names`; the last one has `count` elements. */
static void submit_group(const char *names, uint64_t count)
{
    tutti__group_msg_t group = { tutti__hash_name(names, strlen(names)), 0,
                                 (uint32_t)strlen(names) };

    for (; group.index < group.size; group.index++)
        submit_as(names[group.index], 4096, group.index + 1 < group.size ? COUNT : count, &group);
}

static void submit_tensor(uint32_t t)
{
    submit((char)('a' + t), 4096 + t * BYTES);
}

/* Returns a plan [*ret_n] learned from the steps so far. Its buckets have four tensors; the first
   two buckets are smaller. */
static tutti__laid_t *plan(uint32_t *ret_n)
{
    tutti__agree_env_t env = { .size = 2, .plan_bytes = 4 * BYTES };
    tutti__laid_t *laid;
    int more;

    *ret_n = tutti__learn_regular(&learn, &more);
    laid = tutti__learn_lay_out(&learn, *ret_n, &env);
    assert_non_null(laid);
    return laid;
}

static char name_of(const tutti__laid_t *laid)
{
    return *tutti__tensor_names_text(&learn.names, laid->tensor);
}

static int open_learn(void **state)
{
    (void)state;
    learn = (tutti__learn_t){ 0 };
    tutti__learn_open(&learn);
    return 0;
}

static int close_learn(void **state)
{
    (void)state;
    tutti__learn_close(&learn);
    return 0;
}

/* A backward pass submits the tensors from the end of the memory to its beginning. So the plan's
   first buckets are at the end of the memory. Within a bucket, tensors are in the order of memory.
   A tensor that is submitted in some steps only does not change the plan. */
static void check_backward(int has_other)
{
    tutti__laid_t *laid;
    uint32_t n;

    for (int step = 0; step < 6; step++) {
        submit('L', 64);
        if (has_other && step % 2 == 0)
            submit('A', 128);
        for (uint32_t t = N; t-- > 0;)
            submit_tensor(t);
    }
    laid = plan(&n);
    assert_int_equal(n, N + 1);
    assert_int_equal(name_of(&laid[0]), 'L');
    for (uint32_t i = 2; i < n; i++) {
        assert_true(laid[i].bucket == laid[i - 1].bucket || laid[i].place < laid[i - 1].place);
        assert_true(laid[i].bucket > laid[i - 1].bucket || laid[i].place > laid[i - 1].place);
    }
    assert_int_equal(name_of(&laid[n - 1]), 'b');
    assert_true(laid[n - 1].is_adjacent);
    free(laid);
}

static void test_backward(void **state)
{
    (void)state;
    check_backward(0);
}

static void test_other_tensors(void **state)
{
    (void)state;
    check_backward(1);
}

/* Learn from steps that differ in their orders. waits: the program waits for the first tensor. */
static tutti__laid_t *plan_of_random_steps(int waits, uint32_t *ret_n)
{
    for (uint32_t step = 0; step < 6; step++) {
        learn.has_waited = 1;
        submit('L', 4096 + N * BYTES);
        learn.has_waited = waits;
        for (uint32_t i = 0; i < N; i++)
            submit_tensor((i * (step % 2 ? 5 : 3) + step * 3) % N);
    }
    return plan(ret_n);
}

/* Buckets consist of adjacent tensors even if the orders of the steps differ. */
static void test_random(void **state)
{
    uint32_t n, adjacent = 0;
    tutti__laid_t *laid = plan_of_random_steps(0, &n);

    (void)state;
    for (uint32_t i = 0; i < n; i++)
        adjacent += laid[i].is_adjacent;
    assert_true(adjacent >= N - 2);
    free(laid);
}

/* A bucket never has tensors from both sides of a wait. */
static void test_waits(void **state)
{
    uint32_t n;
    tutti__laid_t *laid = plan_of_random_steps(1, &n);

    (void)state;
    assert_int_equal(name_of(&laid[0]), 'L');
    assert_true(laid[1].bucket > laid[0].bucket);
    free(laid);
}

/* A step in the order of the plan, without tensor `but`; 0: with all tensors. */
static void repeat_step(const tutti__laid_t *laid, uint32_t n, char but)
{
    for (uint32_t i = 0; i < n; i++) {
        tutti__known_t *known = &learn.known[learn.planned[i]];

        if (name_of(&laid[i]) == but)
            continue;
        if (known->last_step == learn.step)
            tutti__learn_next_step(&learn);
        tutti__learn_repeat(&learn, known, laid[i].place);
    }
}

/* While a plan runs, its tensors are passed by their index in the plan. */
static void test_planned(void **state)
{
    tutti__laid_t *laid;
    uint32_t n;
    int more;

    (void)state;
    for (int step = 0; step < 4; step++)
        for (uint32_t t = N; t-- > 0;)
            submit_tensor(t);
    laid = plan(&n);
    assert_int_equal(n, N);
    tutti__learn_begin(&learn, laid, n);
    repeat_step(laid, n, 0);
    repeat_step(laid, n, 0);
    for (uint32_t i = 0; i < n; i++) {
        const tutti__known_t *known = &learn.known[laid[i].tensor];

        assert_int_equal(learn.planned[i], laid[i].tensor);
        assert_int_equal(known->streak, 6);
        assert_int_equal(known->position, i);
        assert_int_equal(known->place, laid[i].place);
        assert_true(known->is_planned);
    }
    assert_int_equal(tutti__learn_regular(&learn, &more), N);
    assert_false(more);
    /* A tensor that is missing in one step is not regular any more. */
    repeat_step(laid, n, 'c');
    repeat_step(laid, n, 0);
    assert_int_equal(tutti__learn_regular(&learn, &more), N - 1);
    tutti__learn_again(&learn, 0);
    assert_int_equal(learn.nplanned, 0);
    free(laid);
}

/* A group has buckets of its own, which follow each other. */
static void test_group(void **state)
{
    tutti__laid_t *laid;
    uint32_t n, other;

    (void)state;
    for (int step = 0; step < 6; step++) {
        submit('L', 64);
        submit('A', 128);
        submit_group("cabedf", COUNT);
        submit('B', 64);
        submit('C', 128);
    }
    laid = plan(&n);
    assert_int_equal(n, 10);
    for (uint32_t i = 2; i < 8; i++) {
        assert_int_equal(name_of(&laid[i]), "cabedf"[i - 2]);
        assert_true(laid[i].bucket > laid[1].bucket && laid[i].bucket < laid[8].bucket);
        assert_int_equal(laid[i].leader, laid[2].tensor + 1);
    }
    assert_true(laid[7].bucket > laid[2].bucket);
    other = laid[0].leader + laid[1].leader + laid[8].leader + laid[9].leader;
    assert_int_equal(other, 0);
    free(laid);
}

/* If one call of a group changes, or the group has other calls, the group is not regular. */
static void test_changing_groups(void **state)
{
    int more;

    (void)state;
    for (uint32_t step = 0; step < 9; step++) {
        submit('L', 64);
        submit_group("ab", COUNT + step);
        submit_group(step % 2 ? "cd" : "dc", COUNT);
        submit_group("ef", COUNT);
    }
    assert_int_equal(tutti__learn_regular(&learn, &more), 3);
    submit('L', 64);
    submit_group("ef", COUNT);
    submit_group("ab", COUNT);
    assert_int_equal(tutti__learn_regular(&learn, &more), 3);
    /* The first call cannot be planned, so it is not noted. */
    submit('L', 64);
    submit_group("fe", COUNT);
    for (int step = 0; step < 9; step++) {
        submit('L', 64);
        submit_as('f', 4096, COUNT, &(tutti__group_msg_t){ tutti__hash_name("ef", 2), 1, 2 });
        assert_int_equal(tutti__learn_regular(&learn, &more), 1);
    }
    /* After a group that lacks a call, later steps still begin with the first call of a group. */
    submit_group("LAB", COUNT);
    submit_group("AB", COUNT);
    for (int step = 0; step < 6; step++)
        submit_group("LAB", COUNT);
    assert_int_equal(tutti__learn_regular(&learn, &more), 3);
    /* A call is submitted in another group within the same step. */
    submit_group("CB", COUNT);
    assert_int_equal(tutti__learn_regular(&learn, &more), 0);
    submit_group("CB", COUNT);
    submit_group("CB", COUNT);
    submit_group("CB", COUNT);
    assert_int_equal(tutti__learn_regular(&learn, &more), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_backward, open_learn, close_learn),
        cmocka_unit_test_setup_teardown(test_other_tensors, open_learn, close_learn),
        cmocka_unit_test_setup_teardown(test_random, open_learn, close_learn),
        cmocka_unit_test_setup_teardown(test_waits, open_learn, close_learn),
        cmocka_unit_test_setup_teardown(test_planned, open_learn, close_learn),
        cmocka_unit_test_setup_teardown(test_group, open_learn, close_learn),
        cmocka_unit_test_setup_teardown(test_changing_groups, open_learn, close_learn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
