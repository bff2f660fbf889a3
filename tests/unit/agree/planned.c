/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each rank does with a plan. This file does the same as engine/planned.c, but a bucket of a
 * plan has no data. Ranks may enter a bucket at any time. When all ranks have entered the bucket,
 * it is served if all ranks have its tensors; otherwise its tensors return to agreement. A rank
 * enters the buckets of a submission group one after the other.
 */
#include "world.h"

#include <tutti/tutti.h>

static void give_up(planned_t *p, int why)
{
    if (p->runs && p->why < why)
        p->why = why;
}

static const part_t *part_of(const rank_state_t *me, uint32_t t)
{
    return &me->world->scenario[me->at[t]].part[t][me->rank];
}

/* The name of tensor i of the plan is one digit. */
static uint32_t tensor_at(const planned_t *p, uint32_t i)
{
    return (uint32_t)(*tutti__tensor_names_text(p->plan.names, i) - '0');
}

/* The tensors of a bucket that are at PLACE_WAITS. */
static uint32_t tensors_in(const planned_t *p, uint32_t bucket)
{
    uint32_t set = 0;

    for (uint32_t i = 0; i < p->plan.ntensors; i++)
        if (p->plan.tensor[i].bucket == bucket && p->place[tensor_at(p, i)] == PLACE_WAITS)
            set |= 1u << tensor_at(p, i);
    return set;
}

static uint32_t size_of(const planned_t *p, uint32_t bucket)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->plan.ntensors; i++)
        n += p->plan.tensor[i].bucket == bucket;
    return n;
}

/* Enter the lane's next bucket with these tensors. */
static void enter(rank_state_t *me, uint32_t tensors)
{
    planned_t *p = &me->plan;
    flight_t *f = &me->world->flight[p->entered++];

    if (p->entered == MOST_FLIGHTS)
        abort();
    if (f->entered == 0)
        *f = (flight_t){ .plan = p->plan.number, .number = p->started };
    if (f->plan != p->plan.number || f->number != p->started)
        world_complain(me->world, "rank %u enters bucket %llu of plan %u, others %llu of %u",
                       me->rank, (unsigned long long)p->started, p->plan.number,
                       (unsigned long long)f->number, f->plan);
    f->entered |= 1u << me->rank;
    f->tensors[me->rank] = tensors;
    p->started++;
}

/* The submission group of a bucket's tensors. */
static const tutti__group_msg_t *group_of(const planned_t *p, uint32_t bucket)
{
    uint32_t i = 0;

    while (p->plan.tensor[i].bucket < bucket)
        i++;
    return &p->plan.tensor[i].group;
}

/* Does this rank have all tensors of the next bucket, or of its submission group? *ret_end: the
   number of the next bucket after them. */
static int has_next(const planned_t *p, uint32_t *ret_end)
{
    uint32_t b = p->next;

    do {
        if ((uint32_t)__builtin_popcount(tensors_in(p, b)) < size_of(p, b))
            return 0;
        b++;
    } while (b < p->plan.nbuckets && tutti__group_is_same(group_of(p, b - 1), group_of(p, b)));
    *ret_end = b;
    return 1;
}

static void start_complete(rank_state_t *me)
{
    planned_t *p = &me->plan;
    uint32_t end;

    while (p->runs && p->why == 0 && has_next(p, &end)) {
        for (; p->next < end; p->next++) {
            uint32_t set = tensors_in(p, p->next);

            for (uint32_t t = 0; t < MOST_TENSORS; t++)
                if (set >> t & 1)
                    p->place[t] = PLACE_FLIES;
            enter(me, set);
        }
        p->next %= p->plan.nbuckets;
    }
}

/* Is this rank's call, which belongs to the plan, equal to the call in the plan? */
static int is_equal(const rank_state_t *me, uint32_t t, const tutti__planned_t *planned)
{
    return world_group(me, t).size == planned->group.size &&
           !tutti__metadata_differ(&planned->metadata, &part_of(me, t)->metadata);
}

/* Does the call belong to the plan? If so, the rank does not announce it. */
static int belongs(const rank_state_t *me, uint32_t t, const tutti__planned_t *planned)
{
    tutti__group_msg_t group = world_group(me, t);

    if (me->phase[t] > 0)
        return 0;
    return group.size > 0 ? tutti__group_is_same(&group, &planned->group)
                          : !is_message(part_of(me, t));
}

int64_t planned_find(const rank_state_t *me, uint32_t t)
{
    const planned_t *p = &me->plan;
    char name = (char)('0' + t);
    int64_t i = tutti__agree_find_planned(me->agree, &name, 1);

    if (i < 0 || !p->runs || p->why != 0 || p->returned == p->plan.number ||
        !belongs(me, t, &p->plan.tensor[i]) || !is_equal(me, t, &p->plan.tensor[i]))
        return -1;
    return i;
}

