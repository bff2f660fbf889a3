/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks that a tensor waits for, as text for warnings and for errors at deadlines.
 *
 * For a child without children of its own, a rank can tell whether the child has announced a
 * tensor. For a child with children, the rank can only tell that some rank of the child's subtree
 * has not announced it. So inner ranks write warnings too, and pass them on (engine/stalls.c).
 */
#include "agree/tensors.h"

#include "base/compiler.h"
#include "base/constants.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the list's text: TUTTI__NAMED numbers of ten digits, each with " or rank ", and their
   world ranks. */
#define LIST_BYTES 448

typedef struct {
    uint32_t rank[TUTTI__NAMED];
    uint32_t n;  /* number of absent ranks; may exceed TUTTI__NAMED */
    int certain; /* 1: every listed rank is absent. 0: at least one of them is absent */
} absent_t;

static void add(absent_t *absent, uint32_t rank)
{
    if (absent->n < TUTTI__NAMED)
        absent->rank[absent->n] = rank;
    absent->n++;
}

static int is_here(const tutti__agree_t *a, const tutti__tensor_t *tensor, uint32_t rank)
{
    return a->joined[rank] || (tensor->participant != NULL && tensor->participant[rank] != NULL);
}

/* Add the absent ranks of some children's subtrees. larger 0: of children without own children; 1:
   of all other children. */
static void add_children(const tutti__agree_t *a, const tutti__tensor_t *tensor, int larger,
                         absent_t *absent)
{
    for (uint32_t i = 0; i < a->env.nlinks; i++) {
        const tutti__agree_link_t *link = &a->env.links[i];

        if (tensor->from[i] || (link->nranks > 1) != larger)
            continue;
        for (uint32_t k = 0; k < link->nranks; k++)
            if (!is_here(a, tensor, link->ranks[k]))
                add(absent, link->ranks[k]);
    }
}

static absent_t find_absent(const tutti__agree_t *a, const tutti__tensor_t *tensor)
{
    absent_t absent = { { 0 }, 0, 0 };

    if (!tensor->from[a->env.nlinks] && !is_here(a, tensor, a->env.rank))
        add(&absent, a->env.rank);
    add_children(a, tensor, 0, &absent);
    absent.certain = absent.n > 0;
    if (!absent.certain)
        add_children(a, tensor, 1, &absent);
    return absent;
}

static uint32_t world_rank(const tutti__agree_t *a, uint32_t rank, int *ret_is_group)
{
    return a->env.ops->world_rank(a->env.owner, rank, ret_is_group);
}

/* "1, 2" or "1 or rank 2"; in_world: write the ranks in the world. Returns the length. */
static int put_numbers(const tutti__agree_t *a, char *text, size_t bytes, const absent_t *absent,
                       int in_world)
{
    const char *between = absent->certain ? ", " : in_world ? " or " : " or rank ";
    int at = 0, is_group;

    for (uint32_t i = 0; i < TUTTI__MIN(absent->n, TUTTI__NAMED); i++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%u", i > 0 ? between : "",
                       in_world ? world_rank(a, absent->rank[i], &is_group) : absent->rank[i]);
    return at;
}

/* "rank 1", "ranks 1, 2 and 3 others"; if the list is not certain, "rank 1 or rank 2". In a group
   "ranks 1, 2 of the group (world ranks 3, 5) and 3 others". text: LIST_BYTES */
static void list(const tutti__agree_t *a, char *text, const absent_t *absent)
{
    const char *many = absent->certain && absent->n > 1 ? "s" : "";
    int at = snprintf(text, LIST_BYTES, "rank%s ", many), is_group;

    at += put_numbers(a, text + at, LIST_BYTES - (size_t)at, absent, 0);
    world_rank(a, absent->rank[0], &is_group);
    if (is_group) {
        at += snprintf(text + at, LIST_BYTES - (size_t)at, " of the group (%srank%s ",
                       is_group == 1 ? "world " : "", absent->n > 1 ? "s" : "");
        at += put_numbers(a, text + at, LIST_BYTES - (size_t)at, absent, 1);
        at += snprintf(text + at, LIST_BYTES - (size_t)at, "%s)",
                       is_group == 1 ? "" : " of the connected communicator");
    }
    if (absent->n > TUTTI__NAMED)
        snprintf(text + at, LIST_BYTES - (size_t)at, "%s %u others",
                 absent->certain ? " and" : " or", absent->n - TUTTI__NAMED);
}

