/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm serves a call: the table, the seeds, and TUTTI_ALGORITHM.
 *
 * The choice depends on the call, the shape and the settings, which are the same on all ranks; so
 * all ranks choose alike without asking each other. What the user forces is done or refused, never
 * silently replaced: each algorithm says itself which shapes it cannot serve, so a setting made for
 * another job is a clear error (MPICH issue 7456 is the crash that happens else).
 */
#include "base/compiler.h"
#include "base/status.h"
#include "coll/algorithms.h"

#include <string.h>

/*
 * Up to here the allreduce between hosts is recursive doubling, which has fewer steps; above it is
 * the ring, which sends fewer bytes. A seed for the tuner.
 */
#define RING_ABOVE_BYTES ((size_t)256 << 10)

/* Names in messages are cut at this many bytes. */
#define NAME_SHOWN 64

/* What stands in several rows. */
#define ONE_HOST "one operation in the shared memory of one host"

static const char *const between_hosts[] = { "recursive_doubling", "ring", NULL };

const tutti__algorithm_t tutti__algorithms[] = {
    { "node", TUTTI__ALLREDUCE, ONE_HOST, 1, NULL, tutti__coll_node_refuses,
      tutti__coll_build_node_allreduce },
    { "hierarchical", TUTTI__ALLREDUCE, "inside the hosts, between them, inside again", 1,
      between_hosts, NULL, tutti__coll_build_hierarchical },
    { "recursive_doubling", TUTTI__ALLREDUCE, "between all ranks, fewest steps", 1, NULL, NULL,
      tutti__coll_build_recursive_doubling },
    { "ring", TUTTI__ALLREDUCE, "between all ranks, fewest bytes", 0, NULL, NULL,
      tutti__coll_build_ring },
    { "node", TUTTI__BROADCAST, ONE_HOST, 1, NULL, tutti__coll_node_refuses,
      tutti__coll_build_node_broadcast },
    { "binomial", TUTTI__BROADCAST, "a tree of all ranks", 1, NULL, NULL,
      tutti__coll_build_binomial },
    { "node", TUTTI__ALLGATHER, ONE_HOST, 1, NULL, tutti__coll_node_refuses,
      tutti__coll_build_node_allgather },
    { "ring", TUTTI__ALLGATHER, "a ring of all ranks, fewest bytes", 1, NULL, NULL,
      tutti__coll_build_ring_allgather },
    { "node", TUTTI__BARRIER, ONE_HOST, 1, NULL, tutti__coll_node_refuses,
      tutti__coll_build_node_barrier },
    { "dissemination", TUTTI__BARRIER, "between all ranks, fewest steps", 1, NULL, NULL,
      tutti__coll_build_dissemination },
    { NULL, TUTTI__COLLECTIVES, NULL, 0, NULL, NULL, NULL },
};

/* A piece of the override's text. */
typedef struct {
    const char *text;
    size_t n;
} span_t;

/* What the override says about a collective; algorithm NULL: nothing. */
typedef struct {
    const tutti__algorithm_t *algorithm;
    const char *sub;
} choice_t;

const char *tutti__collective_name(tutti__collective_t collective)
{
    static const char *const names[] = {
        [TUTTI__ALLREDUCE] = "allreduce",
        [TUTTI__BROADCAST] = "broadcast",
        [TUTTI__ALLGATHER] = "allgather",
        [TUTTI__BARRIER] = "barrier",
    };

    return (unsigned)collective < TUTTI__COLLECTIVES ? names[collective] : "?";
}

static int is_name(span_t span, const char *name)
{
    return strlen(name) == span.n && memcmp(span.text, name, span.n) == 0;
}

static const tutti__algorithm_t *find(tutti__collective_t collective, span_t name)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->collective == collective && is_name(name, a->name))
            return a;
    }
    return NULL;
}

const tutti__algorithm_t *tutti__algorithm_find(tutti__collective_t collective, const char *name)
{
    return find(collective, (span_t){ name, strlen(name) });
}

