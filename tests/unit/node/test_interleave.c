/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared-memory protocols, their real code, under many interleavings of 2 and 3 ranks.
 *
 * Each run does a list of operations with data that differ by rank and operation, and compares
 * every result; so a slot that is overwritten before all have read it, or read before it is full,
 * shows as a wrong result, and a lost word as a deadlock. Random interleavings with several rates
 * of switching, and all those with up to two (node) or three (channel) switches at chosen points.
 *
 * Of a meeting it is checked that nobody leaves before all have come, and that a rank which came
 * with another call is found out by all, however far the others are in what comes next.
 */
#include "interleave.h"

#include "unit/node/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 9000,
    OPS = 12
};

/* ---- node operations ---- */

typedef struct {
    tutti__op_kind_t kind;
    size_t count;
    uint32_t root;
    int shared; /* buffers in arenas: bit r for rank r */
    int odd;    /* NODE_MEET: a rank that comes with another root; -1: none */
} step_t;

typedef struct {
    world_t *world;
    tutti__node_t *node[IL_RANKS];
    uint32_t lane;
    step_t step[OPS];
    int nsteps;
    float *shared[IL_RANKS];
    float *private[IL_RANKS];
    uint32_t begun[OPS]; /* ranks that have begun each operation */
    int wrong, wrong_op, wrong_rank;
    size_t wrong_at;
} node_run_t;

static float value_of(int rank, int op, size_t i)
{
    return (float)((rank * 7 + op * 13 + (int)(i % 251)) % 97);
}

/* Is element i of rank's result what it should be? Elements that are not its business are. */
static int right(const node_run_t *run, int rank, int op, size_t i, float got)
{
    const step_t *s = &run->step[op];
    tutti__blockmap_t map = { s->count, run->world->n, s->count, NULL, NULL };
    float sum = 0;

    for (int r = 0; r < (int)run->world->n; r++) {
        int mine = i >= tutti__block_begin(&map, (uint32_t)r) &&
                   i < tutti__block_border(&map, (uint32_t)r + 1);

        if (s->kind == TUTTI__NODE_ALLGATHER && mine)
            return got == value_of(r, op, i);
        if (s->kind == TUTTI__NODE_REDUCE_SCATTER && mine && r != rank)
            return 1;
        sum += value_of(r, op, i);
    }
    return s->kind == TUTTI__NODE_BCAST ? got == value_of((int)s->root, op, i) : got == sum;
}

static void is_wrong(node_run_t *run, int rank, int op, size_t at)
{
    if (run->wrong)
        return;
    run->wrong = 1;
    run->wrong_op = op;
    run->wrong_rank = rank;
    run->wrong_at = at;
}

static tutti_status_t finish(node_run_t *run, int rank, const tutti__node_call_t *call)
{
    tutti__stuck_t stuck;
    tutti_status_t status;

    run->node[rank]->ops->start(run->node[rank], run->lane, call);
    while ((status = run->node[rank]->ops->step(run->node[rank], run->lane, &stuck)) ==
           TUTTI__AGAIN)
        il_idle();
    return status;
}

static void one_meeting(node_run_t *run, int rank, int op)
{
    const step_t *s = &run->step[op];
    tutti__node_call_t call = { .kind = TUTTI__NODE_MEET,
                                .dtype = TUTTI_FLOAT32,
                                .op = TUTTI_SUM,
                                .root = s->root + (s->odd == rank ? 65536 : 0),
                                .map = { .count = s->count } };
    tutti_status_t status;

    run->begun[op]++;
    status = finish(run, rank, &call);
    if (status != (s->odd >= 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK) || run->begun[op] != run->world->n)
        is_wrong(run, rank, op, 0);
}

static void one_op(node_run_t *run, int rank, int op)
{
    const step_t *s = &run->step[op];
    float *buf = s->shared >> rank & 1 ? run->shared[rank] : run->private[rank];
    tutti__reducer_t reducer;
    int parts = s->kind == TUTTI__NODE_ALLREDUCE || s->kind == TUTTI__NODE_BCAST;
    tutti__node_call_t call = {
        .kind = s->kind,
        .dtype = TUTTI_FLOAT32,
        .op = TUTTI_SUM,
        .reducer = &reducer,
        .root = s->root,
        .src = buf,
        .dst = buf,
        .map = { s->count, parts ? 1 : run->world->n, s->count, NULL, NULL },
        .whole = 1,
        .nblk = 1,
        .nparts = parts ? 1 : run->world->n,
    };

    assert_true(tutti__reducer_find(TUTTI_FLOAT32, TUTTI_SUM, &reducer));
    for (size_t i = 0; i < s->count; i++)
        buf[i] = value_of(rank, op, i);
    if (finish(run, rank, &call) != TUTTI_OK)
        is_wrong(run, rank, op, 0);
    for (size_t i = 0; i < s->count && !run->wrong; i++)
        if (!right(run, rank, op, i, buf[i]))
            is_wrong(run, rank, op, i);
}