int planned_take(rank_state_t *me, uint32_t t)
{
    planned_t *p = &me->plan;
    char name = (char)('0' + t);
    int64_t i = tutti__agree_find_planned(me->agree, &name, 1);

    if (i < 0)
        return 0;
    if (p->returned == p->plan.number || !belongs(me, t, &p->plan.tensor[i]))
        give_up(p, 2);
    if (!belongs(me, t, &p->plan.tensor[i]))
        return 0;
    if (p->runs && p->why == 0 && !is_equal(me, t, &p->plan.tensor[i]))
        give_up(p, 2);
    p->place[t] = p->runs && p->why == 0 ? PLACE_WAITS : PLACE_HELD;
    start_complete(me);
    return 1;
}

/* ---- the callbacks ---- */

/* A tensor may be marked as adjacent only if the previous tensor of the plan ends where it begins,
   in rank 0's memory. `its` is not the first tensor of its bucket. */
static void check_adjacent(const rank_state_t *me, const tutti__planned_t *its, uint32_t i)
{
    const planned_t *p = &me->plan;
    world_t *w = me->world;
    uint64_t end = world_place(w, tensor_at(p, i - 1)) +
                   its[-1].metadata.count * tutti_dtype_bytes(its[-1].metadata.dtype);

    if (its->is_adjacent != its[-1].is_adjacent ||
        (its->is_adjacent && world_place(w, tensor_at(p, i)) != end))
        world_complain(w, "tensor %u of a plan is marked as adjacent", i);
    w->adjacent += its->is_adjacent;
}

/* A plan has all calls of a submission group, one after the other, and no other tensors in their
   buckets. */
static void check_group(const rank_state_t *me, uint32_t i)
{
    const planned_t *p = &me->plan;
    const tutti__planned_t *its = &p->plan.tensor[i];
    uint32_t n = 0, first = i, last = i;

    for (uint32_t k = 0; k < p->plan.ntensors; k++) {
        int is_same = tutti__group_is_same(&p->plan.tensor[k].group, &its->group);

        if (!is_same && k != i && p->plan.tensor[k].bucket == its->bucket && its->group.size > 0)
            world_complain(me->world, "bucket %u of a plan has other tensors than a group",
                           its->bucket);
        if (!is_same)
            continue;
        n++;
        first = k < first ? k : first;
        last = k > last ? k : last;
    }
    if (n != its->group.size || (n > 0 && last - first + 1 != n))
        world_complain(me->world, "a plan has tensors %u to %u of a group of %u", first, last,
                       its->group.size);
    me->world->grouped += n > 0;
}

/* All ranks have received the same plan. No bucket of several tensors exceeds the limit of
   bytes. */
static void check_plan(const rank_state_t *me)
{
    const planned_t *p = &me->plan;
    world_t *w = me->world;
    tutti__agree_plan_t of_0;
    uint64_t bytes = 0;

    tutti__agree_get_plan(w->rank[0].agree, &of_0);
    for (uint32_t i = 0; i < p->plan.ntensors; i++) {
        const tutti__planned_t *its = &p->plan.tensor[i];
        int is_first = i == 0 || its->bucket != its[-1].bucket;

        if (its->bucket != (i == 0 ? 0 : its[-1].bucket + (uint32_t)is_first))
            world_complain(w, "tensor %u of a plan is in bucket %u", i, its->bucket);
        bytes = its->metadata.count * 4 + (is_first ? 0 : bytes);
        check_group(me, i);
        if (its->metadata.on_device ||
            (!tutti__metadata_can_fuse(&its->metadata) &&
             its->metadata.kind != TUTTI_CALL_BARRIER) ||
            (!is_first && !tutti__metadata_fuse(&its[-1].metadata, &its->metadata)))
            world_complain(w, "tensor %u of a plan is not fit for its bucket", i);
        if (!is_first && bytes > w->plan_bytes)
            world_complain(w, "bucket %u of a plan has %llu bytes", its->bucket,
                           (unsigned long long)bytes);
        if (!is_first)
            check_adjacent(me, its, i);
        if (of_0.number == p->plan.number && of_0.ntensors == p->plan.ntensors &&
            (tensor_at(p, i) != (uint32_t)(*tutti__tensor_names_text(of_0.names, i) - '0') ||
             its->bucket != of_0.tensor[i].bucket ||
             tutti__metadata_differ(&its->metadata, &of_0.tensor[i].metadata)))
            world_complain(w, "rank %u has another plan", me->rank);
    }
}

void planned_begin(void *owner)
{
    rank_state_t *me = owner;
    planned_t *p = &me->plan;
    uint32_t before = p->plan.number;

    tutti__agree_get_plan(me->agree, &p->plan);
    if (p->runs || p->plan.number <= before || p->plan.ntensors == 0)
        world_complain(me->world, "rank %u: plan %u follows plan %u", me->rank, p->plan.number,
                       before);
    check_plan(me);
    p->runs = 1;
    p->why = 0;
    p->next = 0;
    p->started = 0;
    me->world->plans += me->rank == 0;
    me->world->ready = me->rank == 0 ? 1 : me->world->ready + 1;
    for (uint32_t i = 0; i < p->plan.ntensors; i++) {
        uint32_t t = tensor_at(p, i);

        if (p->place[t] == PLACE_HELD)
            world_complain(me->world, "rank %u: tensor %u is held before a plan", me->rank, t);
        if (me->is_announced[t] && me->outcome[me->at[t]][t] == PENDING) {
            me->is_announced[t] = (uint8_t)!belongs(me, t, &p->plan.tensor[i]);
            planned_take(me, t);
        }
    }
    if (tutti__agree_has_joined(me->agree))
        give_up(p, 2);
}

