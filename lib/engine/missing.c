/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks that a tensor waits for, in words: for warnings and deadlines.
 *
 * A leader knows exactly which ranks of its host are missing; rank 0 knows it for its own host. For
 * another host rank 0 knows only that some rank is missing, so leaders pass their warnings on to
 * rank 0.
 */
#include "engine/agree.h"

#include <string.h>

/* Ranks that are named; more are counted. */
#define NAMED 8
/* The list's text: numbers of ten digits, each with " or rank ", and their world ranks. */
#define LIST_BYTES 384

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

/* "1, 2" or "1 or rank 2"; in_world: by their numbers there. Returns the length. */
static int put_numbers(const tutti__engine_t *e, char *text, size_t bytes, const absent_t *absent,
                       int in_world)
{
    const char *between = absent->certain ? ", " : in_world ? " or " : " or rank ";
    int at = 0, is_group;

    for (uint32_t i = 0; i < TUTTI__MIN(absent->n, NAMED); i++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%u", i > 0 ? between : "",
                       in_world ? tutti__boot_world_rank(e->env.boot, absent->rank[i], &is_group)
                                : absent->rank[i]);
    return at;
}

/* "rank 1", "ranks 1, 2 and 3 others"; or, if it is not certain which, "rank 1 or rank 2". In a
   group "ranks 1, 2 of the group (world ranks 3, 5) and 3 others". text: LIST_BYTES */
static void list(const tutti__engine_t *e, char *text, const absent_t *absent)
{
    const char *many = absent->certain && absent->n > 1 ? "s" : "";
    int at = snprintf(text, LIST_BYTES, "rank%s ", many), is_group;

    at += put_numbers(e, text + at, LIST_BYTES - (size_t)at, absent, 0);
    tutti__boot_world_rank(e->env.boot, absent->rank[0], &is_group);
    if (is_group) {
        at += snprintf(text + at, LIST_BYTES - (size_t)at, " of the group (world rank%s ",
                       absent->n > 1 ? "s" : "");
        at += put_numbers(e, text + at, LIST_BYTES - (size_t)at, absent, 1);
        at += snprintf(text + at, LIST_BYTES - (size_t)at, ")");
    }
    if (absent->n > NAMED)
        snprintf(text + at, LIST_BYTES - (size_t)at, "%s %u others",
                 absent->certain ? " and" : " or", absent->n - NAMED);
}

/* A tensor in its second phase waits for a buffer, not for a submission: see exchange.c. */
static void say(const tutti__engine_t *e, char *text, size_t bytes, const absent_t *absent,
                const tutti__tensor_t *tensor)
{
    char ranks[LIST_BYTES];

    list(e, ranks, absent);
    snprintf(text, bytes, "%s %s not %s", ranks, absent->certain && absent->n > 1 ? "have" : "has",
             tensor->msg.facts.phase > 0 ? "called tutti_request_receive for it" : "submitted it");
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
        snprintf(text, bytes, "%s; %s has not submitted its part", one,
                 tutti__boot_rank_name(e->env.boot, peer));
        return 1;
    }
    return 0;
}

static void missing_join(const tutti__engine_t *e, char *text, size_t bytes, int *ret_certain)
{
    absent_t absent = { { 0 }, 0, 1 };
    char ranks[LIST_BYTES];

    *ret_certain = e->parent < 0;
    if (e->parent >= 0) {
        snprintf(text, bytes, "not all ranks have called tutti_join");
        return;
    }
    for (uint32_t r = 0; r < e->size; r++)
        if (!e->joined[r])
            add(&absent, r);
    list(e, ranks, &absent);
    snprintf(text, bytes, "%s %s not called tutti_join", ranks, absent.n == 1 ? "has" : "have");
}

int tutti__agree_missing(tutti__engine_t *e, const tutti__request_t *request, char *text,
                         size_t bytes)
{
    tutti__tensor_t *tensor =
        tutti__tensor_find(e, request->name, request->name_bytes, request->phase);
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
        snprintf(text, bytes, "%s has not submitted its part",
                 tutti__boot_rank_name(e->env.boot,
                                       facts.root != TUTTI__NOBODY ? facts.root : facts.source));
        return 0;
    }
    if (tensor != NULL) {
        absent = find_absent(e, tensor);
        if (absent.n > 0) {
            say(e, text, bytes, &absent, tensor);
            return absent.certain;
        }
    }
    if (e->parent >= 0)
        snprintf(text, bytes, "%s has not reported that all ranks submitted it",
                 tutti__boot_rank_name(e->env.boot, e->link[e->parent].rank));
    else
        snprintf(text, bytes, "it was not put into a bucket");
    return 0;
}

int tutti__missing_tensor(const tutti__engine_t *e, const tutti__tensor_t *tensor, char *text,
                          size_t bytes)
{
    absent_t absent;

    /* Only rank 0 has the state of a message. A tensor passed on waits at the leader's parent. */
    if (tensor->msg.nranks == tensor->passed && tensor->nparties > 0)
        return e->parent < 0 && say_message(e, tensor, text, bytes);
    absent = find_absent(e, tensor);
    if (absent.n > 0)
        say(e, text, bytes, &absent, tensor);
    return absent.n > 0;
}
