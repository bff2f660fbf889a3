/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buckets. Rank 0 puts agreed tensors into buckets in the order in which they became ready, and
 * sends those down; so all ranks run the same buckets in the same order.
 *
 * There is no timer: tensors are collected into one bucket while a lane's worth of buckets is in
 * flight, and sent at once when the lanes are idle.
 */
#include "engine/agree.h"

#include <stdlib.h>
#include <string.h>

/* Buckets that are only queued on the device: enough to keep it busy; with more, buckets are
   smaller. Pretend device, 160 tensors of 16 KiB, one each 0.1 ms, NCCL at 0.2 GB/s: with 4, 8, 16
   these are 38, 50, 65 calls in 30, 34, 41 ms. On a GPU it was not measured. */
#define MOST_LANDING 8

/* ---- rank 0 ---- */

void tutti__plan_ready(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    tensor->next = NULL;
    if (e->ready_last != NULL)
        e->ready_last->next = tensor;
    else
        e->ready_first = tensor;
    e->ready_last = tensor;
}

static void take_ready(tutti__engine_t *e, tutti__tensor_t **at, tutti__tensor_t *before)
{
    tutti__tensor_t *tensor = *at;

    *at = tensor->next;
    if (e->ready_last == tensor)
        e->ready_last = before;
    tensor->next = NULL;
}

/* Which ranks a message concerns, from *at on; at most TUTTI__MEMBERS. 0: all, or no more. */
static uint32_t next_members(const tutti__engine_t *e, const tutti__tensor_t *tensor, uint32_t *at,
                             uint32_t *ret_members)
{
    uint32_t n = 0;

    if (!tutti__facts_is_message(&tensor->msg.facts))
        return 0;
    for (; *at < e->size && n < TUTTI__MEMBERS; (*at)++)
        if (tensor->party[*at] != NULL)
            ret_members[n++] = *at;
    return n;
}

static void send_tensor(tutti__engine_t *e, uint32_t number, const tutti__tensor_t *tensor,
                        int last)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    uint32_t members[TUTTI__MEMBERS], more[TUTTI__MEMBERS], at = 0;
    tutti__bucket_msg_t msg = {
        .bucket = number,
        .phase = tensor->msg.facts.phase,
        .counts = (uint8_t)tutti__exchange_needed(&tensor->msg.facts),
        .has_facts = e->njoined > 0,
        .name_bytes = tensor->msg.name_bytes,
    };
    uint32_t nmore = next_members(e, tensor, &at, members);

    do {
        size_t bytes = sizeof(msg);

        msg.nmembers = nmore;
        nmore = next_members(e, tensor, &at, more);
        msg.last = last && nmore == 0;
        memcpy(body, &msg, sizeof(msg));
        if (msg.has_facts) {
            memcpy(body + bytes, &tensor->msg.facts, sizeof(tensor->msg.facts));
            bytes += sizeof(tensor->msg.facts);
        }
        memcpy(body + bytes, tensor->name, msg.name_bytes);
        bytes += msg.name_bytes;
        memcpy(body + bytes, members, msg.nmembers * sizeof(members[0]));
        tutti__plan_bucket(e, body, bytes + msg.nmembers * sizeof(members[0]));
        memcpy(members, more, nmore * sizeof(members[0]));
    } while (nmore > 0);
}

/* The largest bucket of several tensors. */
static size_t most_bytes(const tutti__engine_t *e, const tutti__facts_t *facts)
{
    const tutti__exec_device_t *device = e->env.exec->device;

    if (TUTTI__LIKELY(!facts->on_device) || device == NULL)
        return e->fusion_bytes;
    /* Not what suits the processor's caches. */
    if (e->env.conf->fusion_bytes == TUTTI__CONF_AUTO)
        return device->fuse_bytes;
    return TUTTI__MIN(e->fusion_bytes, device->fuse_bytes);
}

