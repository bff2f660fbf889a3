/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls drawn by chance: parts of a scenario. See world.h. */
#include "world.h"

#include <tutti/tutti.h>

tutti__metadata_t call_of(world_t *w)
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
void spoil(world_t *w, part_t *part)
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

void make_collective(world_t *w, scenario_t *s, uint32_t t, int may_ask)
{
    tutti__metadata_t m = call_of(w);
    uint32_t all = draw(w, 5) > 0, odd = draw(w, 4) == 0 ? draw(w, w->nranks) : MOST_RANKS;
    /* Some ranks of an allgatherv do not pass recvcounts. */
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

/* Messages in rings and between pairs of ranks. In some cases a rank is missing, or some of the
   remaining ranks submit a collective of the same name. */
void make_messages(world_t *w, scenario_t *s, uint32_t t)
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
    /* One rank names a wrong peer, perhaps itself. */
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

/* Tensors t to t + n - 1. Each rank submits them in one group or, if `differ`, in random groups. */
void make_groups(world_t *w, scenario_t *s, uint32_t t, uint32_t n)
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
                /* Without joins, a rank may omit the call. With joins it may not: the outcome would
                   depend on whether the rank joins before a grace period ends. */
                p->has &= s->joins || draw(w, 8) > 0;
                p->group = (int)(t + draw(w, n + 1));
                p->group = p->group == (int)t ? 0 : p->group;
            }
        }
    }
}

/* Make a call that is alone in its submission group a lone call. */
void dissolve_lone(scenario_t *s)
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
