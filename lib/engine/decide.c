/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0: what becomes of a tensor when all ranks that it concerns have announced it.
 *
 * A collective concerns all ranks. A message concerns those that name each other: beginning with
 * the newcomer, follow whom it sends to and receives from, and whom those name. If all of them are
 * there, the set is closed: nobody else can have to do with it, and it fits or it does not. So a
 * pair is served without waiting for anybody, and so is a ring over all ranks, as one.
 *
 * If all ranks have come with something of one name, and it is neither a collective of all nor a
 * closed set, then it will never be: that is a mismatch, too.
 */
#include "engine/agree.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

/* Two who came with different things. */
typedef struct {
    uint32_t rank, other_rank;
    const tutti__facts_t *facts, *other;
    const tutti__gang_t *gang, *other_gang; /* NULL: not in a group */
} clash_t;

/* Those who submit groups that do not fit get so long to submit all that has to do with them. */
#define GRACE_NS 100000000u

static void clash_text(char *text, size_t bytes, const tutti__tensor_t *tensor,
                       const clash_t *clash)
{
    char one[192], other[192];

    tutti__facts_text(one, sizeof(one), clash->rank, clash->facts, clash->gang);
    tutti__facts_text(other, sizeof(other), clash->other_rank, clash->other, clash->other_gang);
    snprintf(text, bytes, "tensor '%.100s': %s; %s", tensor->name, one, other);
}

/* ---- messages ---- */

/* Does what p sends fit to what its receiver expects, and the reverse? */
static int party_fits(const tutti__tensor_t *tensor, const tutti__party_t *p, clash_t *ret_clash)
{
    const tutti__facts_t *f = &p->facts;
    const tutti__party_t *to = f->root != TUTTI__NOBODY ? tensor->party[f->root] : NULL;
    const tutti__party_t *from = f->source != TUTTI__NOBODY ? tensor->party[f->source] : NULL;
    const tutti__party_t *wrong = NULL;

    if (to != NULL && (to->facts.source != p->rank || to->facts.more != f->count ||
                       to->facts.dtype != f->dtype || to->facts.on_device != f->on_device))
        wrong = to;
    else if (from != NULL && from->facts.root != p->rank)
        wrong = from;
    if (wrong == NULL)
        return 1;
    *ret_clash = (clash_t){ p->rank, wrong->rank, f, &wrong->facts, p->gang, wrong->gang };
    return 0;
}

/* Put a party's peer on the list, unless it is there; 0 if it has not come. */
static int reach(const tutti__tensor_t *tensor, uint32_t peer, uint32_t *list, uint32_t *n)
{
    tutti__party_t *party;

    if (peer == TUTTI__NOBODY)
        return 1;
    party = tensor->party[peer];
    if (party == NULL || party->gang != NULL)
        return 0;
    if (!party->mark)
        list[(*n)++] = peer;
    party->mark = 1;
    return 1;
}

/* List the ranks that the message of `rank` concerns; 0 if one of them has not come. */
static int closure(const tutti__tensor_t *tensor, uint32_t rank, uint32_t *list, uint32_t *ret_n)
{
    int closed = 1;

    *ret_n = 0;
    reach(tensor, rank, list, ret_n);
    for (uint32_t i = 0; i < *ret_n && closed; i++) {
        const tutti__facts_t *f = &tensor->party[list[i]]->facts;

        closed = reach(tensor, f->root, list, ret_n) && reach(tensor, f->source, list, ret_n);
    }
    for (uint32_t i = 0; i < *ret_n; i++)
        tensor->party[list[i]]->mark = 0;
    return closed;
}

/* A closed set of several leaves the others of that name behind. */
static void split_off(tutti__engine_t *e, tutti__tensor_t *tensor, const uint32_t *list, uint32_t n)
{
    size_t bytes = sizeof(*tensor) + e->nlinks + 1;
    tutti__tensor_t *ready = calloc(1, bytes);
    tutti__party_t **party = calloc(e->size, sizeof(tutti__party_t *));

    if (ready == NULL || party == NULL) {
        free(ready);
        free(party);
        tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory for announcements");
        return;
    }
    memcpy(ready->name, tensor->name, sizeof(ready->name));
    ready->hash = tensor->hash;
    ready->msg.name_bytes = tensor->msg.name_bytes;
    ready->msg.facts = tensor->party[list[0]]->facts;
    ready->party = party;
    for (uint32_t i = 0; i < n; i++) {
        tutti__party_t *p = tensor->party[list[i]];

        party[p->rank] = p;
        p->tensor = ready;
        tensor->party[p->rank] = NULL;
        tensor->nparties--;
        ready->nparties++;
    }
    tutti__tensor_free_if_empty(e, tensor);
    tutti__plan_ready(e, ready);
}

