/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: p ranks in one process and one thread, and a crew of p runs. The test
 * chooses the order in which the runs are stepped, until all are done or none can continue.
 *
 * Only one rank runs at a time. So a rank that is stuck at a word must not be able to continue
 * before the word has changed. crew_drive checks this at each step, because a direct call would
 * sleep there.
 */
#ifndef TESTS_UNIT_EXEC_TEAM_H
#define TESTS_UNIT_EXEC_TEAM_H

#include "base/status.h"
#include "exec/exec.h"
#include "unit/node/world.h"

typedef struct {
    world_t world;
    tutti__node_t *node[WORLD_RANKS];
    tutti__xport_t *xport[WORLD_RANKS], *lag[WORLD_RANKS];
    tutti__xport_t *table[WORLD_RANKS][WORLD_RANKS];
    tutti__exec_env_t env[WORLD_RANKS];
} team_t;

/* is_lagging: put lag.h's transport of this kind before the shared-memory one; 0: do not. */
void team_open(team_t *team, uint32_t n, const uint32_t *host_of, size_t slot_bytes,
               uint32_t credits, int is_lagging);
void team_close(team_t *team);

/* The order of ranks. A stuck rank does not step until another rank has made progress. */
typedef enum {
    ORDER_RANDOM, /* may also choose stuck ranks */
    ORDER_LOWEST, /* always the lowest rank */
    ORDER_HIGHEST,
    ORDER_STARVED, /* one rank begins and steps only when all others are stuck */
    ORDER_ASLEEP,  /* a rank that is stuck at a word sleeps until the word changes */
    ORDERS
} order_t;

typedef enum {
    MEMBER_LATE,
    MEMBER_RUNS,
    MEMBER_DONE,
    MEMBER_FAILED
} member_state_t;

/* One rank's run. It begins at its first step. */
typedef struct {
    tutti__run_t run;
    tutti__exec_call_t call;
    const tutti__sched_t *sched;
    member_state_t state;
    tutti__hint_t hint;
    tutti_status_t status;
    char error[TUTTI__ERROR_BYTES];
} member_t;

typedef struct {
    team_t *team;
    uint32_t lane;
    member_t member[WORLD_RANKS];
    int meets; /* no rank may be done before all have begun */
} crew_t;

/* A crew is used from open to close, with any number of schedules. */
void crew_open(crew_t *crew, team_t *team, uint32_t lane);
void crew_close(crew_t *crew);

/* Set the next call, which no member has begun yet. scheds: [n], calls: [n], copied. */
void crew_set(crew_t *crew, tutti__sched_t *const *scheds, const tutti__exec_call_t *calls);

/* Step the ranks. Returns 1 if all are done or have failed, 0 if no rank can continue or after
   `steps` steps (0: no limit). */
int crew_drive(crew_t *crew, order_t order, uint32_t seed, uint64_t steps);

/* Call crew_drive, after which all ranks must be done. `what`: for messages. */
void crew_finish(crew_t *crew, order_t order, uint32_t seed, const char *what);

/* Cancel all runs that are running or failed; the state of the others is kept. */
void crew_cancel(crew_t *crew);

#endif
