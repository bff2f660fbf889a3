/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for ranks that wait for each other. Random programs of up to 6 ranks run in memory,
 * with queues for the messages; names are used again and again. Whenever the coordinator reports a
 * circle, the circle must exist at this moment. When no rank can continue and ranks wait for each
 * other, the coordinator must have reported a circle. The test ends with some fixed cases.
 */
#include "agree/circle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 6
#define TENSORS 4
#define ACTIONS 24
#define SEEDS 4000
#define NONE UINT32_MAX

/* ---- random programs ---- */

typedef struct message message_t;
struct message {
    message_t *next;
    size_t bytes;
    char body[sizeof(tutti__question_t)];
};

typedef struct {
    message_t *first, **end;
} queue_t;

typedef struct {
    uint32_t rank, at;         /* at: the next action */
    uint32_t actions[ACTIONS]; /* t: submit tensor t; TENSORS + t: wait for it */
    int has[TENSORS];          /* submitted, and not served */
    uint32_t waits_for;        /* a tensor, or NONE */
    uint32_t wait, told;       /* numbers of waits */
    queue_t up, down;
} program_t;

static uint64_t state;
static uint32_t size;
static program_t program[MOST_RANKS];
static tutti__circle_t *circle;
static uint32_t found; /* circles reported */

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void put(queue_t *queue, const void *body, size_t bytes)
{
    message_t *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    memcpy(m->body, body, bytes);
    m->bytes = bytes;
    *queue->end = m;
    queue->end = &m->next;
}

static message_t *take(queue_t *queue)
{
    message_t *m = queue->first;

    if (m == NULL)
        return NULL;
    queue->first = m->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    return m;
}

static uint64_t hash_of(uint32_t tensor)
{
    return 1000 + tensor;
}

/* Report a long wait, or answer a question. */
static void tell(program_t *p, const tutti__question_t *question)
{
    tutti__stuck_msg_t msg = {
        .rank = p->rank, .wait = p->wait, .peer = { TUTTI__NOBODY, TUTTI__NOBODY }, .name_bytes = 1
    };
    char body[sizeof(msg) + 1];

    if (p->waits_for == NONE)
        return;
    msg.hash = hash_of(p->waits_for);
    msg.question = question != NULL ? question->number : 0;
    for (uint32_t i = 0; question != NULL && i < question->n; i++)
        if (!p->has[question->hash[i] - hash_of(0)])
            msg.lacks |= (uint64_t)1 << i;
    p->told = p->wait;
    memcpy(body, &msg, sizeof(msg));
    body[sizeof(msg)] = (char)('a' + p->waits_for);
    put(&p->up, body, sizeof(body));
}

/* If all ranks have submitted the tensor, it is served. */
static void serve(uint32_t tensor)
{
    for (uint32_t r = 0; r < size; r++)
        if (!program[r].has[tensor])
            return;
    for (uint32_t r = 0; r < size; r++) {
        program[r].has[tensor] = 0;
        if (program[r].waits_for == tensor)
            program[r].waits_for = NONE;
    }
}

static int act(program_t *p)
{
    uint32_t action;

    if (p->waits_for != NONE || p->at == ACTIONS)
        return 0;
    action = p->actions[p->at++];
    if (action >= TENSORS) {
        if (!p->has[action - TENSORS])
            return 1;
        p->waits_for = action - TENSORS;
        p->wait++;
        return 1;
    }
    /* A pending name cannot be used again: the program waits for it first. */
    if (p->has[action]) {
        p->at--;
        p->waits_for = action;
        p->wait++;
        return 1;
    }
    p->has[action] = 1;
    serve(action);
    return 1;
}

/* The reported ranks must form a circle at this moment. */
static void check_circle(uint32_t n)
{
    found++;
    for (uint32_t i = 0; i < n; i++) {
        const program_t *p = &program[circle->path[i]], *next = &program[circle->path[(i + 1) % n]];

        if (p->waits_for == NONE || next->waits_for == NONE || next->has[p->waits_for])
            fail_msg("circle of %u ranks: rank %u does not wait for rank %u", n, p->rank,
                     next->rank);
        assert_int_equal(circle->stuck[p->rank].name[0], 'a' + p->waits_for);
    }
}

