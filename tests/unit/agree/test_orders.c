/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement of 2 to 9 ranks in memory, in random orders and trees, against the reference: calls,
 * submission groups, messages, joins, mismatches, goodbyes and deaths.
 *
 *     test_orders [FIRST_SEED [SEEDS]]
 */
#include "world.h"

#include "agree/tensors.h"
#include "long.h"

#include <tutti/tutti.h>

#include <stdio.h>
#include <string.h>

#define QUICK_SEEDS 12000
#define LONG_SEEDS 150000

/* ---- scenarios ---- */

static tutti__metadata_t call_of(world_t *w)
{
    tutti__metadata_t m = {
        .count = 1 + draw(w, 100),
        .prescale = 0x3ff0000000000000u, /* 1.0 */
        .postscale = 0x3ff0000000000000u,
        .op = draw(w, 4) == 0 ? TUTTI_MAX : TUTTI_SUM,
        .kind = TUTTI_CALL_ALLREDUCE,
        .dtype = TUTTI_FLOAT32,
        .on_device = draw(w, 4) == 0,
    };

    if (draw(w, 4) == 0) {
        m.kind = TUTTI_CALL_BROADCAST;
        m.op = 0;
        m.root = draw(w, w->nranks);
    }
    return m;
}

/* Change one field, so that the call differs. */
static void spoil(world_t *w, part_t *part)
{
    tutti__metadata_t *m = &part->metadata;

    part->version = 1;
    switch (draw(w, m->kind == TUTTI_CALL_ALLGATHERV ? 2 : 4)) {
    case 0:
        m->dtype = TUTTI_FLOAT64;
        break;
    case 1:
        m->postscale = 0x4000000000000000u;
        break;
    case 2:
        m->count += 1;
        break;
    default:
        m->on_device ^= 1;
        break;
    }
}

static void make_collective(world_t *w, scenario_t *s, uint32_t t, int may_ask)
{
    tutti__metadata_t m = call_of(w);
    uint32_t all = draw(w, 5) > 0, odd = draw(w, 4) == 0 ? draw(w, w->nranks) : MOST_RANKS;
    /* Some ranks of an allgatherv do not know recvcounts. */
    int asks = may_ask && !s->joins && draw(w, 6) == 0;

    if (asks) {
        m.kind = TUTTI_CALL_ALLGATHERV;
        m.op = m.on_device = 0;
        m.more = 1234;
    }
    for (uint32_t r = 0; r < s->nranks; r++) {
        part_t *p = &s->part[t][r];

        p->has = all || draw(w, 4) > 0;
        p->metadata = m;
        if (r == odd)
            spoil(w, p);
        if (asks && r != odd && draw(w, 2)) {
            p->metadata.count = p->metadata.more = 0;
            p->metadata.unsure = 1;
        }
    }
}

static void make_message(world_t *w, part_t *p, uint32_t to, uint32_t from, uint64_t sent,
                         uint64_t received)
{
    p->has = 1;
    p->metadata = (tutti__metadata_t){
        .count = to != TUTTI__NOBODY ? sent : 0,
        .more = from != TUTTI__NOBODY ? received : 0,
        .prescale = 0x3ff0000000000000u, /* 1.0 */
        .postscale = 0x3ff0000000000000u,
        .root = to,
        .source = from,
        .kind = to == TUTTI__NOBODY     ? TUTTI_CALL_RECV
                : from == TUTTI__NOBODY ? TUTTI_CALL_SEND
                                        : TUTTI_CALL_SENDRECV,
        .dtype = TUTTI_INT32,
    };
    if (draw(w, 12) == 0)
        p->metadata.count++;
}