/* In the second phase (see call/exchange.h) a tensor waits for receive buffers. An absent rank may
   have passed its buffer when it submitted the tensor. So a missing tutti_request_receive is not
   the only possible reason. */
static void put_absent(const tutti__agree_t *a, char *text, size_t bytes, const absent_t *absent,
                       const tutti__tensor_t *tensor)
{
    int many = absent->certain && absent->n > 1;
    char ranks[LIST_BYTES];

    list(a, ranks, absent);
    if (tensor->msg.metadata.phase == 0)
        snprintf(text, bytes, "%s %s not submitted it", ranks, many ? "have" : "has");
    else
        snprintf(text, bytes,
                 "%s %s counts: tutti_request_receive is missing, or the process is stopped", ranks,
                 many ? "have announced only their" : "has announced only its");
}

/* The oldest tensor that the child `rank` has announced and that still waits. NULL: there is none;
   or `rank` is not a child; or `rank` has children of its own. */
static const tutti__tensor_t *first_of(const tutti__agree_t *a, uint32_t rank)
{
    const tutti__tensor_t *first = NULL;
    uint32_t link = 0;

    while (link < a->env.nlinks &&
           (a->env.links[link].nranks != 1 || a->env.links[link].ranks[0] != rank))
        link++;
    for (uint32_t i = 0; link < a->env.nlinks && i < TUTTI__TENSOR_BUCKETS; i++)
        for (const tutti__tensor_t *t = a->tensors[i]; t != NULL; t = t->next)
            if (t->from[link] && (first == NULL || t->since_ns < first->since_ns) &&
                find_absent(a, t).n > 0)
                first = t;
    return first;
}

/* If an absent rank waits for another tensor, append the name of this tensor and the ranks that it
   waits for. */
static void put_other(const tutti__agree_t *a, char *text, size_t bytes, const absent_t *absent)
{
    uint32_t n = TUTTI__MIN(absent->n, TUTTI__NAMED), i = 0;
    const tutti__tensor_t *other = NULL;
    char who[LIST_BYTES + 128];
    size_t at = strlen(text);
    absent_t missing;

    while (i < n && (other = first_of(a, absent->rank[i])) == NULL)
        i++;
    if (other == NULL)
        return;
    missing = find_absent(a, other);
    put_absent(a, who, sizeof(who), &missing, other);
    snprintf(text + at, bytes - at, "; tensor '%.64s', which %s has submitted, waits as well: %s",
             other->name, a->env.ops->rank_name(a->env.owner, absent->rank[i]), who);
}

/* Write the first announced message whose peer has not announced its part, and this peer. Returns 0
   if there is no such message. */
static int put_message(const tutti__agree_t *a, const tutti__tensor_t *tensor, char *text,
                       size_t bytes)
{
    char one[192];

    for (uint32_t r = 0; tensor->participant != NULL && r < a->env.size; r++) {
        const tutti__participant_t *p = tensor->participant[r];
        uint32_t peer = TUTTI__NOBODY;

        if (p == NULL || p->submission != NULL)
            continue;
        if (p->metadata.root != TUTTI__NOBODY && tensor->participant[p->metadata.root] == NULL)
            peer = p->metadata.root;
        else if (p->metadata.source != TUTTI__NOBODY &&
                 tensor->participant[p->metadata.source] == NULL)
            peer = p->metadata.source;
        if (peer == TUTTI__NOBODY)
            continue;
        tutti__metadata_call_text(one, sizeof(one), &p->metadata);
        snprintf(text, bytes, "rank %u has %s; %s has not submitted its part", r, one,
                 a->env.ops->rank_name(a->env.owner, peer));
        return 1;
    }
    return 0;
}

