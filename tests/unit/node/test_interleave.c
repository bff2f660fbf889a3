/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the real code of node operations over shared memory in many interleavings of 2 to 4 ranks.
 *
 * Each run executes a list of operations with data that differ by rank and operation, and compares
 * every result. So a slot that is overwritten before all have read it, or read before it is full,
 * shows as a wrong result, and a lost word as a deadlock. The interleavings are random ones with
 * several rates of switching, and all those with up to two switches at chosen points.
 *
 * For a meeting the test checks that no rank leaves before all have come. It also checks that all
 * ranks detect a rank with another call, even if other ranks are several operations ahead.
 *
 * The test of the test: ranks that report their progress too early get wrong results.
 *
 * All of this is repeated with ranks in several groups. Another test lets a rank give up a
 * zero-copy call: no other rank may write to its buffer afterwards.
 */
#include "interleave.h"

#include "long.h"
#include "node/shm/shm.h"
#include "unit/node/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int whole; /* 0: the quick form */

enum {
    MOST = 9000,
    OPS = 12,
    MOST_LOOKS = 1000000 /* polls in an operation; more are a deadlock */
};

typedef struct {
    tutti__op_kind_t kind;
    size_t count;
    uint32_t root;
    int shared; /* buffers in arenas: bit r for rank r, bit 4 + r for its dst if that is apart */
    int odd;    /* a rank with another root in a NODE_MEET, with another count in a
                   NODE_ALLREDUCE; -1: none */
    int apart;  /* not in place: bit r for rank r */
} step_t;

/* A planted bug: in an operation of this kind, ranks report at once that they have finished a
   stage. */
typedef struct {
    tutti__op_kind_t kind; /* 0: there is no such bug */
    enum {
        EARLY_IN,
        EARLY_SUM,
        EARLY_RED,
        EARLY_OUT,
        EARLY_GROUP /* a group's announcement */
    } stage;
} early_t;

typedef struct {
    world_t *world;
    tutti__node_t *node[IL_RANKS];
    uint32_t lane;
    step_t step[OPS];
    int nsteps;
    float *shared[IL_RANKS];
    float *private[IL_RANKS];
    tutti__node_call_t call[IL_RANKS];
    int is_same[IL_RANKS]; /* its call is equal to its previous one */
    tutti__reducer_t reducer;
    early_t early;
    tutti_op_t left;     /* not 0: used instead of sums; returns its left operand */
    uint32_t begun[OPS]; /* ranks that have begun each operation */
    int wrong, wrong_op, wrong_rank;
    size_t wrong_at;
} node_run_t;

static float value_of(int rank, int op, size_t i)
{
    return (float)((rank * 7 + op * 13 + (int)(i % 251)) % 97);
}

