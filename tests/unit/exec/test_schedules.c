/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with hand-written schedules (hand.h), and with failures: ranks with different calls,
 * and runs that are cancelled in the middle.
 */
#include "coll/coll.h"
#include "sched/build.h"
#include "sched/check.h"
#include "unit/coll/shapes.h"
#include "unit/exec/data.h"
#include "unit/exec/hand.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 1200
};

/* An allreduce under construction: buffers of MOST elements of up to 8 bytes. */
typedef struct {
    data_t data;
    size_t count;
    char in[WORLD_RANKS][MOST * 8], out[WORLD_RANKS][MOST * 8];
    tutti__exec_call_t call[WORLD_RANKS];
} sum_t;

static void sum_fill(sum_t *sum, tutti_dtype_t dtype, tutti_op_t op, uint32_t n, size_t count,
                     uint32_t seed)
{
    assert_true(count <= MOST);
    sum->data = (data_t){ .dtype = dtype, .op = op, .nranks = n, .seed = seed };
    sum->count = count;
    for (uint32_t r = 0; r < n; r++) {
        memset(sum->out[r], 0xee, sizeof(sum->out[r]));
        for (size_t i = 0; i < count; i++)
            data_put(&sum->data, sum->in[r], r, i);
        sum->call[r] = (tutti__exec_call_t){ .in = sum->in[r],
                                             .out = sum->out[r],
                                             .count = count,
                                             .dtype = dtype,
                                             .op = op,
                                             .signature = 7 };
    }
}

static void sum_check(const sum_t *sum, const char *what)
{
    for (uint32_t r = 0; r < sum->data.nranks; r++) {
        for (size_t i = 0; i < sum->count; i++)
            if (!data_is_fold(&sum->data, sum->out[r], i))
                fail_msg("%s: %zu elements: element %zu of rank %u is %g, not %g", what, sum->count,
                         i, r, data_get(&sum->data, sum->out[r], i), data_fold(&sum->data, i));
    }
}

/* ---- hand-written ---- */

static void hand_build(const hand_t *hand, uint32_t n, tutti__sched_t **scheds)
{
    for (uint32_t r = 0; r < n; r++)
        if (hand->build(r, n, &scheds[r]) != TUTTI_OK)
            fail_msg("%s: %s", hand->name, tutti_last_error());
}

static void free_all(tutti__sched_t **scheds, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        tutti__sched_free(scheds[r]);
}

/* The executor must be able to run every schedule that the checker proves. If the checker reports a
   deadlock, the executor must deadlock as well. */
static void hand_prove(const hand_t *hand, tutti__sched_t **scheds, uint32_t n, uint32_t credits)
{
    char why[1200];

    for (uint32_t trips = 2; trips < 5; trips++) {
        tutti__check_t check = { .expect = TUTTI__EXPECT_ALLREDUCE,
                                 .size = n,
                                 .scheds = scheds,
                                 .credits = credits,
                                 .trips = trips };
        tutti_status_t status = tutti__sched_check(&check, why, sizeof(why));

        if ((status == TUTTI_OK) != (credits >= hand->least_credits))
            fail_msg("%s, %u ranks, %u credits, %u trips: %s", hand->name, n, credits, trips,
                     status == TUTTI_OK ? "proved" : why);
    }
}

static void hand_deadlock(team_t *team, tutti__sched_t **scheds, sum_t *sum)
{
    for (int order = 0; order < ORDERS; order++) {
        crew_t crew;

        crew_open(&crew, team, (uint32_t)order % TUTTI__LANES);
        sum_fill(sum, TUTTI_INT64, TUTTI_SUM, team->world.n, 1000, 1);
        crew_set(&crew, scheds, sum->call);
        assert_false(crew_drive(&crew, (order_t)order, 1, 0));
        assert_int_equal(crew.member[0].state, MEMBER_RUNS);
        crew_cancel(&crew);
        crew_close(&crew);
    }
}

