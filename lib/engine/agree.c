/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: which tensors are ready on all ranks, in which order, in which buckets.
 *
 * Announcements go up the tree. Each rank with children keeps a table of tensors by name; when all
 * ranks of its subtree have announced one, a leader passes on ONE merged announcement, and rank 0
 * has an agreed tensor. Differences in type, count or operation are found where they meet, and
 * travel along as a pair of ranks. Rank 0 puts agreed tensors into buckets in the order in which
 * they became ready, and sends those down; so all ranks run the same buckets in the same order.
 *
 * There is no timer: tensors are collected into one bucket while a lane's worth of buckets is in
 * flight, and sent at once when the lanes are idle.
 *
 * Learned plans (the same buckets step after step without agreeing again) will stand between
 * tutti__agree_submit and the announcement.
 */
#include "engine/state.h"

#include "base/hash.h"
#include "base/names.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table of announced tensors ---- */

static tutti__tensor_t **find(tutti__engine_t *e, const char *name, size_t bytes, uint64_t hash)
{
    tutti__tensor_t **at = &e->tensors[hash % TUTTI__TENSOR_BUCKETS];

    while (*at != NULL && ((*at)->hash != hash || memcmp((*at)->name, name, bytes) != 0 ||
                           (*at)->name[bytes] != '\0'))
        at = &(*at)->next;
    return at;
}

static int differ(const tutti__announce_msg_t *a, const tutti__announce_msg_t *b)
{
    return a->count != b->count || a->dtype != b->dtype || a->op != b->op;
}

/* Add one announcement to what is known; remember the first pair of ranks that differ. */
static void merge(tutti__announce_msg_t *into, const tutti__announce_msg_t *from)
{
    into->nranks += from->nranks;
    if (into->conflict)
        return;
    if (from->conflict) {
        uint32_t nranks = into->nranks;

        *into = *from;
        into->nranks = nranks;
    } else if (differ(into, from)) {
        into->conflict = 1;
        into->other_rank = from->rank;
        into->other_count = from->count;
        into->other_dtype = from->dtype;
        into->other_op = from->op;
    }
}

static void describe(char *text, size_t bytes, uint32_t rank, uint64_t count, uint8_t dtype,
                     uint8_t op)
{
    snprintf(text, bytes, "rank %u has %llu elements of %s, %s", rank, (unsigned long long)count,
             tutti__dtype_name((tutti_dtype_t)dtype), tutti__op_name((tutti_op_t)op));
}

/* Rank 0: tell everybody that a tensor does not fit. */
static void reject(tutti__engine_t *e, const tutti__tensor_t *tensor)
{
    const tutti__announce_msg_t *m = &tensor->msg;
    char one[128], other[128], text[TUTTI__ERROR_BYTES];
    TUTTI__ALIGNED(8)
    char body[sizeof(tutti__reject_msg_t) + TUTTI__NAME_BYTES + TUTTI__ERROR_BYTES];
    tutti__reject_msg_t msg = { TUTTI_ERR_MISMATCH, 0, m->name_bytes, 0 };

    describe(one, sizeof(one), m->rank, m->count, m->dtype, m->op);
    describe(other, sizeof(other), m->other_rank, m->other_count, m->other_dtype, m->other_op);
    snprintf(text, sizeof(text), "tensor '%.200s': %s, %s", tensor->name, one, other);
    msg.text_bytes = (uint16_t)strlen(text);
    memcpy(body, &msg, sizeof(msg));
    memcpy(body + sizeof(msg), tensor->name, msg.name_bytes);
    memcpy(body + sizeof(msg) + msg.name_bytes, text, msg.text_bytes);
    tutti__agree_reject(e, body, sizeof(msg) + msg.name_bytes + msg.text_bytes);
}

/* All ranks of my subtree have announced it. */
static void complete(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    if (e->parent >= 0) {
        tutti__link_send(e, (uint32_t)e->parent, TUTTI__MSG_ANNOUNCE, &tensor->msg,
                         sizeof(tensor->msg), tensor->name, tensor->msg.name_bytes, NULL, 0);
        free(tensor);
    } else if (tensor->msg.conflict) {
        reject(e, tensor);
        free(tensor);
    } else {
        tensor->next = NULL;
        if (e->ready_last != NULL)
            e->ready_last->next = tensor;
        else
            e->ready_first = tensor;
        e->ready_last = tensor;
    }
}