void tutti__decide_message(tutti__engine_t *e, tutti__tensor_t *tensor, uint32_t rank)
{
    uint32_t *list = e->members, n;
    char text[TUTTI__ERROR_BYTES];
    clash_t clash;

    if (e->njoined > 0 && tutti__decide_joined(e, tensor))
        return;
    if (!closure(tensor, rank, list, &n))
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (!party_fits(tensor, tensor->party[list[i]], &clash)) {
            clash_text(text, sizeof(text), tensor, &clash);
            tutti__plan_refuse(e, tensor, TUTTI_ERR_MISMATCH, text, list, n);
            return;
        }
    }
    split_off(e, tensor, list, n);
}

int tutti__decide_joined(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    char text[TUTTI__ERROR_BYTES];
    uint32_t n = 0;

    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++)
        if (tensor->party[r] != NULL && tensor->party[r]->gang == NULL)
            e->members[n++] = r;
    if (n == 0)
        return 0;
    snprintf(text, sizeof(text), "tensor '%.200s': messages are not served while ranks have joined",
             tensor->name);
    tutti__plan_refuse(e, tensor, TUTTI_ERR_UNSUPPORTED, text, e->members, n);
    return 1;
}

/* ---- what does not fit ---- */

/* Is a group still coming in that shares tensors with the chain? It cannot be ended in parts. */
static int is_coming_in(const tutti__engine_t *e, const tutti__tensor_t *first)
{
    for (const tutti__tensor_t *t = first;; t = t->related) {
        for (uint32_t r = 0; t->party != NULL && r < e->size; r++) {
            const tutti__gang_t *gang = t->party[r] != NULL ? t->party[r]->gang : NULL;

            if (gang != NULL && gang->received < gang->size)
                return 1;
        }
        if (t->related == t)
            return 0;
    }
}

/* 1 if it was refused; 0: it is given time. */
static int refuse(tutti__engine_t *e, tutti__tensor_t *tensor, const clash_t *clash)
{
    char text[TUTTI__ERROR_BYTES];
    uint64_t now = tutti__now_ns();

    if (!tutti__refuse_gather(e, tensor)) {
        if (tensor->clash_ns == 0)
            tensor->clash_ns = now;
        if (now - tensor->clash_ns < GRACE_NS || is_coming_in(e, tensor)) {
            e->clash_ns = e->clash_ns == 0 ? now : e->clash_ns;
            tutti__refuse_ungather(tensor);
            return 0;
        }
    }
    clash_text(text, sizeof(text), tensor, clash);
    tutti__refuse_gathered(e, tensor, TUTTI_ERR_MISMATCH, text);
    return 1;
}

/* 1 if it was refused because ranks have joined. */
static int refuse_joined(tutti__engine_t *e, tutti__tensor_t *tensor, const tutti__facts_t *facts)
{
    const char *why = e->njoined > 0 ? tutti__join_refuses(e, facts) : NULL;
    char text[TUTTI__ERROR_BYTES];

    if (why == NULL)
        return 0;
    snprintf(text, sizeof(text), "tensor '%.200s': %s", tensor->name, why);
    tutti__refuse_gather(e, tensor);
    tutti__refuse_gathered(e, tensor, TUTTI_ERR_UNSUPPORTED, text);
    return 1;
}

void tutti__decide_late(tutti__engine_t *e)
{
    if (tutti__now_ns() - e->clash_ns < GRACE_NS)
        return;
    e->clash_ns = 0;
    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++) {
        tutti__tensor_t *t = e->tensors[i];

        while (t != NULL && (t->clash_ns == 0 || !tutti__refuse_is_complete(e, t)))
            t = t->next;
        if (t == NULL)
            continue;
        /* Others may have gone with it: look again. */
        if (tutti__decide(e, t))
            i--;
    }
}

/* ---- groups ---- */

