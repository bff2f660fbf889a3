/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of a host's ranks that are near each other, for operations in two levels.
 *
 *   Ranks are grouped by L3 cache, NUMA node or package: by the first of these kinds that has at
 *     most half as many places as ranks. Ranks whose processors are in several places of this kind
 *     form one group.
 *   If there is no such kind, all ranks are one group. This happens if the ranks may run anywhere,
 *     or if too few ranks share a place.
 *   A group that is too large is cut into equal parts. Its ranks are sorted by NUMA node, because
 *     an L3 cache may have several nodes, and then by rank.
 */
#include "topo/topo.h"

#include "base/status.h"

#include <stdlib.h>

typedef struct {
    int32_t place; /* the rank's place of the kind by which ranks are grouped */
    int32_t node;
    uint32_t rank;
} seat_t;

static int compare(const void *a, const void *b)
{
    const seat_t *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The index after the last seat of the group that begins at seat `begin`. */
static uint32_t end_of(const seat_t *seat, uint32_t n, uint32_t begin)
{
    uint32_t end = begin + 1;

    while (end < n && seat[end].place == seat[begin].place)
        end++;
    return end;
}

/* Sort the seats by one kind of place. Return 1 if groups by this kind are useful: some ranks have
   a place of this kind, and there are at most half as many places as ranks, rounded up. All ranks
   without a place count as one place. */
static int sort_by(const tutti__topo_facts_t *facts, int kind, seat_t *seat, uint32_t n)
{
    uint32_t places = 0;
    int is_bound = 0;

    for (uint32_t i = 0; i < n; i++) {
        seat[i].place = facts[seat[i].rank].place[kind];
        seat[i].node = facts[seat[i].rank].place[TUTTI__PLACE_NODE];
        is_bound |= seat[i].place >= 0;
    }
    qsort(seat, n, sizeof(*seat), compare);
    for (uint32_t i = 0; i < n; i++)
        places += i == 0 || seat[i].place != seat[i - 1].place;
    return is_bound && places <= (n + 1) / 2;
}

static void sort_by_rank(seat_t *seat, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        seat[i].place = seat[i].node = 0;
    qsort(seat, n, sizeof(*seat), compare);
}

/* Cut groups that are too large, and set leader[rank] to the lowest rank of its group. */
static void find_leaders(const seat_t *seat, uint32_t n, uint32_t *leader)
{
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        uint32_t size, parts;

        end = end_of(seat, n, begin);
        size = end - begin;
        parts = (size + TUTTI__TOPO_GROUP - 1) / TUTTI__TOPO_GROUP;
        for (uint32_t part = 0; part < parts; part++) {
            uint32_t first = begin + (uint32_t)((uint64_t)part * size / parts);
            uint32_t last = begin + (uint32_t)((uint64_t)(part + 1) * size / parts) - 1;
            uint32_t lowest = seat[first].rank;

            for (uint32_t i = first; i <= last; i++)
                lowest = seat[i].rank < lowest ? seat[i].rank : lowest;
            for (uint32_t i = first; i <= last; i++)
                leader[seat[i].rank] = lowest;
        }
    }
}

tutti_status_t tutti__topo_find_groups(tutti__topo_t *topo, const tutti__topo_facts_t *facts)
{
    seat_t *seat = malloc(topo->size * sizeof(*seat));

    if (seat == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for the places of %u ranks", topo->size);
    for (uint32_t host = 0; host < topo->nhosts; host++) {
        const uint32_t *ranks = topo->by_host + topo->host_first[host];
        uint32_t n = topo->host_first[host + 1] - topo->host_first[host], groups = 0;
        int kind = 0;

        for (uint32_t i = 0; i < n; i++)
            seat[i].rank = ranks[i];
        while (kind < TUTTI__PLACES && !sort_by(facts, kind, seat, n))
            kind++;
        if (kind == TUTTI__PLACES)
            sort_by_rank(seat, n);
        find_leaders(seat, n, topo->group_of);
        /* Replace leaders by numbers. A leader is its group's lowest rank: it is numbered first. */
        for (uint32_t i = 0; i < n; i++) {
            uint32_t r = ranks[i], leader = topo->group_of[r];

            topo->group_of[r] = leader == r ? groups++ : topo->group_of[leader];
        }
    }
    free(seat);
    return TUTTI_OK;
}
