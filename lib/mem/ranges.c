/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges of an arena: one list in address order that covers the whole span without gaps.
 *
 *      |taken|free|leaving|taken|free ........................|
 *
 * Two free ranges are never adjacent. Callers hold the arena's lock.
 */
#include "mem/ranges.h"

#include "base/compiler.h"

#include <assert.h>
#include <stdlib.h>

typedef enum {
    FREE,
    TAKEN,
    LEAVING
} state_t;

typedef struct range {
    uint64_t offset, bytes;
    state_t state;
    struct range *prev, *next;
} range_t;

struct tutti__ranges {
    range_t *first; /* never NULL */
    uint64_t taken;
};

tutti__ranges_t *tutti__ranges_create(uint64_t span)
{
    tutti__ranges_t *ranges = calloc(1, sizeof(*ranges));
    range_t *all = calloc(1, sizeof(*all));

    if (ranges == NULL || all == NULL) {
        free(ranges);
        free(all);
        return NULL;
    }
    all->bytes = span;
    ranges->first = all;
    return ranges;
}

void tutti__ranges_destroy(tutti__ranges_t *ranges)
{
    if (ranges == NULL)
        return;
    for (range_t *range = ranges->first, *next; range != NULL; range = next) {
        next = range->next;
        free(range);
    }
    free(ranges);
}

static range_t *find(const tutti__ranges_t *ranges, uint64_t offset)
{
    range_t *range = ranges->first;

    while (range != NULL && range->offset != offset)
        range = range->next;
    return range;
}

/* Cut the range after `bytes` bytes; the rest becomes a free range. Returns 0 without memory. */
static int cut(range_t *range, uint64_t bytes)
{
    range_t *rest;

    if (range->bytes == bytes)
        return 1;
    rest = calloc(1, sizeof(*rest));
    if (rest == NULL)
        return 0;
    rest->offset = range->offset + bytes;
    rest->bytes = range->bytes - bytes;
    rest->prev = range;
    rest->next = range->next;
    if (rest->next != NULL)
        rest->next->prev = rest;
    range->next = rest;
    range->bytes = bytes;
    return 1;
}

uint64_t tutti__ranges_leave(tutti__ranges_t *ranges, uint64_t offset)
{
    range_t *range = find(ranges, offset);

    if (range == NULL || range->state != TAKEN)
        return 0;
    range->state = LEAVING;
    return range->bytes;
}

/* Join a free range with the next range if the next range is also free. */
static void join_next(range_t *range)
{
    range_t *next = range->next;

    if (next == NULL || next->state != FREE)
        return;
    range->bytes += next->bytes;
    range->next = next->next;
    if (range->next != NULL)
        range->next->prev = range;
    free(next);
}

int tutti__ranges_take(tutti__ranges_t *ranges, uint64_t bytes, uint64_t *ret_offset)
{
    return tutti__ranges_take_aligned(ranges, bytes, 0, 1, ret_offset);
}

int tutti__ranges_take_aligned(tutti__ranges_t *ranges, uint64_t bytes, uint64_t from,
                               uint64_t align, uint64_t *ret_offset)
{
    range_t *range = ranges->first;
    uint64_t skip = 0; /* bytes of the free range before the taken range */

    assert(bytes > 0);
    for (; range != NULL; range = range->next) {
        skip = TUTTI__ROUND_UP(TUTTI__MAX(range->offset, from), align) - range->offset;
        if (range->state == FREE && skip <= range->bytes && bytes <= range->bytes - skip)
            break;
    }
    if (range == NULL)
        return 0;
    if (skip > 0) {
        if (!cut(range, skip))
            return 0;
        range = range->next;
    }
    if (!cut(range, bytes)) {
        if (skip > 0)
            join_next(range->prev);
        return 0;
    }
    range->state = TAKEN;
    ranges->taken += bytes;
    *ret_offset = range->offset;
    return 1;
}

void tutti__ranges_give(tutti__ranges_t *ranges, uint64_t offset)
{
    range_t *range = find(ranges, offset);

    assert(range != NULL && range->state == LEAVING);
    range->state = FREE;
    ranges->taken -= range->bytes;
    join_next(range);
    if (range->prev != NULL && range->prev->state == FREE)
        join_next(range->prev);
}

uint64_t tutti__ranges_taken(const tutti__ranges_t *ranges)
{
    return ranges->taken;
}