/* Rings and pairs of ranks, some with a rank missing, or with a collective beside them. */
static void make_messages(world_t *w, scenario_t *s, uint32_t t)
{
    uint32_t order[MOST_RANKS], at = 0;
    tutti__metadata_t other;

    for (uint32_t r = 0; r < s->nranks; r++) {
        uint32_t k = draw(w, r + 1);

        order[r] = order[k];
        order[k] = r;
    }
    while (at < s->nranks) {
        uint32_t n = 1 + draw(w, s->nranks - at), is_ring = draw(w, 3) > 0 && n > 1;

        for (uint32_t i = 0; i < n && n > 1; i++) {
            uint32_t to = is_ring || i % 2 == 0 ? order[at + (i + 1) % n] : TUTTI__NOBODY;
            uint32_t from = is_ring || i % 2 == 1 ? order[at + (i + n - 1) % n] : TUTTI__NOBODY;

            if (draw(w, 12) > 0)
                make_message(w, &s->part[t][order[at + i]], to, from, n, n);
        }
        at += n;
    }
    /* One names another rank, or itself. */
    if (draw(w, 4) == 0) {
        part_t *p = &s->part[t][draw(w, s->nranks)];

        if (p->has && p->metadata.root != TUTTI__NOBODY)
            p->metadata.root = draw(w, s->nranks);
        else if (p->has)
            p->metadata.source = draw(w, s->nranks);
    }
    if (s->joins || draw(w, 2))
        return;
    other = call_of(w);
    for (uint32_t r = 0; r < s->nranks; r++)
        if (!s->part[t][r].has && draw(w, 4) > 0)
            s->part[t][r] = (part_t){ .has = 1, .metadata = other };
}

/* Tensors t to t + n - 1. Each rank has them in one group, or, if `differ`, as it likes. */
static void make_groups(world_t *w, scenario_t *s, uint32_t t, uint32_t n)
{
    int differ = draw(w, 3) == 0, ring = !s->joins && !differ && draw(w, 4) == 0;
    uint32_t absent = !differ && draw(w, 5) == 0 ? draw(w, s->nranks) : MOST_RANKS;

    for (uint32_t k = 0; k < n; k++) {
        make_collective(w, s, t + k, 0);
        for (uint32_t r = 0; r < s->nranks; r++) {
            part_t *p = &s->part[t + k][r];

            p->has = r != absent;
            p->group = (int)t + 1;
            if (ring && k == 0)
                make_message(w, p, (r + 1) % s->nranks, (r + s->nranks - 1) % s->nranks, 3, 3);
            if (differ) {
                /* Whether a rank joins before a grace period ends is a matter of order. */
                p->has &= s->joins || draw(w, 8) > 0;
                p->group = (int)(t + draw(w, n + 1));
                p->group = p->group == (int)t ? 0 : p->group;
            }
        }
    }
}

/* A submission group has two calls at least. */
static void dissolve_lone(scenario_t *s)
{
    for (uint32_t t = 0; t < s->ntensors; t++)
        for (uint32_t r = 0; r < s->nranks; r++) {
            int n = 0;

            for (uint32_t u = 0; u < s->ntensors; u++)
                n += s->part[u][r].has && s->part[u][r].group == s->part[t][r].group;
            if (n < 2 || !s->part[t][r].has)
                s->part[t][r].group = 0;
        }
}

static void make_scenario(world_t *w, scenario_t *s)
{
    s->nranks = w->nranks;
    /* A join may refuse the calls of an earlier round, unless that round has ended on all ranks. */
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

/* A tensor whose names are all free, and that the rank has not submitted in this round. */
static int may_submit(const rank_state_t *me, uint32_t t)
{
    const scenario_t *s = &me->world->scenario[me->round];

    return t < s->ntensors && s->part[t][me->rank].has && me->outcome[me->round][t] == 0;
}

/* One action of a rank: submit, submit the second phase, join, or go on to the next round. 0: it
   waits. */
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
            static const tutti__group_msg_t alone;
            tutti__metadata_t m = { .kind = TUTTI_CALL_ALLGATHERV,
                                    .dtype = TUTTI_FLOAT32,
                                    .phase = 1 };
            char name = (char)('0' + t);

            me->phase[t] = 2;
            tutti__agree_submit(me->agree, &name, 1, &m, &alone);
            return 1;
        }
        pending += me->outcome[me->round][t] == PENDING;
    }
    if (pending > 0)
        return 0;
    if (s->joins && !me->has_joined) {
        me->has_joined = me->joining = 1;
        tutti__agree_join(me->agree);
        return 1;
    }
    if (me->round + 1 == w->nrounds)
        return 0;
    me->round++;
    me->has_joined = 0;
    return 1;
}