/* One bucket: the head of the list, and what fits to it. */
static void plan_one(tutti__engine_t *e)
{
    tutti__tensor_t *first = e->ready_first, *bucket, **end, **at = &e->ready_first;
    tutti__tensor_t *before = NULL, *next;
    size_t total = tutti__fuse_bytes(&first->msg.facts, e->size);
    uint32_t number = e->next_bucket++;

    bucket = first;
    end = &first->next;
    take_ready(e, at, NULL);
    while (*at != NULL) {
        tutti__tensor_t *t = *at;

        if (!tutti__fuse_fits(&first->msg.facts, &t->msg.facts)) {
            before = t;
            at = &t->next;
            continue;
        }
        total += tutti__fuse_bytes(&t->msg.facts, e->size);
        /* Those behind it stay behind it. */
        if (total > most_bytes(e, &first->msg.facts))
            break;
        take_ready(e, at, before);
        *end = t;
        end = &t->next;
    }
    for (; bucket != NULL && !atomic_load(&e->dead); bucket = next) {
        next = bucket->next;
        send_tensor(e, number, bucket, next == NULL);
        tutti__tensor_free(e, bucket);
    }
    for (; bucket != NULL; bucket = next) {
        next = bucket->next;
        tutti__tensor_free(e, bucket);
    }
}

/* On a device, too, what comes while there is enough to do is fused. */
static int has_room(const tutti__engine_t *e)
{
    return e->in_flight < TUTTI__LANES - 1 && e->nlanding < MOST_LANDING;
}

int tutti__plan(tutti__engine_t *e)
{
    int moved = 0;

    while (e->ready_first != NULL && has_room(e)) {
        plan_one(e);
        moved = 1;
    }
    return moved;
}

void tutti__plan_refuse(tutti__engine_t *e, const tutti__tensor_t *tensor, tutti_status_t status,
                        const char *text, const uint32_t *members, uint32_t nmembers)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    tutti__reject_msg_t msg = {
        .status = (uint32_t)status,
        .text_bytes = (uint16_t)strlen(text),
        .phase = tensor->msg.facts.phase,
        .name_bytes = tensor->msg.name_bytes,
    };
    size_t bytes = sizeof(msg);

    /* The tensor goes with the first message. */
    memcpy(body + bytes, tensor->name, msg.name_bytes);
    bytes += msg.name_bytes;
    memcpy(body + bytes, text, msg.text_bytes);
    bytes += msg.text_bytes;
    do {
        msg.nmembers = TUTTI__MIN(nmembers, TUTTI__MEMBERS);
        memcpy(body, &msg, sizeof(msg));
        if (msg.nmembers > 0)
            memcpy(body + bytes, members, msg.nmembers * sizeof(*members));
        tutti__plan_reject(e, body, bytes + msg.nmembers * sizeof(*members));
        members += msg.nmembers;
        nmembers -= msg.nmembers;
    } while (nmembers > 0);
}

/* ---- all ranks ---- */

/* What a leader, and rank 0, know of the announcements is history now. */
static void forget(tutti__engine_t *e, const char *name, size_t name_bytes, uint8_t phase,
                   const char *members, uint32_t nmembers)
{
    for (uint32_t i = 0; i < TUTTI__MAX(nmembers, 1); i++) {
        tutti__tensor_t *tensor = tutti__tensor_find(e, name, name_bytes, phase);
        uint32_t rank;

        if (tensor == NULL)
            return;
        if (nmembers == 0) {
            tutti__tensor_drop(e, tensor);
            return;
        }
        memcpy(&rank, members + i * sizeof(rank), sizeof(rank));
        if (rank < e->size)
            tutti__tensor_drop_party(e, tensor, rank);
    }
}

static int is_member(const tutti__engine_t *e, const char *members, uint32_t nmembers)
{
    for (uint32_t i = 0; i < nmembers; i++) {
        uint32_t rank;

        memcpy(&rank, members + i * sizeof(rank), sizeof(rank));
        if (rank == e->rank)
            return 1;
    }
    return nmembers == 0;
}

static void damaged(tutti__engine_t *e)
{
    tutti__watch_dead(e, TUTTI_ERR_INTERNAL, "a control message has a wrong length");
}