static int search(void)
{
    int asks;
    uint32_t n;

    if (!tutti__circle_is_due(circle))
        return 0;
    n = tutti__circle_search(circle, &asks);
    if (n > 0)
        check_circle(n);
    for (uint32_t r = 0; asks && r < size; r++)
        put(&program[r].down, &circle->question, sizeof(circle->question));
    return 1;
}

/* Deliver a message to or from a rank. */
static int deliver(program_t *p, int is_up)
{
    message_t *m = take(is_up ? &p->up : &p->down);
    tutti__question_t question;

    if (m == NULL)
        return 0;
    if (is_up) {
        assert_true(tutti__circle_take(circle, m->body, m->bytes));
    } else {
        memcpy(&question, m->body, sizeof(question));
        tell(p, &question);
    }
    free(m);
    return 1;
}

static int step(program_t *p, uint32_t kind)
{
    switch (kind) {
    case 0:
        return act(p);
    case 1:
        if (p->waits_for == NONE || p->told == p->wait)
            return 0;
        tell(p, NULL);
        return 1;
    case 2:
        return search();
    default:
        return deliver(p, kind == 3);
    }
}

/* Make one possible step of any kind. Returns 0 if no step is possible. */
static int step_any(void)
{
    for (uint32_t kind = 0; kind < 5; kind++)
        for (uint32_t r = 0; r < size; r++)
            if (step(&program[r], kind))
                return 1;
    return 0;
}

/* Is there a path from rank `from` to rank `to`? A step of the path leads from a waiting rank to a
   rank that has not submitted the tensor of this wait. */
static int reaches(uint32_t from, uint32_t to, uint32_t seen)
{
    const program_t *p = &program[from];

    for (uint32_t r = 0; p->waits_for != NONE && r < size; r++) {
        if (program[r].has[p->waits_for])
            continue;
        if (r == to || (!(seen >> r & 1) && reaches(r, to, seen | 1u << r)))
            return 1;
    }
    return 0;
}

static void open_world(uint64_t seed)
{
    state = seed;
    size = 2 + draw(MOST_RANKS - 1);
    found = 0;
    memset(program, 0, sizeof(program));
    circle = tutti__circle_new(size);
    assert_non_null(circle);
    for (uint32_t r = 0; r < size; r++) {
        program_t *p = &program[r];

        p->rank = r;
        p->waits_for = NONE;
        p->up.end = &p->up.first;
        p->down.end = &p->down.first;
        /* The ranks run the same program, with few differences. */
        for (uint32_t i = 0; i < ACTIONS; i++)
            p->actions[i] = r == 0 || draw(40) == 0 ? draw(2 * TENSORS) : program[0].actions[i];
    }
}

static void run_seed(uint64_t seed)
{
    int has_circle = 0;

    open_world(seed);
    for (int i = 0; i < 1000; i++)
        step(&program[draw(size)], draw(5));
    while (step_any()) {
    }
    for (uint32_t r = 0; r < size; r++)
        has_circle |= reaches(r, r, 0);
    if ((found > 0) != has_circle)
        fail_msg("seed %llu: %u circles reported, %s", (unsigned long long)seed, found,
                 has_circle ? "but there is one" : "but there is none");
    tutti__circle_free(circle);
}

static void test_random(void **unused)
{
    uint32_t circles = 0, none = 0;

    (void)unused;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run_seed(seed);
        circles += found > 0;
        none += found == 0;
    }
    assert_in_range(circles, SEEDS / 10, SEEDS);
    assert_in_range(none, SEEDS / 10, SEEDS);
}

/* ---- fixed cases ---- */

