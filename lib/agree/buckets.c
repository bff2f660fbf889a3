/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buckets and rejections.
 *
 * The coordinator puts agreed tensors into buckets: tensors of a higher priority first, and tensors
 * of one priority in the order of their agreement. It sends the buckets down the tree, so all ranks
 * run the same buckets in the same order.
 *
 * There is no timer. The engine asks for a bucket whenever it can run one. So agreed tensors
 * collect while earlier buckets are in flight. If nothing is in flight, a tensor is sent at once.
 */
#include "agree/tensors.h"

#include "base/compiler.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the coordinator ---- */

/* Insert the tensor behind all tensors of the same priority or a higher priority. */
void tutti__buckets_ready(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    tutti__tensor_t **at = a->ready_last != NULL ? &a->ready_last->next : &a->ready_first;
    unsigned priority = tensor->msg.metadata.priority;

    assert(a->env.parent < 0);
    if (TUTTI__UNLIKELY(priority > 0))
        for (at = &a->ready_first; *at != NULL && (*at)->msg.metadata.priority >= priority;)
            at = &(*at)->next;
    tensor->next = *at;
    *at = tensor;
    if (tensor->next == NULL)
        a->ready_last = tensor;
}

static void take_ready(tutti__agree_t *a, tutti__tensor_t **at, tutti__tensor_t *before)
{
    tutti__tensor_t *tensor = *at;

    *at = tensor->next;
    if (a->ready_last == tensor)
        a->ready_last = before;
    tensor->next = NULL;
}

/* If the tensor is a message, list the next ranks that it concerns, from rank *at on. Returns their
   number, at most TUTTI__MEMBERS; 0: no further ranks, or the tensor is a collective. */
static uint32_t next_members(const tutti__agree_t *a, const tutti__tensor_t *tensor, uint32_t *at,
                             uint32_t *ret_members)
{
    uint32_t n = 0;

    if (!tutti__metadata_is_message(&tensor->msg.metadata))
        return 0;
    for (; *at < a->env.size && n < TUTTI__MEMBERS; (*at)++)
        if (tensor->participant[*at] != NULL)
            ret_members[n++] = *at;
    return n;
}

static void send_tensor(tutti__agree_t *a, uint32_t number, const tutti__tensor_t *tensor, int last)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    uint32_t members[TUTTI__MEMBERS], more[TUTTI__MEMBERS], at = 0;
    tutti__bucket_msg_t msg = {
        .bucket = number,
        .phase = tensor->msg.metadata.phase,
        .counts = (uint8_t)tutti__metadata_needs_counts(&tensor->msg.metadata),
        .has_metadata = a->njoined > 0,
        .name_bytes = tensor->msg.name_bytes,
    };
    uint32_t nmore = next_members(a, tensor, &at, members);

    do {
        size_t bytes = sizeof(msg);

        msg.nmembers = nmore;
        nmore = next_members(a, tensor, &at, more);
        msg.last = last && nmore == 0;
        memcpy(body, &msg, sizeof(msg));
        if (msg.has_metadata) {
            memcpy(body + bytes, &tensor->msg.metadata, sizeof(tensor->msg.metadata));
            bytes += sizeof(tensor->msg.metadata);
        }
        memcpy(body + bytes, tensor->name, msg.name_bytes);
        bytes += msg.name_bytes;
        assert(bytes + msg.nmembers * sizeof(members[0]) <= sizeof(body));
        memcpy(body + bytes, members, msg.nmembers * sizeof(members[0]));
        tutti__buckets_take(a, body, bytes + msg.nmembers * sizeof(members[0]));
        memcpy(members, more, nmore * sizeof(members[0]));
    } while (nmore > 0);
}

static uint64_t most_bytes(const tutti__agree_t *a, const tutti__metadata_t *metadata)
{
    return metadata->on_device ? a->env.device_bucket_bytes : a->env.bucket_bytes;
}

/* Take the tensors of one bucket from the list of agreed tensors: the first tensor, and later
   tensors that can be fused with it. */
static tutti__tensor_t *take_bucket(tutti__agree_t *a)
{
    tutti__tensor_t *first = a->ready_first, **end = &first->next, **at = &a->ready_first;
    tutti__tensor_t *before = NULL;
    uint64_t total = tutti__metadata_bytes(&first->msg.metadata, a->env.size);

    take_ready(a, at, NULL);
    while (*at != NULL) {
        tutti__tensor_t *t = *at;

        if (!tutti__metadata_fuse(&first->msg.metadata, &t->msg.metadata)) {
            before = t;
            at = &t->next;
            continue;
        }
        total += tutti__metadata_bytes(&t->msg.metadata, a->env.size);
        /* A tensor never overtakes an earlier tensor that can be fused with it. */
        if (total > most_bytes(a, &first->msg.metadata))
            break;
        take_ready(a, at, before);
        *end = t;
        end = &t->next;
    }
    return first;
}

int tutti__agree_bucket(tutti__agree_t *a)
{
    tutti__tensor_t *bucket, *next;
    uint32_t number;

    if (TUTTI__LIKELY(a->ready_first == NULL))
        return 0;
    number = a->next_bucket++;
    assert(a->ready_last != NULL);
    for (bucket = take_bucket(a); bucket != NULL; bucket = next) {
        next = bucket->next;
        if (!a->ended)
            send_tensor(a, number, bucket, next == NULL);
        tutti__tensor_free(a, bucket);
    }
    return 1;
}

