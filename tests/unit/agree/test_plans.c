/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Learned plans of 2 to 9 ranks in memory, in random orders and trees, against the reference:
 * programs of many steps, with names that are used again, some of them in submission groups. In
 * some steps tensors are missing or late. In some steps tensors differ on some ranks or on all:
 * they are in another submission group, or have another call. Ranks join, leave and die.
 *
 *     test_plans [FIRST_SEED [SEEDS]]
 */
#include "world.h"

#include <tutti/tutti.h>

#include <stdio.h>
#include <string.h>

#define QUICK_SEEDS 2000
#define LONG_SEEDS 120000

/* A program: all ranks have the same steps, except for the parts that differ. */
typedef struct {
    world_t w;
    uint32_t late[MOST_ROUNDS];        /* the rank that submits one tensor after the others */
    uint32_t late_tensor[MOST_ROUNDS]; /* that tensor */
    uint8_t is_plain[MOST_ROUNDS];     /* the step may overlap other plain steps */
    uint32_t waits_before;             /* ranks wait in the middle of each step */
    int overlaps, is_steady;
    uint64_t sent_at_plan; /* of a steady program: messages until all ranks had the plan */
    int has_plan;
} program_t;

/* Sums over all seeds. */
static uint64_t seeds, plans, served, returned, steady, of_agreement, adjacent, grouped;

/* ---- programs ---- */

/* A call that can be planned. */
static void make_plannable(world_t *w, tutti__metadata_t *m)
{
    static const tutti_call_kind_t kinds[] = { TUTTI_CALL_ALLGATHER, TUTTI_CALL_BROADCAST,
                                               TUTTI_CALL_REDUCE, TUTTI_CALL_BARRIER };

    m->kind = draw(w, 4) ? TUTTI_CALL_ALLREDUCE : kinds[draw(w, 4)];
    m->count = m->kind == TUTTI_CALL_BARRIER ? 0 : m->count;
    m->op = m->kind == TUTTI_CALL_ALLREDUCE || m->kind == TUTTI_CALL_REDUCE ? TUTTI_SUM : 0;
    m->on_device = 0;
    m->root = m->kind == TUTTI_CALL_REDUCE ? draw(w, w->nranks) : 0;
}

/* Some tensors are in one submission group. */
static void make_model_group(world_t *w, scenario_t *model)
{
    uint32_t begin = draw(w, model->ntensors), stride = 1 + draw(w, 2);
    uint32_t end = begin + (2 + draw(w, 3)) * stride;

    for (uint32_t t = begin; t < end && t < model->ntensors; t += stride)
        for (uint32_t r = 0; r < w->nranks; r++)
            model->part[t][r].group = MOST_TENSORS + 1;
}

static void make_model(program_t *p, scenario_t *model)
{
    world_t *w = &p->w;
    uint32_t n = 1 + draw(w, 6);

    *model = (scenario_t){ .nranks = w->nranks, .ntensors = n };
    for (uint32_t t = 0; t < n; t++) {
        tutti__metadata_t m = call_of(w);

        if (p->is_steady || draw(w, 6) > 0)
            make_plannable(w, &m);
        for (uint32_t r = 0; r < w->nranks; r++)
            model->part[t][r] = (part_t){ .has = 1, .metadata = m };
    }
    if (draw(w, 3) == 0)
        make_model_group(w, model);
}

/* Ranks join in this step. Ranks that do not join first submit all calls of the step. A rank does
   not leave out a part of a submission group: the outcome would depend on whether the rank joins
   before a grace period ends. */
static void make_joins(world_t *w, scenario_t *s)
{
    s->joins = 1;
    for (uint32_t r = 0; r < s->nranks; r++)
        for (uint32_t t = 0; t < s->ntensors; t++)
            s->part[t][r].has &= draw(w, 4) > 0 || s->part[t][r].group > 0;
}

static void leave_out(scenario_t *s, uint32_t t)
{
    for (uint32_t r = 0; r < s->nranks; r++)
        s->part[t][r].has = s->part[t][r].group = 0;
}

