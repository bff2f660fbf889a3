/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: announcements, from this rank and from its subtree.
 *
 * Each inner rank keeps a table of tensors by name. When all ranks of its subtree have announced a
 * tensor, the inner rank passes on one merged announcement. When all ranks have announced a tensor,
 * rank 0, the coordinator, decides on the tensor (decide.c), and puts agreed tensors into buckets
 * (buckets.c). The first rank that merges two different announcements finds the conflict, and
 * passes it up as a pair of ranks.
 *
 * Announcements of messages, and of calls in submission groups, are not merged: each goes to the
 * coordinator at once. tutti__agree_settle also counts them among the announcements of their name.
 * So if another rank uses the name for a collective, all announcements still reach the coordinator,
 * which rejects them.
 */
#include "agree/tensors.h"

#include "base/compiler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* An announcement, before it is packed into a message or after it was unpacked. */
typedef struct {
    tutti__announce_msg_t msg;
    tutti__metadata_t other;
    tutti__group_msg_t group;
    const char *name;
} news_t;

void tutti__agree_fail(tutti__agree_t *a, tutti_status_t status, const char *text)
{
    a->ended = 1;
    a->env.ops->fail(a->env.owner, status, text);
}

void tutti__agree_send_down(tutti__agree_t *a, uint32_t kind, const void *body, size_t bytes)
{
    for (uint32_t i = 0; i < a->env.nlinks; i++)
        if ((int)i != a->env.parent)
            a->env.ops->send(a->env.owner, i, kind, body, bytes, 0);
}

/* urgent: the coordinator must act on the announcement, even if rank 0 has no pending tensor. */
static void send_up(tutti__agree_t *a, const news_t *news, int urgent)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    size_t bytes = sizeof(news->msg);

    assert(a->env.parent >= 0);
    memcpy(body, &news->msg, bytes);
    if (news->msg.conflict) {
        memcpy(body + bytes, &news->other, sizeof(news->other));
        bytes += sizeof(news->other);
    }
    if (news->msg.grouped) {
        memcpy(body + bytes, &news->group, sizeof(news->group));
        bytes += sizeof(news->group);
    }
    memcpy(body + bytes, news->name, news->msg.name_bytes);
    a->env.ops->send(a->env.owner, (uint32_t)a->env.parent, TUTTI__MSG_ANNOUNCE, body,
                     bytes + news->msg.name_bytes, urgent);
}

/* Pass the merged announcement on, because all ranks of this inner rank's subtree have announced
   the name. Returns 1 if this changed or freed the tensor. */
static int pass_on(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    news_t news = { .msg = tensor->msg, .other = tensor->other, .name = tensor->name };
    int moved = tensor->msg.nranks > tensor->passed;

    assert(tensor->passed <= tensor->msg.nranks);
    news.msg.nranks -= tensor->passed;
    if (moved)
        send_up(a, &news, 0);
    tensor->passed = tensor->msg.nranks;
    /* Keep the tensor: a rank that announced this message may later announce a collective. */
    if (tensor->nparticipants > 0)
        return moved;
    tutti__tensor_take_out(a, tensor);
    tutti__tensor_free(a, tensor);
    return 1;
}

int tutti__agree_settle(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    if (tensor->msg.nranks + tensor->nparticipants + a->njoined < a->subtree)
        return 0;
    if (a->env.parent >= 0)
        return pass_on(a, tensor);
    return tutti__decide(a, tensor);
}

static void add_message(tutti__agree_t *a, const news_t *news)
{
    tutti__tensor_t *tensor;
    tutti__participant_t *participant;

    if (!tutti__tensor_add_participant(a, &news->msg, NULL, news->name, &participant))
        return;
    if (a->env.parent < 0)
        tutti__decide_message(a, participant->tensor, participant->rank);
    /* If the message is still in the table although all ranks have announced the name, this is a
       conflict. */
    tensor = tutti__tensor_find(a, news->name, news->msg.name_bytes, news->msg.metadata.phase);
    if (tensor != NULL)
        tutti__agree_settle(a, tensor);
}

static void add_grouped(tutti__agree_t *a, const news_t *news)
{
    tutti__participant_t *participant;
    uint32_t size = news->group.size;

    if (!tutti__tensor_add_participant(a, &news->msg, &news->group, news->name, &participant))
        return;
    /* When the coordinator decides on one tensor of a submission group, it decides on all. */
    for (uint32_t i = 0; i < size; i++)
        if (tutti__agree_settle(a, participant->submission->participant[i]->tensor) &&
            a->env.parent < 0)
            return;
}

static void add(tutti__agree_t *a, uint32_t from, const news_t *news)
{
    int apart = news->msg.grouped || tutti__metadata_is_message(&news->msg.metadata);
    tutti__tensor_t *tensor;

    if (a->env.parent >= 0 && (apart || a->subtree == 1)) {
        send_up(a, news, apart);
        if (a->subtree == 1)
            return;
    }
    if (apart) {
        if (news->msg.grouped)
            add_grouped(a, news);
        else
            add_message(a, news);
        return;
    }
    tensor = tutti__tensor_get(a, news->name, news->msg.name_bytes, news->msg.metadata.phase);
    if (tensor == NULL)
        return;
    tutti__tensor_merge(tensor, &news->msg, &news->other);
    tensor->from[from] = 1;
    tutti__agree_settle(a, tensor);
}