static void give_wait(uint32_t rank, uint32_t wait, uint64_t hash, uint32_t peer, uint64_t lacks)
{
    const tutti__stuck_msg_t msg = { .hash = hash,
                                     .lacks = lacks,
                                     .rank = rank,
                                     .wait = wait,
                                     .question = circle->question.number,
                                     .peer = { peer, TUTTI__NOBODY } };

    assert_true(tutti__circle_take(circle, &msg, sizeof(msg)));
}

static void give(uint32_t rank, uint64_t hash, uint32_t peer, uint64_t lacks)
{
    give_wait(rank, 1, hash, peer, lacks);
}

/* Rank r waits for tensor r, and lacks these tensors. */
static void answer(uint32_t rank, uint32_t wait, int lacks0, int lacks1, int lacks2, int lacks3)
{
    const int lacks[4] = { lacks0, lacks1, lacks2, lacks3 };
    uint64_t bits = 0;

    for (uint32_t i = 0; i < circle->question.n; i++)
        bits |= (uint64_t)lacks[circle->question.hash[i] - hash_of(0)] << i;
    give_wait(rank, wait, hash_of(rank), TUTTI__NOBODY, bits);
}

/* Search, and check that *ret_asks is `wanted`. Returns the number of ranks in the circle. */
static uint32_t search_again(int wanted)
{
    int asks;
    uint32_t n = tutti__circle_search(circle, &asks);

    assert_int_equal(asks, wanted);
    return n;
}

static void open_four(void)
{
    circle = tutti__circle_new(4);
    assert_non_null(circle);
    for (uint32_t r = 0; r < 4; r++)
        answer(r, 1, 0, 0, 0, 0);
    assert_int_equal(search_again(1), 0);
}

/* A rank's two answers count only if they are about the same wait. */
static void test_other_wait(void **unused)
{
    (void)unused;
    open_four();
    answer(0, 1, 0, 1, 0, 0);
    answer(1, 1, 1, 0, 0, 0);
    assert_int_equal(search_again(1), 0);
    answer(0, 1, 0, 1, 0, 0);
    answer(1, 2, 1, 0, 0, 0);
    assert_int_equal(search_again(1), 0);
    answer(0, 1, 0, 1, 0, 0);
    answer(1, 2, 1, 0, 0, 0);
    assert_int_equal(search_again(0), 2);
    tutti__circle_free(circle);
}

/* The answers of ranks 2 and 3 are the reason for the second question. When this question was sent,
   rank 0 had submitted tensor 1. Tensor 1 was served afterwards. */
static void test_other_answer(void **unused)
{
    (void)unused;
    open_four();
    answer(0, 1, 0, 0, 0, 0);
    answer(1, 1, 1, 0, 0, 0);
    answer(2, 1, 0, 0, 0, 1);
    answer(3, 1, 0, 0, 1, 0);
    assert_int_equal(search_again(1), 0);
    answer(0, 1, 0, 1, 0, 0);
    answer(1, 1, 1, 0, 0, 0);
    assert_int_equal(search_again(1), 0);
    answer(0, 1, 0, 1, 0, 0);
    answer(1, 1, 1, 0, 0, 0);
    assert_int_equal(search_again(0), 2);
    tutti__circle_free(circle);
}

/* Two circles at once: each is reported, once. */
static void test_two_circles(void **unused)
{
    (void)unused;
    open_four();
    for (int i = 0; i < 2; i++) {
        answer(0, 1, 0, 1, 0, 0);
        answer(1, 1, 1, 0, 0, 0);
        answer(2, 1, 0, 0, 0, 1);
        answer(3, 1, 0, 0, 1, 0);
        if (i == 0)
            assert_int_equal(search_again(1), 0);
    }
    assert_int_equal(search_again(0), 2);
    assert_int_equal(circle->path[0], 0);
    assert_int_equal(search_again(0), 2);
    assert_int_equal(circle->path[0], 2);
    assert_int_equal(search_again(0), 0);
    assert_false(tutti__circle_is_due(circle));
    tutti__circle_free(circle);
}

