/* SPDX-License-Identifier: BSD-3-Clause */
/* See world.h. */
#include "world.h"

#include "base/hash.h"

#include <tutti/tutti.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Kinds of messages that only the test has. The engine's watch sends similar ones. */
enum {
    BYE = TUTTI__MSG_OTHERS,
    DEAD
};

void world_complain(world_t *w, const char *fmt, ...)
{
    va_list args;

    if (!w->failed) {
        printf("seed %llu, %u ranks: ", (unsigned long long)w->seed, w->nranks);
        va_start(args, fmt);
        vprintf(fmt, args);
        va_end(args);
        printf("\n");
    }
    w->failed = 1;
}

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" */
uint32_t draw(world_t *w, uint32_t below)
{
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

/* ---- queues ---- */

static void put(queue_t *queue, uint32_t kind, const void *body, size_t bytes)
{
    letter_t *letter = malloc(sizeof(*letter) + bytes);

    letter->next = NULL;
    letter->kind = kind;
    letter->bytes = (uint32_t)bytes;
    memcpy(letter->body, body, bytes);
    if (queue->last != NULL)
        queue->last->next = letter;
    else
        queue->first = letter;
    queue->last = letter;
}

static letter_t *take(queue_t *queue)
{
    letter_t *letter = queue->first;

    queue->first = letter->next;
    if (queue->first == NULL)
        queue->last = NULL;
    return letter;
}

/* Send a message over this rank's link, to the neighbour's queue of messages from this rank. */
static void post(rank_state_t *me, uint32_t link, uint32_t kind, const void *body, size_t bytes)
{
    rank_state_t *to = &me->world->rank[me->links[link].rank];
    int is_up = me->parent >= 0 && link == 0;

    me->world->sent++;
    put(&to->in[is_up ? (uint32_t)me->parents_link : 0], kind, body, bytes);
}

/* ---- the owner of an agreement ---- */

static void on_send(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
                    int urgent)
{
    (void)urgent;
    post(owner, link, kind, body, bytes);
}

/* Names are "0" to "9". */
static uint32_t tensor_of(const char *name, size_t name_bytes)
{
    return name_bytes == 1 ? (uint32_t)(name[0] - '0') : MOST_TENSORS;
}

static int on_serve(void *owner, const tutti__agreed_t *agreed)
{
    rank_state_t *me = owner;
    uint32_t t = tensor_of(agreed->name, agreed->name_bytes);
    int has_metadata = agreed->metadata != NULL;
    unsigned *outcome;
    const part_t *part;

    if (t >= MOST_TENSORS || me->nserved == MOST_SERVED)
        abort();
    outcome = &me->outcome[me->at[t]][t];
    me->served[me->nserved++] =
        (served_t){ agreed->bucket,       t, agreed->phase, agreed->counts, agreed->last,
                    (uint8_t)has_metadata };
    if (me->gone || !agreed->is_mine)
        return 1;
    if (*outcome != PENDING || me->phase[t] != (agreed->phase ? 2 : 0)) {
        if (!has_metadata || !tutti__agree_has_joined(me->agree))
            world_complain(me->world, "rank %u is to serve %u, phase %d, which is not pending",
                           me->rank, t, agreed->phase);
        return 1;
    }
    if (me->plan.place[t] != PLACE_NONE)
        world_complain(me->world, "rank %u is to serve %u, which is in a plan: %d", me->rank, t,
                       me->plan.place[t]);
    me->is_announced[t] = 0;
    part = &me->world->scenario[me->at[t]].part[t][me->rank];
    me->bytes[me->nserved - 1] = part->metadata.count * 4;
    if (part->metadata.unsure && !agreed->phase && !agreed->counts)
        world_complain(me->world, "rank %u does not know recvcounts of %u", me->rank, t);
    if (agreed->counts)
        me->phase[t] = 1;
    else
        *outcome = SERVED;
    return 1;
}

static void on_reject(void *owner, const tutti__rejected_t *rejected)
{
    rank_state_t *me = owner;
    uint32_t t = tensor_of(rejected->name, rejected->name_bytes);
    unsigned *outcome;

    if (t >= MOST_TENSORS)
        abort();
    outcome = &me->outcome[me->at[t]][t];
    if (me->gone || *outcome != PENDING || me->phase[t] != (rejected->phase ? 2 : 0))
        return;
    if (strstr(rejected->text, "tensor '") == NULL)
        world_complain(me->world, "a rejection says '%s'", rejected->text);
    if (me->plan.place[t] != PLACE_NONE)
        world_complain(me->world, "rank %u is to reject %u, which is in a plan: %d", me->rank, t,
                       me->plan.place[t]);
    me->is_announced[t] = 0;
    *outcome = rejected->status == TUTTI_ERR_MISMATCH ? MISMATCH : UNSUPPORTED;
}

static void on_joined(void *owner, uint32_t last_rank)
{
    rank_state_t *me = owner;

    if (!me->gone && !me->joining)
        world_complain(me->world, "rank %u has not joined, rank %u last", me->rank, last_rank);
    me->joining = 0;
}

static void on_fail(void *owner, tutti_status_t status, const char *text)
{
    rank_state_t *me = owner;

    world_complain(me->world, "rank %u failed: %d, %s", me->rank, status, text);
}

static uint64_t on_now(void *owner)
{
    return ((rank_state_t *)owner)->world->now_ns;
}

static const char *on_name(void *owner, uint32_t rank)
{
    static const char *const names[] = { "rank 0", "rank 1", "rank 2", "rank 3", "rank 4",
                                         "rank 5", "rank 6", "rank 7", "rank 8" };

    (void)owner;
    return names[rank];
}

static uint32_t on_world_rank(void *owner, uint32_t rank, int *ret_is_group)
{
    (void)owner;
    *ret_is_group = 0;
    return rank;
}

/* ---- opening and closing ---- */

static void add_behind(world_t *w, rank_state_t *parent, uint32_t link, uint32_t rank)
{
    parent->behind[link][parent->links[link].nranks++] = rank;
    if (parent->parent >= 0)
        add_behind(w, &w->rank[parent->parent], (uint32_t)parent->parents_link, rank);
}

static void grow_tree(world_t *w)
{
    uint32_t deep = draw(w, 3);

    for (uint32_t r = 0; r < w->nranks; r++) {
        rank_state_t *me = &w->rank[r];
        rank_state_t *parent;

        me->world = w;
        me->rank = r;
        me->parent = me->parents_link = -1;
        if (r == 0)
            continue;
        /* All ranks below rank 0, a chain, or a random tree. */
        me->parent = deep == 0 ? 0 : deep == 1 ? (int)r - 1 : (int)draw(w, r);
        parent = &w->rank[me->parent];
        me->nlinks = 1;
        me->links[0] = (tutti__agree_link_t){ parent->rank, 0, me->behind[0] };
        me->parents_link = (int)parent->nlinks++;
        parent->links[me->parents_link] =
            (tutti__agree_link_t){ r, 0, parent->behind[me->parents_link] };
        add_behind(w, parent, (uint32_t)me->parents_link, r);
    }
}

void world_open(world_t *w)
{
    static const tutti__agree_ops_t ops = { .send = on_send,
                                            .serve = on_serve,
                                            .reject = on_reject,
                                            .joined = on_joined,
                                            .plan = planned_begin,
                                            .plan_stop = planned_stop,
                                            .plan_end = planned_end,
                                            .fail = on_fail,
                                            .now_ns = on_now,
                                            .rank_name = on_name,
                                            .world_rank = on_world_rank };

    grow_tree(w);
    for (uint32_t r = 0; r < w->nranks; r++) {
        rank_state_t *me = &w->rank[r];
        tutti__agree_env_t env = {
            .rank = r,
            .size = w->nranks,
            .parent = r == 0 ? -1 : 0,
            .nlinks = me->nlinks,
            .links = me->links,
            .bucket_bytes = BUCKET_BYTES,
            .device_bucket_bytes = BUCKET_BYTES,
            .plan_bytes = w->plan_bytes,
            .plan_part_bytes = w->seed % 3 == 0 ? 60 : 0,
            .ops = &ops,
            .owner = me,
        };

        if (tutti__agree_open(&env, &me->agree) != TUTTI_OK)
            abort();
    }
}

void world_close(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++) {
        for (uint32_t i = 0; i < MOST_RANKS; i++)
            while (w->rank[r].in[i].first != NULL)
                free(take(&w->rank[r].in[i]));
        tutti__agree_close(w->rank[r].agree);
    }
}