/* The step differs from the others. Returns 1 if this step may overlap other steps nevertheless. */
static int deviate(program_t *p, scenario_t *s, uint32_t step)
{
    world_t *w = &p->w;
    uint32_t t = draw(w, s->ntensors), rank = draw(w, w->nranks), kind = draw(w, 11);

    switch (kind) {
    case 0:
        leave_out(s, t);
        return 1;
    case 1:
        p->late[step] = rank;
        p->late_tensor[step] = t;
        return 1;
    case 2: /* all ranks have another count */
        for (uint32_t r = 0; r < w->nranks; r++)
            s->part[t][r].metadata.count += 7;
        return 1;
    case 3:
        spoil(w, &s->part[t][rank]);
        return 1;
    case 4: /* two tensors in a group on all ranks, or on some */
    case 5:
        for (uint32_t r = 0; r < w->nranks && s->ntensors > 1; r++)
            if (kind == 4 || draw(w, 2))
                s->part[t][r].group = s->part[(t + 1) % s->ntensors][r].group = 1;
        return 0;
    case 6:
        leave_out(s, t);
        make_messages(w, s, t);
        return 0;
    case 7:
        leave_out(s, t);
        make_collective(w, s, t, 1);
        return 0;
    case 8: /* more names */
        if (s->ntensors + 2 <= MOST_TENSORS) {
            s->ntensors += 2;
            make_groups(w, s, s->ntensors - 2, 2);
        }
        return 0;
    case 9: /* one rank calls another collective */
        s->part[t][rank].metadata.kind = s->part[t][rank].metadata.kind == TUTTI_CALL_REDUCE
                                             ? TUTTI_CALL_ALLREDUCE
                                             : TUTTI_CALL_REDUCE;
        s->part[t][rank].version = 1;
        return 0;
    default:
        make_joins(w, s);
        return 0;
    }
}

static void make_program(program_t *p)
{
    world_t *w = &p->w;
    scenario_t model;
    uint32_t n = 4 + draw(w, MOST_ROUNDS - 3);
    int ends = 1;

    p->is_steady = draw(w, 4) == 0;
    p->overlaps = !p->is_steady && draw(w, 2);
    p->waits_before = draw(w, 3) ? MOST_TENSORS : draw(w, 4);
    make_model(p, &model);
    for (uint32_t step = 0; step < n && ends; step++) {
        scenario_t *s = &w->scenario[step];

        p->late[step] = MOST_RANKS;
        p->is_plain[step] = 1;
        if (!p->is_steady && draw(w, 16) == 0)
            make_model(p, &model);
        *s = model;
        if (!p->is_steady && draw(w, 5) == 0)
            p->is_plain[step] = (uint8_t)deviate(p, s, step);
        dissolve_lone(s);
        reference(s);
        ends = scenario_ends(s);
        w->nrounds++;
    }
}

/* ---- running ---- */

/* The tensors of the step that are in a submission group with tensor t, as bits. */
static uint32_t submitted_with(const scenario_t *s, uint32_t rank, uint32_t t)
{
    uint32_t set = 1u << t;

    for (uint32_t u = 0; u < s->ntensors; u++)
        if (s->part[u][rank].has && s->part[u][rank].group > 0 &&
            s->part[u][rank].group == s->part[t][rank].group)
            set |= 1u << u;
    return set;
}

/* Have all of this rank's calls of the name ended? */
static int is_free(const rank_state_t *me, uint32_t t)
{
    return me->outcome[me->at[t]][t] != PENDING;
}