/* Ranks 0 and 1 are stuck, and answer two questions. Rank 2 is stuck as well, but does not answer.
   Returns the number of ranks in the circle. */
static uint32_t run_pair(uint64_t hash0, uint32_t peer0, uint64_t hash1, uint32_t peer1)
{
    uint64_t bit0 = hash0 != 0, bit1 = hash1 != 0 ? (uint64_t)1 << bit0 : 0;
    uint32_t n = 0;
    int asks;

    circle = tutti__circle_new(3);
    assert_non_null(circle);
    give(0, hash0, peer0, 0);
    give(1, hash1, peer1, 0);
    give(2, 9, TUTTI__NOBODY, 0);
    for (int i = 0; i < 3 && n == 0; i++) {
        n = tutti__circle_search(circle, &asks);
        if (!asks)
            break;
        give(0, hash0, peer0, bit1);
        give(1, hash1, peer1, bit0);
    }
    if (n > 0)
        assert_int_equal(circle->question.number, 2);
    tutti__circle_free(circle);
    return n;
}

static void test_peers(void **unused)
{
    (void)unused;
    assert_int_equal(run_pair(7, TUTTI__NOBODY, 8, TUTTI__NOBODY), 2);
    assert_int_equal(run_pair(7, 1, 8, 0), 2); /* messages */
    assert_int_equal(run_pair(7, 1, 8, 2), 0); /* rank 1 waits for a message of rank 2 */
    assert_int_equal(run_pair(7, TUTTI__NOBODY, 0, 0), 2); /* rank 1 is in a direct call */
    assert_int_equal(run_pair(7, TUTTI__NOBODY, 0, 2), 0);
    assert_int_equal(run_pair(0, 1, 0, 0), 0); /* both are in direct calls */
}

/* More tensors than a question has. */
static void test_many(void **unused)
{
    enum {
        RANKS = 100
    };
    uint32_t n = 0;
    int asks = 1;

    (void)unused;
    circle = tutti__circle_new(RANKS);
    assert_non_null(circle);
    for (uint32_t r = 0; r < RANKS; r++)
        give(r, 1 + r, TUTTI__NOBODY, 0);
    while (n == 0 && asks) {
        n = tutti__circle_search(circle, &asks);
        /* Each rank waits for the next one, except that rank 40 waits for rank 30. */
        for (uint32_t r = 0; n == 0 && r < RANKS; r++)
            give(r, 1 + r, TUTTI__NOBODY,
                 (r > 0 && r <= TUTTI__QUESTION_TENSORS ? (uint64_t)1 << (r - 1) : 0) |
                     (r == 30 ? (uint64_t)1 << 40 : 0));
    }
    assert_int_equal(n, 11);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(circle->path[i], 30 + i);
    assert_int_equal(tutti__circle_search(circle, &asks), 0);
    tutti__circle_free(circle);
}

static void test_damage(void **unused)
{
    const tutti__stuck_msg_t good = { .rank = 1, .wait = 1, .hash = 7 };
    tutti__stuck_msg_t bad = good;

    (void)unused;
    circle = tutti__circle_new(2);
    assert_non_null(circle);
    assert_true(tutti__circle_take(circle, &good, sizeof(good)));
    assert_false(tutti__circle_take(circle, &good, sizeof(good) - 1));
    bad.rank = 2;
    assert_false(tutti__circle_take(circle, &bad, sizeof(bad)));
    bad = good;
    bad.name_bytes = 1;
    assert_false(tutti__circle_take(circle, &bad, sizeof(bad)));
    bad = good;
    bad.wait = 0;
    assert_false(tutti__circle_take(circle, &bad, sizeof(bad)));
    tutti__circle_free(circle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),      cmocka_unit_test(test_peers),
        cmocka_unit_test(test_other_wait),  cmocka_unit_test(test_other_answer),
        cmocka_unit_test(test_two_circles), cmocka_unit_test(test_many),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