/* link: where it came from, or -1 for this rank's own. */
static void add(tutti__engine_t *e, int link, const tutti__announce_msg_t *msg, const char *name)
{
    uint64_t hash = tutti__hash(name, msg->name_bytes);
    tutti__tensor_t **at = find(e, name, msg->name_bytes, hash), *tensor = *at;

    if (tensor != NULL) {
        merge(&tensor->msg, msg);
    } else {
        tensor = calloc(1, sizeof(*tensor) + e->nlinks + 1);
        if (tensor == NULL) {
            tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for announcements");
            return;
        }
        memcpy(tensor->name, name, msg->name_bytes);
        tensor->hash = hash;
        tensor->msg = *msg;
        tensor->since_ns = tutti__now_ns();
        tensor->next = *at;
        *at = tensor;
    }
    tensor->from[link < 0 ? e->nlinks : (uint32_t)link] = 1;
    if (tensor->msg.nranks >= e->subtree) {
        *at = tensor->next;
        complete(e, tensor);
    }
}

void tutti__agree_submit(tutti__engine_t *e, tutti_request_t *request)
{
    tutti__announce_msg_t msg = {
        .count = request->count,
        .rank = e->rank,
        .nranks = 1,
        .dtype = (uint8_t)request->dtype,
        .op = (uint8_t)request->op,
        .name_bytes = (uint8_t)strlen(request->name),
    };

    request->announced = 1;
    add(e, -1, &msg, request->name);
}

/* A body of a message with its names after the head: is it as long as it says? */
static int well_formed(tutti__engine_t *e, size_t bytes, size_t wanted)
{
    if (bytes == wanted)
        return 1;
    tutti__watch_dead(e, TUTTI_ERR_INTERNAL, "a control message has a wrong length");
    return 0;
}

void tutti__agree_announce(tutti__engine_t *e, int link, const void *body, size_t bytes)
{
    const tutti__announce_msg_t *msg = body;

    if (bytes < sizeof(*msg) || !well_formed(e, bytes, sizeof(*msg) + msg->name_bytes))
        return;
    add(e, link, msg, (const char *)body + sizeof(*msg));
}

/* The first link from which a tensor has not come, or -1. */
static int missing_link(const tutti__engine_t *e, const tutti__tensor_t *tensor)
{
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != e->parent && !tensor->from[i])
            return (int)i;
    return -1;
}

int tutti__agree_missing(tutti__engine_t *e, const tutti_request_t *request, char *text,
                         size_t bytes)
{
    const tutti__tensor_t *tensor =
        *find(e, request->name, strlen(request->name), request->hash);
    int link = tensor != NULL ? missing_link(e, tensor) : -1;

    if (link >= 0 && e->link[link].local) {
        snprintf(text, bytes, "rank %u has not submitted it", e->link[link].rank);
        return 1;
    }
    if (link >= 0)
        snprintf(text, bytes, "rank %u or another one of its host has not submitted it",
                 e->link[link].rank);
    else if (e->parent >= 0)
        snprintf(text, bytes, "rank %u, which knows who has submitted it, does not answer",
                 e->link[e->parent].rank);
    else
        snprintf(text, bytes, "it was not put into a bucket");
    return 0;
}

/* ---- buckets ---- */

static void send_down(tutti__engine_t *e, uint32_t kind, const void *body, size_t bytes)
{
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != e->parent)
            tutti__link_send(e, i, kind, body, bytes, NULL, 0, NULL, 0);
}

void tutti__agree_reject(tutti__engine_t *e, const void *body, size_t bytes)
{
    const tutti__reject_msg_t *msg = body;
    const char *name = (const char *)body + sizeof(*msg);
    char text[TUTTI__ERROR_BYTES];
    tutti_request_t *request;

    if (bytes < sizeof(*msg) ||
        !well_formed(e, bytes, sizeof(*msg) + msg->name_bytes + msg->text_bytes))
        return;
    send_down(e, TUTTI__MSG_REJECT, body, bytes);
    snprintf(text, sizeof(text), "%.*s", (int)msg->text_bytes, name + msg->name_bytes);
    request = tutti__request_find(e, name, msg->name_bytes);
    if (request != NULL)
        tutti__request_finish(e, request, (tutti_status_t)msg->status, text);
}

