/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: which tensors are ready on all ranks.
 *
 * Announcements go up the tree. Each rank with children keeps a table of tensors by name; when all
 * ranks of its subtree have announced one, a leader passes on ONE merged announcement, and rank 0
 * has an agreed tensor (decide.c), which goes into a bucket (plan.c). Differences are found where
 * they meet, and travel along as a pair of ranks.
 *
 * Two kinds are not merged but passed on at once, and rank 0 sees each rank's: messages, which
 * concern some ranks only, and groups, which are served or refused as a whole. So that a rank that
 * came with one of those under a name that others use for something else is no riddle, it counts as
 * having come: the leader passes on what the others have announced, and rank 0 tells them all.
 *
 * A rank that has joined (tutti_join) counts as having announced everything.
 *
 * Learned plans (the same buckets step after step without agreeing again) will stand between
 * tutti__agree_submit and the announcement.
 */
#include "engine/agree.h"

#include <string.h>

/* An announcement in pieces. */
typedef struct {
    tutti__announce_msg_t msg;
    tutti__facts_t other;
    tutti__group_msg_t group;
    const char *name;
} news_t;

static void send_up(tutti__engine_t *e, const news_t *news)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    size_t bytes = sizeof(news->msg);

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
    tutti__link_send(e, (uint32_t)e->parent, TUTTI__MSG_ANNOUNCE, body,
                     bytes + news->msg.name_bytes);
}

/* A leader: everybody here has come with something of this name. 1 if that was news. */
static int pass_on(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    news_t news = { .msg = tensor->msg, .other = tensor->other, .name = tensor->name };
    int moved = tensor->msg.nranks > tensor->passed;

    news.msg.nranks -= tensor->passed;
    if (moved)
        send_up(e, &news);
    tensor->passed = tensor->msg.nranks;
    /* The ranks that came with something else may yet come with this. */
    if (tensor->nparties > 0)
        return moved;
    tutti__tensor_take_out(e, tensor);
    tutti__tensor_free(e, tensor);
    return 1;
}

/* Have all ranks come that are to come? 1 if that changed anything: at rank 0 the tensor is gone,
   perhaps others with it. */
static int settle(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    if (tensor->msg.nranks + tensor->nparties + e->njoined < e->subtree)
        return 0;
    if (e->parent >= 0)
        return pass_on(e, tensor);
    return tutti__decide(e, tensor);
}

static void add_message(tutti__engine_t *e, const news_t *news)
{
    tutti__tensor_t *tensor;
    tutti__party_t *party;

    if (!tutti__tensor_add_party(e, &news->msg, NULL, news->name, &party))
        return;
    if (e->parent < 0)
        tutti__decide_message(e, party->tensor, party->rank);
    /* If that did not decide it, it may be the last that was missing for a riddle. */
    tensor = tutti__tensor_find(e, news->name, news->msg.name_bytes, news->msg.facts.phase);
    if (tensor != NULL)
        settle(e, tensor);
}

static void add_grouped(tutti__engine_t *e, const news_t *news)
{
    tutti__party_t *party;
    uint32_t size = news->group.size;

    if (!tutti__tensor_add_party(e, &news->msg, &news->group, news->name, &party))
        return;
    /* Once rank 0 has decided one tensor of it, all are decided. */
    for (uint32_t i = 0; i < size; i++)
        if (settle(e, party->gang->party[i]->tensor) && e->parent < 0)
            return;
}

static void add(tutti__engine_t *e, int link, const news_t *news)
{
    int apart = news->msg.grouped || tutti__facts_is_message(&news->msg.facts);
    tutti__tensor_t *tensor;

    if (e->parent >= 0 && (apart || e->subtree == 1)) {
        /* Rank 0 has this to do even if no tensor of its own is pending. */
        e->link[e->parent].urgent |= apart;
        send_up(e, news);
        if (e->subtree == 1)
            return;
    }
    if (apart) {
        if (news->msg.grouped)
            add_grouped(e, news);
        else
            add_message(e, news);
        return;
    }
    tensor = tutti__tensor_get(e, news->name, news->msg.name_bytes, news->msg.facts.phase);
    if (tensor == NULL)
        return;
    tutti__facts_merge(tensor, &news->msg, &news->other);
    tensor->from[link < 0 ? e->nlinks : (uint32_t)link] = 1;
    settle(e, tensor);
}