static const tutti__party_t *first_party(const tutti__engine_t *e, const tutti__tensor_t *tensor)
{
    for (uint32_t r = 0; r < e->size; r++)
        if (tensor->party[r] != NULL)
            return tensor->party[r];
    return NULL;
}

/* Has everybody submitted it in the same group? Else two who have not. */
static int is_one_group(const tutti__engine_t *e, const tutti__tensor_t *tensor, clash_t *ret_clash)
{
    const tutti__party_t *first = first_party(e, tensor), *other = NULL;

    if (tensor->msg.nranks > 0) {
        *ret_clash = (clash_t){ tensor->msg.rank, first->rank, &tensor->msg.facts,
                                &first->facts,    NULL,        first->gang };
        return 0;
    }
    for (uint32_t r = first->rank + 1; r < e->size; r++) {
        const tutti__party_t *p = tensor->party[r];

        if (p == NULL)
            continue;
        if (other == NULL)
            other = p;
        if (p->gang == NULL || first->gang == NULL || p->gang->hash != first->gang->hash) {
            other = p;
            break;
        }
        other = NULL;
    }
    if (other == NULL && first->gang != NULL)
        return 1;
    if (other == NULL)
        other = first;
    *ret_clash = (clash_t){ first->rank,   other->rank, &first->facts,
                            &other->facts, first->gang, other->gang };
    return 0;
}

/* Do all calls of one tensor of a group fit? Its facts are set then. */
static int parties_fit(const tutti__engine_t *e, tutti__tensor_t *tensor, clash_t *ret_clash)
{
    const tutti__party_t *first = first_party(e, tensor);

    for (uint32_t r = 0; r < e->size; r++) {
        const tutti__party_t *p = tensor->party[r];
        tutti__announce_msg_t msg = { .nranks = 1, .name_bytes = tensor->msg.name_bytes };

        if (p == NULL)
            continue;
        *ret_clash = (clash_t){ first->rank, r, &first->facts, &p->facts, first->gang, p->gang };
        if (tutti__facts_is_message(&first->facts)) {
            if (!tutti__facts_is_message(&p->facts) || !party_fits(tensor, p, ret_clash))
                return 0;
            tensor->msg.facts = first->facts;
            continue;
        }
        msg.facts = p->facts;
        msg.rank = r;
        tutti__facts_merge(tensor, &msg, NULL);
        if (tensor->msg.conflict)
            return 0;
    }
    return 1;
}

/* What was merged to be compared is no announcement; the parties are. */
static int merge_parties(const tutti__engine_t *e, tutti__tensor_t *tensor, clash_t *ret_clash)
{
    int fit = parties_fit(e, tensor, ret_clash);

    tensor->msg.nranks = 0;
    tensor->msg.conflict = 0;
    return fit;
}

static int decide_group(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    const tutti__gang_t *gang = first_party(e, tensor)->gang;
    tutti__tensor_t *first = NULL, **end = &first, *next;
    uint32_t size = gang->size;
    clash_t clash;

    for (uint32_t i = 0; i < size; i++) {
        tutti__tensor_t *t = gang->party[i]->tensor;

        if (!merge_parties(e, t, &clash))
            return refuse(e, t, &clash);
        if (refuse_joined(e, t, &t->msg.facts))
            return 1;
    }
    for (uint32_t i = 0; i < size; i++) {
        tutti__tensor_take_out(e, gang->party[i]->tensor);
        *end = gang->party[i]->tensor;
        end = &gang->party[i]->tensor->next;
    }
    tutti__refuse_dissolve(e, first);
    for (; first != NULL; first = next) {
        next = first->next;
        tutti__plan_ready(e, first);
    }
    return 1;
}

/* ---- all have come ---- */

int tutti__decide(tutti__engine_t *e, tutti__tensor_t *tensor)
{
    clash_t clash = {
        tensor->msg.rank, tensor->msg.other_rank, &tensor->msg.facts, &tensor->other, NULL, NULL
    };

    if (tensor->msg.conflict)
        return refuse(e, tensor, &clash);
    if (tensor->nparties > 0 && is_one_group(e, tensor, &clash))
        return decide_group(e, tensor);
    if (tensor->nparties > 0)
        return refuse(e, tensor, &clash);
    if (refuse_joined(e, tensor, &tensor->msg.facts))
        return 1;
    tutti__tensor_take_out(e, tensor);
    tutti__plan_ready(e, tensor);
    return 1;
}
