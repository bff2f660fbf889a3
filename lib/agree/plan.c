/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Learned plans: buckets that are fixed in advance, and equal on all ranks. A rank starts a bucket
 * of a plan without agreement, as soon as its own program has submitted the bucket's tensors.
 *
 *      coordinator --PLAN--> all     the plan begins; announcements of its tensors are void
 *      a rank      --STOP--> coordinator --STOP--> all                   no further bucket starts
 *      all      --STOPPED--> coordinator --END-->  all                   the plan is over
 *
 * A rank starts the buckets in their order, again and again. STOPPED reports how many buckets a
 * rank has started; END reports the largest of these numbers. After END each rank enters the
 * buckets up to this number. If a rank lacks tensors of a bucket, it enters the bucket with a call
 * that matches no other call. So all ranks find the mismatch before data move, and announce the
 * tensors of this bucket again: every bucket is served on all ranks or on none.
 *
 * Between PLAN and END no rank announces a tensor of the plan. If an announcement was sent before
 * PLAN arrived, a rank that has received PLAN drops the announcement, and the sender uses the plan
 * for this tensor. Links keep the order, so such an announcement arrives before its sender's
 * STOPPED. A plan is sent as one PLAN message for each of its tensors, and takes effect when the
 * last of these messages arrives. A plan contains no sends and receives of the program, so
 * announcements of sends and receives are not dropped.
 *
 * A plan contains a submission group as a whole. So a rank that has received PLAN drops all
 * announcements of the group or none. If a rank starts one bucket of the group, it starts all of
 * them. If a rank submits other groups with names of the plan, it announces them while it stops the
 * plan.
 */
#include "agree/plan.h"

#include "agree/tensors.h"
#include "base/compiler.h"
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

tutti_status_t tutti__plan_open(tutti__plan_t *plan, uint32_t nlinks)
{
    plan->awaits = calloc(nlinks + 1, 1);
    return plan->awaits != NULL ? TUTTI_OK
                                : tutti__fail(TUTTI_ERR_NO_MEMORY, "plan with %u links", nlinks);
}

void tutti__plan_close(tutti__plan_t *plan)
{
    tutti__tensor_names_free(&plan->names);
    free(plan->tensor);
    free(plan->awaits);
    *plan = (tutti__plan_t){ 0 };
}

void tutti__plan_clear(tutti__plan_t *plan)
{
    tutti__tensor_names_clear(&plan->names);
    plan->state = TUTTI__PLAN_NONE;
    plan->nbuckets = 0;
}

static int64_t find(const tutti__plan_t *plan, const char *name, size_t bytes)
{
    return tutti__tensor_names_find(&plan->names, name, bytes, tutti__hash_name(name, bytes));
}

static int has_effect(const tutti__plan_t *plan)
{
    return plan->state == TUTTI__PLAN_RUNS || plan->state == TUTTI__PLAN_STOPS;
}

int tutti__plan_voids(const tutti__plan_t *plan, const char *name, size_t bytes,
                      const tutti__group_msg_t *group)
{
    int64_t i = has_effect(plan) ? find(plan, name, bytes) : -1;

    return i >= 0 && (group->size == 0 || tutti__group_is_same(group, &plan->tensor[i].group));
}

/* ---- PLAN ---- */

/* Drop the announcements of tensor i that the plan makes void. */
static void drop_announcements(tutti__agree_t *a, uint32_t i)
{
    const tutti__tensor_names_t *names = &a->plan.names;
    tutti__tensor_t *tensor =
        tutti__tensor_find(a, tutti__tensor_names_text(names, i), names->name[i].bytes, 0);

    if (tensor == NULL)
        return;
    tutti__tensor_drop_group(a, tensor, &a->plan.tensor[i].group);
    tensor->msg.nranks = tensor->passed = 0;
    tensor->msg.conflict = 0;
    tensor->conflict_ns = 0;
    memset(tensor->from, 0, a->env.nlinks + 1);
    tutti__tensor_free_if_empty(a, tensor);
}

