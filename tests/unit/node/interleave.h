/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as coroutines of one thread: an interleaving is a list of choices, so it can be drawn at
 * random, enumerated, and repeated.
 *
 * Code built with TUTTI_INTERLEAVE calls tutti__interleave_point() before each access to a shared
 * word. There the scheduler may continue another rank. A rank without progress calls il_idle(), and
 * is not chosen again before another one has run.
 */
#ifndef TUTTI_TESTS_INTERLEAVE_H
#define TUTTI_TESTS_INTERLEAVE_H

#include <stdint.h>

#define IL_RANKS 4

/* The choice of the next rank. */
typedef struct {
    uint32_t seed;      /* of random choices */
    uint32_t percent;   /* random: chance to switch at a point; 0: only at the points below */
    uint32_t nplaces;   /* enumerated: switch at these points, counted over the run */
    uint32_t place[3];
    uint32_t first;     /* the rank that begins */
} il_plan_t;

typedef void (*il_fn_t)(int rank, void *arg);

/* Run `n` ranks to their ends. Returns the number of points passed, or 0 for a deadlock, in which
   all ranks were idle for too long. */
uint32_t il_run(int n, il_fn_t fn, void *arg, const il_plan_t *plan);

void il_idle(void);

#endif