static void hand_calls(const hand_t *hand, team_t *team, tutti__sched_t **scheds, sum_t *sum)
{
    static const size_t counts[] = { 1, 2, 3, 5, 6, 7, 64, 100, 1000 };
    static const tutti_dtype_t dtypes[] = { TUTTI_INT64, TUTTI_BFLOAT16, TUTTI_FLOAT32,
                                            TUTTI_UINT8 };
    static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_AVG, TUTTI_MAX };
    uint32_t n = team->world.n;
    crew_t crew;

    crew_open(&crew, team, n % TUTTI__LANES);
    for (uint32_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        for (int order = 0; order < ORDERS; order++) {
            uint32_t turn = i * ORDERS + (uint32_t)order;

            sum_fill(sum, dtypes[turn % 4], ops[turn % 3], n, counts[i], turn);
            crew_set(&crew, scheds, sum->call);
            crew_finish(&crew, (order_t)order, turn, hand->name);
            sum_check(sum, hand->name);
        }
    }
    crew_close(&crew);
}

static void test_hand_made(void **state)
{
    sum_t *sum = calloc(1, sizeof(*sum));

    (void)state;
    assert_non_null(sum);
    for (const hand_t *hand = hand_made; hand->name != NULL; hand++) {
        for (uint32_t n = hand->least_ranks; n <= hand->most_ranks; n++) {
            tutti__sched_t *scheds[WORLD_RANKS];

            hand_build(hand, n, scheds);
            for (uint32_t credits = 1; credits <= 3; credits++) {
                team_t team;

                hand_prove(hand, scheds, n, credits);
                team_open(&team, n, NULL, 64, credits, credits == 2 && n % 2 == 0);
                if (credits >= hand->least_credits)
                    hand_calls(hand, &team, scheds, sum);
                else
                    hand_deadlock(&team, scheds, sum);
                team_close(&team);
            }
            free_all(scheds, n);
        }
    }
    free(sum);
}

/* The transports decide which thread may run a schedule. */
static void test_forbidden(void **state)
{
    tutti__sched_t *scheds[2];
    team_t plain, lagging;

    (void)state;
    hand_build(&hand_made[0], 2, scheds);
    team_open(&plain, 2, NULL, 64, 1, 0);
    team_open(&lagging, 2, NULL, 64, 1, 1);
    assert_false(tutti__run_forbidden(&plain.env[0], scheds[0], 0));
    assert_false(tutti__run_forbidden(&lagging.env[0], scheds[0], 1));
    assert_true(tutti__run_forbidden(&lagging.env[0], scheds[0], 0));
    team_close(&plain);
    team_close(&lagging);
    free_all(scheds, 2);
}

/* A chunk has at least one element. So a schedule whose messages have more blocks than a slot has
   room for is refused. */
static void test_too_many_blocks(void **state)
{
    tutti__build_t *b = tutti__build_begin("wide", 0, 2, 9, 0, 9);
    tutti__exec_call_t call = { .count = 9, .dtype = TUTTI_INT64, .op = TUTTI_SUM };
    int64_t numbers[9] = { 0 };
    tutti__sched_t *sched;
    tutti__run_t run;
    team_t team;

    (void)state;
    call.in = call.out = numbers;
    tutti__build_loop(b);
    tutti__build_send(b, 1, (tutti__at_t){ TUTTI__IN, 0 }, 9);
    tutti__build_end_loop(b);
    assert_int_equal(tutti__build_end(b, &sched), TUTTI_OK);
    team_open(&team, 2, NULL, 64, 2, 0);
    tutti__run_init(&run, &team.env[0], 1);
    assert_int_equal(tutti__run_start(&run, sched, &call), TUTTI_ERR_UNSUPPORTED);
    call.dtype = TUTTI_FLOAT32;
    assert_int_equal(tutti__run_start(&run, sched, &call), TUTTI_OK);
    tutti__run_cancel(&run);
    tutti__run_fini(&run);
    team_close(&team);
    tutti__sched_free(sched);
}

/* ---- node operations on SCRATCH ---- */

/* A node that checks its calls, and does nothing else. */
typedef struct {
    tutti__node_t node;
    const tutti__run_t *run;
    uint32_t trips, wrong;
} looking_t;

