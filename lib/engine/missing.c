/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks that a tensor waits for, in words: for warnings and deadlines.
 *
 * A leader knows exactly which ranks of its host are missing; rank 0 knows it of its own host, and
 * of another host only that some rank is missing. So leaders pass their warnings on to rank 0.
 */
#include "engine/agree.h"

#include <string.h>

/* Ranks that are named; more are counted. */
#define NAMED 8

typedef struct {
    uint32_t rank[NAMED];
    uint32_t n;  /* all of them */
    int certain; /* of the first one at least: it has not come itself */
} absent_t;

static void add(absent_t *absent, uint32_t rank)
{
    if (absent->n < NAMED)
        absent->rank[absent->n] = rank;
    absent->n++;
}

static int has_come(const tutti__engine_t *e, const tutti__tensor_t *tensor, uint32_t rank)
{
    return e->joined[rank] || (tensor->party != NULL && tensor->party[rank] != NULL);
}

/* All ranks of the host whose leader is at the other end. */
static void add_host(const tutti__engine_t *e, const tutti__tensor_t *tensor, uint32_t leader,
                     absent_t *absent)
{
    const tutti__shape_t *shape = e->env.shape;
    uint32_t host = shape->host_of[leader];

    for (uint32_t i = shape->host_first[host]; i < shape->host_first[host + 1]; i++)
        if (!has_come(e, tensor, shape->by_host[i]))
            add(absent, shape->by_host[i]);
}

static absent_t find_absent(const tutti__engine_t *e, const tutti__tensor_t *tensor)
{
    absent_t absent = { { 0 }, 0, 0 };

    if (!tensor->from[e->nlinks] && !has_come(e, tensor, e->rank))
        add(&absent, e->rank);
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != e->parent && e->link[i].local && !tensor->from[i] &&
            !has_come(e, tensor, e->link[i].rank))
            add(&absent, e->link[i].rank);
    absent.certain = absent.n > 0;
    if (absent.certain)
        return absent;
    for (uint32_t i = 0; i < e->nlinks; i++)
        if ((int)i != e->parent && !e->link[i].local && !tensor->from[i])
            add_host(e, tensor, e->link[i].rank, &absent);
    return absent;
}

/* "rank 1", "ranks 1, 2 and 3 others"; or, if it is not certain who, "rank 1 or rank 2" */
static void list(char *text, size_t bytes, const absent_t *absent)
{
    const char *between = absent->certain ? ", " : " or rank ";
    int at = snprintf(text, bytes, absent->certain && absent->n > 1 ? "ranks " : "rank ");

    for (uint32_t i = 0; i < TUTTI__MIN(absent->n, NAMED); i++)
        at +=
            snprintf(text + at, bytes - (size_t)at, "%s%u", i > 0 ? between : "", absent->rank[i]);
    if (absent->n > NAMED)
        snprintf(text + at, bytes - (size_t)at, "%s %u others", absent->certain ? " and" : " or",
                 absent->n - NAMED);
}

static void say(char *text, size_t bytes, const absent_t *absent)
{
    char ranks[200];

    list(ranks, sizeof(ranks), absent);
    snprintf(text, bytes, "%s %s not submitted it", ranks,
             absent->certain && absent->n > 1 ? "have" : "has");
}

/* A message that has come, and the first one that it names and that has not. */
static int say_message(const tutti__engine_t *e, const tutti__tensor_t *tensor, char *text,
                       size_t bytes)
{
    char one[192];

    for (uint32_t r = 0; tensor->party != NULL && r < e->size; r++) {
        const tutti__party_t *p = tensor->party[r];
        uint32_t peer = TUTTI__NOBODY;

        if (p == NULL || p->gang != NULL)
            continue;
        if (p->facts.root != TUTTI__NOBODY && tensor->party[p->facts.root] == NULL)
            peer = p->facts.root;
        else if (p->facts.source != TUTTI__NOBODY && tensor->party[p->facts.source] == NULL)
            peer = p->facts.source;
        if (peer == TUTTI__NOBODY)
            continue;
        tutti__facts_text(one, sizeof(one), r, &p->facts, NULL);
        snprintf(text, bytes, "%s; rank %u has not come", one, peer);
        return 1;
    }
    return 0;
}

static void missing_join(const tutti__engine_t *e, char *text, size_t bytes, int *ret_certain)
{
    absent_t absent = { { 0 }, 0, 1 };
    char ranks[200];

    *ret_certain = e->parent < 0;
    if (e->parent >= 0) {
        snprintf(text, bytes, "not all ranks have called tutti_join");
        return;
    }
    for (uint32_t r = 0; r < e->size; r++)
        if (!e->joined[r])
            add(&absent, r);
    list(ranks, sizeof(ranks), &absent);
    snprintf(text, bytes, "%s %s not called tutti_join", ranks, absent.n == 1 ? "has" : "have");
}

int tutti__agree_missing(tutti__engine_t *e, const tutti_request_t *request, char *text,
                         size_t bytes)
{
    tutti__tensor_t *tensor =
        tutti__tensor_find(e, request->name, strlen(request->name), request->phase);
    tutti__facts_t facts = tutti__facts_of(e, request);
    absent_t absent;
    int certain;

    if (request->joins) {
        missing_join(e, text, bytes, &certain);
        return certain;
    }
    if (atomic_load(&request->counted) == 1) {
        snprintf(text, bytes, "this rank has not called tutti_request_receive");
        return 1;
    }
    if (tutti__facts_is_message(&facts)) {
        if (e->parent < 0 && tensor != NULL && say_message(e, tensor, text, bytes))
            return 1;
        snprintf(text, bytes, "rank %u has not come",
                 facts.root != TUTTI__NOBODY ? facts.root : facts.source);
        return 0;
    }
    if (tensor != NULL) {
        absent = find_absent(e, tensor);
        if (absent.n > 0) {
            say(text, bytes, &absent);
            return absent.certain;
        }
    }
    if (e->parent >= 0)
        snprintf(text, bytes, "rank %u has not reported that all ranks submitted it",
                 e->link[e->parent].rank);
    else
        snprintf(text, bytes, "it was not put into a bucket");
    return 0;
}

int tutti__missing_tensor(const tutti__engine_t *e, const tutti__tensor_t *tensor, char *text,
                          size_t bytes)
{
    absent_t absent;

    /* Only rank 0 knows of a message; and what a leader has passed on waits elsewhere. */
    if (tensor->msg.nranks == tensor->passed && tensor->nparties > 0)
        return e->parent < 0 && say_message(e, tensor, text, bytes);
    absent = find_absent(e, tensor);
    if (absent.n > 0)
        say(text, bytes, &absent);
    return absent.n > 0;
}
