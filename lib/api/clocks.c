/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The difference between the clocks of this rank's host and of rank 0's host, for dumps and traces.
 *
 * In each round of messages, every rank ends after rank 0 has begun, and rank 0 ends after every
 * rank has begun. So a round bounds the offset of the clocks from both sides. The middle of the
 * narrowest bounds differs from the true offset by at most half a round trip.
 */
#include "api/clocks.h"

#include "base/compiler.h"
#include "base/status.h"
#include "base/time.h"

#include <stdlib.h>

/* [rounds] Chosen: with several rounds the narrowest bounds vary little; all rounds take a
   millisecond. */
enum {
    ROUNDS = 8
};

typedef struct {
    int64_t began, ended;
} round_t;

/* The middle of the narrowest bounds of a rank's offset. rounds: [size][ROUNDS] */
static int64_t middle(const round_t *rounds, uint32_t rank)
{
    const round_t *first = rounds, *mine = rounds + (size_t)rank * ROUNDS;
    int64_t least = INT64_MIN, most = INT64_MAX;

    for (int i = 0; i < ROUNDS; i++) {
        least = TUTTI__MAX(least, first[i].began - mine[i].ended);
        most = TUTTI__MIN(most, first[i].ended - mine[i].began);
    }
    return least + (most - least) / 2;
}

tutti_status_t tutti__clocks_compare(tutti__boot_t *boot, int64_t *ret_offset_ns)
{
    const tutti__topo_t *topo = tutti__boot_topo(boot);
    round_t mine[ROUNDS], *all;
    tutti_status_t status = TUTTI_OK;

    *ret_offset_ns = 0;
    if (topo->nhosts == 1)
        return TUTTI_OK;
    all = calloc(topo->size, sizeof(mine));
    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "clocks of %u ranks", topo->size);
    status = tutti__boot_agree(boot, status);
    for (int i = 0; i < ROUNDS && status == TUTTI_OK; i++) {
        uint64_t byte = 0;

        mine[i].began = (int64_t)tutti__now_ns();
        status = tutti__boot_allgather(boot, &byte, sizeof(byte), all);
        mine[i].ended = (int64_t)tutti__now_ns();
    }
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(boot, mine, sizeof(mine), all);
    if (status == TUTTI_OK && topo->host_of[topo->rank] != topo->host_of[0])
        *ret_offset_ns = middle(all, topo->rank);
    free(all);
    return status;
}
