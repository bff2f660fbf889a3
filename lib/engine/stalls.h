/* SPDX-License-Identifier: BSD-3-Clause */
/* Warnings about tensors and requests that have waited for TUTTI_STALL_WARNING. See stalls.c. */
#ifndef TUTTI__ENGINE_STALLS_H
#define TUTTI__ENGINE_STALLS_H

#include "engine/stuck.h"

typedef struct {
    tutti__agreement_t *agreed;
    uint64_t checked_ns;                  /* the last check */
    uint64_t lane_sum[TUTTI__LANES];      /* sum of the fields that change when the lane advances */
    uint64_t lane_moved_ns[TUTTI__LANES]; /* time of the last check that found a new lane_sum */
    tutti__stuck_state_t stuck;
} tutti__stalls_t;

/* Check for stalls. The token's owner calls this function. */
void tutti__stalls_check(tutti__stalls_t *stalls);
/* How long the engine's thread may sleep until the next check; -1: no check is needed. */
int64_t tutti__stalls_nap_us(const tutti__conf_shared_t *conf, const tutti__signals_t *signals);

/* The kind of a message to rank 0: a text about a tensor that has waited for long. */
#define TUTTI__MSG_MISSING TUTTI__MSG_OTHERS
/* Rank 0: log the warning in a message from a host's leader. */
void tutti__stalls_message(const tutti__engine_env_t *env, const void *body, size_t bytes);

#endif