uint64_t planned_stop(void *owner)
{
    rank_state_t *me = owner;

    me->plan.runs = 0;
    return me->plan.started;
}

void planned_end(void *owner, uint64_t buckets)
{
    rank_state_t *me = owner;
    planned_t *p = &me->plan;

    if (p->runs || p->started > buckets)
        world_complain(me->world, "rank %u has started %llu buckets, but the plan ends after %llu",
                       me->rank, (unsigned long long)p->started, (unsigned long long)buckets);
    while (p->started < buckets)
        enter(me, 0);
    for (uint32_t t = 0; t < MOST_TENSORS; t++)
        if (p->place[t] == PLACE_WAITS || p->place[t] == PLACE_HELD)
            p->place[t] = PLACE_QUEUED;
}

/* ---- actions ---- */

/* End the next bucket of the lane, if all ranks have entered it. */
static int end_flight(rank_state_t *me)
{
    planned_t *p = &me->plan;
    world_t *w = me->world;
    const flight_t *f = &w->flight[p->done];
    int all = 1;

    if (p->done == p->entered || f->entered != (1u << w->nranks) - 1)
        return 0;
    p->done++;
    for (uint32_t r = 0; r < w->nranks; r++) {
        all &= f->tensors[r] != 0;
        if (f->tensors[r] != 0 && f->tensors[r] != f->tensors[me->rank] && f->tensors[me->rank])
            world_complain(w, "a bucket has tensors %x on rank %u, %x on rank %u", f->tensors[r], r,
                           f->tensors[me->rank], me->rank);
    }
    w->served += (uint32_t)all;
    w->returned += (uint32_t)!all;
    if (!all)
        p->returned = f->plan;
    for (uint32_t t = 0; t < MOST_TENSORS; t++) {
        if (!(f->tensors[me->rank] >> t & 1))
            continue;
        if (p->place[t] != PLACE_FLIES || me->outcome[me->at[t]][t] != PENDING)
            world_complain(w, "rank %u: tensor %u of a bucket is at %d", me->rank, t, p->place[t]);
        p->place[t] = all ? PLACE_NONE : PLACE_QUEUED;
        if (all)
            me->outcome[me->at[t]][t] = SERVED;
    }
    return 1;
}

/* Has the plan returned all calls of the submission group? */
static int is_back(const rank_state_t *me, uint32_t t)
{
    for (uint32_t u = 0; u < MOST_TENSORS; u++)
        if (world_is_with(me, t, u) && me->plan.place[u] != PLACE_QUEUED)
            return 0;
    return me->plan.place[t] == PLACE_QUEUED;
}

/* Announce one tensor that the plan has returned, or its submission group. */
static int announce_again(rank_state_t *me)
{
    uint32_t first = draw(me->world, MOST_TENSORS);

    for (uint32_t i = 0; i < MOST_TENSORS; i++) {
        uint32_t t = (first + i) % MOST_TENSORS;

        if (!is_back(me, t))
            continue;
        world_announce(me, t);
        return 1;
    }
    return 0;
}

/* A text names a late rank as certain exactly if there are no ranks below it in the tree. Otherwise
   one of them may be the late rank. */
static void check_unstopped(const rank_state_t *me)
{
    uint32_t rank;
    int certain;

    if (!tutti__agree_unstopped(me->agree, &rank, &certain))
        return;
    if (certain != (me->world->rank[rank].nlinks == 1))
        world_complain(me->world, "rank %u names rank %u as late, certain: %d", me->rank, rank,
                       certain);
}

int planned_act(rank_state_t *me)
{
    planned_t *p = &me->plan;

    if (me->gone || me->told)
        return 0;
    check_unstopped(me);
    if (p->why != 0) {
        tutti__agree_stop_plan(me->agree, p->why == 2);
        p->why = p->runs = 0;
        return 1;
    }
    return draw(me->world, 2) ? end_flight(me) || announce_again(me)
                              : announce_again(me) || end_flight(me);
}

int planned_hurry(rank_state_t *me)
{
    planned_t *p = &me->plan;
    int waits = 0;

    for (uint32_t t = 0; t < MOST_TENSORS; t++)
        waits |= p->place[t] == PLACE_WAITS;
    if (me->gone || me->told || !p->runs || p->why != 0 || (!waits && p->done == p->entered))
        return 0;
    p->why = waits ? 2 : 1;
    return 1;
}
