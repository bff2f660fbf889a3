/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of tensors that ranks of this rank's subtree have announced, by name and phase.
 *
 * Most announcements of a tensor are merged into one. The announcements of messages and of
 * submission groups are kept one per rank, as participants. From the participants the coordinator
 * determines the ranks that a message concerns, and it can serve or reject a submission group as a
 * whole. An inner rank passes each participant on at once. It also keeps the participant, to record
 * which rank has announced the name.
 */
#include "agree/tensors.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

/* The link of the table that points to the tensor, or the end of the chain where it belongs. Each
   phase of a name is a separate tensor. */
static tutti__tensor_t **place(tutti__agree_t *a, const char *name, size_t bytes, uint64_t hash,
                               uint8_t phase)
{
    tutti__tensor_t **at = &a->tensors[hash % TUTTI__TENSOR_BUCKETS];

    while (*at != NULL && ((*at)->hash != hash || (*at)->msg.metadata.phase != phase ||
                           (*at)->msg.name_bytes != bytes || memcmp((*at)->name, name, bytes) != 0))
        at = &(*at)->next;
    return at;
}

tutti__tensor_t *tutti__tensor_find(tutti__agree_t *a, const char *name, size_t bytes,
                                    uint8_t phase)
{
    return *place(a, name, bytes, tutti__hash_name(name, bytes), phase);
}

static void no_memory(tutti__agree_t *a)
{
    tutti__agree_fail(a, TUTTI_ERR_NO_MEMORY, "no memory for announcements");
}

tutti__tensor_t *tutti__tensor_new(tutti__agree_t *a, const char *name, size_t bytes, uint64_t hash,
                                   uint8_t phase)
{
    tutti__tensor_t *tensor = calloc(1, sizeof(*tensor) + a->env.nlinks + 1 + bytes + 1);

    if (tensor == NULL) {
        no_memory(a);
        return NULL;
    }
    tensor->name = (char *)tensor->from + a->env.nlinks + 1;
    memcpy(tensor->name, name, bytes);
    tensor->hash = hash;
    tensor->msg.metadata.phase = phase;
    tensor->msg.name_bytes = (uint8_t)bytes;
    return tensor;
}

tutti__tensor_t *tutti__tensor_get(tutti__agree_t *a, const char *name, size_t bytes, uint8_t phase)
{
    uint64_t hash = tutti__hash_name(name, bytes);
    tutti__tensor_t **at = place(a, name, bytes, hash, phase), *tensor = *at;

    if (tensor != NULL)
        return tensor;
    tensor = tutti__tensor_new(a, name, bytes, hash, phase);
    if (tensor == NULL)
        return NULL;
    tensor->since_ns = a->env.ops->now_ns(a->env.owner);
    *at = tensor;
    return tensor;
}

void tutti__tensor_take_out(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    tutti__tensor_t **at =
        place(a, tensor->name, tensor->msg.name_bytes, tensor->hash, tensor->msg.metadata.phase);

    if (*at == tensor)
        *at = tensor->next;
    tensor->next = NULL;
}

/* ---- participants ---- */

static void free_participant(tutti__agree_t *a, tutti__participant_t *participant)
{
    tutti__submission_t *submission = participant->submission;

    assert(participant->tensor->participant[participant->rank] == participant);
    assert(a->nparticipants > 0);
    participant->tensor->participant[participant->rank] = NULL;
    if (submission == NULL || submission->received == submission->size)
        participant->tensor->nparticipants--;
    a->nparticipants--;
    free(participant);
}

void tutti__tensor_free(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tensor->participant[r] != NULL)
            free_participant(a, tensor->participant[r]);
    free(tensor->participant);
    free(tensor);
}

void tutti__tensor_free_if_empty(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tensor->participant[r] != NULL)
            return;
    if (tensor->msg.nranks > 0)
        return;
    tutti__tensor_take_out(a, tensor);
    tutti__tensor_free(a, tensor);
}

/* Free one rank's submission group, and its tensors without other announcements, except `keep`. */
static void drop_submission(tutti__agree_t *a, tutti__submission_t *submission,
                            const tutti__tensor_t *keep)
{
    for (uint32_t i = 0; i < submission->received; i++) {
        tutti__participant_t *participant = submission->participant[i];
        tutti__tensor_t *tensor = participant != NULL ? participant->tensor : NULL;

        submission->participant[i] = NULL;
        if (participant == NULL)
            continue;
        free_participant(a, participant);
        if (tensor != keep)
            tutti__tensor_free_if_empty(a, tensor);
    }
    if (a->submission[submission->rank] == submission)
        a->submission[submission->rank] = NULL;
    free(submission);
}

void tutti__tensor_drop(tutti__agree_t *a, tutti__tensor_t *tensor)
{
    tutti__tensor_take_out(a, tensor);
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tensor->participant[r] != NULL && tensor->participant[r]->submission != NULL)
            drop_submission(a, tensor->participant[r]->submission, tensor);
    tutti__tensor_free(a, tensor);
}