/* Everything that can happen without the passing of time; events in random order. */
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
        /* Nothing has moved: is there really nothing that can? */
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

/* ---- judging ---- */

static const char *outcome_text(unsigned outcome)
{
    static const char *const texts[] = { "nothing", "pending", "served", "",           "mismatch",
                                         "",        "",        "",       "unsupported" };

    return outcome <= 8 ? texts[outcome] : "several";
}

/* Every rank was told of the same buckets, in the same order; after a death or goodbye one of them
   may know fewer. */
static void judge_order(world_t *w)
{
    const rank_state_t *first = &w->rank[0];

    for (uint32_t r = 1; r < w->nranks; r++) {
        const rank_state_t *me = &w->rank[r];
        uint32_t n = me->nserved < first->nserved ? me->nserved : first->nserved;

        if (memcmp(me->served, first->served, n * sizeof(me->served[0])) != 0)
            world_complain(w, "ranks 0 and %u have different buckets", r);
        if (!w->broken && me->nserved != first->nserved)
            world_complain(w, "rank 0 has %u tensors in buckets, rank %u %u", first->nserved, r,
                           me->nserved);
    }
}

/* Buckets are numbered and complete. A bucket of several tensors keeps to the limit. */
static void judge_buckets(world_t *w)
{
    const rank_state_t *me = &w->rank[0];
    uint32_t number = 0, n = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < me->nserved; i++) {
        if (me->served[i].bucket != number)
            world_complain(w, "bucket %u instead of %u", me->served[i].bucket, number);
        bytes += me->bytes[i];
        if (++n > 1 && bytes > BUCKET_BYTES)
            world_complain(w, "bucket %u has more than %llu bytes", number,
                           (unsigned long long)bytes);
        if (me->served[i].last) {
            number++;
            n = 0;
            bytes = 0;
        }
    }
    if (me->nserved > 0 && !me->served[me->nserved - 1].last)
        world_complain(w, "the last bucket is not complete");
}

static void judge_outcomes(world_t *w, uint32_t round)
{
    const scenario_t *s = &w->scenario[round];

    for (uint32_t t = 0; t < s->ntensors; t++) {
        unsigned first = 0;

        for (uint32_t r = 0; r < s->nranks; r++) {
            unsigned is = w->rank[r].outcome[round][t];
            unsigned may = s->may[t][r];
            int message = is_message(&s->part[t][r]);

            if ((is & may) != is || (is == 0 && may != 0))
                world_complain(w, "round %u, tensor %u, rank %u: %s, but the reference has %u",
                               round, t, r, outcome_text(is), may);
            /* What the order decides, it decides for all ranks. */
            if (is == 0 || message || (may & (may - 1)) == 0)
                continue;
            first = first != 0 ? first : is;
            if (is != first)
                world_complain(w, "round %u, tensor %u: rank %u has %s, another one %s", round, t,
                               r, outcome_text(is), outcome_text(first));
        }
    }
}

/* A text names the ranks that a tensor waits for; if it is certain, none of them has submitted. */
static void judge_text(world_t *w, uint32_t round, uint32_t tensor, const char *text)
{
    const char *at = text;
    int named, used;

    while (sscanf(at, at == text ? "rank%*[s ]%d%n" : ", %d%n", &named, &used) == 1) {
        if (w->rank[named].outcome[round][tensor] == PENDING)
            world_complain(w, "tensor %u waits for '%s', but rank %d has submitted it", tensor,
                           text, named);
        at += used;
    }
}