static void look(tutti__node_t *node, uint32_t lane, const tutti__node_call_t *call)
{
    looking_t *looking = (looking_t *)node;

    (void)lane;
    looking->trips++;
    /* There is one block of SCRATCH, so each chunk is at its beginning. */
    looking->wrong += call->src != looking->run->scratch || call->src_step == 0;
}

static tutti_status_t look_step(tutti__node_t *node, uint32_t lane, tutti__hint_t *hint)
{
    (void)node;
    (void)lane;
    (void)hint;
    return TUTTI_OK;
}

static void test_node_on_scratch(void **state)
{
    static const tutti__node_ops_t ops = { .name = "looking", .start = look, .step = look_step };
    static const tutti__at_t scratch = { TUTTI__SCRATCH, 0 };
    tutti__build_t *b = tutti__build_begin("scratch", 0, 1, 1, 1, 1);
    looking_t node = { .node = { .ops = &ops } };
    tutti__exec_env_t env = { .size = 1, .node = &node.node, .slot_bytes = 64 };
    int64_t numbers[20] = { 0 };
    tutti__exec_call_t call = {
        .in = numbers, .out = numbers, .count = 20, .dtype = TUTTI_INT64, .op = TUTTI_SUM
    };
    tutti__hint_t hint;
    tutti__sched_t *sched;
    tutti__run_t run;

    (void)state;
    tutti__build_loop(b);
    tutti__build_copy(b, (tutti__at_t){ TUTTI__IN, 0 }, scratch, 1);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, scratch, scratch, 1, 1, 0);
    tutti__build_end_loop(b);
    assert_int_equal(tutti__build_end(b, &sched), TUTTI_OK);
    tutti__run_init(&run, &env, 0);
    node.run = &run;
    assert_int_equal(tutti__run_start(&run, sched, &call), TUTTI_OK);
    assert_int_equal(tutti__run_step(&run, &hint), TUTTI_OK);
    assert_int_equal(node.trips, 3);
    assert_int_equal(node.wrong, 0);
    tutti__run_fini(&run);
    tutti__sched_free(sched);
}

/* ---- ranks with different calls ---- */

static void build_set(set_t *set, tutti__collective_t collective, const char *name,
                      const shape_t *shape)
{
    memset(set, 0, sizeof(*set));
    set->algorithm = tutti__algorithm_find(collective, name);
    set->shape = shape;
    set_build(set);
}

static void expect_mismatch(const crew_t *crew, uint32_t rank, uint32_t peer)
{
    const member_t *m = &crew->member[rank];
    char name[16];

    snprintf(name, sizeof(name), "rank %u ", peer);
    if (m->state != MEMBER_FAILED || m->status != TUTTI_ERR_MISMATCH ||
        strstr(m->error, name) == NULL)
        fail_msg("rank %u: state %d, status %d, \"%s\"; expected a mismatch with rank %u", rank,
                 (int)m->state, (int)m->status, m->error, peer);
}

/* Rank `odd` has another count, or only another signature. */
static void channel_mismatch(sum_t *sum, const set_t *set, uint32_t odd, uint32_t culprit,
                             uint32_t victim, int is_count, order_t order)
{
    uint32_t n = set->shape->shape.size;
    team_t team;
    crew_t crew, after;

    team_open(&team, n, set->shape->host_of, 64, 2, 0);
    crew_open(&crew, &team, 1);
    crew_open(&after, &team, 2);
    sum_fill(sum, TUTTI_INT64, TUTTI_SUM, n, 100, 1);
    if (is_count)
        sum->call[odd].count = 3;
    else
        sum->call[odd].signature = 8;
    crew_set(&crew, set->scheds, sum->call);
    crew_drive(&crew, order, 1, 0);
    expect_mismatch(&crew, victim, culprit);
    crew_cancel(&crew);

    /* Other lanes are not affected. */
    sum_fill(sum, TUTTI_INT64, TUTTI_SUM, n, 100, 2);
    crew_set(&after, set->scheds, sum->call);
    crew_finish(&after, order, 1, "after a mismatch");
    sum_check(sum, "after a mismatch");
    crew_close(&after);
    crew_close(&crew);
    team_close(&team);
}