static span_t trim(span_t span)
{
    while (span.n > 0 && strchr(" \t\r\n", span.text[0]) != NULL) {
        span.text++;
        span.n--;
    }
    while (span.n > 0 && strchr(" \t\r\n", span.text[span.n - 1]) != NULL)
        span.n--;
    return span;
}

/* Cut off what stands before the first of `ends`; *rest is what stands behind it. 0: none there. */
static int cut(span_t *rest, const char *ends, span_t *ret_head)
{
    size_t n = 0;

    while (n < rest->n && strchr(ends, rest->text[n]) == NULL)
        n++;
    *ret_head = trim((span_t){ rest->text, n });
    if (n == rest->n) {
        rest->text += n;
        rest->n = 0;
        return 0;
    }
    rest->text += n + 1;
    rest->n -= n + 1;
    return 1;
}

static int shown(span_t span)
{
    return (int)TUTTI__MIN(span.n, (size_t)NAME_SHOWN);
}

/* Add a name to a list in words; what does not fit is left out. */
static void list_name(char *list, size_t bytes, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

static tutti_status_t unknown_collective(span_t name)
{
    char list[TUTTI__ERROR_BYTES / 2] = "";

    for (int c = 0; c < TUTTI__COLLECTIVES; c++)
        list_name(list, sizeof(list), tutti__collective_name((tutti__collective_t)c));
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: no collective is called \"%.*s\"; there are %s",
                       shown(name), name.text, list);
}

static tutti_status_t unknown_algorithm(tutti__collective_t collective, span_t name)
{
    char list[TUTTI__ERROR_BYTES / 2] = "";

    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->collective == collective)
            list_name(list, sizeof(list), a->name);
    }
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: %s has no algorithm called \"%.*s\"; there are %s",
                       tutti__collective_name(collective), shown(name), name.text, list);
}

/* Always the pointer from the table, so that callers may compare pointers. NULL: no such sub. */
static const char *find_sub(const tutti__algorithm_t *algorithm, span_t name)
{
    const char *const *sub = algorithm->subs;

    while (sub != NULL && *sub != NULL && !is_name(name, *sub))
        sub++;
    return sub != NULL ? *sub : NULL;
}

static tutti_status_t parse_sub(span_t name, choice_t *choice)
{
    const tutti__algorithm_t *a = choice->algorithm;

    choice->sub = find_sub(a, name);
    if (choice->sub != NULL)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: %s:%s has no algorithm \"%.*s\" inside",
                       tutti__collective_name(a->collective), a->name, shown(name), name.text);
}

/* One `collective:algorithm` or `collective:algorithm/sub`. */
static tutti_status_t parse_item(span_t item, choice_t choices[TUTTI__COLLECTIVES])
{
    span_t rest = item, collective, algorithm;
    int c = 0, has_sub;

    if (!cut(&rest, ":", &collective))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_ALGORITHM: \"%.*s\" is not of the form collective:algorithm",
                           shown(item), item.text);
    has_sub = cut(&rest, "/", &algorithm);

    while (c < TUTTI__COLLECTIVES &&
           !is_name(collective, tutti__collective_name((tutti__collective_t)c)))
        c++;
    if (c == TUTTI__COLLECTIVES)
        return unknown_collective(collective);
    if (choices[c].algorithm != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGORITHM: %s is named twice",
                           tutti__collective_name((tutti__collective_t)c));
    choices[c].algorithm = find((tutti__collective_t)c, algorithm);
    if (choices[c].algorithm == NULL)
        return unknown_algorithm((tutti__collective_t)c, algorithm);
    return has_sub ? parse_sub(trim(rest), &choices[c]) : TUTTI_OK;
}