static void judge_texts(world_t *w, uint32_t round)
{
    const scenario_t *s = &w->scenario[round];

    for (uint32_t t = 0; t < s->ntensors; t++) {
        for (uint32_t r = 0; r < s->nranks; r++) {
            const part_t *p = &s->part[t][r];
            const tutti__tensor_t *tensor;
            char name = (char)('0' + t), text[256];

            if (is_message(p) || p->group > 0)
                continue;
            if (w->rank[r].outcome[round][t] == PENDING && w->rank[r].phase[t] == 0 &&
                tutti__agree_missing(w->rank[r].agree, &name, 1, &p->metadata, text, sizeof(text)))
                judge_text(w, round, t, text);
            tensor = tutti__agree_find(w->rank[r].agree, &name, 1, 0);
            if (tensor != NULL &&
                tutti__agree_awaits(w->rank[r].agree, tensor, text, sizeof(text)) &&
                strstr(text, " or ") == NULL && strstr(text, "its part") == NULL)
                judge_text(w, round, t, text);
        }
    }
}

/* Nothing is left where nothing is pending. */
static void judge_tables(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++)
        if (w->rank[r].agree->nparticipants > 0 || w->rank[r].agree->ready_first != NULL)
            world_complain(w, "rank %u has %u participants left", r,
                           w->rank[r].agree->nparticipants);
}

/* Does every call of the round end, and every rank join? Then another round may follow. */
static int all_end(const scenario_t *s)
{
    for (uint32_t t = 0; t < s->ntensors; t++)
        for (uint32_t r = 0; r < s->nranks; r++)
            if (s->may[t][r] & PENDING)
                return 0;
    return !s->joins || s->joined == (1u << s->nranks) - 1;
}

/* For a seed that failed: what each rank submitted, and its outcome. */
static void print(const world_t *w)
{
    for (uint32_t i = 0; i < w->nrounds; i++) {
        const scenario_t *s = &w->scenario[i];

        printf("round %u%s\n", i, s->joins ? ", all join" : "");
        for (uint32_t t = 0; t < s->ntensors; t++)
            for (uint32_t r = 0; r < s->nranks; r++) {
                const part_t *p = &s->part[t][r];
                char text[128];

                if (!p->has)
                    continue;
                tutti__metadata_call_text(text, sizeof(text), &p->metadata);
                printf("tensor %u, rank %u: %s, group %d: %s\n", t, r, text, p->group,
                       outcome_text(w->rank[r].outcome[i][t]));
            }
    }
}

static int run_seed(uint64_t seed)
{
    world_t *w = calloc(1, sizeof(*w));
    int ends = 1, failed;

    w->seed = w->random = seed;
    w->now_ns = 1000000000;
    w->nranks = 2 + draw(w, MOST_RANKS - 1);
    while (ends && w->nrounds < MOST_ROUNDS && (w->nrounds == 0 || draw(w, 2))) {
        make_scenario(w, &w->scenario[w->nrounds]);
        reference(&w->scenario[w->nrounds]);
        ends = all_end(&w->scenario[w->nrounds++]);
    }
    world_open(w);
    run_to_end(w);
    judge_order(w);
    for (uint32_t i = 0; i < w->nrounds && !w->broken; i++)
        judge_outcomes(w, i);
    if (!w->broken) {
        judge_buckets(w);
        judge_texts(w, w->nrounds - 1);
    }
    if (ends && !w->broken)
        judge_tables(w);
    failed = w->failed;
    if (failed)
        print(w);
    world_close(w);
    free(w);
    return failed;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, seeds;
    char left_out[64];

    snprintf(left_out, sizeof(left_out), "%d of %d orders", LONG_SEEDS - QUICK_SEEDS, LONG_SEEDS);
    if (argc > 1)
        seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    else
        seeds = test_is_long(left_out) ? LONG_SEEDS : QUICK_SEEDS;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        if (run_seed(seed))
            return 1;
    return 0;
}