void tutti__agree_submit(tutti__engine_t *e, tutti__request_t *request)
{
    size_t bytes = request->name_bytes;
    char name[TUTTI__NAME_BYTES];
    news_t news = { .group = request->group, .name = name };

    if (request->joins) {
        tutti__agree_join(e, e->rank);
        return;
    }
    /* At rank 0 this may end the request, and its owner free it, before the name is done with. */
    memcpy(name, request->name, bytes + 1);
    news.msg.facts = tutti__facts_of(e, request);
    news.msg.rank = e->rank;
    news.msg.nranks = 1;
    news.msg.grouped = request->group.size > 0 && request->phase == 0;
    news.msg.name_bytes = (uint8_t)bytes;
    add(e, -1, &news);
}

static int is_sound(const tutti__engine_t *e, const tutti__announce_msg_t *msg)
{
    if (msg->rank >= e->size || msg->name_bytes == 0)
        return 0;
    if (!tutti__facts_is_message(&msg->facts))
        return 1;
    return (msg->facts.root < e->size || msg->facts.root == TUTTI__NOBODY) &&
           (msg->facts.source < e->size || msg->facts.source == TUTTI__NOBODY);
}

void tutti__agree_announce(tutti__engine_t *e, int link, const void *body, size_t bytes)
{
    const char *at = body;
    news_t news = { 0 };
    size_t wanted = sizeof(news.msg);

    /* Nothing new can be agreed any more; and of a group the first part is forgotten. */
    if (atomic_load(&e->any_left))
        return;
    if (bytes >= wanted) {
        memcpy(&news.msg, at, sizeof(news.msg));
        wanted += (news.msg.conflict ? sizeof(news.other) : 0) +
                  (news.msg.grouped ? sizeof(news.group) : 0) + news.msg.name_bytes;
    }
    if (bytes != wanted || !is_sound(e, &news.msg)) {
        tutti__watch_dead(e, TUTTI_ERR_INTERNAL, "an announcement is damaged");
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
    add(e, link, &news);
}

/* ---- joining ---- */

/* Whether one more tensor is settled now; others may have gone with it. */
static int settle_one(tutti__engine_t *e)
{
    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++)
        for (tutti__tensor_t *t = e->tensors[i]; t != NULL; t = t->next)
            if ((e->parent < 0 && tutti__decide_joined(e, t)) || settle(e, t))
                return 1;
    return 0;
}

void tutti__agree_join(tutti__engine_t *e, uint32_t rank)
{
    if (rank >= e->size || e->subtree == 0)
        return;
    if (e->parent >= 0)
        tutti__link_send(e, (uint32_t)e->parent, TUTTI__MSG_JOIN, &rank, sizeof(rank));
    if (e->joined[rank])
        return;
    e->joined[rank] = 1;
    e->njoined++;
    if (e->parent < 0 && e->njoined == e->size) {
        tutti__agree_joined(e, rank);
        return;
    }
    while (settle_one(e)) {
    }
}

void tutti__agree_joined(tutti__engine_t *e, uint32_t last_rank)
{
    tutti__request_t *join;

    tutti__links_send_down(e, TUTTI__MSG_JOINED, &last_rank, sizeof(last_rank));
    memset(e->joined, 0, e->size);
    e->njoined = 0;
    tutti__mutex_lock(&e->queue_lock);
    join = e->join;
    tutti__mutex_unlock(&e->queue_lock);
    if (join == NULL)
        return;
    join->last_rank = last_rank;
    tutti__request_finish(e, join, TUTTI_OK, NULL);
}
