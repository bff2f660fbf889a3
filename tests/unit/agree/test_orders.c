/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement of 2 to 9 ranks in memory, in random orders and trees, against the reference: calls,
 * submission groups, messages, joins, mismatches, goodbyes and deaths.
 *
 *     test_orders [FIRST_SEED [SEEDS]]
 */
#include "world.h"

#include <tutti/tutti.h>

#define QUICK_SEEDS 12000
#define LONG_SEEDS 150000
/* Rounds of a seed, at most. */
#define ROUNDS 3

static void make_scenario(world_t *w, scenario_t *s)
{
    s->nranks = w->nranks;
    /* A join may refuse calls of an earlier round that has not ended on all ranks. */
    s->joins = draw(w, 4) == 0 && (s == w->scenario || s[-1].joins);
    while (s->ntensors < MOST_TENSORS && draw(w, 6) > 0) {
        uint32_t n = 2 + draw(w, 2), kind = draw(w, 6);

        if (kind < 3) {
            make_collective(w, s, s->ntensors++, 1);
        } else if (kind < 5 || s->ntensors + n > MOST_TENSORS) {
            make_messages(w, s, s->ntensors++);
        } else {
            make_groups(w, s, s->ntensors, n);
            s->ntensors += n;
        }
    }
    dissolve_lone(s);
}

/* ---- running ---- */

/* May the rank submit the tensor? The rank must have a part in it, and must not have submitted it
   in this round. */
static int may_submit(const rank_state_t *me, uint32_t t)
{
    const scenario_t *s = &me->world->scenario[me->round];

    return t < s->ntensors && s->part[t][me->rank].has && me->outcome[me->round][t] == 0;
}

/* One action of a rank: submit, submit the second phase, join, or go on to the next round. Returns
   0 if the rank waits. */
static int act(rank_state_t *me)
{
    world_t *w = me->world;
    const scenario_t *s = &w->scenario[me->round];
    uint32_t first = draw(w, MOST_TENSORS), pending = 0;

    if (me->gone || me->told || me->joining)
        return 0;
    for (uint32_t i = 0; i < MOST_TENSORS; i++) {
        uint32_t t = (first + i) % MOST_TENSORS;

        if (may_submit(me, t)) {
            world_submit(me, t);
            return 1;
        }
        if (me->outcome[me->round][t] == PENDING && me->phase[t] == 1) {
            world_submit_again(me, t);
            return 1;
        }
        pending += me->outcome[me->round][t] == PENDING;
    }
    if (pending > 0)
        return 0;
    if (s->joins && !me->has_joined) {
        world_join(me);
        return 1;
    }
    if (me->round + 1 == w->nrounds)
        return 0;
    me->round++;
    me->has_joined = 0;
    return 1;
}

/* In random order, do all actions that are possible before a grace period ends. */
static void run(world_t *w, uint32_t breaks_at, void (*breaks)(world_t *, uint32_t))
{
    uint32_t idle = 0, steps = 0;

    while (!w->failed && idle < 2) {
        uint32_t what = idle ? 2 : draw(w, 4);
        int moved;

        if (steps++ == breaks_at)
            breaks(w, draw(w, w->nranks));
        if (what == 0)
            moved = act(&w->rank[draw(w, w->nranks)]);
        else if (what == 1)
            moved = !w->rank[0].gone && tutti__agree_bucket(w->rank[0].agree);
        else
            moved = world_deliver(w);
        /* No action was done: try each rank's action once. */
        for (uint32_t r = 0; r < w->nranks && !moved; r++)
            moved = act(&w->rank[r]);
        if (!moved && !w->rank[0].gone)
            moved = tutti__agree_bucket(w->rank[0].agree);
        idle = moved ? 0 : idle + 1;
    }
}

static void run_to_end(world_t *w)
{
    uint32_t breaks_at = draw(w, 6) == 0 ? draw(w, 200) : UINT32_MAX;
    void (*breaks)(world_t *, uint32_t) = draw(w, 2) ? world_leave : world_die;

    run(w, breaks_at, breaks);
    /* The coordinator's grace periods end. */
    for (int i = 0; i < 4; i++) {
        w->now_ns += 200000000;
        if (!w->rank[0].gone)
            tutti__agree_late(w->rank[0].agree);
        run(w, UINT32_MAX, NULL);
    }
}

static int run_seed(uint64_t seed)
{
    world_t *w = calloc(1, sizeof(*w));
    int ends = 1, failed;

    w->seed = w->random = seed;
    w->now_ns = 1000000000;
    w->nranks = 2 + draw(w, MOST_RANKS - 1);
    while (ends && w->nrounds < ROUNDS && (w->nrounds == 0 || draw(w, 2))) {
        make_scenario(w, &w->scenario[w->nrounds]);
        reference(&w->scenario[w->nrounds]);
        ends = scenario_ends(&w->scenario[w->nrounds++]);
    }
    world_open(w);
    run_to_end(w);
    failed = judge(w);
    world_close(w);
    free(w);
    return failed;
}

int main(int argc, char **argv)
{
    return run_seeds(argc, argv, QUICK_SEEDS, LONG_SEEDS, run_seed);
}