/* Store one tensor of the plan. Returns 0 if there is no memory. */
static int keep(tutti__agree_t *a, const tutti__plan_msg_t *msg, const char *name)
{
    tutti__plan_t *plan = &a->plan;
    uint64_t hash = tutti__hash_name(name, msg->name_bytes);
    uint32_t capacity = plan->capacity ? 2 * plan->capacity : 64;
    tutti__planned_t *tensor = plan->tensor;

    if (plan->names.n == plan->capacity) {
        tensor = realloc(tensor, capacity * sizeof(*tensor));
        if (tensor == NULL)
            return 0;
        plan->tensor = tensor;
        plan->capacity = capacity;
    }
    tensor[plan->names.n] =
        (tutti__planned_t){ msg->metadata, msg->group, msg->bucket, msg->is_adjacent };
    return tutti__tensor_names_add(&plan->names, name, msg->name_bytes, hash) >= 0;
}

static int is_sound(const tutti__plan_t *plan, const tutti__plan_msg_t *msg, const char *name)
{
    if (msg->name_bytes == 0)
        return 0;
    if (msg->first)
        return plan->state == TUTTI__PLAN_NONE && msg->bucket == 0;
    return plan->state == TUTTI__PLAN_ARRIVES && msg->number == plan->number &&
           (msg->bucket == plan->nbuckets || msg->bucket + 1 == plan->nbuckets) &&
           find(plan, name, msg->name_bytes) < 0;
}

static void take_plan(tutti__agree_t *a, const void *body, size_t bytes)
{
    const tutti__plan_msg_t *msg = body;
    const char *name = (const char *)body + sizeof(*msg);
    tutti__plan_t *plan = &a->plan;

    if (bytes < sizeof(*msg) || bytes != sizeof(*msg) + msg->name_bytes ||
        !is_sound(plan, msg, name)) {
        tutti__agree_fail(a, TUTTI_ERR_INTERNAL, "a plan's message is damaged");
        return;
    }
    tutti__agree_send_down(a, TUTTI__MSG_PLAN, body, bytes);
    if (msg->first) {
        plan->state = TUTTI__PLAN_ARRIVES;
        plan->number = msg->number;
        plan->has_asked = 0;
    }
    if (!keep(a, msg, name)) {
        tutti__agree_fail(a, TUTTI_ERR_NO_MEMORY, "no memory for a plan");
        return;
    }
    plan->nbuckets = msg->bucket + 1;
    if (!msg->last)
        return;
    for (uint32_t i = 0; i < plan->names.n; i++)
        drop_announcements(a, i);
    plan->state = TUTTI__PLAN_RUNS;
    a->env.ops->plan(a->env.owner);
}

static void add_planned(tutti__agree_t *a, const tutti__plan_msg_t *msg, const char *name)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];

    assert(a->env.parent < 0);
    memcpy(body, msg, sizeof(*msg));
    memcpy(body + sizeof(*msg), name, msg->name_bytes);
    take_plan(a, body, sizeof(*msg) + msg->name_bytes);
}

/* ---- the coordinator makes a plan ---- */

/* Does the tensor have an announcement of rank 0, or an announcement that stays valid with the
   plan? */
static int is_in_use(const tutti__agree_t *a, const tutti__tensor_t *tensor,
                     const tutti__group_msg_t *group)
{
    if (tensor->from[a->env.nlinks])
        return 1;
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tensor->participant[r] != NULL &&
            (r == a->env.rank || !tutti__participant_is_of(tensor->participant[r], group)))
            return 1;
    return 0;
}

/* Must the plan wait, because announcements of its tensors are in no bucket yet? */
static int are_announced(tutti__agree_t *a)
{
    const tutti__learn_t *learn = &a->learn;

    if (a->ready_first != NULL)
        return 1;
    for (uint32_t i = 0; i < learn->names.n; i++) {
        const tutti__tensor_t *tensor;

        if (!tutti__learn_is_regular(learn, &learn->known[i]))
            continue;
        tensor = tutti__tensor_find(a, tutti__tensor_names_text(&learn->names, i),
                                    learn->names.name[i].bytes, 0);
        if (tensor != NULL && is_in_use(a, tensor, &learn->known[i].group))
            return 1;
    }
    return 0;
}

static void send_plan(tutti__agree_t *a, const tutti__laid_t *laid, uint32_t n)
{
    tutti__learn_t *learn = &a->learn;
    uint32_t number = a->plan.number + 1;

    tutti__learn_begin(learn, laid, n);
    for (uint32_t i = 0; i < n && !a->ended; i++) {
        uint32_t t = laid[i].tensor;
        tutti__plan_msg_t msg = { .metadata = learn->known[t].metadata,
                                  .group = learn->known[t].group,
                                  .number = number,
                                  .bucket = laid[i].bucket,
                                  .first = i == 0,
                                  .last = i == n - 1,
                                  .is_adjacent = laid[i].is_adjacent,
                                  .name_bytes = (uint8_t)learn->names.name[t].bytes };

        add_planned(a, &msg, tutti__tensor_names_text(&learn->names, t));
    }
}