/* ---- steps ---- */

int world_is_with(const rank_state_t *me, uint32_t tensor, uint32_t other)
{
    const scenario_t *s = &me->world->scenario[me->at[tensor]];
    const part_t *a = &s->part[tensor][me->rank], *b = &s->part[other][me->rank];

    return a->has && b->has && a->group > 0 && a->group == b->group;
}

tutti__group_msg_t world_group(const rank_state_t *me, uint32_t tensor)
{
    tutti__group_msg_t group = { TUTTI__HASH_INIT, 0, 0 };

    for (uint32_t t = 0; t < MOST_TENSORS; t++) {
        char name = (char)('0' + t);

        if (!world_is_with(me, tensor, t))
            continue;
        group.hash = tutti__hash_more(group.hash, &name, 1);
        group.index += t < tensor;
        group.size++;
    }
    return group.size > 0 ? group : (tutti__group_msg_t){ 0 };
}

static void announce(rank_state_t *me, uint32_t tensor)
{
    const tutti__metadata_t *m =
        &me->world->scenario[me->at[tensor]].part[tensor][me->rank].metadata;
    tutti__group_msg_t group = world_group(me, tensor);
    char name = (char)('0' + tensor);

    if (planned_take(me, tensor))
        return;
    me->is_announced[tensor] = 1;
    tutti__agree_submit(me->agree, &name, 1, m, &group);
}

void world_announce(rank_state_t *me, uint32_t tensor)
{
    for (uint32_t t = 0; t < MOST_TENSORS; t++)
        if (t == tensor || world_is_with(me, tensor, t)) {
            me->plan.place[t] = PLACE_NONE;
            announce(me, t);
        }
}

