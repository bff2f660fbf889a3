/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the checker: small schedules that a function builds for each rank, and the checker's
 * answer.
 */
#ifndef TESTS_UNIT_SCHED_SMALL_H
#define TESTS_UNIT_SCHED_SMALL_H

#include "sched/build.h"
#include "sched/check.h"

enum {
    MOST_RANKS = 4
};

static const tutti__at_t in = { TUTTI__IN, 0 };
static const tutti__at_t out = { TUTTI__OUT, 0 };
static const tutti__at_t stage = { TUTTI__STAGE, 0 };
static const tutti__at_t scratch = { TUTTI__SCRATCH, 0 };
static const tutti__at_t scratch_1 = { TUTTI__SCRATCH, 1 };

/* The schedules of all ranks: 1 block, SCRATCH of 2 blocks, one host. put() writes the schedule of
   one rank. */
typedef struct {
    tutti__expect_t expect;
    uint32_t size;
    void (*put)(tutti__build_t *b, uint32_t rank);
} small_t;

/* The checker's text for the latest check. */
extern char why[1200];

void small_build(const small_t *small, tutti__sched_t **scheds);
void small_free(const small_t *small, tutti__sched_t **scheds);
tutti_status_t small_check(const small_t *small, tutti__sched_t **scheds, uint32_t credits,
                           uint32_t trips);

/* Fails unless the checker reports no error. */
void good(const small_t *small, uint32_t credits, uint32_t trips);
/* Fails unless the checker reports an error with `text` in it. */
void bad(const small_t *small, uint32_t credits, uint32_t trips, const char *text);

#endif
