/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coordinator: rejecting a tensor together with the submission groups that contain it.
 *
 * If one call of a submission group is rejected, all its calls are rejected, on all ranks. If ranks
 * have put the same names into different groups, all of these groups are rejected. A rank receives
 * only one rejection of a submission. So if the rank submits the name again, no rejection of the
 * old submission can arrive later.
 */
#include "agree/tensors.h"

#include <assert.h>
#include <stdlib.h>

int tutti__refuse_is_complete(const tutti__agree_t *a, const tutti__tensor_t *tensor)
{
    return tensor->msg.nranks + tensor->nparticipants + a->njoined >= a->env.size;
}

/* The rank's submission group that contains the tensor, if this group is complete; or NULL. */
static tutti__submission_t *submission_of(const tutti__tensor_t *tensor, uint32_t rank)
{
    tutti__participant_t *participant =
        tensor->participant != NULL ? tensor->participant[rank] : NULL;
    tutti__submission_t *submission = participant != NULL ? participant->submission : NULL;

    return submission != NULL && submission->received == submission->size ? submission : NULL;
}

int tutti__refuse_gather(const tutti__agree_t *a, tutti__tensor_t *first)
{
    tutti__tensor_t *end = first;
    int complete = 1;

    assert(first->related == NULL);
    first->related = first;
    for (tutti__tensor_t *t = first;; t = t->related) {
        complete &= tutti__refuse_is_complete(a, t);
        for (uint32_t r = 0; t->participant != NULL && r < a->env.size; r++) {
            const tutti__submission_t *submission = submission_of(t, r);

            for (uint32_t i = 0; submission != NULL && i < submission->received; i++) {
                tutti__tensor_t *other = submission->participant[i]->tensor;

                if (other->related != NULL)
                    continue;
                end->related = other;
                end = other->related = other;
            }
        }
        if (t->related == t)
            return complete;
    }
}

/* Take the tensor out of the chain. Returns the next tensor of the chain, or NULL. */
static tutti__tensor_t *next_related(tutti__tensor_t *tensor)
{
    tutti__tensor_t *next = tensor->related == tensor ? NULL : tensor->related;

    tensor->related = NULL;
    return next;
}

void tutti__refuse_dissolve(const tutti__agree_t *a, tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++) {
        tutti__submission_t *submission = submission_of(tensor, r);

        for (uint32_t i = 0; submission != NULL && i < submission->received; i++) {
            submission->participant[i]->submission = NULL;
            submission->participant[i]->mark = 1;
        }
        free(submission);
    }
}

/* Reject one tensor. If some rank has not announced it, reject it only on the marked ranks, whose
   groups are rejected. The other ranks' announcements stay, and the tensor may still be served if
   the marked ranks announce it again. */
static void refuse_one(tutti__agree_t *a, tutti__tensor_t *tensor, tutti_status_t status,
                       const char *text)
{
    uint32_t n = 0;

    if (tutti__refuse_is_complete(a, tensor)) {
        tutti__buckets_reject(a, tensor, status, text, NULL, 0);
        return;
    }
    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++)
        if (tensor->participant[r] != NULL && tensor->participant[r]->mark)
            a->members[n++] = r;
    if (n > 0)
        tutti__buckets_reject(a, tensor, status, text, a->members, n);
}

void tutti__refuse_ungather(tutti__tensor_t *first)
{
    for (tutti__tensor_t *t = first; t != NULL;)
        t = next_related(t);
}

void tutti__refuse_gathered(tutti__agree_t *a, tutti__tensor_t *first, tutti_status_t status,
                            const char *text)
{
    tutti__tensor_t *next;

    assert(first->related != NULL);
    for (tutti__tensor_t *t = first; t != NULL; t = t->related == t ? NULL : t->related)
        tutti__refuse_dissolve(a, t);
    for (tutti__tensor_t *t = first; t != NULL; t = next) {
        next = next_related(t);
        refuse_one(a, t, status, text);
    }
}
