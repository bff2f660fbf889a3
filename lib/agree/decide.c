/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coordinator decides on a tensor when all ranks that the tensor concerns have announced it.
 *
 * A collective concerns all ranks. A message concerns a set of ranks that name each other. To find
 * the set, the coordinator begins with the rank that announced last, and follows each rank's
 * receiver and sender. If all of these ranks have announced the name, the set is closed: no other
 * rank can belong to it, so the messages match or they conflict. Thus a pair is served without
 * waiting for other ranks, and a ring over all ranks is served as one tensor.
 *
 * When all ranks have announced a name, no later announcement can close a set. If the announcements
 * form neither a collective of all ranks nor closed sets, the coordinator rejects them.
 */
#include "agree/tensors.h"

#include "base/compiler.h"
#include "base/constants.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two ranks that announced a tensor differently. */
typedef struct {
    uint32_t rank, other_rank;
    const tutti__metadata_t *metadata, *other;
    const tutti__submission_t *submission, *other_submission; /* or NULL */
} conflict_t;

static tutti__group_msg_t group_of(const tutti__submission_t *submission)
{
    return submission != NULL ? (tutti__group_msg_t){ submission->hash, 0, submission->size }
                              : (tutti__group_msg_t){ 0 };
}

static void conflict_text(char *text, size_t bytes, const tutti__tensor_t *tensor,
                          const conflict_t *c)
{
    int n = snprintf(text, bytes, "tensor '%.100s': ", tensor->name);
    tutti__group_msg_t group = group_of(c->submission), other = group_of(c->other_submission);

    tutti__metadata_texts(text + n, bytes - (size_t)n, c->rank, c->metadata, &group, c->other_rank,
                          c->other, &other);
}

/* ---- messages ---- */

/* Does p's send match the receive of p's destination, and p's receive the send of p's source? A
   call that is not announced yet counts as a match. */
static int participant_fits(const tutti__tensor_t *tensor, const tutti__participant_t *p,
                            conflict_t *ret_conflict)
{
    const tutti__metadata_t *f = &p->metadata;
    const tutti__participant_t *to = f->root != TUTTI__NOBODY ? tensor->participant[f->root] : NULL;
    const tutti__participant_t *from =
        f->source != TUTTI__NOBODY ? tensor->participant[f->source] : NULL;
    const tutti__participant_t *wrong = NULL;

    if (to != NULL && (to->metadata.source != p->rank || to->metadata.more != f->count ||
                       to->metadata.dtype != f->dtype || to->metadata.on_device != f->on_device))
        wrong = to;
    else if (from != NULL && from->metadata.root != p->rank)
        wrong = from;
    if (wrong == NULL)
        return 1;
    *ret_conflict =
        (conflict_t){ p->rank, wrong->rank, f, &wrong->metadata, p->submission, wrong->submission };
    return 0;
}

/* Add a participant's peer to the list, if it is not there yet. Returns 0 if the peer has not
   announced the tensor, or only in a submission group. */
static int reach(const tutti__tensor_t *tensor, uint32_t peer, uint32_t *list, uint32_t *n)
{
    tutti__participant_t *participant;

    if (peer == TUTTI__NOBODY)
        return 1;
    participant = tensor->participant[peer];
    if (participant == NULL || participant->submission != NULL)
        return 0;
    if (!participant->mark)
        list[(*n)++] = peer;
    participant->mark = 1;
    return 1;
}

/* List the ranks that the message of `rank` concerns. Returns 0 if one of these ranks has not
   announced the name. */
static int closure(const tutti__tensor_t *tensor, uint32_t rank, uint32_t *list, uint32_t *ret_n)
{
    int closed = 1;

    *ret_n = 0;
    reach(tensor, rank, list, ret_n);
    for (uint32_t i = 0; i < *ret_n && closed; i++) {
        const tutti__metadata_t *f = &tensor->participant[list[i]]->metadata;

        closed = reach(tensor, f->root, list, ret_n) && reach(tensor, f->source, list, ret_n);
    }
    for (uint32_t i = 0; i < *ret_n; i++)
        tensor->participant[list[i]]->mark = 0;
    return closed;
}

/* Move the ranks of a closed set into a new, agreed tensor. The other ranks stay in the table. */
static void split_off(tutti__agree_t *a, tutti__tensor_t *tensor, const uint32_t *list, uint32_t n)
{
    tutti__tensor_t *ready =
        tutti__tensor_new(a, tensor->name, tensor->msg.name_bytes, tensor->hash, 0);
    tutti__participant_t **participant = calloc(a->env.size, sizeof(tutti__participant_t *));

    if (ready != NULL && participant == NULL)
        tutti__agree_fail(a, TUTTI_ERR_NO_MEMORY, "no memory for announcements");
    if (ready == NULL || participant == NULL) {
        free(ready);
        free(participant);
        return;
    }
    assert(n > 0);
    ready->msg.metadata = tensor->participant[list[0]]->metadata;
    ready->participant = participant;
    for (uint32_t i = 0; i < n; i++) {
        tutti__participant_t *p = tensor->participant[list[i]];

        tutti__metadata_raise(&ready->msg.metadata, p->metadata.priority);
        participant[p->rank] = p;
        p->tensor = ready;
        tensor->participant[p->rank] = NULL;
        tensor->nparticipants--;
        ready->nparticipants++;
    }
    tutti__tensor_free_if_empty(a, tensor);
    tutti__buckets_ready(a, ready);
}