void tutti__tensor_drop_participant(tutti__agree_t *a, tutti__tensor_t *tensor, uint32_t rank)
{
    tutti__participant_t *participant =
        tensor->participant != NULL ? tensor->participant[rank] : NULL;

    if (participant == NULL)
        return;
    if (participant->submission != NULL) {
        drop_submission(a, participant->submission, NULL);
        return;
    }
    free_participant(a, participant);
    tutti__tensor_free_if_empty(a, tensor);
}

void tutti__tensor_drop_group(tutti__agree_t *a, tutti__tensor_t *tensor,
                              const tutti__group_msg_t *group)
{
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tutti__participant_is_of(tensor->participant[r], group))
            drop_submission(a, tensor->participant[r]->submission, tensor);
}

/* Can this be the next announcement of `rank`? If not, the announcement is damaged: a rank
   announces a tensor once, and the calls of a group in their order. group: NULL for a message. */
static int is_next(const tutti__agree_t *a, const tutti__tensor_t *tensor, uint32_t rank,
                   const tutti__group_msg_t *group)
{
    const tutti__submission_t *submission = a->submission[rank];

    if (tensor->participant != NULL && tensor->participant[rank] != NULL)
        return 0;
    if (group == NULL)
        return 1;
    if (submission == NULL)
        return group->index == 0;
    return submission->hash == group->hash && submission->received == group->index;
}

/* The submission group that `rank` is announcing, made at its first call. NULL: no memory. */
static tutti__submission_t *submission_of(tutti__agree_t *a, uint32_t rank,
                                          const tutti__group_msg_t *group)
{
    tutti__submission_t *submission = a->submission[rank];

    if (submission != NULL)
        return submission;
    submission = calloc(1, sizeof(*submission) + group->size * sizeof(submission->participant[0]));
    if (submission == NULL)
        return NULL;
    submission->rank = rank;
    submission->hash = group->hash;
    submission->size = group->size;
    a->submission[rank] = submission;
    return submission;
}

/* A group is complete: count all of its calls in the `nparticipants` of their tensors. */
static void close_submission(tutti__agree_t *a, uint32_t rank, tutti__submission_t *submission)
{
    assert(submission->received == submission->size && a->submission[rank] == submission);
    for (uint32_t i = 0; i < submission->size; i++)
        submission->participant[i]->tensor->nparticipants++;
    a->submission[rank] = NULL;
}

int tutti__tensor_add_participant(tutti__agree_t *a, const tutti__announce_msg_t *msg,
                                  const tutti__group_msg_t *group, const char *name,
                                  tutti__participant_t **ret_participant)
{
    tutti__tensor_t *tensor = tutti__tensor_get(a, name, msg->name_bytes, msg->metadata.phase);
    tutti__participant_t *participant;

    if (tensor == NULL)
        return 0;
    if (!is_next(a, tensor, msg->rank, group)) {
        tutti__agree_fail(a, TUTTI_ERR_INTERNAL, "an announcement is damaged");
        return 0;
    }
    if (tensor->participant == NULL)
        tensor->participant = calloc(a->env.size, sizeof(tensor->participant[0]));
    participant = calloc(1, sizeof(*participant));
    if (tensor->participant == NULL || participant == NULL)
        goto fail;
    participant->rank = msg->rank;
    participant->metadata = msg->metadata;
    participant->tensor = tensor;
    if (group != NULL) {
        participant->submission = submission_of(a, msg->rank, group);
        if (participant->submission == NULL)
            goto fail;
        participant->submission->participant[participant->submission->received++] = participant;
    } else {
        tensor->nparticipants++;
    }
    tensor->participant[msg->rank] = participant;
    a->nparticipants++;
    *ret_participant = participant;
    if (group == NULL || participant->submission->received < participant->submission->size)
        return group == NULL;
    close_submission(a, msg->rank, participant->submission);
    return 1;

fail:
    free(participant);
    no_memory(a);
    return 0;
}

/* ---- merging ---- */

void tutti__tensor_merge(tutti__tensor_t *into, const tutti__announce_msg_t *from,
                         const tutti__metadata_t *other)
{
    tutti__announce_msg_t *msg = &into->msg;
    uint32_t nranks = msg->nranks + from->nranks;
    unsigned priority = msg->nranks == 0 ? 0 : msg->metadata.priority;

    if (msg->nranks == 0 || (from->conflict && !msg->conflict)) {
        uint8_t name_bytes = from->name_bytes;

        *msg = *from;
        msg->name_bytes = name_bytes;
        if (from->conflict)
            into->other = *other;
    } else if (!msg->conflict && tutti__metadata_differ(&msg->metadata, &from->metadata)) {
        msg->conflict = 1;
        msg->other_rank = from->rank;
        into->other = from->metadata;
    } else if (!msg->conflict && from->metadata.kind == TUTTI_CALL_ALLGATHERV) {
        unsigned unsure = msg->metadata.unsure | from->metadata.unsure;

        if (tutti__metadata_has_no_counts(&msg->metadata))
            msg->metadata = from->metadata;
        msg->metadata.unsure = unsure;
    }
    tutti__metadata_raise(&msg->metadata, priority);
    tutti__metadata_raise(&msg->metadata, from->metadata.priority);
    msg->nranks = nranks;
}
