/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0: ending a tensor together with all that was submitted together with it.
 *
 * A group is one thing, so if one of its tensors ends, all do, on all ranks; and where ranks have
 * made different groups of the same names, all of those end. Each rank hears of each name once, so
 * what it submits again is not meant.
 */
#include "engine/agree.h"

#include <stdlib.h>

/* All have come, one way or another. */
int tutti__refuse_is_complete(const tutti__engine_t *e, const tutti__tensor_t *tensor)
{
    return tensor->msg.nranks + tensor->nparties + e->njoined >= e->size;
}

/* A rank's group that a tensor belongs to, if all of it is there: what comes in yet stays. */
static tutti__gang_t *gang_of(const tutti__tensor_t *tensor, uint32_t rank)
{
    tutti__party_t *party = tensor->party != NULL ? tensor->party[rank] : NULL;
    tutti__gang_t *gang = party != NULL ? party->gang : NULL;

    return gang != NULL && gang->received == gang->size ? gang : NULL;
}

/* Chain (by `related`) the tensors that share groups with the first, and those with them; 1 if all
   of them are complete. */
int tutti__refuse_gather(const tutti__engine_t *e, tutti__tensor_t *first)
{
    tutti__tensor_t *end = first;
    int complete = 1;

    first->related = first;
    for (tutti__tensor_t *t = first;; t = t->related) {
        complete &= tutti__refuse_is_complete(e, t);
        for (uint32_t r = 0; t->party != NULL && r < e->size; r++) {
            const tutti__gang_t *gang = gang_of(t, r);

            for (uint32_t i = 0; gang != NULL && i < gang->received; i++) {
                tutti__tensor_t *other = gang->party[i]->tensor;

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

/* The next of the chain, which is undone on the way. */
static tutti__tensor_t *next_related(tutti__tensor_t *tensor)
{
    tutti__tensor_t *next = tensor->related == tensor ? NULL : tensor->related;

    tensor->related = NULL;
    return next;
}

/* Parties of groups become parties of their own, marked. */
void tutti__refuse_dissolve(const tutti__engine_t *e, tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++) {
        tutti__gang_t *gang = gang_of(tensor, r);

        for (uint32_t i = 0; gang != NULL && i < gang->received; i++) {
            gang->party[i]->gang = NULL;
            gang->party[i]->mark = 1;
        }
        free(gang);
    }
}

/* End one tensor for all who have it; if not all have come, only for those whose groups are ended:
   others may yet be served. */
static void refuse_one(tutti__engine_t *e, tutti__tensor_t *tensor, tutti_status_t status,
                       const char *text)
{
    uint32_t n = 0;

    if (tutti__refuse_is_complete(e, tensor)) {
        tutti__plan_refuse(e, tensor, status, text, NULL, 0);
        return;
    }
    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++)
        if (tensor->party[r] != NULL && tensor->party[r]->mark)
            e->members[n++] = r;
    if (n > 0)
        tutti__plan_refuse(e, tensor, status, text, e->members, n);
}

void tutti__refuse_ungather(tutti__tensor_t *first)
{
    for (tutti__tensor_t *t = first; t != NULL;)
        t = next_related(t);
}

/* Each rank hears of each name once, so what it submits again is not meant. */
void tutti__refuse_gathered(tutti__engine_t *e, tutti__tensor_t *first, tutti_status_t status,
                            const char *text)
{
    tutti__tensor_t *next;

    for (tutti__tensor_t *t = first; t != NULL; t = t->related == t ? NULL : t->related)
        tutti__refuse_dissolve(e, t);
    for (tutti__tensor_t *t = first; t != NULL; t = next) {
        next = next_related(t);
        refuse_one(e, t, status, text);
    }
}