static int may_submit(const program_t *p, const rank_state_t *me, uint32_t t)
{
    const scenario_t *s = &p->w.scenario[me->round];
    uint32_t before = 0;

    if (t >= s->ntensors || !s->part[t][me->rank].has || me->outcome[me->round][t] != 0)
        return 0;
    for (uint32_t u = 0; u < s->ntensors; u++)
        if ((submitted_with(s, me->rank, t) >> u & 1) && !is_free(me, u))
            return 0;
    if (p->late[me->round] == me->rank && p->late_tensor[me->round] == t)
        before = MOST_TENSORS;
    else if (p->is_plain[me->round] && p->late[me->round] == MOST_RANKS && t >= p->waits_before)
        before = p->waits_before;
    for (uint32_t u = 0; u < s->ntensors && u < before; u++)
        if (u != t && s->part[u][me->rank].has &&
            (me->outcome[me->round][u] & ~(unsigned)PENDING) == 0)
            return 0;
    return 1;
}

/* May the rank begin its next step while calls of its present step are pending? */
static int may_go_on(const program_t *p, const rank_state_t *me, uint32_t pending)
{
    const world_t *w = &p->w;

    if (me->round + 1 == w->nrounds)
        return 0;
    if (pending > 0)
        return p->overlaps && p->is_plain[me->round] && p->is_plain[me->round + 1];
    /* A join refuses calls of an earlier step that are pending on other ranks. */
    for (uint32_t r = 0; r < w->nranks && w->scenario[me->round + 1].joins; r++)
        for (uint32_t t = 0; t < MOST_TENSORS; t++)
            if (w->rank[r].round < me->round ||
                (w->rank[r].round == me->round && w->scenario[me->round].part[t][r].has &&
                 (w->rank[r].outcome[me->round][t] & ~(unsigned)PENDING) == 0))
                return 0;
    return 1;
}

/* One action of a rank's program. Returns 0 if the rank waits. */
static int act(program_t *p, rank_state_t *me)
{
    world_t *w = &p->w;
    const scenario_t *s = &w->scenario[me->round];
    uint32_t first = draw(w, MOST_TENSORS), pending = 0, absent = 0;

    if (me->gone || me->told || me->joining)
        return 0;
    for (uint32_t i = 0; i < MOST_TENSORS; i++) {
        uint32_t t = (first + i) % MOST_TENSORS;

        if (may_submit(p, me, t)) {
            if (me->rank == 0 && t >= p->waits_before)
                tutti__agree_waited(me->agree);
            world_submit(me, t);
            return 1;
        }
        if (!is_free(me, t) && me->phase[t] == 1) {
            world_submit_again(me, t);
            return 1;
        }
        absent += t < s->ntensors && s->part[t][me->rank].has && me->outcome[me->round][t] == 0;
        pending += !is_free(me, t);
    }
    if (absent > 0)
        return 0;
    if (s->joins && !me->has_joined && pending == 0) {
        world_join(me);
        return 1;
    }
    if (!may_go_on(p, me, pending))
        return 0;
    me->round++;
    me->has_joined = 0;
    return 1;
}

static int move(program_t *p, uint32_t what, uint32_t rank)
{
    rank_state_t *me = &p->w.rank[rank];

    if (what < 2)
        return act(p, me);
    if (what < 4)
        return planned_act(me);
    if (what == 4)
        return !p->w.rank[0].gone && tutti__agree_bucket(p->w.rank[0].agree);
    return world_deliver(&p->w);
}

/* In a steady program no message is sent after all ranks have the plan. */
static void check_steady(program_t *p)
{
    const world_t *w = &p->w;

    if (!p->is_steady || w->broken)
        return;
    if (!p->has_plan && w->plans == 1 && w->ready == w->nranks) {
        p->has_plan = 1;
        p->sent_at_plan = w->sent;
    }
    if (p->has_plan && w->sent != p->sent_at_plan)
        world_complain(&p->w, "%llu messages in a steady state",
                       (unsigned long long)(w->sent - p->sent_at_plan));
}

/* Do all actions that are possible before a grace period ends. */
static void run(program_t *p, uint32_t breaks_at, void (*breaks)(world_t *, uint32_t))
{
    world_t *w = &p->w;
    uint32_t steps = 0;
    int moved = 1;

    while (!w->failed && moved) {
        if (steps++ == breaks_at)
            breaks(w, draw(w, w->nranks));
        if (!p->is_steady && draw(w, 400) == 0)
            planned_hurry(&w->rank[draw(w, w->nranks)]);
        moved = move(p, draw(w, 8), draw(w, w->nranks));
        /* No action was done: try each rank's action once. */
        for (uint32_t what = 0; what < 6 && !moved; what++)
            for (uint32_t r = 0; r < w->nranks && !moved; r++)
                moved = move(p, what, r);
        check_steady(p);
    }
}