/* If the seed is even and the sizes are those of the first round, each tensor begins where the
   previous one ends. */
uint64_t world_place(const world_t *w, uint32_t tensor)
{
    uint64_t place = 4096;

    for (uint32_t t = 0; t < tensor; t++)
        place += w->scenario[0].part[t][0].metadata.count * 4 + w->seed % 2 * 4;
    return place;
}

/* A tensor of the plan may be passed by its name or by its index. */
static void learn(rank_state_t *me, uint32_t tensor, const tutti__metadata_t *metadata)
{
    uint64_t place = world_place(me->world, tensor);
    int64_t planned = (me->round + tensor) % 2 ? planned_find(me, tensor) : -1;
    tutti__group_msg_t group = world_group(me, tensor);
    int may_begin = me->plan.entered == me->plan.done;
    char name = (char)('0' + tensor);

    if (planned >= 0)
        tutti__agree_learn_planned(me->agree, (uint32_t)planned, place, may_begin);
    else
        tutti__agree_learn(me->agree, &name, 1, tutti__hash_name(&name, 1), metadata, &group, place,
                           may_begin);
}

/* Submit the call as engine/agreed.c does. */
static void submit_one(rank_state_t *me, uint32_t tensor)
{
    if (me->rank == 0)
        learn(me, tensor, &me->world->scenario[me->round].part[tensor][me->rank].metadata);
    announce(me, tensor);
}

void world_submit_again(rank_state_t *me, uint32_t tensor)
{
    static const tutti__group_msg_t alone;
    tutti__metadata_t m = { .kind = TUTTI_CALL_ALLGATHERV, .dtype = TUTTI_FLOAT32, .phase = 1 };
    char name = (char)('0' + tensor);

    me->phase[tensor] = 2;
    planned_take(me, tensor);
    tutti__agree_submit(me->agree, &name, 1, &m, &alone);
}

void world_join(rank_state_t *me)
{
    me->has_joined = me->joining = 1;
    me->plan.why = 2;
    tutti__agree_join(me->agree);
}

void world_submit(rank_state_t *me, uint32_t tensor)
{
    const scenario_t *s = &me->world->scenario[me->round];
    int group = s->part[tensor][me->rank].group;
    uint32_t n = 0, list[MOST_TENSORS];

    for (uint32_t t = 0; t < s->ntensors; t++)
        if (t == tensor ||
            (group > 0 && s->part[t][me->rank].has && s->part[t][me->rank].group == group))
            list[n++] = t;
    for (uint32_t i = 0; i < n; i++) {
        me->at[list[i]] = me->round;
        me->outcome[me->round][list[i]] = PENDING;
        me->phase[list[i]] = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        submit_one(me, list[i]);
}

/* As in the engine: a goodbye is passed up to rank 0. Then rank 0 sends it down, and each rank that
   receives it acts on it. */
static void take_bye(rank_state_t *me, uint32_t link)
{
    if (me->parent >= 0 && link != 0) {
        post(me, 0, BYE, "", 0);
        return;
    }
    if (me->told)
        return;
    me->told = 1;
    for (uint32_t i = me->parent >= 0; i < me->nlinks; i++)
        post(me, i, BYE, "", 0);
    tutti__agree_depart(me->agree);
}

static void take_dead(rank_state_t *me)
{
    if (me->gone)
        return;
    me->gone = 1;
    for (uint32_t i = 0; i < me->nlinks; i++)
        post(me, i, DEAD, "", 0);
    tutti__agree_clear(me->agree);
}

int world_deliver(world_t *w)
{
    queue_t *full[MOST_RANKS * MOST_RANKS];
    rank_state_t *to[MOST_RANKS * MOST_RANKS];
    uint32_t link[MOST_RANKS * MOST_RANKS], n = 0, i;
    letter_t *letter;

    for (uint32_t r = 0; r < w->nranks; r++)
        for (uint32_t k = 0; k < w->rank[r].nlinks; k++)
            if (w->rank[r].in[k].first != NULL) {
                full[n] = &w->rank[r].in[k];
                to[n] = &w->rank[r];
                link[n++] = k;
            }
    if (n == 0)
        return 0;
    i = draw(w, n);
    letter = take(full[i]);
    if (to[i]->gone)
        ;
    else if (letter->kind == BYE)
        take_bye(to[i], link[i]);
    else if (letter->kind == DEAD)
        take_dead(to[i]);
    else
        tutti__agree_message(to[i]->agree, link[i], letter->kind, letter->body, letter->bytes);
    free(letter);
    return 1;
}

/* A rank that leaves sends its goodbye over all of its links. From then on no message passes
   through this rank. */
void world_leave(world_t *w, uint32_t rank)
{
    rank_state_t *me = &w->rank[rank];

    w->broken = 1;
    me->gone = me->told = 1;
    for (uint32_t i = 0; i < me->nlinks; i++)
        post(me, i, BYE, "", 0);
    tutti__agree_depart(me->agree);
}

void world_die(world_t *w, uint32_t rank)
{
    w->broken = 1;
    take_dead(&w->rank[rank]);
}