void tutti__buckets_reject(tutti__agree_t *a, const tutti__tensor_t *tensor, tutti_status_t status,
                           const char *text, const uint32_t *members, uint32_t nmembers)
{
    TUTTI__ALIGNED(8) char body[TUTTI__BODY_BYTES];
    tutti__reject_msg_t msg = {
        .status = (uint32_t)status,
        .text_bytes = (uint16_t)strlen(text),
        .phase = tensor->msg.metadata.phase,
        .name_bytes = tensor->msg.name_bytes,
    };
    size_t bytes = sizeof(msg);

    /* Each REJECT has the name and the text; only the members differ. */
    memcpy(body + bytes, tensor->name, msg.name_bytes);
    bytes += msg.name_bytes;
    memcpy(body + bytes, text, msg.text_bytes);
    bytes += msg.text_bytes;
    assert(bytes + TUTTI__MEMBERS * sizeof(*members) <= sizeof(body));
    do {
        msg.nmembers = TUTTI__MIN(nmembers, TUTTI__MEMBERS);
        memcpy(body, &msg, sizeof(msg));
        if (msg.nmembers > 0)
            memcpy(body + bytes, members, msg.nmembers * sizeof(*members));
        tutti__buckets_take_reject(a, body, bytes + msg.nmembers * sizeof(*members));
        members += msg.nmembers;
        nmembers -= msg.nmembers;
    } while (nmembers > 0);
}

/* ---- all ranks ---- */

/* Forget the announcements of a tensor that is agreed or rejected. */
static void forget(tutti__agree_t *a, const char *name, size_t name_bytes, uint8_t phase,
                   const char *members, uint32_t nmembers)
{
    for (uint32_t i = 0; i < TUTTI__MAX(nmembers, 1); i++) {
        tutti__tensor_t *tensor = tutti__tensor_find(a, name, name_bytes, phase);
        uint32_t rank;

        if (tensor == NULL)
            return;
        if (nmembers == 0) {
            tutti__tensor_drop(a, tensor);
            return;
        }
        memcpy(&rank, members + i * sizeof(rank), sizeof(rank));
        if (rank < a->env.size)
            tutti__tensor_drop_participant(a, tensor, rank);
    }
}

static int is_member(const tutti__agree_t *a, const char *members, uint32_t nmembers)
{
    for (uint32_t i = 0; i < nmembers; i++) {
        uint32_t rank;

        memcpy(&rank, members + i * sizeof(rank), sizeof(rank));
        if (rank == a->env.rank)
            return 1;
    }
    return nmembers == 0;
}

static void damaged(tutti__agree_t *a)
{
    tutti__agree_fail(a, TUTTI_ERR_INTERNAL, "a control message has a wrong length");
}

void tutti__buckets_take_reject(tutti__agree_t *a, const void *body, size_t bytes)
{
    const tutti__reject_msg_t *msg = body;
    const char *name = (const char *)body + sizeof(*msg), *members;
    char text[TUTTI__ERROR_BYTES];
    tutti__rejected_t rejected;

    if (bytes < sizeof(*msg) || bytes != sizeof(*msg) + msg->name_bytes + msg->text_bytes +
                                             msg->nmembers * sizeof(uint32_t)) {
        damaged(a);
        return;
    }
    members = name + msg->name_bytes + msg->text_bytes;
    tutti__agree_send_down(a, TUTTI__MSG_REJECT, body, bytes);
    forget(a, name, msg->name_bytes, msg->phase, members, msg->nmembers);
    if (!is_member(a, members, msg->nmembers))
        return;
    snprintf(text, sizeof(text), "%.*s", (int)msg->text_bytes, name + msg->name_bytes);
    rejected = (tutti__rejected_t){
        .name = name,
        .name_bytes = msg->name_bytes,
        .phase = msg->phase,
        .status = (tutti_status_t)msg->status,
        .text = text,
    };
    a->env.ops->reject(a->env.owner, &rejected);
}

void tutti__buckets_take(tutti__agree_t *a, const void *body, size_t bytes)
{
    const tutti__bucket_msg_t *msg = body;
    const char *name = (const char *)body + sizeof(*msg), *members;
    const tutti__metadata_t *metadata = NULL;
    tutti__agreed_t agreed;
    size_t wanted = sizeof(*msg);

    if (bytes >= sizeof(*msg))
        wanted += (msg->has_metadata ? sizeof(*metadata) : 0) + msg->name_bytes +
                  msg->nmembers * sizeof(uint32_t);
    if (bytes != wanted) {
        damaged(a);
        return;
    }
    if (msg->has_metadata) {
        metadata = (const tutti__metadata_t *)(const void *)name;
        name += sizeof(*metadata);
    }
    members = name + msg->name_bytes;
    tutti__agree_send_down(a, TUTTI__MSG_BUCKET, body, bytes);
    if (a->nparticipants > 0 && a->env.parent >= 0)
        forget(a, name, msg->name_bytes, msg->phase, members, msg->nmembers);
    agreed = (tutti__agreed_t){
        .name = name,
        .name_bytes = msg->name_bytes,
        .bucket = msg->bucket,
        .phase = msg->phase,
        .is_mine = (uint8_t)is_member(a, members, msg->nmembers),
        .counts = msg->counts,
        .last = msg->last,
        .metadata = metadata,
    };
    if (!a->env.ops->serve(a->env.owner, &agreed))
        a->ended = 1;
}
