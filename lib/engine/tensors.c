/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of what ranks of my subtree have announced, by name and phase.
 *
 * Most announcements of a tensor are merged into one. Those of messages and of groups are kept for
 * each rank, as parties: whom a message concerns is for rank 0 to find out, and a group is one
 * thing: it is served or refused as a whole. A leader passes parties on at once and remembers them
 * only to know that the rank has come with something of that name.
 */
#include "engine/agree.h"

#include "base/hash.h"
#include "base/time.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

/* The phases of a name are tensors of their own. */
static tutti__tensor_t **place(tutti__engine_t *e, const char *name, size_t bytes, uint64_t hash,
                               uint8_t phase)
{
    tutti__tensor_t **at = &e->tensors[hash % TUTTI__TENSOR_BUCKETS];

    while (*at != NULL && ((*at)->hash != hash || (*at)->msg.facts.phase != phase ||
                           memcmp((*at)->name, name, bytes) != 0 || (*at)->name[bytes] != '\0'))
        at = &(*at)->next;
    return at;
}

tutti__tensor_t *tutti__tensor_find(tutti__engine_t *e, const char *name, size_t bytes,
                                    uint8_t phase)
{
    return *place(e, name, bytes, tutti__hash(name, bytes), phase);
}

static void no_memory(tutti__engine_t *e)
{
    tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for announcements");
}

tutti__tensor_t *tutti__tensor_get(tutti__engine_t *e, const char *name, size_t bytes,
                                   uint8_t phase)
{
    uint64_t hash = tutti__hash(name, bytes);
    tutti__tensor_t **at = place(e, name, bytes, hash, phase), *tensor = *at;

    if (tensor != NULL)
        return tensor;
    tensor = malloc(sizeof(*tensor) + e->nlinks + 1);
    if (tensor == NULL) {
        no_memory(e);
        return NULL;
    }
    memset(tensor, 0, offsetof(tutti__tensor_t, name));
    memset(tensor->from, 0, e->nlinks + 1);
    memcpy(tensor->name, name, bytes);
    tensor->name[bytes] = '\0';
    tensor->hash = hash;
    tensor->msg.facts.phase = phase;
    tensor->msg.name_bytes = (uint8_t)bytes;
    tensor->since_ns = tutti__now_ns();
    *at = tensor;
    return tensor;
}

void tutti__tensor_take_out(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    tutti__tensor_t **at =
        place(e, tensor->name, tensor->msg.name_bytes, tensor->hash, tensor->msg.facts.phase);

    if (*at == tensor)
        *at = tensor->next;
    tensor->next = NULL;
}

/* ---- parties ---- */

static void free_party(tutti__engine_t *e, tutti__party_t *party)
{
    tutti__gang_t *gang = party->gang;

    party->tensor->party[party->rank] = NULL;
    if (gang == NULL || gang->received == gang->size)
        party->tensor->nparties--;
    e->nparties--;
    free(party);
}

void tutti__tensor_free(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++)
        if (tensor->party[r] != NULL)
            free_party(e, tensor->party[r]);
    free(tensor->party);
    free(tensor);
}

void tutti__tensor_free_if_empty(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++)
        if (tensor->party[r] != NULL)
            return;
    if (tensor->msg.nranks > 0)
        return;
    tutti__tensor_take_out(e, tensor);
    tutti__tensor_free(e, tensor);
}

/* One rank's group goes; `keep` is the caller's to free. */
static void drop_gang(tutti__engine_t *e, tutti__gang_t *gang, const tutti__tensor_t *keep)
{
    for (uint32_t i = 0; i < gang->received; i++) {
        tutti__party_t *party = gang->party[i];
        tutti__tensor_t *tensor = party != NULL ? party->tensor : NULL;

        gang->party[i] = NULL;
        if (party == NULL)
            continue;
        free_party(e, party);
        if (tensor != keep)
            tutti__tensor_free_if_empty(e, tensor);
    }
    if (e->gang[gang->rank] == gang)
        e->gang[gang->rank] = NULL;
    free(gang);
}

void tutti__tensor_drop(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    tutti__tensor_take_out(e, tensor);
    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++)
        if (tensor->party[r] != NULL && tensor->party[r]->gang != NULL)
            drop_gang(e, tensor->party[r]->gang, tensor);
    tutti__tensor_free(e, tensor);
}

void tutti__tensor_drop_party(tutti__engine_t *e, tutti__tensor_t *tensor, uint32_t rank)
{
    tutti__party_t *party = tensor->party != NULL ? tensor->party[rank] : NULL;

    if (party == NULL)
        return;
    if (party->gang != NULL) {
        drop_gang(e, party->gang, NULL);
        return;
    }
    free_party(e, party);
    tutti__tensor_free_if_empty(e, tensor);
}

/* The group that `rank` is announcing: begun with its first member. */
static tutti__gang_t *gang_of(tutti__engine_t *e, uint32_t rank, const tutti__group_msg_t *group)
{
    tutti__gang_t *gang = e->gang[rank];

    if (gang != NULL)
        return gang->hash == group->hash && gang->received == group->index ? gang : NULL;
    if (group->index != 0)
        return NULL;
    gang = calloc(1, sizeof(*gang) + group->size * sizeof(gang->party[0]));
    if (gang == NULL)
        return NULL;
    gang->rank = rank;
    gang->hash = group->hash;
    gang->size = group->size;
    e->gang[rank] = gang;
    return gang;
}

/* The last of them makes all of them count. */
static void close_gang(tutti__engine_t *e, uint32_t rank, tutti__gang_t *gang)
{
    for (uint32_t i = 0; i < gang->size; i++)
        gang->party[i]->tensor->nparties++;
    e->gang[rank] = NULL;
}

int tutti__tensor_add_party(tutti__engine_t *e, const tutti__announce_msg_t *msg,
                            const tutti__group_msg_t *group, const char *name,
                            tutti__party_t **ret_party)
{
    tutti__tensor_t *tensor = tutti__tensor_get(e, name, msg->name_bytes, msg->facts.phase);
    tutti__party_t *party;

    if (tensor == NULL)
        return 0;
    if (tensor->party == NULL)
        tensor->party = calloc(e->size, sizeof(tensor->party[0]));
    party = calloc(1, sizeof(*party));
    if (tensor->party == NULL || party == NULL || tensor->party[msg->rank] != NULL)
        goto fail;
    party->rank = msg->rank;
    party->facts = msg->facts;
    party->tensor = tensor;
    if (group != NULL) {
        party->gang = gang_of(e, msg->rank, group);
        if (party->gang == NULL)
            goto fail;
        party->gang->party[party->gang->received++] = party;
    } else {
        tensor->nparties++;
    }
    tensor->party[msg->rank] = party;
    e->nparties++;
    *ret_party = party;
    if (group == NULL || party->gang->received < party->gang->size)
        return group == NULL;
    close_gang(e, msg->rank, party->gang);
    return 1;

fail:
    free(party);
    no_memory(e);
    return 0;
}

void tutti__agree_clear(tutti__engine_t *e)
{
    tutti__tensor_t *next;

    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++)
        while (e->tensors[i] != NULL)
            tutti__tensor_drop(e, e->tensors[i]);
    for (tutti__tensor_t *t = e->ready_first; t != NULL; t = next) {
        next = t->next;
        tutti__tensor_free(e, t);
    }
    e->ready_first = e->ready_last = NULL;
    tutti__bucket_free(e->filling);
    e->filling = NULL;
    while (e->ghosts != NULL) {
        tutti__request_t *ghost = e->ghosts;

        e->ghosts = ghost->next;
        tutti__request_free(ghost);
    }
}
