/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every owner of a schedule needs: its end, and the trips of its chunk loops.
 */
#include "sched/sched.h"

#include <stdlib.h>

void tutti__sched_free(tutti__sched_t *sched)
{
    if (sched == NULL)
        return;
    free(sched->chans);
    free(sched->ops);
    free(sched);
}

static size_t divide_up(size_t n, size_t by)
{
    return n / by + (n % by != 0);
}

size_t tutti__blockmap_trips(const tutti__blockmap_t *map)
{
    size_t largest = 0;

    if (map->table == NULL) /* equal shares differ by one at most */
        return divide_up(divide_up(map->count, map->nblocks), map->chunk);

    for (uint32_t b = 0; b < map->nblocks; b++) {
        size_t n = tutti__block_count(map, b);

        if (n > largest)
            largest = n;
    }
    return divide_up(largest, map->chunk);
}