void tutti__decide_message(tutti__agree_t *a, tutti__tensor_t *tensor, uint32_t rank)
{
    uint32_t *list = a->members, n;
    char text[TUTTI__ERROR_BYTES];
    conflict_t conflict;

    if (a->njoined > 0 && tutti__decide_joined(a, tensor))
        return;
    if (!closure(tensor, rank, list, &n))
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (!participant_fits(tensor, tensor->participant[list[i]], &conflict)) {
            conflict_text(text, sizeof(text), tensor, &conflict);
            tutti__buckets_reject(a, tensor, TUTTI_ERR_MISMATCH, text, list, n);
            return;
        }
    }
    split_off(a, tensor, list, n);
}

int tutti__decide_joined(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    char text[TUTTI__ERROR_BYTES];
    uint32_t n = 0;

    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tensor->participant[r] != NULL && tensor->participant[r]->submission == NULL)
            a->members[n++] = r;
    if (n == 0)
        return 0;
    snprintf(text, sizeof(text), "tensor '%.200s': messages are not served while ranks have joined",
             tensor->name);
    tutti__buckets_reject(a, tensor, TUTTI_ERR_UNSUPPORTED, text, a->members, n);
    return 1;
}

/* ---- conflicts ---- */

/* Does an incomplete submission group contain a tensor of the chain (tutti__refuse_gather)? If so,
   the chain waits for this group, because a group is rejected only as a whole. */
static int is_coming_in(const tutti__agree_t *a, const tutti__tensor_t *first)
{
    for (const tutti__tensor_t *t = first;; t = t->related) {
        for (uint32_t r = 0; t->participant != NULL && r < a->env.size; r++) {
            const tutti__submission_t *submission =
                t->participant[r] != NULL ? t->participant[r]->submission : NULL;

            if (submission != NULL && submission->received < submission->size)
                return 1;
        }
        if (t->related == t)
            return 0;
    }
}

/* Reject a tensor in conflict, and the tensors of its chain (tutti__refuse_gather). Returns 0 if
   some tensor of the chain is not complete, and the chain must still wait: until its grace period
   ends, or until a submission group is complete. */
static int refuse(tutti__agree_t *a, tutti__tensor_t *tensor, const conflict_t *conflict)
{
    char text[TUTTI__ERROR_BYTES];
    uint64_t now = a->env.ops->now_ns(a->env.owner);

    if (!tutti__refuse_gather(a, tensor)) {
        if (tensor->conflict_ns == 0)
            tensor->conflict_ns = now;
        if (now - tensor->conflict_ns < TUTTI__CONFLICT_NS || is_coming_in(a, tensor)) {
            a->conflict_ns = a->conflict_ns == 0 ? now : a->conflict_ns;
            tutti__refuse_ungather(tensor);
            return 0;
        }
    }
    conflict_text(text, sizeof(text), tensor, conflict);
    tutti__refuse_gathered(a, tensor, TUTTI_ERR_MISMATCH, text);
    return 1;
}

/* Reject a tensor that is not served while ranks have joined. Returns 1 if it was rejected. */
static int refuse_joined(tutti__agree_t *a, tutti__tensor_t *tensor,
                         const tutti__metadata_t *metadata)
{
    const char *why = a->njoined > 0 ? tutti__joins_refuse(a, metadata) : NULL;
    char text[TUTTI__ERROR_BYTES];

    if (why == NULL)
        return 0;
    snprintf(text, sizeof(text), "tensor '%.200s': %s", tensor->name, why);
    tutti__refuse_gather(a, tensor);
    tutti__refuse_gathered(a, tensor, TUTTI_ERR_UNSUPPORTED, text);
    return 1;
}

void tutti__agree_late(tutti__agree_t *a)
{
    if (TUTTI__LIKELY(a->conflict_ns == 0) ||
        a->env.ops->now_ns(a->env.owner) - a->conflict_ns < TUTTI__CONFLICT_NS)
        return;
    a->conflict_ns = 0;
    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++) {
        tutti__tensor_t *t = a->tensors[i];

        while (t != NULL) {
            int has_conflict = t->conflict_ns != 0 && tutti__refuse_is_complete(a, t);

            /* A rejection may remove further tensors from the list, so search it again. */
            t = has_conflict && tutti__decide(a, t) ? a->tensors[i] : t->next;
        }
    }
}

/* ---- groups ---- */