/* At the end of a step of the program: begin a plan if possible, or stop the present plan if the
   next plan will have more tensors. */
static void end_step(tutti__agree_t *a, int may_begin)
{
    tutti__laid_t *laid;
    int more;
    uint32_t n = tutti__learn_regular(&a->learn, &more);

    if (n > 0 && more && a->njoined == 0 && a->plan.state == TUTTI__PLAN_RUNS)
        tutti__agree_stop_plan(a, 0); /* the next plan has more tensors */
    else if (n > 0 && a->njoined == 0 && a->plan.state == TUTTI__PLAN_NONE && may_begin &&
             !are_announced(a)) {
        laid = tutti__learn_lay_out(&a->learn, n, &a->env);
        if (laid != NULL)
            send_plan(a, laid, n);
        free(laid);
    }
    tutti__learn_next_step(&a->learn);
}

void tutti__agree_learn(tutti__agree_t *a, const char *name, size_t bytes, uint64_t hash,
                        const tutti__metadata_t *metadata, const tutti__group_msg_t *group,
                        uint64_t place, int may_begin)
{
    tutti__known_t *known;

    if (a->env.parent >= 0 || a->env.size == 1 || a->env.plan_bytes == 0 || a->departed || a->ended)
        return;
    known = tutti__learn_entry(&a->learn, name, bytes, hash, metadata);
    if (known == NULL)
        return;
    if (tutti__learn_ends_step(&a->learn, known, group))
        end_step(a, may_begin);
    tutti__learn_note(&a->learn, known, metadata, group, place);
}

void tutti__agree_learn_planned(tutti__agree_t *a, uint32_t planned, uint64_t place, int may_begin)
{
    const tutti__tensor_names_t *names = &a->plan.names;
    tutti__known_t *known;

    assert(a->plan.state == TUTTI__PLAN_RUNS && planned < names->n);
    if (TUTTI__UNLIKELY(planned >= a->learn.nplanned)) {
        tutti__agree_learn(a, tutti__tensor_names_text(names, planned), names->name[planned].bytes,
                           names->name[planned].hash, &a->plan.tensor[planned].metadata,
                           &a->plan.tensor[planned].group, place, may_begin);
        return;
    }
    if (a->env.parent >= 0 || a->departed || a->ended)
        return;
    known = &a->learn.known[a->learn.planned[planned]];
    if (tutti__learn_ends_step(&a->learn, known, &known->group))
        end_step(a, may_begin);
    tutti__learn_repeat(&a->learn, known, place);
}

void tutti__agree_refused(tutti__agree_t *a, const char *name, size_t bytes, uint64_t hash)
{
    int64_t i = tutti__tensor_names_find(&a->learn.names, name, bytes, hash);

    if (i < 0)
        return;
    a->learn.known[i].is_refused = 1;
    a->learn.known[i].streak = 0;
}

void tutti__agree_waited(tutti__agree_t *a)
{
    a->learn.has_waited = 1;
}

/* ---- STOP, STOPPED, END ---- */

static void send_note(tutti__agree_t *a, int link, uint32_t kind, uint64_t buckets,
                      int is_deviation)
{
    tutti__plan_note_t note = { buckets, a->plan.number, (uint32_t)is_deviation };

    for (uint32_t i = 0; i < a->env.nlinks; i++)
        if (link >= 0 ? (int)i == link : (int)i != a->env.parent)
            a->env.ops->send(a->env.owner, i, kind, &note, sizeof(note), 1);
}

/* End the plan. buckets: the largest number of buckets that a rank has started. */
static void end(tutti__agree_t *a, uint64_t buckets)
{
    send_note(a, -1, TUTTI__MSG_PLAN_END, buckets, 0);
    tutti__plan_clear(&a->plan);
    a->env.ops->plan_end(a->env.owner, buckets);
}