static tutti_status_t parse(const char *override, choice_t choices[TUTTI__COLLECTIVES])
{
    span_t rest = { override, override != NULL ? strlen(override) : 0 };

    memset(choices, 0, TUTTI__COLLECTIVES * sizeof(*choices));
    while (rest.n > 0) {
        span_t item;
        tutti_status_t status;

        cut(&rest, ",;", &item);
        status = item.n > 0 ? parse_item(item, choices) : TUTTI_OK;
        if (status != TUTTI_OK)
            return status;
    }
    return TUTTI_OK;
}

static tutti_status_t refuse(const tutti__algorithm_t *algorithm, const char *sub,
                             const char *reason)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ALGORITHM=%s:%s%s%s cannot be used: %s",
                       tutti__collective_name(algorithm->collective), algorithm->name,
                       sub != NULL ? "/" : "", sub != NULL ? sub : "", reason);
}

static tutti_status_t serves(const choice_t *choice, const tutti__shape_t *shape)
{
    const tutti__algorithm_t *a = choice->algorithm;
    const char *reason = a->refuses != NULL ? a->refuses(shape) : NULL;

    return reason != NULL ? refuse(a, choice->sub, reason) : TUTTI_OK;
}

static int is_fixed(const choice_t *choice)
{
    const tutti__algorithm_t *a = choice->algorithm;

    if (!a->fixed_association)
        return 0;
    return choice->sub == NULL ||
           tutti__algorithm_find(a->collective, choice->sub)->fixed_association;
}

/* What is taken without an override. */
static const char *seed(tutti__collective_t collective, const tutti__shape_t *shape)
{
    static const char *const between[] = {
        [TUTTI__ALLREDUCE] = "hierarchical",
        [TUTTI__BROADCAST] = "binomial",
        [TUTTI__ALLGATHER] = "ring",
        [TUTTI__BARRIER] = "dissemination",
    };

    return shape->nhosts == 1 ? "node" : between[collective];
}

static const char *seed_sub(const tutti__algorithm_t *algorithm, size_t bytes,
                            tutti__association_t association)
{
    static const char few_steps[] = "recursive_doubling", few_bytes[] = "ring";

    if (bytes > RING_ABOVE_BYTES && association == TUTTI__ANY_ASSOCIATION)
        return find_sub(algorithm, (span_t){ few_bytes, sizeof(few_bytes) - 1 });
    return find_sub(algorithm, (span_t){ few_steps, sizeof(few_steps) - 1 });
}

tutti_status_t tutti__algorithm_choose(tutti__collective_t collective, const tutti__shape_t *shape,
                                       size_t bytes, const char *override,
                                       tutti__association_t association,
                                       const tutti__algorithm_t **ret_algorithm,
                                       const char **ret_sub)
{
    choice_t choices[TUTTI__COLLECTIVES], *choice;
    tutti_status_t status = parse(override, choices);

    if (status != TUTTI_OK)
        return status;
    choice = &choices[collective];
    if (choice->algorithm == NULL)
        choice->algorithm = tutti__algorithm_find(collective, seed(collective, shape));
    if (choice->sub == NULL && choice->algorithm->subs != NULL)
        choice->sub = seed_sub(choice->algorithm, bytes, association);

    status = serves(choice, shape);
    if (status != TUTTI_OK)
        return status;
    if (association == TUTTI__STRICT_ASSOCIATION && !is_fixed(choice))
        return refuse(choice->algorithm, choice->sub,
                      "its association depends on an element's place, against "
                      "TUTTI_DETERMINISTIC=strict");
    *ret_algorithm = choice->algorithm;
    *ret_sub = choice->sub;
    return TUTTI_OK;
}

tutti_status_t tutti__algorithm_check_override(const char *override, const tutti__shape_t *shape)
{
    choice_t choices[TUTTI__COLLECTIVES];
    tutti_status_t status = parse(override, choices);

    for (int c = 0; c < TUTTI__COLLECTIVES && status == TUTTI_OK && shape != NULL; c++) {
        if (choices[c].algorithm != NULL)
            status = serves(&choices[c], shape);
    }
    return status;
}