static const tutti__participant_t *first_participant(const tutti__agree_t *a,
                                                     const tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; r < a->env.size; r++)
        if (tensor->participant[r] != NULL)
            return tensor->participant[r];
    return NULL;
}

/* Returns 1 if all ranks have submitted the tensor in the same group. Otherwise *ret_conflict has
   two ranks, which submitted the tensor in different groups or in no group. */
static int is_one_group(const tutti__agree_t *a, const tutti__tensor_t *tensor,
                        conflict_t *ret_conflict)
{
    const tutti__participant_t *first = first_participant(a, tensor), *other = NULL;

    assert(first != NULL);
    if (tensor->msg.nranks > 0) {
        *ret_conflict = (conflict_t){ tensor->msg.rank, first->rank, &tensor->msg.metadata,
                                      &first->metadata, NULL,        first->submission };
        return 0;
    }
    for (uint32_t r = first->rank + 1; r < a->env.size; r++) {
        const tutti__participant_t *p = tensor->participant[r];

        if (p == NULL)
            continue;
        if (other == NULL)
            other = p;
        if (p->submission == NULL || first->submission == NULL ||
            p->submission->hash != first->submission->hash) {
            other = p;
            break;
        }
        other = NULL;
    }
    if (other == NULL && first->submission != NULL)
        return 1;
    if (other == NULL)
        other = first;
    *ret_conflict = (conflict_t){ first->rank,      other->rank,       &first->metadata,
                                  &other->metadata, first->submission, other->submission };
    return 0;
}

/* Do all calls of one tensor of a group match? Sets the tensor's metadata. */
static int participants_fit(const tutti__agree_t *a, tutti__tensor_t *tensor,
                            conflict_t *ret_conflict)
{
    const tutti__participant_t *first = first_participant(a, tensor);

    for (uint32_t r = 0; r < a->env.size; r++) {
        const tutti__participant_t *p = tensor->participant[r];
        tutti__announce_msg_t msg = { .nranks = 1, .name_bytes = tensor->msg.name_bytes };

        if (p == NULL)
            continue;
        *ret_conflict =
            (conflict_t){ first->rank,  r, &first->metadata, &p->metadata, first->submission,
                          p->submission };
        if (tutti__metadata_is_message(&first->metadata)) {
            if (!tutti__metadata_is_message(&p->metadata) ||
                !participant_fits(tensor, p, ret_conflict))
                return 0;
            if (p == first)
                tensor->msg.metadata = first->metadata;
            tutti__metadata_raise(&tensor->msg.metadata, p->metadata.priority);
            continue;
        }
        msg.metadata = p->metadata;
        msg.rank = r;
        tutti__tensor_merge(tensor, &msg, NULL);
        if (tensor->msg.conflict)
            return 0;
    }
    return 1;
}

/* Compare the participants' calls. Afterwards tensor->msg counts no announcements, as before. */
static int merge_participants(const tutti__agree_t *a, tutti__tensor_t *tensor,
                              conflict_t *ret_conflict)
{
    int fit = participants_fit(a, tensor, ret_conflict);

    tensor->msg.nranks = 0;
    tensor->msg.conflict = 0;
    return fit;
}

static int decide_group(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    const tutti__submission_t *submission = first_participant(a, tensor)->submission;
    tutti__tensor_t *first = NULL, **end = &first, *next;
    uint32_t size = submission->size;
    conflict_t conflict;

    assert(submission->received == size);
    for (uint32_t i = 0; i < size; i++) {
        tutti__tensor_t *t = submission->participant[i]->tensor;

        if (!merge_participants(a, t, &conflict))
            return refuse(a, t, &conflict);
        if (refuse_joined(a, t, &t->msg.metadata))
            return 1;
    }
    for (uint32_t i = 0; i < size; i++) {
        tutti__tensor_take_out(a, submission->participant[i]->tensor);
        *end = submission->participant[i]->tensor;
        end = &submission->participant[i]->tensor->next;
    }
    tutti__refuse_dissolve(a, first);
    for (; first != NULL; first = next) {
        next = first->next;
        tutti__buckets_ready(a, first);
    }
    return 1;
}

/* ---- announced by all ranks ---- */

int tutti__decide(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    conflict_t conflict = {
        tensor->msg.rank, tensor->msg.other_rank, &tensor->msg.metadata, &tensor->other, NULL, NULL
    };

    assert(a->env.parent < 0 && tutti__refuse_is_complete(a, tensor));
    if (tensor->msg.conflict)
        return refuse(a, tensor, &conflict);
    if (tensor->nparticipants > 0 && is_one_group(a, tensor, &conflict))
        return decide_group(a, tensor);
    if (tensor->nparticipants > 0)
        return refuse(a, tensor, &conflict);
    if (refuse_joined(a, tensor, &tensor->msg.metadata))
        return 1;
    tutti__tensor_take_out(a, tensor);
    tutti__buckets_ready(a, tensor);
    return 1;
}