int tutti__agree_missing_join(const tutti__agree_t *a, char *text, size_t bytes)
{
    absent_t absent = { { 0 }, 0, 1 };
    char ranks[LIST_BYTES];

    if (a->env.parent >= 0) {
        snprintf(text, bytes, "not all ranks have called tutti_join");
        return 0;
    }
    for (uint32_t r = 0; r < a->env.size; r++)
        if (!a->joined[r])
            add(&absent, r);
    list(a, ranks, &absent);
    snprintf(text, bytes, "%s %s not called tutti_join", ranks, absent.n == 1 ? "has" : "have");
    return 1;
}

static int missing_message(tutti__agree_t *a, const tutti__tensor_t *tensor,
                           const tutti__metadata_t *m, char *text, size_t bytes)
{
    uint32_t peer = m->root != TUTTI__NOBODY ? m->root : m->source;

    if (a->env.parent < 0 && tensor != NULL && put_message(a, tensor, text, bytes))
        return 1;
    snprintf(text, bytes, "%s has not submitted its part",
             a->env.ops->rank_name(a->env.owner, peer));
    return 0;
}

int tutti__agree_missing(tutti__agree_t *a, const char *name, size_t name_bytes,
                         const tutti__metadata_t *metadata, char *text, size_t bytes)
{
    const tutti__tensor_t *tensor = tutti__tensor_find(a, name, name_bytes, metadata->phase);
    absent_t absent;

    if (tutti__metadata_is_message(metadata))
        return missing_message(a, tensor, metadata, text, bytes);
    if (tensor != NULL) {
        absent = find_absent(a, tensor);
        if (absent.n > 0) {
            put_absent(a, text, bytes, &absent, tensor);
            if (absent.certain)
                put_other(a, text, bytes, &absent);
            return absent.certain;
        }
    }
    if (a->env.parent >= 0)
        snprintf(text, bytes,
                 "%s has not reported it as submitted by all ranks; if a rank is missing, a "
                 "warning of %s names it",
                 a->env.ops->rank_name(a->env.owner, a->env.links[a->env.parent].rank),
                 a->env.ops->rank_name(a->env.owner, 0));
    else
        snprintf(text, bytes, "it was not put into a bucket");
    return 0;
}

int tutti__agree_awaits(const tutti__agree_t *a, const tutti__tensor_t *tensor, char *text,
                        size_t bytes)
{
    absent_t absent;

    /* Only the coordinator has the state of a message. If this rank has passed on all merged
       announcements, the tensor waits at this rank's parent. */
    if (tensor->msg.nranks == tensor->passed && tensor->nparticipants > 0)
        return a->env.parent < 0 && put_message(a, tensor, text, bytes);
    absent = find_absent(a, tensor);
    if (absent.n > 0)
        put_absent(a, text, bytes, &absent, tensor);
    return absent.n > 0;
}

void tutti__agree_each(const tutti__agree_t *a,
                       void (*visit)(void *arg, const tutti__waiting_t *waiting), void *arg)
{
    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++) {
        for (const tutti__tensor_t *t = a->tensors[i]; t != NULL; t = t->next) {
            tutti__waiting_t waiting = {
                .name = t->name,
                .since_ns = t->since_ns,
                .metadata = t->msg.nranks > 0 ? &t->msg.metadata : NULL,
                .tensor = t,
            };

            visit(arg, &waiting);
        }
    }
}

const tutti__tensor_t *tutti__agree_find(tutti__agree_t *a, const char *name, size_t name_bytes,
                                         uint8_t phase)
{
    return tutti__tensor_find(a, name, name_bytes, phase);
}