/* Run the program to its end. Time passes, so grace periods end and ranks stop waiting for a
   plan. */
static void run_to_end(program_t *p)
{
    world_t *w = &p->w;
    uint32_t breaks_at = draw(w, 6) == 0 ? draw(w, 1500) : UINT32_MAX;
    void (*breaks)(world_t *, uint32_t) = draw(w, 2) ? world_leave : world_die;
    int idle = 0;

    run(p, breaks_at, breaks);
    while (idle < 3 && !w->failed) {
        uint64_t sent = w->sent;
        uint32_t hurried = 0;

        w->now_ns += 200000000;
        if (!w->rank[0].gone)
            tutti__agree_late(w->rank[0].agree);
        for (uint32_t r = 0; r < w->nranks; r++)
            hurried += (uint32_t)planned_hurry(&w->rank[r]);
        if (p->is_steady && hurried > 0 && !w->broken)
            world_complain(w, "a steady program stops its plan");
        run(p, UINT32_MAX, NULL);
        idle = w->sent == sent && hurried == 0 ? idle + 1 : 0;
    }
}

/* ---- judging ---- */

/* No call may be left in a plan. */
static void judge_plans(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++) {
        const planned_t *p = &w->rank[r].plan;

        for (uint32_t t = 0; t < MOST_TENSORS; t++)
            if (p->place[t] != PLACE_NONE)
                world_complain(w, "rank %u: tensor %u is left in a plan: %d", r, t, p->place[t]);
        if (p->done != p->entered || p->entered != w->rank[0].plan.entered)
            world_complain(w, "rank %u has ended %u of %u buckets, rank 0 has %u", r, p->done,
                           p->entered, w->rank[0].plan.entered);
    }
}

static int run_seed(uint64_t seed)
{
    program_t *p = calloc(1, sizeof(*p));
    world_t *w = &p->w;
    int failed;

    w->seed = w->random = seed;
    w->now_ns = 1000000000;
    w->nranks = 2 + draw(w, MOST_RANKS - 1);
    w->plan_bytes = draw(w, 2) ? 100000 : 100 + draw(w, 1500);
    make_program(p);
    world_open(w);
    run_to_end(p);
    if (!w->broken)
        judge_plans(w);
    if (p->is_steady && w->nrounds > 3 && !w->broken && !p->has_plan)
        world_complain(w, "a steady program of %u steps has no plan", w->nrounds);
    failed = judge(w);
    seeds++;
    plans += w->plans;
    served += w->served;
    returned += w->returned;
    of_agreement += w->rank[0].nserved;
    steady += (uint64_t)p->has_plan;
    adjacent += w->adjacent;
    grouped += w->grouped;
    world_close(w);
    free(p);
    return failed;
}

/* Many seeds must lead to many plans. */
static int has_plans(void)
{
    int enough = plans > seeds / 2 && served > seeds && returned > seeds / 10 &&
                 steady > seeds / 8 && adjacent > seeds / 8 && grouped > seeds / 2;

    if (seeds < 1000 || enough)
        return 1;
    printf(
        "of %llu seeds: %llu plans, %llu buckets served, %llu returned, %llu steady, %llu agreed, "
        "%llu adjacent, %llu grouped\n",
        (unsigned long long)seeds, (unsigned long long)plans, (unsigned long long)served,
        (unsigned long long)returned, (unsigned long long)steady, (unsigned long long)of_agreement,
        (unsigned long long)adjacent, (unsigned long long)grouped);
    return 0;
}

int main(int argc, char **argv)
{
    return run_seeds(argc, argv, QUICK_SEEDS, LONG_SEEDS, run_seed) || !has_plans();
}
