/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shortest path of a small allreduce, for programs that repeat it.
 *
 * This path reads and writes the same shared memory as start and step in shm.c, so a peer may use
 * either path. A call of 8 bytes takes 390 instead of 510 instructions, and 0.90 of the time (2
 * ranks, after MPI's barrier, on near cores; 0.97 on far cores).
 */
#include "node/shm/shm.h"

#include <string.h>

/* Have all peers announced this rank's call? Polls up to `looks` times. srcs[r]: rank r's data. */
static inline int all_came(const tutti__shm_t *shm, const tutti__shm_lane_t *lane, uint32_t looks,
                           const void **srcs)
{
    uint64_t head = lane->head | lane->seq;

    for (uint32_t r = 0; r < shm->nlocal; r++) {
        const tutti__announce_t *its = lane->peer[r].announce[lane->seq & 1];

        if (r == shm->me)
            continue;
        while (tutti__load64_acquire(&its->head) != head) {
            if (looks-- <= 1)
                return 0;
            tutti__pause();
        }
        if (its->count != lane->count_word)
            return 0;
        srcs[r] = its->u.data;
    }
    return 1;
}

tutti_status_t tutti__shm_repeat(tutti__node_t *node, const tutti__node_call_t *call, int is_same,
                                 uint32_t looks, tutti__hint_t *hint)
{
    tutti__shm_t *shm = (tutti__shm_t *)node;
    tutti__shm_lane_t *lane = &shm->lane[0];
    const void **srcs = tutti__shm_srcs(shm, 0);
    tutti__announce_t *own;

    if (lane->call != call || !is_same || !lane->simple || shm->ngroups > 1) {
        if (shm->ngroups > 1)
            node->ops->start(node, 0, call);
        else
            tutti__shm_start(shm, 0, call, is_same);
        return node->ops->step(node, 0, hint);
    }
    own = tutti__shm_next(shm, lane);
    srcs[shm->me] = tutti__shm_src(lane, lane->first);
    memcpy(own->u.data, srcs[shm->me], lane->first.count * lane->esize);
    tutti__shm_announce(shm, 0, own);
    if (TUTTI__LIKELY(all_came(shm, lane, looks, srcs))) {
        tutti__reduce(call->reducer, tutti__shm_dst(lane, lane->first), srcs, shm->nlocal,
                      lane->first.count, call->divisor);
        lane->phase = SHM_IDLE;
        return TUTTI_OK;
    }
    return node->ops->step(node, 0, hint);
}
