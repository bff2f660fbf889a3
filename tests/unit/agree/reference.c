/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Computes the outcome of each submission from the set of all submissions alone, without a tree, an
 * order or messages. Where the outcome depends on the order (a join before or after a decision),
 * the reference allows several outcomes.
 */
#include "reference.h"

#include <tutti/tutti.h>

#define ALL_RANKS(s) ((1u << (s)->nranks) - 1)

static unsigned ranks_with(const scenario_t *s, uint32_t t)
{
    unsigned set = 0;

    for (uint32_t r = 0; r < s->nranks; r++)
        set |= (unsigned)s->part[t][r].has << r;
    return set;
}

/* The set of the ranks that the message of `rank` names, directly or through messages of named
   ranks. If one of these ranks has no message of this name: ~0u, which is more than all ranks. */
static unsigned reach(const scenario_t *s, uint32_t t, uint32_t rank)
{
    unsigned set = 1u << rank, before = 0;

    while (set != before) {
        before = set;
        for (uint32_t r = 0; r < s->nranks; r++) {
            const part_t *p = &s->part[t][r];

            if (!(before >> r & 1))
                continue;
            if (!is_message(p))
                return ~0u;
            set |= p->metadata.root != TUTTI__NOBODY ? 1u << p->metadata.root : 0;
            set |= p->metadata.source != TUTTI__NOBODY ? 1u << p->metadata.source : 0;
        }
    }
    return set;
}

/* Returns 1 if each rank of the set reaches exactly the ranks of the set. In this case no other
   rank belongs to the set. */
static int is_closed(const scenario_t *s, uint32_t t, unsigned set)
{
    for (uint32_t r = 0; r < s->nranks; r++)
        if (set == ~0u || ((set >> r & 1) && reach(s, t, r) != set))
            return 0;
    return 1;
}

/* Do the parts of these ranks match? A message must match at its sender and at its receiver. */
static int matches(const scenario_t *s, uint32_t t, unsigned set)
{
    const part_t *p = s->part[t], *first = &p[set != 0 ? __builtin_ctz(set) : 0];
    int match = 1;

    for (uint32_t r = 0; r < s->nranks; r++) {
        const tutti__metadata_t *m = &p[r].metadata;

        if (!(set >> r & 1))
            continue;
        if (is_message(&p[r]) != is_message(first))
            return 0;
        if (!is_message(first))
            match &= p[r].version == first->version;
        else if (m->root != TUTTI__NOBODY)
            match &= p[m->root].metadata.source == r && p[m->root].metadata.more == m->count;
        if (is_message(first) && m->source != TUTTI__NOBODY)
            match &= p[m->source].metadata.root == r;
    }
    return match;
}

/* The possible outcomes of matching calls when the ranks of `joined` join. */
static unsigned beside_joins(const scenario_t *s, uint32_t t, unsigned joined)
{
    unsigned set = ranks_with(s, t);
    const tutti__metadata_t *m = &s->part[t][set != 0 ? __builtin_ctz(set) : 0].metadata;

    if (joined == 0 || m->kind == TUTTI_CALL_BARRIER ||
        ((m->kind == TUTTI_CALL_ALLREDUCE || m->kind == TUTTI_CALL_REDUCE) && m->op == TUTTI_SUM))
        return SERVED;
    if (set == ALL_RANKS(s) || (m->kind == TUTTI_CALL_BROADCAST && set >> m->root & 1))
        return SERVED | UNSUPPORTED;
    return UNSUPPORTED;
}

/* The tensors that share submission groups with tensor t, directly or through others. */
static unsigned component(const scenario_t *s, uint32_t t)
{
    unsigned set = 1u << t;

    for (uint32_t i = 0; i < s->ntensors * s->ntensors * s->ntensors; i++) {
        uint32_t a = i % s->ntensors, b = i / s->ntensors % s->ntensors;

        for (uint32_t r = 0; r < s->nranks; r++)
            if ((set >> a & 1) && s->part[a][r].group > 0 &&
                s->part[a][r].group == s->part[b][r].group)
                set |= 1u << b;
    }
    return set;
}

/* The possible outcomes of a tensor that is in a submission group on some rank. */
static unsigned grouped(const scenario_t *s, uint32_t t, uint32_t rank, unsigned joined)
{
    unsigned names = component(s, t), served = SERVED, unsupported = 0;
    int uniform = 1, match = 1, one_complete = 0;

    for (uint32_t u = 0; u < s->ntensors; u++) {
        if (!(names >> u & 1))
            continue;
        one_complete |= (ranks_with(s, u) | joined) == ALL_RANKS(s);
        match &= matches(s, u, ranks_with(s, u));
        for (uint32_t r = 0; r < s->nranks; r++)
            uniform &= !s->part[u][r].has == !s->part[t][r].has &&
                       s->part[u][r].group == s->part[t][r].group &&
                       !s->part[t][r].has == !s->part[t][r].group;
        served &= beside_joins(s, u, joined);
        unsupported |= beside_joins(s, u, joined) & UNSUPPORTED;
    }
    if (!one_complete)
        return PENDING;
    if (uniform)
        return (match ? served : MISMATCH) | unsupported;
    return (ranks_with(s, t) | joined) == ALL_RANKS(s) || s->part[t][rank].group > 0 ? MISMATCH
                                                                                     : PENDING;
}

static unsigned single(const scenario_t *s, uint32_t t, uint32_t rank, unsigned joined)
{
    unsigned with = ranks_with(s, t), set = 0, refused = joined ? UNSUPPORTED : 0;
    int some_closed = 0;

    for (uint32_t r = 0; r < s->nranks; r++)
        some_closed |= is_message(&s->part[t][r]) && is_closed(s, t, reach(s, t, r));
    if (is_message(&s->part[t][rank])) {
        set = reach(s, t, rank);
        if (is_closed(s, t, set))
            return (matches(s, t, set) ? SERVED : MISMATCH) | refused;
        if (joined)
            return UNSUPPORTED | (with == ALL_RANKS(s) && !some_closed ? MISMATCH : 0);
    }
    if (some_closed || (with | joined) != ALL_RANKS(s))
        return PENDING;
    return set == 0 && matches(s, t, with) ? beside_joins(s, t, joined) : MISMATCH;
}

static unsigned outcome(const scenario_t *s, uint32_t t, uint32_t rank, unsigned joined)
{
    for (uint32_t r = 0; r < s->nranks; r++)
        if (s->part[t][r].group > 0)
            return grouped(s, t, rank, joined);
    return single(s, t, rank, joined);
}

/* The ranks that can join: all of their calls end. */
static unsigned ranks_that_join(const scenario_t *s)
{
    unsigned joined = 0, before = 1;

    while (s->joins && joined != before) {
        before = joined;
        for (uint32_t r = 0; r < s->nranks; r++) {
            int ends = 1;

            for (uint32_t t = 0; t < s->ntensors; t++)
                ends &= !s->part[t][r].has || !(outcome(s, t, r, joined) & PENDING);
            joined |= (unsigned)ends << r;
        }
    }
    return joined;
}

void reference(scenario_t *s)
{
    s->joined = ranks_that_join(s);
    for (uint32_t t = 0; t < s->ntensors; t++)
        for (uint32_t r = 0; r < s->nranks; r++)
            s->may[t][r] = s->part[t][r].has ? outcome(s, t, r, s->joined) : 0;
}