/* The required value of element i of rank's dst; 0 if the rank does not get this element. */
static int promised(const node_run_t *run, int rank, int op, size_t i, float *ret)
{
    const step_t *s = &run->step[op];
    uint32_t n = run->world->n, part = 0;
    tutti__blockmap_t map = { s->count, n, s->count, NULL, NULL };
    size_t length = s->count / n; /* if all blocks are equal */

    while (i >= tutti__block_border(&map, part + 1))
        part++;
    *ret = 0;
    switch (s->kind) {
    case TUTTI__NODE_BCAST:
        *ret = value_of((int)s->root, op, i);
        return 1;
    case TUTTI__NODE_ALLGATHER:
        *ret = value_of((int)part, op, i);
        return 1;
    case TUTTI__NODE_ALLTOALL:
        *ret = value_of((int)part, op, (size_t)rank * length + i % length);
        return 1;
    default:
        for (int r = 0; r < (run->left ? 1 : (int)n); r++)
            *ret += value_of(r, op, i);
        return s->kind != TUTTI__NODE_REDUCE_SCATTER || (int)part == rank;
    }
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

static void say_early(const node_run_t *run, int rank)
{
    const tutti__shm_t *shm = (const tutti__shm_t *)run->node[rank];
    const tutti__shm_lane_t *lane = &shm->lane[run->lane];
    tutti__progress_t *own = lane->peer[rank].progress;
    int is_zero_copy = run->step[0].shared != 0;
    uint32_t value = lane->base + (is_zero_copy ? 1 : lane->nchunks);

    if (run->early.stage == EARLY_GROUP)
        tutti__store64_release(&tutti__shm_of_group(&lane->peer[rank], lane->seq)->head,
                               lane->head | lane->seq);
    else if (run->early.stage == EARLY_IN)
        tutti__store_release(&own->in, value);
    else if (run->early.stage == EARLY_SUM)
        tutti__store_release(&own->sum, value);
    else if (run->early.stage == EARLY_RED)
        tutti__store_release(&own->red, value);
    else
        tutti__store_release(&own->out, value);
}

/* Begin an operation in one of two ways. Ranks may begin it in different ways. */
static tutti_status_t begin(node_run_t *run, int rank, int op, const tutti__node_call_t *call,
                            tutti__hint_t *hint)
{
    tutti__node_t *node = run->node[rank];

    if (run->lane == 0 && (rank + op) % 3 != 0)
        return node->ops->repeat(node, call, run->is_same[rank], (uint32_t)op % 3, hint);
    node->ops->start(node, run->lane, call);
    return node->ops->step(node, run->lane, hint);
}

static tutti_status_t finish(node_run_t *run, int rank, int op, const tutti__node_call_t *call)
{
    tutti__hint_t hint;
    tutti_status_t status;
    int looks = 0;

    for (status = begin(run, rank, op, call, &hint); status == TUTTI__AGAIN;
         status = run->node[rank]->ops->step(run->node[rank], run->lane, &hint)) {
        if (run->early.kind == call->kind)
            say_early(run, rank);
        /* With random switches the scheduler cannot detect that all are idle. */
        if (run->wrong || ++looks > MOST_LOOKS)
            return TUTTI_ERR_TIMEOUT;
        il_idle();
    }
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
    run->is_same[rank] = 0;
    status = finish(run, rank, op, &call);
    if (status != (s->odd >= 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK) || run->begun[op] != run->world->n)
        is_wrong(run, rank, op, 0);
}

/* Is everything unchanged? */
static void look_untouched(node_run_t *run, int rank, int op, const tutti__node_call_t *call)
{
    const float *src = call->src, *dst = call->dst;

    for (size_t i = 0; i < run->step[op].count && !run->wrong; i++)
        if (src[i] != value_of(rank, op, i) || (dst != src && dst[i] != -1))
            is_wrong(run, rank, op, i);
}

/* Is dst correct, and src unchanged? */
static void look(node_run_t *run, int rank, int op, const tutti__node_call_t *call)
{
    const step_t *s = &run->step[op];
    const float *src = call->src, *dst = call->dst;

    for (size_t i = 0; i < s->count && !run->wrong; i++) {
        float value;

        if (dst != NULL && promised(run, rank, op, i, &value) && dst[i] != value)
            is_wrong(run, rank, op, i);
        if (dst != src && src[i] != value_of(rank, op, i))
            is_wrong(run, rank, op, i);
    }
}

static void one_op(node_run_t *run, int rank, int op)
{
    const step_t *s = &run->step[op];
    float *buf = s->shared >> rank & 1 ? run->shared[rank] : run->private[rank];
    float *dst = (s->shared >> (4 + rank) & 1 ? run->shared[rank] : run->private[rank]) + MOST;
    tutti__node_call_t *call = &run->call[rank];
    int is_one = s->kind == TUTTI__NODE_ALLREDUCE || tutti__sched_has_root(s->kind);
    int has_dst = s->kind != TUTTI__NODE_REDUCE || (int)s->root == rank;

    run->is_same[rank] = op > 0 && s[-1].kind == s->kind && s[-1].count == s->count &&
                         s[-1].root == s->root && s->odd != rank && s[-1].odd != rank;
    *call = (tutti__node_call_t){
        .kind = s->kind,
        .dtype = TUTTI_FLOAT32,
        .op = run->left ? run->left : TUTTI_SUM,
        .reducer = &run->reducer,
        .root = s->root,
        .src = buf,
        .dst = s->apart >> rank & 1 ? dst : buf,
        .map = { s->count + (s->odd == rank), is_one ? 1 : run->world->n, s->count, NULL, NULL },
        .whole = 1,
        .nblk = 1,
        .nparts = is_one ? 1 : run->world->n,
    };
    if (!has_dst)
        call->dst = NULL;
    assert_true(tutti__reducer_find(TUTTI_FLOAT32, call->op, &run->reducer));
    for (size_t i = 0; i < s->count; i++) {
        buf[i] = value_of(rank, op, i);
        dst[i] = -1;
    }
    if (finish(run, rank, op, call) != (s->odd >= 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK))
        is_wrong(run, rank, op, 0);
    if (s->odd >= 0)
        look_untouched(run, rank, op, call);
    else
        look(run, rank, op, call);
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
        assert_int_equal(tutti__arena_alloc(w->arena[r], 2 * MOST * sizeof(float), &ptr), TUTTI_OK);
        run->shared[r] = ptr;
        run->private[r] = malloc(2 * MOST * sizeof(float));
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

/* Draw operations of all kinds and sizes: one-shot, of one chunk or many, zero-copy, mixed. Many of
   them are immediately repeated with other buffers. */
static void draw_steps(node_run_t *run, uint32_t seed)
{
    static const tutti__op_kind_t kinds[] = {
        TUTTI__NODE_ALLREDUCE, TUTTI__NODE_REDUCE, TUTTI__NODE_REDUCE_SCATTER,
        TUTTI__NODE_ALLGATHER, TUTTI__NODE_BCAST,  TUTTI__NODE_ALLTOALL,
        TUTTI__NODE_MEET
    };
    static const size_t counts[] = { 1, 5, 8, 600, 2500, 9000 };

    srand(seed);
    run->nsteps = OPS;
    for (int i = 0; i < OPS; i++) {
        step_t *s = &run->step[i];
        uint32_t n = run->world->n;

        s->kind = kinds[rand() % 7];
        s->count = counts[rand() % 6];
        if (s->kind == TUTTI__NODE_ALLTOALL)
            s->count = (s->count + n - 1) / n * n;
        s->root = tutti__sched_has_root(s->kind) ? (uint32_t)rand() % n : 0;
        if (i > 0 && rand() % 2 == 0) { /* the same call, except the buffers */
            s->kind = s[-1].kind;
            s->count = s[-1].count;
            s->root = s[-1].root;
        }
        s->shared = rand() % 3 == 0 ? 255 : rand() % 256;
        s->odd = rand() % 2 == 0 ? -1 : rand() % (int)n;
        if (s->kind != TUTTI__NODE_MEET && (s->kind != TUTTI__NODE_ALLREDUCE || rand() % 2 == 0))
            s->odd = -1;
        s->apart = rand() % 3 == 0 ? 15 : rand() % 16;
    }
}

/* groups: a digit for each rank; NULL: one group. */
static void open_groups(world_t *w, int n, const char *groups)
{
    world_open(w, (uint32_t)n, NULL);
    for (int r = 0; groups != NULL && r < n; r++)
        w->group_of[r] = (uint32_t)(groups[r] - '0');
}

static void random_groups(int n, const char *groups, uint32_t lane, tutti_op_t left, uint32_t runs)
{
    static const uint32_t percents[] = { 3, 20, 50, 90 };
    world_t w;

    open_groups(&w, n, groups);
    for (uint32_t i = 0; i < runs; i += whole ? 1 : 19) { /* 19: all percents and first ranks */
        il_plan_t plan = { .seed = i + 1, .percent = percents[i % 4], .first = i };
        node_run_t run;
        uint32_t points;

        node_open(&run, &w, lane);
        run.left = left;
        draw_steps(&run, i);
        points = il_run(n, node_rank, &run, &plan);
        expect_right(&run, points, &plan);
        node_close(&run);
    }
    world_close(&w);
}

static void random_node(int n, uint32_t lane, uint32_t runs)
{
    random_groups(n, NULL, lane, 0, runs);
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

static void test_random_four(void **state)
{
    (void)state;
    random_node(4, 0, 1500);
    random_node(4, 3, 500);
}

static void test_random_groups(void **state)
{
    (void)state;
    random_groups(4, "0011", 0, 0, 600);
    random_groups(4, "0101", 1, 0, 200);
    random_groups(4, "0111", 2, 0, 200);
    random_groups(4, "0012", 0, 0, 200);
    random_groups(3, "001", 0, 0, 200);
    random_groups(3, "011", 3, 0, 200);
}

/* An operation that does not commute. */
static void take_left(void *dst, const void *left, const void *right, size_t count,
                      tutti_dtype_t dtype, void *context)
{
    (void)right, (void)context;
    memmove(dst, left, count * tutti_dtype_bytes(dtype));
}

static void test_order(void **state)
{
    tutti_op_t left = tutti__user_op_make(take_left, NULL, 0);

    (void)state;
    assert_true(left != 0);
    random_groups(2, NULL, 0, left, 100);
    random_groups(4, "0011", 0, left, 100);
    random_groups(4, "0101", 0, left, 100);
    random_groups(4, "0110", 0, left, 100);
    random_groups(3, "010", 0, left, 100);
    assert_true(tutti__user_op_drop(left));
}

/* Do some operations of this kind give wrong results? Each has many chunks, or is zero-copy. */
static int is_found(int n, const char *groups, early_t early, size_t count, int shared)
{
    world_t w;
    int found = 0;

    open_groups(&w, n, groups);
    for (uint32_t i = 0; i < (whole ? 200 : 40) && !found; i++) {
        il_plan_t plan = { .seed = i + 1, .percent = 20, .first = i };
        node_run_t run;

        node_open(&run, &w, 0);
        run.early = early;
        for (run.nsteps = 0; run.nsteps < 4; run.nsteps++)
            run.step[run.nsteps] = (step_t){ early.kind, count, 0, shared, -1, 15 };
        found = il_run(n, node_rank, &run, &plan) == 0 || run.wrong;
        node_close(&run);
    }
    world_close(&w);
    return found;
}

/* A bug in a stage can be detected only if a rank waits for the end of this stage. */
static void test_early(void **state)
{
    static const struct {
        early_t early;
        int n, shared, found;
    } cases[] = {
        { { TUTTI__NODE_REDUCE, EARLY_IN }, 3, 0, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_RED }, 3, 0, 0 }, /* the root does all the work */
        { { TUTTI__NODE_REDUCE, EARLY_OUT }, 3, 0, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_IN }, 4, 0, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_RED }, 4, 0, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_OUT }, 4, 0, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_RED }, 3, 255, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_IN }, 2, 0, 1 },
        { { TUTTI__NODE_REDUCE, EARLY_RED }, 2, 0, 1 },
        { { TUTTI__NODE_ALLREDUCE, EARLY_IN }, 2, 0, 1 },
        { { TUTTI__NODE_ALLREDUCE, EARLY_RED }, 2, 0, 1 },
        { { TUTTI__NODE_ALLREDUCE, EARLY_OUT }, 2, 0, 0 }, /* each rank reads its own slot */
        { { TUTTI__NODE_ALLREDUCE, EARLY_IN }, 3, 0, 1 },
        { { TUTTI__NODE_ALLREDUCE, EARLY_RED }, 3, 0, 1 },
        { { TUTTI__NODE_ALLREDUCE, EARLY_OUT }, 3, 0, 1 },
        { { TUTTI__NODE_ALLTOALL, EARLY_IN }, 3, 0, 1 },
        { { TUTTI__NODE_ALLTOALL, EARLY_RED }, 3, 0, 0 }, /* an alltoall does not have this stage */
        { { TUTTI__NODE_ALLTOALL, EARLY_OUT }, 3, 0, 1 },
        { { TUTTI__NODE_ALLTOALL, EARLY_RED }, 3, 15, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        early_t early = cases[i].early;

        if (is_found(cases[i].n, NULL, early, MOST, cases[i].shared) != cases[i].found)
            fail_msg("case %zu is %sfound", i, cases[i].found ? "not " : "");
    }
}