static void node_rank(int rank, void *arg)
{
    node_run_t *run = arg;

    for (int op = 0; op < run->nsteps; op++) {
        if (run->step[op].kind == TUTTI__NODE_MEET)
            one_meeting(run, rank, op);
        else
            one_op(run, rank, op);
    }
}

static void node_open(node_run_t *run, world_t *w, uint32_t lane)
{
    memset(run, 0, sizeof(*run));
    run->world = w;
    run->lane = lane;
    /* The arena keeps its ranges from run to run. */
    world_wipe(w);
    for (uint32_t r = 0; r < w->n; r++) {
        void *ptr;

        run->node[r] = world_node(w, r);
        assert_int_equal(tutti__arena_alloc(w->arena[r], MOST * sizeof(float), &ptr), TUTTI_OK);
        run->shared[r] = ptr;
        run->private[r] = malloc(MOST * sizeof(float));
    }
}

static void node_close(node_run_t *run)
{
    for (uint32_t r = 0; r < run->world->n; r++) {
        run->node[r]->ops->close(run->node[r]);
        tutti__arena_free(run->world->arena[r], run->shared[r]);
        free(run->private[r]);
    }
}

static void expect_right(const node_run_t *run, uint32_t points, const il_plan_t *plan)
{
    if (points == 0)
        fail_msg("deadlock: seed %u, %u %%, places %u %u %u", plan->seed, plan->percent,
                 plan->place[0], plan->place[1], plan->place[2]);
    if (run->wrong)
        fail_msg("wrong result: operation %d, rank %d, element %zu; seed %u, %u %%, places %u %u",
                 run->wrong_op, run->wrong_rank, run->wrong_at, plan->seed, plan->percent,
                 plan->place[0], plan->place[1]);
}

/* Operations of all kinds and sizes: one-shot, one chunk, many chunks, zero-copy, mixed. */
static void draw_steps(node_run_t *run, uint32_t seed)
{
    static const tutti__op_kind_t kinds[] = { TUTTI__NODE_ALLREDUCE,      TUTTI__NODE_ALLREDUCE,
                                              TUTTI__NODE_REDUCE_SCATTER, TUTTI__NODE_ALLGATHER,
                                              TUTTI__NODE_BCAST,          TUTTI__NODE_MEET };
    static const size_t counts[] = { 1, 5, 8, 600, 2500, 9000 };

    srand(seed);
    run->nsteps = OPS;
    for (int i = 0; i < OPS; i++) {
        step_t *s = &run->step[i];

        s->kind = kinds[rand() % 6];
        s->count = counts[rand() % 6];
        s->root = s->kind == TUTTI__NODE_BCAST ? (uint32_t)(rand() % (int)run->world->n) : 0;
        s->shared = rand() % 3 == 0 ? 15 : rand() % 16;
        s->odd = rand() % 2 == 0 ? -1 : rand() % (int)run->world->n;
    }
}

static void random_node(int n, uint32_t lane, uint32_t runs)
{
    static const uint32_t percents[] = { 3, 20, 50, 90 };
    world_t w;

    world_open(&w, (uint32_t)n, NULL);
    for (uint32_t i = 0; i < runs; i++) {
        il_plan_t plan = { .seed = i + 1, .percent = percents[i % 4], .first = i };
        node_run_t run;
        uint32_t points;

        node_open(&run, &w, lane);
        draw_steps(&run, i);
        points = il_run(n, node_rank, &run, &plan);
        expect_right(&run, points, &plan);
        node_close(&run);
    }
    world_close(&w);
}

static void test_random_two(void **state)
{
    (void)state;
    random_node(2, 0, 1500);
    random_node(2, 1, 500);
}

static void test_random_three(void **state)
{
    (void)state;
    random_node(3, 0, 1500);
    random_node(3, 2, 500);
}

/* All interleavings of a short list of operations with up to two switches at chosen points. */
static void enumerate_node(int n, const step_t *steps, int nsteps)
{
    world_t w;
    uint32_t points = 1;

    world_open(&w, (uint32_t)n, NULL);
    for (uint32_t first = 0; first < (uint32_t)n; first++) {
        for (uint32_t a = 0; a <= points; a++) {
            for (uint32_t b = a; b <= points; b += 1 + (a == 0) * points) {
                il_plan_t plan = { .nplaces = 2, .place = { a, b }, .first = first };
                node_run_t run;

                node_open(&run, &w, 0);
                memcpy(run.step, steps, (size_t)nsteps * sizeof(*steps));
                run.nsteps = nsteps;
                points = il_run(n, node_rank, &run, &plan);
                expect_right(&run, points, &plan);
                node_close(&run);
            }
        }
    }
    world_close(&w);
}

