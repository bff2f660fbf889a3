/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: hand-written allreduces with features that none of the library's
 * algorithms uses: messages of several blocks, four streams, long pipelines, SCRATCH, STAGE,
 * several loops.
 */
#ifndef TESTS_UNIT_EXEC_HAND_H
#define TESTS_UNIT_EXEC_HAND_H

#include "sched/sched.h"

typedef struct {
    const char *name;
    uint32_t least_ranks, most_ranks;
    uint32_t least_credits; /* with fewer credits, and two trips, the schedule deadlocks */
    tutti_status_t (*build)(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched);
} hand_t;

/* Ended by an entry without a name. */
extern const hand_t hand_made[];

#endif