/* Collect the bucket's requests in the order of its messages. */
void tutti__agree_bucket(tutti__engine_t *e, const void *body, size_t bytes)
{
    const tutti__bucket_msg_t *msg = body;
    tutti__bucket_t *bucket = e->filling;
    tutti_request_t *request;

    if (bytes < sizeof(*msg) || !well_formed(e, bytes, sizeof(*msg) + msg->name_bytes))
        return;
    send_down(e, TUTTI__MSG_BUCKET, body, bytes);
    if (bucket == NULL) {
        bucket = e->filling = calloc(1, sizeof(*bucket));
        if (bucket == NULL) {
            tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
            return;
        }
        bucket->number = msg->bucket;
    }
    request = tutti__request_find(e, (const char *)body + sizeof(*msg), msg->name_bytes);
    if (request == NULL) {
        tutti__watch_dead(e, atomic_load(&e->any_left) ? TUTTI_ERR_SHUTDOWN : TUTTI_ERR_INTERNAL,
                          "a bucket names a tensor that is not pending");
        return;
    }
    request->agreed = 1;
    request->next = NULL;
    if (bucket->last != NULL)
        bucket->last->next = request;
    else
        bucket->first = request;
    bucket->last = request;
    bucket->nrequests++;
    if (msg->last) {
        e->filling = NULL;
        tutti__lanes_add(e, bucket);
    }
}

/* Bytes that a tensor takes in a fused bucket; parts begin at cache lines. */
static size_t fused_bytes(const tutti__announce_msg_t *m)
{
    return TUTTI__ROUND_UP((size_t)m->count * tutti_dtype_bytes((tutti_dtype_t)m->dtype),
                           TUTTI__LINE_BYTES);
}

/* May b follow a in a bucket that has `total` bytes? */
static int fits(const tutti__engine_t *e, const tutti__announce_msg_t *a,
                const tutti__announce_msg_t *b, size_t total)
{
    return a->dtype == b->dtype && a->op == b->op && a->count > 0 && b->count > 0 &&
           total + fused_bytes(b) <= e->env.conf->fusion_bytes;
}

/* One bucket from the head of the list. */
static void plan_one(tutti__engine_t *e)
{
    size_t total = fused_bytes(&e->ready_first->msg);
    uint32_t number = e->next_bucket++;
    int last = 0;

    while (!last && e->ready_first != NULL) {
        tutti__tensor_t *tensor = e->ready_first;
        tutti__bucket_msg_t msg = { number, 0, tensor->msg.name_bytes, { 0 } };
        TUTTI__ALIGNED(8) char body[sizeof(msg) + TUTTI__NAME_BYTES];

        last = tensor->next == NULL || !fits(e, &tensor->msg, &tensor->next->msg, total);
        if (!last)
            total += fused_bytes(&tensor->next->msg);
        msg.last = (uint8_t)last;
        memcpy(body, &msg, sizeof(msg));
        memcpy(body + sizeof(msg), tensor->name, msg.name_bytes);
        e->ready_first = tensor->next;
        if (e->ready_first == NULL)
            e->ready_last = NULL;
        free(tensor);
        tutti__agree_bucket(e, body, sizeof(msg) + msg.name_bytes);
    }
}

int tutti__agree_plan(tutti__engine_t *e)
{
    int moved = 0;

    while (e->ready_first != NULL && e->in_flight < TUTTI__LANES - 1) {
        plan_one(e);
        moved = 1;
    }
    return moved;
}

void tutti__agree_clear(tutti__engine_t *e)
{
    tutti__tensor_t *next;

    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++) {
        for (tutti__tensor_t *t = e->tensors[i]; t != NULL; t = next) {
            next = t->next;
            free(t);
        }
        e->tensors[i] = NULL;
    }
    for (tutti__tensor_t *t = e->ready_first; t != NULL; t = next) {
        next = t->next;
        free(t);
    }
    e->ready_first = e->ready_last = NULL;
    free(e->filling);
    e->filling = NULL;
}