static void test_early_groups(void **state)
{
    static const struct {
        early_t early;
        size_t count;
    } cases[] = {
        { { TUTTI__NODE_ALLREDUCE, EARLY_IN }, MOST },
        { { TUTTI__NODE_ALLREDUCE, EARLY_SUM }, MOST },
        { { TUTTI__NODE_ALLREDUCE, EARLY_RED }, MOST },
        { { TUTTI__NODE_ALLREDUCE, EARLY_OUT }, MOST },
        { { TUTTI__NODE_REDUCE, EARLY_IN }, MOST },
        { { TUTTI__NODE_REDUCE, EARLY_SUM }, MOST },
        { { TUTTI__NODE_REDUCE, EARLY_RED }, MOST },
        { { TUTTI__NODE_REDUCE, EARLY_OUT }, MOST },
        { { TUTTI__NODE_REDUCE_SCATTER, EARLY_IN }, MOST },
        { { TUTTI__NODE_REDUCE_SCATTER, EARLY_SUM }, MOST },
        { { TUTTI__NODE_REDUCE_SCATTER, EARLY_OUT }, MOST },
        { { TUTTI__NODE_ALLREDUCE, EARLY_GROUP }, 4 },
        { { TUTTI__NODE_REDUCE, EARLY_GROUP }, 4 },
        { { TUTTI__NODE_BCAST, EARLY_GROUP }, 4 },
        { { TUTTI__NODE_MEET, EARLY_GROUP }, 4 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (!is_found(4, "0011", cases[i].early, cases[i].count, 0))
            fail_msg("case %zu is not found", i);
}

/* Run a short list of operations in all interleavings with up to two switches at chosen points. */
static void enumerate_groups(int n, const char *groups, const step_t *steps, int nsteps)
{
    world_t w;
    uint32_t points = 1;

    open_groups(&w, n, groups);
    for (uint32_t first = 0; first < (uint32_t)n; first++) {
        for (uint32_t a = 0; a <= points; a += whole ? 1 : 20) {
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

static void enumerate_node(int n, const step_t *steps, int nsteps)
{
    enumerate_groups(n, NULL, steps, nsteps);
}

static void test_enumerated(void **state)
{
    static const step_t oneshot[] = { { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 0 },
                                      { TUTTI__NODE_ALLREDUCE, 3, 0, 0, -1, 0 },
                                      { TUTTI__NODE_BCAST, 4, 1, 0, -1, 0 },
                                      { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 0 } };
    static const step_t again[] = { { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 0 },
                                    { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 15 },
                                    { TUTTI__NODE_ALLREDUCE, 4, 0, 0, 0, 15 },
                                    { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 0 },
                                    { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 15 } };
    static const step_t chunks[] = { { TUTTI__NODE_ALLREDUCE, 1500, 0, 0, -1, 0 },
                                     { TUTTI__NODE_ALLREDUCE, 900, 0, 0, -1, 0 } };
    static const step_t mixed[] = { { TUTTI__NODE_ALLREDUCE, 600, 0, 15, -1, 0 },
                                    { TUTTI__NODE_ALLREDUCE, 600, 0, 1, -1, 0 },
                                    { TUTTI__NODE_BCAST, 600, 0, 0, -1, 0 } };
    static const step_t meetings[] = { { TUTTI__NODE_MEET, 8, 3, 0, -1, 0 },
                                       { TUTTI__NODE_MEET, 8, 3, 0, 1, 0 },
                                       { TUTTI__NODE_MEET, 8, 4, 0, -1, 0 },
                                       { TUTTI__NODE_ALLREDUCE, 4, 0, 0, -1, 0 },
                                       { TUTTI__NODE_MEET, 8, 4, 0, 0, 0 } };
    static const step_t rooted[] = { { TUTTI__NODE_REDUCE, 4, 1, 0, -1, 0 },
                                     { TUTTI__NODE_REDUCE, 2500, 1, 0, -1, 0 },
                                     { TUTTI__NODE_REDUCE, 600, 0, 15, -1, 0 } };
    static const step_t exchanges[] = { { TUTTI__NODE_ALLTOALL, 6, 0, 0, -1, 0 },
                                        { TUTTI__NODE_ALLTOALL, 1500, 0, 0, -1, 0 },
                                        { TUTTI__NODE_ALLTOALL, 600, 0, 15, -1, 15 } };

    (void)state;
    enumerate_node(2, oneshot, 4);
    enumerate_node(2, again, 5);
    enumerate_node(2, chunks, 2);
    enumerate_node(2, mixed, 3);
    enumerate_node(2, meetings, 5);
    enumerate_node(2, rooted, 3);
    enumerate_node(2, exchanges, 3);
    enumerate_node(3, oneshot, 2);
    enumerate_node(3, again, 3);
    enumerate_node(3, meetings, 3);
    enumerate_groups(3, "001", oneshot, 2);
    enumerate_groups(3, "011", meetings, 3);
    enumerate_groups(3, "010", chunks, 1);
}

/* A rank of a zero-copy allreduce in place. Rank 0 gives up after run->nsteps steps, sets begun[0],
   and uses its buffer for other data. The other ranks make up to 50 steps. */
static void given_up_rank(int rank, void *arg)
{
    node_run_t *run = arg;
    tutti__node_call_t *call = &run->call[rank];
    size_t bytes = run->step[0].count * sizeof(float);
    tutti_status_t status = TUTTI__AGAIN;
    tutti__hint_t hint;

    *call = (tutti__node_call_t){ .kind = TUTTI__NODE_ALLREDUCE,
                                  .dtype = TUTTI_FLOAT32,
                                  .op = TUTTI_SUM,
                                  .reducer = &run->reducer,
                                  .src = run->shared[rank],
                                  .dst = run->shared[rank],
                                  .map = { run->step[0].count, 1, run->step[0].count, NULL, NULL },
                                  .whole = 1,
                                  .nblk = 1,
                                  .nparts = 1 };
    for (size_t i = 0; i < run->step[0].count; i++)
        run->shared[rank][i] = value_of(rank, 0, i);
    run->node[rank]->ops->start(run->node[rank], 0, call);
    for (int looks = 0; status == TUTTI__AGAIN && looks < (rank == 0 ? run->nsteps : 50); looks++) {
        status = run->node[rank]->ops->step(run->node[rank], 0, &hint);
        il_idle();
    }
    if (status == TUTTI_OK) {
        look(run, rank, 0, call);
    } else if (rank == 0) {
        run->node[0]->ops->cancel(run->node[0], 0);
        memset(run->shared[0], 0x55, bytes);
        run->begun[0] = 1;
    }
}

static void test_given_up(void **state)
{
    world_t w;
    int given_up = 0, completed = 0;

    (void)state;
    for (int n = 2; n <= 3; n++) {
        world_open(&w, (uint32_t)n, NULL);
        for (uint32_t i = 0; i < (whole ? 2000 : 300); i++) {
            il_plan_t plan = { .seed = i + 1, .percent = 10 + i % 50, .first = i };
            node_run_t run;

            node_open(&run, &w, 0);
            assert_true(tutti__reducer_find(TUTTI_FLOAT32, TUTTI_SUM, &run.reducer));
            run.step[0] = (step_t){ TUTTI__NODE_ALLREDUCE, 600, 0, 255, -1, 0 };
            run.nsteps = (int)(i % 6);
            expect_right(&run, il_run(n, given_up_rank, &run, &plan), &plan);
            for (size_t b = 0; run.begun[0] && b < 600 * sizeof(float); b++)
                if (((char *)run.shared[0])[b] != 0x55)
                    fail_msg("rank 0's memory has changed: seed %u, %u %%", plan.seed,
                             plan.percent);
            given_up += run.begun[0] != 0;
            completed += run.begun[0] == 0;
            node_close(&run);
        }
        world_close(&w);
    }
    assert_true(given_up > 0 && completed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_two),   cmocka_unit_test(test_random_three),
        cmocka_unit_test(test_random_four),  cmocka_unit_test(test_random_groups),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_groups), cmocka_unit_test(test_enumerated),
        cmocka_unit_test(test_given_up),
    };

    whole = test_is_long("18 of 19 random interleavings, and 19 of 20 first switches");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