static void test_enumerated(void **state)
{
    static const step_t oneshot[] = { { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1 },
                                      { TUTTI__NODE_ALLREDUCE, 3, 0, 0, -1 },
                                      { TUTTI__NODE_BCAST, 4, 1, 0, -1 },
                                      { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1 } };
    static const step_t chunks[] = { { TUTTI__NODE_ALLREDUCE, 1500, 0, 0, -1 },
                                     { TUTTI__NODE_ALLREDUCE, 900, 0, 0, -1 } };
    static const step_t mixed[] = { { TUTTI__NODE_ALLREDUCE, 600, 0, 15, -1 },
                                    { TUTTI__NODE_ALLREDUCE, 600, 0, 1, -1 },
                                    { TUTTI__NODE_BCAST, 600, 0, 0, -1 } };
    static const step_t meetings[] = { { TUTTI__NODE_MEET, 8, 3, 0, -1 },
                                       { TUTTI__NODE_MEET, 8, 3, 0, 1 },
                                       { TUTTI__NODE_MEET, 8, 4, 0, -1 },
                                       { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1 },
                                       { TUTTI__NODE_MEET, 8, 4, 0, 0 } };

    (void)state;
    enumerate_node(2, oneshot, 4);
    enumerate_node(2, chunks, 2);
    enumerate_node(2, mixed, 3);
    enumerate_node(2, meetings, 5);
    enumerate_node(3, oneshot, 2);
    enumerate_node(3, meetings, 3);
}

/* ---- channels ---- */

enum {
    MESSAGES = 7
};

typedef struct {
    world_t *world;
    tutti__xport_t *xport[IL_RANKS];
    int wrong;
} chan_run_t;

/* Rank 0 sends to 1, and 1 sends back what it got, one more. */
static void chan_rank(int rank, void *arg)
{
    chan_run_t *run = arg;
    tutti__xport_t *x = run->xport[rank];
    tutti__chan_key_t key = { 0, (uint32_t)(1 - rank), 0 };
    tutti__chan_t *in, *out;
    tutti__stuck_t stuck;

    if (x->ops->open_recv(x, &key, &in) != TUTTI_OK || x->ops->open_send(x, &key, &out) != TUTTI_OK)
        run->wrong = 1;
    for (int i = 0; i < MESSAGES && !run->wrong; i++) {
        uint64_t value = (uint64_t)(i * 2 + rank);
        const void *data;
        int pending;

        while (x->ops->send(out, &value, sizeof(value), 7, &pending, &stuck) == TUTTI__AGAIN)
            il_idle();
        if (i < 1)
            continue;
        while (x->ops->view(in, sizeof(value), 7, &data, &stuck) == TUTTI__AGAIN)
            il_idle();
        memcpy(&value, data, sizeof(value));
        run->wrong |= value != (uint64_t)((i - 1) * 2 + (1 - rank));
        x->ops->release(in);
    }
}

static uint32_t chan_once(world_t *w, uint32_t credits, const il_plan_t *plan)
{
    chan_run_t run = { .world = w };
    uint32_t points;

    world_wipe(w);
    for (uint32_t r = 0; r < w->n; r++)
        run.xport[r] = world_xport(w, r, 64, credits);
    points = il_run((int)w->n, chan_rank, &run, plan);
    if (points == 0 || run.wrong)
        fail_msg("channel: %s; credits %u, seed %u, places %u %u %u",
                 points == 0 ? "deadlock" : "wrong message", credits, plan->seed, plan->place[0],
                 plan->place[1], plan->place[2]);
    for (uint32_t r = 0; r < w->n; r++)
        run.xport[r]->ops->close(run.xport[r]);
    return points;
}

static void test_channel(void **state)
{
    (void)state;
    for (uint32_t credits = 2; credits <= 3; credits++) {
        world_t w;
        uint32_t points = 1;

        world_open(&w, 2, NULL);
        for (uint32_t i = 0; i < 1000; i++) {
            il_plan_t plan = { .seed = i + 1, .percent = 10 + i % 80, .first = i };

            chan_once(&w, credits, &plan);
        }
        for (uint32_t a = 0; a <= points; a++) {
            for (uint32_t b = a; b <= points; b += 1 + (a == 0) * points) {
                il_plan_t plan = { .nplaces = 2, .place = { a, b } };

                points = chan_once(&w, credits, &plan);
            }
        }
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_two),
        cmocka_unit_test(test_random_three),
        cmocka_unit_test(test_enumerated),
        cmocka_unit_test(test_channel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