void tutti__plan_reject(tutti__engine_t *e, const void *body, size_t bytes)
{
    const tutti__reject_msg_t *msg = body;
    const char *name = (const char *)body + sizeof(*msg), *members;
    char text[TUTTI__ERROR_BYTES];
    tutti__request_t *request;

    if (bytes < sizeof(*msg) || bytes != sizeof(*msg) + msg->name_bytes + msg->text_bytes +
                                             msg->nmembers * sizeof(uint32_t)) {
        damaged(e);
        return;
    }
    members = name + msg->name_bytes + msg->text_bytes;
    tutti__links_send_down(e, TUTTI__MSG_REJECT, body, bytes);
    forget(e, name, msg->name_bytes, msg->phase, members, msg->nmembers);
    if (!is_member(e, members, msg->nmembers))
        return;
    snprintf(text, sizeof(text), "%.*s", (int)msg->text_bytes, name + msg->name_bytes);
    request = tutti__request_find(e, name, msg->name_bytes);
    if (request != NULL && request->phase == msg->phase)
        tutti__request_finish(e, request, (tutti_status_t)msg->status, text);
}

/* The request that a bucket names, or a ghost where this rank has joined. */
static tutti__request_t *find_request(tutti__engine_t *e, const tutti__bucket_msg_t *msg,
                                      const tutti__facts_t *facts, const char *name)
{
    tutti__request_t *request = tutti__request_find(e, name, msg->name_bytes);

    if (request == NULL && facts != NULL && e->joined[e->rank])
        return tutti__join_ghost(e, facts, name, msg->name_bytes);
    if (request == NULL)
        tutti__watch_dead(e, atomic_load(&e->any_left) ? TUTTI_ERR_SHUTDOWN : TUTTI_ERR_INTERNAL,
                          "a bucket names a tensor that is not pending");
    return request;
}

static void append(tutti__bucket_t *bucket, tutti__request_t *request)
{
    request->agreed = 1;
    request->next = NULL;
    if (bucket->last != NULL)
        bucket->last->next = request;
    else
        bucket->first = request;
    bucket->last = request;
    bucket->nrequests++;
    bucket->on_device = request->call.on_device != 0;
}

/* The bucket whose messages are coming in. */
static tutti__bucket_t *fill(tutti__engine_t *e, const tutti__bucket_msg_t *msg)
{
    if (e->filling == NULL) {
        e->filling = calloc(1, sizeof(*e->filling));
        if (e->filling == NULL)
            tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
        else
            e->filling->number = msg->bucket;
    }
    return e->filling;
}

void tutti__plan_bucket(tutti__engine_t *e, const void *body, size_t bytes)
{
    const tutti__bucket_msg_t *msg = body;
    const char *name = (const char *)body + sizeof(*msg);
    const tutti__facts_t *facts = NULL;
    tutti__bucket_t *bucket;
    tutti__request_t *request;
    size_t wanted = sizeof(*msg);

    if (bytes >= sizeof(*msg))
        wanted += (msg->has_facts ? sizeof(*facts) : 0) + msg->name_bytes +
                  msg->nmembers * sizeof(uint32_t);
    if (bytes != wanted) {
        damaged(e);
        return;
    }
    if (msg->has_facts) {
        facts = (const tutti__facts_t *)(const void *)name;
        name += sizeof(*facts);
    }
    tutti__links_send_down(e, TUTTI__MSG_BUCKET, body, bytes);
    if (e->nparties > 0 && e->parent >= 0)
        forget(e, name, msg->name_bytes, msg->phase, name + msg->name_bytes, msg->nmembers);
    bucket = fill(e, msg);
    if (bucket == NULL)
        return;
    if (is_member(e, name + msg->name_bytes, msg->nmembers)) {
        request = find_request(e, msg, facts, name);
        if (request == NULL)
            return;
        append(bucket, request);
    }
    bucket->counts = msg->counts;
    bucket->joined = msg->has_facts;
    if (msg->last) {
        e->filling = NULL;
        tutti__lanes_add(e, bucket);
    }
}