static void settle(tutti__agree_t *a)
{
    if (a->plan.awaited > 0)
        return;
    if (a->env.parent >= 0)
        send_note(a, a->env.parent, TUTTI__MSG_PLAN_STOPPED, a->plan.started, 0);
    else
        end(a, a->plan.started);
}

/* Rank 0 has decided to stop the plan: stop it on this rank and its subtree. */
static void stop(tutti__agree_t *a, int is_deviation)
{
    tutti__plan_t *plan = &a->plan;

    if (plan->state != TUTTI__PLAN_RUNS)
        return;
    plan->state = TUTTI__PLAN_STOPS;
    plan->awaited = 0;
    for (uint32_t i = 0; i < a->env.nlinks; i++) {
        plan->awaits[i] = (int)i != a->env.parent;
        plan->awaited += plan->awaits[i];
    }
    send_note(a, -1, TUTTI__MSG_PLAN_STOP, 0, is_deviation);
    plan->started = a->env.ops->plan_stop(a->env.owner);
    if (a->env.parent < 0)
        tutti__learn_again(&a->learn, is_deviation);
    settle(a);
}

void tutti__agree_stop_plan(tutti__agree_t *a, int is_deviation)
{
    if (a->plan.state != TUTTI__PLAN_RUNS || a->plan.has_asked)
        return;
    a->plan.has_asked = 1;
    if (a->env.parent < 0)
        stop(a, is_deviation);
    else
        send_note(a, a->env.parent, TUTTI__MSG_PLAN_STOP, 0, is_deviation);
}

static void take_stopped(tutti__agree_t *a, uint32_t link, uint64_t buckets)
{
    tutti__plan_t *plan = &a->plan;

    /* If a rank has left in the meantime, this rank has deleted the plan. */
    if (plan->state == TUTTI__PLAN_NONE)
        return;
    if (plan->state != TUTTI__PLAN_STOPS || !plan->awaits[link]) {
        tutti__agree_fail(a, TUTTI_ERR_INTERNAL, "a plan has stopped twice");
        return;
    }
    plan->awaits[link] = 0;
    plan->awaited--;
    plan->started = TUTTI__MAX(plan->started, buckets);
    settle(a);
}

void tutti__plan_message(tutti__agree_t *a, uint32_t link, uint32_t kind, const void *body,
                         size_t bytes)
{
    tutti__plan_note_t note;

    if (kind == TUTTI__MSG_PLAN) {
        take_plan(a, body, bytes);
        return;
    }
    if (bytes != sizeof(note)) {
        tutti__agree_fail(a, TUTTI_ERR_INTERNAL, "a plan's message is damaged");
        return;
    }
    memcpy(&note, body, sizeof(note));
    /* Ignore a late note about a plan that is over. */
    if (note.number != a->plan.number)
        return;
    if (kind == TUTTI__MSG_PLAN_STOPPED)
        take_stopped(a, link, note.buckets);
    else if (kind == TUTTI__MSG_PLAN_END && a->plan.state == TUTTI__PLAN_STOPS)
        end(a, note.buckets);
    else if (kind == TUTTI__MSG_PLAN_STOP && (int)link == a->env.parent)
        stop(a, (int)note.is_deviation);
    else if (kind == TUTTI__MSG_PLAN_STOP)
        tutti__agree_stop_plan(a, (int)note.is_deviation);
}

/* ---- for the owner ---- */

int64_t tutti__agree_find_planned(const tutti__agree_t *a, const char *name, size_t bytes)
{
    return TUTTI__LIKELY(!has_effect(&a->plan)) ? -1 : find(&a->plan, name, bytes);
}

void tutti__agree_get_plan(const tutti__agree_t *a, tutti__agree_plan_t *ret_plan)
{
    *ret_plan = (tutti__agree_plan_t){ a->plan.number, a->plan.names.n, a->plan.nbuckets,
                                       a->plan.tensor, &a->plan.names };
}

int tutti__agree_unstopped(const tutti__agree_t *a, uint32_t *ret_rank, int *ret_certain)
{
    int found = 0;

    *ret_certain = 0;
    for (uint32_t i = 0; a->plan.state == TUTTI__PLAN_STOPS && i < a->env.nlinks; i++) {
        if (!a->plan.awaits[i] || *ret_certain)
            continue;
        *ret_rank = a->env.links[i].rank;
        *ret_certain = a->env.links[i].nranks == 1;
        found = 1;
    }
    return found;
}
