/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests that plant bugs: copies of schedules, changed one operation at a time. */
#ifndef TESTS_UNIT_COLL_PLANT_H
#define TESTS_UNIT_COLL_PLANT_H

#include "unit/coll/shapes.h"

/* A copy with room for two more operations; tutti__sched_free frees it. */
tutti__sched_t *sched_clone(const tutti__sched_t *sched);
/* The stream of operation i. */
uint32_t sched_stream_of(const tutti__sched_t *sched, uint32_t i);
void sched_remove(tutti__sched_t *sched, uint32_t i);
/* Insert into stream s, before operation i. */
void sched_insert(tutti__sched_t *sched, uint32_t s, uint32_t i, tutti__op_t op);
/* Move FINISH from addition i to a new operation that copies the result onto itself. Returns 0 if
   the addition has no FINISH. */
int sched_finish_late(tutti__sched_t *sched, uint32_t i);
/* Recompute the builder's numbers: marks, trips of loops. */
void sched_settle(tutti__sched_t *sched);

int op_is_loop(const tutti__op_t *op);
int op_is_node(const tutti__op_t *op);
int op_has_channel(const tutti__op_t *op);
int op_reads(const tutti__op_t *op);
int op_writes(const tutti__op_t *op);

#endif