static void test_channel_mismatch(void **state)
{
    sum_t *sum = calloc(1, sizeof(*sum));
    shape_t *two = shape_even(2, 1), *three = shape_even(3, 1);
    set_t doubling, ring;

    (void)state;
    assert_non_null(sum);
    build_set(&doubling, TUTTI__ALLREDUCE, "recursive_doubling", two);
    build_set(&ring, TUTTI__ALLREDUCE, "ring", three);
    for (int order = 0; order < ORDERS; order++) {
        for (int is_count = 0; is_count < 2; is_count++) {
            /* With recursive doubling both ranks detect the difference. In a ring, the next rank
               detects it. */
            channel_mismatch(sum, &doubling, 1, 1, 0, is_count, (order_t)order);
            channel_mismatch(sum, &doubling, 1, 0, 1, is_count, (order_t)order);
            channel_mismatch(sum, &ring, 1, 1, 2, is_count, (order_t)order);
        }
    }
    set_free(&ring);
    set_free(&doubling);
    shape_free(three);
    shape_free(two);
    free(sum);
}

/* On one host all ranks detect a differing call before any data are changed, and the lane
   continues. */
static void test_node_mismatch(void **state)
{
    static const size_t counts[] = { 2, 5, 100, 1000 };
    sum_t *sum = calloc(1, sizeof(*sum));
    shape_t *shape = shape_even(1, 4);
    team_t team;
    crew_t crew;
    set_t set;

    (void)state;
    assert_non_null(sum);
    build_set(&set, TUTTI__ALLREDUCE, "node", shape);
    team_open(&team, 4, NULL, 64, 2, 0);
    crew_open(&crew, &team, 3);
    for (uint32_t i = 0; i < 4 * ORDERS; i++) {
        sum_fill(sum, TUTTI_INT64, TUTTI_SUM, 4, counts[i % 4], i);
        if (i % 3 == 0)
            sum->call[2].op = TUTTI_MAX;
        else
            sum->call[2].count = counts[i % 4] - 1;
        crew_set(&crew, set.scheds, sum->call);
        assert_true(crew_drive(&crew, (order_t)(i / 4), i, 0));
        for (uint32_t r = 0; r < 4; r++) {
            expect_mismatch(&crew, r, 0);
            expect_mismatch(&crew, r, 2);
            for (size_t k = 0; k < sizeof(sum->out[r]); k++)
                assert_int_equal((uint8_t)sum->out[r][k], 0xee);
        }
        crew_cancel(&crew);

        sum_fill(sum, TUTTI_INT64, TUTTI_SUM, 4, counts[(i + 1) % 4], i);
        crew_set(&crew, set.scheds, sum->call);
        crew_finish(&crew, (order_t)(i / 4), i, "after a mismatch");
        sum_check(sum, "after a mismatch");
    }
    crew_close(&crew);
    team_close(&team);
    set_free(&set);
    shape_free(shape);
    free(sum);
}

/* ---- cancelled in the middle ---- */

static int all_are(const char *bytes, size_t n, char value)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

/* Lane 1 is cancelled after some steps while lane 2 is running. */
static void cancel_after(const set_t *set, sum_t *lost, sum_t *kept, uint32_t steps, int is_lagging)
{
    uint32_t n = set->shape->shape.size;
    crew_t first, second;
    team_t team;

    team_open(&team, n, set->shape->host_of, 128, 2, is_lagging);
    crew_open(&first, &team, 1);
    crew_open(&second, &team, 2);
    sum_fill(lost, TUTTI_INT64, TUTTI_SUM, n, 300, steps);
    sum_fill(kept, TUTTI_FLOAT32, TUTTI_AVG, n, 500, steps);
    crew_set(&first, set->scheds, lost->call);
    crew_set(&second, set->scheds, kept->call);
    crew_drive(&second, ORDER_RANDOM, steps, steps / 2 + 1);
    crew_drive(&first, ORDER_RANDOM, steps, steps + 1);
    crew_cancel(&first);

    for (uint32_t r = 0; r < n; r++)
        memset(lost->out[r], 0x77, sizeof(lost->out[r]));
    crew_finish(&second, ORDER_RANDOM, steps, "beside a run that was given up");
    sum_check(kept, "beside a run that was given up");
    for (uint32_t r = 0; r < n; r++)
        if (!all_are(lost->out[r], sizeof(lost->out[r]), 0x77))
            fail_msg("rank %u: a run that was given up wrote to its buffer", r);
    crew_close(&second);
    crew_close(&first);
    team_close(&team);
}

