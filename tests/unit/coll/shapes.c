/* SPDX-License-Identifier: BSD-3-Clause */
/* Shapes and schedule sets for tests. See shapes.h. */
#include "unit/coll/shapes.h"

#include "coll/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NAME_BYTES 72 /* the rest of the name is for groups */

uint32_t random_next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void *get(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);

    assert_non_null(p);
    return p;
}

static shape_t *new_shape(uint32_t size)
{
    shape_t *s = get(1, sizeof(*s));

    s->shape.size = size;
    s->shape.host_of = s->host_of = get(size, sizeof(uint32_t));
    s->shape.local_of = s->local_of = get(size, sizeof(uint32_t));
    s->shape.by_host = s->by_host = get(size, sizeof(uint32_t));
    return s;
}

/* host_of is given, with hosts numbered by their lowest ranks; fill in the rest. */
static void complete(shape_t *s)
{
    uint32_t size = s->shape.size, nhosts = 0, n = 0;
    size_t used = 0;

    for (uint32_t r = 0; r < size; r++)
        nhosts = s->host_of[r] >= nhosts ? s->host_of[r] + 1 : nhosts;
    s->shape.nhosts = nhosts;
    s->shape.min_local = size;
    s->shape.host_first = s->host_first = get(nhosts + 1, sizeof(uint32_t));
    for (uint32_t h = 0; h < nhosts; h++) {
        s->host_first[h] = n;
        for (uint32_t r = 0; r < size; r++) {
            if (s->host_of[r] != h)
                continue;
            s->local_of[r] = n - s->host_first[h];
            s->by_host[n++] = r;
        }
        if (n - s->host_first[h] < s->shape.min_local)
            s->shape.min_local = n - s->host_first[h];
        if (used < NAME_BYTES)
            used += (size_t)snprintf(s->name + used, NAME_BYTES - used, "%s%u", h > 0 ? "+" : "",
                                     n - s->host_first[h]);
    }
    s->host_first[nhosts] = n;
}

shape_t *shape_split(uint32_t nhosts, const uint32_t *locals)
{
    uint32_t size = 0, r = 0;
    shape_t *s;

    for (uint32_t h = 0; h < nhosts; h++)
        size += locals[h];
    s = new_shape(size);
    for (uint32_t h = 0; h < nhosts; h++) {
        for (uint32_t i = 0; i < locals[h]; i++)
            s->host_of[r++] = h;
    }
    complete(s);
    return s;
}

shape_t *shape_even(uint32_t nhosts, uint32_t each)
{
    shape_t *s = new_shape(nhosts * each);

    for (uint32_t r = 0; r < nhosts * each; r++)
        s->host_of[r] = r / each;
    complete(s);
    return s;
}

shape_t *shape_random(uint32_t size, uint32_t seed)
{
    uint32_t names = 1 + random_next(&seed) % size, nhosts = 0;
    uint32_t *number = get(names, sizeof(*number)); /* 0: not seen yet */
    shape_t *s = new_shape(size);

    for (uint32_t r = 0; r < size; r++) {
        uint32_t name = random_next(&seed) % names;

        if (number[name] == 0)
            number[name] = ++nhosts;
        s->host_of[r] = number[name] - 1;
    }
    free(number);
    complete(s);
    return s;
}

shape_t *shape_grouped(shape_t *shape, uint32_t group_size)
{
    size_t used = strlen(shape->name);

    shape->shape.group_size = group_size;
    if (group_size > 0)
        snprintf(shape->name + used, sizeof(shape->name) - used, " in groups of %u", group_size);
    return shape;
}

void shape_free(shape_t *shape)
{
    free(shape->host_of);
    free(shape->local_of);
    free(shape->host_first);
    free(shape->by_host);
    free(shape);
}

static tutti__coll_args_t set_args(const set_t *set)
{
    return (tutti__coll_args_t){ .root = set->root,
                                 .in_place = set->in_place,
                                 .sub = set->sub,
                                 .radix = set->radix,
                                 .on_device = set->on_device,
                                 .streams = set->streams };
}

void set_build(set_t *set)
{
    const tutti__shape_t *shape = &set->shape->shape;
    tutti__coll_args_t args = set_args(set);

    set->scheds = get(shape->size, sizeof(tutti__sched_t *));
    for (args.rank = 0; args.rank < shape->size; args.rank++) {
        tutti_status_t status = set->algorithm->build(shape, &args, &set->scheds[args.rank]);

        if (status != TUTTI_OK)
            fail_msg("%s on %s: %s", set->algorithm->name, set->shape->name, tutti_last_error());
    }
}

void set_free(set_t *set)
{
    for (uint32_t r = 0; r < set->shape->shape.size; r++)
        tutti__sched_free(set->scheds[r]);
    free(set->scheds);
}

tutti_status_t set_check(const set_t *set, uint32_t credits, uint32_t trips, char *why,
                         size_t why_bytes)
{
    tutti__coll_args_t args = set_args(set);
    tutti__check_t check =
        tutti__coll_check(set->algorithm, &set->shape->shape, &args, set->scheds);

    check.credits = credits;
    check.trips = trips;
    check.wire = set->wire;
    return tutti__sched_check(&check, why, why_bytes);
}