void tutti__agree_submit(tutti__agree_t *a, const char *name, size_t name_bytes,
                         const tutti__metadata_t *metadata, const tutti__group_msg_t *group)
{
    news_t news = {
        .msg = { .metadata = *metadata,
                 .rank = a->env.rank,
                 .nranks = 1,
                 .grouped = group->size > 0,
                 .name_bytes = (uint8_t)name_bytes },
        .group = *group,
        .name = name,
    };

    assert(name_bytes > 0 && name_bytes < TUTTI__NAME_BYTES);
    add(a, a->env.nlinks, &news);
}

static int is_sound(const tutti__agree_t *a, const tutti__announce_msg_t *msg)
{
    const tutti__metadata_t *m = &msg->metadata;

    if (msg->rank >= a->env.size || msg->name_bytes == 0)
        return 0;
    return !tutti__metadata_is_message(m) ||
           ((m->root < a->env.size || m->root == TUTTI__NOBODY) &&
            (m->source < a->env.size || m->source == TUTTI__NOBODY));
}

static void take_announce(tutti__agree_t *a, uint32_t link, const void *body, size_t bytes)
{
    const char *at = body;
    news_t news = { 0 };
    size_t wanted = sizeof(news.msg);

    if (a->departed)
        return;
    if (bytes >= wanted) {
        memcpy(&news.msg, at, sizeof(news.msg));
        wanted += (news.msg.conflict ? sizeof(news.other) : 0) +
                  (news.msg.grouped ? sizeof(news.group) : 0) + news.msg.name_bytes;
    }
    if (bytes != wanted || !is_sound(a, &news.msg)) {
        tutti__agree_fail(a, TUTTI_ERR_INTERNAL, "an announcement is damaged");
        return;
    }
    at += sizeof(news.msg);
    if (news.msg.conflict) {
        memcpy(&news.other, at, sizeof(news.other));
        at += sizeof(news.other);
    }
    if (news.msg.grouped) {
        memcpy(&news.group, at, sizeof(news.group));
        at += sizeof(news.group);
    }
    news.name = at;
    if ((news.msg.grouped || !tutti__metadata_is_message(&news.msg.metadata)) &&
        news.msg.metadata.phase == 0 &&
        tutti__plan_voids(&a->plan, news.name, news.msg.name_bytes, &news.group))
        return;
    add(a, link, &news);
}

/* Handle the messages JOIN and JOINED. */
static void take_rank(tutti__agree_t *a, uint32_t kind, const void *body, size_t bytes)
{
    uint32_t rank;

    if (bytes != sizeof(rank))
        return;
    memcpy(&rank, body, sizeof(rank));
    if (kind == TUTTI__MSG_JOINED)
        tutti__joins_done(a, rank);
    else if (rank < a->env.size)
        tutti__joins_add(a, rank);
}

void tutti__agree_message(tutti__agree_t *a, uint32_t link, uint32_t kind, const void *body,
                          size_t bytes)
{
    switch (kind) {
    case TUTTI__MSG_ANNOUNCE:
        take_announce(a, link, body, bytes);
        break;
    case TUTTI__MSG_BUCKET:
        tutti__buckets_take(a, body, bytes);
        break;
    case TUTTI__MSG_REJECT:
        tutti__buckets_take_reject(a, body, bytes);
        break;
    case TUTTI__MSG_PLAN:
    case TUTTI__MSG_PLAN_STOP:
    case TUTTI__MSG_PLAN_STOPPED:
    case TUTTI__MSG_PLAN_END:
        tutti__plan_message(a, link, kind, body, bytes);
        break;
    default:
        take_rank(a, kind, body, bytes);
        break;
    }
}

/* ---- opening and closing ---- */

tutti_status_t tutti__agree_open(const tutti__agree_env_t *env, tutti__agree_t **ret_agree)
{
    tutti__agree_t *a = calloc(1, sizeof(*a));

    if (a == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "agreement of %u ranks", env->size);
    a->env = *env;
    a->subtree = 1;
    for (uint32_t i = 0; i < env->nlinks; i++)
        a->subtree += env->links[i].nranks;
    a->submission = calloc(env->size, sizeof(*a->submission));
    a->joined = calloc(env->size, sizeof(*a->joined));
    a->members = calloc(env->size, sizeof(*a->members));
    tutti__learn_open(&a->learn);
    if (a->submission == NULL || a->joined == NULL || a->members == NULL ||
        tutti__plan_open(&a->plan, env->nlinks) != TUTTI_OK) {
        tutti__agree_close(a);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "agreement of %u ranks", env->size);
    }
    *ret_agree = a;
    return TUTTI_OK;
}

void tutti__agree_close(tutti__agree_t *a)
{
    if (a == NULL)
        return;
    if (a->submission != NULL)
        tutti__agree_clear(a);
    free(a->submission);
    free(a->joined);
    free(a->members);
    tutti__learn_close(&a->learn);
    tutti__plan_close(&a->plan);
    free(a);
}

void tutti__agree_depart(tutti__agree_t *a)
{
    a->departed = 1;
    tutti__agree_clear(a);
}

void tutti__agree_clear(tutti__agree_t *a)
{
    tutti__tensor_t *next;

    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++)
        while (a->tensors[i] != NULL)
            tutti__tensor_drop(a, a->tensors[i]);
    for (tutti__tensor_t *t = a->ready_first; t != NULL; t = next) {
        next = t->next;
        tutti__tensor_free(a, t);
    }
    a->ready_first = a->ready_last = NULL;
    tutti__plan_clear(&a->plan);
}