static void test_cancel(void **state)
{
    static const uint32_t locals[] = { 2, 3 };
    sum_t *lost = calloc(1, sizeof(*lost)), *kept = calloc(1, sizeof(*kept));
    shape_t *shape = shape_split(2, locals);
    set_t ring, hierarchical;

    (void)state;
    assert_non_null(lost);
    assert_non_null(kept);
    build_set(&ring, TUTTI__ALLREDUCE, "ring", shape);
    build_set(&hierarchical, TUTTI__ALLREDUCE, "hierarchical", shape);
    for (uint32_t steps = 0; steps < 150; steps += 1 + steps / 8) {
        for (int is_lagging = 0; is_lagging < 2; is_lagging++) {
            cancel_after(&ring, lost, kept, steps, is_lagging);
            cancel_after(&hierarchical, lost, kept, steps, is_lagging);
        }
    }
    set_free(&hierarchical);
    set_free(&ring);
    shape_free(shape);
    free(kept);
    free(lost);
}

/* ---- the tree of additions ---- */

/* Sums whose bits depend on the order of additions. */
static void sum_by(sum_t *sum, const char *algorithm, const shape_t *shape)
{
    uint32_t n = shape->shape.size;
    team_t team;
    crew_t crew;
    set_t set;

    build_set(&set, TUTTI__ALLREDUCE, algorithm, shape);
    team_open(&team, n, shape->host_of, 64, 2, 0);
    crew_open(&crew, &team, 1);
    sum_fill(sum, TUTTI_FLOAT32, TUTTI_SUM, n, 100, 1);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; i < 100; i++) {
            float x = (float)((r + 1) * 7919 % 1009 + i * i) / 3.0F;

            memcpy(sum->in[r] + i * sizeof(x), &x, sizeof(x));
        }
    }
    crew_set(&crew, set.scheds, sum->call);
    crew_finish(&crew, (order_t)0, 1, algorithm);
    crew_close(&crew);
    team_close(&team);
    set_free(&set);
}

/* For a tensor's bucket the engine may choose one of these algorithms. For a bucket of another size
   with the same tensor, it may choose another. */
static void test_same_bits(void **state)
{
    static const char *const others[] = { "halving_doubling", "direct_scatter" };
    sum_t *sum = calloc(2, sizeof(*sum));
    int differs = 0;

    (void)state;
    assert_non_null(sum);
    for (uint32_t n = 2; n <= WORLD_RANKS; n++) {
        shape_t *shape = shape_even(n, 1);

        sum_by(&sum[0], "recursive_doubling", shape);
        for (uint32_t a = 0; a < 2; a++) {
            sum_by(&sum[1], others[a], shape);
            for (uint32_t r = 0; r < n; r++)
                assert_memory_equal(sum[0].out[r], sum[1].out[r], 100 * sizeof(float));
        }
        sum_by(&sum[1], "direct", shape);
        differs |= memcmp(sum[0].out[0], sum[1].out[0], 100 * sizeof(float));
        shape_free(shape);
    }
    /* These data make a difference between trees visible. */
    assert_true(differs);
    free(sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hand_made),        cmocka_unit_test(test_forbidden),
        cmocka_unit_test(test_too_many_blocks),  cmocka_unit_test(test_node_on_scratch),
        cmocka_unit_test(test_channel_mismatch), cmocka_unit_test(test_node_mismatch),
        cmocka_unit_test(test_cancel),           cmocka_unit_test(test_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
